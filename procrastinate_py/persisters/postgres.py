"""PostgreSQL: many machines on a database that others already operate. Every ability."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigurationError, PersisterError
from ..core.lease import LeaseToken, TaskId
from ..core.lifecycle import Complete, Release, Reschedule, Transition, closed_state_of_row
from ..core.stored_text import tag_of_text
from ..core.task import ATTRIBUTES, Claim, NewTask, TaskRecord, TaskState
from ..ports.clock import Clock, SystemClock
from ..ports.persister import IncompleteSettle, WakeListener
from . import _pg_rows
from ._drivers import load_driver, need_driver
from ._foreign_connection import driver_connection
from ._pg_url import DEFAULT_PREFIX, checked_prefix, checked_schema, split_options
from ._rows import new_token
from ._server_time import ServerTime
from ._urls import secrets_of, shown_url
from ._wake_thread import ThreadListener

if TYPE_CHECKING:
    from ._pg_connection import Connection
    from ._pg_session import Session
    from ._pg_sql import Statements

_ROWS_PER_STATEMENT = 5000
_ROWS_PER_PAGE = 500


class PostgresPersister:
    """Keeps tasks in PostgreSQL (12 or later), in tables that it makes at its first use.

    ``url`` is what libpq takes, ``postgresql://user@host/database``, with two options more: ``schema`` and ``prefix``
    of the tables, which can be given by keyword too. Any number of processes on any number of machines may work on
    one database; its clock decides, unless ``clock`` is given.
    """

    is_shareable = True
    """Whether several processes can work on the same tasks through it."""

    def __init__(
        self, url: str, *, clock: Clock | None = None, schema: str | None = None, prefix: str | None = None
    ) -> None:
        need_driver("psycopg", "postgres")
        if not url.lower().startswith(("postgresql://", "postgres://")):
            raise ConfigurationError("a PostgreSQL URL begins with postgresql:// or postgres://")
        if "\0" in url:
            raise ConfigurationError("a PostgreSQL URL can hold no NUL")
        self._libpq_url, options = split_options(url)
        self._schema = checked_schema(options.get("schema") if schema is None else schema)
        self._prefix = checked_prefix(options.get("prefix", DEFAULT_PREFIX) if prefix is None else prefix)
        self._url = url
        self._clock = clock
        self._monotonic = SystemClock().monotonic
        self._time = ServerTime(self._monotonic)
        self._sessions: dict[int, Session] = {}
        self._let_go: Callable[[], object] = _nothing

    # --- floor

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        rows = self._call("read_open", {"queue": _pg_rows.stored_queue(queue)}, patient=True)
        return [dict(zip(ATTRIBUTES, (row[0], queue, *row[2:]), strict=True)) for row in rows]

    def create_task(self, data: dict[str, Any]) -> int:
        new = NewTask(**data)
        row = _pg_rows.new_row(new)
        row["channel"] = self._session().statements.channel(row["queue"])
        ((task_id, _, _),) = self._timed("insert_one", row)
        return int(task_id)

    def update_task(self, attributes: dict[str, Any]) -> None:
        if _pg_rows.is_id(attributes["id"]):
            closed_as = closed_state_of_row(attributes["run_at"], attributes["last_error"])
            values = {
                **{name: attributes[name] for name in ATTRIBUTES},
                "queue": _pg_rows.stored_queue(attributes["queue"]),
                "closed_as": None if closed_as is None else closed_as.value,
                "closed_at": None if closed_as is None else attributes["last_fail_at"],
            }
            _pg_rows.check_values(values.values())
            self._call("overwrite", values)

    def delete_task(self, task_id: TaskId) -> None:
        if _pg_rows.is_id(task_id):
            self._call("delete", {"id": task_id})

    # --- leasing

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return self._lease("claim", {}, queue, owner, limit, lease_for)

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> list[Claim]:
        if dead_owner is None:
            return self._lease("lapsed", {}, queue, owner, limit, lease_for)
        return self._lease("held_by", {"dead_owner": dead_owner}, queue, owner, limit, lease_for)

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        if not tokens:
            return []
        return _lost(tokens, self._timed("extend", _pg_rows.token_arrays(tokens) | {"lease_for": float(lease_for)}))

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        tokens = [token for token, _ in settlements]
        if not tokens:
            return []
        if all(isinstance(transition, Complete) for _, transition in settlements):
            return _lost(tokens, self._timed("complete", _pg_rows.token_arrays(tokens)))
        rows, failures = _pg_rows.settlement_rows(settlements)
        lost: list[LeaseToken] = []
        if rows:
            values = _pg_rows.settled_columns(rows.values())
            lost = _lost(list(rows), self._timed("settle", _pg_rows.token_arrays(list(rows)) | values))
        if failures:
            raise IncompleteSettle(failures)
        return lost

    def next_look_at(self, queue: str) -> float | None:
        ((instant, _),) = self._timed("next_look_at", {"queue": _pg_rows.stored_queue(queue)})
        return None if instant is None else float(instant)

    # --- creating and editing

    def create_many(self, tasks: Sequence[NewTask]) -> list[int]:
        rows = [_pg_rows.new_row(task) for task in tasks]
        if not rows:
            return []
        session = self._session()
        with session.connection(patient=True) as connection:
            insert = functools.partial(_inserted, session.statements, connection)
            if len(rows) <= _ROWS_PER_STATEMENT:
                return insert(rows)
            connection.execute("BEGIN")
            starts = range(0, len(rows), _ROWS_PER_STATEMENT)
            ids = [task_id for start in starts for task_id in insert(rows[start : start + _ROWS_PER_STATEMENT])]
            connection.execute("COMMIT")
            return ids

    def create_in(self, connection: Any, tasks: Sequence[NewTask]) -> list[int]:
        """``connection``: psycopg's (or psycopg2's), an SQLAlchemy Connection or Session, or a Django connection, to
        this store's database. In autocommit and outside a transaction, the tasks are there at once."""
        session = self._session()
        from ._pg_joining import TAKES, insert_in

        raw = driver_connection(connection, drivers=("psycopg", "psycopg2"), takes=TAKES)
        rows = [_pg_rows.new_row(task) for task in tasks]
        return insert_in(raw, session, rows) if rows else []

    def transition(self, task_id: TaskId, expected: TaskRecord, transition: Transition) -> bool:
        if not _pg_rows.is_id(task_id):
            return False
        values = _pg_rows.settlement_row(transition)
        way = values.pop("way")
        done = bool(self._timed(f"edit_{way}", values | _pg_rows.expectation(expected) | {"id": task_id}))
        if done and isinstance(transition, Release | Reschedule):
            self.notify(expected.queue)
        return done

    # --- waking

    def notify(self, queue: str) -> None:
        try:
            self._call("notify", {"channel": self._session().statements.channel(_pg_rows.stored_queue(queue))})
        except PersisterError:
            return  # whoever waits looks for itself, sooner or later

    def listen(self, queue: str) -> WakeListener:
        self._session()
        from ._pg_listening import listen_to

        return ThreadListener(lambda: listen_to(self._session(), _pg_rows.stored_queue(queue)), "postgres-wake")

    # --- inspecting

    def find(self, task_id: TaskId) -> TaskRecord | None:
        if not _pg_rows.is_id(task_id):
            return None
        rows = self._timed("find", {"id": task_id})
        return _pg_rows.record_of(rows[0]) if rows else None

    def select(
        self,
        *,
        queue: str | None = None,
        state: TaskState | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: TaskId | None = None,
    ) -> list[TaskRecord]:
        session = self._session()
        limit = None if limit is None else _pg_rows.most(limit)
        values = _filters(queue, state) | {"tag": tag, "after": after, "now": self._given, "limit": limit}
        found: list[TaskRecord] = []
        while True:
            if tag is not None and limit is not None:
                values["limit"] = max(limit - len(found), _ROWS_PER_PAGE)
            after = values["after"]
            statement = session.statements.selecting(queue=queue, state=state, tag=tag, after=after)
            page = [_pg_rows.record_of(row) for row in session.call(statement, values, patient=True)]
            found += page if tag is None else [record for record in page if tag_of_text(record.task) == tag]
            if tag is None or limit is None or len(found) >= limit or len(page) < values["limit"]:
                return found[:limit]
            values["after"] = page[-1].id

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> dict[tuple[str, TaskState], int]:
        session = self._session()
        statement = session.statements.counting(queue=queue, state=state)
        rows = session.call(statement, _filters(queue, state) | {"now": self._given}, patient=True)
        return {(_pg_rows.told_queue(stored), TaskState(value)): number for stored, value, number in rows}

    # --- time and the rest

    def now(self) -> float:
        """The server's clock, mostly without asking. Raises PersisterUnavailableError where it was never heard."""
        if self._clock is not None:
            return self._clock.now()
        return self._time.now_or_ask(lambda: self._timed("now", {}))

    def close(self) -> None:
        """Lets this process's connections go; the next call opens new ones."""
        if self._sessions.pop(os.getpid(), None) is not None:
            self._let_go()

    def __repr__(self) -> str:
        return f"PostgresPersister({shown_url(self._url)!r})"

    def __reduce__(self) -> Any:
        return functools.partial(type(self), self._url, schema=self._schema, prefix=self._prefix), ()

    # --- connections

    def _session(self) -> Session:
        """This process's. It opens nothing yet."""
        session = self._sessions.get(os.getpid())
        return self._new_session() if session is None else session

    def _new_session(self) -> Session:
        load_driver("psycopg", "postgres")
        from ._pg_session import Session, Target
        from ._pg_setup import Place

        for inherited in self._sessions.values():
            inherited.abandon()
        place = Place(schema=self._schema, prefix=self._prefix)
        session = Session(
            Target(url=self._libpq_url, shown=shown_url(self._url), secrets=secrets_of(self._url), place=place)
        )
        # Two threads may come here together: the one that's later takes the other's.
        kept = self._sessions.setdefault(os.getpid(), session)
        if kept is session:
            self._let_go = weakref.finalize(self, session.close)
        return kept

    def _call(self, name: str, values: Mapping[str, Any], *, patient: bool = False) -> list[Any]:
        """The rows of one statement. Raises PersisterError."""
        session = self._session()
        return session.call(session.statements[name], values, patient=patient)

    def _timed(self, name: str, values: dict[str, Any]) -> list[Any]:
        """The same, of a statement that takes the time, and whose last column tells it."""
        if self._clock is not None:
            return self._call(name, values | {"now": self._clock.now()})
        values["now"] = None
        asked_at = self._monotonic()
        rows = self._call(name, values)
        if rows:
            self._time.heard(rows[0][-1], asked_at=asked_at)
        return rows

    def _lease(
        self, statement: str, conditions: dict[str, Any], queue: str, owner: str, limit: int, lease_for: float
    ) -> list[Claim]:
        token = new_token()
        values = conditions | {
            "queue": _pg_rows.stored_queue(queue),
            "owner": owner,
            "token": token,
            "limit": _pg_rows.most(limit),
            "lease_for": float(lease_for),
        }
        return _pg_rows.claims_of(self._timed(statement, values), queue, owner, token)

    @property
    def _given(self) -> float | None:
        return None if self._clock is None else self._clock.now()


def _nothing() -> None:
    """Until a session is made, there's nothing to let go."""


def _lost(tokens: Sequence[LeaseToken], rows: Sequence[Any]) -> list[LeaseToken]:
    if len(rows) == len(tokens):
        return []
    held = {(row[0], row[1]) for row in rows}
    return [token for token in tokens if (token.task_id, token.value) not in held]


def _filters(queue: str | None, state: TaskState | None) -> dict[str, Any]:
    return {
        "queue": None if queue is None else _pg_rows.stored_queue(queue),
        "state": None if state is None else state.value,
    }


def _inserted(statements: Statements, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    from ._pg_session import rows_of

    channels = [statements.channel(queue) for queue in {row["queue"] for row in rows}]
    values = _pg_rows.new_rows(rows) | {"channels": _pg_rows.texts(channels)}
    ((ids, _),) = rows_of(connection, statements["insert_many"], values)
    return list(ids)
