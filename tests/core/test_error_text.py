"""E33: whatever an exception says, last_error can be stored."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from procrastinate_py.core.error_text import (
    LONGEST_ERROR_BYTES,
    ascii_fallback,
    error_text,
    message_of,
    shown,
    storable,
    traceback_of,
)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_the_message_comes_first_and_the_traceback_follows() -> None:
    """E27"""
    text = error_text("Task failed", raised(ValueError("boom")))
    assert text.startswith("Task failed: boom\nTraceback (most recent call last):\n")
    assert text.endswith("ValueError: boom\n")


def test_a_text_of_64_kib_is_kept_whole_and_one_byte_more_is_cut_in_the_middle() -> None:
    """E33"""
    assert LONGEST_ERROR_BYTES == 64 * 1024
    whole = "a" * LONGEST_ERROR_BYTES
    assert storable(whole) == whole
    cut = storable("START" + "a" * LONGEST_ERROR_BYTES + "END")
    assert cut.startswith("START") and cut.endswith("END") and "cut" in cut
    assert len(cut.encode()) <= LONGEST_ERROR_BYTES


@pytest.mark.parametrize("shift", range(8))
@pytest.mark.parametrize("letter", ["é", "€", "🎉"])
def test_a_cut_never_splits_a_character(letter: str, shift: int) -> None:
    """E33"""
    cut = storable("x" * shift + letter * 40_000 + "y" * shift)
    assert set(cut) - set("\n[... cut ...]\n") <= {"x", "y", letter}
    assert LONGEST_ERROR_BYTES - 20 < len(cut.encode()) <= LONGEST_ERROR_BYTES


def test_nul_and_lone_surrogates_are_escaped() -> None:
    """E33"""
    assert storable("a\x00b\ud800c\udfff") == "a\\u0000b\\ud800c\\udfff"


@given(st.text(st.characters()), st.integers(50, 200))
@settings(max_examples=200)
def test_any_text_becomes_storable_within_its_limit(text: str, limit: int) -> None:
    """E33"""
    safe = storable(text * 5, limit)
    assert len(safe.encode()) <= limit and "\x00" not in safe
    assert storable(safe, limit) == safe


class HostileText(str):
    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __format__(self, spec: str) -> str:
        raise RuntimeError("no format")

    def __str__(self) -> str:
        raise RuntimeError("no str")


class Says(Exception):
    """An exception whose __str__ does as it's told."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what = what

    def __str__(self) -> str:
        if isinstance(self.what, BaseException):
            raise self.what
        said: str = self.what
        return said


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("", "Says"),
        ("fine", "fine"),
        (ValueError("x"), "(its __str__ failed)"),
        (KeyboardInterrupt(), "(its __str__ failed)"),
        (SystemExit(3), "(its __str__ failed)"),
        (RecursionError(), "(its __str__ failed)"),
        (5, "(its __str__ failed)"),
        (None, "(its __str__ failed)"),
        (HostileText("hostile"), "hostile"),
    ],
)
def test_an_exception_that_cannot_speak_is_survived(what: Any, message: str) -> None:
    """E33"""
    error = raised(Says(what))
    assert message_of(error) == message
    text = error_text("Task failed", error)
    assert text.startswith(f"Task failed: {message}\n")
    text.encode()


def test_an_exception_without_words_is_told_by_its_type() -> None:
    """E33"""
    assert message_of(KeyError()) == "KeyError"
    assert error_text("Task failed", AssertionError()).startswith("Task failed: AssertionError\n")


def test_a_traceback_that_cannot_be_told_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    """E33"""

    def broken(*_: object) -> list[str]:
        raise RuntimeError

    monkeypatch.setattr(traceback, "format_exception", broken)
    assert traceback_of(ValueError("x")) == "ValueError (its traceback can't be told)\n"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("\x00\ud800" * 1000),
        ValueError("x" * 10**6),
        ValueError("€" * 10**5),
        ExceptionGroup("many", [ValueError(str(number)) for number in range(500)]),
        BaseExceptionGroup("group", [KeyboardInterrupt(), SystemExit(1)]),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_hostile_error_is_cut_and_can_be_encoded(error: BaseException) -> None:
    """E33 G8"""
    error = raised(error)
    error.__cause__ = raised(RuntimeError("the cause"))
    text = error_text("Task failed", error)
    assert len(text.encode()) <= LONGEST_ERROR_BYTES and "\x00" not in text
    assert text.startswith("Task failed: ")


def test_the_fallback_is_a_short_line_of_ascii() -> None:
    """E33"""
    text = ascii_fallback("Task failed: é\u2028🎉" + "x" * 500 + "\nsecond line")
    assert text.startswith("Task failed: ???xxx") and len(text) == 200 and text.isascii()


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("value", [NoRepr(), 10**5000])
def test_a_value_that_cannot_be_shown_is_told_by_its_type(value: Any) -> None:
    """E8"""
    assert shown(value) == f"a value of type {type(value).__name__}"
    assert shown("x" * 500) == "'" + "x" * 199 + "..."


def test_a_huge_text_is_cut_before_it_is_escaped() -> None:
    """E33: escaping tens of megabytes would take longer than the task."""
    text = "\0" * 30_000_000
    stored = storable("a" * 40_000 + text + "z" * 40_000)
    assert len(stored.encode()) <= 65536
    assert stored.startswith("a" * 30_000)
    assert stored.endswith("z" * 30_000)
