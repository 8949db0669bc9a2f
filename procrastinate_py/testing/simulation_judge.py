"""Whether what a worker writes about a task fits what happened to it."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..core.lifecycle import RetryPolicy
from ..core.task import TaskRecord, TaskState
from .simulation_invariants import Invariant


class How(enum.StrEnum):
    """How a worker came by a task."""

    CLAIMED = "claimed"
    LAPSED = "reaped"
    LEFT = "recovered"


@dataclass(slots=True, kw_only=True, eq=False)
class Hold:
    """A task in a worker's hand under one token. ``until`` is by the store's clock."""

    owner: str
    how: How
    until: float
    owes: bool = False
    """Its holder, once it has heard, must count an attempt that somebody else began."""
    heard: bool = False
    """Its holder knows of it: the reply hasn't been lost."""
    is_current: bool = True
    superseded: bool = False
    """Taken over by another worker."""
    blurred: bool = False
    """The store's clock was stepped while it lasted."""
    began: bool = False
    suspect: bool = False
    succeeded: bool = False
    settled_alive: bool = False
    """Its outcome is written, but its body goes on."""
    hook: str | None = None
    count: int | None = None
    written: bool = False


@dataclass(slots=True, kw_only=True)
class Known:
    """What must be true of a task. ``row`` is None once it's complete."""

    row: TaskRecord | None
    loads: bool
    hold: Hold | None = None
    owed: bool = False
    """A run of it died, or its lease lapsed, and that isn't counted yet."""
    may_owe: bool = False
    """The same, but the worker that should know of it may not have heard."""
    runs: int = 0
    running: list[Hold] = field(default_factory=list)
    hooks: set[str] = field(default_factory=set)
    """Those called since an attempt was last counted."""
    count: int = 0
    """How many changes its own object must remember."""

    @property
    def is_open(self) -> bool:
        return self.row is not None and self.row.run_at is not None

    @property
    def told(self) -> str:
        return "a complete task" if self.row is None else f"task {self.row.id}"


Fault = tuple[Invariant, str]


def faults_of_write(
    known: Known, hold: Hold, after: TaskRecord | None, policy: RetryPolicy, now: float
) -> Iterator[Fault]:
    before = known.row
    if before is None or before.run_at is None:
        yield Invariant.CLOSED_STAYS_CLOSED, "it was written again"
        return
    if after is None:
        if not hold.succeeded:
            yield Invariant.TRUE_OUTCOME, "it was completed, but its run hadn't returned"
        return
    if hold.succeeded:
        yield Invariant.TRUE_OUTCOME, "its run had returned, but a failure was written"
    yield from _faults_of_count(known, hold, before, after, now)
    if after.run_at is None:
        yield from _faults_of_closing(known, after, policy, now)
    else:
        yield from _faults_of_retry(known, after, policy, now)


def _faults_of_count(known: Known, hold: Hold, before: TaskRecord, after: TaskRecord, now: float) -> Iterator[Fault]:
    gained = after.attempts - before.attempts
    must_count = hold.began or known.owed or (not known.loads and not before.is_expired(now))
    may_count = must_count or known.may_owe or not known.loads
    if gained < 0:
        yield Invariant.ATTEMPTS_ONLY_GROW, f"from {before.attempts} to {after.attempts}"
    elif gained > may_count:
        yield Invariant.COUNTED, f"it gained {gained} attempt(s), though none had begun that wasn't counted"
    elif gained < must_count:
        yield Invariant.COUNTED, "an attempt that had begun wasn't counted"


def _faults_of_closing(known: Known, after: TaskRecord, policy: RetryPolicy, now: float) -> Iterator[Fault]:
    if after.closed_as is TaskState.EXPIRED:
        if not after.is_expired(now):
            yield Invariant.NOT_AFTER_EXPIRY, "it was closed as expired before it was"
    elif policy.max_attempts is None or after.attempts < policy.max_attempts:
        yield Invariant.MAX_ATTEMPTS, f"it was closed after {after.attempts} attempt(s)"
    cut_short = after.closed_as is TaskState.EXPIRED and "fail" in known.hooks
    if known.loads and "final_fail" not in known.hooks and not cut_short:
        yield Invariant.HOOKS, "it was closed, but final_fail wasn't called"


def _faults_of_retry(known: Known, after: TaskRecord, policy: RetryPolicy, now: float) -> Iterator[Fault]:
    if policy.max_attempts is not None and after.attempts >= policy.max_attempts:
        yield Invariant.MAX_ATTEMPTS, f"it's to be retried after {after.attempts} attempts"
    waits = math.ceil(policy.backoff(after.attempts))
    if after.run_at is None or after.last_fail_at is None or after.run_at < after.last_fail_at + waits:
        yield (
            Invariant.BACKOFF,
            f"it failed at {after.last_fail_at}, and is retried at {after.run_at}, not in {waits} s",
        )
    if known.loads and not known.hooks & {"fail", "final_fail"}:
        yield Invariant.HOOKS, "it's to be retried, but fail wasn't called"
