"""Tasks that are stored in a transaction of the caller's own, on the caller's own connection to the same file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..core.errors import ConfigurationError
from . import _sql
from ._foreign_connection import driver_connection
from ._sqlite_file import IN_MEMORY, primary_code, translated
from ._sqlite_forks import lock_that_forks_wait_for

_TAKES = "a sqlite3 connection, an SQLAlchemy Connection or Session on SQLite, or a Django connection to SQLite"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02
"""Seconds between two looks at whether a transaction has ended."""
_in_statement = lock_that_forks_wait_for()


def joined_connection(given: object, path: str) -> sqlite3.Connection:
    """The caller's connection, as sqlite3 knows it. Raises ConfigurationError where it isn't one to this file."""
    raw = driver_connection(given, drivers=("sqlite3",), takes=_TAKES)
    if not isinstance(raw, sqlite3.Connection):
        raise ConfigurationError(f"connection= takes {_TAKES}, not a {type(raw).__module__}.{type(raw).__qualname__}")
    if path == IN_MEMORY:
        raise ConfigurationError("connection= needs tasks in a file: these are in this process's memory")
    try:
        found = _file_of(raw)
        is_hidden = _hides_tasks(raw)
    except sqlite3.Error as error:
        raise ConfigurationError(f"connection= got a connection that can't be used: {error}") from error
    if found is None or os.path.realpath(found) != os.path.realpath(path):
        raise ConfigurationError(
            f"connection= must be a connection to the tasks' own database, {path}, and this one is to "
            f"{found or 'a database in memory'}"
        )
    if is_hidden:
        raise ConfigurationError("connection= has a temporary table or view named tasks, which hides the stored ones")
    return raw


def _file_of(raw: sqlite3.Connection) -> str | None:
    cursor = sqlite3.Cursor(raw)
    cursor.row_factory = None  # the caller's own may make anything of a row
    try:
        for _, name, file in cursor.execute("PRAGMA database_list"):
            if os.fsdecode(name) == "main":
                return os.fsdecode(file) if file else None
    finally:
        cursor.close()
    return None


def _hides_tasks(raw: sqlite3.Connection) -> bool:
    """Temporary tables come first: a task would be put there, and be gone with the connection."""
    cursor = sqlite3.Cursor(raw)
    cursor.row_factory = None
    try:
        found = cursor.execute("SELECT 1 FROM sqlite_temp_master WHERE name = 'tasks' COLLATE NOCASE").fetchone()
        return found is not None
    finally:
        cursor.close()


def insert_in(raw: sqlite3.Connection, rows: Sequence[Sequence[object]], path: str) -> list[int]:
    """Opens a transaction where sqlite3 would. Raises PersisterError, and leaves what to do then to the caller."""
    try:
        if len(rows) == 1:
            return [_sql.insert_one(raw, rows[0])]
        return _sql.insert_many(raw, rows)
    except sqlite3.Error as error:
        raise translated(error, path) from error


class CommitWatch:
    """Tells when a transaction that wrote is over: SQLite has no way to be told, but one writer at a time, so it is
    once the write lock can be had.

    A thread of its own tries that, every 20 ms at most, while there's something to wait for; it keeps the lock no
    longer than it takes to let go of it. Nobody waits for that thread, and a fork's child has nothing to do with it.
    """

    def __init__(self, path: str, notify: Callable[[Iterable[str]], None]) -> None:
        self._path = path
        self._notify = notify
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._watched: set[str] = set()
        self._has_thread = False

    def await_end(self, queues: Iterable[str]) -> None:
        """Called while the transaction is open and has written: once it has ended, in whichever way, these queues are
        notified. Never blocks, never raises."""
        if os.getpid() != self._pid:
            self._begin()
        with self._lock:
            self._waiting.update(queues)
            if self._has_thread:
                return
            with contextlib.suppress(RuntimeError):  # no thread to be had: workers look every update_period anyway
                threading.Thread(target=self._watch, name="procrastinate-commits", daemon=True).start()
                self._has_thread = True

    def give_up(self) -> None:
        """Where the process or the store ends before its transactions were seen to: most have, so they're notified."""
        if os.getpid() == self._pid:
            self._notify(self._waiting | self._watched)

    def _watch(self) -> None:
        url = f"{Path(self._path).as_uri()}?mode=rw"  # where the file has been removed, it isn't to be made anew
        raw: sqlite3.Connection | None = None
        try:
            with _in_statement:  # opening one holds a lock of the whole library's, too
                raw = sqlite3.connect(url, uri=True, timeout=0, isolation_level=None)
            while self._has_more():
                _await_free(raw)
                self._notify(self._watched)
        except sqlite3.Error:  # which is for others to tell, who lose something by it
            with self._lock:
                self._has_thread = False
                self._watched |= self._waiting
                self._waiting = set()
            self._notify(self._watched)
        finally:
            if raw is not None:
                with _in_statement:
                    raw.close()

    def _has_more(self) -> bool:
        """What is waiting before the lock is tried for wrote before that: it's over then. What comes later isn't."""
        with self._lock:
            self._watched, self._waiting = self._waiting, set()
            self._has_thread = bool(self._watched)
            return self._has_thread


def _await_free(raw: sqlite3.Connection) -> None:
    """Until nobody has the write lock. Raises sqlite3.Error for anything but that."""
    pause, pauses = _FIRST_PAUSE, threading.Event()
    while True:
        try:
            # Changes nothing, but takes the lock, and lets go of it within the same step: between two, Python's own
            # lock may have to be waited for.
            with _in_statement:
                raw.execute("UPDATE tasks SET id = id WHERE 0")
            return
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
        pauses.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
