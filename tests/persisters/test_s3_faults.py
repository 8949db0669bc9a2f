"""Wherever an S3 worker is cut short, and whatever reply is lost: no task is, and none is done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from procrastinate_py.core.errors import PersisterUnavailableError
from procrastinate_py.core.lifecycle import Complete, Release, Reschedule
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import _s3_bucket
from procrastinate_py.persisters._s3_bucket import Hung, Refused, ReplyLost
from procrastinate_py.persisters._s3_pool import AT_ONCE
from procrastinate_py.ports.persister import IncompleteSettle
from procrastinate_py.testing.clock import FakeClock
from tests.persisters.s3_memory import MemoryBucket, MemoryS3Persister

START = 1_000_000
QUEUE = "q"
LEASE = 30.0


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_s3_bucket, "_PAUSES", (0.0, 0.0))


class Killed(BaseException):
    """The process ends here."""


def new(run_at: int = START, text: str = "!a:B {}") -> NewTask:
    return NewTask(queue=QUEUE, run_at=run_at, initial_run_at=run_at, expire_at=None, task=text)


class World:
    """One worker, which is cut short, and what is known of tasks outside the store."""

    def __init__(self) -> None:
        self.clock = FakeClock(START)
        self.bucket = MemoryBucket()
        self.store = MemoryS3Persister(self.bucket, self.clock)
        self.store.find("nothing")  # it's tried out by now
        self.created: list[str] = []
        self.maybe_created = 0
        self.done: list[str] = []
        self.unsure: set[str] = set()
        """Whose settling was begun."""

    # --- what a worker does

    def create(self) -> None:
        self.maybe_created = 1
        self.created.append(self.store.create_task(new().as_mapping()))
        self.maybe_created = 0

    def create_many(self) -> None:
        self.maybe_created = 3
        self.created += self.store.create_many([new(), new(), new()])
        self.maybe_created = 0

    def complete(self) -> None:
        self._settle(Complete())

    def put_off(self) -> None:
        self._settle(Reschedule(run_at=START + 5, attempts=1, last_fail_at=START, last_error="Task failed: x"))

    def release(self) -> None:
        self._settle(Release())

    def _settle(self, way: Any) -> None:
        claims = self.store.claim(QUEUE, "worker", 10, LEASE)
        if isinstance(way, Complete):
            self.unsure |= {claim.record.id for claim in claims}
        lost = self.store.settle([(claim.token, way) for claim in claims])
        assert lost == []
        if isinstance(way, Complete):
            self.done += [claim.record.id for claim in claims]
            self.unsure.clear()

    def reap(self) -> None:
        self.store.claim(QUEUE, "long gone", 10, LEASE)
        self.clock.tick(LEASE + 1)
        self.store.lapsed(QUEUE, "worker", 10, LEASE)

    def extend(self) -> None:
        claims = self.store.claim(QUEUE, "worker", 10, LEASE)
        assert self.store.extend([claim.token for claim in claims], LEASE) == []

    def edit(self) -> None:
        for task_id in self.created:
            record = self.store.find(task_id)
            assert record is not None
            way = Reschedule(run_at=START + 7, attempts=0, last_fail_at=START, last_error="moved")
            assert self.store.transition(task_id, record, way)

    def update(self) -> None:
        for task_id in self.created:
            record = self.store.find(task_id)
            assert record is not None
            self.store.update_task({**record.as_mapping(), "run_at": START + 9})

    # --- what others find

    def drained(self) -> list[str]:
        """All that a worker of another process gets to do, until there's nothing to look for any more."""
        store = self.store.open()
        ids: list[str] = []
        for _ in range(50):
            look_at = store.next_look_at(QUEUE)
            if look_at is None:
                return ids
            self.clock.move_to(max(self.clock.now() + 20, look_at + 0.5))
            claims = [*store.claim(QUEUE, "other", 10, LEASE), *store.lapsed(QUEUE, "other", 10, LEASE)]
            assert store.settle([(claim.token, Complete()) for claim in claims]) == []
            ids += [claim.record.id for claim in claims]
        raise AssertionError(f"there's always something to look for: {sorted(self.bucket.objects)}")


ROUTINES: dict[str, Callable[[World], None]] = {
    "create": World.create,
    "create many": World.create_many,
    "complete": World.complete,
    "put off": World.put_off,
    "release": World.release,
    "reap": World.reap,
    "extend": World.extend,
    "edit": World.edit,
    "update": World.update,
}


def worlds(routine: str, error: type[BaseException], moment: str) -> Iterator[tuple[World, BaseException | None]]:
    """A world for each request of the routine, in which that one fails, and what the routine raised."""
    for number in range(1, 200):
        world = World()
        for _ in range(2):
            world.create()
        left = number

        def fail(request: str, key: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise error(f"{request} {key}")

        setattr(world.bucket, moment, fail)
        raised: BaseException | None = None
        try:
            ROUTINES[routine](world)
        except (Killed, PersisterUnavailableError, IncompleteSettle) as ended:
            raised = ended
        setattr(world.bucket, moment, lambda request, key: None)
        if left > 0:
            assert number > 2, "the routine made hardly a request"
            return
        yield world, raised
    raise AssertionError("the routine never ends")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("routine", ROUTINES)
def test_a_worker_killed_at_any_request_loses_no_task(routine: str, moment: str) -> None:
    """G1, U38: found by what workers do anyway, without the repair; a batch alone may wait for it."""
    for world, _ in worlds(routine, Killed, moment):
        if routine == "create many":
            world.clock.tick(1000)
            world.store.open().repair()
        drained = world.drained()
        assert len(drained) == len(set(drained)), "a task was done twice"
        assert not set(drained) & set(world.done)
        assert set(world.created) <= {*drained, *world.done, *world.unsure}
        more = len(set(drained) - set(world.created))
        assert more in ((0, world.maybe_created) if world.maybe_created else (0,)), "some, but not all"


@pytest.mark.parametrize(("error", "moment"), [(ReplyLost, "after"), (Refused, "before"), (Refused, "after")])
@pytest.mark.parametrize("routine", ROUTINES)
def test_one_lost_reply_is_got_over_without_anybody_noticing(
    routine: str, error: type[BaseException], moment: str
) -> None:
    """U38, G7: the write happened and its reply was lost; or it was refused, and repeated; or the refusal was a lie."""
    for world, raised in worlds(routine, error, moment):
        assert raised is None
        drained = world.drained()
        assert sorted([*drained, *world.done]) == sorted(world.created)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("routine", ROUTINES)
def test_a_request_that_hangs_loses_no_task(routine: str, moment: str) -> None:
    """G7: it isn't repeated by the store, since that would take as long again; the call may fail."""
    for world, _ in worlds(routine, Hung, moment):
        if routine == "create many":
            world.clock.tick(1000)
            world.store.open().repair()
        drained = world.drained()
        assert len(drained) == len(set(drained)), "a task was done twice"
        assert set(world.created) <= {*drained, *world.done, *world.unsure}


@pytest.mark.parametrize("routine", ROUTINES)
def test_nothing_is_left_behind_in_the_end(routine: str) -> None:
    """G10: but for how far the repair is, once tombstones aren't needed any more."""
    for world, _ in worlds(routine, Killed, "after"):
        world.clock.tick(1000)
        world.store.open().repair()
        world.drained()
        world.clock.tick(100_000)
        world.store.open().repair()
        world.drained()
        assert [key for key in world.bucket.objects if not key.startswith("trials/")] == []


def test_a_settle_whose_reply_hung_is_told_as_lost_when_repeated() -> None:
    """U38"""
    world = World()
    world.create()
    (claim,) = world.store.claim(QUEUE, "worker", 1, LEASE)

    def hang(request: str, key: str) -> None:
        if request == "put" and key.startswith("tasks/"):
            raise Hung("no answer")

    world.bucket.after = hang
    with pytest.raises(IncompleteSettle, match="no answer"):
        world.store.settle([(claim.token, Complete())])
    world.bucket.after = lambda request, key: None
    assert world.store.settle([(claim.token, Complete())]) == [claim.token]
    assert world.drained() == []


def test_a_server_that_hangs_is_not_waited_for_once_for_each_task() -> None:
    """G7, E32: whoever waits for it has leases to extend and limits to watch."""
    world = World()
    many = 10 * AT_ONCE
    ids = world.store.create_many([new() for _ in range(many)])
    hung: list[str] = []

    def hang(request: str, key: str) -> None:
        if key.startswith("tasks/"):
            hung.append(key)
            raise Hung("no answer")

    claims = world.store.claim(QUEUE, "worker", many, LEASE)
    world.bucket.before = hang
    with pytest.raises(IncompleteSettle, match="no answer") as raised:
        world.store.settle([(claim.token, Release()) for claim in claims])
    assert len(hung) <= AT_ONCE
    assert set(raised.value.failures) == {claim.token for claim in claims}
    world.clock.tick(LEASE + 1)
    hung.clear()
    with pytest.raises(PersisterUnavailableError, match="no answer"):
        world.store.lapsed(QUEUE, "worker", many, LEASE)
    assert len(hung) <= AT_ONCE
    world.bucket.before = lambda request, key: None
    assert sorted(world.drained()) == sorted(ids)


def test_a_settle_that_can_only_write_some_tells_which() -> None:
    """G7"""
    world = World()
    for _ in range(3):
        world.create()
    claims = world.store.claim(QUEUE, "worker", 3, LEASE)
    ill = claims[1].record.id

    def fail(request: str, key: str) -> None:
        if request == "put" and ill in key:
            raise Refused("slow down")

    world.bucket.before = fail
    with pytest.raises(IncompleteSettle, match="slow down") as raised:
        world.store.settle([(claim.token, Complete()) for claim in claims])
    assert list(raised.value.failures) == [claims[1].token]
    world.bucket.before = lambda request, key: None
    assert world.store.settle([(claims[1].token, Complete())]) == []
    assert world.bucket.keys("tasks/") == []
