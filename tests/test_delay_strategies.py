"""What can be delayed, and how what can't is told."""

from __future__ import annotations

import functools
import threading
from typing import Any
from unittest import mock

import pytest

from procrastinate_py import (
    Environment,
    MalformedTaskError,
    PayloadError,
    UnstorableError,
    UntrustedTaskError,
)
from procrastinate_py.tasks.strategy_check import StrategyCheck, check_strategy
from tests.environments import Spy, env_on


class Plain:
    def run(self) -> None:
        pass


class NoRun:
    pass


class RunIsAValue:
    run = 3


class RunWantsMore:
    def run(self, what: int) -> None:
        pass


class AsyncRun:
    async def run(self) -> None:
        pass


class Hooks(Plain):
    def success(self, logger: Any) -> None: ...
    def fail(self, logger: Any, error: Any) -> None: ...
    def final_fail(self, logger: Any, error: Any) -> None: ...


class Generous(Plain):
    def success(self, *args: Any) -> None: ...
    def fail(self, logger: Any, error: Any, more: int = 3, *rest: Any, **options: Any) -> None: ...
    def final_fail(self, *args: Any, **options: Any) -> None: ...


class Wrapped(Plain):
    @staticmethod
    def success(logger: Any) -> None: ...
    @classmethod
    def fail(cls, logger: Any, error: Any) -> None: ...

    final_fail = functools.partialmethod(lambda self, a, logger, error: None, 1)


class NoHook(Plain):
    success = None


class ShortFail(Plain):
    def fail(self, logger: Any) -> None: ...


class ShortFinalFail(Plain):
    def final_fail(self, error: Any) -> None: ...


class LongSuccess(Plain):
    def success(self, logger: Any, result: Any) -> None: ...


class KeywordOnly(Plain):
    def success(self, *, logger: Any) -> None: ...


class HookIsAValue(Plain):
    fail = "later"


class AsyncHook(Plain):
    async def fail(self, logger: Any, error: Any) -> None: ...


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def env(spy: Spy) -> Environment:
    return env_on(spy, "email")


@pytest.mark.parametrize("task", [Plain(), Hooks(), Generous(), Wrapped(), NoHook()], ids=lambda it: type(it).__name__)
def test_it_can_be_delayed(env: Environment, task: Any) -> None:
    """E13"""
    assert env.delay(task) == 1


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (None, "None"),
        (Plain, "instance, not the class Plain"),
        (NoRun(), "NoRun.*no method run"),
        (RunIsAValue(), "RunIsAValue.*no method run"),
        (RunWantsMore(), r"RunWantsMore.run can't be called as run\(\)"),
        (AsyncRun(), "AsyncRun.run is async"),
        (ShortFail(), r"ShortFail.fail can't be called as fail\(logger, error\)"),
        (ShortFinalFail(), r"ShortFinalFail.final_fail can't be called as final_fail\(logger, error\)"),
        (LongSuccess(), r"LongSuccess.success can't be called as success\(logger\)"),
        (KeywordOnly(), r"KeywordOnly.success"),
        (HookIsAValue(), "HookIsAValue.fail must be a method"),
        (AsyncHook(), "AsyncHook.fail is async"),
        (3, "int.*no method run"),
        ({"run": print}, "dict.*no method run"),
    ],
)
def test_it_is_no_task(env: Environment, spy: Spy, task: Any, words: str) -> None:
    """E13"""
    for _ in range(2):  # nothing wrong is remembered as right
        with pytest.raises(MalformedTaskError, match=words) as told:
            env.delay("email", task=task)
        assert isinstance(told.value, TypeError)
    assert spy.names() == []


def test_what_a_hook_says_of_itself_in_c_is_believed() -> None:
    """E13"""
    task = mock.Mock(spec=["run", "fail"])
    check_strategy(task)


def test_an_object_with_methods_of_its_own_is_checked_itself() -> None:
    """E13"""
    check = StrategyCheck()
    check(Hooks())
    odd = Hooks()
    odd.fail = lambda: None  # type: ignore[method-assign, assignment, misc]
    with pytest.raises(MalformedTaskError, match="fail"):
        check(odd)
    fine = Plain()
    fine.fail = lambda logger, error: None  # type: ignore[attr-defined]
    check(fine)
    with pytest.raises(MalformedTaskError, match="run"):
        check(NoRun())


# --- what can't be stored


class SendEmail:
    def __init__(self, *attachments: Any) -> None:
        self.attachments = list(attachments)

    def run(self) -> None:
        pass


class ForgetsItsState:
    def run(self) -> None:
        pass

    def __getstate__(self) -> dict[str, int]:
        return {"x": 1}

    def __setstate__(self, state: Any) -> None:
        raise KeyError("no")


def test_what_could_not_be_stored_is_told_with_its_path(env: Environment, spy: Spy) -> None:
    """E14 U6"""
    with pytest.raises(UnstorableError, match=r"SendEmail\.attachments\[1\]: cannot store a Lock") as told:
        env.delay(SendEmail("fine", threading.Lock()))
    assert isinstance(told.value, TypeError)
    assert spy.names() == []


def test_what_could_not_be_read_back_is_told(env: Environment, spy: Spy) -> None:
    """E14"""
    with pytest.raises(PayloadError, match="ForgetsItsState"):
        env.delay(ForgetsItsState())
    assert spy.names() == []


def test_a_class_inside_a_function_is_told(env: Environment) -> None:
    """E14"""

    class Local(Plain):
        pass

    with pytest.raises(UnstorableError, match="inside a function"):
        env.delay(Local())
    env.task(name="local")(Local)
    assert type(env.find(env.delay(Local())).load()) is Local


def test_a_task_longer_than_allowed_is_told(spy: Spy) -> None:
    """E14 E21"""
    env = env_on(spy, "email", max_task_bytes=200)
    env.delay(SendEmail("x" * 50))
    with pytest.raises(UnstorableError, match="max_task_bytes"):
        env.delay(SendEmail("x" * 200))


def test_the_stored_text_comes_back_as_an_equal_object(env: Environment) -> None:
    """E14 E20"""
    record = env.find(env.delay(SendEmail("a", {"b": (1, 2.5)})))
    loaded = record.load()
    assert type(loaded) is SendEmail
    assert loaded.attachments == ["a", {"b": (1, 2.5)}]


# --- trust


class Elsewhere(Plain):
    pass


Elsewhere.__module__ = "elsewhere"


def test_a_delayed_class_is_trusted_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """E21"""
    import sys
    import types

    module = types.ModuleType("elsewhere")
    module.Elsewhere = Elsewhere  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    env = env_on(None, "email", trust=["shop"])
    text = "!elsewhere:Elsewhere {}"
    with pytest.raises(UntrustedTaskError):
        env.codec.load(text)
    env.delay(Elsewhere())
    assert type(env.codec.load(text)) is Elsewhere


def test_once_processes_run_a_class_that_they_cannot_know_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """E14 E21"""
    from procrastinate_py.runtime.supervision import Supervision

    monkeypatch.setattr(Supervision, "start", lambda self: None)
    monkeypatch.setattr(Supervision, "stop", lambda self, grace: None)
    env = Environment(f"sqlite:///{tmp_path}/tasks.db", log_dir=None, run_dir=tmp_path, trust=["shop"])
    env.define_queue("email")
    env.task(Hooks)
    env.delay(Plain())
    with env:
        env.delay(Plain())
        env.delay(Hooks())
        with pytest.raises(UntrustedTaskError, match=r"NoHook.*trust="):
            env.delay(NoHook())
    env.delay(NoHook())
    env.stop()


# --- env.task


def test_a_class_has_a_stored_name_and_aliases(spy: Spy) -> None:
    """E22 U5"""
    env = env_on(spy, "email")

    @env.task(name="welcome", aliases=["old.place:Welcome"])
    class Welcome(Plain):
        pass

    task_id = env.delay(Welcome())
    assert spy.rows[task_id]["task"].startswith("!welcome ")
    spy.rows[task_id]["task"] = "!old.place:Welcome {}"
    assert type(env.find(task_id).load()) is Welcome
    assert env.tasks(task="old.place:Welcome")
    assert env.tasks(task=Welcome) == []


def test_the_decorator_works_without_arguments(spy: Spy) -> None:
    """E22"""
    env = env_on(spy, "email", trust=["shop"])
    assert env.task(Plain) is Plain
    assert type(env.codec.load(f"!{__name__}:Plain {{}}")) is Plain


def test_the_decorator_takes_classes_only(env: Environment) -> None:
    for thing in (print, Plain(), lambda: None):
        with pytest.raises(TypeError, match="class"):
            env.task(thing)  # type: ignore[type-var]
        with pytest.raises(TypeError, match="class"):
            env.task(name="x")(thing)  # type: ignore[type-var]
