"""Stores whose leases are broken in one way each."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from procrastinate_py.core.errors import PersisterError
from procrastinate_py.core.lease import Lease, LeaseToken
from procrastinate_py.core.lifecycle import Complete, Release, Reschedule
from procrastinate_py.core.task import Claim
from procrastinate_py.persisters import MemoryPersister
from tests.persisters.broken_stores import caught_by, pause

EVERY = 10**9


@caught_by("leasing", "a lapsed lease still keeps its task from being claimed: it's the reaper's")
class ClaimsLapsed(MemoryPersister):
    """Takes a lapsed lease over in claim, so that a task which kills its worker never ends."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        fresh = super().claim(queue, owner, limit, lease_for)
        return fresh + super().lapsed(queue, owner, limit - len(fresh), lease_for)


@caught_by("leasing", "a task is due at its run_at, and not a moment before")
class ClaimsEarly(MemoryPersister):
    def now(self) -> float:
        return float(int(super().now()) + 1)


@caught_by("leasing", "a worker whose lease the reaper took over can't write")
class OnlyById(MemoryPersister):
    """Completes by the id alone, as most peers do."""

    def settle(self, settlements: Any) -> Any:
        for token, transition in settlements:
            if token.task_id in self._tokens:
                super().settle([(LeaseToken(token.task_id, self._tokens[token.task_id]), transition)])
        return []


@caught_by("leasing", "a token that was never given out writes nothing")
class SaysNothingIsLost(MemoryPersister):
    def settle(self, settlements: Any) -> Any:
        super().settle(settlements)
        return []


@caught_by("leasing", "each claim of a task has another token")
class SameTokenForAll(MemoryPersister):
    def _lease(self, task_id: int, lease: Any, token: str, now: float) -> Claim:
        return super()._lease(task_id, lease, "the token", now)


@caught_by("leasing", "a rescheduled task is in nobody's hand")
class KeepsTheLease(MemoryPersister):
    """A rescheduled task stays in the hand of whoever failed at it."""

    def settle(self, settlements: Any) -> Any:
        return super().settle([pair for pair in settlements if not isinstance(pair[1], Reschedule)])


@caught_by("leasing", "lost tokens among others don't keep the others from being written")
class WritesAllOrNothing(MemoryPersister):
    """One lost token, and the others' outcomes are dropped too."""

    def settle(self, settlements: Any) -> Any:
        lost = [token for token, _ in settlements if self._held(token) is None]
        return lost or super().settle(settlements)


@caught_by("leasing", "a worker has by its own name what a claim gave it whose reply was lost", alone=True)
class KnowsWhoAsks(MemoryPersister):
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        return [] if dead_owner == owner else super().lapsed(queue, owner, limit, lease_for, dead_owner)


@caught_by("leasing", "a dead owner's tasks are had at once, and nobody else's with them")
class ReapsTheLiving(MemoryPersister):
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        with self._lock:
            for task_id, row in self._rows.items():
                if row.lease is not None and dead_owner is not None:
                    self._rows[task_id] = replace(row, lease=replace(row.lease, owner=dead_owner))
        return super().lapsed(queue, owner, limit, lease_for, dead_owner)


@caught_by("leasing", "a new task never gets the id of one that was deleted")
class ReusesIds(MemoryPersister):
    def delete_task(self, task_id: Any) -> None:
        super().delete_task(task_id)
        self._ids = itertools.count(max(self._rows, default=0) + 1)

    def settle(self, settlements: Any) -> Any:
        lost = super().settle(settlements)
        if any(isinstance(transition, Complete) for _, transition in settlements):
            self._ids = itertools.count(max(self._rows, default=0) + 1)
        return lost


@caught_by("leasing", "tasks are claimed in order of run_at, then of id")
class SortsByIdOnly(MemoryPersister):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return sorted(super().claim(queue, owner, limit, lease_for), key=lambda claim: claim.record.id)


@caught_by("leasing", "the next look is due at the earliest run_at or end of a lease, and never where there is neither")
class LooksTooLate(MemoryPersister):
    def next_look_at(self, queue: str) -> float | None:
        """Forgets that leases end."""
        first = self._first(queue)
        return None if first is None else float(first[0])


# --- claiming


class ClaimsAmong(MemoryPersister):
    """Claims all, and gives back what ``chosen`` leaves out."""

    def chosen(self, claims: list[Claim], limit: int) -> list[Claim]:
        return claims[: max(limit, 0)]

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        claims = super().claim(queue, owner, EVERY, lease_for)
        kept = self.chosen(claims, limit)
        self.settle([(claim.token, Release()) for claim in claims if claim not in kept])
        return kept


@caught_by("leasing", "a claim with a negative limit takes nothing", alone=True)
class TakesNegativeForAll(MemoryPersister):
    """As LIMIT -1 does in SQLite."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return super().claim(queue, owner, EVERY if limit < 0 else limit, lease_for)


@caught_by("leasing", "lapsed with limit 0, or a negative one, takes nothing", alone=True)
class ReapsNegativeForAll(MemoryPersister):
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        return super().lapsed(queue, owner, EVERY if limit < 0 else limit, lease_for, dead_owner)


@caught_by("leasing", "a claim with a limit far beyond what's there takes what's there", alone=True)
class Limits32Bits(MemoryPersister):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        if limit >= 2**31:
            raise OverflowError("integer out of range")
        return super().claim(queue, owner, limit, lease_for)

    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        return super().lapsed(queue, owner, limit, lease_for, dead_owner)


@caught_by("leasing", "a claim on a queue of any name takes that queue's tasks only")
class ClaimsByPrefix(MemoryPersister):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        for name in list(self._queues):
            if name.casefold() == queue.casefold() and (claims := super().claim(name, owner, limit, lease_for)):
                return claims
        return []


@caught_by(
    "leasing",
    "a claim changes none of the nine attributes, and leaves the task among those that read_tasks gives",
)
class HidesByRunAt(MemoryPersister):
    """As a visibility timeout does."""

    def _lease(self, task_id: int, lease: Lease, token: str, now: float) -> Claim:
        claim = super()._lease(task_id, lease, token, now)
        self._rows[task_id] = replace(claim.record, run_at=int(lease.expires_at))
        return claim


@caught_by("leasing", "a task whose expire_at has passed is claimed like any other: the worker sees to it")
class LeavesExpired(ClaimsAmong):
    def chosen(self, claims: list[Claim], limit: int) -> list[Claim]:
        return [claim for claim in claims if not claim.record.is_expired(self.now())][: max(limit, 0)]


@caught_by("leasing", "tasks of one claim have one owner and one end, and a token each", alone=True)
class LeasesStaggered(MemoryPersister):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        claims = super().claim(queue, owner, limit, lease_for)
        if len(claims) != 5:
            return claims
        return [self._lease(claim.record.id, Lease(owner, n), claim.token.value, 0) for n, claim in enumerate(claims)]


@caught_by("leasing", "instants are ordered as numbers: before 1970, of few digits and of many", alone=True)
class SortsAsText(ClaimsAmong):
    def chosen(self, claims: list[Claim], limit: int) -> list[Claim]:
        return sorted(claims, key=lambda claim: str(claim.record.run_at))[: max(limit, 0)]


@caught_by("leasing", "tasks of the same run_at are claimed in the order in which they were created, however they were")
class NewestFirst(ClaimsAmong):
    def chosen(self, claims: list[Claim], limit: int) -> list[Claim]:
        return sorted(claims, key=lambda claim: (claim.record.run_at, -claim.record.id))[: max(limit, 0)]


@caught_by("leasing", "a rescheduled task takes its place by its new run_at, and among equals by its id", alone=True)
class ReschedulesToTheEnd(ClaimsAmong):
    """As a list does that rescheduled tasks are appended to."""

    def chosen(self, claims: list[Claim], limit: int) -> list[Claim]:
        return sorted(claims, key=lambda c: (c.record.run_at, c.record.attempts > 0, c.record.id))[: max(limit, 0)]


@caught_by("leasing", "update_task can make a task due, or put it off")
class ForgetsToIndex(MemoryPersister):
    """Its index of what's due doesn't hear of updates."""

    def update_task(self, attributes: dict[str, Any]) -> None:
        old = self._rows.get(attributes["id"])
        super().update_task(attributes)
        if old is not None and old.run_at is not None:
            due = self._queues[old.queue].due
            due[:] = [entry for entry in due if entry != (attributes["run_at"], old.id)]


@caught_by("leasing", "one call settles a thousand tasks from several claims", alone=True)
class TakesFewAtATime(MemoryPersister):
    def settle(self, settlements: Any) -> Any:
        return super().settle(settlements[:90])


# --- leases


@caught_by("leasing", "extend can make a lease end sooner")
class NeverShortens(MemoryPersister):
    def extend(self, tokens: Any, lease_for: float) -> Any:
        before = {token: row.lease for token in tokens if (row := self._held(token)) is not None}
        lost = super().extend(tokens, lease_for)
        for token, lease in before.items():
            row = self._rows[token.task_id]
            if lease is not None and row.lease is not None and row.lease.expires_at < lease.expires_at:
                self._rows[row.id] = replace(row, lease=lease)
        return lost


@caught_by("leasing", "extend by a stale token leaves the new holder's lease alone")
class ExtendsById(MemoryPersister):
    def extend(self, tokens: Any, lease_for: float) -> Any:
        lost = [token for token in tokens if self._held(token) is None]
        known = [LeaseToken(token.task_id, self._tokens.get(token.task_id, "")) for token in tokens]
        super().extend(known, lease_for)
        return lost


@caught_by("leasing", "the token stays the same when its lease is extended, however often")
class ExtendsUnderANewToken(MemoryPersister):
    def extend(self, tokens: Any, lease_for: float) -> Any:
        lost = super().extend(tokens, lease_for)
        for token in set(tokens) - set(lost):
            self._tokens[token.task_id] = token.value + "'"
        return lost


@caught_by("leasing", "leases may last fractions of a second")
class WholeSeconds(MemoryPersister):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return super().claim(queue, owner, limit, max(1, round(lease_for)))


@caught_by("leasing", "a dead owner's tasks of another queue are left to that queue's reaper", alone=True)
class ReapsInAllQueues(MemoryPersister):
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        names = [queue] if dead_owner is None else list(self._queues)
        return [
            claim
            for name in names
            for claim in super(type(self), self).lapsed(name, owner, limit, lease_for, dead_owner)
        ]


@caught_by("leasing", "owners are told apart by their whole names, whatever these hold", alone=True)
class ReapsByPrefix(MemoryPersister):
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        if dead_owner is not None:
            for row in list(self._rows.values()):
                if row.lease is not None and row.lease.owner.lower().startswith(dead_owner.lower()):
                    self._rows[row.id] = replace(row, lease=replace(row.lease, owner=dead_owner))
        return super().lapsed(queue, owner, limit, lease_for, dead_owner)


@caught_by("leasing", "a dead owner's tasks that lapsed already are had by its name, too", alone=True)
class ReapsTheLivingOnly(MemoryPersister):
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        if dead_owner is None:
            return super().lapsed(queue, owner, limit, lease_for)
        for row in list(self._rows.values()):
            if row.lease is not None and row.lease.has_lapsed(self.now()):
                self._rows[row.id] = replace(row, lease=replace(row.lease, owner=""))
        return super().lapsed(queue, owner, limit, lease_for, dead_owner)


@caught_by("leasing", "a reaper's own lease lapses too, and then its token is as stale as any")
class TrustsReapers(MemoryPersister):
    """A reaper is taken for immortal."""

    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        return super().lapsed(queue, owner, limit, float(EVERY), dead_owner)


@caught_by("leasing", "taking over a lapsed lease changes nothing else of the task")
class CountsTheReaping(MemoryPersister):
    """Counts an attempt by itself, which isn't the store's business."""

    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        claims = super().lapsed(queue, owner, limit, lease_for, dead_owner)
        return [Claim(replace(c.record, attempts=c.record.attempts + 1), c.token) for c in claims]


@caught_by("leasing", "the next look is at the earliest of all ends of leases, and follows each extension")
class LooksAtTheLastLease(MemoryPersister):
    def next_look_at(self, queue: str) -> float | None:
        first = self._first(queue)
        ends = [row.lease.expires_at for row in self._rows.values() if row.lease is not None and row.queue == queue]
        instants = ([] if first is None else [float(first[0])]) + ([max(ends)] if ends else [])
        return min(instants, default=None)


@caught_by("leasing", "the next look is in the past where something has been due, or lapsed, for long")
class LooksAheadOnly(MemoryPersister):
    def next_look_at(self, queue: str) -> float | None:
        instant = super().next_look_at(queue)
        return None if instant is None else max(instant, self.now())


@caught_by("leasing", "where the clock stepped back, a task that was due is due when the time has come again")
class NeverGoesBack(MemoryPersister):
    latest = 0.0

    def now(self) -> float:
        self.latest = max(self.latest, super().now())
        return self.latest


# --- writing


@caught_by("leasing", "a released task is as it was, and can be claimed at once")
class ReleasesLater(MemoryPersister):
    def settle(self, settlements: Any) -> Any:
        now = int(self.now())
        later = Reschedule(run_at=now + 1, attempts=0, last_fail_at=now, last_error="")
        return super().settle([(token, later if isinstance(way, Release) else way) for token, way in settlements])


@caught_by("leasing", "whatever a settle wrote, repeating it writes nothing and calls its token lost")
class TakesAbsentForDone(MemoryPersister):
    """A row that isn't there has been completed, it thinks, so the token isn't lost."""

    def settle(self, settlements: Any) -> Any:
        lost = super().settle(settlements)
        return [token for token in lost if token.task_id in self._rows]


@caught_by("leasing", "a token of a task that was rescheduled or closed writes nothing while nobody holds it")
class LeavesTheToken(MemoryPersister):
    """A row keeps its token when nobody holds it any more, until the next claim."""

    def settle(self, settlements: Any) -> Any:
        lost = super().settle(settlements)
        for token, _ in settlements:
            if token not in lost and token.task_id in self._rows:
                self._tokens[token.task_id] = token.value
        return lost


@caught_by("leasing", "one call settles tasks of several queues", alone=True)
class SettlesOneQueue(MemoryPersister):
    """Looks for all rows where the first one is."""

    def settle(self, settlements: Any) -> Any:
        queues = [row.queue if (row := self._rows.get(token.task_id)) else None for token, _ in settlements]
        known = [queue for queue in queues if queue is not None]
        kept = [pair for pair, queue in zip(settlements, queues, strict=True) if queue in (None, *known[:1])]
        return super().settle(kept) + [token for token, _ in settlements if token not in dict(kept)]


@caught_by("leasing", "an outcome that can't be stored keeps no other one from being stored", alone=True)
class WritesOneByOne(MemoryPersister):
    """In no transaction: what came before the one that can't be stored is written, and nobody is told."""

    def settle(self, settlements: Any) -> Any:
        lost = []
        for token, way in reversed(settlements):
            if isinstance(way, Reschedule) and "\ud83d" in way.last_error:
                raise PersisterError("not UTF-8")
            lost += super().settle([(token, way)])
        return lost


@caught_by("leasing", "update_task leaves a task that is in hand in its holder's hand", alone=True)
class UpdatesOutOfHand(MemoryPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        row = self._rows.get(attributes["id"])
        if row is not None and row.lease is not None:
            super().settle([(LeaseToken(row.id, self._tokens[row.id]), Release())])
        super().update_task(attributes)


@caught_by("leasing", "update_task that closes a task in hand takes it out of the hand", alone=True)
class ClosesInHand(MemoryPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        row = self._rows.get(attributes["id"])
        token = self._tokens.get(attributes["id"])
        super().update_task(attributes)
        if row is not None and row.lease is not None and token is not None and attributes["run_at"] is None:
            self._put(replace(self._rows[row.id], lease=row.lease))
            self._tokens[row.id] = token


@caught_by("leasing", "a failure's text that looks like SQL, Lua, JSON or null is only text", alone=True)
class ReadsNull(MemoryPersister):
    """Its statement takes a text ``null`` for no text."""

    def settle(self, settlements: Any) -> Any:
        return super().settle(
            [
                (token, replace(way, task=None) if isinstance(way, Reschedule) and way.task == "null" else way)
                for token, way in settlements
            ]
        )


@caught_by("leasing", "the texts of a failure come back whole, be they large or strange", alone=True)
class CutsOutcomes(MemoryPersister):
    def settle(self, settlements: Any) -> Any:
        return super().settle(
            [
                (token, replace(way, task=way.task[: 2**18]) if isinstance(way, Reschedule) and way.task else way)
                for token, way in settlements
            ]
        )


# --- opened anew


class Reopened(MemoryPersister):
    def reopened(self) -> Any:
        new = type(self)(self._clock)
        new.__dict__.update({name: value for name, value in self.__dict__.items() if name != "_lock"})
        return new


@caught_by("leasing", "leases outlive the store's being opened anew")
class KeepsTokensInMemory(Reopened):
    def reopened(self) -> Any:
        new = super().reopened()
        new._tokens = {}
        return new


@caught_by("leasing", "what was claimed, closed and rescheduled is so after the store was opened anew")
class ForgetsFailures(Reopened):
    """Opened anew, it has forgotten when a task is to be tried again."""

    def reopened(self) -> Any:
        new = super().reopened()
        for row in list(self._rows.values()):
            if row.attempts and row.run_at is not None:
                new._put(replace(row, run_at=row.initial_run_at))
        return new


# --- races


def with_a_pause(method: Callable[..., Any]) -> Callable[..., Any]:
    """Gives other threads the time to come between what was looked at and what is written."""

    def paused(*arguments: Any) -> Any:
        found = method(*arguments)
        pause()
        return found

    return paused


class WithoutALock(MemoryPersister):
    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self._lock: Any = contextlib.nullcontext()


@caught_by("leasing", "of threads that claim the same task at the same time, one alone gets it")
class LooksThenClaims(WithoutALock):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        now = self.now()
        due = [row for row in list(self._rows.values()) if row.queue == queue and row.lease is None and row.is_due(now)]
        pause()
        lease = Lease(owner, now + lease_for)
        ordered = sorted(due, key=lambda row: (row.run_at or 0, row.id))[: max(limit, 0)]
        token = next(_TOKENS)
        return [self._lease(row.id, lease, token, now) for row in ordered]

    def _first(self, queue: str) -> Any:
        return None


_TOKENS = (f"token {number}" for number in itertools.count())


@caught_by("leasing", "of threads that settle by the same token at the same time, one alone isn't told that it's lost")
class LooksThenSettles(WithoutALock):
    _held = with_a_pause(MemoryPersister._held)


@caught_by("leasing", "where settle and the reaper race for a lapsed task, either it's settled or it's reaped")
class SettlesPastTheReaper(MemoryPersister):
    """Looks at the token before it takes the lock, and writes by the id within it."""

    def settle(self, settlements: Any) -> Any:
        held = [(token, way) for token, way in settlements if self._held(token) is not None]
        pause()
        now_held = [
            (LeaseToken(token.task_id, self._tokens[token.task_id]), way)
            for token, way in held
            if token.task_id in self._tokens
        ]
        super().settle(now_held)
        return [token for token, _ in settlements if token not in dict(held)]


@caught_by("leasing", "where extend and the reaper race for a lapsed task, the loser is told so", alone=True)
class ExtendsPastTheReaper(MemoryPersister):
    def extend(self, tokens: Any, lease_for: float) -> Any:
        lost = [token for token in tokens if self._held(token) is None]
        pause()
        super().extend([token for token in tokens if token not in lost], lease_for)
        return lost


@caught_by("leasing", "reapers that race get each lapsed task once")
class LooksThenReaps(MemoryPersister):
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        before = dict(self._rows)
        pause()
        leases = {task_id: row.lease for task_id, row in before.items() if row.lease is not None}
        for task_id, lease in leases.items():
            if task_id in self._rows and self._rows[task_id].lease is not None:
                self._rows[task_id] = replace(self._rows[task_id], lease=lease)
        return super().lapsed(queue, owner, limit, lease_for, dead_owner)


@caught_by("leasing", "threads that create tasks at the same time get ids of their own, and all tasks are stored")
class CountsThenCreates(WithoutALock):
    def create_task(self, data: dict[str, Any]) -> int:
        self._ids = itertools.count(max(self._rows, default=0) + 1)
        number = next(self._ids)
        pause()
        self._ids = itertools.count(number)
        return super().create_task(data)


@caught_by("leasing", "of processes that claim the same task at the same time, one alone gets it")
class SharesNothing(MemoryPersister):
    """Says that processes can share it, while each has a copy of its own."""

    is_shareable = True
