"""The store's side of the contract: four methods, and one Protocol for every further ability.

Every call may be made from any thread, but an ``Environment`` makes only one at a time on a floor persister.
Any exception means "not done, or nobody knows": the caller repeats the call, so what is repeated must be idempotent
by its token or id. Due: ``run_at <= now``. Lapsed: ``now > lease.expires_at``. Order: ``run_at``, then ``id``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ..core.error_text import message_of
from ..core.lease import LeaseToken, TaskId
from ..core.lifecycle import Transition
from ..core.task import Claim, NewTask, TaskRecord, TaskState
from .clock import Clock


@runtime_checkable
class Persister(Protocol):
    """The floor: what a user must bring. Its queue's tasks are worked by one process per machine."""

    def read_tasks(self, queue: str) -> Iterable[Mapping[str, Any]]:
        """The queue's rows. May leave out those with ``run_at`` None; may give them in any order."""

    def create_task(self, data: dict[str, Any]) -> TaskId:
        """Stores queue, run_at, initial_run_at, expire_at and task; attempts start at 0. Returns the new id."""

    def update_task(self, attributes: dict[str, Any]) -> Any:
        """Overwrites the row whose id is ``attributes["id"]`` with the nine attributes."""

    def delete_task(self, task_id: TaskId) -> Any:
        """Removes the row. Removing an absent one should not raise."""


FLOOR_METHODS = ("read_tasks", "create_task", "update_task", "delete_task")


@runtime_checkable
class Leasing(Protocol):
    """Many workers may share a queue: a task in hand is leased, and its token fences every write."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> Sequence[Claim]:
        """Leases up to ``limit`` due tasks to ``owner``, in order. Never one that is leased, lapsed or not."""

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> Sequence[LeaseToken]:
        """Makes these leases last ``lease_for`` seconds from now, lapsed ones too. Returns the tokens whose
        lease is another's by now, or gone."""

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> Sequence[LeaseToken]:
        """Carries out each transition on the row that still carries its token, and ends that lease; all in one
        transaction. Returns the tokens that no row carries any more: nothing was written for them. May raise
        IncompleteSettle where only some could be written."""

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> Sequence[Claim]:
        """Leases to ``owner``, under new tokens, up to ``limit`` tasks whose lease has lapsed, or, where
        ``dead_owner`` is given, whose lease is that owner's, lapsed or not."""

    def next_look_at(self, queue: str) -> float | None:
        """When there is something to do next: the earliest run_at among tasks that are neither leased nor closed, or
        the earliest end of a lease, whichever comes first; None where there are neither."""


class IncompleteSettle(Exception):
    """Some of a settle call's writes failed, each on its own; the others are done."""

    def __init__(self, failures: Mapping[LeaseToken, BaseException]) -> None:
        super().__init__(f"{len(failures)} outcome(s) couldn't be written: {message_of(next(iter(failures.values())))}")
        self.failures = failures


@runtime_checkable
class Creating(Protocol):
    def create_many(self, tasks: Sequence[NewTask]) -> Sequence[TaskId]:
        """Stores all or none; ids in order."""


@runtime_checkable
class Joining(Protocol):
    """Takes part in a transaction of the caller's own, on the caller's own connection to the same store."""

    def create_in(self, connection: Any, tasks: Sequence[NewTask]) -> Sequence[TaskId]:
        """Stores them in the transaction that ``connection`` is in: seen by others and woken for once that is
        committed, gone if it's rolled back. Never commits or rolls back itself. Ids in order. Raises
        ConfigurationError for a connection that isn't one to this store."""


@runtime_checkable
class Editing(Protocol):
    def transition(self, task_id: TaskId, expected: TaskRecord, transition: Transition) -> bool:
        """Carries it out if the row is still as ``expected`` (state, run_at, attempts, lease); False if not."""


class WakeListener(Protocol):
    """One waiting worker's end. ``fileno`` becomes readable on a wake-up that came after the last ``drain``."""

    def fileno(self) -> int: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Waking(Protocol):
    """Workers wait on a file descriptor, beside their other ones, rather than in a blocking call.

    A store that can wake does so by itself wherever it makes something due: ``create_task``, ``create_many``,
    ``create_in`` and ``transition`` wake the queue's listeners once the task can be seen by them.
    """

    def notify(self, queue: str) -> None:
        """Wakes every worker that listens on the queue, in any process. Never raises, never blocks."""

    def listen(self, queue: str) -> WakeListener:
        """Raises PersisterUnavailableError where wake-ups can't come through, telling why."""


@runtime_checkable
class Inspecting(Protocol):
    def find(self, task_id: TaskId) -> TaskRecord | None: ...

    def select(
        self,
        *,
        queue: str | None = None,
        state: TaskState | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: TaskId | None = None,
    ) -> Sequence[TaskRecord]:
        """Records in order of id, those with a greater id than ``after``; ``tag``: the class's stored name."""

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> Mapping[tuple[str, TaskState], int]:
        """How many tasks there are, by queue and state; pairs with none are left out."""


@runtime_checkable
class Timekeeping(Protocol):
    """A store whose clock decides what's due, expired and lapsed for all who share it."""

    def now(self) -> float: ...


@runtime_checkable
class ClockBound(Protocol):
    """A store on this machine, which can be told to go by the environment's clock (a test's, say)."""

    def use_clock(self, clock: Clock) -> None: ...


@runtime_checkable
class Closing(Protocol):
    def close(self) -> None:
        """Lets connections of this process go. Safe to call twice; the persister may be used again after it."""
