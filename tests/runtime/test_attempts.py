"""One attempt, by way of ``act``: what a task's run, hooks and row see."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from freezegun import freeze_time

from procrastinate_py.core.errors import (
    TaskExpiredError,
    TaskTimeoutError,
    UnknownTaskError,
    UntrustedTaskError,
)
from procrastinate_py.core.task import TaskState
from procrastinate_py.ports.clock import SystemClock
from procrastinate_py.runtime.guard import Interruption

from .workbench import START, Bench

SEEN: list[Any] = []


@pytest.fixture(autouse=True)
def _seen() -> None:
    SEEN.clear()


class Hooked:
    def __init__(self) -> None:
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        SEEN.append("run")

    def success(self, logger: Any) -> None:
        SEEN.append("success")

    def fail(self, logger: Any, error: BaseException) -> None:
        self.runs += 10
        SEEN.append(("fail", error))

    def final_fail(self, logger: Any, error: BaseException) -> None:
        SEEN.append(("final_fail", error))


class Raises(Hooked):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def run(self) -> None:
        super().run()
        raise ERRORS[self.kind]


ERRORS: dict[str, BaseException] = {
    "value": ValueError("boom"),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "cancelled": asyncio.CancelledError(),
    "group": BaseExceptionGroup("several", [SystemExit(1)]),
    "generator": GeneratorExit(),
    "memory": MemoryError(),
    "recursion": RecursionError("too deep"),
}


def test_success_runs_then_calls_success_then_deletes_and_writes_nothing_else() -> None:
    """E25"""
    bench = Bench(floor=True)
    task_id = bench.delay(Hooked())
    bench.store.calls.clear()
    outcome = bench.worker.act()
    assert SEEN == ["run", "success"]
    assert outcome is not None
    assert (outcome.task_id, outcome.state, outcome.error) == (task_id, TaskState.COMPLETED, None)
    assert bench.store.calls == [("read", "q"), ("delete", task_id)]


@pytest.mark.parametrize("kind", ERRORS)
def test_whatever_run_raises_is_a_failure_and_ends_nothing_else(kind: str) -> None:
    """E26, E27"""
    bench = Bench()
    task_id = bench.delay(Raises(kind))
    outcome = bench.worker.act()
    assert outcome is not None
    assert outcome.error is ERRORS[kind], "not the very exception"
    assert ["run", ("fail", ERRORS[kind])] == SEEN
    record = bench.find(task_id)
    assert record.state is TaskState.PENDING
    assert record.run_at == START + 31
    assert record.last_fail_at == START
    assert record.attempts == 1
    assert record.last_error is not None
    assert record.last_error.startswith("Task failed: ")
    assert "Traceback" in record.last_error


def test_what_the_object_changes_on_itself_in_run_and_hook_is_stored() -> None:
    """E23"""
    bench = Bench()
    task_id = bench.delay(Raises("value"))
    bench.worker.act()
    assert bench.codec.load(bench.find(task_id).task).runs == 11
    bench.clock.move_to(START + 31)
    bench.worker.act()
    assert bench.codec.load(bench.find(task_id).task).runs == 22


def test_an_update_gets_the_nine_attributes_and_leaves_the_rest() -> None:
    """E27, E29"""
    bench = Bench(floor=True)
    task_id = bench.delay(Raises("value"), expire_at=START + 1000)
    bench.worker.act()
    (attributes,) = bench.store.said("update")
    assert list(attributes) == [
        "id", "queue", "run_at", "initial_run_at", "expire_at", "attempts", "last_fail_at", "last_error", "task",
    ]  # fmt: skip
    assert attributes["id"] == task_id
    assert attributes["initial_run_at"] == START
    assert attributes["expire_at"] == START + 1000


def test_the_last_attempt_calls_only_final_fail_and_keeps_the_row() -> None:
    """E28"""
    bench = Bench(max_attempts=1)
    task_id = bench.delay(Raises("value"))
    bench.worker.act()
    assert ["run", ("final_fail", ERRORS["value"])] == SEEN
    record = bench.find(task_id)
    assert (record.run_at, record.attempts, record.state) == (None, 1, TaskState.FAILED)
    assert record.last_error is not None
    assert record.last_error.startswith("Task failed too many times: boom")
    assert bench.worker.act() is None


def test_attempts_stored_beyond_the_limit_mean_one_more_run_and_that_is_final() -> None:
    """U9"""
    bench = Bench(floor=True, max_attempts=3)
    task_id = bench.delay(Raises("value"))
    bench.store.rows[task_id]["attempts"] = 7
    bench.worker.act()
    assert SEEN[0] == "run"
    assert bench.store.rows[task_id]["attempts"] == 8
    assert bench.store.rows[task_id]["run_at"] is None


def test_an_expired_task_is_not_run_and_its_attempts_stay() -> None:
    """E24"""
    bench = Bench()
    task_id = bench.delay(Hooked(), expire_at=START + 5)
    bench.clock.move_to(START + 5.5)
    outcome = bench.worker.act()
    ((hook, error),) = SEEN
    assert hook == "final_fail"
    assert isinstance(error, TaskExpiredError)
    assert outcome is not None
    assert outcome.state is TaskState.EXPIRED
    record = bench.find(task_id)
    assert (record.attempts, record.run_at, record.last_fail_at) == (0, None, START + 5)
    assert record.last_error is not None
    assert record.last_error.startswith("Task expired")


def test_a_task_at_its_very_deadline_still_runs() -> None:
    """E24: strictly after, with the fraction."""
    bench = Bench()
    bench.delay(Hooked(), expire_at=START + 5)
    bench.clock.move_to(START + 5)
    bench.worker.act()
    assert SEEN == ["run", "success"]


class RunsIntoItsDeadline(Hooked):
    def run(self) -> None:
        CLOCKS[0].move_to(START + 6)
        raise ERRORS["value"]


CLOCKS: list[Any] = []


@pytest.mark.parametrize("max_attempts", [1, 20])
def test_expired_by_the_time_it_failed_is_final_and_says_so(max_attempts: int) -> None:
    """E28, U9: where both limits are reached, it's expired."""
    bench = Bench(max_attempts=max_attempts)
    CLOCKS[:] = [bench.clock]
    task_id = bench.delay(RunsIntoItsDeadline(), expire_at=START + 5)
    bench.worker.act()
    assert [("final_fail", ERRORS["value"])] == SEEN
    record = bench.find(task_id)
    assert record.state is TaskState.EXPIRED
    assert record.attempts == 1
    assert record.last_error is not None
    assert record.last_error.startswith("Task expired: boom")


class Bare:
    def run(self) -> None:
        SEEN.append("run")
        raise ERRORS["value"]


def test_hooks_are_optional() -> None:
    """E31"""
    bench = Bench(max_attempts=2)
    task_id = bench.delay(Bare())
    bench.worker.act()
    bench.clock.tick(31)
    bench.worker.act()
    assert SEEN == ["run", "run"]
    assert bench.find(task_id).state is TaskState.FAILED


class HookRaises(Hooked):
    def success(self, logger: Any) -> None:
        raise SystemExit("from success")

    def fail(self, logger: Any, error: BaseException) -> None:
        raise KeyError("from fail")


class HookCannotBeLookedUp(Hooked):
    @property
    def success(self) -> Any:  # type: ignore[override]
        raise KeyError("from the property")


def test_a_hook_that_cannot_be_looked_up_is_a_hook_that_raises() -> None:
    """E31"""
    bench = Bench()
    bench.delay(HookCannotBeLookedUp())
    outcome = bench.worker.act()
    assert outcome is not None
    assert outcome.state is TaskState.COMPLETED
    assert bench.log.events("error") == ["hook_failed"]


class FailsAndHookRaises(HookRaises):
    def run(self) -> None:
        raise ERRORS["value"]


def test_a_hook_that_raises_is_logged_and_changes_no_outcome() -> None:
    """E31"""
    bench = Bench()
    bench.delay(HookRaises())
    failing = bench.delay(FailsAndHookRaises())
    first, second = bench.worker.act(), bench.worker.act()
    assert first is not None
    assert second is not None
    assert first.state is TaskState.COMPLETED
    assert second.error is ERRORS["value"]
    assert bench.find(failing).run_at == START + 31
    errors = [fields["error"] for level, event, fields in bench.log.heard if event == "hook_failed"]
    assert [type(error) for error in errors] == [SystemExit, KeyError]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("!tests.nowhere:Gone {}", UnknownTaskError),
        ("!tests.runtime.test_attempts:Gone {}", UnknownTaskError),
        ("!os:system {}", UntrustedTaskError),
        ("{[", UnknownTaskError),
        ("", UnknownTaskError),
        ("!!python/object:os.system {}", UnknownTaskError),
    ],
)
def test_a_row_that_cannot_be_loaded_fails_alone_counted_and_untouched(text: str, kind: type[Exception]) -> None:
    """E30"""
    bench = Bench(max_attempts=2)
    bad = bench.delay(Hooked(), text=text)
    bench.delay(Hooked())
    first, second = bench.worker.act(), bench.worker.act()
    assert first is not None
    assert second is not None
    assert isinstance(first.error, kind)
    assert second.state is TaskState.COMPLETED
    record = bench.find(bad)
    assert (record.task, record.attempts, record.run_at) == (text, 1, START + 31)
    bench.clock.tick(31)
    bench.worker.act()
    assert bench.find(bad).state is TaskState.FAILED, "it must never be deleted"
    assert bench.find(bad).task == text


def test_unloadable_and_expired_is_expired_without_a_hook() -> None:
    """U9"""
    bench = Bench()
    task_id = bench.delay(Hooked(), text="!tests.nowhere:Gone {}", run_at=START - 20, expire_at=START - 10)
    outcome = bench.worker.act()
    assert outcome is not None
    assert outcome.state is TaskState.EXPIRED
    assert bench.find(task_id).state is TaskState.EXPIRED
    assert SEEN == []


class LoopsForEver(Hooked):
    def run(self) -> None:
        self.runs = 5
        try:
            while True:
                pass
        except Exception:
            SEEN.append("swallowed")


def test_a_body_past_its_timeout_is_interrupted_and_fails_with_a_timeout_error() -> None:
    """E32"""
    bench = Bench(timeout=0.1)
    task_id = bench.delay(LoopsForEver())
    outcome = bench.worker.act()
    assert outcome is not None
    assert isinstance(outcome.error, TaskTimeoutError)
    assert [("fail", outcome.error)] == SEEN
    record = bench.find(task_id)
    assert record.run_at == START + 31
    assert bench.codec.load(record.task).runs == 15
    assert record.last_error is not None
    assert "LoopsForEver" in record.last_error or "run" in record.last_error


RELEASE = threading.Event()


class WillNotEnd(Hooked):
    def run(self) -> None:
        RELEASE.wait()
        SEEN.append("ran on")


def test_a_body_that_will_not_end_is_settled_without_it_and_left_behind() -> None:
    """E32, U11, U33"""
    RELEASE.clear()
    bench = Bench(timeout=0.1, backoff=lambda n: 1, timeout_grace=3)
    task_id = bench.delay(WillNotEnd())
    outcome = bench.worker.act()
    assert outcome is not None
    assert isinstance(outcome.error, TaskTimeoutError)
    assert [("fail", outcome.error)] == SEEN
    record = bench.find(task_id)
    assert record.attempts == 1
    assert record.run_at == START + 33, "the retry must come after the process was replaced"
    assert record.last_error is not None
    assert "RELEASE.wait()" in record.last_error, "it doesn't say where the body was"
    assert "body_left_behind" in bench.log.events("warning")
    before = list(SEEN)
    RELEASE.set()
    bench.delay(Hooked())
    assert bench.worker.act() is not None
    assert [entry for entry in SEEN if entry != "ran on"] == [*before, "run", "success"]


class HookWillNotEnd(Hooked):
    def run(self) -> None:
        raise ERRORS["value"]

    def fail(self, logger: Any, error: BaseException) -> None:
        RELEASE.wait()


def test_a_hook_that_will_not_end_does_not_hold_up_the_outcome() -> None:
    """E31"""
    RELEASE.clear()
    bench = Bench(hook_timeout=0.1)
    task_id = bench.delay(HookWillNotEnd())
    outcome = bench.worker.act()
    assert outcome is not None
    assert outcome.error is ERRORS["value"]
    assert bench.find(task_id).run_at == START + 31
    RELEASE.set()


class HookLoops(Hooked):
    def success(self, logger: Any) -> None:
        while True:
            pass


def test_a_hook_past_its_limit_is_interrupted_and_the_task_is_a_success() -> None:
    """E31"""
    bench = Bench(hook_timeout=0.1)
    bench.delay(HookLoops())
    outcome = bench.worker.act()
    assert outcome is not None
    assert outcome.state is TaskState.COMPLETED
    assert "hook_interrupted" in bench.log.events("error")


class Swallows(Hooked):
    def run(self) -> None:
        try:
            while True:
                pass
        except BaseException as error:
            SEEN.append(type(error))


def test_a_body_that_swallows_its_interruption_has_timed_out_all_the_same() -> None:
    """E32, U32"""
    bench = Bench(timeout=0.1)
    bench.delay(Swallows())
    outcome = bench.worker.act()
    assert outcome is not None
    assert isinstance(outcome.error, TaskTimeoutError)
    assert [Interruption, ("fail", outcome.error)] == SEEN


@pytest.mark.parametrize(("policy", "delay"), [(lambda n: 7.2, 8), (lambda n: 10**9, 365 * 86400)])
def test_a_queue_may_bring_its_own_backoff(policy: Any, delay: int) -> None:
    """E34, U10, U30"""
    bench = Bench(backoff=policy)
    task_id = bench.delay(Raises("value"))
    bench.worker.act()
    assert bench.find(task_id).run_at == START + delay


@pytest.mark.parametrize(
    "nonsense", [lambda n: float("nan"), lambda n: -1, lambda n: "soon", lambda n: 1 / 0, lambda n: sys.exit(1)]
)
def test_a_backoff_that_answers_nonsense_is_logged_and_the_default_holds(nonsense: Any) -> None:
    """E34"""
    bench = Bench(backoff=nonsense)
    task_id = bench.delay(Raises("value"))
    bench.worker.act()
    assert bench.find(task_id).run_at == START + 31
    assert "backoff_failed" in bench.log.events("error")


class Async:
    async def run(self) -> None:
        SEEN.append("never")


def test_an_async_run_is_not_taken_for_a_success() -> None:
    bench = Bench()
    bench.codec.registry.see(Async)
    task_id = bench.delay(Hooked(), text="!tests.runtime.test_attempts:Async {}")
    bench.worker.act()
    assert SEEN == []
    assert bench.find(task_id).attempts == 1


class ReadsTheTime(Hooked):
    def run(self) -> None:
        SEEN.append(SystemClock().now())
        import time

        SEEN.append(time.time())

    def success(self, logger: Any) -> None:
        import time

        SEEN.append(time.time())


def test_frozen_time_is_frozen_in_bodies_and_hooks_too() -> None:
    """E46, U12"""
    with freeze_time("2033-03-03"):
        frozen = SystemClock().now()
        bench = Bench(clock=SystemClock())  # type: ignore[arg-type]
        bench.delay(ReadsTheTime())
        bench.worker.act()
        assert [frozen] * 3 == SEEN
        failing = bench.delay(Raises("value"))
        bench.worker.act()
        assert bench.find(failing).run_at == int(frozen) + 31


class Logs(Hooked):
    def success(self, logger: Any) -> None:
        logger.info("sent", to="somebody")
        SEEN.append(type(logger).__name__)


def test_hooks_get_a_logger() -> None:
    """E50"""
    bench = Bench()
    bench.delay(Logs())
    bench.worker.act()
    assert SEEN[-1] == "TaskLogger"


def test_events_are_at_the_levels_that_operators_look_at() -> None:
    """E48"""
    bench = Bench(max_attempts=2)
    bench.delay(Hooked())
    bench.delay(Raises("value"))
    bench.worker.act()
    bench.worker.act()
    bench.clock.tick(31)
    bench.worker.act()
    told = [(level, event) for level, event, fields in bench.log.heard if "task_id" in fields]
    assert told == [("debug", "success"), ("warning", "fail"), ("error", "final_fail")]
    assert not any("runs" in str(fields) for _, _, fields in bench.log.heard), "task state is never logged"


def test_a_failed_write_reaches_the_caller_and_the_next_act_writes_it_without_running_again() -> None:
    """U11, E33, E45"""
    bench = Bench(floor=True)
    bench.delay(Hooked())

    def down(call: str, argument: Any) -> None:
        if call == "delete":
            raise OSError("disk full")

    bench.store.fail = down
    with pytest.raises(OSError, match="disk full"):
        bench.worker.act()
    assert SEEN == ["run", "success"]
    with pytest.raises(OSError, match="disk full"):
        bench.worker.act()
    bench.store.fail = lambda call, argument: None
    outcome = bench.worker.act()
    assert outcome is not None
    assert outcome.state is TaskState.COMPLETED
    assert SEEN == ["run", "success"], "the work was done again"
    assert bench.store.rows == {}


class FailsUnspeakably(Hooked):
    def run(self) -> None:
        raise Unspeakable("\0\ud800" + "\N{PILE OF POO}" * 100_000)


class Unspeakable(Exception):
    def __str__(self) -> str:
        if len(self.args) > 1:
            raise RuntimeError("no words")
        return str(self.args[0])


def test_an_error_text_that_the_store_refuses_is_written_short_and_in_ascii() -> None:
    """E33"""
    bench = Bench(floor=True)
    task_id = bench.delay(FailsUnspeakably())

    def picky(call: str, argument: Any) -> None:
        if call == "update" and not argument["last_error"].isascii():
            raise ValueError("latin-1 only")

    bench.store.fail = picky
    bench.worker.act()
    said = bench.store.rows[task_id]["last_error"]
    assert said.startswith("Task failed: ")
    assert said.isascii()
    assert [len(attributes["last_error"].encode()) <= 65536 for attributes in bench.store.said("update")] == [True] * 2


def test_act_on_an_idle_queue_gives_nothing() -> None:
    """U15"""
    assert Bench().worker.act() is None
    assert Bench(floor=True).worker.act() is None


def test_start_order_is_run_at_then_id() -> None:
    """E11"""
    for floor in (False, True):
        bench = Bench(floor=floor)
        late = bench.delay(Hooked(), run_at=START - 1)
        early = [bench.delay(Hooked(), run_at=START - 5) for _ in range(3)]
        outcomes = [bench.worker.act() for _ in range(4)]
        assert [outcome.task_id for outcome in outcomes if outcome] == [*early, late]


def test_a_second_document_of_the_stored_task_stays() -> None:
    """U8"""
    bench = Bench(floor=True)
    text = bench.codec.checked_dump(Raises("value"))
    task_id = bench.delay(Raises("value"), text=f"{text}\n---\n{{priority: 3}}\n")
    bench.worker.act()
    stored = bench.store.rows[task_id]["task"]
    assert bench.codec.load(stored).runs == 11
    assert stored.endswith("\n---\n{priority: 3}\n")


def test_a_backoff_that_never_answers_costs_one_attempt_and_the_default_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """E34, E32"""
    monkeypatch.setattr("procrastinate_py.runtime.attempt.LOADING_LIMIT", 0.1)
    RELEASE.clear()

    def silent(attempts: int) -> float:
        RELEASE.wait()
        return 1.0

    bench = Bench(backoff=silent, timeout=0.1)
    task_id = bench.delay(Raises("value"))
    outcome = bench.worker.act()
    RELEASE.set()
    assert outcome is not None
    assert outcome.error is ERRORS["value"]
    record = bench.find(task_id)
    assert (record.attempts, record.run_at) == (1, START + 31)
