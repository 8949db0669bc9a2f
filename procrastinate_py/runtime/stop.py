"""What tells a worker to stop and how fast, and what it answers."""

from __future__ import annotations

import enum
from collections.abc import Callable


class StopLevel(enum.IntEnum):
    NONE = 0
    DRAIN = 1
    """Claim nothing more, hand back what hasn't begun, let what runs finish until the grace has passed."""
    NOW = 2
    """Interrupt what runs and hand it back."""


class Exit(enum.Enum):
    STOPPED = "stopped"
    REPLACE = "replace"
    """A body wouldn't end: this process must go, and another take its place."""


class StopToken:
    """Only ever rises. Its methods may be called from signal handlers and other threads."""

    def __init__(self, monotonic: Callable[[], float], wake: Callable[[], None]) -> None:
        self.level = StopLevel.NONE
        self.reason = ""
        self.deadline = float("inf")
        self._monotonic = monotonic
        self._wake = wake

    def drain(self, reason: str, grace: float) -> None:
        """Running bodies get ``grace`` seconds from now; a later call can only shorten that."""
        if self.level is StopLevel.NONE:
            self.level = StopLevel.DRAIN
            self.reason = reason
        self.deadline = min(self.deadline, self._monotonic() + grace)
        self._wake()

    def now(self, reason: str) -> None:
        if self.level is not StopLevel.NOW:
            self.level = StopLevel.NOW
            self.reason = self.reason or reason
        self.deadline = self._monotonic()
        self._wake()
