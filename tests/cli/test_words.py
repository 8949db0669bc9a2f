from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from procrastinate_py.cli.words import absolute, duration, instant, one_line, relative, safe_lines


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (31, "31s"),
        (60, "1m"),
        (9000, "2h 30m"),
        (3605, "1h"),
        (90_061, "1d 1h"),
        (10**15, "11574074074d 1h"),
    ],
)
def test_a_duration_is_told_by_its_two_largest_units(seconds: float, told: str) -> None:
    assert duration(seconds) == told


@pytest.mark.parametrize(
    ("at", "told"), [(None, "-"), (100, "now"), (100.5, "now"), (131, "in 31s"), (40, "1m ago"), (9100, "in 2h 30m")]
)
def test_an_instant_is_told_from_now(at: float | None, told: str) -> None:
    assert relative(at, 100) == told


def test_an_instant_that_no_calendar_holds_is_told_as_a_number() -> None:
    assert (absolute(0), absolute(10**18), absolute(None)) == ("1970-01-01T00:00:00Z", str(10**18), "-")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2h 30m", timedelta(hours=2, minutes=30)),
        ("in 1d", timedelta(days=1)),
        ("+90s", timedelta(seconds=90)),
        ("1.5h", timedelta(minutes=90)),
        ("2w", timedelta(days=14)),
        ("now", timedelta(0)),
        ("1800000000", 1_800_000_000.0),
        ("2030-12-24T18:00", datetime(2030, 12, 24, 18)),
        ("2030-12-24 18:00+02:00", datetime.fromisoformat("2030-12-24T18:00+02:00")),
    ],
)
def test_instants_are_understood_as_people_type_them(text: str, meant: object) -> None:
    assert instant(text) == meant


@pytest.mark.parametrize("text", ["", "tomorrow", "2x", "h", "2030-13-01", "nan", "9" * 500 + "w", "1e5"])
def test_what_is_no_instant_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="2h 30m"):
        instant(text)


def test_stored_texts_cant_act_on_the_terminal() -> None:
    """G8"""
    assert one_line("\x1b[2Jgone\nmore") == r"\u001b[2Jgone"
    assert one_line("x" * 200, 10) == "xxxxxxx..."
    assert safe_lines("a\x07\n  b\u202e\n") == [r"a\u0007", r"  b\u202e"]
