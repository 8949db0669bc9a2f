"""PostgreSQL that is gone, slow, locked, or behind a pooler (G7)."""

from __future__ import annotations

import select
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from procrastinate_py.core.errors import PersisterUnavailableError
from procrastinate_py.core.lifecycle import Complete, Release, Reschedule
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import PostgresPersister, _pg_session, _wake_thread
from procrastinate_py.persisters import postgres as postgres_module
from procrastinate_py.persisters._wake_thread import NoWakeUpsError
from tests.servers import PostgresServer, own_postgres, pgbouncer, postgres_url

PATIENCE = 60.0


def new(queue: str = "q") -> NewTask:
    return NewTask(queue=queue, run_at=1000, initial_run_at=1000, expire_at=None, task="!a:B {}")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One of one's own, to be killed."""
    with own_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def url() -> str:
    return postgres_url()


@pytest.fixture
def store(url: str) -> Iterator[PostgresPersister]:
    with closing(PostgresPersister(url)) as persister:
        for row in persister.read_tasks("q"):
            persister.delete_task(row["id"])
        yield persister


@pytest.fixture
def admin(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


OURS = "datname = current_database() AND application_name = 'procrastinate_py'"


def end_all(admin: psycopg.Connection[Any], condition: str = "true") -> int:
    """Ends our sessions as an administrator would; how many there were. Waits until they're gone."""
    return admin.execute(
        f"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE {OURS} AND {condition}"
    ).rowcount


def until(fact: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if fact():
            return
        pause.wait(0.01)
    raise AssertionError("it never came to be")


def is_awake(listener: Any, within: float) -> bool:
    return bool(select.select([listener.fileno()], [], [], within)[0])


def test_connections_that_were_lost_while_idle_fail_no_call(
    store: PostgresPersister, admin: psycopg.Connection[Any]
) -> None:
    """G7: a restart of the server at night is no error of the first delay in the morning"""
    for _ in range(3):
        store.create_task(new().as_mapping())
        assert end_all(admin) >= 1
    assert len(store.read_tasks("q")) == 3


def test_a_call_whose_session_is_ended_fails_and_the_next_one_works(
    store: PostgresPersister, admin: psycopg.Connection[Any]
) -> None:
    """G7: 57P01"""
    store.create_task(new().as_mapping())
    failures: list[BaseException] = []

    def claim() -> None:
        try:
            store.next_look_at("q")
        except PersisterUnavailableError as error:
            failures.append(error)

    with admin.transaction():
        admin.execute("LOCK TABLE procrastinate_py_tasks IN ACCESS EXCLUSIVE MODE")
        caller = threading.Thread(target=claim)
        caller.start()
        with psycopg.connect(admin.info.dsn, autocommit=True) as other:
            until(lambda: end_all(other, "wait_event_type = 'Lock'"))
        caller.join()
    assert "terminating connection" in str(failures[0])
    assert len(store.claim("q", "me", 9, 30.0)) == 1


def test_a_call_that_hangs_ends(
    store: PostgresPersister, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7: whoever locks the table, or stalls the server, holds no worker for long"""
    store.create_task(new().as_mapping())
    monkeypatch.setattr(_pg_session, "QUICK", 0.05)
    with admin.transaction():
        admin.execute("LOCK TABLE procrastinate_py_tasks IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(PersisterUnavailableError, match="no answer within"):
            store.next_look_at("q")
    monkeypatch.undo()
    assert len(store.claim("q", "me", 9, 30.0)) == 1


@pytest.mark.parametrize(
    ("setting", "value"), [("statement_timeout", "20ms"), ("lock_timeout", "20ms")], ids=["statement", "lock"]
)
def test_limits_that_a_role_has_are_outages_like_others(
    url: str, admin: psycopg.Connection[Any], setting: str, value: str
) -> None:
    """G7"""
    admin.execute("DROP ROLE IF EXISTS hurried")
    admin.execute("CREATE ROLE hurried LOGIN SUPERUSER")
    with closing(PostgresPersister(url.replace("tester@", "hurried@"))) as store:
        store.create_many([new()])
        store.close()
        admin.execute(f"ALTER ROLE hurried SET {setting} = '{value}'")
        with admin.transaction():
            admin.execute("LOCK TABLE procrastinate_py_tasks IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(PersisterUnavailableError):
                store.claim("q", "me", 1, 30.0)
        assert len(store.claim("q", "me", 1, 30.0)) == 1
        assert store.settle([(claim.token, Complete()) for claim in store.lapsed("q", "me", 9, 1.0, "me")]) == []


def test_a_role_whose_default_is_serializable_still_takes_turns(url: str, admin: psycopg.Connection[Any]) -> None:
    admin.execute("CREATE ROLE strict LOGIN SUPERUSER")
    admin.execute("ALTER ROLE strict SET default_transaction_isolation = 'serializable'")
    with closing(PostgresPersister(url.replace("tester@", "strict@"), prefix="strict_")) as store:
        store.create_many([new() for _ in range(200)])
        done: list[int] = []

        def work() -> None:
            while claims := store.claim("q", "me", 5, 30.0):
                store.settle([(claim.token, Complete()) for claim in claims])
                done.extend(claim.record.id for claim in claims)

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert sorted(done) == list(range(1, 201))


def test_a_read_only_server_is_told_and_used_again_when_it_is_not(
    url: str, store: PostgresPersister, admin: psycopg.Connection[Any]
) -> None:
    """G7: a failover"""
    database = admin.info.dbname
    admin.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    try:
        with closing(PostgresPersister(url)) as other, pytest.raises(PersisterUnavailableError, match="read-only"):
            other.create_task(new().as_mapping())
        with pytest.raises(PersisterUnavailableError, match="read-only"):
            store.close()
            store.create_task(new().as_mapping())
    finally:
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = off")
    store.create_task(new().as_mapping())


def test_a_server_without_connections_left_is_told(admin: psycopg.Connection[Any], url: str) -> None:
    admin.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    with closing(PostgresPersister(url.replace("tester@", "crowded@"))) as store:
        with pytest.raises(PersisterUnavailableError, match="too many connections"):
            store.find(1)


def test_a_killed_server_costs_a_failed_call_and_loses_nothing(server: PostgresServer) -> None:
    """G1, G7"""
    with closing(PostgresPersister(server.new_database())) as store:
        ids = store.create_many([new() for _ in range(20)])
        claims = store.claim("q", "me", 10, 30.0)
        server.kill()
        for _ in range(2):
            with pytest.raises(PersisterUnavailableError):
                store.settle([(claim.token, Complete()) for claim in claims])
        server.start()
        assert store.settle([(claim.token, Complete()) for claim in claims]) == []
        assert [row["id"] for row in store.read_tasks("q")] == ids[10:]


def test_a_listener_hears_again_after_the_server_was_killed(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7"""
    monkeypatch.setattr(_wake_thread, "FIRST_PAUSE", 0.05)
    with closing(PostgresPersister(server.new_database())) as store, closing(store.listen("q")) as listener:
        server.restart()
        assert is_awake(listener, PATIENCE), "something may have been missed"
        listener.drain()
        store.create_task(new().as_mapping())
        assert is_awake(listener, PATIENCE)


def test_a_listener_that_begins_in_an_outage_hears_after_it(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7"""
    monkeypatch.setattr(_wake_thread, "FIRST_PAUSE", 0.05)
    with closing(PostgresPersister(server.new_database())) as store:
        server.kill()
        with closing(store.listen("q")) as listener:
            server.start()
            assert is_awake(listener, PATIENCE)
            listener.drain()
            store.create_task(new().as_mapping())
            assert is_awake(listener, PATIENCE)


def test_notify_raises_nothing_in_an_outage(server: PostgresServer) -> None:
    with closing(PostgresPersister(server.new_database())) as store:
        store.notify("q")
        server.kill()
        store.notify("q")
        server.start()


def test_a_task_is_woken_for_by_whatever_makes_it_due(store: PostgresPersister) -> None:
    with closing(store.listen("q")) as listener:

        def is_woken_by(act: Callable[[], Any]) -> bool:
            act()
            woken = is_awake(listener, PATIENCE)
            listener.drain()
            return woken

        assert is_woken_by(lambda: store.create_task(new().as_mapping()))
        assert is_woken_by(lambda: store.create_many([new("other"), new()]))
        (claim, _) = store.claim("q", "me", 9, 30.0)
        record = store.find(claim.record.id)
        assert record is not None
        assert is_woken_by(lambda: store.transition(record.id, record, Release()))
        released = store.find(record.id)
        assert released is not None
        again = Reschedule(run_at=1, attempts=0, last_fail_at=1, last_error="Task failed: x\n")
        assert is_woken_by(lambda: store.transition(record.id, released, again))


# --- behind a pooler


@pytest.fixture(scope="module")
def pooled_url(url: str) -> Iterator[str]:
    with pgbouncer(url) as pooled:
        yield pooled


@pytest.fixture
def pooled(pooled_url: str) -> Iterator[PostgresPersister]:
    with closing(PostgresPersister(pooled_url, prefix="pooled_")) as persister:
        yield persister


def test_behind_a_pooler_several_threads_claim_and_settle_each_task_once(pooled: PostgresPersister) -> None:
    """Two connections to the server serve them all, changing hands after each transaction."""
    ids = pooled.create_many([new() for _ in range(300)])
    done: list[int] = []

    def work() -> None:
        mine = 0
        while claims := pooled.claim("q", "me", 7, 30.0):
            assert pooled.extend([claim.token for claim in claims], 30.0) == []
            ways = [Complete() if claim.record.id % 3 else failed(claim.record.attempts) for claim in claims]
            assert pooled.settle([(claim.token, way) for claim, way in zip(claims, ways, strict=True)]) == []
            done.extend(claim.record.id for claim, way in zip(claims, ways, strict=True) if isinstance(way, Complete))
            mine += 1
            pooled.next_look_at("q")

    def failed(attempts: int) -> Any:
        return (
            Reschedule(run_at=1, attempts=attempts + 1, last_fail_at=1, last_error="Task failed: x\n")
            if attempts < 2
            else Complete()
        )

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(done) == ids
    assert pooled.read_tasks("q") == []


def test_a_large_batch_is_one_transaction_behind_a_pooler(
    pooled: PostgresPersister, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_ROWS_PER_STATEMENT", 10)
    ids = pooled.create_many([new("large") for _ in range(35)])
    assert len(ids) == 35
    assert [claim.record.id for claim in pooled.claim("large", "me", 99, 30.0)] == ids


def test_behind_a_pooler_listening_is_refused_and_told_why(pooled: PostgresPersister) -> None:
    with pytest.raises(NoWakeUpsError, match=r"a pooler is between .* every update_period"):
        pooled.listen("q")


def test_a_task_created_behind_a_pooler_wakes_those_who_listen_without_one(url: str, pooled: PostgresPersister) -> None:
    with closing(PostgresPersister(url, prefix="pooled_")) as direct, closing(direct.listen("wake")) as listener:
        pooled.create_task(new("wake").as_mapping())
        assert is_awake(listener, PATIENCE)


def test_nothing_is_left_behind_in_the_poolers_sessions(
    pooled: PostgresPersister, pooled_url: str, admin: psycopg.Connection[Any]
) -> None:
    """They're others' too: no setting, no prepared statement."""
    for _ in range(10):
        pooled.find(1)
        pooled.claim("none", "me", 1, 30.0)
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as other:
        for setting in ("plan_cache_mode", "default_transaction_isolation"):
            assert other.execute(f"SHOW {setting}").fetchone() == admin.execute(f"SHOW {setting}").fetchone()
        assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_a_pooler_that_hides_is_known_by_what_it_breaks(store: PostgresPersister) -> None:
    """One failed call, and nothing is prepared any more."""
    store.create_many([new()])
    store.find(1)
    with store._session().connection() as connection:
        # As if the next transaction came to another session. Said plainly, the driver would see it.
        connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
    with pytest.raises(PersisterUnavailableError, match="prepared statement"):
        store.find(1)
    for _ in range(3):
        store.find(1)
    with store._session().connection() as connection:
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    with pytest.raises(NoWakeUpsError):
        store.listen("q")


WORKED = """
    import pathlib
    import sys
    import threading
    from procrastinate_py import Environment

    class Touch:
        def __init__(self, path):
            self.path = path

        def run(self):
            pathlib.Path(self.path).touch()

    env = Environment(sys.argv[1], log_dir=sys.argv[2])
    env.define_queue("email", update_period=0.1)
    with env:
        for name in ("one", "two"):
            path = pathlib.Path(sys.argv[2], name)
            env.delay("email", task=Touch(str(path)))
            for _ in range(6000):
                if path.exists():
                    break
                threading.Event().wait(0.01)
            else:
                sys.exit("it never ran")
"""


def test_behind_a_pooler_a_queue_is_worked_by_looking_and_its_log_says_so_once(pooled_url: str, tmp_path: Path) -> None:
    """E17, G7"""
    command = [sys.executable, "-c", textwrap.dedent(WORKED), pooled_url, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    log = (tmp_path / "email-queue-worker.log").read_text()
    assert log.count("no_wake_ups") == 1
    assert "every update_period" in log
    assert "store_unavailable" not in log
