"""E19, E30, U9: rows of floor persisters, which may be anything."""

from __future__ import annotations

import math
from collections import UserDict
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procrastinate_py.core.row import UnreadableRowError, record_from_row
from procrastinate_py.core.task import ATTRIBUTES, TaskRecord, TaskState

ROW: dict[str, Any] = {
    "id": 7,
    "queue": "email",
    "run_at": 100,
    "initial_run_at": 90,
    "expire_at": 200,
    "attempts": 2,
    "last_fail_at": 95,
    "last_error": "Task failed: x",
    "task": "!a:B {}",
}


def read(**changes: Any) -> TaskRecord:
    return record_from_row("email", {**ROW, **changes}, 100.0)


def test_a_whole_row_is_read_as_it_was_written() -> None:
    """E19"""
    record = read()
    assert tuple(ROW) == ATTRIBUTES and record.as_mapping() == ROW
    assert record.defect is None and record.state is TaskState.PENDING


@pytest.mark.parametrize("kind", [dict, UserDict, MappingProxyType])
def test_any_mapping_will_do_and_unknown_keys_stay_out(kind: Any) -> None:
    """E19"""
    record = record_from_row("email", kind({**ROW, "created_by": "me", 5: 6}), 100.0)
    assert record.as_mapping() == ROW


def test_optional_keys_may_be_missing() -> None:
    """E19"""
    record = record_from_row("email", {"id": 7, "run_at": 100, "task": "!a:B {}"}, 100.0)
    assert (record.attempts, record.expire_at, record.last_error, record.defect) == (0, None, None, None)
    assert read(attempts=None).attempts == 0


def test_the_queue_is_the_one_that_was_asked_for() -> None:
    """E9"""
    assert read(queue="e-mail, as an older release spelled it").queue == "email"


@pytest.mark.parametrize("value", ["100", " 100 ", "+100", Decimal(100), Decimal("1E2"), 100.0])
def test_an_int_may_come_in_other_clothes(value: Any) -> None:
    """E19"""
    record = read(run_at=value, expire_at=value, attempts=value)
    assert (record.run_at, record.expire_at, record.attempts, record.defect) == (100, 100, 100, None)
    assert type(record.run_at) is int


NO_INTS = [True, 1.5, math.nan, math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1E+999999999")]
NO_INTS += ["", "x", "1_0", "1.5", "0x1f", "\u0661", "1" * 5000, b"100", [100], object()]
NO_INTS += [2**63, -(2**63) - 1, 10**400, str(2**63), 1e300]


@pytest.mark.parametrize("value", NO_INTS, ids=range(len(NO_INTS)))
def test_a_row_whose_run_at_cannot_be_read_is_unreadable(value: Any) -> None:
    """U9"""
    with pytest.raises(UnreadableRowError, match="task 7 of queue 'email'"):
        read(run_at=value)


@pytest.mark.parametrize("key", ["attempts", "expire_at"])
@pytest.mark.parametrize("value", NO_INTS, ids=range(len(NO_INTS)))
def test_a_row_whose_limits_cannot_be_read_has_a_defect(value: Any, key: str) -> None:
    """E30"""
    record = read(**{key: value})
    assert record.defect is not None and record.defect.startswith(f"its {key} can't be read")
    assert record.task == ROW["task"]


@pytest.mark.parametrize("key", ["initial_run_at", "last_fail_at"])
def test_what_decides_nothing_may_be_broken(key: str) -> None:
    """E19"""
    record = read(**{key: "x"})
    assert record.defect is None and getattr(record, key) is None


@pytest.mark.parametrize(
    "row", [None, [], "x", 5, [("id", 1)], {}, {"run_at": 1, "task": "x"}, {"id": None, "run_at": 1}]
)
def test_what_is_no_row_or_has_no_id_is_unreadable(row: Any) -> None:
    """U9"""
    with pytest.raises(UnreadableRowError):
        record_from_row("email", row, 100.0)


@pytest.mark.parametrize("task_id", [[1], {}])
def test_an_id_that_cannot_be_a_key_is_unreadable(task_id: Any) -> None:
    """U9"""
    with pytest.raises(UnreadableRowError):
        read(id=task_id)
    with pytest.raises(UnreadableRowError):
        read(id=10**5000, run_at="x")


@pytest.mark.parametrize("task", [None, b"!a:B {}", 5])
def test_a_task_that_is_no_text_is_a_defect(task: Any) -> None:
    """E30"""
    assert read(task=task).defect == f"its task isn't text but {type(task).__name__}"


def test_attempts_are_never_negative() -> None:
    """E34"""
    assert read(attempts=-5).attempts == 0


@pytest.mark.parametrize(
    ("last_error", "state"),
    [("Task expired: x", TaskState.EXPIRED), (None, TaskState.FAILED), (10**5000, TaskState.FAILED)],
)
def test_a_row_without_run_at_is_closed(last_error: Any, state: TaskState) -> None:
    """E28"""
    record = read(run_at=None, last_error=last_error)
    assert (record.state, record.closed_at) == (state, 95)


ANYTHING = st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.decimals(), st.lists(st.none()))


@given(st.dictionaries(st.sampled_from([*ATTRIBUTES, "other"]), ANYTHING))
def test_whatever_a_row_holds_it_is_read_or_unreadable(row: dict[str, Any]) -> None:
    """E19 U9 G8"""
    try:
        record = record_from_row("email", row, 100.0)
    except UnreadableRowError:
        return
    assert record.attempts >= 0 and isinstance(record.task, str)
