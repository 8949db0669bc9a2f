"""G3: a server's time, learnt from its replies."""

from __future__ import annotations

import math

from procrastinate_py.persisters._server_time import ServerTime
from procrastinate_py.testing.clock import FakeClock


def test_before_the_first_reply_nothing_is_due() -> None:
    """G3"""
    time = ServerTime(FakeClock().monotonic)
    assert time.now() == -math.inf
    assert time.age() == math.inf


def test_it_goes_on_between_replies() -> None:
    """G3"""
    clock = FakeClock()
    time = ServerTime(clock.monotonic)
    time.heard(5000.0, asked_at=clock.monotonic())
    clock.tick(7)
    assert time.now() == 5007.0
    assert time.age() == 7.0


def test_it_is_never_ahead_of_the_server_and_a_quick_reply_brings_it_nearer() -> None:
    """G3"""
    clock = FakeClock()
    time = ServerTime(clock.monotonic)
    asked_at = clock.monotonic()
    clock.tick(4)  # the reply took 4 s, and nobody knows when in between it was made
    time.heard(5000.0, asked_at=asked_at)
    assert time.now() == 5000.0
    time.heard(5003.0, asked_at=clock.monotonic())
    assert time.now() == 5003.0
    asked_at = clock.monotonic()
    clock.tick(10)
    time.heard(5003.0, asked_at=asked_at)
    assert 5012.9 < time.now() <= 5013.0


def test_a_coarse_clock_is_learnt_more_finely_by_many_replies() -> None:
    """G3: an HTTP date has whole seconds."""
    clock = FakeClock()
    start = clock.now()
    time = ServerTime(clock.monotonic)
    for _ in range(40):
        clock.tick(0.31)
        time.heard(math.floor(clock.now() + 0.77), asked_at=clock.monotonic(), resolution=1.0)
    behind = clock.now() + 0.77 - time.now()
    assert 0.0 <= behind < 0.1, (start, behind)


def test_a_server_clock_that_was_set_is_followed_at_the_next_reply() -> None:
    """G3"""
    clock = FakeClock()
    time = ServerTime(clock.monotonic)
    time.heard(5000.0, asked_at=clock.monotonic())
    clock.tick(1)
    time.heard(90_000.0, asked_at=clock.monotonic())
    assert time.now() == 90_000.0
    time.heard(100.0, asked_at=clock.monotonic())
    assert time.now() == 100.0
