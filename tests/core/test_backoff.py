"""E34, U10: how long a failed task waits."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procrastinate_py.core.backoff import LONGEST_DELAY, bounded_delay, default_backoff


@pytest.mark.parametrize("attempts", [1, 2, 3, 10, 20, 73, 74])
def test_the_wait_is_30_seconds_and_the_fourth_power(attempts: int) -> None:
    """E34"""
    assert default_backoff(attempts) == 30 + attempts**4


@pytest.mark.parametrize("attempts", [75, 10**6, 10**100])
def test_no_count_of_attempts_overflows(attempts: int) -> None:
    """E34: whatever it is, a sleep and a store take the answer."""
    assert default_backoff(attempts) == LONGEST_DELAY == 365 * 24 * 3600


@given(st.integers(1, 10**9))
def test_a_later_attempt_never_waits_less(attempts: int) -> None:
    """E34"""
    assert default_backoff(attempts) <= default_backoff(attempts + 1) <= LONGEST_DELAY


@pytest.mark.parametrize("seconds", [0, 0.5, 10, LONGEST_DELAY])
def test_what_a_policy_answers_is_taken_as_it_is(seconds: float) -> None:
    """U10"""
    assert bounded_delay(seconds) == seconds and type(bounded_delay(seconds)) is float


@pytest.mark.parametrize("seconds", [LONGEST_DELAY + 1, math.inf, 10**400, 1e300])
def test_no_policy_waits_for_more_than_a_year(seconds: float) -> None:
    """U10"""
    assert bounded_delay(seconds) == LONGEST_DELAY


@pytest.mark.parametrize("seconds", [-1, -0.1, math.nan, -math.inf, True, None, "5", Decimal(5), [], -(10**5000)])
def test_nonsense_from_a_policy_is_refused(seconds: Any) -> None:
    """U10"""
    with pytest.raises(ValueError, match="a backoff must give"):
        bounded_delay(seconds)
