"""Values on their way to PostgreSQL, and rows on their way back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..core.errors import PersisterError
from ..core.lease import Lease, LeaseToken
from ..core.lifecycle import Close, Complete, Release, Reschedule, Transition
from ..core.task import ATTRIBUTES, Claim, NewTask, TaskRecord, TaskState, state_of
from . import _values
from ._pg_sql import COMPLETE, RELEASE, REWRITE
from ._rows import claims_from

_ESCAPE = re.compile(r"\\(.)", re.S)


def stored_queue(queue: str) -> str:
    r"""A queue may have any name, and PostgreSQL keeps no NUL: it's written ``\0``, and a backslash doubled."""
    return queue.replace("\\", "\\\\").replace("\0", "\\0") if "\\" in queue or "\0" in queue else queue


def told_queue(stored: str) -> str:
    return _ESCAPE.sub(lambda found: "\0" if found[1] == "0" else found[1], stored) if "\\" in stored else stored


def most(limit: int) -> int:
    """As many rows as were asked for, in PostgreSQL's terms."""
    return min(max(limit, 0), 2**63 - 1)


def check_values(values: Iterable[object]) -> None:
    """Raises PersisterError for what PostgreSQL couldn't keep."""
    _values.check_values(values, may_hold_nul=False)


def new_row(task: NewTask) -> dict[str, Any]:
    """What is stored of it. Raises PersisterError where PostgreSQL couldn't keep a value."""
    _values.check_kinds(task)
    row = task.as_mapping()
    row["queue"] = stored_queue(task.queue)
    check_values(row.values())
    return row


def new_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The columns of these rows, as parameters."""
    return {
        "queues": texts([row["queue"] for row in rows]),
        "run_ats": numbers([row["run_at"] for row in rows]),
        "initial_run_ats": numbers([row["initial_run_at"] for row in rows]),
        "expire_ats": numbers([row["expire_at"] for row in rows]),
        "tasks": texts([row["task"] for row in rows]),
    }


def token_arrays(tokens: Sequence[LeaseToken]) -> dict[str, str]:
    return {
        "ids": numbers([token.task_id if is_id(token.task_id) else None for token in tokens]),
        "tokens": texts([_sendable(token.value) for token in tokens]),
    }


def numbers(values: Iterable[int | None]) -> str:
    """As the literal of an array, as ``texts`` gives: a driver would think about each value by itself."""
    return "{" + ",".join(["null" if value is None else str(value) for value in values]) + "}"


def texts(values: Iterable[str | None]) -> str:
    quoted = [
        "null" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
    ]
    return "{" + ",".join(quoted) + "}"


def is_id(task_id: object) -> bool:
    """Whether a task could have this id; no other value could even be asked for."""
    return isinstance(task_id, int) and 0 < task_id < 2**63


def _sendable(token: str) -> str:
    """Ours are plain. Of any other it's enough that it stays another one."""
    return token if token.isascii() and "\0" not in token else ascii(token)


SETTLED = ("way", "run_at", "attempts", "last_fail_at", "last_error", "task", "closed_as", "closed_at")


_SETTLED_TEXTS = ("way", "last_error", "task", "closed_as")


def settled_columns(rows: Collection[Mapping[str, Any]]) -> dict[str, str]:
    """The columns of these settlement rows, as parameters."""
    return {name: (texts if name in _SETTLED_TEXTS else numbers)([row[name] for row in rows]) for name in SETTLED}


def settlement_rows(
    settlements: Iterable[tuple[LeaseToken, Transition]],
) -> tuple[dict[LeaseToken, dict[str, Any]], dict[LeaseToken, BaseException]]:
    """What each writes, and why some can't be written."""
    rows: dict[LeaseToken, dict[str, Any]] = {}
    failures: dict[LeaseToken, BaseException] = {}
    for token, transition in settlements:
        try:
            rows.setdefault(token, settlement_row(transition))
        except PersisterError as error:
            failures[token] = error
    return rows, failures


def settlement_row(transition: Transition) -> dict[str, Any]:
    """The columns named SETTLED. Raises PersisterError where PostgreSQL couldn't keep a value."""
    row: dict[str, Any] = dict.fromkeys(SETTLED)
    match transition:
        case Complete():
            row["way"] = COMPLETE
        case Release():
            row["way"] = RELEASE
        case Reschedule() | Close():
            is_close = isinstance(transition, Close)
            row["way"] = REWRITE
            row["run_at"] = None if isinstance(transition, Close) else transition.run_at
            row["attempts"] = transition.attempts
            row["last_fail_at"] = transition.last_fail_at
            row["last_error"] = transition.last_error
            row["task"] = transition.task
            row["closed_as"] = transition.state.value if isinstance(transition, Close) else None
            row["closed_at"] = transition.last_fail_at if is_close else None
            check_values(row.values())
    return row


def expectation(expected: TaskRecord) -> dict[str, Any]:
    """As parameters of a compare-and-set."""
    lease = expected.lease
    return {
        "was_closed_as": None if expected.closed_as is None else expected.closed_as.value,
        "was_run_at": expected.run_at,
        "was_attempts": expected.attempts,
        "was_owner": None if lease is None else lease.owner,
        "was_leased_until": None if lease is None else lease.expires_at,
        "was_running": state_of(expected, expected.read_at) is TaskState.RUNNING,
    }


def claims_of(rows: Sequence[Sequence[Any]], queue: str, owner: str, token: str) -> list[Claim]:
    """Rows of a claim, in order of run_at, then id."""
    if not rows:
        return []
    *_, until, now = rows[0]
    return claims_from(rows, queue, Lease(owner, until), token, now)


def record_of(row: Sequence[Any]) -> TaskRecord:
    *attributes, closed_as, closed_at, owner, lease_expires_at, now = row
    fields = dict(zip(ATTRIBUTES, attributes, strict=True))
    return TaskRecord(
        **fields | {"queue": told_queue(fields["queue"])},
        closed_as=None if closed_as is None else TaskState(closed_as),
        closed_at=closed_at,
        lease=None if lease_expires_at is None else Lease(owner, lease_expires_at),
        read_at=now,
    )
