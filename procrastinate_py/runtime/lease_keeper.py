"""The heartbeat: extends the leases of all that's in hand in one call.

It runs in the coordinator, which never runs a task's code: a process that can't extend couldn't settle either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.lease import LeaseToken
from ..ports.persister import Leasing

LEASE_FOR = 30.0
EXTEND_EVERY = 10.0


class LeaseKeeper:
    def __init__(self, store: Leasing, monotonic: Callable[[], float], lease_for: float = LEASE_FOR) -> None:
        self._store = store
        self._monotonic = monotonic
        self.lease_for = lease_for
        self._every = lease_for * EXTEND_EVERY / LEASE_FOR
        self._next = float("-inf")

    @property
    def due_at(self) -> float:
        """The monotonic instant of the next extension, should anything be in hand then."""
        return self._next

    @property
    def until(self) -> float:
        """The monotonic instant until which a lease lasts for certain that's asked for from now on."""
        return self._monotonic() + self.lease_for

    def begin(self) -> None:
        """The first task of a busy spell was just claimed: its lease is fresh."""
        self._next = self._monotonic() + self._every

    def extend(self, tokens: Sequence[LeaseToken]) -> Sequence[LeaseToken]:
        """Those whose lease is lost. Raises what the store raises; then it's due again soon."""
        self._next = self._monotonic() + self._every / 10
        lost = self._store.extend(tokens, self.lease_for)
        self._next = self._monotonic() + self._every
        return lost
