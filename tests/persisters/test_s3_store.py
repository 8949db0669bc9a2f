"""What is peculiar to the S3 store: its index, what it costs, and what it shows."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from procrastinate_py.core.errors import ConfigurationError, PersisterError
from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.core.lifecycle import Complete, Release
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import S3Persister, open_persister
from procrastinate_py.persisters._s3_keys import hint_key, hint_of
from procrastinate_py.persisters._s3_repair import EVERY, PAGE
from procrastinate_py.persisters._s3_tasks import Tasks
from procrastinate_py.runtime.looks import Looks
from procrastinate_py.testing.clock import FakeClock
from tests.persisters.s3_memory import MemoryS3Persister
from tests.persisters.test_s3_faults import Killed, worlds

START = 1_000_000
QUEUE = "q"


def new(run_at: int = START, queue: str = QUEUE) -> NewTask:
    return NewTask(queue=queue, run_at=run_at, initial_run_at=run_at, expire_at=None, task="!a:B {}")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def store(clock: FakeClock) -> Any:
    store = MemoryS3Persister(clock=clock)
    yield store
    store.close()


# --- the order of writing


def _hint_last(tasks: Tasks, version: Any, after: Any) -> Any:
    from procrastinate_py.persisters._s3_tasks import Gone, Version, task_key

    if isinstance(after, Gone):
        return write(tasks, version, after)
    etag = tasks._bucket.put(task_key(version.stored.record.id), after.encoded(), version.etag)
    tasks.put_hint(after.hint)
    return Version(after, etag)


write: Callable[..., Any] = Tasks._write


def test_a_hint_that_is_written_too_late_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of being cut short find a store that writes a task before its hint (G1)."""
    monkeypatch.setattr(Tasks, "_write", _hint_last)
    with pytest.raises(AssertionError):
        for world, _ in worlds("edit", Killed, "before"):
            assert set(world.created) <= set(world.drained())


# --- the index


def test_tasks_whose_index_was_deleted_are_found_again(store: MemoryS3Persister) -> None:
    """G1: keys of the index are hints; the repair finds what they don't lead to any more."""
    waiting = [store.create_task(new(START + n).as_mapping()) for n in (0, 5)]
    held = store.create_task(new(START - 1).as_mapping())
    (claim,) = store.claim(QUEUE, "gone", 1, 30)
    assert claim.record.id == held
    for key in [*store.bucket.keys("due/"), *store.bucket.keys("leases/")]:
        del store.bucket.objects[key]
    fresh = store.open()
    assert fresh.next_look_at(QUEUE) is None
    assert fresh.repair() == 3
    assert fresh.repair() == 0
    assert [claim.record.id for claim in fresh.claim(QUEUE, "me", 9, 30)] == waiting[:1]
    assert [claim.record.id for claim in fresh.lapsed(QUEUE, "me", 9, 30)] == [held]
    assert fresh.settle([(claim.token, Complete())]) == [claim.token]


def test_workers_repair_page_by_page_and_share_how_far_they_are(store: MemoryS3Persister, clock: FakeClock) -> None:
    """G1: bounded work at a time, over all processes together."""
    store.create_many([new(START + 9) for _ in range(2 * PAGE + 10)])
    hints = store.bucket.keys("due/")
    for key in hints:
        del store.bucket.objects[key]
    for pages in (1, 2, 3):
        clock.tick(EVERY)
        for one in (store, store.open()):  # the second finds that it was done lately
            one._session().repair.go_on()
        assert len(store.bucket.keys("due/")) == min(pages * PAGE, len(hints))
    assert store.bucket.keys("due/") == hints
    clock.tick(EVERY)
    del store.bucket.objects[hints[0]]
    store._session().repair.go_on()
    assert store.bucket.keys("due/") == hints, "after the last page the first comes again"


def test_a_worker_repairs_by_itself(store: MemoryS3Persister, clock: FakeClock) -> None:
    task_id = store.create_task(new().as_mapping())
    for key in store.bucket.keys("due/"):
        del store.bucket.objects[key]
    store._session().repair._next_at = float("-inf")
    assert store.next_look_at(QUEUE) == START
    assert [claim.record.id for claim in store.claim(QUEUE, "me", 1, 30)] == [task_id]


def test_hints_that_lead_nowhere_go(store: MemoryS3Persister, clock: FakeClock) -> None:
    """A hint whose task isn't there yet is waited for, at growing pauses, and then removed."""
    task_id = store.create_task(new().as_mapping())
    del store.bucket.objects[f"tasks/{task_id}"]
    looks = 0
    while (look_at := store.next_look_at(QUEUE)) is not None:
        clock.move_to(max(clock.now(), look_at))
        assert store.claim(QUEUE, "me", 1, 30) == []
        looks += 1
    assert 5 < looks < 30
    assert store.bucket.keys("due/") == []


def test_a_hint_is_waited_for_by_nobody_who_has_other_tasks(store: MemoryS3Persister, clock: FakeClock) -> None:
    lonely = store.create_task(new(START - 5).as_mapping())
    body = store.bucket.objects.pop(f"tasks/{lonely}")
    good = store.create_task(new().as_mapping())
    assert [claim.record.id for claim in store.claim(QUEUE, "me", 1, 30)] == [good]
    store.bucket.objects[f"tasks/{lonely}"] = body
    assert [claim.record.id for claim in store.claim(QUEUE, "me", 1, 30)] == [lonely]


def test_an_object_of_a_stranger_stops_nobody(store: MemoryS3Persister) -> None:
    """G8"""
    ill, good = (store.create_task(new(START - n).as_mapping()) for n in (5, 1))
    for body in (b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"queue":1}', b'{"owner":"x","ends":3}'):
        store.bucket.objects[f"tasks/{ill}"] = body
        store.bucket.objects["tasks/strange"] = body
        store.bucket.objects["due/q/strange"] = body
        store.bucket.objects["batches/strange"] = body
        store.repair()
        (claim,) = store.claim(QUEUE, "me", 5, 30)
        assert claim.record.id == good
        assert store.settle([(claim.token, Release())]) == []
        assert [record.id for record in store.select()] == [good]
        with pytest.raises(PersisterError, match=ill):
            store.find(ill)


@pytest.mark.parametrize("queue", ["q", "", "a/b", "..", "\0", "\u00e9" * 300, "\udc80"])
def test_hints_sort_by_time_and_stay_within_their_queue(queue: str) -> None:
    """G8: no name leads out of its folder, and none is longer than S3 allows."""
    instants = [-(2**63), -1, 0, 1, 9, 10, 2**31, 2**63 - 1]
    keys = [hint_key(queue, at, "0" * 14 + "-" + "0" * 12, "0" * 16) for at in instants]
    assert keys == sorted(keys)
    assert [hint.run_at for hint in map(hint_of, keys) if hint] == instants
    assert all(key.count("/") == 3 and len(key) < 300 and ".." not in key.split("/") for key in keys)


# --- what it costs


def test_an_idle_worker_makes_two_requests_a_look(store: MemoryS3Persister, clock: FakeClock) -> None:
    """An hour at the default update_period of 10 s: 720 requests a queue, and none for what isn't due."""
    store.create_many([new(START + 86_400) for _ in range(20)])
    monotonic = 0.0
    looks = Looks(store, QUEUE, 10.0, clock.now, lambda: monotonic)
    looks.plan(found=False)
    store.bucket.requests.clear()
    for _ in range(360):
        monotonic = looks.next_at
        clock.tick(10)
        assert not looks.is_worth_a_claim()
    assert monotonic == pytest.approx(3600)
    assert store.bucket.requests == [("list", "due/q/"), ("list", "leases/q/")] * 360


def test_the_repair_of_an_idle_store_costs_little(store: MemoryS3Persister, clock: FakeClock) -> None:
    store.find("nothing")
    for _ in range(2):
        clock.tick(EVERY)
        store.bucket.requests.clear()
        store._session().repair.go_on()
    assert [request for request, _ in store.bucket.requests] == ["get", "list", "put", "list"]


def test_a_task_costs_five_requests_and_a_share_of_its_batch(store: MemoryS3Persister) -> None:
    store.find("nothing")
    store.bucket.requests.clear()
    for _ in range(50):
        store.create_task(new().as_mapping())
    assert len(store.bucket.requests) == 100
    claims = store.claim(QUEUE, "me", 50, 30)
    store.settle([(claim.token, Complete()) for claim in claims])
    assert len(store.bucket.requests) <= 5 * 50 + 8
    assert [key for key in store.bucket.objects if not key.startswith("trials/")] == []


def test_extending_all_that_a_claim_took_is_one_write(store: MemoryS3Persister) -> None:
    store.create_many([new() for _ in range(50)])
    claims = [*store.claim(QUEUE, "me", 40, 30), *store.claim(QUEUE, "me", 40, 30)]
    store.bucket.requests.clear()
    assert store.extend([claim.token for claim in claims], 30) == []
    assert [request for request, _ in store.bucket.requests] == ["put", "put"]
    assert store.extend([LeaseToken(claims[0].record.id, "x")], 30) == [LeaseToken(claims[0].record.id, "x")]


# --- batches


def test_a_batch_that_was_left_unfinished_is_put_in_place_once(store: MemoryS3Persister, clock: FakeClock) -> None:
    """U38: all or none; and a late helper brings back nothing that was done meanwhile."""

    def fail(request: str, key: str) -> None:
        if request == "put" and key.startswith("tasks/"):
            raise PersisterError("down")

    store.find("nothing")
    store.bucket.before = fail
    ids = store.create_many([new() for _ in range(3)])
    store.bucket.before = lambda request, key: None
    (batch,) = store.bucket.keys("batches/")
    body = store.bucket.objects[batch]
    helper = store.open()
    clock.tick(60)
    helper.repair()
    assert helper.claim(QUEUE, "me", 9, 30) == [], "whoever wrote it may be about to finish it"
    clock.tick(100)
    helper.repair()
    assert store.bucket.keys("batches/") == []
    claims = helper.claim(QUEUE, "me", 9, 30)
    assert [claim.record.id for claim in claims] == ids
    helper.settle([(claim.token, Complete()) for claim in claims[:2]])
    helper.settle([(claims[2].token, Release())])
    helper.delete_task(ids[2])
    store.bucket.objects[batch] = body
    store.open().repair()
    assert helper.claim(QUEUE, "me", 9, 30) == []
    assert helper.select() == []


# --- secrets, URLs, processes

SECRET = "wJalrXUtn+FEMI/K7MDENG"
SECRET_URL = (
    f"s3://bucket/some/prefix/?region=nowhere&access_key=AKIAIOSF&secret_key={SECRET}&endpoint=http://127.0.0.1:1"
)


def test_a_secret_key_shows_nowhere() -> None:
    """G8: neither in repr, nor in an error and what it was raised from."""
    store = open_persister(SECRET_URL)
    assert isinstance(store, S3Persister)
    assert repr(store) == "S3Persister('s3://bucket/some/prefix/ at http://127.0.0.1:1')"
    assert store._address.options["secret_key"] == SECRET, "a plus sign stays one"
    assert SECRET not in repr(store._address)
    with pytest.raises(PersisterError, match="s3://bucket/some/prefix/ at http://127.0.0.1:1: ") as raised:
        store.find("0" * 14 + "-" + "0" * 12)
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in f"{error!r} {error}" and "AKIAIOSF" not in f"{error!r} {error}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///prefix",
        f"s3://key:{SECRET}@bucket/prefix",
        f"s3://bucket/prefix?{SECRET}=1",
        f"s3://bucket/prefix?secret={SECRET}",
        f"s3://bucket/prefix#{SECRET}",
        f"s3://bucket/prefix?endpoint={SECRET}",
    ],
)
def test_a_url_that_is_none_is_refused_without_showing_it(url: str) -> None:
    """G8"""
    with pytest.raises(ConfigurationError) as raised:
        S3Persister(url)
    assert SECRET not in str(raised.value)


def test_a_persister_travels_to_another_process() -> None:
    there = pickle.loads(pickle.dumps(S3Persister(SECRET_URL)))
    assert there._url == SECRET_URL


def test_the_library_is_loaded_with_the_first_call() -> None:
    code = f"""
import sys
from procrastinate_py.persisters import open_persister
store = open_persister({SECRET_URL!r})
assert not [name for name in sys.modules if name.partition(".")[0] in ("botocore", "boto3", "urllib3")]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_library_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'procrastinate_py\[s3\]'"):
        S3Persister(SECRET_URL)
