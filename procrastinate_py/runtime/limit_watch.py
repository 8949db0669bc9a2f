"""Time limits, from the outside: threads can't be killed, so a body that won't end is left behind.

At its limit a body is interrupted. Where that doesn't end it, its outcome is taken out of its hands; where it's still
there after ``timeout_grace``, the process has to be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..core.queue import QueueSpec
from .attempt import NEVER, Attempt

ALLOWANCE = 0.1
"""Seconds that an interrupted body gets to end by itself before its outcome is taken out of its hands."""
_TRY_EVERY = 0.01


class LimitWatch:
    def __init__(self, spec: QueueSpec, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._grace = spec.timeout_grace
        self._shortest = min(limit for limit in (spec.timeout, spec.hook_timeout, NEVER) if limit is not None)
        self._late: dict[tuple[Attempt, int], float] = {}
        self._stuck: dict[Attempt, float] = {}
        self.next_at = NEVER
        """When to look again; nothing that begins later than a look can be overdue before it."""

    def begin(self) -> None:
        """Something is handed over: look again before its limit."""
        self.next_at = min(self.next_at, self.soonest_limit)

    @property
    def soonest_limit(self) -> float:
        """The earliest limit that anything which begins now can have."""
        return self._monotonic() + self._shortest

    def earliest(self, working: Iterable[Attempt]) -> float:
        """The first limit among these; those which haven't begun can't have one before ``soonest_limit``."""
        soonest = self.soonest_limit
        return min((soonest if attempt.limit is None else attempt.limit[1] for attempt in working), default=NEVER)

    def overdue(self, working: Collection[Attempt]) -> list[Attempt]:
        """Interrupts what has reached its limit. Returns what didn't heed that: the caller must take it over."""
        now = self._monotonic()
        unheeding = []
        late = {}
        for attempt in working:
            limit = attempt.limit
            if limit is not None and now >= limit[1]:
                late[attempt, limit[0]] = since = self._late.get((attempt, limit[0]), now)
                attempt.guard.interrupt(limit[0])
                if now >= since + ALLOWANCE:
                    unheeding.append(attempt)
        self._late = late
        self.next_at = min(
            self.earliest(
                attempt for attempt in working if not late or (attempt, (attempt.limit or (0,))[0]) not in late
            ),
            now + self._shortest if working else NEVER,
            now + _TRY_EVERY if late else NEVER,
            # Not what has passed: from then on the process is drained, and needs no more looks for that.
            min((end for since in self._stuck.values() if (end := since + self._grace) > now), default=NEVER),
        )
        return unheeding

    def taken_over(self, attempt: Attempt) -> None:
        """Its outcome is settled, its thread isn't back yet."""
        self._stuck[attempt] = self._monotonic()
        self.next_at = min(self.next_at, self._stuck[attempt] + self._grace)

    @property
    def stuck(self) -> int:
        """How many threads are still in a body whose outcome is settled."""
        for attempt in [attempt for attempt in self._stuck if attempt.done]:
            del self._stuck[attempt]
        return len(self._stuck)

    @property
    def must_replace(self) -> bool:
        now = self._monotonic()
        return self.stuck > 0 and any(now >= since + self._grace for since in self._stuck.values())
