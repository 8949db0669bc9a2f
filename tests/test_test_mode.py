"""Test mode: tasks worked by hand, by the same code as in a queue's process, under a clock that can be moved."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import time_machine
from freezegun import freeze_time

from procrastinate_py import (
    Environment,
    NoQueueError,
    Outcome,
    TaskExpiredError,
    TaskNotFoundError,
    TaskState,
    TaskTimeoutError,
    TestModeError,
    UnknownQueueError,
)
from procrastinate_py.core.codec import Codec
from procrastinate_py.persisters import MemoryPersister
from procrastinate_py.ports.clock import SystemClock
from procrastinate_py.runtime.logs import LogSettings, QueueLog
from procrastinate_py.runtime.worker import QueueWorker
from procrastinate_py.testing import FakeClock
from tests.environments import FLOORS, KINDS, NOW, Spy, env_on, persister


class Note:
    """Notes what it was called for; what ``run`` raises is looked up by its name."""

    noted: ClassVar[list[Any]] = []
    errors: ClassVar[dict[Any, BaseException]] = {}

    def __init__(self, name: Any) -> None:
        self.name = name
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        Note.noted.append(("run", self.name))
        if self.name in Note.errors:
            raise Note.errors[self.name]

    def success(self, logger: Any) -> None:
        logger.info("sent %s", self.name)
        Note.noted.append(("success", self.name))

    def fail(self, logger: Any, error: BaseException) -> None:
        Note.noted.append(("fail", self.name, error))

    def final_fail(self, logger: Any, error: BaseException) -> None:
        Note.noted.append(("final_fail", self.name, error))


def noted(what: str) -> list[Any]:
    return [entry[1] for entry in Note.noted if entry[0] == what]


@pytest.fixture(autouse=True)
def nothing_noted() -> Iterator[None]:
    Note.noted, Note.errors = [], {}
    yield


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def env(kind: str, tmp_path: Path) -> Iterator[Environment]:
    store = persister(kind, tmp_path)
    env = env_on(store, "email", "cleanup")
    yield env
    env.stop()
    if hasattr(store, "close"):
        store.close()


def clock_of(env: Environment) -> FakeClock:
    assert isinstance(env.clock, FakeClock)
    return env.clock


# --- act


def test_act_works_one_due_task_on_every_queue_in_definition_order(env: Environment) -> None:
    """E43 U15"""
    for name in ("c1", "c2"):
        env.delay("cleanup", task=Note(name))
    ids = [env.delay("email", task=Note(name)) for name in ("e1", "e2")]
    outcomes = env.act()
    assert noted("run") == ["e1", "c1"]
    assert outcomes[0] == Outcome(task_id=ids[0], state=TaskState.COMPLETED)
    assert [outcome.state for outcome in env.act()] == ["completed", "completed"]
    assert env.act() == []
    assert noted("run") == noted("success") == ["e1", "c1", "e2", "c2"]


def test_act_works_just_the_queues_that_are_named_in_their_order(env: Environment) -> None:
    """E43"""
    for queue in ("email", "cleanup"):
        for number in range(2):
            env.delay(queue, task=Note(f"{queue}{number}"))
    env.act("cleanup", "email")
    env.act("cleanup")
    assert noted("run") == ["cleanup0", "email0", "cleanup1"]


def test_an_idle_queue_gives_no_outcome(env: Environment) -> None:
    """U15"""
    env.delay("cleanup", task=Note("c"))
    assert [outcome.state for outcome in env.act()] == ["completed"]
    assert env.act("email") == []


def test_an_unknown_queue_is_told_before_anything_is_worked(env: Environment) -> None:
    """E43"""
    env.delay("email", task=Note("e"))
    with pytest.raises(UnknownQueueError, match="did you mean 'email'"):
        env.act("email", "emial")
    with pytest.raises(UnknownQueueError):
        env.drain("emial")
    assert noted("run") == []


def test_outside_test_mode_there_is_no_act(tmp_path: Path) -> None:
    """E43"""
    env = Environment(f"sqlite:///{tmp_path}/tasks.db")
    env.define_queue("email")
    for verb in (env.act, env.drain):
        with pytest.raises(TestModeError, match="test_mode=True"):
            verb()
    assert list(tmp_path.iterdir()) == []


def test_act_needs_a_queue() -> None:
    """E2"""
    with pytest.raises(NoQueueError):
        Environment(test_mode=True).act()


def test_there_is_no_process_no_file_and_no_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E43 E47"""
    monkeypatch.chdir(tmp_path)
    title = Path(f"/proc/{os.getpid()}/cmdline").read_bytes()
    forks: list[int] = []
    monkeypatch.setattr(os, "fork", lambda: forks.append(1))
    env = Environment(test_mode=True, log_level="DEBUG")
    env.define_queue("email")
    env.start()
    env.delay(Note("e"))
    assert len(env.act()) == 1
    assert env.processes == {}
    assert list(tmp_path.iterdir()) == forks == []
    assert Path(f"/proc/{os.getpid()}/cmdline").read_bytes() == title
    env.stop()


# --- what an attempt does


def test_tasks_start_in_order_of_run_at_then_id(env: Environment) -> None:
    """E11"""
    for name, run_at in (("late", NOW), ("b", NOW - 10), ("c", NOW - 10), ("first", 5), ("d", NOW - 10)):
        env.delay("email", task=Note(name), run_at=run_at)
    env.drain()
    assert noted("run") == ["first", "b", "c", "d", "late"]


def test_a_task_is_not_run_before_its_time(env: Environment) -> None:
    """E11 E46"""
    env.delay("email", task=Note("e"), run_at=NOW + 10)
    assert env.act() == []
    clock_of(env).move_to(NOW + 9.999)
    assert env.act() == []
    clock_of(env).move_to(NOW + 10)
    assert len(env.act()) == 1


def test_a_failure_is_rescheduled_with_what_the_task_changed_on_itself(env: Environment) -> None:
    """E45 E23 E27"""
    Note.errors["e"] = error = ValueError("no luck")
    task_id = env.delay("email", task=Note("e"))
    assert env.act() == [Outcome(task_id=task_id, state=TaskState.PENDING, error=error)]
    record = env.find(task_id)
    assert (record.attempts, record.run_at, record.last_fail_at) == (1, NOW + 31, NOW)
    assert record.last_error is not None
    assert record.last_error.startswith("Task failed: no luck\nTraceback")
    assert record.load().runs == 1
    assert Note.noted[-1] == ("fail", "e", error)
    assert env.act() == []
    clock_of(env).tick(31)
    env.act()
    assert env.find(task_id).load().runs == 2
    assert env.find(task_id).run_at == NOW + 31 + 30 + 16


def test_the_queues_max_attempts_reach_its_tasks(kind: str, tmp_path: Path) -> None:
    """E11 E28"""
    env = env_on(persister(kind, tmp_path))
    env.define_queue("email", max_attempts=2, backoff=lambda n: 0)
    Note.errors["e"] = error = ValueError("no")
    task_id = env.delay(Note("e"))
    assert [outcome.state for outcome in env.drain()] == ["pending", "failed"]
    assert [entry[0] for entry in Note.noted] == ["run", "fail", "run", "final_fail"]
    assert Note.noted[-1] == ("final_fail", "e", error)
    if kind not in FLOORS:
        assert env.find(task_id).state == "failed"
    clock_of(env).tick(10**9)
    assert env.act() == []
    env.stop()


class Sleeper:
    gone_on = threading.Event()

    def run(self) -> None:
        while not self.gone_on.wait(0.001):
            pass


def test_the_queues_timeout_reaches_its_tasks_though_the_clock_stands_still(kind: str, tmp_path: Path) -> None:
    """E11 E32"""
    env = env_on(persister(kind, tmp_path))
    env.define_queue("email", timeout=0.05)
    env.delay(Sleeper())
    (outcome,) = env.act()
    assert outcome.state == "pending"
    assert isinstance(outcome.error, TaskTimeoutError)
    env.stop()


def test_an_expired_task_is_not_run(env: Environment) -> None:
    """E45 E24"""
    task_id = env.delay("email", task=Note("e"), expire_at=NOW + 5)
    clock_of(env).tick(10)
    (outcome,) = env.act()
    assert (outcome.task_id, outcome.state) == (task_id, "expired")
    assert isinstance(outcome.error, TaskExpiredError)
    assert [entry[0] for entry in Note.noted] == ["final_fail"]


def test_it_ends_as_in_a_queues_process() -> None:
    """E45"""

    def errors() -> dict[Any, BaseException]:
        return {"fails": ValueError("no"), "exits": SystemExit(3)}

    names = ["succeeds", "fails", "exits"]
    by_hand, by_worker = MemoryPersister(), MemoryPersister()
    for store in (by_hand, by_worker):
        env = env_on(store, "email")
        env.delay_many([("email", Note(name)) for name in names])
        env.delay(Note("expires"), run_at=NOW - 9, expire_at=NOW - 5)
    env.stop()

    env = env_on(by_hand, "email")
    env.codec.registry.see(Note)
    Note.errors = errors()
    env.drain()
    env.stop()
    hands = repr(Note.noted)
    Note.noted, Note.errors = [], errors()

    clock = FakeClock(NOW + 0.75)
    by_worker.use_clock(clock)
    log = QueueLog(LogSettings(), "email")
    worker = QueueWorker(
        spec=replace(env.queues["email"], max_tasks=1),
        store=by_worker,
        codec=Codec(env.codec.registry),
        now=clock.now,
        monotonic=SystemClock().monotonic,
        log=log,
        owner="somebody",
    )
    worker.step()
    while not worker.holds_nothing:
        threading.Event().wait(0.001)
        worker.step()
    worker.close()

    assert hands == repr(Note.noted)
    rows = [[replace(row, read_at=0.0) for row in store.select()] for store in (by_hand, by_worker)]
    assert rows[0] == rows[1]
    assert [row.state for row in rows[0]] == ["pending", "pending", "expired"]


# --- errors of the persister


@pytest.mark.parametrize("call", ["create_task", "read_tasks"])
def test_errors_of_the_persister_reach_the_caller(call: str) -> None:
    """E45"""
    spy = Spy()
    env = env_on(spy, "email")
    spy.failing = {call}
    with pytest.raises(OSError, match=f"{call} is down"):
        env.delay(Note("e"))
        env.act()
    assert noted("run") == []
    env.stop()


def test_an_outcome_that_could_not_be_written_is_kept_and_the_body_not_run_again() -> None:
    """U11 E33"""
    spy = Spy()
    env = env_on(spy, "email")
    Note.errors["\u00e9"] = error = ValueError("caf\u00e9")
    task_id = env.delay(Note("\u00e9"))
    env.delay(Note("other"))
    spy.failing = {"update_task"}
    for _ in range(2):
        spy.calls.clear()
        with pytest.raises(OSError, match="update_task is down"):
            env.act()
        full, short = [attributes["last_error"] for name, attributes in spy.calls if name == "update_task"]
        assert full.startswith("Task failed: caf\u00e9\nTraceback")
        assert short == "Task failed: caf?"
    spy.failing = set()
    assert env.act() == [Outcome(task_id=task_id, state=TaskState.PENDING, error=error)]
    assert noted("run") == ["\u00e9"]
    assert spy.rows[task_id]["attempts"] == 1
    assert len(env.act()) == 1
    assert noted("run") == ["\u00e9", "other"]
    env.stop()


def test_a_success_that_could_not_be_written_is_not_run_again() -> None:
    """U11"""
    spy = Spy()
    env = env_on(spy, "email")
    env.delay(Note("e"))
    spy.failing = {"delete_task"}
    with pytest.raises(OSError, match="delete_task is down"):
        env.act()
    spy.failing = set()
    assert [outcome.state for outcome in env.drain()] == ["completed"]
    assert noted("run") == ["e"]
    assert spy.rows == {}
    env.stop()


def test_every_act_reads_anew() -> None:
    """E45"""
    spy = Spy()
    env = env_on(spy, "email")
    ids = [env.delay(Note(name)) for name in "abc"]
    env.act()
    del spy.rows[ids[1]]
    env.drain()
    assert noted("run") == ["a", "c"]
    env.stop()


# --- drain


class Chain:
    env: Environment

    def __init__(self, left: int) -> None:
        self.left = left

    def run(self) -> None:
        Note.noted.append(("run", self.left))
        if self.left:
            Chain.env.delay("cleanup", task=Chain(self.left - 1))


def test_drain_acts_until_nothing_is_due_what_tasks_delay_included(env: Environment) -> None:
    """E44 E18"""
    Chain.env = env
    env.delay("email", task=Chain(3))
    env.delay("email", task=Note("later"), run_at=NOW + 100)
    assert len(env.drain()) == 4
    assert noted("run") == [3, 2, 1, 0]
    assert env.count() == 1


def test_drain_works_just_the_queues_that_are_named(env: Environment) -> None:
    """E44"""
    env.delay("email", task=Note("e"))
    env.delay("cleanup", task=Note("c"))
    assert len(env.drain("cleanup")) == 1
    assert noted("run") == ["c"]


class Stamp:
    env: Environment

    def run(self) -> None:
        Note.noted.append(("run", Stamp.env.clock.now()))


def test_drain_until_moves_through_the_run_at_instants(env: Environment) -> None:
    """E44"""
    Stamp.env = env
    for seconds in (100, 5, 50, 101):
        env.delay("email", task=Stamp(), run_at=NOW + seconds)
    assert len(env.drain(until=NOW + 100)) == 3
    assert noted("run") == [NOW + 5, NOW + 50, NOW + 100]
    assert clock_of(env).now() == NOW + 100
    assert env.count() == 1


def test_drain_until_goes_through_retries(env: Environment) -> None:
    """E44 E27"""
    Note.errors["e"] = ValueError("no")
    env.delay("email", task=Note("e"))
    outcomes = env.drain(until=timedelta(minutes=2))
    assert [outcome.state for outcome in outcomes] == ["pending"] * 3
    assert clock_of(env).now() == NOW + 0.75 + 120


def test_drain_until_the_past_or_now_is_a_plain_drain(env: Environment) -> None:
    """E44"""
    env.delay("email", task=Note("e"))
    assert len(env.drain(until=NOW - 100)) == 1
    assert clock_of(env).now() == NOW + 0.75


@pytest.mark.parametrize(("until", "error"), [(float("nan"), ValueError), ("soon", TypeError), (True, TypeError)])
def test_drain_until_takes_an_instant(until: Any, error: type[Exception]) -> None:
    """E44 E16"""
    env = env_on(None, "email")
    with pytest.raises(error, match="until"):
        env.drain(until=until)


def test_drain_until_on_a_real_clock_is_refused_and_tells_how() -> None:
    """U12 E44"""
    env = Environment(test_mode=True)
    env.define_queue("email")
    env.delay(Note("e"))
    with pytest.raises(TestModeError, match=r"FakeClock.*freezegun"):
        env.drain(until=timedelta(days=1))
    assert noted("run") == []


# --- time


def test_freezegun_freezes_the_one_clock() -> None:
    """E46"""
    with freeze_time("2030-01-01 12:00:00") as frozen:
        env = Environment(test_mode=True)
        env.define_queue("email")
        Note.errors["e"] = ValueError("no")
        task_id = env.delay(Note("e"))
        assert env.find(task_id).run_at == 1893499200
        env.act()
        assert env.find(task_id).run_at == 1893499200 + 31
        assert env.act() == []
        frozen.tick(timedelta(seconds=31))
        assert len(env.act()) == 1
        assert env.find(task_id).last_fail_at == 1893499231
    env.stop()


def test_time_machine_freezes_the_one_clock() -> None:
    """E46"""
    with time_machine.travel(1893499200, tick=False) as traveller:
        env = Environment(test_mode=True)
        env.define_queue("email")
        task_id = env.delay(Note("e"), run_at=timedelta(hours=1))
        assert env.find(task_id).run_at == 1893499200 + 3600
        assert env.act() == []
        traveller.shift(3600)
        assert len(env.act()) == 1
    env.stop()


class ReadsTheTime:
    def run(self) -> None:
        Note.noted.append(("run", datetime.now(UTC)))


@pytest.mark.parametrize("freeze", [freeze_time, lambda when: time_machine.travel(when, tick=False)])
def test_drain_until_moves_a_frozen_time(freeze: Any, tmp_path: Path) -> None:
    """E44 E46 U12"""
    with freeze("2030-01-01T12:00:00Z"):
        env = Environment(f"sqlite:///{tmp_path}/tasks.db", test_mode=True)
        env.define_queue("email")
        env.delay(Note("a"), run_at=timedelta(hours=2))
        env.delay(ReadsTheTime(), run_at=timedelta(hours=1))
        assert len(env.drain(until=timedelta(hours=3))) == 2
        assert noted("run") == [datetime(2030, 1, 1, 13, tzinfo=UTC), "a"]
        assert env.now() == 1893499200 + 3 * 3600
    env.stop()


def test_a_fake_clock_moves_as_told() -> None:
    """U12"""
    clock = FakeClock(NOW)
    env = Environment(test_mode=True, clock=clock)
    env.define_queue("email")
    assert env.now() == clock.now() == NOW
    clock.tick(5)
    clock.move_to(datetime.fromtimestamp(NOW + 60, UTC))
    assert env.now() == NOW + 60


# --- looking


def test_found_records_are_as_stored_and_can_be_loaded(env: Environment) -> None:
    """U13 U15"""
    task_id = env.delay("cleanup", task=Note("c"), run_at=NOW + 10, expire_at=NOW + 20)
    record = env.find(task_id)
    assert (record.id, record.queue, record.run_at, record.expire_at) == (task_id, "cleanup", NOW + 10, NOW + 20)
    assert (record.attempts, record.state, record.last_error) == (0, "pending", None)
    assert record.load().name == "c"
    assert [found.load().name for found in env.tasks()] == ["c"]


def test_what_is_absent_or_completed_is_not_found(env: Environment) -> None:
    """U15"""
    task_id = env.delay("email", task=Note("e"))
    with pytest.raises(TaskNotFoundError, match="99"):
        env.find(99)
    env.act()
    with pytest.raises(TaskNotFoundError) as told:
        env.find(task_id)
    assert isinstance(told.value, LookupError)
    assert env.tasks() == []


def test_tasks_are_filtered_and_paged(env: Environment) -> None:
    Note.errors["bad"] = ValueError("no")
    ids = [env.delay("email", task=Note("bad")), env.delay("cleanup", task=Sleeper()), env.delay("email", task=Note(3))]
    env.act("email")

    def found(**filters: Any) -> list[Any]:
        return [record.id for record in env.tasks(**filters)]

    assert found() == ids
    assert found(queue="email") == [ids[0], ids[2]]
    assert found(task=Note) == [ids[0], ids[2]]
    assert found(task=f"{__name__}:Sleeper") == [ids[1]]
    assert found(state="pending") == found(state=TaskState.PENDING) == ids
    assert found(state="failed") == []
    assert found(limit=2) == ids[:2]
    assert found(after=ids[0]) == ids[1:]
    assert found(after=ids[0], limit=1) == [ids[1]]
    assert found(after=ids[2]) == []
    assert (env.count(), env.count("email"), env.count(state="failed")) == (3, 2, 0)
    assert env.counts() == {("email", TaskState.PENDING): 2, ("cleanup", TaskState.PENDING): 1}


@pytest.mark.parametrize(
    ("filters", "error", "words"),
    [
        ({"queue": "emial"}, UnknownQueueError, "did you mean 'email'"),
        ({"state": "done"}, ValueError, "completed"),
        ({"limit": 0}, ValueError, "limit"),
        ({"limit": True}, ValueError, "limit"),
    ],
)
def test_a_wrong_filter_is_told(filters: Any, error: type[Exception], words: str) -> None:
    env = env_on(None, "email")
    with pytest.raises(error, match=words):
        env.tasks(**filters)


def test_what_a_store_of_four_methods_holds_is_looked_at_row_by_row() -> None:
    """E19 U9"""
    spy = Spy()
    env = env_on(spy, "email")
    dead = env.delay(Note("dead"))
    spy.rows[dead] |= {"run_at": None, "last_error": "Task failed too many times: no"}
    spy.rows["x"] = {"queue": "email", "id": None, "run_at": 3}  # type: ignore[index]
    spy.rows["y"] = {"queue": "email", "id": "y", "run_at": "soon"}  # type: ignore[index]
    spy.rows["z"] = {"queue": "email", "id": "z", "run_at": "5", "task": "!x {}"}  # type: ignore[index]
    spy.inner.read_tasks = lambda queue: list(spy.rows.values())  # type: ignore[method-assign]
    assert [record.id for record in env.tasks()] == [dead, "z"]
    assert [record.state for record in env.tasks()] == ["failed", "pending"]
    assert [record.id for record in env.tasks(after=dead)] == ["z"]
    assert env.counts() == {("email", TaskState.FAILED): 1, ("email", TaskState.PENDING): 1}
    assert env.find(dead).state == "failed"
