"""A floor persister in the leasing shape: E19, E38, E40, U9, P12."""

from __future__ import annotations

import types
import uuid
from decimal import Decimal
from typing import Any

import pytest

from procrastinate_py.core.lifecycle import Close, Complete, Release, Reschedule
from procrastinate_py.core.task import TaskState
from procrastinate_py.ports.persister import IncompleteSettle
from procrastinate_py.runtime.in_hand import key_of
from procrastinate_py.runtime.sole_consumer import SoleConsumer

from .workbench import START, DictPersister

NOW = float(START)


class Counter:
    def __init__(self, *rows: Any, left: tuple[bytes, ...] = (), fresh_for: float = 10) -> None:
        self.floor = DictPersister()
        self.now = NOW
        self.warnings: list[str] = []
        for number, row in enumerate(rows):
            self.floor.rows[number] = row
        self.consumer = SoleConsumer(
            self.floor, now=lambda: self.now, fresh_for=fresh_for, warn=self.warnings.append, left=left
        )

    def claim(self, limit: int = 100) -> list[Any]:
        return [claim.record.id for claim in self.consumer.claim("q", "me", limit, 30)]


def row(task_id: Any, run_at: Any = START, **more: Any) -> dict[str, Any]:
    return {"id": task_id, "queue": "q", "run_at": run_at, "task": "!x {}"} | more


def test_due_rows_are_claimed_in_order_of_run_at_then_id() -> None:
    """E11"""
    it = Counter(row(3), row(1), row(2, START - 5), row(9, START + 1), row(8, None))
    assert it.claim() == [2, 1, 3]


def test_what_is_in_hand_is_not_claimed_again() -> None:
    """G2"""
    it = Counter(row(1), row(2))
    assert it.claim(1) == [1]
    assert it.claim(1) == [2]
    assert it.claim(1) == []


def test_ten_thousand_rows_take_one_read_a_pass() -> None:
    """P12"""
    it = Counter(*(row(number) for number in range(10_000)))
    for _ in range(100):
        claims = it.consumer.claim("q", "me", 100, 30)
        it.consumer.settle([(claim.token, Complete()) for claim in claims])
        for claim in claims:
            it.floor.rows.pop(claim.record.id, None)
    assert len(it.floor.said("read")) == 1
    assert it.claim() == []
    assert it.consumer.next_look_at("q") is None
    assert len(it.floor.said("read")) == 2, "the look after an empty claim must not read again"


def test_rows_that_grew_old_are_read_again() -> None:
    it = Counter(row(1), row(2), fresh_for=10)
    assert it.claim(1) == [1]
    del it.floor.rows[1]
    it.now += 11
    assert it.claim(1) == []


def test_rows_are_read_again_after_the_clock_stepped_back() -> None:
    """G3"""
    it = Counter(row(1), row(2))
    it.claim(1)
    it.now -= 3600
    assert it.claim(1) == []


def test_the_next_look_is_when_the_next_row_is_due() -> None:
    it = Counter(row(1, START + 70), row(2, START + 50), row(3, None))
    assert it.claim() == []
    assert it.consumer.next_look_at("q") == START + 50


@pytest.mark.parametrize("number", [START, str(START), f" {START} ", Decimal(START), float(START)])
def test_ints_may_come_as_other_numbers(number: Any) -> None:
    """E19"""
    it = Counter(row(1, number, attempts=str(3), expire_at=Decimal(START + 5), extra="kept out"))
    (claim,) = it.consumer.claim("q", "me", 10, 30)
    assert (claim.record.run_at, claim.record.attempts, claim.record.expire_at) == (START, 3, START + 5)
    assert not it.warnings


def test_rows_may_be_mappings_and_ids_anything_hashable() -> None:
    """E19"""
    number = uuid.uuid4()
    it = Counter(types.MappingProxyType(row(number)), row("a"), row((1, 2)))
    assert set(it.claim()) == {number, "a", (1, 2)}


@pytest.mark.parametrize(
    "bad",
    [
        {"queue": "q", "run_at": START, "task": "!x {}"},
        row(None),
        row(1, "soon"),
        row(1, 1.5),
        row(1, True),
        row(1, float("nan")),
        row(1, []),
        row([1]),
        "not a mapping",
        None,
        7,
    ],
)
def test_a_row_without_an_id_or_a_readable_run_at_is_logged_once_and_never_written(bad: Any) -> None:
    """U9"""
    it = Counter()
    it.floor.read_tasks = lambda queue: [bad, row(5)]  # type: ignore[method-assign]
    assert it.claim() == [5]
    it.now += 11
    it.claim()
    assert len(it.warnings) == 1
    assert not it.floor.said("update")
    assert not it.floor.said("delete")


@pytest.mark.parametrize("change", [{"attempts": "many"}, {"expire_at": "never"}, {"task": None}, {"task": b"!x {}"}])
def test_a_row_that_is_otherwise_unreadable_is_that_rows_problem(change: dict[str, Any]) -> None:
    """E19, E30"""
    it = Counter(row(1, **change), row(2))
    first, second = it.consumer.claim("q", "me", 10, 30)
    assert first.record.defect is not None
    assert second.record.defect is None


def test_a_duplicate_id_is_claimed_once() -> None:
    it = Counter(row(1), row(1))
    assert it.claim() == [1]


def test_each_transition_is_one_call_at_most() -> None:
    """E25, E27, E28, E38"""
    it = Counter(*(row(number) for number in range(4)))
    claims = it.consumer.claim("q", "me", 10, 30)
    again = Reschedule(run_at=START + 31, attempts=1, last_fail_at=START, last_error="Task failed: x", task="!x {n: 1}")
    dead = Close(state=TaskState.FAILED, attempts=1, last_fail_at=START, last_error="Task failed too many times: x")
    transitions = [Complete(), Release(), again, dead]
    it.floor.calls.clear()
    assert (
        list(it.consumer.settle([(claim.token, what) for claim, what in zip(claims, transitions, strict=True)])) == []
    )
    assert [call for call, _ in it.floor.calls] == ["delete", "update", "update"]
    assert it.floor.rows[2]["task"] == "!x {n: 1}"
    assert it.floor.rows[3]["run_at"] is None


def test_one_write_that_fails_does_not_stop_the_others() -> None:
    """E37"""
    it = Counter(*(row(number) for number in range(3)))
    claims = it.consumer.claim("q", "me", 10, 30)

    def picky(call: str, argument: Any) -> None:
        if argument == 1:
            raise OSError("no")

    it.floor.fail = picky
    with pytest.raises(IncompleteSettle) as caught:
        it.consumer.settle([(claim.token, Complete()) for claim in claims])
    assert list(caught.value.failures) == [claims[1].token]
    assert set(it.floor.rows) == {1}
    it.floor.fail = lambda call, argument: None
    assert list(it.consumer.settle([(claims[1].token, Complete())])) == []
    assert it.floor.rows == {}


def test_a_token_is_good_once() -> None:
    """G2"""
    it = Counter(row(1))
    (claim,) = it.consumer.claim("q", "me", 10, 30)
    it.consumer.settle([(claim.token, Release())])
    assert it.consumer.settle([(claim.token, Complete())]) == [claim.token]
    assert set(it.floor.rows) == {0}


def test_what_a_dead_process_had_begun_comes_first_and_costs_no_further_call() -> None:
    """E38"""
    settled = row(3, attempts=1)  # its note says 0: it was written, and only its note couldn't be struck out
    set_back = row(4, START + 9)  # it was due when it began: the clock has been set back since
    left = (key_of(2), key_of(3), key_of("2"), key_of(4))
    it = Counter(row(1), row(2), settled, set_back, left=left)
    reaped = it.consumer.lapsed("q", "me", 500, 30, "dead")
    assert [claim.record.id for claim in reaped] == [2, 4]
    assert it.consumer.lapsed("q", "me", 500, 30, "dead") == ()
    assert it.claim() == [1, 3]
    assert len(it.floor.said("read")) == 1


class BrokenMapping(dict[str, Any]):
    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError("no row to be had")


class BrokenId:
    def __hash__(self) -> int:
        return hash(1)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


BROKEN = [BrokenMapping(id=2), row(BrokenId()), row(BrokenId(), run_at="x"), row(2, run_at=10**400)]


@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
def test_a_row_whose_own_methods_fail_stops_no_other(broken: Any) -> None:
    """E19, E30"""
    it = Counter()
    it.floor.read_tasks = lambda queue: [row(1), broken, row(3)]  # type: ignore[method-assign]
    assert it.claim() == [1, 3]
    assert it.consumer.next_look_at("q") is None
    assert len(it.warnings) == 1
