"""One process's connections to an SQLite file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core.errors import PersisterError, PersisterUnavailableError
from ._sqlite_file import IN_MEMORY, is_fatal, open_database, translated
from ._sqlite_forks import lock_that_forks_wait_for

_abandoned: list[object] = []
"""Connections that are neither used nor closed any more, but kept: the garbage collector would close them."""


class Connection:
    """Opened when it's first used, and again after an error; used by one thread at a time."""

    def __init__(self, path: str, *, durable: bool) -> None:
        self._path = path
        self._durable = durable
        self._lock = lock_that_forks_wait_for()
        self._raw: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the write lock from its first statement on. Raises PersisterError."""
        with self._lock, self._failing_clearly():
            raw = self._opened()
            raw.execute("BEGIN IMMEDIATE")
            yield raw
            raw.execute("COMMIT")

    @contextlib.contextmanager
    def statement(self) -> Iterator[sqlite3.Connection]:
        """For a single one, which is a transaction by itself. Raises PersisterError."""
        with self._lock, self._failing_clearly():
            yield self._opened()

    def close(self) -> None:
        with self._lock:
            self._let_go()

    @contextlib.contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._roll_back(error)
            if isinstance(error, sqlite3.Error):
                raise translated(error, self._path) from error
            if isinstance(error, OverflowError | UnicodeEncodeError):
                raise PersisterError(f"SQLite can't store a value: {error}") from error
            raise

    def _roll_back(self, error: BaseException) -> None:
        if self._raw is None:
            return
        with contextlib.suppress(sqlite3.Error):
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
        if is_fatal(error) and self._path != IN_MEMORY:
            self._let_go()

    def _opened(self) -> sqlite3.Connection:
        if self._raw is not None and self._identity != _identity(self._path):
            # The file was replaced. Closing the connection could remove the new file's log, which has the same name.
            _abandoned.append(self._raw)
            self._raw = None
        if self._raw is None:
            self._raw = open_database(self._path, durable=self._durable)
            self._identity = _identity(self._path)
        elif self._raw.in_transaction:
            self._raw.execute("ROLLBACK")  # an exception thrown in from another thread cut the last call's own short
        return self._raw

    def _let_go(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            with contextlib.suppress(sqlite3.Error):
                raw.close()


def _identity(path: str) -> tuple[int, int] | None:
    """Which file bears this name now."""
    if path == IN_MEMORY:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Session:
    """What one process has open. A fork's child makes its own and abandons its parent's.

    ``durable``: a commit is on the disk when it returns; for what users put in. ``brisk``: a commit survives a crash
    of the process, but not of the machine; for workers, whose tasks would only run again. ``reading``: for looking
    things up beside a working worker.
    """

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self.durable = Connection(path, durable=True)
        self.brisk = self.durable if path == IN_MEMORY else Connection(path, durable=False)
        self.reading = self.durable if path == IN_MEMORY else Connection(path, durable=False)
        self.inserts = SharedCommits(self.durable)

    def close(self) -> None:
        """In a fork's child it abandons them instead: closing an inherited SQLite file would drop locks."""
        if self.pid != os.getpid():
            self.abandon()
            return
        for connection in (self.durable, self.brisk, self.reading):
            connection.close()

    def abandon(self) -> None:
        _abandoned.append(self)


class _Call:
    """One thread's rows on their way into a transaction with others'."""

    __slots__ = ("error", "id", "row")

    def __init__(self, row: Sequence[Any]) -> None:
        self.row = row
        self.id: int | None = None
        self.error: PersisterError | None = None


class SharedCommits:
    """Threads that insert at the same time share a commit: waiting for the disk once does for all."""

    _LARGEST = 500

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turn = threading.Lock()
        self._waiting: deque[_Call] = deque()

    def insert(self, row: Sequence[Any], write: Callable[[sqlite3.Connection, Sequence[Any]], int]) -> int:
        """The new id. ``write`` inserts one row, which was found storable before. Raises PersisterError."""
        call = _Call(row)
        self._waiting.append(call)
        with self._turn:
            while self._waiting and call.id is None and call.error is None:
                self._commit_all(write)
        if call.id is None:
            raise call.error or PersisterUnavailableError("the commit that this insert shared was interrupted")
        return call.id

    def _commit_all(self, write: Callable[[sqlite3.Connection, Sequence[Any]], int]) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._LARGEST))]
        try:
            ids = self._write(batch, write)
        except PersisterError as error:
            for call in batch:
                call.error = type(error)(*error.args)
                call.error.__cause__ = error.__cause__
            return
        for call, task_id in zip(batch, ids, strict=True):
            call.id = task_id

    def _write(
        self, batch: Sequence[_Call], write: Callable[[sqlite3.Connection, Sequence[Any]], int]
    ) -> Sequence[int]:
        if len(batch) == 1:  # as mostly: without BEGIN and COMMIT it's as fast as an insert can be
            with self._connection.statement() as raw:
                return [write(raw, batch[0].row)]
        with self._connection.writing() as raw:
            return [write(raw, call.row) for call in batch]
