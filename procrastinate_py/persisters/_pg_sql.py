"""What is said to PostgreSQL. Parameters are named; instants that aren't given are the server's own."""

from __future__ import annotations

import re
import zlib

from ..core.task import ATTRIBUTES, TaskState
from ._rows import CLAIMED

SCHEMA_VERSION = 1

_NOW = "coalesce(%(now)s::float8, extract(epoch FROM statement_timestamp())::float8)"
_FREE = "lease_token IS NULL AND run_at IS NOT NULL"
_IN_HAND = "lease_token IS NOT NULL"
_LET_GO = "lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL"
_CLAIMED = ", ".join(CLAIMED)
_COLUMNS = ", ".join((*ATTRIBUTES, "closed_as", "closed_at", "lease_owner", "lease_expires_at"))

FIRST_LOOK = """
    SELECT pg_backend_pid(), pg_is_in_recovery()"""
"""What has to be known of a connection before it's used."""

PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_bitmapscan": "off"}
"""Where the planner doesn't know yet how many tasks are due, it would read and sort all of them at each claim."""

# An array of ids, rather than a join: whatever the planner believes of the numbers, it looks rows up by their key.
_LEASE = f"""
    UPDATE {{tasks}} SET lease_owner = %(owner)s, lease_token = %(token)s, lease_expires_at = {_NOW} + %(lease_for)s
    WHERE id = ANY (ARRAY(
        SELECT id FROM {{tasks}} WHERE queue = %(queue)s AND {{condition}}
        ORDER BY run_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING {_CLAIMED}, lease_expires_at, {_NOW}"""

# Locked in order of their ids, so that two calls that share rows never wait for each other in a circle.
_HELD = """
    SELECT task.id, task.lease_token {more}
    FROM unnest({given}) AS given (id, token {names})
    JOIN {{tasks}} AS task ON task.id = given.id AND task.lease_token = given.token
    ORDER BY task.id FOR UPDATE OF task"""
_TOKENS = "%(ids)s::bigint[], %(tokens)s::text[]"
_HELD_TOKENS = _HELD.format(more="", given=_TOKENS, names="")
_WRITTEN = {
    "way": "text",
    "run_at": "bigint",
    "attempts": "bigint",
    "last_fail_at": "bigint",
    "last_error": "text",
    "task": "text",
    "closed_as": "text",
    "closed_at": "bigint",
}
"""What a settlement may write, besides ending the lease."""
_HELD_SETTLEMENTS = _HELD.format(
    more="".join(f", given.{name}" for name in _WRITTEN),
    given=_TOKENS + "".join(f", %({name})s::{kind}[]" for name, kind in _WRITTEN.items()),
    names="".join(f", {name}" for name in _WRITTEN),
)
COMPLETE, REWRITE, RELEASE = "complete", "rewrite", "release"
"""The ways to settle."""

_NEW = "queue, run_at, initial_run_at, expire_at, task"
_INSERT_MANY = f"""
    WITH new AS (
        INSERT INTO {{tasks}} ({_NEW})
        SELECT {_NEW} FROM unnest(
            %(queues)s::text[], %(run_ats)s::bigint[], %(initial_run_ats)s::bigint[], %(expire_ats)s::bigint[],
            %(tasks)s::text[]
        ) WITH ORDINALITY AS given ({_NEW}, place)
        {{condition}} ORDER BY place RETURNING id)
    SELECT (SELECT array_agg(id ORDER BY id) FROM new),
        (SELECT string_agg(pg_notify(channel, '')::text, '') FROM unnest(%(channels)s::text[]) AS channel)"""

# As is_as_expected in _rows.py.
_AS_EXPECTED = f"""
    id = %(id)s AND closed_as IS NOT DISTINCT FROM %(was_closed_as)s::text
    AND run_at IS NOT DISTINCT FROM %(was_run_at)s::bigint AND attempts = %(was_attempts)s::bigint
    AND lease_owner IS NOT DISTINCT FROM %(was_owner)s::text
    AND lease_expires_at IS NOT DISTINCT FROM %(was_leased_until)s::float8
    AND (closed_as IS NOT NULL OR coalesce(lease_expires_at >= {_NOW}, false) = %(was_running)s::bool)"""

_STATE = f"coalesce(closed_as, CASE WHEN lease_expires_at >= {_NOW} THEN 'running' ELSE 'pending' END)"

_TEXTS = {
    "insert_one": f"""
        WITH new AS (
            INSERT INTO {{tasks}} ({_NEW})
            VALUES (%(queue)s, %(run_at)s, %(initial_run_at)s, %(expire_at)s, %(task)s) RETURNING id)
        SELECT id, pg_notify(%(channel)s, ''), extract(epoch FROM statement_timestamp())::float8 FROM new""",
    "insert_many": _INSERT_MANY.replace("{condition}", ""),
    # Into another store's table nothing goes, even where it bears the same name.
    "insert_in": _INSERT_MANY.replace("{condition}", "WHERE (SELECT store_id FROM {about}) = %(store_id)s"),
    "claim": _LEASE.replace("{condition}", f"run_at <= floor({_NOW})::bigint AND {_FREE}"),
    "lapsed": _LEASE.replace("{condition}", f"{_IN_HAND} AND lease_expires_at < {_NOW}"),
    "held_by": _LEASE.replace("{condition}", f"{_IN_HAND} AND lease_owner = %(dead_owner)s"),
    "extend": f"""
        WITH held AS MATERIALIZED ({_HELD_TOKENS.format(tasks="{tasks}")})
        UPDATE {{tasks}} SET lease_expires_at = {_NOW} + %(lease_for)s
        WHERE id = ANY (ARRAY(SELECT id FROM held)) RETURNING id, lease_token, {_NOW}""",
    "complete": f"""
        WITH held AS MATERIALIZED ({_HELD_TOKENS.format(tasks="{tasks}")})
        DELETE FROM {{tasks}} WHERE id = ANY (ARRAY(SELECT id FROM held)) RETURNING id, lease_token, {_NOW}""",
    "settle": f"""
        WITH held AS MATERIALIZED ({_HELD_SETTLEMENTS.format(tasks="{tasks}")}),
        completed AS (
            DELETE FROM {{tasks}} WHERE id = ANY (ARRAY(SELECT id FROM held WHERE way = '{COMPLETE}'))),
        released AS (
            UPDATE {{tasks}} SET {_LET_GO} WHERE id = ANY (ARRAY(SELECT id FROM held WHERE way = '{RELEASE}'))),
        rewritten AS (
            UPDATE {{tasks}} AS task SET run_at = new.run_at, attempts = new.attempts, last_fail_at = new.last_fail_at,
                last_error = new.last_error, task = coalesce(new.task, task.task), closed_as = new.closed_as,
                closed_at = new.closed_at, {_LET_GO}
            FROM held AS new WHERE task.id = new.id AND new.way = '{REWRITE}')
        SELECT id, lease_token, {_NOW} FROM held""",
    "next_look_at": f"""
        SELECT least(
            (SELECT run_at FROM {{tasks}} WHERE queue = %(queue)s AND {_FREE} ORDER BY run_at, id LIMIT 1),
            (SELECT min(lease_expires_at) FROM {{tasks}} WHERE queue = %(queue)s AND {_IN_HAND})
        )::float8, {_NOW}""",
    f"edit_{COMPLETE}": f"DELETE FROM {{tasks}} WHERE {_AS_EXPECTED} RETURNING id, {_NOW}",
    f"edit_{RELEASE}": f"UPDATE {{tasks}} SET {_LET_GO} WHERE {_AS_EXPECTED} RETURNING id, {_NOW}",
    f"edit_{REWRITE}": f"""
        UPDATE {{tasks}} SET run_at = %(run_at)s, attempts = %(attempts)s, last_fail_at = %(last_fail_at)s,
            last_error = %(last_error)s, task = coalesce(%(task)s, task), closed_as = %(closed_as)s,
            closed_at = %(closed_at)s, {_LET_GO}
        WHERE {_AS_EXPECTED} RETURNING id, {_NOW}""",
    "notify": "SELECT pg_notify(%(channel)s, '')",
    "now": "SELECT extract(epoch FROM clock_timestamp())::float8",
    "read_open": f"""
        SELECT {", ".join(ATTRIBUTES)} FROM {{tasks}} WHERE queue = %(queue)s AND run_at IS NOT NULL ORDER BY id""",
    "overwrite": f"""
        UPDATE {{tasks}} SET {", ".join(f"{name} = %({name})s" for name in ATTRIBUTES if name != "id")},
            closed_as = %(closed_as)s::text, closed_at = %(closed_at)s,
            lease_owner = CASE WHEN %(closed_as)s::text IS NULL THEN lease_owner END,
            lease_token = CASE WHEN %(closed_as)s::text IS NULL THEN lease_token END,
            lease_expires_at = CASE WHEN %(closed_as)s::text IS NULL THEN lease_expires_at END
        WHERE id = %(id)s""",
    "delete": "DELETE FROM {tasks} WHERE id = %(id)s",
    "find": f"SELECT {_COLUMNS}, {_NOW} FROM {{tasks}} WHERE id = %(id)s",
}

SELECT = f"SELECT {_COLUMNS}, {_NOW} FROM {{tasks}} {{where}} ORDER BY id LIMIT %(limit)s"
COUNT = f"SELECT queue, {_STATE}, count(*) FROM {{tasks}} {{where}} GROUP BY 1, 2"

# Tells a plainly written tag that is another one. What is written in another way is for Python to read.
_TAG = "coalesce(substring(task from '^!([A-Za-z0-9_.:-]+)(?:[ \\t\\r\\n]|$)') = %(tag)s, true)"

_UNREADABLE = re.compile(r"[^A-Za-z0-9]")


class Statements:
    """All of them, for one store's tables."""

    def __init__(self, schema: str, prefix: str, store_id: str) -> None:
        self._name = f"{schema}.{prefix}"
        self.store_id = store_id
        # A percent sign, which a schema that was found may have, stands for a parameter otherwise.
        self._names = {name: quoted.replace("%", "%%") for name, quoted in names_of(schema, prefix).items()}
        self._texts = {name: text.format_map(self._names).encode() for name, text in _TEXTS.items()}

    def __getitem__(self, name: str) -> bytes:
        return self._texts[name]

    def channel(self, queue: str) -> str:
        """Where wake-ups for the queue are sent. That two queues share one isn't likely, and would do no harm."""
        full = f"{self._name}{queue}"
        return f"{_UNREADABLE.sub('_', full[:50])}-{zlib.crc32(full.encode('utf-8', 'surrogatepass')):08x}"

    def selecting(self, *, queue: object, state: TaskState | None, tag: object, after: object) -> bytes:
        """What isn't None is a condition. Where there's a tag, too much may be found."""
        where = _conditions(queue, state)
        where += ["id > %(after)s"] * (after is not None) + [_TAG] * (tag is not None)
        return _filled(SELECT, self._names, where)

    def counting(self, *, queue: object, state: TaskState | None) -> bytes:
        return _filled(COUNT, self._names, _conditions(queue, state))


def _conditions(queue: object, state: TaskState | None) -> list[str]:
    where = ["queue = %(queue)s"] * (queue is not None)
    if state is not None and state.is_closed:
        where.append("closed_as = %(state)s")
    elif state is not None:
        where.append(f"closed_as IS NULL AND {_STATE} = %(state)s")
    return where


def _filled(text: str, names: dict[str, str], conditions: list[str]) -> bytes:
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return text.format(where=where, **names).encode()


def names_of(schema: str, prefix: str) -> dict[str, str]:
    """The quoted names that schema scripts and statements are filled in with."""
    indexes = {name: quoted(prefix + name) for name in ("tasks_due", "tasks_leased", "tasks_closed")}
    return {
        "tasks": f"{quoted(schema)}.{quoted(prefix + 'tasks')}",
        "about": f"{quoted(schema)}.{quoted(prefix + 'about')}",
        **indexes,
    }


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
