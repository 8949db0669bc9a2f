"""The coordinator at work in a thread, as in a queue's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py.core.errors import TaskTimeoutError, WorkerDiedError
from procrastinate_py.core.lifecycle import Abandoned
from procrastinate_py.core.task import TaskState
from procrastinate_py.runtime.deaths import HUNG
from procrastinate_py.runtime.events import Heartbeat
from procrastinate_py.runtime.executor import BodyThread
from procrastinate_py.runtime.in_hand import BODY, RECOVERY, Begun, InHandFile, LastWords, key_of
from procrastinate_py.runtime.reaper import Reaper
from procrastinate_py.runtime.stop import Exit

from .workbench import PATIENCE, START, Bench, Running, Told

SEEN: list[Any] = []
GATES: dict[str, threading.Event] = {}
LOCK = threading.Lock()


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    SEEN.clear()
    GATES.clear()
    yield
    for gate in GATES.values():
        gate.set()


def gate(name: str) -> threading.Event:
    with LOCK:
        return GATES.setdefault(name, threading.Event())


class Notes:
    def __init__(self, name: Any) -> None:
        self.name = name

    def run(self) -> None:
        SEEN.append(self.name)

    def fail(self, logger: Any, error: BaseException) -> None:
        SEEN.append(("fail", self.name, error))

    def final_fail(self, logger: Any, error: BaseException) -> None:
        SEEN.append(("final_fail", self.name, error))


class Waits(Notes):
    """Begins, then runs until its gate opens."""

    def run(self) -> None:
        SEEN.append(("began", self.name))
        gate(f"{self.name} began").set()
        gate(self.name).wait()
        SEEN.append(("ended", self.name))


class LoopsUntilInterrupted(Notes):
    def run(self) -> None:
        gate(f"{self.name} began").set()
        while True:
            pass


def begun(name: str) -> None:
    assert gate(f"{name} began").wait(PATIENCE), f"{name} didn't begin"


@pytest.mark.parametrize("floor", [False, True])
def test_everything_due_is_worked_and_what_is_not_stays(floor: bool) -> None:
    """E11, E35"""
    bench = Bench(floor=floor)
    for number in range(1200):
        bench.delay(Notes(number))
    later = bench.delay(Notes("later"), run_at=START + 3600)
    with Running(bench) as running:
        running.wait_settled(1200)
    assert sorted(SEEN) == list(range(1200))
    rows = bench.store.rows if floor else {record.id for record in bench.store.select()}
    assert set(rows) == {later}


def test_at_most_max_tasks_bodies_run_at_once() -> None:
    """E11"""
    bench = Bench(max_tasks=3)
    for name in "abcde":
        bench.delay(Waits(name))
    with Running(bench) as running:
        for name in "abc":
            begun(name)
        assert not gate("d began").is_set()
        gate("b").set()
        begun("d")
        for name in "acde":
            gate(name).set()
        running.wait_settled(5)


def test_one_long_task_does_not_hold_up_the_others() -> None:
    """E11: a claimed task must not sit behind a slow one."""
    bench = Bench(max_tasks=2)
    bench.delay(Waits("long"))
    for number in range(500):
        bench.delay(Notes(number))
    with Running(bench) as running:
        running.wait_settled(500)
        gate("long").set()
        running.wait_settled(1)


@pytest.mark.parametrize("floor", [False, True])
def test_a_machine_without_threads_to_give_stops_the_queue_only_as_long(
    floor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E37: nothing that was claimed is stranded, and none of it counts as an attempt."""
    refused = threading.Semaphore(0)
    may_start = threading.Event()
    start = BodyThread.start

    def scarce(thread: BodyThread) -> None:
        if not may_start.is_set():
            refused.release()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(BodyThread, "start", scarce)
    bench = Bench(floor=floor, max_tasks=2)
    for number in range(10):
        bench.delay(Notes(number))
    with Running(bench) as running:
        for _ in range(5):  # more than are claimed at once: what was, has been given back and claimed again
            assert refused.acquire(timeout=PATIENCE)
        may_start.set()
        while len(SEEN) < 10:
            running.wait_settled(1)
    assert sorted(SEEN) == list(range(10))
    assert bench.log.events("warning") == ["no_thread"]


def test_a_drain_finishes_what_runs_and_hands_back_the_rest_uncounted() -> None:
    """E39"""
    bench = Bench(max_tasks=1)
    running_id = bench.delay(Waits("a"))
    waiting = [bench.delay(Notes(number)) for number in range(3)]
    with Running(bench) as running:
        begun("a")
        running.stop.drain("told to", 3600)
        gate("a").set()
        assert running.wait_ended() is Exit.STOPPED
        assert running.worker.holds_nothing
    assert bench.store.find(running_id) is None
    for task_id in waiting:
        record = bench.find(task_id)
        assert (record.state, record.attempts, record.lease) == (TaskState.PENDING, 0, None)
    assert SEEN == [("began", "a"), ("ended", "a")]


def test_past_the_grace_what_runs_is_interrupted_and_handed_back_uncounted() -> None:
    """E39"""
    bench = Bench(timeout=None)
    task_id = bench.delay(LoopsUntilInterrupted("a"))
    with Running(bench) as running:
        begun("a")
        running.stop.drain("told to", 0.05)
        running.wait_ended()
    record = bench.find(task_id)
    assert (record.state, record.attempts, record.last_error) == (TaskState.PENDING, 0, None)
    assert SEEN == [], "no hook is called for what nobody failed at"


def test_a_stop_at_once_hands_back_even_a_body_that_will_not_end() -> None:
    """E39"""
    bench = Bench(timeout=None)
    task_id = bench.delay(Waits("a"))
    with Running(bench) as running:
        begun("a")
        running.stop.now("second signal")
        running.wait_ended()
        assert running.worker.holds_nothing
    record = bench.find(task_id)
    assert (record.state, record.attempts) == (TaskState.PENDING, 0)


def test_a_body_that_will_not_end_has_its_process_replaced_and_neighbours_finish() -> None:
    """E32"""
    bench = Bench(timeout=0.2, timeout_grace=0.2, max_tasks=2)
    stuck = bench.delay(Waits("stuck"))
    with Running(bench) as running:
        begun("stuck")
        assert running.wait_ended() is Exit.REPLACE
    record = bench.find(stuck)
    assert record.attempts == 1
    assert record.run_at is not None
    assert record.run_at >= START + 31
    ((hook, name, error),) = [entry for entry in SEEN if entry[0] == "fail"]
    assert (hook, name, type(error)) == ("fail", "stuck", TaskTimeoutError)


def test_a_body_that_ends_within_the_grace_costs_no_process() -> None:
    """E32"""
    bench = Bench(timeout=0.1, timeout_grace=3600, max_tasks=1)
    bench.delay(Waits("slow"))
    with Running(bench) as running:
        running.wait_settled(1)
        gate("slow").set()
        bench.delay(Notes("next"))
        running.worker.woken()
        running.inbox.poke()
        running.wait_settled(1)
        running.stop.drain("told to", 3600)
        assert running.wait_ended() is Exit.STOPPED
    assert "next" in SEEN


class FailsTheStore:
    """Stands in front of a store and raises where it's told to."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.failing: set[str] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.failing:
                raise OSError(f"{name} is down")
            return method(*arguments, **options)

        return call


class Hurried:
    """A monotonic clock on which the pauses of an outage take no time."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __call__(self) -> float:
        return float(self._real() * 100)


@contextmanager
def poked(running: Running) -> Iterator[None]:
    """Wakes the worker again and again, since it doesn't know that its clock is fast."""
    over = threading.Event()

    def poke() -> None:
        while not over.wait(0.002):
            running.inbox.poke()

    thread = threading.Thread(target=poke)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("call", ["claim", "settle", "next_look_at", "lapsed"])
def test_an_outage_is_told_once_and_nothing_is_lost_or_done_twice(call: str) -> None:
    """E37, U25"""
    bench = Bench()
    bench.monotonic = Hurried(bench.monotonic)  # type: ignore[assignment]
    store = FailsTheStore(bench.store)
    store.failing.add(call)
    for number in range(5):
        bench.delay(Notes(number))
    failed_thrice = threading.Event()
    with Running(bench, store=Counted(store, call, failed_thrice)) as running, poked(running):
        assert failed_thrice.wait(PATIENCE)
        store.failing.clear()
        running.wait_settled(5)
        # A next_look_at that failed is only made up for after the tasks are settled.
        recovered = threading.Event()
        while "store_available" not in bench.log.events("info") and not recovered.wait(0.01):
            assert running.ending is None
    assert sorted(SEEN) == [0, 1, 2, 3, 4], "a body ran twice, or not at all"
    assert bench.log.events("warning").count("store_unavailable") == 1
    assert bench.log.events("info").count("store_available") == 1


class Counted:
    def __init__(self, store: FailsTheStore, call: str, enough: threading.Event) -> None:
        self._store = store
        self._call = call
        self._enough = enough

    def __getattr__(self, name: str) -> Any:
        if self._store.calls.count(self._call) >= 3:
            self._enough.set()
        return getattr(self._store, name)


def left(owner: str, *notes: Begun) -> LastWords:
    return LastWords((owner,), notes)


def test_what_a_dead_process_had_begun_counts_and_the_rest_does_not() -> None:
    """E38, U27"""
    bench = Bench(max_attempts=2)
    killer, bystander, last = (bench.delay(Notes(name)) for name in ("killer", "bystander", "last"))
    bench.store.claim("q", "dead", 3, 30)
    words = left("dead", Begun(key_of(killer), float("inf"), BODY))
    with Running(bench) as running:
        running.wait_settled(0)
        running.stop.drain("", 0)
        running.wait_ended()
    assert SEEN == []
    worker = bench.make_worker()
    worker.recover(words, "killed by SIGKILL")
    runs = Running(bench)
    runs.worker = worker
    with runs:
        settled_all(bench, {bystander, last})
    record = bench.find(killer)
    assert (record.state, record.attempts) == (TaskState.PENDING, 1)
    assert record.last_error is not None
    assert record.last_error.startswith("Task failed: worker died")
    assert "SIGKILL" in record.last_error
    ((hook, name, error),) = [entry for entry in SEEN if isinstance(entry, tuple)]
    assert (hook, name) == ("fail", "killer")
    assert isinstance(error, WorkerDiedError)
    assert sorted(entry for entry in SEEN if isinstance(entry, str)) == ["bystander", "last"]


def settled_all(bench: Bench, ids: set[Any]) -> None:
    done = threading.Event()
    for _ in range(int(PATIENCE * 100)):
        if not any(bench.store.find(task_id) for task_id in ids) and not any(
            record.lease for record in bench.store.select()
        ):
            return
        done.wait(0.01)
    pytest.fail("the worker didn't settle everything")


def test_a_hook_that_kills_the_process_is_not_called_a_third_time() -> None:
    """E38: else a process would be born and die for ever."""
    bench = Bench(max_attempts=2)
    killer = bench.delay(Notes("killer"))
    bench.store.claim("q", "dead", 1, 30)
    worker = bench.make_worker()
    worker.recover(left("dead", Begun(key_of(killer), float("inf"), RECOVERY)), "killed by SIGSEGV")
    runs = Running(bench)
    runs.worker = worker
    with runs:
        settled_all(bench, set())
    assert SEEN == []
    assert bench.find(killer).attempts == 1


def test_a_task_that_hung_its_process_past_its_deadline_timed_out() -> None:
    """U24"""
    bench = Bench()
    hog, neighbour = (bench.delay(Notes(name)) for name in ("hog", "neighbour"))
    bench.store.claim("q", "dead", 2, 30)
    notes = (Begun(key_of(hog), bench.monotonic() - 1, BODY), Begun(key_of(neighbour), bench.monotonic() + 1e6, BODY))
    worker = bench.make_worker()
    worker.recover(left("dead", *notes), HUNG)
    runs = Running(bench)
    runs.worker = worker
    with runs:
        settled_all(bench, set())
    kinds = {name: type(error) for hook, name, error in SEEN}
    assert kinds == {"hog": TaskTimeoutError, "neighbour": WorkerDiedError}
    assert [bench.find(task_id).attempts for task_id in (hog, neighbour)] == [1, 1]


def test_a_lapsed_lease_of_another_host_counts_as_an_attempt() -> None:
    """G1"""
    bench = Bench()
    task_id = bench.delay(Notes("a"))
    bench.store.claim("q", "elsewhere", 1, 30)
    bench.clock.tick(31)
    with Running(bench) as running:
        running.wait_settled(1)
    record = bench.find(task_id)
    assert record.attempts == 1
    ((hook, _, error),) = SEEN
    assert hook == "fail"
    assert isinstance(error, WorkerDiedError)


def test_a_suspect_is_run_with_nothing_beside_it() -> None:
    """E38"""
    bench = Bench(max_tasks=5)
    first = bench.delay(Waits("first"), run_at=START - 9)
    suspect = bench.delay(Waits("suspect"), run_at=START - 8)
    bench.delay(Waits("last"), run_at=START - 7)
    record = bench.find(suspect)
    bench.store.update_task(
        record.as_mapping() | {"last_error": "Task failed: worker died while it ran", "attempts": 1}
    )
    with Running(bench) as running:
        begun("first")
        begun("last")
        assert not gate("suspect began").is_set()
        gate("first").set()
        gate("last").set()
        begun("suspect")
        bench.delay(Waits("after"))
        running.worker.woken()
        running.inbox.poke()
        running.wait_settled(2)
        assert not gate("after began").is_set()
        gate("suspect").set()
        begun("after")
        gate("after").set()
        running.wait_settled(2)
    assert first is not None


def test_leases_of_what_runs_are_extended() -> None:
    """G1: a lease of 30 s, extended every 10."""
    bench = Bench()
    bench.monotonic = Hurried(bench.monotonic)  # type: ignore[assignment]
    extended = threading.Event()
    real = bench.store.extend

    def extend(tokens: Any, lease_for: float) -> Any:
        assert lease_for == 30
        extended.set()
        return real(tokens, lease_for)

    bench.store.extend = extend
    bench.delay(Waits("a"))
    with Running(bench) as running, poked(running):
        begun("a")
        assert extended.wait(PATIENCE)
        gate("a").set()
        running.wait_settled(1)


def test_a_lost_lease_is_logged_and_its_outcome_dropped() -> None:
    """G2"""
    bench = Bench()
    task_id = bench.delay(Waits("a"))
    with Running(bench) as running:
        begun("a")
        (stolen,) = bench.store.lapsed("q", "another", 1, 30, "me")
        gate("a").set()
        running.wait_settled(1)
    assert bench.find(task_id).lease is not None, "a stale worker wrote"
    assert "lease_lost" in bench.log.events("warning")
    assert stolen.record.id == task_id


def test_what_is_begun_is_noted_and_struck_out_when_settled(tmp_path: Path) -> None:
    """E38"""
    bench = Bench(max_tasks=1)
    task_id = bench.delay(Waits("a"))
    bench.delay(Notes("b"))
    file = InHandFile.try_acquire(tmp_path / "q.in-hand")
    assert file is not None
    file.take("me")
    with Running(bench, in_hand=file) as running:
        begun("a")
        noted = bytes((tmp_path / "q.in-hand").read_bytes())
        assert noted.count(key_of(task_id)) == 1
        gate("a").set()
        running.wait_settled(2)
        running.stop.drain("", 0)
        running.wait_ended()
    file.close(clean=False)
    again = InHandFile.try_acquire(tmp_path / "q.in-hand")
    assert again is not None
    assert again.left is not None
    assert again.left.begun == ()
    again.close(clean=True)


def test_an_idle_worker_makes_one_call_per_update_period() -> None:
    """E17, P9"""
    bench = Bench(update_period=5)
    store = FailsTheStore(bench.store)
    ticks = [0.0]
    worker = bench.make_worker(store=store, monotonic=lambda: ticks[0])
    for _ in range(5):
        worker.step()
    store.calls.clear()
    for _ in range(10):
        ticks[0] += 5.0
        bench.clock.tick(5)
        for _ in range(5):
            worker.step()
    assert store.calls == ["next_look_at"] * 10


def test_a_sleeping_worker_wakes_for_the_next_run_at_not_a_period_later() -> None:
    """E17"""
    bench = Bench(update_period=10)
    bench.delay(Notes("soon"), run_at=START + 3)
    ticks = [0.0]
    worker = bench.make_worker(monotonic=lambda: ticks[0])
    worker.step()
    assert worker._next_tick_at(0.0) == 3.0


def test_before_a_task_begins_its_deadline_is_announced() -> None:
    """U24: once it runs it may hold the interpreter."""
    bench = Bench(timeout=7)
    bench.delay(Waits("a"))
    with Running(bench) as running:
        begun("a")
        announced = [value for kind, value in running.events.said if kind == "alive"]
        assert announced
        assert announced[0] is not None
        assert abs(announced[0] - bench.monotonic() - 7) < 7
        gate("a").set()
        running.wait_settled(1)


def test_what_was_announced_holds_for_the_next_task_and_is_taken_back_when_idle() -> None:
    """U24, P6: a silence of 30 s beyond it would cost an idle process its life."""
    told = Told(threading.Semaphore(0))
    ticks = [100.0]
    heartbeat = Heartbeat(told, lambda: ticks[0])
    heartbeat.begin(160.0)
    heartbeat.beat(lambda: 160.0)
    heartbeat.beat(None)
    assert told.said == [("alive", 160.0)]
    heartbeat.begin(161.0)
    assert told.said == [("alive", 160.0)], "it was said already"
    heartbeat.begin(150.0)
    assert told.said[1:] == [("alive", 150.0)]
    ticks[0] = 101.0
    heartbeat.beat(lambda: 150.0)
    assert told.said[2:] == [("alive", 150.0)]
    assert heartbeat.next_at == 102.0
    ticks[0] = 102.0
    heartbeat.beat(None)
    assert told.said[3:] == [("alive", None)]
    assert heartbeat.next_at == float("inf")
    ticks[0] = 500.0
    heartbeat.begin(560.0)
    assert told.said[4:] == [("alive", 560.0)]


def test_an_outage_of_looks_alone_is_over_when_they_work() -> None:
    """E37"""
    bench = Bench(update_period=5)
    store = FailsTheStore(bench.store)
    ticks = [0.0]
    worker = bench.make_worker(store=store, monotonic=lambda: ticks[0])
    worker.step()
    store.failing.add("next_look_at")
    for _ in range(4):
        ticks[0] += 11.0
        worker.step()
    store.failing.clear()
    ticks[0] += 11.0
    worker.step()
    assert bench.log.events("warning") == ["store_unavailable"]
    assert bench.log.events("info") == ["store_available"]


def test_a_worker_does_not_reap_what_it_holds_itself_when_the_clock_leaps() -> None:
    """G3"""
    bench = Bench()
    task_id = bench.delay(Waits("a"))
    with Running(bench) as running:
        begun("a")
        bench.clock.tick(600)
        running.worker.woken()
        bench.delay(Notes("b"))
        running.inbox.poke()
        running.wait_settled(1)
        gate("a").set()
        running.wait_settled(1)
    assert SEEN == [("began", "a"), "b", ("ended", "a")]
    assert bench.store.find(task_id) is None
    assert "lease_lost" not in bench.log.events()


def test_leases_are_not_extended_over_and_over_while_a_reap_is_put_off() -> None:
    """G7: a store that is in trouble isn't asked the same at every turn."""
    bench = Bench()
    bench.delay(Waits("a"))
    store = FailsTheStore(bench.store)
    ticks = [0.0]
    worker = bench.make_worker(store=store, monotonic=lambda: ticks[0])
    worker.step()
    store.failing.add("lapsed")
    worker._looks.reap_at = ticks[0]
    store.calls.clear()
    for _ in range(10):
        worker.step()
    assert store.calls.count("lapsed") == 1
    assert store.calls.count("extend") == 1
    gate("a").set()
    worker.close()


def test_what_is_unwritten_when_another_call_ends_an_outage_is_written_at_once() -> None:
    """G7: a lease's extension may be due a moment before the pause of the outage is over."""
    bench = Bench()
    task_id = bench.delay(Waits("a"))
    store = FailsTheStore(bench.store)
    ticks = [0.0]
    worker = bench.make_worker(store=store, monotonic=lambda: ticks[0])
    worker.step()
    begun("a")
    store.failing.add("extend")
    ticks[0] = worker._leases.due_at
    worker.step()
    ended = threading.Event()
    worker._wake, worker._asleep = ended.set, True
    gate("a").set()
    assert ended.wait(PATIENCE)
    store.failing.clear()
    ticks[0] = worker._outage.retry_at - 0.001
    worker._leases._next = ticks[0]
    worker.step()
    assert bench.log.events("info") == ["store_available"]
    assert worker._next_tick_at(ticks[0]) <= ticks[0]
    worker.step()
    assert bench.store.find(task_id) is None
    worker.close()


class LosesReplies:
    """The store does what it's asked, and the caller hears of an error."""

    def __init__(self, store: Any, call: str) -> None:
        self._store = store
        self._call = call
        self.left = 1

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            reply = method(*arguments, **options)
            if name == self._call and self.left and reply:
                self.left -= 1
                raise OSError("the reply was lost")
            return reply

        return call


def test_a_claim_whose_reply_was_lost_runs_and_counts_as_not_begun() -> None:
    """E38, G7, U38: it would be dead without ever having run, had it been left to lapse."""
    bench = Bench(max_attempts=1)
    task_id = bench.delay(Waits("a"))
    other = bench.delay(Waits("b"))
    ticks = [0.0]
    store = FailsTheStore(LosesReplies(bench.store, "claim"))
    worker = bench.make_worker(store=store, monotonic=lambda: ticks[0])
    worker.step()
    assert bench.find(task_id).state is TaskState.RUNNING
    store.failing.update(("claim", "lapsed"))
    for _ in range(3):
        ticks[0] = worker._outage.retry_at
        worker.step()
    store.failing.clear()
    ticks[0] = worker._outage.retry_at
    worker.step()
    begun("a")
    assert [bench.find(each).attempts for each in (task_id, other)] == [0, 0]
    ended = threading.Event()
    worker._wake, worker._asleep = ended.set, True
    gate("a").set()
    gate("b").set()
    assert ended.wait(PATIENCE)
    while worker._hand.held:
        worker.step()
    assert bench.store.select() == []
    worker.close()


def test_what_died_is_not_taken_for_unbegun_where_the_reply_that_told_it_was_lost() -> None:
    """E38, G7: what kills its host must come to an end."""
    bench = Bench()
    task_id = bench.delay(Notes(1))
    bench.store.claim("q", "gone", 1, 30.0)
    bench.clock.tick(31)
    reaper = Reaper(LosesReplies(bench.store, "lapsed"), "q", "me", 30.0, bench.clock.now)
    with pytest.raises(OSError, match="lost"):
        reaper.lapsed()
    reaper.claim_failed()
    assert reaper.unheard_of(()) == []
    bench.clock.tick(31)
    (attempt,) = reaper.lapsed()
    assert attempt.claim.record.id == task_id
    assert isinstance(attempt.given, Abandoned)
