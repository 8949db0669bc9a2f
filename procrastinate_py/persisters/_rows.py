"""What every store that keeps whole records does alike."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.lease import Lease, LeaseToken
from ..core.lifecycle import closed_state_of_row
from ..core.task import ATTRIBUTES, Claim, TaskRecord, state_of

CLAIMED = tuple(name for name in ATTRIBUTES if name != "queue")
"""What a claim reads of a row; the queue is known."""


def new_token() -> str:
    """The value of the lease tokens of one call: no two calls share one, in whatever process."""
    return os.urandom(8).hex()


def overwritten(old: TaskRecord, attributes: Mapping[str, Any]) -> TaskRecord:
    """The record after update_task. A row that it closes is in nobody's hand any more."""
    new = replace(old, **{name: attributes[name] for name in ATTRIBUTES})
    closed_as = closed_state_of_row(new.run_at, new.last_error)
    if closed_as is None:
        return replace(new, closed_as=None, closed_at=None)
    return replace(new, closed_as=closed_as, closed_at=new.last_fail_at, lease=None)


def is_as_expected(row: TaskRecord, expected: TaskRecord, now: float) -> bool:
    """Whether nothing that a decision rests on has changed since ``expected`` was read, not even by time passing."""
    return (
        row.closed_as is expected.closed_as
        and row.run_at == expected.run_at
        and row.attempts == expected.attempts
        and row.lease == expected.lease
        and state_of(row, now) is expected.state
    )


def claims_from(rows: Iterable[Sequence[Any]], queue: str, lease: Lease, token: str, now: float) -> list[Claim]:
    """Rows that begin with CLAIMED, as claims under this lease; in order of run_at, then id, however they came."""
    claims = [
        Claim(
            TaskRecord(
                id=task_id,
                queue=queue,
                task=task,
                run_at=run_at,
                initial_run_at=initial_run_at,
                expire_at=expire_at,
                attempts=attempts,
                last_fail_at=last_fail_at,
                last_error=last_error,
                lease=lease,
                read_at=now,
            ),
            LeaseToken(task_id, token),
        )
        for task_id, run_at, initial_run_at, expire_at, attempts, last_fail_at, last_error, task, *_ in rows
    ]
    claims.sort(key=_in_order)
    return claims


def _in_order(claim: Claim) -> tuple[int, int]:
    return claim.record.run_at or 0, claim.record.id
