"""The proxy does to connections what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.tcp_proxy import Proxy, proxied


class Echo:
    """Answers each line with itself, and knows what it heard."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.heard: list[bytes] = []
        self.url = f"echo://127.0.0.1:{self.socket.getsockname()[1]}/"
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._talk, args=(self.socket.accept()[0],), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(1000):
                self.heard.append(data)
                connection.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.socket.shutdown(socket.SHUT_RDWR)
    echo.socket.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with proxied(echo.url) as proxy:
        yield proxy


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=60)


def ask(connection: socket.socket, what: bytes) -> bytes:
    connection.sendall(what)
    return connection.recv(1000)


def test_it_forwards_and_cuts(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        assert ask(connection, b"one") == b"one"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(1000)
    with connected(proxy) as connection:
        assert ask(connection, b"two") == b"two"


def test_a_lost_request_never_arrives(proxy: Proxy, echo: Echo) -> None:
    with connected(proxy) as connection:
        proxy.lose_requests(containing=b"two")
        assert ask(connection, b"one") == b"one"
        with pytest.raises(ConnectionResetError):
            ask(connection, b"two")
    assert echo.heard == [b"one"]


@pytest.mark.parametrize("after", [0, 2])
def test_a_lost_reply_is_one_to_a_request_that_arrived(proxy: Proxy, echo: Echo, after: int) -> None:
    with connected(proxy) as connection:
        proxy.lose_replies(after_bytes=after)
        with pytest.raises(ConnectionResetError):
            assert ask(connection, b"one") == b"on"
            connection.recv(1000)
    assert echo.heard == [b"one"]
    assert proxy.counts()["reply"] == 1


def test_what_stalls_goes_on_later(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        assert ask(connection, b"one") == b"one"
        proxy.stall()
        connection.sendall(b"two")
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1000)
        connection.settimeout(60)
        proxy.forward()
        assert connection.recv(1000) == b"two"


def test_it_refuses(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)
    proxy.forward()
    with connected(proxy) as connection:
        assert ask(connection, b"one") == b"one"


def test_it_answers_in_the_servers_place(proxy: Proxy, echo: Echo) -> None:
    proxy.answer(b"busy")
    with connected(proxy) as connection:
        assert ask(connection, b"one") == b"busy"
        assert connection.recv(1000) == b""
    assert echo.heard == []
