"""What is said to SQLite, and how its rows become records.

Few and large steps: Python lets go of its global lock at each step of a statement, and beside busy threads may wait
5 ms to get it back. So a claim reads all its tasks as one JSON text, and a settle writes all its outcomes from one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from ..core.lease import Lease, LeaseToken
from ..core.lifecycle import Close, Reschedule
from ..core.task import ATTRIBUTES, Claim, NewTask, TaskRecord, TaskState
from ._rows import CLAIMED, claims_from
from ._values import check_kinds, check_values

_ROWS_PER_STATEMENT = 1000

_NEW = ("queue", "run_at", "initial_run_at", "expire_at", "task")
_COLUMNS = (*ATTRIBUTES, "closed_as", "closed_at", "lease_owner", "lease_expires_at")


def _fields(names: Sequence[str]) -> str:
    return ", ".join(f"json_extract(value, '$[{index}]') AS {name}" for index, name in enumerate(names))


_HELD = f"(id, lease_token) IN (SELECT {_fields(('id', 'token'))} FROM json_each(?))"
_IN_HAND = "lease_token IS NOT NULL"
_FREE = "lease_token IS NULL AND run_at IS NOT NULL"

INSERT_ONE = f"INSERT INTO tasks ({', '.join(_NEW)}) VALUES ({', '.join('?' * len(_NEW))})"
INSERT_MANY = f"INSERT INTO tasks ({', '.join(_NEW)}) SELECT {_fields(_NEW)} FROM json_each(?)"

CLAIMABLE = f"""
    SELECT json_group_array(json_array({", ".join(CLAIMED)})) FROM (
        SELECT {", ".join(CLAIMED)} FROM tasks INDEXED BY tasks_due
        WHERE queue = ? AND run_at <= ? AND {_FREE} ORDER BY run_at, id LIMIT ?)"""
_REAPABLE = f"""
    SELECT json_group_array(json_array({", ".join(CLAIMED)})) FROM (
        SELECT {", ".join(CLAIMED)} FROM tasks INDEXED BY tasks_leased
        WHERE queue = ? AND {_IN_HAND} AND %s ORDER BY run_at, id LIMIT ?)"""
LAPSED = _REAPABLE % "lease_expires_at < ?"
HELD_BY = _REAPABLE % "lease_owner = ?"
LEASE = """
    UPDATE tasks SET lease_owner = ?, lease_token = ?, lease_expires_at = ?
    WHERE id IN (SELECT value FROM json_each(?))"""
EXTEND = f"UPDATE tasks SET lease_expires_at = ? WHERE {_HELD}"
STILL_HELD = f"SELECT json_group_array(json_array(id, lease_token)) FROM tasks WHERE {_HELD}"

_LET_GO = "lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL"
COMPLETE = f"DELETE FROM tasks WHERE {_HELD}"
RELEASE = f"UPDATE tasks SET {_LET_GO} WHERE {_HELD}"
_WRITTEN = ("id", "token", "run_at", "attempts", "last_fail_at", "last_error", "task", "closed_as", "closed_at")
REWRITE = f"""
    UPDATE tasks SET run_at = new.run_at, attempts = new.attempts, last_fail_at = new.last_fail_at,
        last_error = new.last_error, task = coalesce(new.task, tasks.task),
        closed_as = new.closed_as, closed_at = new.closed_at, {_LET_GO}
    FROM (SELECT {_fields(_WRITTEN)} FROM json_each(?)) AS new
    WHERE tasks.id = new.id AND tasks.lease_token = new.token"""

NEXT_LOOK_AT = f"""
    SELECT min(at) FROM (
        SELECT min(run_at) AS at FROM tasks INDEXED BY tasks_due WHERE queue = ? AND {_FREE}
        UNION ALL
        SELECT min(lease_expires_at) FROM tasks INDEXED BY tasks_leased WHERE queue = ? AND {_IN_HAND})"""

SELECT = f"SELECT {', '.join(_COLUMNS)} FROM tasks"
FIND = f"{SELECT} WHERE id = ?"
READ_OPEN = f"SELECT {', '.join(ATTRIBUTES)} FROM tasks WHERE queue = ? AND run_at IS NOT NULL ORDER BY id"
OVERWRITE = f"""
    UPDATE tasks SET {", ".join(f"{name} = ?" for name in _COLUMNS if name != "id")},
        lease_token = CASE WHEN ? THEN lease_token END WHERE id = ?"""
DELETE = "DELETE FROM tasks WHERE id = ?"
COUNT = "SELECT queue, {state} AS state, count(*) FROM tasks {where} GROUP BY 1, 2"

_STATE = """coalesce(closed_as, CASE WHEN lease_expires_at >= :now THEN 'running' ELSE 'pending' END)"""


def token_pairs(tokens: Iterable[LeaseToken]) -> str:
    return json.dumps(list(tokens))


def rewriting(token: LeaseToken, transition: Reschedule | Close) -> tuple[Any, ...]:
    """One entry of REWRITE's parameter. Raises PersisterError where SQLite couldn't keep a value."""
    closing = isinstance(transition, Close)
    row = (
        token.task_id,
        token.value,
        None if isinstance(transition, Close) else transition.run_at,
        transition.attempts,
        transition.last_fail_at,
        transition.last_error,
        transition.task,
        transition.state.value if isinstance(transition, Close) else None,
        transition.last_fail_at if closing else None,
    )
    check_values(row, may_hold_nul=False)
    return row


def new_row(task: NewTask) -> tuple[Any, ...]:
    """The parameters of INSERT_ONE. Raises PersisterError where SQLite couldn't keep a value."""
    check_kinds(task)
    row = (task.queue, task.run_at, task.initial_run_at, task.expire_at, task.task)
    check_values(row)
    return row


def insert_one(raw: sqlite3.Connection, row: Sequence[Any]) -> int:
    return int(raw.execute(INSERT_ONE, row).lastrowid or 0)


def insert_many(raw: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> list[int]:
    """Within a transaction. The ids in order."""
    ids: list[int] = []
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        ids.extend(_insert_some(raw, rows[start : start + _ROWS_PER_STATEMENT]))
    return ids


def _insert_some(raw: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> Sequence[int]:
    text = json.dumps(rows, ensure_ascii=False)
    if "\\u0000" in text:
        return [insert_one(raw, row) for row in rows]  # SQLite's JSON ends a text at its first NUL
    last = int(raw.execute(INSERT_MANY, (text,)).lastrowid or 0)
    # Ids of one transaction follow each other: they're never used twice, and nobody else can write meanwhile.
    return range(last - len(rows) + 1, last + 1)


def claims_of(text: str, queue: str, lease: Lease, token: str, now: float) -> list[Claim]:
    """What CLAIMABLE, LAPSED or HELD_BY found, as claims under this lease; in order of run_at, then id."""
    return claims_from(json.loads(text), queue, lease, token, now)


def record_of(row: Sequence[Any], now: float) -> TaskRecord:
    """A row of SELECT."""
    *attributes, closed_as, closed_at, owner, lease_expires_at = row
    return TaskRecord(
        **dict(zip(ATTRIBUTES, attributes, strict=True)),
        closed_as=None if closed_as is None else TaskState(closed_as),
        closed_at=closed_at,
        lease=None if lease_expires_at is None else Lease(owner, lease_expires_at),
        read_at=now,
    )


def overwriting(record: TaskRecord) -> tuple[Any, ...]:
    """The parameters of OVERWRITE. Raises PersisterError where SQLite couldn't keep a value."""
    lease = record.lease
    row = (
        *(getattr(record, name) for name in ATTRIBUTES if name != "id"),
        None if record.closed_as is None else record.closed_as.value,
        record.closed_at,
        None if lease is None else lease.owner,
        None if lease is None else lease.expires_at,
        lease is not None,
        record.id,
    )
    check_values(row)
    return row


def selecting(
    *, queue: str | None, state: TaskState | None, tag: str | None, limit: int | None, after: int | None, now: float
) -> tuple[str, dict[str, Any]]:
    where, values = filtering(queue=queue, state=state, now=now)
    if after is not None:
        where.append("id > :after")
        values["after"] = after
    if tag is not None:
        where.append("tag_of_text(task) = :tag")
        values["tag"] = tag
    values["limit"] = -1 if limit is None else max(limit, 0)
    return f"{SELECT} {_where(where)} ORDER BY id LIMIT :limit", values


def counting(*, queue: str | None, state: TaskState | None, now: float) -> tuple[str, dict[str, Any]]:
    where, values = filtering(queue=queue, state=state, now=now)
    return COUNT.format(state=_STATE, where=_where(where)), values


def filtering(*, queue: str | None, state: TaskState | None, now: float) -> tuple[list[str], dict[str, Any]]:
    where: list[str] = []
    values: dict[str, Any] = {"now": now}
    if queue is not None:
        where.append("queue = :queue")
        values["queue"] = queue
    if state is not None and state.is_closed:
        where.append("closed_as = :state")
        values["state"] = state.value
    elif state is not None:
        where.append(f"closed_as IS NULL AND {_STATE} = :state")
        values["state"] = state.value
    return where, values


def _where(conditions: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""
