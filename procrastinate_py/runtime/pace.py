"""How much work to hold beyond the free threads: about 50 ms of it, none where tasks are slow."""

from __future__ import annotations

from collections.abc import Callable

PREFETCH_SECONDS = 0.05
MOST_PREFETCHED = 500
_SHORTEST_MEASURE = 0.002


class Pace:
    """Measures how many tasks a second get finished while there's work."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since = monotonic()
        self._finished = 0
        self._rate = 0.0

    def begin(self) -> None:
        """A busy spell begins: the idle time before it says nothing about speed."""
        self._since = self._monotonic()
        self._finished = 0

    def finished(self, count: int) -> None:
        self._finished += count
        elapsed = self._monotonic() - self._since
        if elapsed >= _SHORTEST_MEASURE:
            self._rate = self._finished / elapsed if not self._rate else (self._rate + self._finished / elapsed) / 2
            self.begin()

    def stalled(self) -> None:
        """What was held beyond the free threads isn't being begun: hold nothing until speed is known anew."""
        self._rate = 0.0
        self.begin()

    @property
    def prefetch(self) -> int:
        return min(MOST_PREFETCHED, int(self._rate * PREFETCH_SECONDS))
