"""What PostgreSQL does for each statement: the same, however many tasks are scheduled or closed (P7, U37)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from procrastinate_py.core.lifecycle import Release
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import PostgresPersister
from procrastinate_py.persisters._pg_sql import PLANNING, Statements
from procrastinate_py.testing.clock import FakeClock
from tests.servers import postgres_url

START = 1_000_000
MANY = 100_000
VALUES: dict[str, Any] = {
    "now": float(START),
    "queue": "q",
    "owner": "me",
    "token": "aa",
    "lease_for": 30.0,
    "limit": 100,
    "dead_owner": "dead",
    "ids": "{1,2,3}",
    "tokens": "{aa,aa,aa}",
    "id": 1,
    "way": "{complete,release,rewrite}",
    "run_at": "{1,2,3}",
    "attempts": "{1,2,3}",
    "last_fail_at": "{1,2,3}",
    "last_error": "{a,b,c}",
    "task": "{a,b,c}",
    "closed_as": "{null,null,null}",
    "closed_at": "{null,null,null}",
}
INDEX_OF = {
    "claim": "tasks_due",
    "lapsed": "tasks_leased",
    "held_by": "tasks_leased",
    "next_look_at": "tasks_due",
    "extend": "tasks_pkey",
    "complete": "tasks_pkey",
    "settle": "tasks_pkey",
    "find": "tasks_pkey",
    "delete": "tasks_pkey",
}


@pytest.fixture(scope="module")
def url() -> str:
    """A queue with many scheduled tasks and many closed ones; another one with many in hand."""
    url = postgres_url()
    store = PostgresPersister(url)
    store.create_many([NewTask(queue="q", run_at=START, initial_run_at=START, expire_at=None, task="!a:B {}")] * 50)
    store.close()
    with psycopg.connect(url, autocommit=True) as raw:
        for queue, columns, values, number in (
            ("q", "run_at", f"{START} + n", MANY),
            ("q", "closed_as, closed_at", "'failed', 5", MANY),
            ("other", "run_at, lease_owner, lease_token, lease_expires_at", f"5, 'you', 'bb', {START} + 10", 300),
        ):
            raw.execute(
                f"INSERT INTO procrastinate_py_tasks (queue, task, {columns}) "
                f"SELECT '{queue}', '!a:B {{}}', {values} FROM generate_series(1, {number}) n"
            )
    return url


@pytest.fixture
def raw(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def plan_of(raw: psycopg.Connection[Any], name: str, mode: str) -> str:
    """As it is for a prepared statement, whose parameters the planner knows (custom) or doesn't (generic)."""
    text = Statements("public", "procrastinate_py_", "id")[name].decode()
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    for number, parameter in enumerate(names, 1):
        text = text.replace(f"%({parameter})s", f"${number}")
    for name, value in PLANNING.items():
        raw.execute(f"SET {name} = {value}")
    raw.execute(f"SET plan_cache_mode = force_{mode}_plan")
    raw.execute(f"PREPARE looked_at AS {text}")
    given = ", ".join(psycopg.sql.Literal(VALUES[parameter]).as_string(raw) for parameter in names)
    try:
        lines = raw.execute(f"EXPLAIN EXECUTE looked_at({given})").fetchall()
    finally:
        raw.execute("DEALLOCATE looked_at")
    return "\n".join(line for (line,) in lines)


@pytest.mark.parametrize("analyzed", [False, True], ids=["unknown", "analyzed"])
@pytest.mark.parametrize("mode", ["generic", "custom"])
@pytest.mark.parametrize("name", INDEX_OF)
def test_no_call_of_a_worker_reads_the_whole_table(
    raw: psycopg.Connection[Any], name: str, mode: str, analyzed: bool
) -> None:
    """P7, U37: whether or not the server has counted the rows yet"""
    with raw.transaction(force_rollback=True):
        if analyzed:
            raw.execute("ANALYZE procrastinate_py_tasks")
        plan = plan_of(raw, name, mode)
    assert "Seq Scan on procrastinate_py_tasks" not in plan, plan
    assert f"procrastinate_py_{INDEX_OF[name]}" in plan, plan
    if name == "claim":
        assert "Sort" not in plan, plan
        assert "run_at <=" in plan.split("tasks_due", 1)[1].split("Index Cond", 1)[1].split("\n")[0], plan


def counted(raw: psycopg.Connection[Any], store: PostgresPersister, what: str) -> list[int]:
    """What the server counted of the table. A session's counts are all in once it's gone."""
    store.close()
    until = time.monotonic() + 60
    while (
        raw.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'procrastinate_py'"
        ).rowcount
        and time.monotonic() < until
    ):
        pass
    raw.execute("SELECT pg_stat_clear_snapshot()")
    row = raw.execute(
        f"SELECT {what} FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid, relname) "
        "WHERE relname = 'procrastinate_py_tasks'"
    ).fetchone()
    assert row is not None
    return [int(value) for value in row]


def pages_touched(raw: psycopg.Connection[Any], store: PostgresPersister) -> int:
    """By a claim and a settle of all that is due."""
    pages = "heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit"
    (before,) = counted(raw, store, pages)
    claims = store.claim("q", "me", 50, 30.0)
    assert len(claims) == 50
    store.settle([(claim.token, Release()) for claim in claims])
    (after,) = counted(raw, store, pages)
    assert after > before
    return after - before


def test_a_claim_costs_the_same_beside_many_scheduled_and_closed_tasks(url: str, raw: psycopg.Connection[Any]) -> None:
    """P7: counted in pages, not in time"""
    crowded = pages_touched(raw, PostgresPersister(url, clock=FakeClock(START)))
    empty_url = postgres_url()
    store = PostgresPersister(empty_url, clock=FakeClock(START))
    store.create_many([NewTask(queue="q", run_at=START, initial_run_at=START, expire_at=None, task="!a:B {}")] * 50)
    with psycopg.connect(empty_url, autocommit=True) as alone:
        lonely = pages_touched(alone, store)
    # Indexes of a larger table are some levels deeper, at most.
    assert crowded < lonely * 3, (crowded, lonely)


def test_extending_a_lease_stays_within_its_page(url: str, raw: psycopg.Connection[Any]) -> None:
    """P7: HOT, so that a long task leaves no dead index entries behind"""

    store = PostgresPersister(url, clock=FakeClock(START))
    claims = store.claim("q", "me", 50, 30.0)
    before = counted(raw, store, "n_tup_upd, n_tup_hot_upd")
    for _ in range(5):
        assert store.extend([claim.token for claim in claims], 30.0) == []
    after = counted(raw, store, "n_tup_upd, n_tup_hot_upd")
    updates, hot = after[0] - before[0], after[1] - before[1]
    assert updates == 250
    assert hot >= 200, "most of them; a page may be full until its dead rows are cleared away"
    store.settle([(claim.token, Release()) for claim in claims])
    store.close()


def test_a_missing_index_is_found(raw: psycopg.Connection[Any]) -> None:
    """What the checks above rest on."""
    with raw.transaction(force_rollback=True):
        raw.execute("DROP INDEX procrastinate_py_tasks_due, procrastinate_py_tasks_leased")
        raw.execute("ALTER TABLE procrastinate_py_tasks DROP CONSTRAINT procrastinate_py_tasks_pkey")
        for name in INDEX_OF:
            assert "Seq Scan on procrastinate_py_tasks" in plan_of(raw, name, "generic"), name
