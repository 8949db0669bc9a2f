"""Tasks in Redis that somebody edited, or cut: trouble of their own, and of nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from procrastinate_py.core.lifecycle import Complete, Reschedule
from procrastinate_py.core.task import Claim, NewTask
from procrastinate_py.persisters import RedisPersister
from procrastinate_py.testing.clock import FakeClock
from tests.servers import RedisServer, own_redis

TASK = "!a:B {}"
TASKS = "{procrastinate:q}:tasks"
START = 1_000_000
BROKEN = [
    b"",
    b"nonsense",
    b"\xff\xfe\n\xff\n\xff",
    b"[]\n[]\n!a:B {}",
    b"[" * 10_000 + b"\n[]\n!a:B {}",
    b'[0,"many",null,null,null,null]\n[0,null]\n!a:B {}',
    b"[0,null,null,null,null,null]\n[0,null]\n!a:B {}",
    b'["soon",0,null,null,null,null]\n[0,null]\n!a:B {}',
    b"[0,0,null,7,null,null]\n[0,null]\n!a:B {}",
    b'[0,0,null,null,"gone",null]\n[0,null]\n!a:B {}',
    b'[0,0,null,null,null,null]\n[0,"never"]\n!a:B {}',
    b"[0,0,null,null,null,null]\n!a:B {}",
]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with own_redis(appendfsync="no") as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def store(server: RedisServer, clock: FakeClock) -> Iterator[RedisPersister]:
    server.run("FLUSHALL")
    made = RedisPersister(server.url, clock=clock)
    yield made
    made.close()


def new(run_at: int) -> NewTask:
    return NewTask(queue="q", run_at=run_at, initial_run_at=run_at, expire_at=None, task=TASK)


def overwrite(store: RedisPersister, task_id: int, text: bytes) -> None:
    store._session().execute("HSET", TASKS, f"{task_id:016d}", text)


def fail_and_complete(store: RedisPersister, claims: list[Claim]) -> None:
    ill, *good = claims
    failed = Reschedule(run_at=START + 90, attempts=1, last_fail_at=START, last_error="Task failed: it can't be read")
    assert store.settle([(ill.token, failed), *((claim.token, Complete()) for claim in good)]) == []


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: ascii(text[:30]))
@pytest.mark.parametrize("when", ["due", "claimed", "lapsed"])
def test_a_task_that_cannot_be_read_fails_alone(
    store: RedisPersister, clock: FakeClock, text: bytes, when: str
) -> None:
    """U9, E30, G8: it's attempted, fails, and can be read from then on; what was claimed with it isn't held up."""
    ill, good = store.create_many([new(0), new(1)])
    if when == "due":
        overwrite(store, ill, text)
    claims = store.claim("q", "me", 5, 30.0)
    if when != "due":
        overwrite(store, ill, text)
    if when == "lapsed":
        clock.tick(31)
        claims = store.lapsed("q", "other", 5, 30.0)
    assert [claim.record.id for claim in claims] == [ill, good]
    assert claims[1].record.defect is None
    assert when == "claimed" or claims[0].record.defect
    assert {record.id for record in store.select()} == {ill, good}
    fail_and_complete(store, claims)
    clock.tick(100)
    (again,) = store.claim("q", "me", 5, 30.0)
    assert again.record.id == ill
    assert again.record.attempts == 1
    assert again.record.run_at == START + 90


def test_a_task_of_a_queue_whose_number_went_to_another_is_deleted(server: RedisServer, store: RedisPersister) -> None:
    """G7: what a process remembers of queues' numbers is of no worth once the server was emptied."""
    other = RedisPersister(server.url)
    (old,) = store.create_many([new(0)])
    server.run("FLUSHALL")
    number = old % 10_000
    server.run("HSET", "{procrastinate}:queues", "b", str(number))
    server.run("HSET", "{procrastinate}:numbers", str(number), "b")
    of_b = other.create_task({**new(0).as_mapping(), "queue": "b"})
    assert of_b % 10_000 == number
    store.delete_task(of_b)
    assert other.find(of_b) is None
    other.close()
