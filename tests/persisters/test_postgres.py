"""What is PostgreSQL's own: its tables, its statements, its errors, its time (issue 3)."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import select
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from freezegun import freeze_time

from procrastinate_py.core.errors import ConfigurationError, PersisterError, PersisterUnavailableError
from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.core.lifecycle import Complete, Release, Reschedule
from procrastinate_py.core.stored_text import tag_of_text
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import PostgresPersister, _pg_rows, _pg_session, _pg_sql
from procrastinate_py.persisters import postgres as postgres_module
from procrastinate_py.persisters._pg_url import split_options
from procrastinate_py.ports.clock import SystemClock
from procrastinate_py.ports.persister import IncompleteSettle
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import ABILITIES, PersisterConformance
from tests.servers import postgres, postgres_url

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def url() -> str:
    return postgres_url()


class TestPostgres(PersisterConformance):
    """G6: what it writes is there after it was opened anew."""

    expects = ABILITIES

    @pytest.fixture(autouse=True)
    def _database(self, url: str) -> None:
        self.url = url

    def make_persister(self, clock: FakeClock) -> PostgresPersister:
        self.clock = clock
        return PostgresPersister(self.url, clock=clock, prefix=f"exam{next(NUMBERS)}_")

    def reopen(self, persister: PostgresPersister) -> PostgresPersister:
        persister.close()
        make, arguments = persister.__reduce__()
        reopened = make(*arguments)
        assert isinstance(reopened, PostgresPersister)
        reopened._clock = self.clock
        return reopened


def new(run_at: int = 1000, queue: str = "q", task: str = "!a:B {}") -> NewTask:
    return NewTask(queue=queue, run_at=run_at, initial_run_at=run_at, expire_at=None, task=task)


def failed(last_error: str = "Task failed: no\n", attempts: int = 1) -> Reschedule:
    return Reschedule(run_at=1, attempts=attempts, last_fail_at=1, last_error=last_error)


@pytest.fixture
def store(url: str) -> Iterator[PostgresPersister]:
    """With tables of its own."""
    persister = PostgresPersister(url, prefix=f"t{next(NUMBERS)}_")
    yield persister
    persister.close()


@contextmanager
def admin(url: str, **options: Any) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(url, autocommit=True, **options)) as connection:
        yield connection


# --- the URL


def test_the_driver_is_loaded_and_the_server_asked_at_the_first_call_only() -> None:
    """O5, P8"""
    program = """
        import sys
        from procrastinate_py.persisters import open_persister
        store = open_persister("postgresql://nobody:secret@127.0.0.1:1/nowhere?schema=a&prefix=b")
        assert not [name for name in sys.modules if name.startswith("psycopg")]
        print(repr(store))
        store.close()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "PostgresPersister('postgresql://nobody:***@127.0.0.1:1/nowhere?***')\n"


def test_schema_and_prefix_are_ours_and_the_rest_is_libpqs() -> None:
    given = "postgres://h1,h2:5433/db?sslmode=disable&schema=a%24&target_session_attrs=read-write&prefix="
    assert split_options(given) == (
        "postgres://h1,h2:5433/db?sslmode=disable&target_session_attrs=read-write",
        {"schema": "a$", "prefix": ""},
    )
    assert split_options("PostgreSQL:///Db") == ("postgresql:///Db", {})


@pytest.mark.parametrize("name", ["", "1a", "a b", 'a"b', "a;drop", "a\0", "pg_a", "a" * 64, "\u00e9"])
def test_a_schema_that_is_no_plain_name_is_refused(name: str) -> None:
    """G8"""
    with pytest.raises(ConfigurationError, match="schema must be"):
        PostgresPersister("postgresql:///db", schema=name)


@pytest.mark.parametrize("name", ["1a", "a b", 'a"b', "a%s", "a{b}", "a" * 52])
def test_a_prefix_that_is_no_plain_name_is_refused(name: str) -> None:
    """G8"""
    with pytest.raises(ConfigurationError, match="prefix must be"):
        PostgresPersister(f"postgresql:///db?prefix={quote(name)}")


@pytest.mark.parametrize("url", ["mysql://a/b", "postgresql:/x", "postgresql://h/\0"])
def test_what_is_no_url_of_postgresql_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        PostgresPersister(url)


SECRET = "s3cret pa55/w:rd"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{quote(SECRET, safe='')}@127.0.0.1:1/db",
        f"postgresql://user:{quote(SECRET, safe='')}@127.0.0.1:notaport/db",
        f"postgresql://user@127.0.0.1:1/db?password={quote(SECRET, safe='')}",
        f"postgresql://user@127.0.0.1:1/db?nosuchoption={quote(SECRET, safe='')}&password={quote(SECRET, safe='')}",
    ],
)
def test_a_password_is_in_no_error_and_no_repr(url: str) -> None:
    """G8: not in what a traceback prints either"""
    store = PostgresPersister(url)
    with pytest.raises(PersisterUnavailableError) as caught:
        store.find(1)
    told = repr(store) + "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    for spelling in (SECRET, quote(SECRET, safe=""), "s3cret"):
        assert spelling not in told
    assert "127.0.0.1" in told


def test_a_wrong_password_is_told_without_it() -> None:
    """G8"""
    right = postgres().url(user="guarded")
    store = PostgresPersister(right.replace("guarded:", "guarded:wr0ng"))
    with pytest.raises(PersisterUnavailableError, match="password authentication failed") as caught:
        store.find(1)
    assert "wr0ng" not in "".join(traceback.format_exception(caught.value))
    with closing(PostgresPersister(right, prefix="guarded_")) as store:
        assert store.find(1) is None


# --- the tables


def test_the_code_knows_as_many_schema_versions_as_there_are_scripts() -> None:
    folder = Path(_pg_sql.__file__).with_name("schema") / "postgres"
    assert sorted(script.name for script in folder.iterdir()) == [
        f"{version:04d}.sql" for version in range(1, _pg_sql.SCHEMA_VERSION + 1)
    ]


def test_the_tables_are_made_in_the_schema_that_is_named(url: str) -> None:
    with closing(PostgresPersister(f"{url}?schema=made-here&prefix=x_")) as store:
        store.create_many([new()])
    with admin(url) as raw:
        rows = raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'made-here'").fetchall()
    assert sorted(rows) == [("x_about",), ("x_tasks",)]


def test_stores_with_different_prefixes_or_schemas_share_nothing(url: str) -> None:
    stores = [
        PostgresPersister(url, prefix="one_"),
        PostgresPersister(url, prefix="two_"),
        PostgresPersister(url, schema="other", prefix="one_"),
    ]
    listeners = [store.listen("q") for store in stores]
    stores[0].create_task(new().as_mapping())
    assert [len(store.claim("q", "me", 9, 30.0)) for store in stores] == [1, 0, 0]
    assert select.select([listeners[0]], [], [], 30)[0]
    assert select.select(listeners[1:], [], [], 0)[0] == []
    for listener, store in zip(listeners, stores, strict=True):
        listener.close()
        store.close()


def test_a_schema_that_is_named_and_one_that_search_path_finds_are_one_store(url: str) -> None:
    """Wake-ups come through between them, too."""
    named, found = PostgresPersister(url, schema="public", prefix="p_"), PostgresPersister(url, prefix="p_")
    listener = found.listen("q")
    task_id = named.create_task(new().as_mapping())
    assert found.find(task_id) is not None
    assert select.select([listener], [], [], 30)[0]
    listener.close()
    named.close()
    found.close()


def test_a_search_path_may_lead_to_a_schema_of_any_name(url: str, store: PostgresPersister) -> None:
    """G8"""
    name = 'an "odd" %s {name}'
    with admin(url) as raw:
        raw.execute(psycopg.sql.SQL("CREATE SCHEMA {}").format(psycopg.sql.Identifier(name)))
        raw.execute("CREATE ROLE odd LOGIN SUPERUSER")
        raw.execute(psycopg.sql.SQL("ALTER ROLE odd SET search_path = {}").format(psycopg.sql.Identifier(name)))
    with closing(PostgresPersister(url.replace("tester@", "odd@"))) as odd, closing(odd.listen("q")) as listener:
        odd.create_many([new()])
        assert select.select([listener], [], [], 30)[0]
        assert len(odd.claim("q", "me", 1, 30.0)) == len(odd.select()) == len(odd.count()) == 1
    with admin(url) as raw:
        rows = raw.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", (name,)).fetchone()
    assert rows == (2,)


RACE = """
    import sys
    from procrastinate_py.core.task import NewTask
    from procrastinate_py.persisters import open_persister
    store = open_persister(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    new = NewTask(queue="q", run_at=1, initial_run_at=1, expire_at=None, task="!a:B {}")
    print(store.create_many([new]), flush=True)
    store.close()
"""


def test_any_number_of_processes_may_make_the_tables_at_once() -> None:
    """An advisory lock: one makes them, the others find them."""
    url = f"{postgres_url()}?schema=raced"
    command = [sys.executable, "-c", textwrap.dedent(RACE), url]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=60)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 8
    assert sorted(answers) == sorted(f"[{number}]\n" for number in range(1, 9))


def test_a_newer_schema_is_refused_and_left_alone(store: PostgresPersister, url: str) -> None:
    store.create_many([new()])
    with admin(url) as raw:
        raw.execute(f"UPDATE {store._prefix}about SET version = 99")
        newcomer = PostgresPersister(url, prefix=store._prefix)
        with pytest.raises(PersisterUnavailableError, match=r"a newer procrastinate_py .*schema 99.* upgrade"):
            newcomer.create_many([new()])
        assert raw.execute(f"SELECT count(*) FROM {store._prefix}tasks").fetchone() == (1,)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE half_tasks (id int)",
        "CREATE VIEW half_about AS SELECT 1 AS number",
    ],
)
def test_tables_that_are_there_by_halves_or_are_anothers_are_left_alone_and_the_error_says_what_to_do(
    url: str, made: str
) -> None:
    """G8"""
    schema = made.split()[1].lower() + "_by_halves"
    with admin(url) as raw:
        raw.execute(f"CREATE SCHEMA {schema}")
        raw.execute(f"SET search_path TO {schema}")
        raw.execute(made)
    with closing(PostgresPersister(url, schema=schema, prefix="half_")) as store:
        with pytest.raises(
            PersisterUnavailableError, match=r"restore them from a backup, or choose other names by schema="
        ):
            store.create_many([new()])


@pytest.fixture(scope="module")
def worker_url(url: str) -> str:
    """Of a role that may make nothing."""
    with admin(url) as raw:
        raw.execute("CREATE ROLE plain_worker LOGIN")
        raw.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    return url.replace("tester@", "plain_worker@")


def test_a_role_that_may_make_nothing_works_with_tables_that_it_finds(url: str, worker_url: str) -> None:
    """With the grants that docs/operations.md names."""
    with closing(PostgresPersister(url, prefix="granted_")) as store:
        store.now()
        store.find(1)
    with admin(url) as raw:
        raw.execute("GRANT SELECT ON granted_about TO plain_worker")
        raw.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON granted_tasks TO plain_worker")
    with closing(PostgresPersister(worker_url, prefix="granted_")) as store:
        store.create_many([new(), new()])
        claims = store.claim("q", "me", 2, 30.0)
        assert store.extend([claim.token for claim in claims], 30.0) == []
        assert store.settle([(claims[0].token, Complete()), (claims[1].token, failed())]) == []


def test_a_role_that_lacks_rights_is_told_so(worker_url: str) -> None:
    with pytest.raises(PersisterUnavailableError, match="lacks a right"):
        PostgresPersister(worker_url, prefix="denied_").find(1)
    with pytest.raises(PersisterUnavailableError, match="lacks a right"):
        PostgresPersister(worker_url, schema="denied").find(1)


def test_tables_that_are_dropped_under_a_running_process_are_made_anew(store: PostgresPersister, url: str) -> None:
    """G7: one failed call tells of it"""
    store.create_many([new()])
    with admin(url) as raw:
        raw.execute(f"DROP TABLE {store._prefix}about, {store._prefix}tasks")
    with pytest.raises(PersisterUnavailableError, match="does not exist"):
        store.claim("q", "me", 1, 30.0)
    assert store.claim("q", "me", 1, 30.0) == []


# --- values


@pytest.mark.parametrize(
    "given",
    [
        new(task="!a:B \0"),
        new(task="!a:B \ud800"),
        new(queue="\udfff"),
        new(run_at=2**63),
        NewTask(queue="q", run_at="1", initial_run_at=1, expire_at=None, task="x"),  # type: ignore[arg-type]
        NewTask(queue="q", run_at=1, initial_run_at=1, expire_at=None, task=b"x"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_what_cannot_be_kept_is_refused_and_harms_nothing(store: PostgresPersister, given: NewTask) -> None:
    """E33: such an error isn't taken for an outage"""
    store.create_many([new()])
    idle = list(store._session()._idle)
    for call in (lambda: store.create_task(given.as_mapping()), lambda: store.create_many([new(), given])):
        with pytest.raises(PersisterError) as caught:
            call()
        assert not isinstance(caught.value, PersisterUnavailableError)
    assert len(store.read_tasks("q")) == 1
    assert store._session()._idle == idle, "the connection is as good as before"


def test_an_error_text_that_cannot_be_kept_spoils_no_others(store: PostgresPersister) -> None:
    """E33"""
    store.create_many([new(), new(), new()])
    one, two, three = store.claim("q", "me", 3, 30.0)
    with pytest.raises(IncompleteSettle) as caught:
        store.settle([(one.token, Complete()), (two.token, failed("\0")), (three.token, failed())])
    assert list(caught.value.failures) == [two.token]
    assert [row["id"] for row in store.read_tasks("q")] == [two.record.id, three.record.id]


def test_a_token_of_any_spelling_is_only_a_token(store: PostgresPersister) -> None:
    """G2, G8"""
    store.create_many([new()])
    (claim,) = store.claim("q", "me", 1, 30.0)
    task_id = claim.record.id
    values = [
        "",
        "NULL",
        "null",
        'a"b',
        "a\\",
        "{}",
        "a,b",
        " ",
        "\0",
        "\ud800",
        "\u00e9",
        claim.token.value + "x",
        claim.token.value + "\0",
    ]
    forged = [LeaseToken(task_id, value) for value in values] + [LeaseToken("x", "aa"), LeaseToken(2**70, "aa")]
    assert store.settle([(token, Complete()) for token in forged]) == forged
    assert store.settle([(token, failed()) for token in forged]) == forged
    assert store.extend(forged, 30.0) == forged
    assert store.settle([(claim.token, Complete())]) == []


def test_ids_that_no_task_could_have_find_nothing(store: PostgresPersister) -> None:
    record = store.find(store.create_task(new().as_mapping()))
    assert record is not None
    for task_id in (0, -1, 2**63, 2**200, "1", None, 1.5):
        assert store.find(task_id) is None
        assert store.transition(task_id, record, Release()) is False
        store.delete_task(task_id)


def test_a_batch_beyond_one_statement_is_stored_whole_or_not_at_all(
    store: PostgresPersister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5"""
    monkeypatch.setattr(postgres_module, "_ROWS_PER_STATEMENT", 10)
    ids = store.create_many([new(task=f"!a:B {n}") for n in range(25)])
    assert ids == list(range(1, 26))
    rows_for = _pg_rows.new_rows

    def too_late(rows: Any) -> Any:
        values = rows_for(rows)
        return values if len(rows) == 10 else values | {"run_ats": "{x}"}

    monkeypatch.setattr(_pg_rows, "new_rows", too_late)
    with pytest.raises(PersisterError):
        store.create_many([new() for _ in range(25)])
    assert len(store.read_tasks("q")) == 25


def test_tags_are_told_apart_however_they_are_written(
    store: PostgresPersister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C10"""
    monkeypatch.setattr(postgres_module, "_ROWS_PER_PAGE", 2)
    texts = [
        "!a.b:C {}",
        "!a.b:Cd {}",
        "--- !a.b:C\nx: 1\n",
        "!a%2Eb:C {}",
        "!<!a.b:C> {}",
        "!a.b:C",
        "# c\n!a.b:C {}",
        "x",
    ]
    texts += ["!caf%C3%A9:C {}", "!a.b:C\u2003{}"] + ["!other:T {}"] * 20 + ["!a.b:C {}"]
    store.create_many([new(task=text) for text in texts])
    for tag in ("a.b:C", "caf\u00e9:C", "other:T", "none"):
        wanted = [number for number, text in enumerate(texts, 1) if tag_of_text(text) == tag]
        assert [record.id for record in store.select(tag=tag)] == wanted
        for limit in (1, 3, 100):
            assert [record.id for record in store.select(tag=tag, limit=limit)] == wanted[:limit]


# --- time


def test_the_servers_clock_decides_whatever_this_machine_shows(store: PostgresPersister, url: str) -> None:
    """G3"""
    with admin(url) as raw:
        (there,) = raw.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone() or (0.0,)
    with freeze_time("1999-01-01"):
        assert there <= store.now() < there + 3600
        store.create_many([new(int(there)), new(int(there) + 3600)])
        (claim,) = store.claim("q", "me", 9, 30.0)
        assert claim.record.read_at >= there
        assert claim.record.lease is not None
        assert claim.record.lease.expires_at == pytest.approx(claim.record.read_at + 30.0)


def test_the_time_is_known_from_replies_without_asking(
    store: PostgresPersister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G3: a call per question would slow each step"""
    store.create_task(new().as_mapping())
    asked: list[str] = []
    call = store._call
    monkeypatch.setattr(store, "_call", lambda name, values: asked.append(name) or call(name, values))
    instants = [store.now() for _ in range(100)]
    assert asked == []
    assert instants == sorted(instants)
    store._time = type(store._time)(store._monotonic)
    for _ in range(100):
        store.now()
    assert asked == ["now"]


def test_in_an_outage_the_time_goes_on(store: PostgresPersister, monkeypatch: pytest.MonkeyPatch) -> None:
    """G7"""
    before = store.now()
    moved = [0.0]
    monkeypatch.setattr(store, "_monotonic", lambda: SystemClock().monotonic() + moved[0])
    store._time._monotonic = store._monotonic
    asked: list[str] = []

    def unavailable(name: str, values: Any) -> Any:
        asked.append(name)
        raise PersisterUnavailableError("down")

    monkeypatch.setattr(store, "_call", unavailable)
    moved[0] = 100.0
    for _ in range(5):
        assert before + 99 < store.now() < before + 200
    assert asked == ["now"]
    moved[0] = 120.0
    store.now()
    assert asked == ["now", "now"]


# --- processes and threads


def test_a_forks_child_uses_connections_of_its_own(store: PostgresPersister) -> None:
    """U31"""
    store.create_many([new(), new()])
    (mine,) = store.claim("q", "parent", 1, 30.0)
    (connection,) = store._session()._idle
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (theirs,) = store.claim("q", "child", 1, 30.0)
            assert store._session()._idle[0] is not connection
            assert store.settle([(theirs.token, Complete())]) == []
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert store._session()._idle == [connection]
    assert store.settle([(mine.token, Complete())]) == []
    assert store.read_tasks("q") == []


def test_it_can_be_sent_to_another_process(url: str) -> None:
    store = PostgresPersister(f"{url}?prefix=sent_", schema="public")
    task_id = store.create_task(new().as_mapping())
    with closing(pickle.loads(pickle.dumps(store))) as copy:
        assert copy.find(task_id) is not None
    store.close()


def test_calls_that_share_rows_in_another_order_never_wait_in_a_circle(store: PostgresPersister, url: str) -> None:
    """Rows are locked in order of their ids, so none is ever chosen as the victim of a deadlock."""
    store.create_many([new() for _ in range(40)])
    tokens = [claim.token for claim in store.claim("q", "me", 40, 30.0)]

    def settle(order: list[LeaseToken], way: Any) -> None:
        for _ in range(25):
            store.extend(order, 30.0)
            store.settle([(LeaseToken(token.task_id, token.value + "0"), way) for token in order])

    ways = [Complete(), failed(), Release(), failed()]
    orders = [tokens, tokens[::-1], tokens[20:] + tokens[:20], tokens[::-1]]
    race = [threading.Thread(target=settle, args=pair) for pair in zip(orders, ways, strict=True)]
    for thread in race:
        thread.start()
    for thread in race:
        thread.join()
    lost = [store.settle([(token, Complete()) for token in order]) for order in (tokens, tokens[::-1])]
    assert [len(some) for some in lost] == [0, 40]
    with admin(url) as raw:
        database = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert raw.execute(database).fetchone() == (0,)


def test_more_threads_than_connections_take_turns(store: PostgresPersister, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many call, a process has ten connections at most."""
    ids: list[int] = []
    threads = [threading.Thread(target=lambda: ids.append(store.create_task(new().as_mapping()))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == list(range(1, 41))
    assert len(store._session()._idle) <= 10


def test_a_call_that_finds_no_connection_free_fails_rather_than_hangs(
    store: PostgresPersister, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pg_session, "LONGEST_WAIT", 0.01)
    store.find(1)
    with ExitStack() as held:
        for _ in range(_pg_session.MOST_CONNECTIONS):
            held.enter_context(store._session().connection())
        with pytest.raises(PersisterUnavailableError, match="all 10 connections"):
            store.find(1)
    assert store.find(1) is None


def test_connections_that_only_a_crowd_needed_are_let_go(
    store: PostgresPersister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: where the server has a hundred for all"""
    store.find(1)
    with ExitStack() as held:
        crowd = [held.enter_context(store._session().connection()) for _ in range(5)]
    assert len(store._session()._idle) == 5
    monkeypatch.setattr(_pg_session, "KEPT_FOR", 0.0)
    for _ in range(9):
        store.find(1)
    assert len(store._session()._idle) == 1
    assert [connection.closed for connection in crowd].count(True) == 4


def test_close_lets_go_and_the_next_call_opens_anew(store: PostgresPersister, url: str) -> None:
    """G9"""
    task_id = store.create_task(new().as_mapping())
    (connection,) = store._session()._idle
    store.close()
    store.close()
    assert connection.closed
    assert store.find(task_id) is not None


def test_a_store_that_is_forgotten_closes_its_connections(url: str) -> None:
    """G9"""
    store = PostgresPersister(url, prefix="forgotten_")
    store.find(1)
    (connection,) = store._session()._idle
    del store
    gc.collect()
    assert connection.closed
