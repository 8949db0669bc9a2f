"""When to look at the store next, if no wake-up comes first.

An idle process makes one call per update_period: a look for its own sake, which doesn't lock the store. Where it's
known when something becomes due, the worker looks at that moment instead of a period late.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ports.persister import Leasing

_SHORTEST_PAUSE = 0.05
_SOON = 0.002
_AT_ONCE = float("-inf")


class Looks:
    """Instants are monotonic, so that a clock which steps back doesn't put the next look off."""

    def __init__(
        self,
        store: Leasing,
        queue: str,
        period: float,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._queue = queue
        self._period = period
        self._now = now
        self._monotonic = monotonic
        self._is_poll = False
        self.next_at = _AT_ONCE
        self.reap_at = _AT_ONCE
        """When to look for lapsed leases: where something is known to have ended, or hasn't been looked for long."""

    def at_once(self) -> None:
        """Something may be due that wasn't known of."""
        self.next_at = _AT_ONCE
        self._is_poll = False

    def expect(self, run_at: float) -> None:
        """A task that was in hand has been put off until then."""
        at = self._monotonic() + max(0.0, run_at - self._now())
        if at < self.next_at:
            self.next_at = at
            self._is_poll = False

    def is_worth_a_claim(self) -> bool:
        """Whether it's time, and something is known to be due, or a look for its own sake finds that it is."""
        if self._monotonic() < self.next_at:
            return False
        if self._is_poll:
            self.plan(found=True)
        return self._monotonic() >= self.next_at

    def soon(self) -> None:
        """What was due is being begun: the store is asked what comes next once that is under way."""
        self.next_at = self._monotonic() + _SOON
        self._is_poll = True

    def plan(self, *, found: bool) -> None:
        """All that was due is in hand; ``found``: that was something. Raises what the store raises."""
        next_look = self._store.next_look_at(self._queue)
        wait = float("inf") if next_look is None else max(0.0, next_look - self._now())
        self._is_poll = wait >= self._period
        if wait == 0.0 and not found:
            # Something to do, but nothing to claim: a lease has lapsed, or is about to.
            wait = _SHORTEST_PAUSE
            self.reap_at = _AT_ONCE
        self.next_at = self._monotonic() + min(wait, self._period)
