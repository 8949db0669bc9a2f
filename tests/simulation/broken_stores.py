"""Stores that are each wrong in one way, for the simulation to catch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from procrastinate_py.core.lease import Lease, LeaseToken
from procrastinate_py.core.lifecycle import Close, Release, Reschedule, Transition
from procrastinate_py.core.task import Claim, TaskRecord
from procrastinate_py.persisters import MemoryPersister

Settlements = Sequence[tuple[LeaseToken, Transition]]


class Store(MemoryPersister):
    """Sound, with a handle on its rows for the broken ones."""

    def free(self, row: TaskRecord) -> None:
        with self._lock:
            self._take_out(row)
            self._put(replace(row, lease=None))

    def leased(self) -> list[TaskRecord]:
        return [row for row in self._rows.values() if row.lease is not None]


class ClaimsWhatIsLeased(Store):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        for row in self.leased():
            self.free(row)
        return super().claim(queue, owner, limit, lease_for)


class ClaimsWhatHasLapsed(Store):
    """As many queues do; then a task that kills its worker never reaches max_attempts."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        for row in self.leased():
            if row.lease is not None and row.lease.has_lapsed(self.now()):
                self.free(row)
        return super().claim(queue, owner, limit, lease_for)


class ClaimsBeforeDue(Store):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        with self._lock:
            for row in [row for row in self._rows.values() if row.lease is None and row.run_at is not None]:
                if 0 < row.run_at - self.now() < 20:
                    self._put(replace(row, run_at=int(self.now())))
        return super().claim(queue, owner, limit, lease_for)


class ReopensClosed(Store):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        with self._lock:
            for row in [row for row in self._rows.values() if row.closed_as is not None]:
                self._put(replace(row, run_at=int(self.now()), closed_as=None))
        return super().claim(queue, owner, limit, lease_for)


class SettlesWithoutToken(Store):
    def settle(self, settlements: Settlements) -> list[LeaseToken]:
        with self._lock:
            for token, transition in settlements:
                row = self._rows.get(token.task_id)
                if row is not None:
                    self._carry_out(row, transition)
        return []


class SettlesHalf(Store):
    """And says nothing."""

    def settle(self, settlements: Settlements) -> list[LeaseToken]:
        super().settle(settlements[: (len(settlements) + 1) // 2])
        return []


class LosesTokensItHolds(Store):
    def settle(self, settlements: Settlements) -> list[LeaseToken]:
        return [*super().settle(settlements), settlements[0][0]]


class RevivesLostLeases(Store):
    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        super().extend(tokens, lease_for)
        return []


class ExtendsNothing(Store):
    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        return [token for token in tokens if self._held(token) is None]


class LeasesByAnotherClock(Store):
    """The worker's, say, which is five minutes ahead."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return super().claim(queue, owner, limit, lease_for + 300)


class ReapsTheLiving(Store):
    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> list[Claim]:
        claims = super().lapsed(queue, owner, limit, lease_for, dead_owner)
        others = {row.lease.owner for row in self.leased() if row.lease is not None} - {owner}
        for other in sorted(others):
            claims += super().lapsed(queue, owner, limit, lease_for, other)
        return claims


class ReapsTwice(Store):
    """The new lease isn't stored, so that the next one to ask gets it as well."""

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> list[Claim]:
        old = {row.id: row.lease for row in self.leased()}
        claims = super().lapsed(queue, owner, limit, lease_for, dead_owner)
        for record, _ in claims:
            self._rows[record.id] = replace(self._rows[record.id], lease=old[record.id])
        return claims


class CountsReleases(Store):
    def _carry_out(self, row: TaskRecord, transition: Transition) -> None:
        counted = replace(row, attempts=row.attempts + isinstance(transition, Release))
        super()._carry_out(counted, transition)


class ForgetsAttempts(Store):
    def _carry_out(self, row: TaskRecord, transition: Transition) -> None:
        if isinstance(transition, Reschedule):
            transition = replace(transition, attempts=0)
        super()._carry_out(row, transition)


class ForgetsState(Store):
    def _carry_out(self, row: TaskRecord, transition: Transition) -> None:
        if isinstance(transition, Reschedule):
            transition = replace(transition, task=None)
        super()._carry_out(row, transition)


class DeletesOnFailure(Store):
    def _carry_out(self, row: TaskRecord, transition: Transition) -> None:
        if isinstance(transition, Close):
            self._remove(row.id)
        else:
            super()._carry_out(row, transition)


class KeepsLeaseAfterRetry(Store):
    """The row waits for its retry in the hand of one who has let go of it."""

    def _carry_out(self, row: TaskRecord, transition: Transition) -> None:
        super()._carry_out(row, transition)
        if isinstance(transition, Reschedule):
            self._rows[row.id] = replace(self._rows[row.id], lease=Lease("nobody", self.now()))


class UsesIdsAgain(Store):
    def create_task(self, data: dict[str, Any]) -> int:
        task_id = super().create_task(data)
        with self._lock:
            free = next(number for number in range(1, task_id + 1) if number == task_id or number not in self._rows)
            row = self._rows.pop(task_id)
            self._put(replace(row, id=free))
        return free


class UsesTokensAgain(Store):
    """A claim's token is its owner's name: whoever claims again may settle what it had lost."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        claims = super().claim(queue, owner, limit, lease_for)
        self._tokens.update({record.id: owner for record, _ in claims})
        return [Claim(record, LeaseToken(record.id, owner)) for record, _ in claims]


class HandsOutMoreThanAsked(Store):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return super().claim(queue, owner, limit + 3, lease_for)


class FloorThatDropsAnUpdate:
    """Four methods, one of which says that it has written what it hasn't, now and then."""

    def __init__(self, clock: Any) -> None:
        self._store = MemoryPersister(clock)
        self._updates = 0
        self.read_tasks = self._store.read_tasks
        self.create_task = self._store.create_task
        self.delete_task = self._store.delete_task

    def update_task(self, attributes: dict[str, Any]) -> None:
        self._updates += 1
        if self._updates % 3:
            self._store.update_task(attributes)
