"""What truly happened in a simulation, written down beside the store and the workers, and held against both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.lease import LeaseToken, TaskId
from ..core.lifecycle import Release, RetryPolicy, Transition, apply, is_suspect
from ..core.task import Claim, NewTask, TaskRecord
from .simulation_invariants import Invariant, Violation
from .simulation_judge import Hold, How, Known, faults_of_write


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """``store``: the clock that leases go by. ``worker``: the one that a worker judges expiry by.

    ``elapsed``: true time. ``draining``: whether the worker has been told to stop, or has told itself so.
    """

    store: float
    worker: float
    elapsed: float
    draining: bool


_LONG_ENOUGH = 30.0
"""Seconds without trouble in which a worker must have written, or extended, what it holds."""


class Ledger:
    """``floor``: leases are known in the worker's process only, and end with it."""

    def __init__(self, policy: RetryPolicy, *, floor: bool, tell: Callable[[str], None]) -> None:
        self._policy = policy
        self._floor = floor
        self._tell = tell
        self.tasks: dict[TaskId, Known] = {}
        self.violations: list[Violation] = []
        self._holds: dict[tuple[str, LeaseToken], Hold] = {}
        self._tokens: set[LeaseToken] = set()
        self._alive: dict[str, list[Hold]] = {}
        """Each with the bodies that run in it."""
        self._latest = float("-inf")
        self._unheard: dict[str, list[Known]] = {}
        self._troubled_until: dict[str, float] = {}

    def broke(self, invariant: Invariant, told: str) -> None:
        self.violations.append(Violation(invariant=invariant, told=told))
        self._tell(f"!! {invariant.name}: {told}")

    @property
    def unfinished(self) -> list[TaskId]:
        return [task_id for task_id, known in self.tasks.items() if known.is_open]

    # --- workers

    def born(self, owner: str) -> None:
        self._alive[owner] = []

    def died(self, owner: str, *, notes_kept: bool) -> None:
        """``notes_kept``: its successor will know what it had begun."""
        del self._alive[owner]
        self.unheard(owner)
        for known in self.tasks.values():
            hold = known.hold
            known.running = [run for run in known.running if run.owner != owner]
            if self._floor and not notes_kept:
                known.owed = known.may_owe = False
            if hold is None or hold.owner != owner or not hold.is_current:
                continue
            if hold.began and not hold.written and (notes_kept or not self._floor):
                known.owed = True
            if self._floor:
                hold.is_current = False

    def clock_stepped(self, before: float) -> None:
        """Leases that are out now may lapse at another moment than their holders think, and retries come early."""
        self._latest = max(self._latest, before)
        for known in self.tasks.values():
            if known.hold is not None:
                known.hold.blurred = True
            for run in known.running:
                run.settled_alive = False

    def froze(self, owner: str) -> None:
        """What's stuck in it can't be got rid of before its retry is due."""
        for known in self.tasks.values():
            for run in known.running:
                run.settled_alive = run.settled_alive and run.owner != owner

    # --- the store

    def created(self, task_id: TaskId, task: NewTask, *, loads: bool) -> None:
        if task_id in self.tasks:
            self.broke(Invariant.UNIQUE, f"id {task_id!r} was given to a second task")
        self.tasks[task_id] = Known(row=TaskRecord(id=task_id, **task.as_mapping()), loads=loads)

    def handed_out(self, owner: str, claims: Sequence[Claim], how: How, lease_for: float, limit: int, now: Now) -> None:
        if len(claims) > limit:
            self.broke(Invariant.ONE_HOLDER, f"{len(claims)} tasks were handed out where {limit} were asked for")
        if [_order(claim) for claim in claims] != sorted(_order(claim) for claim in claims) and how is not How.LEFT:
            self.broke(Invariant.NOT_BEFORE_DUE, "tasks were handed out in another order than run_at, id")
        for record, token in claims:
            self._tell(f"{owner} {how} task {record.id} attempts={record.attempts}")
            known = self.tasks.get(record.id)
            if known is None or not known.is_open or known.row is None:
                self.broke(Invariant.CLOSED_STAYS_CLOSED, f"task {record.id} was handed out to {owner}")
                continue
            self._check_row(record, known.row)
            if how is How.CLAIMED and not record.is_due(max(now.store, self._latest)):
                self.broke(Invariant.NOT_BEFORE_DUE, f"task {record.id}, due at {record.run_at}, at {now.store}")
            self._check_free(known, owner, how, now)
            if not self._floor and token in self._tokens:
                self.broke(Invariant.UNIQUE, f"token {token} was given twice")
            self._tokens.add(token)
            if known.hold is not None and known.hold.is_current:
                known.hold.is_current = False
                known.hold.superseded = True
                known.owed = known.owed or known.hold.began
            known.hold = self._holds[owner, token] = Hold(
                owner=owner,
                how=how,
                until=float("inf") if self._floor else now.store + lease_for,
                owes=known.owed or how is How.LAPSED,
            )
            if how is not How.CLAIMED:
                known.may_owe = known.hold.owes or known.may_owe
                known.owed = False
            self._unheard.setdefault(owner, []).append(known)

    def heard(self, owner: str) -> None:
        """The worker has got the reply to its last call, and noted what it must."""
        for known in self._unheard.pop(owner, ()):
            hold = known.hold
            if hold is not None and hold.owner == owner and hold.is_current:
                hold.heard = True
                known.owed = known.owed if hold.how is How.CLAIMED else hold.owes

    def unheard(self, owner: str) -> None:
        """It never will: what it should have counted may stay uncounted."""
        self._unheard.pop(owner, None)

    def _check_row(self, claimed: TaskRecord, row: TaskRecord) -> None:
        for name in ("queue", "run_at", "expire_at", "attempts", "task"):
            if getattr(claimed, name) != getattr(row, name):
                self.broke(Invariant.WRITTEN, f"task {row.id} was handed out with another {name} than was written")

    def _check_free(self, known: Known, owner: str, how: How, now: Now) -> None:
        hold = known.hold
        if hold is None or not hold.is_current:
            if how is How.LAPSED:
                self.broke(Invariant.REAPED_TOO_EARLY, f"{known.told} was in nobody's hand")
        elif how is How.CLAIMED:
            self.broke(Invariant.ONE_HOLDER, f"{known.told}: {owner} claimed what {hold.owner} holds")
        elif how is How.LAPSED and now.store <= hold.until:
            self.broke(Invariant.REAPED_TOO_EARLY, f"{known.told}: {owner} took over the live lease of {hold.owner}")
        elif how is How.LEFT and hold.owner in self._alive and (hold.owner != owner or hold.heard):
            self.broke(Invariant.REAPED_TOO_EARLY, f"{known.told}: {owner} took it from {hold.owner}, who lives")
        elif how is How.LAPSED and self._could_have_kept(hold, now):
            self.broke(Invariant.KEEPS_HOLD, f"{known.told}: {hold.owner} let it lapse, though nothing kept it")

    def _could_have_kept(self, hold: Hold, now: Now) -> bool:
        trouble = self._troubled_until.get(hold.owner, 0.0)
        return hold.owner in self._alive and hold.heard and not hold.blurred and now.elapsed > trouble + _LONG_ENOUGH

    def troubled(self, owner: str, until: float) -> None:
        """It can't be blamed for what it doesn't do until then."""
        self._troubled_until[owner] = max(until, self._troubled_until.get(owner, 0.0))

    def extended(
        self, owner: str, tokens: Iterable[LeaseToken], lost: Iterable[LeaseToken], lease_for: float, now: Now
    ) -> None:
        lost = set(lost)
        for token in tokens:
            hold = self._hold_of(owner, token)
            if hold is not None and hold.is_current and token in lost:
                self.broke(Invariant.LEASE_HOLDS, f"task {token.task_id}: {owner} couldn't extend its lease")
            elif hold is not None and hold.is_current:
                hold.until = now.store + lease_for
            elif token not in lost:
                self.broke(Invariant.NO_ZOMBIE, f"task {token.task_id}: {owner} extended a lease it had lost")

    def settled(
        self, owner: str, settlements: Iterable[tuple[LeaseToken, Transition]], lost: Iterable[LeaseToken], now: Now
    ) -> None:
        """What a store with leases says it has written."""
        lost = set(lost)
        for token, transition in settlements:
            hold, known = self._hold_of(owner, token), self.tasks[token.task_id]
            is_current = hold is not None and hold.is_current
            self._tell(
                f"{owner} settle {token.task_id} {type(transition).__name__}{' (lost)' if token in lost else ''}"
            )
            if is_current and token in lost:
                self.broke(Invariant.LEASE_HOLDS, f"{known.told}: {owner} couldn't settle what it holds")
            elif not is_current and token not in lost:
                self.broke(Invariant.NO_ZOMBIE, f"{known.told}: {owner} settled what it had lost")
            elif hold is not None and is_current and known.row is not None:
                if isinstance(transition, Release):
                    self._released(known, hold, now)
                else:
                    self._write(known, hold, apply(known.row, transition), now)
                hold.is_current = False

    # --- a floor persister, and the sole consumer above it

    def wrote(self, owner: str, task_id: TaskId, after: TaskRecord | None, now: Now) -> None:
        """A row was overwritten, or, with None, deleted."""
        known = self.tasks[task_id]
        hold = known.hold
        self._tell(f"{owner} wrote {task_id} {'deleted' if after is None else (after.run_at, after.attempts)}")
        if hold is None or not hold.is_current or hold.owner != owner:
            self.broke(Invariant.NO_ZOMBIE, f"{known.told}: {owner} wrote what it doesn't hold")
        elif hold.written:
            if not _is_the_same_outcome(after, known.row):  # which is what a lost reply asks for
                self.broke(Invariant.TRUE_OUTCOME, f"{known.told}: {owner} wrote another outcome for one claim")
            known.row = after
        else:
            self._write(known, hold, after, now)

    def let_go(self, owner: str, token: LeaseToken, transition: Transition, now: Now, *, was_lost: bool) -> None:
        """What the sole consumer says it has settled."""
        hold, known = self._hold_of(owner, token), self.tasks[token.task_id]
        if hold is None or not hold.is_current or was_lost:
            self.broke(Invariant.LEASE_HOLDS, f"{known.told}: the consumer of {owner} doesn't know what it holds")
            return
        if isinstance(transition, Release):
            self._released(known, hold, now)
        elif not hold.written:
            self.broke(Invariant.WRITTEN, f"{known.told}: settled, but not written")
        hold.is_current = False

    # --- bodies and hooks

    def began(self, owner: str, claim: Claim, count: int, now: Now) -> None:
        """``count`` is the number of changes that the task's own object remembers."""
        record, token = claim
        hold, known = self._holds[owner, token], self.tasks[record.id]
        self._tell(f"{owner} run {record.id} attempt={record.attempts + 1}")
        if known.owed and hold.is_current:
            self.broke(Invariant.COUNTED, f"{known.told}: it began again, though a run that died wasn't counted")
        if hold.began or hold.how is How.LAPSED:
            self.broke(Invariant.ONE_RUN_A_CLAIM, f"{known.told}: {owner} ran it again")
        if not hold.is_current and not hold.blurred:
            self.broke(Invariant.NO_RUN_WITHOUT_LEASE, f"{known.told}: {owner} began it after it had lost its lease")
        if hold.is_current and any(run.settled_alive for run in known.running):
            self.broke(Invariant.NO_RUN_WITHOUT_LEASE, f"{known.told}: {owner} began it beside another run of it")
        if self._policy.max_attempts is not None and record.attempts >= self._policy.max_attempts:
            self.broke(Invariant.MAX_ATTEMPTS, f"{known.told}: attempt {record.attempts + 1} began")
        row = known.row or record
        if row.is_expired(now.worker):
            self.broke(Invariant.NOT_AFTER_EXPIRY, f"{known.told}: it began at {now.worker}, after {row.expire_at}")
        if count != known.count and hold.is_current:
            self.broke(Invariant.STATE_KEPT, f"{known.told}: it remembers {count} changes, not {known.count}")
        self._check_alone(owner, hold, is_suspect(row))
        hold.began = True
        known.runs += 1
        known.running.append(hold)
        self._alive[owner].append(hold)

    def _check_alone(self, owner: str, hold: Hold, suspect: bool) -> None:
        hold.suspect = suspect
        beside = [other for other in self._alive[owner] if other.is_current]
        if beside and (suspect or any(other.suspect for other in beside)):
            self.broke(Invariant.SUSPECTS_ALONE, f"{owner} ran a suspect beside {len(beside)} other(s)")

    def over(self, owner: str, claim: Claim, *, succeeded: bool) -> None:
        """``run`` has returned, or raised. What is not reported here (a death, say) never ends."""
        hold = self._holds[owner, claim.token]
        hold.succeeded = succeeded
        self.tasks[claim.record.id].running.remove(hold)
        self._alive[owner].remove(hold)

    def hook_began(self, owner: str, claim: Claim, name: str) -> None:
        hold, known = self._holds[owner, claim.token], self.tasks[claim.record.id]
        self._tell(f"{owner} hook {claim.record.id} {name}")
        if hold.hook is not None or (name == "success") is not hold.succeeded:
            self.broke(Invariant.HOOKS, f"{known.told}: {name} after {hold.hook or 'run'}, {hold.succeeded=}")
        hold.hook = name
        known.hooks.add(name)

    def hook_over(self, owner: str, claim: Claim, count: int) -> None:
        """What the object has changed by now is to be stored; where a hook won't end, nothing can be."""
        self._holds[owner, claim.token].count = count

    # --- looking

    def saw(self, rows: Mapping[TaskId, TaskRecord], *, with_leases: bool) -> None:
        """All open tasks that are in the store, and maybe others."""
        for task_id, known in self.tasks.items():
            seen = rows.get(task_id)
            row = known.row
            if row is None or seen is None:
                if seen is not None:
                    self.broke(Invariant.WRITTEN, f"{known.told} is complete, yet still stored")
                elif known.is_open or (row is not None and with_leases):  # four methods may leave closed ones out
                    self.broke(Invariant.NONE_LOST, f"{known.told} is gone from the store")
                continue
            for name in ("run_at", "expire_at", "attempts", "last_error", "task", "closed_as"):
                if getattr(seen, name) != getattr(row, name):
                    told = f"{known.told}: {name} is {getattr(seen, name)!r:.200}, not {getattr(row, name)!r:.200}"
                    self.broke(_broken_by_change_of(name, seen, row), told)
            if with_leases:
                self._check_lease(known, seen)
        for task_id in rows.keys() - self.tasks.keys():
            self.broke(Invariant.WRITTEN, f"task {task_id!r} is stored, but nobody created it")

    def _check_lease(self, known: Known, seen: TaskRecord) -> None:
        hold = known.hold if known.hold is not None and known.hold.is_current else None
        expected = None if hold is None else (hold.owner, hold.until)
        found = None if seen.lease is None else (seen.lease.owner, seen.lease.expires_at)
        if expected != found:
            self.broke(Invariant.LEASE_HOLDS, f"{known.told}: its lease is {found}, not {expected}")

    # --- writes

    def _write(self, known: Known, hold: Hold, after: TaskRecord | None, now: Now) -> None:
        before = known.row
        assert before is not None
        latest = max(self._latest, now.worker)  # what was decided before a clock was set back stays right
        for invariant, told in faults_of_write(known, hold, after, self._policy, latest):
            self.broke(invariant, f"{known.told}: {told}")
        known.row = after
        hold.written = True
        if hold in known.running:
            hold.settled_alive = True
        if after is not None:
            cut_short = now.draining and after.task == before.task  # a hook that the stop didn't wait for
            known.count = known.count if hold.count is None or cut_short else hold.count
            if after.attempts > before.attempts:
                known.owed = known.may_owe = False
                known.hooks.clear()

    def _released(self, known: Known, hold: Hold, now: Now) -> None:
        """Handed back uncounted: fair for what never began, else only where the worker was told to stop."""
        if known.owed:
            return  # its successor counts it, which is checked when it begins
        if hold.began and not now.draining:
            self.broke(Invariant.COUNTED, f"{known.told}: it had begun, and was handed back uncounted")

    def _hold_of(self, owner: str, token: LeaseToken) -> Hold | None:
        return self._holds.get((owner, token))

    def __contains__(self, task_id: Any) -> bool:
        return task_id in self.tasks


def _order(claim: Claim) -> tuple[int, Any]:
    return claim.record.run_at or 0, claim.record.id


def _is_the_same_outcome(after: TaskRecord | None, before: TaskRecord | None) -> bool:
    """The text of an error may have been shortened, for a store that might refuse it."""
    if after is None or before is None:
        return after is before
    return replace(after, last_error=None) == replace(before, last_error=None)


def _broken_by_change_of(name: str, seen: TaskRecord, row: TaskRecord) -> Invariant:
    if row.closed_as is not None:
        return Invariant.CLOSED_STAYS_CLOSED
    if name == "attempts" and seen.attempts < row.attempts:
        return Invariant.ATTEMPTS_ONLY_GROW
    return Invariant.WRITTEN
