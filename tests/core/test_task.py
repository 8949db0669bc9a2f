"""E19, E28, E29: the stored unit and its state."""

from __future__ import annotations

import pytest

from procrastinate_py.core.errors import ConfigurationError
from procrastinate_py.core.lease import Lease
from procrastinate_py.core.task import ATTRIBUTES, NewTask, TaskRecord, TaskState, state_of


def a_record(**fields: object) -> TaskRecord:
    return TaskRecord(**{"id": 1, "queue": "email", "task": "!a:B {}", "run_at": 10, **fields})  # type: ignore[arg-type]


def test_a_new_task_is_exactly_what_create_task_gets() -> None:
    """E15"""
    new = NewTask(queue="email", run_at=2, initial_run_at=2, expire_at=None, task="!a:B {}")
    assert new.as_mapping() == {
        "queue": "email",
        "run_at": 2,
        "initial_run_at": 2,
        "expire_at": None,
        "task": "!a:B {}",
    }


def test_a_record_gives_the_nine_attributes() -> None:
    """E29"""
    record = a_record(attempts=3, last_error="x", closed_as=TaskState.FAILED, lease=Lease("me", 1.0))
    assert tuple(record.as_mapping()) == ATTRIBUTES
    assert record.as_mapping() == {
        "id": 1,
        "queue": "email",
        "run_at": 10,
        "initial_run_at": None,
        "expire_at": None,
        "attempts": 3,
        "last_fail_at": None,
        "last_error": "x",
        "task": "!a:B {}",
    }


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, TaskState.PENDING),
        ({"run_at": 10**10}, TaskState.PENDING),
        ({"expire_at": 5}, TaskState.PENDING),
        ({"lease": Lease("me", 100.5)}, TaskState.RUNNING),
        ({"lease": Lease("me", 100.0)}, TaskState.RUNNING),
        ({"lease": Lease("me", 99.9)}, TaskState.PENDING),
        *(({"closed_as": state, "run_at": None}, state) for state in TaskState if state.is_closed),
        ({"closed_as": TaskState.FAILED, "lease": Lease("me", 200.0)}, TaskState.FAILED),
    ],
)
def test_a_state_comes_from_what_closed_the_record_and_else_from_its_lease(
    fields: dict[str, object], state: TaskState
) -> None:
    """E28 U16: overdue, but not yet closed, counts as pending."""
    record = a_record(read_at=100.0, **fields)
    assert state_of(record, 100.0) is record.state is state


def test_all_states_but_two_are_closed() -> None:
    assert {state for state in TaskState if not state.is_closed} == {TaskState.PENDING, TaskState.RUNNING}
    assert TaskState("pending") is TaskState.PENDING and str(TaskState.FAILED) == "failed"


def test_the_deadline_itself_is_still_in_time() -> None:
    """E24"""
    record = a_record(expire_at=100)
    assert not record.is_expired(100) and not record.is_expired(99.9) and record.is_expired(100.001)
    assert not a_record().is_expired(10**12)


def test_a_task_is_due_from_its_run_at_on_and_never_without_one() -> None:
    """E19"""
    assert a_record().is_due(10) and not a_record().is_due(9.999)
    assert not a_record(run_at=None).is_due(10**12)


def test_the_instant_of_closing_is_told_by_what_closed_it() -> None:
    record = a_record(closed_as=TaskState.EXPIRED, closed_at=7)
    assert (record.expired_at, record.completed_at, record.cancelled_at) == (7, None, None)
    record = a_record(closed_as=TaskState.COMPLETED, closed_at=7)
    assert (record.expired_at, record.completed_at, record.cancelled_at) == (None, 7, None)
    record = a_record(closed_as=TaskState.CANCELLED, closed_at=7)
    assert (record.expired_at, record.completed_at, record.cancelled_at) == (None, None, 7)


def test_a_record_loads_its_strategy_where_an_environment_read_it() -> None:
    assert a_record(loader=lambda text: text.upper()).load() == "!A:B {}"
    with pytest.raises(ConfigurationError, match="env.find"):
        a_record().load()
