"""A backoff that grows by a factor."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from procrastinate_py import Exponential
from procrastinate_py.core.backoff import LONGEST_DELAY
from tests.environments import NOW, env_on


def test_it_grows_by_its_factor_up_to_its_cap() -> None:
    """E34 U10"""
    backoff = Exponential(base=10, factor=3, cap=200)
    assert [backoff(n) for n in range(1, 6)] == [10, 30, 90, 200, 200]
    assert Exponential(10, 3, 200, 0) == backoff


@pytest.mark.parametrize("factor", [1, 2, 1.5, 10**6])
def test_no_number_of_attempts_overflows(factor: float) -> None:
    """E34 U10"""
    backoff = Exponential(base=1, factor=factor, cap=5000, jitter=1)
    for attempts in (1, 10, 10**6, 10**30):
        assert 0 <= backoff(attempts) <= 10_000
    assert Exponential(base=0, factor=factor, cap=100)(10**6) == 0


def test_jitter_only_adds() -> None:
    """U10"""
    backoff = Exponential(base=100, factor=1, cap=100, jitter=0.5)
    delays = {backoff(3) for _ in range(200)}
    assert len(delays) > 100
    assert 100 <= min(delays) <= max(delays) <= 150


def test_it_is_never_longer_than_a_year() -> None:
    """U10"""
    assert Exponential(base=LONGEST_DELAY, factor=2, cap=LONGEST_DELAY, jitter=1)(9) == LONGEST_DELAY


@pytest.mark.parametrize("option", ["base", "factor", "cap", "jitter"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "3", None])
def test_wrong_numbers_are_told_where_they_are_made(option: str, value: Any) -> None:
    """U10"""
    with pytest.raises((ValueError, TypeError), match=option):
        Exponential(**{option: value})


def test_it_travels_to_a_spawned_process() -> None:
    """E42"""
    backoff = Exponential(base=3, jitter=0.1)
    assert pickle.loads(pickle.dumps(backoff)) == backoff


class Fails:
    def run(self) -> None:
        raise ValueError("no")


def test_a_queue_goes_by_it() -> None:
    """E34"""
    env = env_on(None, now=NOW)
    env.define_queue("email", backoff=Exponential(base=7, factor=2))
    task_id = env.delay(Fails())
    delays = []
    for _ in range(3):
        env.act()
        run_at = env.find(task_id).run_at
        assert run_at is not None
        delays.append(run_at - env.now())
        env.clock.move_to(run_at)  # type: ignore[attr-defined]
    assert delays == [7, 14, 28]
    env.stop()
