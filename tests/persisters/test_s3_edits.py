"""Objects that somebody edited, or that another program wrote: trouble of their own, and of nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from procrastinate_py.core.errors import PersisterError
from procrastinate_py.core.lifecycle import Complete
from procrastinate_py.core.task import NewTask
from procrastinate_py.testing.clock import FakeClock
from tests.persisters.s3_memory import MemoryS3Persister
from tests.persisters.test_s3_faults import Killed

START = 1_000_000
QUEUE = "q"


def new(run_at: int = START) -> NewTask:
    return NewTask(queue=QUEUE, run_at=run_at, initial_run_at=run_at, expire_at=None, task="!a:B {}")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def store(clock: FakeClock) -> Any:
    store = MemoryS3Persister(clock=clock)
    yield store
    store.close()


def edited(body: bytes, **changes: Any) -> bytes:
    return json.dumps({**json.loads(body), **changes}).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"run_at": "soon"},
        {"run_at": 1.5},
        {"run_at": True},
        {"attempts": None},
        {"attempts": 2**70},
        {"expire_at": ""},
        {"task": None},
        {"task": "\ud800"},
        {"last_error": 0},
        {"revision": "first"},
        {"token": 3},
        {"closed_as": "gone"},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_in_hand", [False, True], ids=["free", "in hand"])
def test_a_task_that_somebody_edited_wrongly_is_its_own_trouble_alone(
    store: MemoryS3Persister, clock: FakeClock, change: dict[str, Any], is_in_hand: bool
) -> None:
    """G8, U9: it's claimed and reaped by nobody, and holds up nobody."""
    ill = store.create_task(new(START - 5).as_mapping())
    if is_in_hand:
        assert store.claim(QUEUE, "me", 1, 30)
    key = f"tasks/{ill}"
    store.bucket.objects[key] = edited(store.bucket.objects[key], **change)
    for _ in range(3):
        good = store.create_task(new().as_mapping())
        (claim,) = store.claim(QUEUE, "me", 1, 30)
        assert claim.record.id == good
        assert store.settle([(claim.token, Complete())]) == []
        clock.tick(31)
        assert store.lapsed(QUEUE, "me", 1, 30) == []
        store.repair()
    assert store.select() == []
    with pytest.raises(PersisterError, match=ill):
        store.find(ill)


def test_a_lapsed_lease_of_a_task_that_cannot_be_read_is_not_looked_for_again_and_again(
    store: MemoryS3Persister, clock: FakeClock
) -> None:
    """G8: whoever mends the task by hand has it found by the repair."""
    ill = store.create_task(new().as_mapping())
    assert store.claim(QUEUE, "me", 1, 30)
    sound = store.bucket.objects[f"tasks/{ill}"]
    store.bucket.objects[f"tasks/{ill}"] = b"{}"
    clock.tick(31)
    assert store.lapsed(QUEUE, "me", 1, 30) == []
    assert store.next_look_at(QUEUE) is None
    store.bucket.objects[f"tasks/{ill}"] = sound
    store.repair()
    assert [claim.record.id for claim in store.lapsed(QUEUE, "me", 1, 30)] == [ill]


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[" * 100_000, b'{"owner":1,"ends":{}}', b'{"owner":"x","ends":3}']
    + [
        b'{"owner":"me","ends":{"ID":%b}}' % end for end in (b'"late"', b"NaN", b"Infinity", b"[]", b"1" * 400, b"true")
    ],
)
def test_leases_that_somebody_edited_wrongly_hold_up_nobody(
    store: MemoryS3Persister, clock: FakeClock, body: bytes
) -> None:
    """G8, G1: what was in hand by them is found by the repair."""
    task_id = store.create_task(new(START - 5).as_mapping())
    (claim,) = store.claim(QUEUE, "me", 1, 30)
    (key,) = store.bucket.keys("leases/")
    store.bucket.objects[key] = body.replace(b"ID", task_id.encode())
    assert store.extend([claim.token], 30) == [claim.token]
    store.next_look_at(QUEUE)
    assert store.lapsed(QUEUE, "me", 1, 30) == []
    good = store.create_task(new().as_mapping())
    assert [claim.record.id for claim in store.claim(QUEUE, "me", 5, 30)] == [good]
    clock.tick(31)
    store.repair()
    assert {claim.record.id for claim in store.lapsed(QUEUE, "me", 5, 30)} == {task_id, good}


@pytest.mark.parametrize("body", [b"", b"{}", b'{"after":1,"at":0}', b'{"after":"","at":"long ago"}'])
def test_the_repair_begins_anew_where_nobody_can_read_how_far_it_is(
    store: MemoryS3Persister, clock: FakeClock, body: bytes
) -> None:
    """G8"""
    store.create_task(new().as_mapping())
    del store.bucket.objects[store.bucket.keys("due/")[0]]
    store.bucket.objects["repair"] = body
    clock.tick(31)  # by which its session begins to look
    store._session().repair.go_on()
    assert store.bucket.keys("due/")


def test_a_batch_that_cannot_be_read_holds_up_no_other(store: MemoryS3Persister, clock: FakeClock) -> None:
    """G8, G1"""

    def cut_short(request: str, key: str) -> None:
        if request == "put" and not key.startswith("batches/"):
            raise Killed

    store.find("nothing")
    store.bucket.before = cut_short
    with pytest.raises(Killed):
        store.create_many([new(), new()])
    store.bucket.before = lambda request, key: None
    assert store.select() == []
    store.bucket.objects[f"batches/{0:014x}-{0:012x}"] = b"{}"
    clock.tick(1000)
    assert store.repair() > 0
    assert len(store.select()) == 2
