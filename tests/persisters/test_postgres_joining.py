"""Tasks stored in a transaction of the caller's own, on PostgreSQL (issue 3)."""

from __future__ import annotations

import asyncio
import select
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import psycopg2
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm
from psycopg.rows import dict_row

from procrastinate_py.core.errors import ConfigurationError, PersisterError, PersisterUnavailableError
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import PostgresPersister
from procrastinate_py.ports.capabilities import Capabilities
from tests.servers import postgres_url


def new(queue: str = "q", task: str = "!a:B {}") -> NewTask:
    return NewTask(queue=queue, run_at=1000, initial_run_at=1000, expire_at=None, task=task)


@pytest.fixture(scope="module")
def url() -> str:
    return postgres_url()


@pytest.fixture
def store(url: str) -> Iterator[PostgresPersister]:
    with closing(PostgresPersister(url)) as persister:
        for row in persister.read_tasks("q"):
            persister.delete_task(row["id"])
        yield persister


def sqlalchemy_url(url: str, driver: str = "psycopg") -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


class Caller:
    """A connection of each kind that is taken, with its own ways to end a transaction."""

    def __init__(self, connection: Any, *closers: Any) -> None:
        self.connection = connection
        self.closers = closers

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def run(self, statement: str) -> None:
        if isinstance(self.connection, sqlalchemy.Connection | sqlalchemy.orm.Session):
            self.connection.execute(sqlalchemy.text(statement))
        elif isinstance(self.connection, psycopg.Connection):
            self.connection.execute(statement.encode())
        else:
            self.connection.cursor().execute(statement)

    def close(self) -> None:
        self.connection.close()
        for closer in self.closers:
            closer()


def caller_on(kind: str, url: str) -> Caller:
    if kind == "psycopg":
        return Caller(psycopg.connect(url))
    if kind == "psycopg with rows of its own":
        return Caller(psycopg.connect(url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor))
    if kind == "psycopg2":
        return Caller(psycopg2.connect(url))
    driver = "psycopg2" if "psycopg2" in kind else "psycopg"
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, driver))
    if kind.startswith("SQLAlchemy Session"):
        return Caller(sqlalchemy.orm.Session(engine), engine.dispose)
    if kind.startswith("SQLAlchemy scoped session"):
        factory = sqlalchemy.orm.sessionmaker(engine)
        return Caller(sqlalchemy.orm.scoped_session(factory)(), engine.dispose)
    return Caller(engine.connect(), engine.dispose)


KINDS = [
    "psycopg",
    "psycopg with rows of its own",
    "psycopg2",
    "SQLAlchemy Connection",
    "SQLAlchemy Connection on psycopg2",
    "SQLAlchemy Session",
    "SQLAlchemy scoped session",
]


@pytest.fixture(params=KINDS)
def caller(request: pytest.FixtureRequest, url: str) -> Iterator[Caller]:
    with closing(caller_on(request.param, url)) as caller:
        yield caller


def is_awake(listener: Any, within: float) -> bool:
    return bool(select.select([listener.fileno()], [], [], within)[0])


def test_tasks_are_seen_and_woken_for_once_the_callers_transaction_is_committed(
    store: PostgresPersister, caller: Caller
) -> None:
    with closing(store.listen("q")) as listener:
        ids = store.create_in(caller.connection, [new(task=f"!a:B {n}") for n in range(3)])
        assert ids == sorted(set(ids)) and len(ids) == 3
        assert store.read_tasks("q") == []
        assert not is_awake(listener, 0.1)
        caller.commit()
        assert [(row["id"], row["task"]) for row in store.read_tasks("q")] == [
            (task_id, f"!a:B {n}") for n, task_id in enumerate(ids)
        ]
        assert is_awake(listener, 30)


def test_tasks_are_gone_when_it_is_rolled_back(store: PostgresPersister, caller: Caller) -> None:
    with closing(store.listen("q")) as listener:
        store.create_in(caller.connection, [new()])
        caller.rollback()
        assert store.read_tasks("q") == []
        assert not is_awake(listener, 0.1)


def test_tasks_and_the_callers_own_rows_live_and_die_together(store: PostgresPersister, caller: Caller) -> None:
    caller.run("CREATE TABLE IF NOT EXISTS orders_of_callers (n int)")
    caller.commit()
    caller.run("INSERT INTO orders_of_callers VALUES (1)")
    store.create_in(caller.connection, [new()])
    caller.rollback()
    caller.run("INSERT INTO orders_of_callers VALUES (2)")
    store.create_in(caller.connection, [new()])
    caller.commit()
    rows = store._session().call(b"DELETE FROM orders_of_callers RETURNING n", {})
    assert rows == [(2,)]
    assert len(store.read_tasks("q")) == 1


def test_nothing_ends_the_callers_transaction(store: PostgresPersister, caller: Caller) -> None:
    store.create_in(caller.connection, [new()])
    store.create_in(caller.connection, [])
    store.create_task(new().as_mapping())
    with pytest.raises(PersisterError):
        store.create_in(caller.connection, [new(task="\0")])
    assert len(store.read_tasks("q")) == 1, "what was created beside it"
    caller.commit()
    assert len(store.read_tasks("q")) == 2


def test_a_failed_transaction_is_told_clearly(store: PostgresPersister, caller: Caller) -> None:
    with pytest.raises(Exception, match="division by zero"):
        caller.run("SELECT 1 / 0")
    with pytest.raises(PersisterError, match="the caller's transaction has failed") as caught:
        store.create_in(caller.connection, [new()])
    assert not isinstance(caught.value, PersisterUnavailableError), "repeating it wouldn't help"
    caller.rollback()
    store.create_in(caller.connection, [new()])
    caller.commit()
    assert len(store.read_tasks("q")) == 1


def test_a_connection_to_another_database_is_refused_and_left_as_it_was(store: PostgresPersister) -> None:
    elsewhere = postgres_url()
    with closing(psycopg.connect(elsewhere)) as connection:
        with pytest.raises(ConfigurationError, match="another"):
            store.create_in(connection, [new()])
        connection.rollback()
        with closing(PostgresPersister(elsewhere)) as other:
            other.now()
            other.find(1)
            with pytest.raises(ConfigurationError, match="another"):
                store.create_in(connection, [new()])
            connection.commit()
            assert other.read_tasks("q") == []


def test_a_psycopg_connection_in_autocommit_stores_at_once_and_within_its_blocks_at_their_end(
    store: PostgresPersister, url: str
) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        store.create_in(connection, [new()])
        assert len(store.read_tasks("q")) == 1
        with connection.transaction():
            store.create_in(connection, [new()])
            assert len(store.read_tasks("q")) == 1
        assert len(store.read_tasks("q")) == 2


def test_a_savepoint_that_is_rolled_back_takes_its_tasks_with_it(store: PostgresPersister, url: str) -> None:
    with closing(psycopg.connect(url)) as connection:
        store.create_in(connection, [new(task="kept")])
        with connection.transaction(force_rollback=True):
            store.create_in(connection, [new(task="dropped")])
        connection.commit()
    assert [row["task"] for row in store.read_tasks("q")] == ["kept"]


def test_the_caller_may_be_in_a_block_of_sqlalchemys_own(store: PostgresPersister, url: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    with engine.begin() as connection:
        store.create_in(connection, [new()])
        assert store.read_tasks("q") == []
    with sqlalchemy.orm.Session(engine) as session, session.begin():
        store.create_in(session, [new()])
        with session.begin_nested() as savepoint:
            store.create_in(session, [new()])
            savepoint.rollback()
    with engine.connect() as connection:
        store.create_in(connection, [new()])  # never committed
    engine.dispose()
    assert len(store.read_tasks("q")) == 2


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, "NoneType"),
        ("postgresql:///db", "str"),
        (object(), "object"),
        (sqlalchemy.create_engine("sqlite://"), "Engine"),
    ],
    ids=["None", "a URL", "an object", "an engine"],
)
def test_what_is_no_connection_is_refused_by_its_type(store: PostgresPersister, given: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"takes a psycopg connection, .*, not a .*{named}"):
        store.create_in(given, [new()])


def test_a_connection_to_another_kind_of_database_is_refused(store: PostgresPersister) -> None:
    with closing(sqlite3.connect(":memory:")) as raw, pytest.raises(ConfigurationError, match="not a sqlite3.Conn"):
        store.create_in(raw, [new()])
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection:
        with pytest.raises(ConfigurationError, match="not a sqlalchemy.*, which is on a sqlite3.Connection"):
            store.create_in(connection, [new()])
    engine.dispose()


def test_connections_that_are_used_with_await_are_refused(store: PostgresPersister, url: str) -> None:
    async def scenario() -> None:
        raw = await psycopg.AsyncConnection.connect(url)
        engine = sqlalchemy.ext.asyncio.create_async_engine(sqlalchemy_url(url))
        async with raw, engine.connect() as connection, sqlalchemy.ext.asyncio.AsyncSession(engine) as session:
            for given in (raw, connection, session):
                with pytest.raises(ConfigurationError, match="with await"):
                    store.create_in(given, [new()])
            with pytest.raises(ConfigurationError, match="with await"):
                await connection.run_sync(lambda inner: store.create_in(inner, [new()]))
        await engine.dispose()

    asyncio.run(scenario())


def test_a_connection_that_is_closed_is_told(store: PostgresPersister, url: str) -> None:
    for connection in (psycopg.connect(url), psycopg2.connect(url)):
        connection.close()
        with pytest.raises(PersisterError, match="closed"):
            store.create_in(connection, [new()])


def test_the_ability_is_found(store: PostgresPersister) -> None:
    """E43"""
    assert Capabilities.of(store).joining is store


DJANGO = """
    import sys
    import django
    from django.conf import settings
    url = sys.argv[1]
    user, _, rest = url.removeprefix("postgresql://").partition("@")
    address, _, name = rest.partition("/")
    host, _, port = address.partition(":")
    database = {"ENGINE": "django.db.backends.postgresql", "USER": user, "HOST": host, "PORT": port, "NAME": name}
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    settings.configure(DATABASES={"default": database, "other": other})
    if sys.argv[2] == "psycopg2":
        sys.modules["psycopg"] = None  # which Django would rather take
    django.setup()
    from django.db import connection
    connection.ensure_connection()
    assert type(connection.connection).__module__.partition(".")[0] == sys.argv[2]
    if sys.argv[2] == "psycopg2":
        del sys.modules["psycopg"]

    from django.db import connection, connections, transaction, DatabaseError
    from procrastinate_py.core.errors import ConfigurationError, PersisterError
    from procrastinate_py.core.task import NewTask
    from procrastinate_py.persisters import PostgresPersister

    store = PostgresPersister(url)
    new = NewTask(queue="django", run_at=1, initial_run_at=1, expire_at=None, task="!a:B {}")

    def stored():
        return len(store.read_tasks("django"))

    with transaction.atomic():
        (first,) = store.create_in(connection, [new])
        assert stored() == 0
    assert stored() == 1

    try:
        with transaction.atomic():
            store.create_in(connection, [new])
            raise KeyError
    except KeyError:
        pass
    assert stored() == 1

    with transaction.atomic():
        store.create_in(connections["default"], [new])
        try:
            with transaction.atomic():
                store.create_in(connection, [new])
                raise KeyError
        except KeyError:
            pass
    assert stored() == 2

    try:
        with transaction.atomic():
            transaction.set_rollback(True)
            store.create_in(connection, [new])
    except PersisterError as error:
        assert "has failed" in str(error)
    else:
        raise AssertionError
    assert stored() == 2

    store.create_in(connection, [new])
    assert stored() == 3, "Django commits each statement outside atomic"
    try:
        store.create_in(connections["other"], [new])
    except ConfigurationError as error:
        assert "which is on a " in str(error) and "sqlite3" in str(error)
    else:
        raise AssertionError
    connections.close_all()
    store.close()
    print("done")
"""


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_django_connection_takes_part(url: str, driver: str) -> None:
    program = [sys.executable, "-c", textwrap.dedent(DJANGO), url, driver]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n", done.stderr
    with closing(PostgresPersister(url)) as store:
        for row in store.read_tasks("django"):
            store.delete_task(row["id"])


def test_the_example_in_the_docs_stores_order_and_task_together_or_not_at_all(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/operations.md"""
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    example = text.split("<!-- example: orders.py, saved -->\n```python\n")[1].split("```")[0]
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.chdir(tmp_path)
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("CREATE TABLE orders (number int PRIMARY KEY)")
        module: dict[str, Any] = {"__name__": "orders"}
        exec(compile(example, "orders.py", "exec"), module)
        module["place_order"](7)
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            module["place_order"](7)
        assert raw.execute("SELECT number FROM orders").fetchall() == [(7,)]
        raw.execute("DROP TABLE orders")
    assert [record.queue for record in module["env"].tasks()] == ["mail"]
    module["env"].stop()
    module["engine"].dispose()
