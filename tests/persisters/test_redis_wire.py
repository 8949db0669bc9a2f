"""What goes over a connection to Redis: every kind of reply of both protocols, however it's cut (G7)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from procrastinate_py.persisters._redis_session import Node
from procrastinate_py.persisters._redis_wire import Refused, Wire, packed


class Connection:
    """What the library gives: a socket, and a way to let it go."""

    def __init__(self, opened: socket.socket) -> None:
        self._sock = opened

    def disconnect(self) -> None:
        self._sock.close()


@pytest.fixture
def ends() -> Iterator[tuple[Wire, socket.socket]]:
    mine, servers = socket.socketpair()
    mine.settimeout(60.0)
    wire = Wire(Connection(mine))
    yield wire, servers
    wire.close()
    servers.close()


REPLIES: list[tuple[bytes, Any]] = [
    (b"+OK\r\n", b"OK"),
    (b":-3\r\n", -3),
    (b"$5\r\na\r\nbc\r\n", b"a\r\nbc"),
    (b"$0\r\n\r\n", b""),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+b\r\n", [b"a", [1, None], b"b"]),
    (b"_\r\n", None),
    (b"%1\r\n+save\r\n$0\r\n\r\n", [b"save", b""]),
    (b"=8\r\ntxt:some\r\n", b"txt:some"),
    (b",1.5\r\n", b"1.5"),
    (b"~1\r\n:2\r\n", [2]),
    (b">2\r\n+invalidate\r\n*1\r\n+k\r\n:7\r\n", 7),
    (b"$200000\r\n" + b"x" * 200_000 + b"\r\n", b"x" * 200_000),
]


@pytest.mark.parametrize(("sent", "wanted"), REPLIES)
@pytest.mark.parametrize("size", [1, 3, 10**6])
def test_a_reply_is_read_however_it_is_cut(
    ends: tuple[Wire, socket.socket], sent: bytes, wanted: Any, size: int
) -> None:
    wire, server = ends
    if size < 10 and len(sent) > 1000:
        size = 50_001

    def answer() -> None:
        server.recv(100)
        for start in range(0, len(sent), size):
            server.sendall(sent[start : start + size])

    for _ in range(2):  # nothing of a reply may be left for the next one
        thread = threading.Thread(target=answer)
        thread.start()
        assert wire.ask(b"*1\r\n$4\r\nPING\r\n") == wanted
        thread.join()


def test_a_refusal_tells_its_code_and_leaves_the_connection_good(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends
    server.sendall(b"-OOM command not allowed\r\n")
    with pytest.raises(Refused, match="OOM command not allowed") as caught:
        wire.ask(b"x")
    assert caught.value.code == "OOM"
    assert not wire.is_stale()
    server.sendall(b"+OK\r\n")
    assert wire.ask(b"x") == b"OK"


def test_a_lost_connection_and_another_language_are_told(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends
    server.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(ConnectionError, match="no reply of a Redis server"):
        wire.ask(b"x")
    server.sendall(b"$5\r\nab")
    server.shutdown(socket.SHUT_WR)
    assert wire.is_stale()


def test_a_reply_that_ends_too_early_is_no_reply(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends
    server.sendall(b"*2\r\n$5\r\nab")
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError, match="closed the connection"):
        wire.ask(b"x")


def test_words_are_sent_as_they_are() -> None:
    assert packed([b"\r\n\0", "\u00e9", 12]) == b"$3\r\n\r\n\0\r\n$2\r\n\xc3\xa9\r\n$2\r\n12\r\n"


class Answers:
    """A connection on which the server gives one answer."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.closed = False

    def ask(self, command: bytes) -> Any:
        raise Refused(self.answer)

    def is_stale(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("answer", "leaves"),
    [
        ("READONLY You can't write against a read only replica.", True),
        ("ERR Error running script (call to f_1): @user_script: 9: -READONLY You can't write against a replica.", True),
        ("OOM command not allowed when used memory > 'maxmemory'.", False),
        ("NOSCRIPT No matching script.", False),
    ],
)
def test_a_server_that_became_a_replica_is_left(answer: str, leaves: bool) -> None:
    """G7: the name may lead to the one that took over, as Redis 7 tells it, and as Redis 6.2 does of scripts."""
    opened: list[Answers] = []

    def connect() -> Any:
        opened.append(Answers(answer))
        return opened[-1]

    node = Node(connect, lambda: 0.0)
    for _ in range(2):
        with pytest.raises(Refused):
            node.execute("PING")
    assert [one.closed for one in opened] == ([True, True] if leaves else [False])
