"""Test mode's one task at a time, where threads meet at bad moments."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from procrastinate_py.core.task import TaskState
from procrastinate_py.runtime.attempt import Attempt
from procrastinate_py.runtime.executor import Executor

from .workbench import PATIENCE, Bench

GO = threading.Event()
OVER = threading.Event()


class WaitsForGo:
    def run(self) -> None:
        assert GO.wait(PATIENCE)


def telling(perform: Callable[[Attempt], None], size: int, name: str) -> Executor:
    def perform_and_tell(attempt: Attempt) -> None:
        perform(attempt)
        OVER.set()

    return Executor(perform_and_tell, size, name)


def test_a_body_that_ends_just_before_its_caller_waits_for_it_is_not_missed() -> None:
    """E43"""
    bench = Bench(timeout=None)
    worker = bench.make_worker(executor=telling)
    bench.delay(WaitsForGo())
    outcomes: list[Any] = []

    def end_the_body_after_the_look(frame: FrameType, event: str, _argument: Any) -> Any:
        """A trace function: the body ends between act's look at what is done and its wait."""
        if frame.f_code.co_name == "_collect" and event == "return":
            GO.set()
            assert OVER.wait(PATIENCE)
        return end_the_body_after_the_look

    def act() -> None:
        sys.settrace(end_the_body_after_the_look)
        try:
            outcomes.append(worker.act())
        finally:
            sys.settrace(None)

    acting = threading.Thread(target=act, daemon=True)
    acting.start()
    acting.join(PATIENCE / 4)
    worker.close()
    assert [outcome.state for outcome in outcomes] == [TaskState.COMPLETED], "it waits for what has ended already"
