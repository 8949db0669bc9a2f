"""What is the memory store's own."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from procrastinate_py.core.lifecycle import Release
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import MemoryPersister
from procrastinate_py.testing.clock import FakeClock

TASK = NewTask(queue="q", run_at=1000, initial_run_at=1000, expire_at=None, task="!a:B {}")


def test_a_pass_over_many_tasks_costs_no_search_through_them_all() -> None:
    """P12: the heap is asked once per task, however many there are"""
    store = MemoryPersister(FakeClock())
    store.create_many([TASK] * 1000)
    asked = 0
    first = store._first

    def counted(queue: str) -> tuple[int, int] | None:
        nonlocal asked
        asked += 1
        return first(queue)

    store._first = counted  # type: ignore[method-assign]
    for _ in range(10):
        assert len(store.claim("q", "me", 100, 30)) == 100
    assert asked == 1000


def test_editing_a_task_over_and_over_leaves_one_entry_that_counts() -> None:
    store = MemoryPersister(FakeClock())
    (task_id,) = store.create_many([TASK])
    record = store.find(task_id)
    assert record is not None
    for run_at in (1001, 1000, 1002, 1000):
        store.update_task(replace(record, run_at=run_at).as_mapping())
    (claim,) = store.claim("q", "me", 10, 30)
    assert store.claim("q", "me", 10, 30) == []
    store.settle([(claim.token, Release())])
    assert len(store.claim("q", "me", 10, 30)) == 1


def test_it_stays_in_its_process() -> None:
    """E42"""
    with pytest.raises(TypeError, match="lives? in this one's memory"):
        pickle.dumps(MemoryPersister())


def test_its_repr_tells_no_secrets() -> None:
    """G8"""
    store = MemoryPersister()
    store.create_many([replace(TASK, task="hunter2")])
    assert repr(store) == "MemoryPersister(1 tasks)"
