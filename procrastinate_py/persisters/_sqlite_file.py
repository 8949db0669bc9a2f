"""An SQLite file from nothing to ready: made for its owner alone, checked, in WAL mode, at this code's schema."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

from ..core.errors import PersisterError, PersisterUnavailableError
from ..core.stored_text import tag_of_text
from ._file_systems import mounts, network_file_system

IN_MEMORY = ":memory:"
SCHEMA_VERSION = 1
APPLICATION_ID = 0x50726370
"""``Prcp``: what ``file`` and SQLite show, and what keeps other applications' databases from being taken for ours."""
OLDEST_SQLITE = (3, 35, 0)
BUSY_TIMEOUT = 5.0
"""Seconds that a call waits for another process's write before it gives up."""

_WAL_ATTEMPTS = 100
_WAL_PAUSE = 0.05
_WAL_BYTES_KEPT = 16 * 2**20

_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "another process held it locked for too long",
    sqlite3.SQLITE_LOCKED: "it is locked",
    sqlite3.SQLITE_CANTOPEN: "it can't be opened: does its folder exist, and may this process write there?",
    sqlite3.SQLITE_READONLY: "it can't be written: check the rights of the file and of its folder",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_NOLFS: "the file system can't hold so large a file",
    sqlite3.SQLITE_PROTOCOL: "its locks can't be taken",
    sqlite3.SQLITE_CORRUPT: "it is damaged: restore it from a backup, or try sqlite3's .recover",
    sqlite3.SQLITE_NOTADB: "it isn't an SQLite database",
}
_CONNECTION_STAYS_GOOD = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
}


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code; 0 for errors that aren't SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def translated(error: Exception, path: str) -> PersisterError:
    """What went wrong in this package's words."""
    reason = _UNAVAILABLE.get(primary_code(error))
    if reason is not None:
        return PersisterUnavailableError(f"SQLite database {path}: {reason} ({error})")
    return PersisterError(f"SQLite database {path}: {error}")


def is_fatal(error: BaseException) -> bool:
    """Whether the connection had better be opened anew after this."""
    return isinstance(error, sqlite3.Error) and primary_code(error) not in _CONNECTION_STAYS_GOOD


def open_database(path: str, *, durable: bool) -> sqlite3.Connection:
    """A connection to the file at this code's schema. ``durable``: a commit is on the disk before it returns.

    Raises PersisterError.
    """
    _check_library(path)
    if path != IN_MEMORY:
        _make_private_file(path)
        warn_of_network_file_system(path)
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        _prepare(connection, path, durable)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise translated(error, path) from error
        raise
    return connection


def _check_library(path: str) -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise PersisterUnavailableError(
            f"SQLite database {path}: this Python has SQLite {sqlite3.sqlite_version}, and {oldest} or later is needed"
        )


def _make_private_file(path: str) -> None:
    """Tasks may hold secrets. SQLite gives its ``-wal`` and ``-shm`` files the rights of the database."""
    with contextlib.suppress(OSError):  # there already; or SQLite will say what's wrong
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


@functools.cache
def warn_of_network_file_system(path: str) -> None:
    """Once per file and process."""
    kind = network_file_system(os.path.realpath(path), mounts())
    if kind is not None:
        logging.getLogger("procrastinate_py").warning(
            "SQLite database %s is on a network file system (%s): SQLite's locks can't be relied on there, and tasks"
            " may be lost or run twice; keep it on a local disk",
            path,
            kind,
        )


def _prepare(connection: sqlite3.Connection, path: str, durable: bool) -> None:
    # Text that is no UTF-8, put there by other hands, must not make its neighbours unreadable.
    connection.text_factory = _lenient_text
    _migrate(connection, path)
    if path != IN_MEMORY:
        _use_wal(connection)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
    connection.create_function("tag_of_text", 1, tag_of_text, deterministic=True)


def _lenient_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.OperationalError where other processes keep the file busy."""
    for attempt in range(1, _WAL_ATTEMPTS + 1):
        try:
            if _value(connection, "PRAGMA journal_mode = WAL") == "wal":
                return
            raise sqlite3.OperationalError("its folder allows no write-ahead log")
        except sqlite3.OperationalError as error:
            # SQLite doesn't wait by itself where many processes make this switch at once.
            if primary_code(error) != sqlite3.SQLITE_BUSY or attempt == _WAL_ATTEMPTS:
                raise
            threading.Event().wait(_WAL_PAUSE)


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    """To this code's schema, once, however many processes start together. Raises PersisterUnavailableError."""
    # One snapshot: between two reads another process could put its tables into what looked like an empty file.
    connection.execute("BEGIN")
    try:
        version = _checked_version(connection, path)
    finally:
        connection.execute("COMMIT")
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    for version in range(_checked_version(connection, path) + 1, SCHEMA_VERSION + 1):
        for statement in _statements(version):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")


def _checked_version(connection: sqlite3.Connection, path: str) -> int:
    version = _number(connection, "PRAGMA user_version")
    owner = _number(connection, "PRAGMA application_id")
    is_empty = version == 0 and owner == 0 and _number(connection, "SELECT count(*) FROM sqlite_master") == 0
    if not is_empty and owner != APPLICATION_ID:
        raise PersisterUnavailableError(
            f"SQLite database {path}: it belongs to another application; give procrastinate_py a file of its own"
        )
    if version > SCHEMA_VERSION:
        raise PersisterUnavailableError(
            f"SQLite database {path}: a newer procrastinate_py wrote it (schema {version}, this one knows"
            f" {SCHEMA_VERSION}); upgrade the package here"
        )
    return version


def _statements(version: int) -> Iterator[str]:
    from importlib.resources import files  # slow to import, and needed only where a schema moves

    statement = ""
    for line in (
        files("procrastinate_py.persisters")
        .joinpath(f"schema/{version:04d}.sql")
        .read_text(encoding="utf-8")
        .splitlines()
    ):
        statement += f"{line}\n"
        if line.endswith(";"):
            yield statement
            statement = ""


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(_value(connection, statement))


def _value(connection: sqlite3.Connection, statement: str) -> Any:
    return connection.execute(statement).fetchone()[0]
