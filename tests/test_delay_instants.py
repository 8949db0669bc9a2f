"""When a delayed task is due and when it expires: what is stored of what was said."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procrastinate_py import Environment
from tests.environments import NOW, Spy, env_on


class Nothing:
    def run(self) -> None:
        pass


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def env(spy: Spy) -> Environment:
    """Now is NOW and three quarters."""
    return env_on(spy, "email")


@pytest.fixture
def berlin() -> Iterator[None]:
    """The local time zone, for naive datetimes."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "CET-1CEST,M3.5.0,M10.5.0/3"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def stored(env: Environment, spy: Spy, **options: Any) -> dict[str, Any]:
    env.delay("email", task=Nothing(), **options)
    data: dict[str, Any] = spy.calls[-1][1]
    return data


def test_create_task_gets_exactly_these_fields(env: Environment, spy: Spy) -> None:
    """E15"""
    assert stored(env, spy, run_at=NOW + 10, expire_at=NOW + 20) == {
        "queue": "email",
        "run_at": NOW + 10,
        "initial_run_at": NOW + 10,
        "expire_at": NOW + 20,
        "task": f"!{__name__}:Nothing {{}}",
    }
    assert [name for name, _ in spy.calls] == ["create_task"]


def test_by_default_a_task_is_due_now_and_never_expires(env: Environment, spy: Spy) -> None:
    """E15"""
    data = stored(env, spy)
    assert (data["run_at"], data["initial_run_at"], data["expire_at"]) == (NOW, NOW, None)
    assert type(data["run_at"]) is int


def test_delay_returns_what_create_task_returned(spy: Spy) -> None:
    """E15"""

    class Odd(Spy):
        def create_task(self, data: dict[str, Any]) -> Any:
            return ("an", "id")

    assert env_on(Odd(), "email").delay(Nothing()) == ("an", "id")


@pytest.mark.parametrize(
    ("run_at", "wanted"),
    [
        (NOW, NOW),
        (NOW + 0.25, NOW + 1),
        (0, 0),
        (-5, -5),
        (-5.5, -5),
        (timedelta(0), NOW + 1),
        (timedelta(seconds=10), NOW + 11),
        (timedelta(seconds=-10), NOW - 9),
        (timedelta(seconds=0.25), NOW + 1),
        (datetime.fromtimestamp(NOW, UTC), NOW),
        (datetime.fromtimestamp(NOW, timezone(timedelta(hours=5, minutes=30))), NOW),
        (datetime(3000, 1, 1, tzinfo=UTC), 32503680000),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), 253402300799),
        (253402300799, 253402300799),
        (datetime(1960, 1, 1, tzinfo=UTC), -315619200),
    ],
)
def test_run_at_is_rounded_up_to_whole_seconds(env: Environment, spy: Spy, run_at: Any, wanted: int) -> None:
    """E15 E16"""
    data = stored(env, spy, run_at=run_at)
    assert (data["run_at"], data["initial_run_at"]) == (wanted, wanted)
    assert type(data["run_at"]) is int


@pytest.mark.parametrize(
    ("expire_at", "wanted"),
    [
        (NOW + 5.9, NOW + 5),
        (timedelta(seconds=10), NOW + 10),
        (datetime.fromtimestamp(NOW + 3.5, UTC), NOW + 3),
        (datetime(9999, 12, 31, tzinfo=UTC), 253402214400),
        (NOW, NOW),
    ],
)
def test_expire_at_is_rounded_down_to_whole_seconds(env: Environment, spy: Spy, expire_at: Any, wanted: int) -> None:
    """E15 E16"""
    data = stored(env, spy, expire_at=expire_at)
    assert data["expire_at"] == wanted
    assert type(data["expire_at"]) is int


def test_a_naive_datetime_is_local_time(env: Environment, spy: Spy, berlin: None) -> None:
    """E16"""
    assert stored(env, spy, run_at=datetime(2027, 7, 1, 12))["run_at"] == 1814436000
    assert stored(env, spy, run_at=datetime(2027, 1, 1, 12))["run_at"] == 1798801200


def test_the_fold_of_a_naive_datetime_is_honoured(env: Environment, spy: Spy, berlin: None) -> None:
    """E16"""
    first = stored(env, spy, run_at=datetime(2027, 10, 31, 2, 30, fold=0))["run_at"]
    second = stored(env, spy, run_at=datetime(2027, 10, 31, 2, 30, fold=1))["run_at"]
    assert second - first == 3600


@pytest.mark.parametrize("argument", ["run_at", "expire_at"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (math.nan, ValueError),
        (math.inf, ValueError),
        (-math.inf, ValueError),
        (10**30, ValueError),
        (253402300800, ValueError),
        (timedelta.max, ValueError),
        (True, TypeError),
        (False, TypeError),
        ("2030-01-01", TypeError),
        (Decimal(3), TypeError),
        (b"", TypeError),
        (datetime(2030, 1, 1).date(), TypeError),
    ],
)
def test_what_is_no_instant_is_told_with_the_argument(
    env: Environment, spy: Spy, argument: str, value: Any, error: type[Exception]
) -> None:
    """E16"""
    options: dict[str, Any] = {argument: value}
    with pytest.raises(error, match=argument):
        env.delay("email", task=Nothing(), **options)
    assert spy.calls == []


@pytest.mark.parametrize(
    ("run_at", "expire_at"), [(NOW + 10, NOW + 9), (NOW + 9.1, NOW + 9.9), (None, NOW - 1), (None, timedelta(days=-1))]
)
def test_a_task_that_could_never_run_is_refused(env: Environment, spy: Spy, run_at: Any, expire_at: Any) -> None:
    """E16 U7"""
    with pytest.raises(ValueError, match=r"expire_at .* before run_at"):
        env.delay("email", task=Nothing(), run_at=run_at, expire_at=expire_at)
    assert spy.calls == []


@pytest.mark.parametrize(("run_at", "expire_at"), [(NOW + 9, NOW + 9.9), (NOW + 8.1, NOW + 9), (NOW, NOW)])
def test_instants_are_compared_after_rounding(env: Environment, spy: Spy, run_at: Any, expire_at: Any) -> None:
    """U7"""
    data = stored(env, spy, run_at=run_at, expire_at=expire_at)
    assert data["run_at"] <= data["expire_at"]


def test_run_at_in_the_past_is_fine(env: Environment) -> None:
    """E16"""
    env.delay("email", task=Nothing(), run_at=1)
    assert len(env.act()) == 1


@given(run_at=st.floats(-1e11, 2e11), expire_at=st.floats(-1e11, 2e11))
def test_a_stored_task_is_never_earlier_or_later_than_said(run_at: float, expire_at: float) -> None:
    """E15 E16"""
    spy = Spy()
    env = env_on(spy, "email")
    if math.ceil(run_at) > math.floor(expire_at):
        with pytest.raises(ValueError, match="expire_at"):
            env.delay(Nothing(), run_at=run_at, expire_at=expire_at)
        return
    data = stored(env, spy, run_at=run_at, expire_at=expire_at)
    assert run_at <= data["run_at"] <= run_at + 1
    assert expire_at - 1 <= data["expire_at"] <= expire_at
