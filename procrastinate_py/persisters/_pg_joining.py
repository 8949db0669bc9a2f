"""Tasks that are stored in a transaction of the caller's own, on the caller's own connection."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from ..core.errors import ConfigurationError
from ._pg_errors import is_about_tables
from ._pg_rows import new_rows, texts
from ._pg_session import Session

TAKES = "a psycopg connection, an SQLAlchemy Connection or Session on PostgreSQL, or a Django connection to PostgreSQL"


def insert_in(connection: Any, session: Session, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The ids. Neither begins a transaction that the driver wouldn't begin, nor ends one. Raises PersisterError, and
    ConfigurationError where the connection leads to another database than this store's."""
    statements = session.statements
    values = new_rows(rows) | {
        "channels": texts([statements.channel(queue) for queue in {row["queue"] for row in rows}]),
        "store_id": statements.store_id,
    }
    try:
        row = _executed(connection, statements["insert_in"], values)
    except psycopg.Error as error:
        raise _told(error, session) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "psycopg2":
            raise
        raise _told(error, session) from None
    ids = None if row is None else row[0]
    if ids is None:
        raise ConfigurationError(_ELSEWHERE)
    return list(ids)


_ELSEWHERE = "connection= must be a connection to the tasks' own database, and this one leads to another"


def _told(error: Exception, session: Session) -> Exception:
    return ConfigurationError(_ELSEWHERE) if is_about_tables(error) else session.translated(error)


def _executed(connection: Any, statement: bytes, values: Mapping[str, Any]) -> Any:
    """The first row, as a tuple, whatever kinds of rows and cursors the caller's connection is set to make."""
    if isinstance(connection, psycopg.Connection):
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            return cursor.execute(statement, values, prepare=False).fetchone()
    driver = sys.modules["psycopg2.extensions"]
    with connection.cursor(cursor_factory=driver.cursor) as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()
