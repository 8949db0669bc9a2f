"""Instants as users say them, as the Unix epoch seconds that are stored."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

Instant = int | float | datetime | timedelta
"""Epoch seconds, a datetime (naive: local time), or a timedelta from now."""

LATEST = 253_402_300_799
"""The last second of the year 9999."""


def epoch_seconds(value: Any, *, now: float, argument: str) -> float:
    """Raises TypeError or ValueError naming the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float | datetime | timedelta):
        raise TypeError(f"{argument} must be epoch seconds, a datetime or a timedelta, not {value!r}")
    if isinstance(value, datetime):
        seconds = _timestamp(value, argument)
    elif isinstance(value, timedelta):
        seconds = now + value.total_seconds()
    else:
        seconds = value
    if not -LATEST <= seconds <= LATEST:  # also False for NaN
        raise ValueError(f"{argument} must be a finite instant before the year 10000, not {value!r}")
    return seconds


def _timestamp(value: datetime, argument: str) -> float:
    try:
        return value.timestamp()
    except (OverflowError, ValueError, OSError) as error:
        raise ValueError(f"{argument} can't be told in epoch seconds: {value!r} ({error})") from error


def round_run_at(seconds: float) -> int:
    """Up: a task must not run before the instant that was asked for."""
    return math.ceil(seconds)


def round_expire_at(seconds: float) -> int:
    """Down: a task must not run after the instant that was asked for."""
    return math.floor(seconds)
