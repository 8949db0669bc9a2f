"""What each kind of server does to those who use it: sessions ended by the administrator, memory that is full, data
that are gone, 503 Slow Down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from procrastinate_py.core.errors import PersisterUnavailableError

from .backings import Backing, backing, working
from .jobs import Gated, Noted
from .shops import Shop
from .support import eventually


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Backing]:
    kind, settings = request.param
    with backing(kind, **settings) as store:
        yield store


@pytest.fixture
def shop(store: Backing, tmp_path: Path) -> Iterator[Shop]:
    with working(store, tmp_path) as shop:
        yield shop


def on(kind: str, **settings: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("store", [(kind, settings)], indirect=True, ids=[kind])


# --- PostgreSQL

OTHERS = "from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"


@on("postgres")
def test_sessions_that_an_administrator_ends_are_opened_anew(shop: Shop, store: Backing, tmp_path: Path) -> None:
    """G7"""
    gate = tmp_path / "gate"
    env = shop.started()
    pids = env.processes
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    for number in range(5):
        assert store.server.run(f"select pg_terminate_backend(pid) {OTHERS}")
        here = shop.environment(persister=store.direct)
        here.delay("email", task=Noted(shop.notes, f"task{number}"))
        shop.await_note(f"task{number} success")
    gate.touch()
    shop.await_note("slow success")
    eventually(lambda: not here.tasks())
    assert env.processes == pids
    assert len(shop.noted("begins")) == 6


@on("postgres", idle_session_timeout="100ms", idle_in_transaction_session_timeout="50ms")
def test_sessions_that_the_server_ends_for_idling_are_opened_anew(shop: Shop, store: Backing) -> None:
    """G7: neither the worker's nor its listener's is kept."""
    env = shop.started({"email": {"update_period": 0.4}})
    pids = env.processes
    for number in range(5):
        eventually(lambda: store.server.run(f"select count(*) {OTHERS}") == [(0,)])
        env.delay("email", task=Noted(shop.notes, f"task{number}"))
        shop.await_note(f"task{number} success")
    eventually(lambda: not env.tasks())
    assert env.processes == pids
    assert len(shop.noted("begins")) == 5
    assert not shop.logged("lease_lost")


# --- Redis


@on("redis")
def test_data_that_were_flushed_are_gone_and_new_tasks_run(shop: Shop, store: Backing, tmp_path: Path) -> None:
    """G7: what somebody throws away can't be kept, but nobody stumbles over it."""
    gate = tmp_path / "gate"
    env = shop.started()
    pids = env.processes
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    assert store.server.run("FLUSHALL") == b"+OK\r\n"
    gate.touch()
    shop.await_log("WARNING", "lease_lost")
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")
    eventually(lambda: not env.tasks())
    assert env.processes == pids
    assert not shop.logged("ERROR")


@on("redis")
def test_a_server_whose_memory_is_full_takes_no_task_and_loses_none(shop: Shop, store: Backing, tmp_path: Path) -> None:
    """G7: what would need memory fails, and is told; it goes on once there is some."""
    gate = tmp_path / "gate"
    env = shop.started()
    pids = env.processes
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    later = env.delay("email", task=Noted(shop.notes, "later"), run_at=4e9)
    assert store.server.run("CONFIG", "SET", "maxmemory", "1") == b"+OK\r\n"
    with pytest.raises(PersisterUnavailableError, match="OOM|memory"):
        env.delay("email", task=Noted(shop.notes, "refused"))
    gate.touch()
    shop.await_note("slow success")
    assert store.server.run("CONFIG", "SET", "maxmemory", "0") == b"+OK\r\n"
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")
    eventually(lambda: [task.id for task in env.tasks()] == [later])
    assert env.processes == pids
    assert len(shop.noted("slow begins")) == 1
    assert len([line for line in shop.logged("WARNING") if "store_unavailable" in line]) <= 1


@on("redis")
def test_connections_that_an_administrator_ends_are_opened_anew_and_scripts_sent_again(
    shop: Shop, store: Backing
) -> None:
    """G7"""
    env = shop.started()
    pids = env.processes
    for number in range(5):
        for command in ("CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub", "SCRIPT FLUSH"):
            assert store.server.run(*command.split())[:1] in (b":", b"+")
        here = shop.environment(persister=store.direct)  # which has no connection yet that could be lost
        here.delay("email", task=Noted(shop.notes, f"task{number}"))
        shop.await_note(f"task{number} success")
    eventually(lambda: not here.tasks())
    assert env.processes == pids
    assert len(shop.noted("begins")) == 5


# --- S3

SLOW_DOWN = b"""HTTP/1.1 503 Slow Down\r
Content-Type: application/xml\r
Content-Length: 84\r
Connection: close\r
\r
<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Wait.</Message></Error>   """


@on("s3")
def test_503_slow_down_is_an_outage_like_any_other(shop: Shop, store: Backing, tmp_path: Path) -> None:
    """G7"""
    gate = tmp_path / "gate"
    env = shop.started()
    pids = env.processes
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    store.proxy.answer(SLOW_DOWN, times=1_000_000)
    gate.touch()
    shop.await_note("slow success")
    shop.await_log("WARNING", "store_unavailable")
    with pytest.raises(PersisterUnavailableError):
        env.delay("email", task=Noted(shop.notes, "refused"))
    store.proxy.forward()
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")
    eventually(lambda: not env.tasks())
    assert env.processes == pids
    assert len([line for line in shop.logged("WARNING") if "store_unavailable" in line]) == 1
    assert len(shop.noted("slow begins")) == 1


@on("s3")
def test_a_slow_store_only_takes_longer(shop: Shop, store: Backing) -> None:
    """G7"""
    env = shop.started()
    store.proxy.delay(0.03)
    for number in range(3):
        env.delay("email", task=Noted(shop.notes, f"task{number}"))
    shop.await_note("success", times=3)
    eventually(lambda: not env.tasks())
    assert not [line for line in shop.logged("WARNING") if "store_unavailable" in line]
