"""Tasks stored in a transaction of the caller's own: by sqlite3, SQLAlchemy and Django."""

from __future__ import annotations

import importlib.util
import os
import select
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py import Environment
from procrastinate_py.core.errors import (
    ConfigurationError,
    PersisterError,
    PersisterUnavailableError,
    UnsupportedByPersisterError,
)
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import MemoryPersister, SQLitePersister
from procrastinate_py.runtime.forking import fork_process
from procrastinate_py.testing import FakeClock

SAFETY_MS = 60_000
THREAD = "procrastinate-commits"


def needs(library: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(library) is None
    assert not (missing and os.environ.get("CI") == "true"), f"{library} isn't installed"
    return pytest.mark.skipif(missing, reason=f"{library} isn't installed")


def new(number: int = 0, queue: str = "email") -> NewTask:
    return NewTask(queue=queue, run_at=number, initial_run_at=number, expire_at=None, task=f"task: {number}")


def is_woken(listener: Any, within_ms: int = 0) -> bool:
    poll = select.poll()
    poll.register(listener.fileno(), select.POLLIN)
    return bool(poll.poll(within_ms))


def join_watchers() -> None:
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(SAFETY_MS / 1000)
            assert not thread.is_alive()


@pytest.fixture
def persister(tmp_path: Path) -> Iterator[SQLitePersister]:
    persister = SQLitePersister(tmp_path / "tasks.db")
    yield persister
    join_watchers()
    persister.close()


@pytest.fixture
def theirs(persister: SQLitePersister) -> Iterator[sqlite3.Connection]:
    """The caller's own connection, with a table of the caller's own."""
    persister.count()
    connection = sqlite3.connect(persister.path)
    connection.execute("CREATE TABLE users (name TEXT)")
    yield connection
    connection.close()


def test_it_is_seen_and_woken_for_at_commit_and_not_before(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    listener = persister.listen("email")
    theirs.execute("INSERT INTO users VALUES ('ada')")
    ids = persister.create_in(theirs, [new(1)])
    assert persister.find(ids[0]) is None
    assert not is_woken(listener)
    theirs.commit()
    assert is_woken(listener, SAFETY_MS)
    found = persister.find(ids[0])
    assert found is not None and (found.run_at, found.task) == (1, "task: 1")
    assert [claim.record.id for claim in persister.claim("email", "me", 5, 30)] == ids
    listener.close()


def test_it_is_gone_on_rollback_with_what_the_caller_wrote(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    theirs.execute("INSERT INTO users VALUES ('ada')")
    (task_id,) = persister.create_in(theirs, [new()])
    theirs.rollback()
    assert persister.find(task_id) is None
    assert theirs.execute("SELECT count(*) FROM users").fetchone() == (0,)


def test_the_insert_opens_the_transaction_where_the_caller_has_none_yet(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    assert not theirs.in_transaction
    (task_id,) = persister.create_in(theirs, [new()])
    assert theirs.in_transaction
    assert persister.find(task_id) is None
    with theirs:  # as sqlite3's own context manager ends it
        pass
    assert persister.find(task_id) is not None


def test_in_autocommit_it_is_there_and_woken_for_at_once(persister: SQLitePersister) -> None:
    listener = persister.listen("email")
    connection = sqlite3.connect(persister.path, isolation_level=None)
    (task_id,) = persister.create_in(connection, [new()])
    assert is_woken(listener)
    assert persister.find(task_id) is not None
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD]
    connection.close()
    listener.close()


def test_a_savepoint_that_is_rolled_back_takes_it_along(persister: SQLitePersister, theirs: sqlite3.Connection) -> None:
    (kept,) = persister.create_in(theirs, [new(1)])
    theirs.execute("SAVEPOINT inner_one")
    (gone,) = persister.create_in(theirs, [new(2)])
    theirs.execute("ROLLBACK TO inner_one")
    theirs.commit()
    assert persister.find(kept) is not None
    assert persister.find(gone) is None


@pytest.mark.parametrize("number", [0, 1, 2, 2500])
def test_ids_come_in_order_whatever_the_callers_rows_look_like(
    persister: SQLitePersister, theirs: sqlite3.Connection, number: int
) -> None:
    theirs.row_factory = lambda cursor, row: {"it": "is not a tuple"}
    theirs.text_factory = bytes
    ids = persister.create_in(theirs, [new(at) for at in range(number)])
    theirs.commit()
    assert [record.run_at for task_id in ids if (record := persister.find(task_id))] == list(range(number))
    assert ids == sorted(ids)


def test_many_transactions_share_one_thread_and_each_queue_is_woken(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    listeners = {name: persister.listen(name) for name in ("a", "b")}
    for name in listeners:
        persister.create_in(theirs, [new(queue=name)])
        assert len([thread for thread in threading.enumerate() if thread.name == THREAD]) == 1
    theirs.commit()
    for listener in listeners.values():
        assert is_woken(listener, SAFETY_MS)
        listener.close()


def test_a_wake_up_comes_though_another_writer_has_the_lock_next(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    listener = persister.listen("email")
    other = sqlite3.connect(persister.path)
    for at in range(20):
        persister.create_in(theirs, [new(at)])
        theirs.commit()
        other.execute("INSERT INTO users VALUES ('ada')")
        other.commit()
        assert is_woken(listener, SAFETY_MS)
        listener.drain()
        join_watchers()
    other.close()
    listener.close()


def test_the_watching_neither_blocks_nor_commits_the_callers_transaction(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    persister.create_in(theirs, [new()])
    for name in ("ada", "bob", "cyd"):
        theirs.execute("INSERT INTO users VALUES (?)", (name,))
        persister.create_in(theirs, [new()])
    assert theirs.in_transaction
    theirs.rollback()
    join_watchers()
    assert persister.count() == {}


def test_a_waker_that_does_not_wait_would_be_caught(
    persister: SQLitePersister, theirs: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persister._commits, "await_end", persister._notify_all)
    listener = persister.listen("email")
    persister.create_in(theirs, [new()])
    assert is_woken(listener)
    theirs.rollback()
    listener.close()


def test_in_a_fork_it_works_as_anywhere(persister: SQLitePersister) -> None:
    """U31"""
    persister.count()
    listener = persister.listen("email")
    with persister._commits._lock:  # as the watching thread may hold it in the moment of the fork
        persister._commits._has_thread = True
        pid = fork_process(lambda: join_a_transaction(persister))
    assert os.waitpid(pid, 0)[1] == 0
    assert is_woken(listener)
    listener.close()
    assert len(persister.select()) == 1


def join_a_transaction(persister: SQLitePersister) -> None:
    connection = sqlite3.connect(persister.path)
    persister.create_in(connection, [new()])
    connection.commit()
    join_watchers()


LEAVES_AT_ONCE = """
import sqlite3, sys
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import SQLitePersister
persister = SQLitePersister(sys.argv[1])
connection = sqlite3.connect(sys.argv[1])
task = NewTask(queue="email", run_at=0, initial_run_at=0, expire_at=None, task="x")
persister._commits._watch = lambda: None  # as if it never came to it
persister.create_in(connection, [task])
connection.commit()
connection.close()
"""


def test_a_program_that_ends_right_after_its_commit_wakes_too(persister: SQLitePersister) -> None:
    listener = persister.listen("email")
    subprocess.run([sys.executable, "-c", LEAVES_AT_ONCE, persister.path], check=True, timeout=60)
    assert is_woken(listener)
    listener.close()


def test_a_file_that_vanishes_meanwhile_is_not_made_anew(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    persister.create_in(theirs, [new()])
    os.unlink(persister.path)
    theirs.rollback()
    join_watchers()
    assert not os.path.exists(persister.path)


def test_a_link_to_the_file_is_the_file(persister: SQLitePersister, tmp_path: Path) -> None:
    persister.count()
    (tmp_path / "link.db").symlink_to(persister.path)
    connection = sqlite3.connect(tmp_path / "link.db")
    (task_id,) = persister.create_in(connection, [new()])
    connection.commit()
    connection.close()
    assert persister.find(task_id) is not None


@pytest.mark.parametrize("other", ["other.db", ":memory:"])
def test_a_connection_to_another_database_is_refused(persister: SQLitePersister, tmp_path: Path, other: str) -> None:
    connection = sqlite3.connect(other if other == ":memory:" else tmp_path / other)
    with pytest.raises(ConfigurationError, match="must be a connection to the tasks' own database, .*tasks.db"):
        persister.create_in(connection, [new()])
    connection.close()


def test_what_is_no_connection_is_refused_by_its_type(persister: SQLitePersister, theirs: sqlite3.Connection) -> None:
    for given in (object(), "tasks.db", theirs.cursor()):
        with pytest.raises(ConfigurationError, match=r"connection= takes a sqlite3 connection, .* not a "):
            persister.create_in(given, [new()])


def test_a_closed_connection_is_refused(persister: SQLitePersister) -> None:
    connection = sqlite3.connect(persister.path)
    connection.close()
    with pytest.raises(ConfigurationError, match="can't be used: Cannot operate on a closed database"):
        persister.create_in(connection, [new()])


def test_a_temporary_table_that_would_take_the_tasks_is_refused(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    """G1: what was put there would be gone with the connection."""
    theirs.execute("CREATE TEMP TABLE Tasks AS SELECT * FROM tasks")
    for tasks in ([new()], [new(), new()]):
        with pytest.raises(ConfigurationError, match="a temporary table or view named tasks, which hides the stored"):
            persister.create_in(theirs, tasks)


def test_tasks_in_memory_can_be_joined_by_nobody() -> None:
    persister = SQLitePersister(":memory:")
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigurationError, match="needs tasks in a file"):
        persister.create_in(connection, [new()])
    connection.close()
    persister.close()


def test_a_locked_database_is_told_and_the_transaction_stays_the_callers(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    holder = sqlite3.connect(persister.path)
    holder.execute("INSERT INTO users VALUES ('ada')")
    theirs.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(PersisterUnavailableError, match="another process held it locked"):
        persister.create_in(theirs, [new()])
    holder.commit()
    persister.create_in(theirs, [new()])
    theirs.commit()
    holder.close()
    assert len(persister.select()) == 1


def test_what_cannot_be_stored_is_refused_before_the_transaction_is_touched(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    with pytest.raises(PersisterError, match="too large"):
        persister.create_in(theirs, [new(), new(2**63)])
    assert not theirs.in_transaction


def test_an_application_database_can_be_declared_to_hold_tasks_too(tmp_path: Path) -> None:
    """docs/operations.md tells how."""
    connection = sqlite3.connect(tmp_path / "app.db")
    connection.execute("CREATE TABLE users (name TEXT)")
    connection.commit()
    persister = SQLitePersister(tmp_path / "app.db")
    with pytest.raises(PersisterUnavailableError, match="belongs to another application"):
        persister.count()
    connection.execute("PRAGMA application_id = 1349673840")
    connection.execute("INSERT INTO users VALUES ('ada')")
    connection.commit()
    assert persister.count() == {}
    connection.execute("INSERT INTO users VALUES ('bob')")
    (task_id,) = persister.create_in(connection, [new()])
    connection.commit()
    assert persister.find(task_id) is not None
    connection.close()
    join_watchers()
    persister.close()


# --- by the environment's verbs


class Nothing:
    def run(self) -> None:
        return


def environment(persister: Any, **settings: Any) -> Environment:
    env = Environment(persister, log_dir=None, **settings)
    env.define_queue("email")
    env.define_queue("cleanup")
    return env


@pytest.mark.parametrize("test_mode", [False, True])
def test_delay_and_delay_many_join(persister: SQLitePersister, theirs: sqlite3.Connection, test_mode: bool) -> None:
    """E44"""
    env = environment(persister, test_mode=test_mode)
    first = env.delay("email", task=Nothing(), connection=theirs)
    more = env.delay_many([("email", Nothing()), ("cleanup", Nothing(), {"run_at": 5})], connection=theirs)
    assert env.delay_many([], connection=theirs) == []
    assert env.tasks() == []
    theirs.commit()
    assert [record.id for record in env.tasks()] == [first, *more]
    assert env.find(more[1]).queue == "cleanup"
    if test_mode:
        assert {outcome.task_id for outcome in env.drain()} == {first, *more}


def test_a_task_that_is_refused_leaves_the_transaction_as_it_was(
    persister: SQLitePersister, theirs: sqlite3.Connection
) -> None:
    env = environment(persister)
    with pytest.raises(ValueError, match="could never run"):
        env.delay_many([("email", Nothing()), ("email", Nothing(), {"run_at": 5, "expire_at": 1})], connection=theirs)
    assert not theirs.in_transaction


@pytest.mark.parametrize("verb", ["delay", "delay_many"])
def test_a_store_that_cannot_join_says_which_can(verb: str, theirs: sqlite3.Connection) -> None:
    """E4 E44"""
    env = environment(MemoryPersister(), test_mode=True, clock=FakeClock(1_800_000_000))
    told = rf"{verb}\(connection=\) needs .* 'joining': SQLite \(.*\) and PostgreSQL \(.*\) have it"
    with pytest.raises(UnsupportedByPersisterError, match=told):
        if verb == "delay":
            env.delay("email", task=Nothing(), connection=theirs)
        else:
            env.delay_many([("email", Nothing())], connection=theirs)
    assert env.tasks() == []


# --- by other libraries


@needs("sqlalchemy")
@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemys_transactions_are_joined(persister: SQLitePersister, kind: str) -> None:
    import sqlalchemy
    from sqlalchemy.orm import Session

    persister.count()
    listener = persister.listen("email")
    engine = sqlalchemy.create_engine(f"sqlite:///{persister.path}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE users (name TEXT)"))
    with engine.connect() if kind == "connection" else Session(engine) as joined:
        (gone,) = persister.create_in(joined, [new(1)])
        joined.rollback()
        (alone,) = persister.create_in(joined, [new(2)])  # with nothing else that would begin SQLAlchemy's transaction
        assert persister.find(alone) is None
        joined.commit()
        joined.execute(sqlalchemy.text("INSERT INTO users VALUES ('ada')"))
        ids = persister.create_in(joined, [new(3), new(4)])
        assert persister.find(ids[0]) is None
        joined.commit()
    assert is_woken(listener, SAFETY_MS)
    assert [record.run_at for record in persister.select()] == [2, 3, 4]
    assert gone == alone  # SQLite never gave out the first
    engine.dispose()
    listener.close()


DJANGO = """
import sys
import django
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
django.setup()
from django.db import connection, connections, transaction
from procrastinate_py.core.errors import PersisterError
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import SQLitePersister

persister = SQLitePersister(sys.argv[1])

def create(number, given=connection):
    task = NewTask(queue="email", run_at=number, initial_run_at=number, expire_at=None, task="x")
    return persister.create_in(given, [task])[0]

def runs_at():
    return [record.run_at for record in persister.select()]

persister.count()
with transaction.atomic():
    create(1)
    assert runs_at() == []
assert runs_at() == [1]
try:
    with transaction.atomic():
        create(2)
        raise KeyError
except KeyError:
    pass
assert runs_at() == [1]
with transaction.atomic():
    create(3, connections["default"])
    try:
        with transaction.atomic():
            create(4)
            raise KeyError
    except KeyError:
        pass
assert runs_at() == [1, 3]
create(5)  # Django commits by itself where nothing is atomic
assert runs_at() == [1, 3, 5]
with transaction.atomic():
    transaction.set_rollback(True)
    try:
        create(6)
    except PersisterError as error:
        print(error)
persister.close()
connection.close()
print(*runs_at())
"""


@needs("django")
def test_djangos_transactions_are_joined(persister: SQLitePersister) -> None:
    listener = persister.listen("email")
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, persister.path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the caller's transaction has failed" in done.stdout
    assert done.stdout.endswith("\n1 3 5\n")
    assert is_woken(listener)
    listener.close()
