"""Instants as users say them, as the Unix epoch seconds that are stored."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from .error_text import shown

Instant = int | float | datetime | timedelta
"""Epoch seconds, a datetime (naive: local time), or a timedelta from now."""

LATEST = 253_402_300_799
"""The last second of the year 9999."""


def epoch_seconds(value: Any, *, now: float, argument: str) -> float:
    """Raises TypeError or ValueError naming the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float | datetime | timedelta):
        raise TypeError(f"{argument} must be epoch seconds, a datetime or a timedelta, not {shown(value)}")
    if isinstance(value, datetime):
        seconds = _timestamp(value, argument)
    elif isinstance(value, timedelta):
        seconds = now + value.total_seconds()
    else:
        seconds = value
    if not -LATEST <= seconds <= LATEST:  # also False for NaN
        raise ValueError(f"{argument} must be a finite instant before the year 10000, not {shown(value)}")
    return seconds


def _timestamp(value: datetime, argument: str) -> float:
    """datetime.max, which floats round up to the year 10000, is the last instant there is."""
    try:
        if value.tzinfo is None and (value.year, value.month, value.day) == (9999, 12, 31):
            # Python looks a day ahead for a change of the local time, and finds no such day.
            return min((value - timedelta(days=1)).timestamp() + 86400, LATEST)
        return min(value.timestamp(), LATEST)
    except (OverflowError, ValueError, OSError) as error:
        raise ValueError(f"{argument} can't be told in epoch seconds: {shown(value)} ({error})") from error


def round_run_at(seconds: float) -> int:
    """Up: a task must not run before the instant that was asked for."""
    return math.ceil(seconds)


def round_expire_at(seconds: float) -> int:
    """Down: a task must not run after the instant that was asked for."""
    return math.floor(seconds)
