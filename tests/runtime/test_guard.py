"""U32: an interruption lands in the guarded code or nowhere."""

from __future__ import annotations

import cProfile
import sys
import threading
from collections.abc import Iterator

import pytest

from procrastinate_py.runtime.guard import Guard, Interruption


@pytest.fixture
def nervous_threads() -> Iterator[None]:
    """Threads that switch as often as they can, so that races show."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def spin() -> None:
    while True:
        pass


def in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_it_returns_what_the_function_returns_and_raises_what_it_raises() -> None:
    guard = Guard()
    assert guard.call(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(SystemExit):
        guard.call(sys.exit, 3)


def test_an_interruption_ends_a_body_that_loops_for_ever() -> None:
    guard = Guard()
    begun = threading.Event()
    ended: list[BaseException] = []

    def body() -> None:
        begun.set()
        spin()

    def work() -> None:
        try:
            guard.call(body)
        except BaseException as error:
            ended.append(error)

    thread = in_thread(work)
    assert begun.wait(60)
    assert guard.interrupt(1)
    thread.join(60)
    assert [type(error) for error in ended] == [Interruption]


def test_no_window_is_open_before_and_after() -> None:
    guard = Guard()
    assert not guard.interrupt(0)
    guard.call(lambda: None)
    assert not guard.interrupt(1)


def test_an_interruption_for_one_window_cannot_hit_the_next() -> None:
    """A limit of ``run`` must not end a hook."""
    guard = Guard()
    guard.call(lambda: None)
    seen: list[bool] = []
    guard.call(lambda: seen.append(guard.interrupt(1)))
    assert seen == [False]


def test_only_one_interruption_is_sent() -> None:
    guard = Guard()
    sent: list[bool] = []

    def body() -> None:
        try:
            guard.interrupt(1)
            spin()
        except Interruption:
            sent.append(guard.interrupt(1))

    with pytest.raises(Interruption):
        guard.call(body)
    assert sent == [False]


def test_a_body_that_swallows_its_interruption_was_interrupted_all_the_same() -> None:
    guard = Guard()

    def body() -> str:
        try:
            guard.interrupt(1)
            spin()
        except BaseException:
            return "finished"
        return "never"

    with pytest.raises(Interruption):
        guard.call(body)


def test_except_exception_does_not_swallow_it() -> None:
    guard = Guard()
    swallowed: list[Exception] = []

    def body() -> None:
        try:
            guard.interrupt(1)
            spin()
        except Exception as error:
            swallowed.append(error)

    with pytest.raises(Interruption):
        guard.call(body)
    assert not swallowed


@pytest.mark.usefixtures("nervous_threads")
def test_a_late_interruption_strikes_nothing_outside_the_window() -> None:
    """U32. Interruptions rain on short bodies, at every moment of their windows: outside, nothing is ever raised."""
    guard = Guard()
    rounds = 20_000
    finished = threading.Event()
    strays: list[BaseException] = []
    landed = 0

    def work() -> None:
        nonlocal landed
        try:
            for _ in range(rounds):
                try:
                    guard.call(sum, (1, 2, 3))
                except Interruption:
                    landed += 1
                for _ in range(5):  # room for a stray to strike
                    pass
        except BaseException as error:
            strays.append(error)
        finally:
            finished.set()

    thread = in_thread(work)
    sent = 0
    while not finished.is_set():
        sent += guard.interrupt(guard.window)
    thread.join(60)
    assert not strays
    assert landed == sent > 0


@pytest.mark.usefixtures("nervous_threads")
def test_a_profiler_in_the_thread_makes_no_difference() -> None:
    """U32: CPython 3.11 never ended a traced thread from which an interruption had been taken back."""
    guard = Guard()
    begun = threading.Event()
    ended: list[str] = []

    def body() -> None:
        begun.set()
        spin()

    def work() -> None:
        profiler = cProfile.Profile()
        profiler.enable()
        try:
            guard.call(body)
        except Interruption:
            ended.append("interrupted")
        finally:
            profiler.disable()

    thread = in_thread(work)
    assert begun.wait(60)
    assert guard.interrupt(1)
    thread.join(60)
    assert ended == ["interrupted"]
