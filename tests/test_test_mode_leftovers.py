"""What test mode leaves behind, and where it tells of what no outcome tells."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from examples.floor_dict import DictPersister
from procrastinate_py import Environment, TaskTimeoutError, TestModeError

released = threading.Event()


class WillNotEnd:
    """Swallows its interruption, until the test has seen what it came for."""

    def run(self) -> None:
        while not released.is_set():
            try:
                while not released.wait(0.001):
                    pass
            except BaseException:
                continue


class Succeeds:
    def run(self) -> None: ...


class FailsInHook(Succeeds):
    def success(self, logger: object) -> None:
        raise RuntimeError("the hook's own")


class Fails:
    def run(self) -> None:
        raise RuntimeError("the body's own")


@pytest.fixture
def env() -> Iterator[Environment]:
    env = Environment(test_mode=True)
    yield env
    env.stop()


@pytest.fixture
def release() -> Iterator[None]:
    released.clear()
    yield
    released.set()


def body_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "leftovers-body" in thread.name]


def end(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(30)
    return not body_threads()


@pytest.mark.usefixtures("release")
def test_a_body_that_ignores_its_interruption_is_left_in_a_daemon_thread(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """E32, E45, U11: and that is logged."""
    env.define_queue("leftovers", timeout=0.05)
    env.delay(WillNotEnd())
    (outcome,) = env.act()
    assert isinstance(outcome.error, TaskTimeoutError)
    assert all(thread.daemon for thread in body_threads())
    assert [record.getMessage().split()[0] for record in caplog.records] == ["body_left_behind"]
    released.set()
    env.stop()
    assert end(body_threads())


def test_what_a_hook_raised_is_told_to_the_application_with_its_traceback(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """E31, E45: there's no log file that would hold it."""
    env.define_queue("leftovers")
    env.delay(FailsInHook())
    (outcome,) = env.act()
    assert outcome.error is None
    (told,) = caplog.records
    assert told.levelname == "ERROR"
    assert told.exc_info is not None and "the hook's own" in str(told.exc_info[1])


def test_a_failure_is_told_by_its_outcome_alone(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    """E43"""
    env.define_queue("leftovers", max_attempts=1)
    env.delay(Fails())
    (outcome,) = env.act()
    assert str(outcome.error) == "the body's own"
    assert caplog.records == []


def test_a_row_that_cannot_be_read_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """U9"""
    persister = DictPersister()
    env = Environment(persister, test_mode=True)
    env.define_queue("leftovers")
    env.delay(Succeeds())
    persister.rows[9] = {**persister.rows[1], "id": None}
    assert len(env.drain()) == 1
    assert env.act() == []
    assert [record.getMessage().split()[0] for record in caplog.records] == ["row_skipped"]
    env.stop()


def test_no_thread_is_left_once_the_environment_has_gone() -> None:
    """E43"""
    env = Environment(test_mode=True)
    env.define_queue("leftovers")
    env.delay(Succeeds())
    env.act()
    threads = body_threads()
    assert threads
    del env
    gc.collect()
    assert end(threads)


def test_a_task_cannot_act(env: Environment) -> None:
    """E43: it would wait for itself."""
    env.define_queue("leftovers")

    @env.task(name="acts")
    class Acts:
        def run(self) -> None:
            env.act()

    env.delay(Acts())
    (outcome,) = env.act()
    assert isinstance(outcome.error, TestModeError)
