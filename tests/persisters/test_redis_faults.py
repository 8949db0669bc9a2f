"""Redis when it's in trouble: out of memory, emptied, restarted, a replica, without its scripts (G7)."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from procrastinate_py.core.errors import PersisterError, PersisterUnavailableError
from procrastinate_py.core.lifecycle import Close, Complete, Release, Reschedule
from procrastinate_py.core.task import NewTask, TaskState
from procrastinate_py.persisters import RedisPersister
from tests.servers import RedisServer, own_redis

PATIENCE = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with own_redis(appendfsync="no") as running:
        yield running


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisPersister]:
    server.run("FLUSHALL")
    made = RedisPersister(server.url)
    yield made
    made.close()


def new(queue: str = "q", task: str = "!a:B {}") -> NewTask:
    return NewTask(queue=queue, run_at=0, initial_run_at=0, expire_at=None, task=task)


def test_scripts_that_the_server_forgot_are_sent_again(server: RedisServer, store: RedisPersister) -> None:
    """G7"""
    store.create_many([new()])
    server.run("SCRIPT", "FLUSH")
    assert len(store.create_many([new(), new("other")])) == 2
    server.run("SCRIPT", "FLUSH")
    assert len(store.claim("q", "me", 5, 30.0)) == 2


def test_after_flushall_what_was_in_hand_is_lost_and_new_tasks_work(server: RedisServer, store: RedisPersister) -> None:
    """G7"""
    ids = store.create_many([new("a"), new("b"), new("b")])
    tokens = [claim.token for queue in ("a", "b") for claim in store.claim(queue, "me", 5, 30.0)]
    server.run("FLUSHALL")
    assert sorted(store.extend(tokens, 30.0)) == sorted(tokens)
    failed = Reschedule(run_at=1, attempts=1, last_fail_at=1, last_error="Task failed")
    ways = (Complete(), failed, Release())
    assert sorted(store.settle(list(zip(tokens, ways, strict=True)))) == sorted(tokens)
    assert [store.find(task_id) for task_id in ids] == [None, None, None]
    assert store.lapsed("a", "me", 5, 30.0) == [] and store.next_look_at("a") is None
    again = store.create_many([new("b"), new("a")])
    claims = [claim for queue in ("b", "a") for claim in store.claim(queue, "me", 5, 30.0)]
    assert [claim.record.id for claim in claims] == again
    assert store.settle([(claim.token, Complete()) for claim in claims]) == []


def test_a_number_that_went_to_another_queue_misleads_nobody(server: RedisServer, store: RedisPersister) -> None:
    """G7: what a process remembers of queues' numbers is of no worth once the server was emptied."""
    other = RedisPersister(server.url)
    (old,) = store.create_many([new("a")])
    server.run("FLUSHALL")
    number = old % 10_000
    server.run("HSET", "{procrastinate}:queues", "b", str(number))
    server.run("HSET", "{procrastinate}:numbers", str(number), "b")
    (of_b,) = other.create_many([new("b")])
    assert of_b % 10_000 == number
    found = store.find(of_b)
    assert found is not None and found.queue == "b"
    (claim,) = store.claim("b", "me", 5, 30.0)
    assert store.settle([(claim.token, Complete())]) == []
    (of_a,) = store.create_many([new("a")])
    assert of_a % 10_000 != number
    other.close()


def test_a_server_that_was_restarted_is_used_again(store: RedisPersister) -> None:
    """G7"""
    with own_redis(appendfsync="always") as server:
        kept = RedisPersister(server.url)
        ids = kept.create_many([new(), new()])
        (claim,) = kept.claim("q", "me", 1, 30.0)
        listener = kept.listen("q")
        server.kill()
        with pytest.raises(PersisterUnavailableError):
            kept.find(ids[0])
        server.start()
        assert kept.settle([(claim.token, Complete())]) == []
        assert [record.id for record in kept.select()] == ids[1:]
        assert select.select([listener], [], [], PATIENCE)[0], "a listener isn't woken after it connected again"
        listener.drain()
        kept.create_many([new()])
        assert select.select([listener], [], [], PATIENCE)[0]
        listener.close()
        kept.close()


def test_a_connection_that_the_server_closed_meanwhile_is_opened_anew(
    server: RedisServer, store: RedisPersister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7"""
    monkeypatch.setattr("procrastinate_py.persisters._redis_session._FRESH_FOR", 0.0)
    (task_id,) = store.create_many([new()])
    server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert store.find(task_id) is not None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"replicaof": "127.0.0.1 1"}, "ReadOnlyError|MasterDownError|read only replica"),
        ({"requirepass": "hunter2"}, "AuthenticationError|Authentication required"),
        ({"min_replicas_to_write": "1"}, "NOREPLICAS|NoReplicas|Not enough good replicas|enough replicas"),
    ],
)
def test_a_server_that_takes_nothing_is_told_as_unavailable(settings: dict[str, str], told: str) -> None:
    """G7"""
    with own_redis() as server:
        store = RedisPersister(server.url)
        ids = store.create_many([new()])
        for name, value in settings.items():
            if name == "replicaof":
                server.run("REPLICAOF", *value.split())
            else:
                server.run("CONFIG", "SET", name.replace("_", "-"), value)
        store.close()
        with pytest.raises(PersisterUnavailableError, match=told) as caught:
            store.create_many([new()])
        assert "hunter2" not in str(caught.value)
        store.close()
        assert ids


def test_out_of_memory_nothing_new_is_taken_and_all_that_is_there_can_be_worked() -> None:
    """G7: working is what frees memory."""
    with own_redis(maxmemory="4mb", maxmemory_policy="noeviction", appendonly="no") as server:
        store = RedisPersister(server.url)
        created = _fill(store)
        assert len(store.read_tasks("q")) == created
        claims = store.claim("q", "dead", created, 0.0)
        assert len(claims) == created
        assert store.extend([claim.token for claim in claims], 60.0) == []
        claims = store.lapsed("q", "me", created, 60.0, "dead")
        assert len(claims) == created
        failed = Reschedule(run_at=0, attempts=1, last_fail_at=0, last_error="Task failed: " + "x" * 1000)
        dead = Close(state=TaskState.FAILED, attempts=9, last_fail_at=0, last_error="Task failed too many times")
        again, closed, released, *rest = [claim.token for claim in claims]
        assert store.settle([(again, failed), (closed, dead), (released, Release())]) == []
        assert {record.state for record in store.select(limit=3)} == {TaskState.PENDING, TaskState.FAILED}
        assert store.settle([(token, Complete()) for token in rest]) == []
        assert len(store.create_many([new()])) == 1
        store.close()


def _fill(store: RedisPersister) -> int:
    """How many tasks fitted; a call of several stores all of them or none."""
    created = 0
    try:
        while created < 100_000:
            created += len(store.create_many([new("q", "!a:B " + "x" * 5000)] * 20))
    except PersisterError as error:
        assert "OOM" in str(error) or "OutOfMemory" in str(error)
    return created
