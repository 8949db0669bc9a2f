"""Wake-ups that arrive on a connection, passed on by a thread (G7)."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from procrastinate_py.persisters import _wake_thread
from procrastinate_py.persisters._wake_thread import NoWakeUpsError, ThreadListener

PATIENCE = 30.0


class Server:
    """Stands for one: each connection of it is a pair of sockets."""

    def __init__(self) -> None:
        self.is_up = True
        self.refuses_to_listen = False
        self.sources: list[Source] = []
        self.connected = threading.Semaphore(0)
        self.asked = threading.Semaphore(0)

    def connect(self) -> Source:
        self.asked.release()
        if self.refuses_to_listen:
            raise NoWakeUpsError("a pooler is between")
        if not self.is_up:
            raise ConnectionRefusedError("down")
        source = Source()
        self.sources.append(source)
        self.connected.release()
        return source

    def close(self) -> None:
        for source in self.sources:
            source.theirs.close()


class Source:
    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.closed = threading.Event()

    def fileno(self) -> int:
        return self.ours.fileno()

    def read(self) -> bool:
        data = self.ours.recv(4096)
        if not data:
            raise ConnectionResetError("lost")
        return b"wake" in data

    def close(self) -> None:
        self.ours.close()
        self.closed.set()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(_wake_thread, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(_wake_thread, "LONGEST_PAUSE", 0.02)
    server = Server()
    yield server
    server.close()


@pytest.fixture
def listen(server: Server) -> Iterator[Callable[[], ThreadListener]]:
    listeners = []

    def listen() -> ThreadListener:
        listeners.append(ThreadListener(server.connect, "email-wake"))
        return listeners[-1]

    yield listen
    for listener in listeners:
        listener.close()


def is_awake(listener: ThreadListener, within: float = 0.0) -> bool:
    return bool(select.select([listener.fileno()], [], [], within)[0])


def wait(semaphore: threading.Semaphore) -> None:
    assert semaphore.acquire(timeout=PATIENCE)


def test_what_arrives_makes_the_listener_readable_until_it_drains(
    server: Server, listen: Callable[[], ThreadListener]
) -> None:
    """G7, E17"""
    listener = listen()
    assert not is_awake(listener)
    server.sources[0].theirs.send(b"wake")
    assert is_awake(listener, PATIENCE)
    listener.drain()
    assert not is_awake(listener)
    server.sources[0].theirs.send(b"wake")
    assert is_awake(listener, PATIENCE)


def test_what_is_no_wake_up_wakes_nobody(server: Server, listen: Callable[[], ThreadListener]) -> None:
    """A keepalive, say, or a notice."""
    listener = listen()
    server.sources[0].theirs.send(b"hello")
    server.sources[0].theirs.close()
    wait(server.connected)
    wait(server.connected)
    assert is_awake(listener, PATIENCE), "woken for the new connection"
    listener.drain()
    assert not is_awake(listener)


def test_a_lost_connection_is_opened_anew_and_wakes_for_what_was_missed(
    server: Server, listen: Callable[[], ThreadListener]
) -> None:
    """G7"""
    listener = listen()
    for number in range(3):
        server.sources[number].theirs.close()
        assert is_awake(listener, PATIENCE)
        assert server.sources[number].closed.is_set()
        listener.drain()
        server.sources[number + 1].theirs.send(b"wake")
        assert is_awake(listener, PATIENCE)
        listener.drain()


def test_an_outage_is_waited_out_even_one_at_the_beginning(
    server: Server, listen: Callable[[], ThreadListener]
) -> None:
    """G7"""
    server.is_up = False
    listener = listen()
    for _ in range(5):
        wait(server.asked)
    assert not is_awake(listener)
    server.is_up = True
    assert is_awake(listener, PATIENCE)
    assert len(server.sources) == 1


def test_where_wake_ups_cannot_come_through_that_is_said_at_once(
    server: Server, listen: Callable[[], ThreadListener]
) -> None:
    server.refuses_to_listen = True
    with pytest.raises(NoWakeUpsError, match="pooler"):
        listen()
    assert "email-wake" not in [thread.name for thread in threading.enumerate()]


def test_a_server_that_comes_back_behind_a_pooler_is_asked_again(
    server: Server, listen: Callable[[], ThreadListener]
) -> None:
    listener = listen()
    server.refuses_to_listen = True
    server.sources[0].theirs.close()
    for _ in range(4):
        wait(server.asked)
    server.refuses_to_listen = False
    assert is_awake(listener, PATIENCE)


def test_closing_ends_the_thread_and_its_connection(server: Server, listen: Callable[[], ThreadListener]) -> None:
    """G9"""
    listener = listen()
    listener.close()
    listener.close()
    assert server.sources[0].closed.wait(PATIENCE)
    server.is_up = False
    pausing = listen()
    wait(server.asked)
    pausing.close()
    for thread in threading.enumerate():
        if thread.name == "email-wake":
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_closing_works_while_a_forks_child_holds_the_descriptors_too(
    server: Server, listen: Callable[[], ThreadListener]
) -> None:
    """U31: what a child inherits must keep nothing of ours alive, and the child leaves the connection to us"""
    listener = listen()
    gate_read, gate_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(gate_write)
        listener.close()
        os.read(gate_read, 1)
        os._exit(0)
    server.sources[0].theirs.send(b"wake")
    assert is_awake(listener, PATIENCE)
    assert not server.sources[0].closed.is_set()
    listener.close()
    assert server.sources[0].closed.wait(PATIENCE)
    os.close(gate_write)
    os.close(gate_read)
    os.waitpid(child, 0)


def test_more_wake_ups_than_the_descriptor_holds_neither_block_nor_end_it(
    server: Server, listen: Callable[[], ThreadListener]
) -> None:
    listener = listen()
    while True:
        try:
            listener._threads.send(b"\0" * 65536)
        except BlockingIOError:
            break
    server.sources[0].theirs.send(b"wake")
    server.sources[0].theirs.close()
    wait(server.connected)
    wait(server.connected)
    assert is_awake(listener)
    listener.drain()
    server.sources[1].theirs.send(b"wake")
    assert is_awake(listener, PATIENCE)
