"""E15, E16: instants as users say them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st

from procrastinate_py.core.instants import LATEST, epoch_seconds, round_expire_at, round_run_at

NOW = 1_800_000_000.25


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's time zone, as a process in Berlin has it."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def told(value: Any) -> float:
    return epoch_seconds(value, now=NOW, argument="run_at")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (1_700_000_000, 1_700_000_000),
        (1_700_000_000.5, 1_700_000_000.5),
        (-5, -5),
        (timedelta(hours=1), NOW + 3600),
        (timedelta(0), NOW),
        (timedelta(days=-1), NOW - 86400),
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1_767_225_600),
        (datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), 1_767_225_600),
        (datetime(3000, 1, 1, tzinfo=UTC), 32_503_680_000),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), LATEST),
        (LATEST, LATEST),
        (datetime.max.replace(tzinfo=UTC), LATEST),
        (datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-1))), LATEST),
    ],
)
def test_an_instant_is_taken_in_each_of_its_forms(value: Any, seconds: float) -> None:
    """E16"""
    assert told(value) == seconds


@pytest.mark.usefixtures("berlin")
def test_a_naive_datetime_means_local_time_and_its_fold_counts() -> None:
    """E16"""
    assert told(datetime(2026, 7, 1, 14)) == datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()
    assert told(datetime(2026, 1, 1, 13)) == datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    first = told(datetime(2026, 10, 25, 2, 30))
    second = told(datetime(2026, 10, 25, 2, 30, fold=1))
    assert (first, second) == (
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp(),
        datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp(),
    )
    gap = datetime(2026, 3, 29, 2, 30)
    assert told(gap) == gap.timestamp()


def test_an_aware_datetime_honours_its_fold() -> None:
    """E16"""
    zone = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=zone) for fold in (0, 1))
    assert told(second) - told(first) == 3600


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_end_of_the_calendar_is_an_instant_in_every_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """E16"""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert LATEST - 86400 < told(datetime.max) <= LATEST
        assert told(datetime(9999, 12, 31)) < told(datetime.max)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.usefixtures("berlin")
def test_an_instant_made_while_the_clock_is_frozen_is_one() -> None:
    """E16 E46"""
    with freeze_time("2026-01-01"):
        assert told(datetime.now(UTC)) == 1_767_225_600
        assert told(datetime(2026, 1, 1, tzinfo=UTC)) == 1_767_225_600
        assert told(timedelta(1)) == NOW + 86400


@pytest.mark.parametrize("argument", ["run_at", "expire_at"])
@pytest.mark.parametrize(
    "value", [True, False, "2026-01-01", "5", b"5", None, Decimal(5), [], date(2026, 1, 1), 1j, object]
)
def test_what_is_no_instant_is_refused_naming_the_argument(value: Any, argument: str) -> None:
    """E16"""
    with pytest.raises(TypeError, match=f"^{argument} must be epoch seconds"):
        epoch_seconds(value, now=NOW, argument=argument)


@pytest.mark.parametrize(
    "value",
    [
        *(math.nan, math.inf, -math.inf, LATEST + 1, 1e300, 10**400, 10**5000, -(10**12)),
        *(timedelta.max, timedelta(days=3_000_000), timedelta.min),
    ],
)
def test_an_instant_beyond_reach_is_refused_naming_the_argument(value: Any) -> None:
    """E16"""
    with pytest.raises(ValueError, match="^run_at must be a finite instant"):
        told(value)


@pytest.mark.usefixtures("berlin")
def test_a_naive_datetime_at_the_edge_of_the_calendar_is_taken_or_refused_by_name() -> None:
    """E16"""
    assert told(datetime(9999, 12, 31, 23, 59, 59)) == LATEST - 3600
    assert told(datetime(9999, 12, 30, 23, 59, 59)) == LATEST - 3600 - 86400
    try:
        told(datetime.min)
    except ValueError as error:
        assert str(error).startswith("run_at")


@given(st.floats(-LATEST, LATEST))
def test_a_task_never_runs_before_its_instant_nor_after_its_deadline(seconds: float) -> None:
    """E15"""
    run_at, expire_at = round_run_at(seconds), round_expire_at(seconds)
    assert type(run_at) is int and type(expire_at) is int
    assert expire_at <= seconds <= run_at and run_at - expire_at <= 1


@given(st.integers(-LATEST, LATEST))
def test_a_whole_second_is_stored_as_it_is(seconds: int) -> None:
    """E15"""
    assert round_run_at(told(seconds)) == round_expire_at(told(seconds)) == seconds
