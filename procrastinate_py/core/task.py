"""The stored unit, as it was when it was read."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import ConfigurationError
from .lease import Lease, LeaseToken, TaskId

ATTRIBUTES = (
    "id",
    "queue",
    "run_at",
    "initial_run_at",
    "expire_at",
    "attempts",
    "last_fail_at",
    "last_error",
    "task",
)
"""What a floor persister stores, in the order in which update_task gets it."""


class TaskState(enum.StrEnum):
    """Where a task is in its life. All but PENDING and RUNNING are closed: they never run again."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_closed(self) -> bool:
        return self is not TaskState.PENDING and self is not TaskState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """What delay gives a store: exactly the fields that create_task gets."""

    queue: str
    run_at: int
    initial_run_at: int
    expire_at: int | None
    task: str

    def as_mapping(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "run_at": self.run_at,
            "initial_run_at": self.initial_run_at,
            "expire_at": self.expire_at,
            "task": self.task,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A stored task. Instants are Unix epoch seconds.

    ``run_at`` None means: never again. ``closed_as`` and ``closed_at`` tell how and when it ended.
    ``lease`` is whose hand it was in at ``read_at``, the instant at which the store read it.
    ``defect`` tells why a row can't be run as it is.
    """

    id: TaskId
    queue: str
    task: str
    run_at: int | None
    initial_run_at: int | None = None
    expire_at: int | None = None
    attempts: int = 0
    last_fail_at: int | None = None
    last_error: str | None = None
    closed_as: TaskState | None = None
    closed_at: int | None = None
    lease: Lease | None = None
    read_at: float = 0.0
    defect: str | None = None
    loader: Callable[[str], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def state(self) -> TaskState:
        """The state at the moment of reading."""
        return state_of(self, self.read_at)

    @property
    def expired_at(self) -> int | None:
        return self.closed_at if self.closed_as is TaskState.EXPIRED else None

    @property
    def completed_at(self) -> int | None:
        return self.closed_at if self.closed_as is TaskState.COMPLETED else None

    @property
    def cancelled_at(self) -> int | None:
        return self.closed_at if self.closed_as is TaskState.CANCELLED else None

    def is_expired(self, at: float) -> bool:
        """Whether ``expire_at`` has passed at this instant; the deadline itself is still in time."""
        return self.expire_at is not None and at > self.expire_at

    def is_due(self, at: float) -> bool:
        return self.run_at is not None and at >= self.run_at

    def load(self) -> Any:
        """The strategy, as it was stored. Raises a PayloadError where it can't be read or trusted."""
        if self.loader is None:
            raise ConfigurationError(
                f"task {self.id!r} can't be loaded here: read it through an Environment (env.find, env.tasks)"
            )
        return self.loader(self.task)

    def as_mapping(self) -> dict[str, Any]:
        """The nine attributes that update_task gets."""
        return {name: getattr(self, name) for name in ATTRIBUTES}


class Claim(NamedTuple):
    """A task in hand and the right to write what becomes of it."""

    record: TaskRecord
    token: LeaseToken


def state_of(record: TaskRecord, now: float) -> TaskState:
    """The one place that derives a state: from what closed the record, else from its lease."""
    if record.closed_as is not None:
        return record.closed_as
    if record.lease is not None and not record.lease.has_lapsed(now):
        return TaskState.RUNNING
    return TaskState.PENDING


def counts_of(records: Iterable[TaskRecord]) -> dict[tuple[str, TaskState], int]:
    """How many there are, by queue and state."""
    return dict(Counter((record.queue, record.state) for record in records))
