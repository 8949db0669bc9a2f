from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from procrastinate_py.runtime.inbox import Inbox
from procrastinate_py.runtime.stop import StopLevel, StopToken


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    yield inbox
    inbox.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_NONBLOCK)
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:
            continue


def test_a_poke_before_the_wait_ends_it(inbox: Inbox) -> None:
    inbox.poke()
    inbox.wait(None)


def test_a_poke_from_another_thread_ends_the_wait(inbox: Inbox) -> None:
    thread = threading.Thread(target=inbox.poke)
    thread.start()
    inbox.wait(None)
    thread.join()


def test_a_hundred_thousand_pokes_do_not_block(inbox: Inbox) -> None:
    for _ in range(100_000):
        inbox.poke()
    inbox.wait(None)


def test_what_is_readable_is_called_back(inbox: Inbox, pipe: tuple[int, int]) -> None:
    got: list[bytes] = []
    inbox.add(pipe[0], lambda: got.append(os.read(pipe[0], 10)))
    os.write(pipe[1], b"hello")
    inbox.wait(None)
    assert got == [b"hello"]


def test_a_removed_descriptor_is_not_waited_for(inbox: Inbox, pipe: tuple[int, int]) -> None:
    inbox.add(pipe[0], lambda: pytest.fail("called back"))
    inbox.remove(pipe[0])
    inbox.remove(pipe[0])
    os.write(pipe[1], b"x")
    inbox.wait(0)


def test_a_stop_only_rises() -> None:
    """E39"""
    clock = [100.0]
    woken: list[bool] = []
    stop = StopToken(lambda: clock[0], lambda: woken.append(True))
    stop.drain("SIGTERM", 30)
    clock[0] = 110.0
    stop.drain("application gone", 60)
    assert (stop.level, stop.reason, stop.deadline) == (StopLevel.DRAIN, "SIGTERM", 130.0)
    stop.drain("stop", 5)
    assert stop.deadline == 115.0
    stop.now("second SIGTERM")
    stop.drain("again", 60)
    assert (stop.level, stop.deadline) == (StopLevel.NOW, 110.0)
    assert len(woken) == 5
