"""SQLite: one machine, many processes, nothing to set up. The default store."""

from __future__ import annotations

import json
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ..core.errors import ConfigurationError, PersisterError, PersisterUnavailableError
from ..core.lease import Lease, LeaseToken, TaskId
from ..core.lifecycle import Close, Complete, Release, Reschedule, Transition, apply
from ..core.task import ATTRIBUTES, Claim, NewTask, TaskRecord, TaskState
from ..ports.clock import Clock, SystemClock
from ..ports.persister import IncompleteSettle, WakeListener
from . import _sql
from ._rows import is_as_expected, new_token, overwritten
from ._sqlite_file import IN_MEMORY
from ._sqlite_joining import CommitWatch, insert_in, joined_connection
from ._sqlite_session import Session
from ._wake import LocalWake, WakeDirectory


class SQLitePersister:
    """Keeps tasks in an SQLite file, which is made for its owner alone where it isn't there yet. Every ability.

    ``path`` may be ``":memory:"``: then the tasks live in this process, until ``close()``. What users put in is on
    the disk when the call returns; what workers write survives a crash of theirs, while a power cut may make the
    last tasks run again. Any number of processes of one machine may work on one file.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Clock | None = None) -> None:
        given = os.fspath(path)
        if not given or "\0" in given:
            raise ConfigurationError(f"not a path for an SQLite database: {given!r}")
        # Absolute, so that a change of the working folder doesn't split the tasks over two files.
        self.path = given if given == IN_MEMORY else os.path.abspath(given)
        self._clock: Clock = clock or SystemClock()
        self._wake = LocalWake() if given == IN_MEMORY else WakeDirectory(f"{os.path.realpath(self.path)}-wake")
        self._commits = CommitWatch(self.path, partial(_notify_all, self._wake))
        weakref.finalize(self, self._commits.give_up)
        self._session_of_process = self._new_session()

    @property
    def is_shareable(self) -> bool:
        """Whether several processes can work on the same tasks through it."""
        return self.path != IN_MEMORY

    # --- floor

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        with self._session().reading.statement() as raw:
            rows = raw.execute(_sql.READ_OPEN, (queue,)).fetchall()
        return [dict(zip(ATTRIBUTES, row, strict=True)) for row in rows]

    def create_task(self, data: dict[str, Any]) -> int:
        task_id = self._session().inserts.insert(_sql.new_row(NewTask(**data)), _sql.insert_one)
        self.notify(data["queue"])
        return task_id

    def update_task(self, attributes: dict[str, Any]) -> None:
        task_id = attributes["id"]
        with self._session().durable.writing() as raw:
            old = self._find(raw, task_id)
            if old is not None:
                raw.execute(_sql.OVERWRITE, _sql.overwriting(overwritten(old, attributes)))

    def delete_task(self, task_id: TaskId) -> None:
        if _is_id(task_id):
            with self._session().durable.writing() as raw:
                raw.execute(_sql.DELETE, (task_id,))

    # --- leasing

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return self._lease(_sql.CLAIMABLE, queue, None, owner, limit, lease_for)

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> list[Claim]:
        finding = _sql.LAPSED if dead_owner is None else _sql.HELD_BY
        return self._lease(finding, queue, dead_owner, owner, limit, lease_for)

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        if not tokens:
            return []
        pairs = _sql.token_pairs(tokens)
        with self._session().brisk.writing() as raw:
            extended = raw.execute(_sql.EXTEND, (self.now() + lease_for, pairs)).rowcount
            if extended == len(tokens):
                return []
            held = _still_held(raw, tokens)
        return [token for token in tokens if token not in held]

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        sorted_out = _Settlements(settlements)
        lost: list[LeaseToken] = []
        if sorted_out.tokens:
            with self._session().brisk.writing() as raw:
                if sorted_out.write(raw) != len(sorted_out.tokens):
                    # Too late to see which: what was deleted has no token. So undo, look, and do it again.
                    raw.execute("ROLLBACK")
                    raw.execute("BEGIN IMMEDIATE")
                    held = _still_held(raw, sorted_out.tokens)
                    lost = [token for token in sorted_out.tokens if token not in held]
                    sorted_out.write(raw)
        if sorted_out.failures:
            raise IncompleteSettle(sorted_out.failures)
        return lost

    def next_look_at(self, queue: str) -> float | None:
        with self._session().brisk.statement() as raw:
            (instant,) = raw.execute(_sql.NEXT_LOOK_AT, (queue, queue)).fetchone()
        return None if instant is None else float(instant)

    # --- creating and editing

    def create_many(self, tasks: Sequence[NewTask]) -> list[int]:
        rows = [_sql.new_row(task) for task in tasks]
        if not rows:
            return []
        with self._session().durable.writing() as raw:
            ids = _sql.insert_many(raw, rows)
        self._notify_all({task.queue for task in tasks})
        return ids

    def create_in(self, connection: Any, tasks: Sequence[NewTask]) -> list[int]:
        """``connection``: of the sqlite3 module, an SQLAlchemy Connection or Session on SQLite, or a Django connection
        to it, to this very file. What it makes due is woken for by a thread, soon after its transaction has ended."""
        rows = [_sql.new_row(task) for task in tasks]
        raw = joined_connection(connection, self.path)
        if not rows:
            return []
        with self._session().reading.statement():
            pass  # so that there is a table, which a connection of the caller's wouldn't make
        ids = insert_in(raw, rows, self.path)
        queues = {task.queue for task in tasks}
        if raw.in_transaction:
            self._commits.await_end(queues)
        else:
            self._notify_all(queues)
        return ids

    def transition(self, task_id: TaskId, expected: TaskRecord, transition: Transition) -> bool:
        with self._session().durable.writing() as raw:
            row = self._find(raw, task_id)
            if row is None or not is_as_expected(row, expected, row.read_at):
                return False
            after = apply(row, transition)
            if after is None:
                raw.execute(_sql.DELETE, (task_id,))
            else:
                raw.execute(_sql.OVERWRITE, _sql.overwriting(after))
        self.notify(row.queue)
        return True

    # --- waking

    def notify(self, queue: str) -> None:
        self._wake.notify(queue)

    def _notify_all(self, queues: Iterable[str]) -> None:
        _notify_all(self._wake, queues)

    def listen(self, queue: str) -> WakeListener:
        try:
            return self._wake.listen(queue)
        except OSError as error:
            raise PersisterUnavailableError(f"SQLite database {self.path}: no pipe for wake-ups ({error})") from error

    # --- inspecting

    def find(self, task_id: TaskId) -> TaskRecord | None:
        with self._session().reading.statement() as raw:
            return self._find(raw, task_id)

    def select(
        self,
        *,
        queue: str | None = None,
        state: TaskState | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: TaskId | None = None,
    ) -> list[TaskRecord]:
        now = self.now()
        statement, values = _sql.selecting(queue=queue, state=state, tag=tag, limit=limit, after=after, now=now)
        with self._session().reading.statement() as raw:
            rows = raw.execute(statement, values).fetchall()
        return [_sql.record_of(row, now) for row in rows]

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> dict[tuple[str, TaskState], int]:
        statement, values = _sql.counting(queue=queue, state=state, now=self.now())
        with self._session().reading.statement() as raw:
            rows = raw.execute(statement, values).fetchall()
        return {(name, TaskState(value)): number for name, value, number in rows}

    # --- time and the rest

    def now(self) -> float:
        return self._clock.now()

    def use_clock(self, clock: Clock) -> None:
        self._clock = clock

    def close(self) -> None:
        """Lets this process's connections go; the next call opens new ones. What was in memory is gone."""
        let_go = self._let_go
        self._session_of_process = self._new_session()
        let_go()

    def __repr__(self) -> str:
        return f"SQLitePersister({self.path!r})"

    def __reduce__(self) -> Any:
        if not self.is_shareable:
            raise TypeError("an SQLite database in memory can't be sent to another process: give it a file")
        return type(self), (self.path,)

    # --- connections and rows

    def _session(self) -> Session:
        session = self._session_of_process
        if session.pid == os.getpid():
            return session
        session.abandon()
        if not self.is_shareable:
            raise PersisterUnavailableError(
                "an SQLite database in memory can't be used in another process than its own: give it a file"
            )
        self._session_of_process = self._new_session()
        return self._session_of_process

    def _new_session(self) -> Session:
        """It opens nothing yet."""
        session = Session(self.path)
        self._let_go: Callable[[], object] = weakref.finalize(self, session.close)
        return session

    def _lease(
        self, finding: str, queue: str, held_by: str | None, owner: str, limit: int, lease_for: float
    ) -> list[Claim]:
        """Leases what the statement finds, under one new token."""
        token = new_token()
        with self._session().brisk.writing() as raw:
            now = self.now()  # after the wait for the write lock, so that the lease is as long as it's said to be
            lease = Lease(owner, now + lease_for)
            (found,) = raw.execute(finding, (queue, now if held_by is None else held_by, max(limit, 0))).fetchone()
            claims = _sql.claims_of(found, queue, lease, token, now)
            if claims:
                ids = json.dumps([claim.record.id for claim in claims])
                raw.execute(_sql.LEASE, (owner, token, lease.expires_at, ids))
        return claims

    def _find(self, raw: sqlite3.Connection, task_id: TaskId) -> TaskRecord | None:
        if not _is_id(task_id):
            return None
        row = raw.execute(_sql.FIND, (task_id,)).fetchone()
        return None if row is None else _sql.record_of(row, self.now())


def _notify_all(wake: LocalWake | WakeDirectory, queues: Iterable[str]) -> None:
    for queue in queues:
        wake.notify(queue)


class _Settlements:
    """What a settle call is to write, by statement."""

    def __init__(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> None:
        self.tokens: list[LeaseToken] = []
        self.failures: dict[LeaseToken, BaseException] = {}
        self._complete: list[LeaseToken] = []
        self._release: list[LeaseToken] = []
        self._rewrite: list[tuple[Any, ...]] = []
        for token, transition in settlements:
            try:
                self._add(token, transition)
            except PersisterError as error:
                self.failures[token] = error
            else:
                self.tokens.append(token)

    def _add(self, token: LeaseToken, transition: Transition) -> None:
        if isinstance(transition, Complete):
            self._complete.append(token)
        elif isinstance(transition, Release):
            self._release.append(token)
        elif isinstance(transition, Reschedule | Close):
            self._rewrite.append(_sql.rewriting(token, transition))

    def write(self, raw: sqlite3.Connection) -> int:
        """How many rows were written."""
        return sum(raw.execute(statement, (parameter,)).rowcount for statement, parameter in self._statements())

    def _statements(self) -> Iterator[tuple[str, str]]:
        if self._complete:
            yield _sql.COMPLETE, _sql.token_pairs(self._complete)
        if self._release:
            yield _sql.RELEASE, _sql.token_pairs(self._release)
        if self._rewrite:
            yield _sql.REWRITE, json.dumps(self._rewrite, ensure_ascii=False)


def _is_id(task_id: object) -> bool:
    """Whether a task could have this id; no other value could even be asked for."""
    return isinstance(task_id, int) and 0 < task_id < 2**63


def _still_held(raw: sqlite3.Connection, tokens: Sequence[LeaseToken]) -> frozenset[LeaseToken]:
    (found,) = raw.execute(_sql.STILL_HELD, (_sql.token_pairs(tokens),)).fetchone()
    return frozenset(LeaseToken(*pair) for pair in json.loads(found))
