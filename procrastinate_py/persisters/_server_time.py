"""What time it is by a server's clock, without asking it each time."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..core.errors import PersisterUnavailableError

_FRESH_FOR = 60.0
"""Seconds after a reply in which the server isn't asked."""
_ASK_AGAIN_AFTER = 10.0
"""Seconds after having asked in vain: a server that's away may take long to say nothing."""
_DRIFT = 1e-3
"""Seconds a second by which the two clocks may part unnoticed; real ones stay far below."""


class ServerTime:
    """Learns from every reply that tells the server's time, and goes on from there by this machine's monotonic clock.

    What it tells is never ahead of the server's clock, and behind it by no more than the quickest reply took: a task
    is never thought due, expired or abandoned too early.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._behind = -math.inf
        self._ahead = math.inf
        self._heard_at = -math.inf
        self._asked_at = -math.inf

    def heard(self, instant: float, *, asked_at: float, resolution: float = 0.0) -> None:
        """A reply, asked for at the monotonic ``asked_at``, tells that the server's clock then showed ``instant``, or
        up to ``resolution`` seconds more where it tells no finer."""
        heard_at = self._monotonic()
        widened = _DRIFT * (heard_at - self._heard_at) if self._heard_at > -math.inf else 0.0
        behind = max(self._behind - widened, instant - heard_at)
        ahead = min(self._ahead + widened, instant + resolution - asked_at)
        if behind > ahead:  # one of the clocks was set: what was learnt before it is worth nothing
            behind, ahead = instant - heard_at, instant + resolution - asked_at
        self._behind, self._ahead, self._heard_at = behind, ahead, heard_at

    def age(self) -> float:
        """Seconds since the last reply; infinite before the first."""
        return self._monotonic() - self._heard_at

    def now(self) -> float:
        """By what was heard. Minus infinity before the first reply."""
        return self._monotonic() + self._behind

    def now_or_ask(self, ask: Callable[[], object]) -> float:
        """By what was heard; where that's long ago, ``ask`` makes a call whose reply tells. If it raises
        PersisterUnavailableError, the time goes on all the same. Only where nothing was ever heard that is raised."""
        if self._is_worth_asking():
            self._asked_at = self._monotonic()
            try:
                ask()
            except PersisterUnavailableError:
                if self.age() == math.inf:
                    raise
                self._asked_at = self._monotonic()
        return self.now()

    def _is_worth_asking(self) -> bool:
        age = self.age()
        return age == math.inf or (age > _FRESH_FOR and self._monotonic() - self._asked_at > _ASK_AGAIN_AFTER)
