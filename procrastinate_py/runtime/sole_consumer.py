"""Gives a floor persister the leasing shape, within the one process that works its queue.

There are no leases in the store: what is in hand is known here, and the lock on the in-hand file keeps every other
process of the machine away. One ``read_tasks`` makes a pass; what was due in it is handed out from memory.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from ..core.lease import LeaseToken, TaskId
from ..core.lifecycle import Complete, Release, Transition, apply
from ..core.row import UnreadableRowError, record_from_row
from ..core.task import Claim, TaskRecord
from ..ports.persister import IncompleteSettle, Persister
from .in_hand import key_of

_NEVER = 2**63
_RUN_AT = attrgetter("run_at")
_RUN_AT_AND_ID = attrgetter("run_at", "id")


class SoleConsumer:
    """``fresh_for``: for how many seconds a pass's rows are believed. ``left``: keys that a dead process had begun.
    ``is_sole``: asked before each claim, which gives nothing where the queue isn't this process's any more."""

    def __init__(
        self,
        persister: Persister,
        *,
        now: Callable[[], float],
        fresh_for: float,
        warn: Callable[[str], Any],
        left: Iterable[bytes] = (),
        is_sole: Callable[[], bool] = lambda: True,
    ) -> None:
        self._persister = persister
        self._now = now
        self._fresh_for = fresh_for
        self._warn = warn
        self._is_sole = is_sole
        self._left = frozenset(left)
        self._due: deque[TaskRecord] = deque()
        self._next_run_at: float | None = None
        self._read_at = float("-inf")
        self._read_since_look = False
        self._held: dict[TaskId, Claim] = {}
        self._tokens = itertools.count()
        self._unreadable: set[str] = set()

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> Sequence[Claim]:
        if not self._is_sole():
            return ()
        now = self._now()
        if not self._due or not 0 <= now - self._read_at <= self._fresh_for:
            self._read(queue, now)
        claims: list[Claim] = []
        while self._due and len(claims) < limit:
            claims.append(self._hold(self._due.popleft()))
        return claims

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> Sequence[LeaseToken]:
        self._is_sole()  # a lock that was dropped is taken back, though nothing is claimed for long
        return ()

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> Sequence[LeaseToken]:
        failures: dict[LeaseToken, BaseException] = {}
        lost: list[LeaseToken] = []
        held = self._held
        for token, transition in settlements:
            claim = held.get(token.task_id)
            if claim is None or claim.token != token:
                lost.append(token)
                continue
            try:
                self._write(claim.record, transition)
            except Exception as error:
                failures[token] = error
            else:
                del held[token.task_id]
        if failures:
            raise IncompleteSettle(failures)
        return lost

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> Sequence[Claim]:
        """Nothing lapses here; a dead owner's are those rows of the first pass that its in-hand file names."""
        if dead_owner is None or not self._left:
            return ()
        self._read(queue, self._now())
        left, self._left = self._left, frozenset()
        claims = [self._hold(record) for record in self._due if key_of(record.id, record.attempts) in left]
        self._due = deque(record for record in self._due if record.id not in self._held)
        return claims

    def next_look_at(self, queue: str) -> float | None:
        now = self._now()
        if not self._due and not self._read_since_look:
            self._read(queue, now)
        self._read_since_look = False
        return now if self._due else self._next_run_at

    def _read(self, queue: str, now: float) -> None:
        due: dict[TaskId, TaskRecord] = {}
        coming: float | None = None
        for row in self._persister.read_tasks(queue):
            if type(row) is dict:  # by far the most: what isn't due costs no record
                run_at = row.get("run_at")
                if run_at is None:
                    continue
                if type(run_at) is int and now < run_at < _NEVER and not self._left:
                    coming = run_at if coming is None or run_at < coming else coming
                    continue
            try:
                record = record_from_row(queue, row, now)
                if record.run_at is None or record.id in self._held or record.id in due:
                    continue
                if record.is_due(now) or self._was_left(record):
                    due[record.id] = record
                elif coming is None or record.run_at < coming:
                    coming = record.run_at
            except UnreadableRowError as error:
                self._skip(str(error))
            except Exception as error:  # it's a mapping, or an id, whose own methods fail
                self._skip(f"a row of queue {queue!r} can't be read ({type(error).__name__})")
        self._due = deque(_in_order(due.values()))
        self._next_run_at = coming
        self._read_at = now
        self._read_since_look = True

    def _was_left(self, record: TaskRecord) -> bool:
        """Such a row was due once, even if the clock has been set back since."""
        return bool(self._left) and key_of(record.id, record.attempts) in self._left

    def _hold(self, record: TaskRecord) -> Claim:
        claim = Claim(record, LeaseToken(record.id, str(next(self._tokens))))
        self._held[record.id] = claim
        return claim

    def _write(self, record: TaskRecord, transition: Transition) -> None:
        if isinstance(transition, Release):
            return  # the store never knew that it was in hand
        if isinstance(transition, Complete):
            self._persister.delete_task(record.id)
            return
        after = apply(record, transition)
        assert after is not None
        self._persister.update_task(after.as_mapping())

    def _skip(self, problem: str) -> None:
        if problem not in self._unreadable and len(self._unreadable) < 1000:
            self._unreadable.add(problem)
            self._warn(problem)


def _in_order(records: Iterable[TaskRecord]) -> list[TaskRecord]:
    """By run_at, then id; ids that can't be compared with each other keep the order in which they were read."""
    found = list(records)
    try:
        found.sort(key=_RUN_AT_AND_ID)
    except TypeError:
        found.sort(key=_RUN_AT)
    return found
