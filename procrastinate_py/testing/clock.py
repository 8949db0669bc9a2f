"""Time that a test moves by hand."""

from __future__ import annotations

import math
import threading

from ..core.instants import Instant, epoch_seconds


class FakeClock:
    """Stands still until it's told to move. Give it to an Environment or a bundled persister as ``clock=``.

    ``now()`` is in Unix epoch seconds. ``monotonic()`` goes on with ``tick`` and with ``move_to`` forwards, and
    never steps back. Safe to use from several threads.
    """

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._lock = threading.Lock()
        self._now = float(start)
        self._elapsed = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def tick(self, seconds: float = 1.0) -> None:
        """Goes on by ``seconds``. Raises ValueError for a negative or endless number: ``move_to`` steps back."""
        if isinstance(seconds, bool) or not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"tick takes a finite number of seconds of at least 0, not {seconds!r}")
        with self._lock:
            self._now += seconds
            self._elapsed += seconds

    def move_to(self, instant: Instant) -> None:
        """Shows this instant from now on: epoch seconds, a datetime, or a timedelta from its now."""
        with self._lock:
            seconds = float(epoch_seconds(instant, now=self._now, argument="instant"))
            self._elapsed += max(0.0, seconds - self._now)
            self._now = seconds

    def __repr__(self) -> str:
        return f"FakeClock({self._now!r})"

    def __reduce__(self) -> tuple[type[FakeClock], tuple[float]]:
        """A copy in another process starts at the same instant, and is moved on its own."""
        return FakeClock, (self._now,)
