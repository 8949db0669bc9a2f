"""The clock that tests move by hand (U12)."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from procrastinate_py.testing.clock import FakeClock


def test_it_stands_still_until_it_is_moved() -> None:
    """U12"""
    clock = FakeClock(100)
    assert (clock.now(), clock.now(), clock.monotonic()) == (100.0, 100.0, 0.0)
    clock.tick(2.5)
    assert (clock.now(), clock.monotonic()) == (102.5, 2.5)
    clock.move_to(90)
    assert (clock.now(), clock.monotonic()) == (90.0, 2.5)
    clock.move_to(datetime(2030, 1, 1, tzinfo=UTC))
    assert clock.now() == 1893456000.0


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True])
def test_a_tick_goes_forward(seconds: float) -> None:
    with pytest.raises(ValueError, match="tick"):
        FakeClock().tick(seconds)


def test_it_can_be_sent_to_another_process() -> None:
    """E42"""
    clock = FakeClock()
    clock.tick(3)
    assert pickle.loads(pickle.dumps(clock)).now() == clock.now()
