"""A connection looked at before its first use, and the tables made where they aren't there yet."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

from ..core.errors import PersisterUnavailableError
from ._pg_connection import PATIENT, Connection
from ._pg_sql import FIRST_LOOK, PLANNING, SCHEMA_VERSION, Statements, names_of, quoted

_LOOKED_UP = b"""
    SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass(%(table)s)"""
# In the stricter levels, calls that meet would fail instead of taking turns.
_SESSION = {"default_transaction_isolation": "read committed", **PLANNING}
_LOCK = b"SELECT pg_advisory_xact_lock(%(key)s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the tables are. ``schema`` None: where the role's search_path finds them, or would make them."""

    schema: str | None
    prefix: str


def look_at(connection: Connection, *, is_pooled: bool) -> bool:
    """Whether a pooler is between, as it is where ``is_pooled`` is known already: then nothing that lives in a session
    can be used, and nothing is set for it.

    Raises PersisterUnavailableError for a standby, which can't be written.
    """
    row = connection.execute(FIRST_LOOK).fetchone()
    assert row is not None
    pid, is_standby = row
    if is_standby:
        raise PersisterUnavailableError(
            "it is a standby, which can't be written: name all hosts in the URL, with target_session_attrs=read-write"
        )
    # A pooler tells its clients a number of its own, for cancelling.
    is_pooled = is_pooled or pid != connection.pgconn.backend_pid
    if is_pooled:
        connection.prepare_threshold = None
    else:
        connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in _SESSION.items()).encode())
    return is_pooled


def prepared_statements_for(connection: Connection, place: Place) -> Statements:
    """The statements for the tables, which are made, or brought to this code's schema, by one process of however many
    start together. A role that may not make tables will do where it finds them made.

    Raises psycopg.Error, or PersisterUnavailableError for a schema that is newer than this code.
    """
    schema = _schema_of(connection, place)
    found = _found(connection, schema, place.prefix)
    if found is None or found[0] != SCHEMA_VERSION:
        connection.patience = PATIENT
        found = _migrated(connection, schema, place.prefix)
    return Statements(schema, place.prefix, found[1])


def _schema_of(connection: Connection, place: Place) -> str:
    if place.schema is not None:
        return place.schema
    table = f'"{place.prefix}tasks"'
    row = connection.execute(_LOOKED_UP, {"table": table}).fetchone()
    if row is None:
        row = connection.execute("SELECT current_schema()").fetchone()
    if row is None or row[0] is None:
        raise PersisterUnavailableError("the role's search_path leads to no schema: name one, by schema=")
    return str(row[0])


def _found(connection: Connection, schema: str, prefix: str) -> tuple[int, str] | None:
    """Version and id of the store in this schema, or None where there is none yet."""
    about = names_of(schema, prefix)["about"]
    row = connection.execute(_LOOKED_UP, {"table": about}).fetchone()
    if row is None:
        return None
    row = connection.execute(f"SELECT version, store_id FROM {about}".encode()).fetchone()
    if row is None:
        raise PersisterUnavailableError(f"the table {about} is empty: restore its row from a backup")
    version, store_id = row
    if version > SCHEMA_VERSION:
        raise PersisterUnavailableError(
            f"a newer procrastinate_py wrote its tables (schema {version}, this one knows {SCHEMA_VERSION}); upgrade"
            " the package here"
        )
    return version, store_id


def _migrated(connection: Connection, schema: str, prefix: str) -> tuple[int, str]:
    names = names_of(schema, prefix)
    # Not by the role's default level: the look after the wait must see what the process before this one made.
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    connection.execute(_LOCK, {"key": zlib.crc32(names["about"].encode())})
    found = _found(connection, schema, prefix)
    version, store_id = found or (0, os.urandom(16).hex())
    if version == 0:
        _make_schema(connection, schema)
    for number in range(version + 1, SCHEMA_VERSION + 1):
        connection.execute(_script(number).format_map(names).encode())
    if version == 0:
        connection.execute(f"INSERT INTO {names['about']} VALUES ({SCHEMA_VERSION}, '{store_id}')".encode())
    else:
        connection.execute(f"UPDATE {names['about']} SET version = {SCHEMA_VERSION}".encode())
    connection.execute("COMMIT")
    return SCHEMA_VERSION, store_id


def _make_schema(connection: Connection, schema: str) -> None:
    # Not CREATE SCHEMA IF NOT EXISTS, which asks for a right to make schemas even where it's there.
    if connection.execute("SELECT to_regnamespace(quote_ident(%s))", (schema,)).fetchone() == (None,):
        connection.execute(f"CREATE SCHEMA {quoted(schema)}".encode())


def _script(version: int) -> str:
    from importlib.resources import files  # slow to import, and needed only where a schema moves

    script = files("procrastinate_py.persisters").joinpath(f"schema/postgres/{version:04d}.sql")
    return script.read_text(encoding="utf-8")
