"""G3: a server's time, learnt from its replies."""

from __future__ import annotations

import math

import pytest

from procrastinate_py.core.errors import PersisterUnavailableError
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


class Server:
    """Tells the clock's time, while it's there."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.time = ServerTime(clock.monotonic)
        self.asked = 0
        self.is_away = False

    def now(self) -> float:
        return self.time.now_or_ask(self._ask)

    def _ask(self) -> None:
        self.asked += 1
        if self.is_away:
            raise PersisterUnavailableError("away")
        self.time.heard(self.clock.now(), asked_at=self.clock.monotonic())


def test_it_is_asked_for_at_first_and_where_nothing_was_heard_for_long() -> None:
    """G3"""
    server = Server(FakeClock())
    for seconds, asked in ((0, 1), (60, 1), (1, 2), (30, 2)):
        server.clock.tick(seconds)
        assert server.now() == pytest.approx(server.clock.now())
        assert server.asked == asked


def test_while_the_server_is_away_it_goes_on_and_is_asked_for_now_and_then() -> None:
    """G3, G7: what ends in an outage has to be decided on, and each asking may take its time to fail."""
    server = Server(FakeClock())
    server.now()
    server.is_away = True
    for seconds, asked in ((61, 2), (5, 2), (5, 2), (1, 3)):
        server.clock.tick(seconds)
        assert server.now() == pytest.approx(server.clock.now())
        assert server.asked == asked


def test_a_server_that_was_never_heard_is_asked_each_time_and_nobody_guesses() -> None:
    """G3"""
    server = Server(FakeClock())
    server.is_away = True
    for asked in (1, 2):
        with pytest.raises(PersisterUnavailableError):
            server.now()
        assert server.asked == asked
