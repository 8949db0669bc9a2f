"""One process's connections to PostgreSQL. Importing this loads the driver."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from ..core.errors import PersisterError, PersisterUnavailableError
from ..ports.clock import SystemClock
from ._pg_connection import PATIENT, QUICK, Connection, connect
from ._pg_errors import is_about_a_value, is_about_sessions, is_about_tables, translated
from ._pg_setup import Place, look_at, prepared_statements_for
from ._pg_sql import Statements

MOST_CONNECTIONS = 10
"""At the same time, for calls: as many threads may call, and further ones wait."""
LONGEST_WAIT = 10.0
"""Seconds that a call waits for one of them."""
KEPT_FOR = 60.0
"""Seconds that those which many threads needed are kept when they aren't needed any more; one is kept for good."""

_abandoned: list[object] = []
"""Connections that are neither used nor closed any more, but kept: the garbage collector would close them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to connect to, how to call it in messages, and what must not be in these."""

    url: str
    shown: str
    secrets: tuple[str, ...]
    place: Place


class Session:
    """A few connections, opened as they're needed, and thrown away after an error. A fork's child makes its own session
    and abandons its parent's.

    Not psycopg's own pool: that has threads of its own in each process, waits long where it should fail at once, and
    is slow to come back after an outage.
    """

    def __init__(self, target: Target) -> None:
        self.pid = os.getpid()
        self._target = target
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._idle: list[Connection] = []
        self._setting_up = threading.Lock()
        self._statements: Statements | None = None
        self._is_closed = False
        self._monotonic = SystemClock().monotonic
        self.is_pooled = False
        """Whether a pooler was found to be between."""

    @property
    def statements(self) -> Statements:
        """Raises PersisterError where the tables can't be found or made, or the server not be reached."""
        while (statements := self._statements) is None:
            with self.connection():
                pass  # looked at, and with it the tables
        return statements

    def call(self, statement: bytes, values: Mapping[str, Any], *, patient: bool = False) -> list[Any]:
        """The rows of one statement, which is a transaction by itself. ``patient``: it may take the server long.
        Raises PersisterError."""
        with self.connection(patient=patient) as connection:
            return rows_of(connection, statement, values)

    @contextlib.contextmanager
    def connection(self, *, patient: bool = False) -> Iterator[Connection]:
        """One that nobody else uses meanwhile. Whatever is raised within is told as a PersisterError where it's the
        driver's, and ends the connection where that might not be as it was. Raises PersisterError."""
        if not self._free.acquire(timeout=LONGEST_WAIT):
            raise PersisterUnavailableError(
                f"PostgreSQL {self._target.shown}: all {MOST_CONNECTIONS} connections of this process were in use"
            )
        try:
            with self._failing_clearly():
                connection = self._taken()
                try:
                    connection.patience = PATIENT if patient else QUICK
                    yield connection
                except BaseException as error:
                    self._after(error, connection)
                    raise
                self._give_back(connection)
        finally:
            self._free.release()

    def open(self) -> Connection:
        """One that isn't among the others, for a listener. Raises PersisterError."""
        with self._failing_clearly():
            return self._opened()

    def close(self) -> None:
        """In a fork's child it abandons them instead."""
        if self.pid != os.getpid():
            self.abandon()
            return
        self._is_closed = True
        self._close_idle()

    def abandon(self) -> None:
        _abandoned.append(self)

    def translated(self, error: BaseException) -> PersisterError:
        return translated(error, self._target.shown, self._target.secrets)

    @contextlib.contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        try:
            yield
        except PersisterError:
            raise
        except (psycopg.Error, UnicodeError, OverflowError) as error:
            if is_about_tables(error):
                self._statements = None
            if is_about_sessions(error):
                self.is_pooled = True
                self._close_idle()
            raise self.translated(error) from None  # its own text may quote a password

    def _taken(self) -> Connection:
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread took the last one meanwhile
                connection = self._idle.pop()
                if not connection.is_stale:
                    return self._ready(connection)
                connection.close()
        return self._opened()

    def _opened(self) -> Connection:
        return self._ready(connect(self._target.url), is_new=True)

    def _ready(self, connection: Connection, *, is_new: bool = False) -> Connection:
        """Closed, where it can't be made ready."""
        try:
            if is_new:
                self.is_pooled = look_at(connection, is_pooled=self.is_pooled)
            if self._statements is None:
                self._set_up(connection)
        except PersisterUnavailableError as error:
            connection.close()
            raise PersisterUnavailableError(f"PostgreSQL {self._target.shown}: {error}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: Connection) -> None:
        with self._setting_up:
            if self._statements is None:
                self._statements = prepared_statements_for(connection, self._target.place)

    def _after(self, error: BaseException, connection: Connection) -> None:
        if is_about_a_value(error) and connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            self._give_back(connection)
            return
        connection.close()
        if isinstance(error, psycopg.OperationalError):
            self._close_idle()  # the server is likely gone for them too

    def _give_back(self, connection: Connection) -> None:
        connection.idle_since = now = self._monotonic()
        self._idle.append(connection)
        if self._is_closed:
            self._close_idle()
        elif len(self._idle) > 1 and now - self._idle[0].idle_since > KEPT_FOR:
            with contextlib.suppress(IndexError):  # another thread took it meanwhile
                self._idle.pop(0).close()

    def _close_idle(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()


def rows_of(connection: Connection, statement: bytes, values: Mapping[str, Any]) -> list[Any]:
    """Prepared at the first time, unless a pooler is between."""
    prepare = None if connection.prepare_threshold is None else True
    cursor = connection.execute(statement, values, prepare=prepare, binary=True)
    return cursor.fetchall() if cursor.description else []
