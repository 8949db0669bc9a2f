"""What becomes of a task: the only place that decides.

An *ending* tells how an attempt ended; ``decide`` turns it into a *transition*, which tells what becomes
of the record; ``apply`` carries that out on a record. Stores carry out transitions, and decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from .error_text import error_text, storable
from .errors import TaskExpiredError
from .task import TaskRecord, TaskState

FAILED_PREFIX = "Task failed"
DEAD_PREFIX = "Task failed too many times"
EXPIRED_PREFIX = "Task expired"
DIED_PREFIX = f"{FAILED_PREFIX}: worker died"


# --- how an attempt ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """``run`` returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """``run`` raised, or the stored text couldn't be loaded."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """``run`` took longer than allowed. ``not_before`` keeps a retry away from a body that won't stop."""

    error: BaseException
    not_before: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """``expire_at`` had passed before ``run`` could be called."""

    error: TaskExpiredError


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The process died after ``run`` had begun."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The worker is stopping: ``run`` was cut short or never began. Nobody's failure, so uncounted."""


Ending = Succeeded | Failed | TimedOut | Expired | Abandoned | Interrupted


# --- what becomes of the record


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Done: the row goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reschedule:
    """To be run again at ``run_at``. ``task`` None leaves the stored text as it is."""

    run_at: int
    attempts: int
    last_fail_at: int
    last_error: str
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Never to be run again, but kept: a dead letter, or an expired one."""

    state: TaskState
    attempts: int
    last_fail_at: int
    last_error: str
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Given back as it was, uncounted."""


Transition = Complete | Reschedule | Close | Release

LEGAL: dict[type, dict[type, tuple[TaskState, ...]]] = {
    Succeeded: {Complete: (TaskState.COMPLETED,)},
    Failed: {Reschedule: (TaskState.PENDING,), Close: (TaskState.FAILED, TaskState.EXPIRED)},
    TimedOut: {Reschedule: (TaskState.PENDING,), Close: (TaskState.FAILED, TaskState.EXPIRED)},
    Abandoned: {Reschedule: (TaskState.PENDING,), Close: (TaskState.FAILED, TaskState.EXPIRED)},
    Expired: {Close: (TaskState.EXPIRED,)},
    Interrupted: {Release: (TaskState.PENDING,)},
}
"""Which transitions an ending can lead to, and the states they leave: docs/lifecycle.md prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a task may run, and how long it waits between. ``max_attempts`` None: without end."""

    max_attempts: int | None
    backoff: Callable[[int], float]


def decide(record: TaskRecord, ending: Ending, policy: RetryPolicy, now: float) -> Transition:
    """What becomes of ``record``, whose stored ``attempts`` don't count this attempt yet."""
    match ending:
        case Succeeded():
            return Complete()
        case Interrupted():
            return Release()
        case Expired(error=error):
            return _close(TaskState.EXPIRED, error, EXPIRED_PREFIX, now, record.attempts)
        case Failed(error=error) | Abandoned(error=error):
            return _after_failure(record, error, policy, now, 0.0)
        case TimedOut(error=error, not_before=not_before):
            return _after_failure(record, error, policy, now, not_before)
    assert_never(ending)


def _after_failure(
    record: TaskRecord, error: BaseException, policy: RetryPolicy, now: float, not_before: float
) -> Transition:
    attempts = record.attempts + 1
    if record.is_expired(now):
        return _close(TaskState.EXPIRED, error, EXPIRED_PREFIX, now, attempts)
    if policy.max_attempts is not None and attempts >= policy.max_attempts:
        return _close(TaskState.FAILED, error, DEAD_PREFIX, now, attempts)
    failed_at = math.floor(now)
    return Reschedule(
        run_at=max(failed_at + math.ceil(policy.backoff(attempts)), math.ceil(not_before)),
        attempts=attempts,
        last_fail_at=failed_at,
        last_error=error_text(FAILED_PREFIX, error),
    )


def _close(state: TaskState, error: BaseException, prefix: str, now: float, attempts: int) -> Close:
    return Close(
        state=state,
        attempts=attempts,
        last_fail_at=math.floor(now),
        last_error=error_text(prefix, error),
    )


def apply(record: TaskRecord, transition: Transition) -> TaskRecord | None:
    """The record as it is after the transition, out of anybody's hand; None: it's gone."""
    match transition:
        case Complete():
            return None
        case Release():
            return replace(record, lease=None)
        case Reschedule():
            return replace(
                record,
                run_at=transition.run_at,
                attempts=transition.attempts,
                last_fail_at=transition.last_fail_at,
                last_error=transition.last_error,
                task=record.task if transition.task is None else transition.task,
                closed_as=None,
                closed_at=None,
                lease=None,
            )
        case Close():
            return replace(
                record,
                run_at=None,
                attempts=transition.attempts,
                last_fail_at=transition.last_fail_at,
                last_error=transition.last_error,
                task=record.task if transition.task is None else transition.task,
                closed_as=transition.state,
                closed_at=transition.last_fail_at,
                lease=None,
            )
    assert_never(transition)


def state_after(transition: Transition) -> TaskState:
    """The state that a transition leaves a task in."""
    match transition:
        case Complete():
            return TaskState.COMPLETED
        case Close(state=state):
            return state
        case Reschedule() | Release():
            return TaskState.PENDING
    assert_never(transition)


def with_text(transition: Transition, *, task: str | None = None, last_error: str | None = None) -> Transition:
    """The same decision with other texts: a task's new state, or an error that a store will take."""
    if not isinstance(transition, Reschedule | Close):
        return transition
    return replace(
        transition,
        task=transition.task if task is None else task,
        last_error=transition.last_error if last_error is None else storable(last_error),
    )


def is_suspect(record: TaskRecord) -> bool:
    """Whether the process died when this task last ran: then it's run with nothing beside it."""
    return record.last_error is not None and record.last_error.startswith(DIED_PREFIX)


_CLOSED_BY_PREFIX = (
    (DEAD_PREFIX, TaskState.FAILED),
    (EXPIRED_PREFIX, TaskState.EXPIRED),
    ("Task cancelled", TaskState.CANCELLED),
    ("Task rejected", TaskState.FAILED),
)


def closed_state_of_row(run_at: int | None, last_error: str | None) -> TaskState | None:
    """A floor persister has no column for what closed a row: its last_error's prefix tells."""
    if run_at is not None:
        return None
    for prefix, state in _CLOSED_BY_PREFIX:
        if last_error is not None and last_error.startswith(prefix):
            return state
    return TaskState.FAILED
