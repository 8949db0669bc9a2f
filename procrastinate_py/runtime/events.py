"""What a queue process tells about itself: a supervisor judges its health by it, and tests wait on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

HEARTBEAT = 1.0
"""Seconds between two signs of life while something runs; an idle process has nothing to prove."""


class Events(Protocol):
    def ready(self) -> None: ...
    def alive(self, deadline: float | None) -> None: ...
    def claimed(self, number: int) -> None: ...
    def settled(self, number: int) -> None: ...
    def stopping(self) -> None: ...


class Unheard:
    """Where nobody listens."""

    def ready(self) -> None:
        return

    def alive(self, deadline: float | None) -> None:
        return

    def claimed(self, number: int) -> None:
        return

    def settled(self, number: int) -> None:
        return

    def stopping(self) -> None:
        return


class Heartbeat:
    """Announces by when what runs must have ended: a body that holds the interpreter silences all the rest.

    What was announced is taken back only after a second of idleness. So a task that comes soon after another is begun
    without a word: whoever hears it would want the processor in that very moment.
    """

    def __init__(self, events: Events, monotonic: Callable[[], float]) -> None:
        self._events = events
        self._monotonic = monotonic
        self._announced: float | None = None
        self.next_at = float("inf")
        """The monotonic instant of the next sign of life; never, where nothing runs and nothing was announced."""

    def begin(self, deadline: float) -> None:
        """Before tasks begin that have to end by ``deadline``: once they run it may be too late to say so."""
        announced = self._announced
        if deadline != float("inf") and (announced is None or announced > deadline or announced < self._monotonic()):
            self._announce(deadline)
        self.next_at = min(self.next_at, self._monotonic() + HEARTBEAT)

    def beat(self, earliest: Callable[[], float] | None) -> None:
        """``earliest``: asked for the first limit of what runs; None where nothing runs."""
        if self._monotonic() < self.next_at:
            return
        first = float("inf") if earliest is None else earliest()
        self._announce(None if first == float("inf") else first)
        self.next_at = float("inf") if earliest is None else self._monotonic() + HEARTBEAT

    def _announce(self, deadline: float | None) -> None:
        self._events.alive(deadline)
        self._announced = deadline
