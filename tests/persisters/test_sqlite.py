"""What is SQLite's own: its file, its schema, its plans, its errors (E3, E37, U29, U31)."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import re
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from procrastinate_py.core.errors import ConfigurationError, PersisterError, PersisterUnavailableError
from procrastinate_py.core.lifecycle import Complete, Release, Reschedule
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import SQLitePersister, _sql, _sqlite_file, _sqlite_session
from procrastinate_py.ports.persister import IncompleteSettle


def new(run_at: int = 1000, queue: str = "q", task: str = "!a:B {}") -> NewTask:
    return NewTask(queue=queue, run_at=run_at, initial_run_at=run_at, expire_at=None, task=task)


def failed(last_error: str = "Task failed: no\n", attempts: int = 1) -> Reschedule:
    return Reschedule(run_at=1, attempts=attempts, last_fail_at=1, last_error=last_error)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tasks.db")


@pytest.fixture
def store(path: str) -> Iterator[SQLitePersister]:
    persister = SQLitePersister(path)
    yield persister
    persister.close()


# --- the file


def test_the_file_and_its_logs_are_its_owners_alone(store: SQLitePersister, tmp_path: Path) -> None:
    """E3"""
    store.create_many([new()])
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"tasks.db": 0o600, "tasks.db-wal": 0o600, "tasks.db-shm": 0o600}


def test_nothing_is_opened_before_the_first_call(path: str) -> None:
    SQLitePersister(path).close()
    assert not os.path.exists(path)


def test_a_relative_path_stays_where_it_was_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLitePersister("tasks.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.create_many([new()])
    store.close()
    assert (tmp_path / "tasks.db").exists()


def test_delay_is_on_the_disk_when_it_returns_and_workers_do_not_wait_for_it(store: SQLitePersister) -> None:
    """design.md: synchronous=FULL for what users put in, NORMAL for what workers write, in WAL mode"""
    session = store._session()
    with session.durable.writing() as raw:
        assert raw.execute("PRAGMA synchronous").fetchone() == (2,)
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with session.brisk.writing() as raw:
        assert raw.execute("PRAGMA synchronous").fetchone() == (1,)


def test_every_write_takes_the_write_lock_from_its_start(store: SQLitePersister) -> None:
    statements: list[str] = []
    store.create_many([new(), new()])
    session = store._session()
    for connection in (session.durable, session.brisk):
        with connection.statement() as raw:
            raw.set_trace_callback(statements.append)
    store.create_task(new().as_mapping())
    store.update_task({**new().as_mapping(), "id": 1, "attempts": 0, "last_fail_at": None, "last_error": None})
    claims = store.claim("q", "me", 2, 30)
    store.extend([claim.token for claim in claims], 30)
    store.settle([(claims[0].token, Complete()), (claims[1].token, failed())])
    store.lapsed("q", "me", 1, 30)
    record = store.find(3)
    assert record is not None
    store.transition(3, record, Release())
    store.delete_task(3)
    verbs = [statement.split()[0] for statement in statements]
    begins = [statement for statement in statements if statement.startswith("BEGIN")]
    assert set(begins) == {"BEGIN IMMEDIATE"}
    assert verbs[0] == "INSERT", "one row by itself needs no BEGIN: the statement takes the lock as it begins"
    assert verbs.count("BEGIN") == verbs.count("COMMIT") == 7
    depth = 0
    for verb in verbs[1:]:
        depth += (verb == "BEGIN") - (verb == "COMMIT")
        assert depth == 1 or verb not in ("INSERT", "UPDATE", "DELETE")


def test_a_batch_costs_a_fixed_number_of_statements(store: SQLitePersister) -> None:
    """P1: each step of a statement may cost a wait for Python's lock"""
    store.create_many([new() for _ in range(900)])
    statements: list[str] = []
    with store._session().brisk.statement() as raw:
        raw.set_trace_callback(statements.append)
    counts = []
    for limit in (1, 300):
        statements.clear()
        claims = store.claim("q", "me", limit, 30)
        store.settle([(claim.token, Complete()) for claim in claims])
        counts.append(len(statements))
    assert counts == [7, 7]


def test_a_warning_tells_once_of_a_network_file_system(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:50 / {os.path.dirname(path)} rw - nfs4 server:/x rw\n"
    monkeypatch.setattr(_sqlite_file, "mounts", lambda: mounts)
    with caplog.at_level(logging.WARNING, logger="procrastinate_py"):
        for _ in range(2):
            with closing(SQLitePersister(path)) as store:
                store.create_many([new()])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "network file system (nfs4)" in caplog.text


# --- the schema


def test_the_code_knows_as_many_schema_versions_as_there_are_scripts() -> None:
    folder = Path(_sqlite_file.__file__).with_name("schema")
    assert sorted(script.name for script in folder.glob("*.sql")) == [
        f"{version:04d}.sql" for version in range(1, _sqlite_file.SCHEMA_VERSION + 1)
    ]


def test_a_newer_schema_is_refused_and_left_alone(store: SQLitePersister, path: str) -> None:
    store.create_many([new()])
    store.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(PersisterUnavailableError, match=r"schema 99.*upgrade the package"):
        store.find(1)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (99,)


def test_another_applications_database_is_refused_and_left_alone(store: SQLitePersister, path: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE customers (name TEXT)")
    with pytest.raises(PersisterUnavailableError, match="file of its own"):
        store.create_task(new().as_mapping())
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("customers",)]


def test_an_empty_file_becomes_a_database(store: SQLitePersister, path: str) -> None:
    Path(path).touch()
    assert store.create_task(new().as_mapping()) == 1


def test_an_old_sqlite_is_refused(store: SQLitePersister, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 9))
    with pytest.raises(PersisterUnavailableError, match=r"3\.35\.0 or later is needed"):
        store.find(1)


# --- plans


def plan(store: SQLitePersister, statement: str, values: tuple[object, ...]) -> str:
    with store._session().reading.statement() as raw:
        return "\n".join(row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", values))


def test_a_claim_reads_only_rows_that_are_due(store: SQLitePersister) -> None:
    """U37, P7"""
    found = plan(store, _sql.CLAIMABLE, ("q", 1000.5, 10))
    assert re.search(r"SEARCH tasks USING INDEX tasks_due \(queue=\? AND .*run_at<\?\)", found)
    assert "TEMP B-TREE" not in found
    assert "SCAN tasks" not in found


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (_sql.COMPLETE, ("[]",)),
        (_sql.RELEASE, ("[]",)),
        (_sql.REWRITE, ("[]",)),
        (_sql.EXTEND, (1.0, "[]")),
        (_sql.STILL_HELD, ("[]",)),
        (_sql.LEASE, ("me", "token", 1.0, "[]")),
        (_sql.LAPSED, ("q", 1.0, 10)),
        (_sql.HELD_BY, ("q", "me", 10)),
        (_sql.NEXT_LOOK_AT, ("q", "q")),
        (_sql.FIND, (1,)),
    ],
)
def test_no_call_of_a_worker_reads_the_whole_table(
    store: SQLitePersister, statement: str, values: tuple[object, ...]
) -> None:
    """P7"""
    found = plan(store, statement, values)
    assert "SEARCH tasks" in found
    assert "SCAN tasks" not in found


# --- errors


def test_a_locked_database_is_unavailable_and_comes_back(
    store: SQLitePersister, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E37"""
    monkeypatch.setattr(_sqlite_file, "BUSY_TIMEOUT", 0.01)
    store.create_many([new(), new()])
    (claim,) = store.claim("q", "me", 1, 30)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PersisterUnavailableError, match="another process held it locked"):
            store.settle([(claim.token, Complete())])
        with pytest.raises(PersisterUnavailableError, match="locked"):
            store.create_task(new().as_mapping())
        assert len(store.select()) == 2
    assert store.settle([(claim.token, Complete())]) == []
    assert len(store.select()) == 1


def test_a_full_disk_is_unavailable_and_comes_back(store: SQLitePersister) -> None:
    """E37"""
    store.create_many([new()])
    with store._session().durable.statement() as raw:
        (pages,) = raw.execute("PRAGMA page_count").fetchone()
        raw.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(PersisterUnavailableError, match="the disk is full"):
        store.create_many([new(task="x" * 100_000)])
    with store._session().durable.statement() as raw:
        raw.execute("PRAGMA max_page_count = 1000000")
    store.create_many([new(task="x" * 100_000)])
    assert len(store.select()) == 2


def test_a_file_that_is_no_database_is_told_clearly(store: SQLitePersister, path: str) -> None:
    Path(path).write_bytes(b"hello, world. " * 1000)
    with pytest.raises(PersisterUnavailableError, match="isn't an SQLite database"):
        store.read_tasks("q")
    os.unlink(path)
    assert store.read_tasks("q") == []


def test_a_folder_that_is_missing_is_told_clearly(tmp_path: Path) -> None:
    store = SQLitePersister(tmp_path / "missing" / "tasks.db")
    with pytest.raises(PersisterUnavailableError, match="does its folder exist"):
        store.read_tasks("q")


def test_a_database_that_was_removed_is_made_anew(store: SQLitePersister, path: str) -> None:
    """Never silently stuck: a worker must not go on looking at a file that nobody else can see"""
    store.create_many([new()])
    assert store.next_look_at("q") == 1000
    for suffix in ("", "-wal", "-shm"):
        os.unlink(path + suffix)
    with closing(SQLitePersister(path)) as other:
        other.create_many([new(2000)])
        assert store.next_look_at("q") == 2000


@pytest.mark.parametrize("data", [{"run_at": 2**63}, {"task": "\ud800"}, {"run_at": 1.5}, {"task": None}])
def test_what_sqlite_cannot_keep_is_refused_clearly(store: SQLitePersister, data: dict[str, object]) -> None:
    """E33"""
    with pytest.raises(PersisterError, match=r"too large|UTF-8|an int|text"):
        store.create_task({**new().as_mapping(), **data})
    assert store.create_task(new().as_mapping()) == 1


@pytest.mark.parametrize("task_id", [2**70, -1, "1", None, 1.0])
def test_an_id_that_no_task_could_have_finds_nothing(store: SQLitePersister, task_id: object) -> None:
    store.create_many([new()])
    assert store.find(task_id) is None
    store.delete_task(task_id)
    assert len(store.select()) == 1


@pytest.mark.parametrize("broken", [failed("\ud800"), failed("nul\0"), failed(attempts=2**63)])
def test_an_outcome_that_cannot_be_written_does_not_hold_up_the_others(
    store: SQLitePersister, broken: Reschedule
) -> None:
    """E33, E37"""
    store.create_many([new(), new()])
    bad, good = store.claim("q", "me", 2, 30)
    with pytest.raises(IncompleteSettle) as caught:
        store.settle([(bad.token, broken), (good.token, Complete())])
    assert list(caught.value.failures) == [bad.token]
    assert [record.id for record in store.select()] == [bad.record.id]
    assert store.settle([(bad.token, failed())]) == []


def test_text_that_other_hands_broke_spoils_no_other_task(store: SQLitePersister, path: str) -> None:
    """E30"""
    store.create_many([new(), new()])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE tasks SET task = CAST(x'21613a42ff' AS TEXT) WHERE id = 1")
    assert [record.task for record in store.select()] == ["!a:B\ufffd", "!a:B {}"]
    assert [claim.record.task for claim in store.claim("q", "me", 2, 30)] == ["!a:B\ufffd", "!a:B {}"]


def test_other_hands_cannot_put_in_what_a_claim_could_not_read(store: SQLitePersister, path: str) -> None:
    store.create_many([new()])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for change in ("task = x'00'", "run_at = 'soon'", "attempts = 1.5", "closed_as = 'lost'"):
            with pytest.raises(sqlite3.IntegrityError):
                other.execute(f"UPDATE tasks SET {change}")


def test_an_exception_thrown_into_a_transaction_undoes_it_and_lets_the_lock_go(store: SQLitePersister) -> None:
    """U32"""

    class Interruption(BaseException):
        pass

    store.create_many([new()])
    with pytest.raises(Interruption):
        with store._session().durable.writing() as raw:
            raw.execute("DELETE FROM tasks")
            raise Interruption
    assert len(store.select()) == 1
    store.create_many([new()])


def test_secrets_are_in_no_repr_or_error(store: SQLitePersister) -> None:
    """G8"""
    store.create_many([new(task="hunter2")])
    (claim,) = store.claim("q", "me", 1, 30)
    with pytest.raises(IncompleteSettle) as caught:
        store.settle(
            [(claim.token, Reschedule(run_at=1, attempts=2**64, last_fail_at=1, last_error="", task="hunter2"))]
        )
    assert "hunter2" not in str(caught.value) + repr(store)


# --- threads and processes


def test_threads_that_delay_at_once_share_commits_and_get_their_own_ids(store: SQLitePersister) -> None:
    """E18, P4"""
    store.create_many([new(task="first")])
    commits: list[str] = []
    with store._session().durable.statement() as raw:
        raw.set_trace_callback(lambda statement: commits.append(statement) if statement == "COMMIT" else None)
    got: dict[int, str] = {}

    def delay(name: str) -> None:
        for number in range(25):
            got[store.create_task(new(task=f"{name} {number}").as_mapping())] = f"{name} {number}"

    with store._session().durable.writing():  # so that they queue up behind it
        threads = [threading.Thread(target=delay, args=(str(name),)) for name in range(8)]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert {record.id: record.task for record in store.select(after=1)} == got
    assert len(got) == 200
    assert len(commits) < 201


def test_a_row_that_cannot_be_kept_fails_alone_among_threads_that_share_a_commit(store: SQLitePersister) -> None:
    results: list[object] = []

    def delay(task: str) -> None:
        try:
            results.append(store.create_task(new(task=task).as_mapping()))
        except PersisterError as error:
            results.append(error)

    threads = [threading.Thread(target=delay, args=(task,)) for task in ("good", "\ud800", "good", "good")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result for result in results if isinstance(result, int)) == [1, 2, 3]
    assert len(results) == 4


def test_a_forks_child_abandons_its_parents_connections(store: SQLitePersister) -> None:
    """U31"""
    store.create_many([new()])
    inherited = store._session()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.create_task(new().as_mapping())
            store.close()
            inherited.close()
            gc.collect()
            with inherited.durable.statement() as raw:
                kept_open = raw.execute("SELECT count(*) FROM tasks").fetchone() == (2,)
            code = 0 if store._session() is not inherited and inherited in _sqlite_session._abandoned else 2
            code = code if kept_open else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.create_task(new().as_mapping()) == 3


def test_a_forks_child_that_closes_the_store_leaves_its_parents_connections_open(store: SQLitePersister) -> None:
    """U31"""
    store.create_many([new()])
    raw = store._session().durable._raw
    assert raw is not None
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.close()
            gc.collect()
            code = 0 if raw.execute("SELECT count(*) FROM tasks").fetchone() == (1,) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(store.select()) == 1


def test_a_store_in_memory_is_refused_in_a_forks_child() -> None:
    """U31"""
    with closing(SQLitePersister(":memory:")) as store:
        store.create_many([new()])
        assert not store.is_shareable
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.select()
            except PersisterUnavailableError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_use_a_store_in_memory_first_share_one_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """E18"""
    here = threading.Barrier(2)

    class MadeTogether(_sqlite_session.Session):
        def __init__(self, path: str) -> None:
            if threading.current_thread() is not threading.main_thread():
                here.wait(60)
            super().__init__(path)

    monkeypatch.setattr("procrastinate_py.persisters.sqlite.Session", MadeTogether)
    store = SQLitePersister(":memory:")
    data = {"queue": "q", "run_at": 1, "initial_run_at": 1, "expire_at": None, "task": "!x {}"}
    threads = [threading.Thread(target=store.create_task, args=(dict(data),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(store.read_tasks("q")) == 2
    store.close()


def test_it_can_be_sent_to_another_process_by_its_path(store: SQLitePersister) -> None:
    """E42"""
    store.create_many([new()])
    with closing(pickle.loads(pickle.dumps(store))) as copy:
        assert copy.path == store.path
        assert len(copy.select()) == 1
    with pytest.raises(TypeError, match="in memory"):
        pickle.dumps(SQLitePersister(":memory:"))


def test_it_can_be_used_after_close(store: SQLitePersister) -> None:
    store.create_many([new()])
    store.close()
    store.close()
    assert len(store.select()) == 1


def test_connections_that_nobody_closed_are_closed_with_the_store(path: str) -> None:
    """G9"""
    for _ in range(3):
        SQLitePersister(path).create_many([new()])
    gc.collect()
    assert path not in [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]


def test_the_wake_up_folder_lies_beside_the_file_whatever_link_leads_there(path: str, tmp_path: Path) -> None:
    """E17"""
    link = tmp_path / "link.db"
    link.symlink_to(path)
    listener = SQLitePersister(path).listen("q")
    assert os.path.dirname(listener.path) == f"{path}-wake"  # type: ignore[attr-defined]
    SQLitePersister(link).notify("q")
    os.read(listener.fileno(), 1)
    listener.close()


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="not a path"):
        SQLitePersister(path)
