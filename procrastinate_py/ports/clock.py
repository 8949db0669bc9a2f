"""Time, as the rest of the package gets it. The only module that reads it.

It stands this low because stores need a clock by default and may not import the runtime.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Unix epoch seconds, with their fraction. May step either way."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, that never step back: for limits and durations."""


class SystemClock:
    """The machine's clock. Reads through the module, so that freezegun and time-machine can freeze it."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        # Not time.monotonic, which freezegun freezes too: a time limit must hold while the calendar stands still.
        return time.clock_gettime(time.CLOCK_MONOTONIC)
