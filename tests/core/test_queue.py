"""E7 to E10: a queue's name and options, checked where they're declared."""

from __future__ import annotations

import math
import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from procrastinate_py.core.backoff import default_backoff
from procrastinate_py.core.queue import QUEUE_OPTIONS, QueueSpec, file_stem, normalise_name, queue_spec

SUFFIX = "-queue-worker.log"


def test_a_queue_has_defaults_for_all_but_its_name() -> None:
    """E7"""
    spec = queue_spec("email", {})
    assert spec == QueueSpec(name="email")
    assert (spec.timeout, spec.max_attempts, spec.update_period, spec.max_tasks) == (3600, 20, 10, 10)
    assert (spec.backoff, spec.hook_timeout, spec.timeout_grace) == (default_backoff, 3600, 5)
    assert spec.processes == 1


def test_every_option_is_taken() -> None:
    """E7 E31 U30"""
    options: dict[str, Any] = {
        "timeout": 0.1,
        "max_attempts": 1,
        "update_period": 0.5,
        "max_tasks": 3,
        "backoff": lambda attempts: 5,
        "hook_timeout": 2,
        "timeout_grace": 1,
        "processes": 4,
    }
    assert set(options) == set(QUEUE_OPTIONS)
    spec = queue_spec("email", options)
    assert {name: getattr(spec, name) for name in options} == options


@pytest.mark.parametrize("option", ["timeout", "hook_timeout"])
@pytest.mark.parametrize("value", [None, 0, 0.0])
def test_no_limit_is_told_by_none_or_zero(option: str, value: float | None) -> None:
    """E8"""
    assert getattr(queue_spec("email", {option: value}), option) is None


def test_no_limit_of_attempts_is_told_by_none() -> None:
    """E8"""
    assert queue_spec("email", {"max_attempts": None}).max_attempts is None


@pytest.mark.parametrize("timeout", [5, None, 0.5])
def test_hooks_may_take_as_long_as_the_body_unless_told_otherwise(timeout: float | None) -> None:
    """E31"""
    assert queue_spec("email", {"timeout": timeout}).hook_timeout == timeout
    assert queue_spec("email", {"timeout": timeout, "hook_timeout": 7}).hook_timeout == 7
    assert queue_spec("email", {"timeout": timeout, "hook_timeout": None}).hook_timeout is None


NO_NUMBERS = [True, False, math.nan, math.inf, -math.inf, "5", "", b"5", [], {}, 1j, Decimal(5), Fraction(1, 2), object]
NO_DURATIONS = [*NO_NUMBERS, -1, -0.5, 10**400, -(10**5000), 10**5000]
NO_PERIODS = [*NO_DURATIONS, None, 0, 0.0]
NO_COUNTS = [*NO_NUMBERS, 0, -1, 1.0, 0.5, -(10**5000)]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("timeout", value) for value in NO_DURATIONS),
        *(("hook_timeout", value) for value in NO_DURATIONS),
        *(("update_period", value) for value in NO_PERIODS),
        *(("timeout_grace", value) for value in NO_PERIODS),
        *(("max_attempts", value) for value in NO_COUNTS),
        *(("max_tasks", value) for value in [*NO_COUNTS, None]),
        *(("processes", value) for value in [*NO_COUNTS, None]),
        *(("backoff", value) for value in [None, 5, "x"]),
    ],
)
def test_a_wrong_value_is_refused_naming_queue_option_and_value(option: str, value: Any) -> None:
    """E8"""
    with pytest.raises(ValueError) as caught:
        queue_spec("my  queue", {option: value})
    message = str(caught.value)
    assert "'my_queue'" in message and option in message
    try:
        assert repr(value)[:100] in message
    except ValueError:  # an int of more digits than Python prints
        assert "a value of type int" in message


def test_an_unknown_option_is_refused_with_a_guess_at_what_was_meant() -> None:
    """E8"""
    with pytest.raises(TypeError, match=r"'email'.*'max_task'.*did you mean 'max_tasks'"):
        queue_spec("email", {"max_task": 5})
    with pytest.raises(TypeError, match=r"unknown option 'name'"):
        queue_spec("email", {"name": "other"})


@pytest.mark.parametrize("name", [None, 5, b"email", ["email"], object()])
def test_a_name_that_is_no_str_is_refused(name: Any) -> None:
    """E8"""
    with pytest.raises(TypeError, match="name must be a str"):
        queue_spec(name, {})


@pytest.mark.parametrize("name", ["", " ", "\t\n", "\u3000"])
def test_an_empty_name_is_refused(name: str) -> None:
    """E8"""
    with pytest.raises(ValueError, match="must not be empty"):
        queue_spec(name, {})


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("email", "email"),
        (" email ", "email"),
        ("my queue", "my_queue"),
        ("my \t\n queue", "my_queue"),
        ("a b  c", "a_b_c"),
        ("my\u00a0\u2003queue", "my_queue"),
        ("my_queue", "my_queue"),
        ("my__queue", "my__queue"),
        ("É", "É"),
    ],
)
def test_a_name_has_one_spelling(raw: str, normal: str) -> None:
    """E9"""
    assert normalise_name(raw) == normal == queue_spec(raw, {}).name


@given(st.text(st.characters(), min_size=1))
def test_a_normal_name_stays_as_it_is(name: str) -> None:
    """E9"""
    try:
        normal = normalise_name(name)
    except ValueError:
        return
    assert normalise_name(normal) == normal and not any(letter.isspace() for letter in normal)


HOSTILE = [
    *("../../x", "/abs", "..", ".", "...", ".hidden", "-rf", "--", "a/b", "a\\b", "nul\x00", "\x00", "🎉" * 64),
    *("~", "~root", "%2F", "%", "a%00b", "é", "e\u0301", "\ud800", "\udc80" * 100, "CON", "*", "$(rm)", "`x`"),
    *("a;b", "\n", "x" * 10_000, "Email", "email", "e" * 119, "e" * 120, "e" * 121, "e" * 122),
    *("/" * 40, "/" * 41, "/" * 100),
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_makes_a_file_in_the_folder_and_nowhere_else(name: str, tmp_path: Path) -> None:
    """E10 G8"""
    log_dir = tmp_path / "log"
    log_dir.mkdir()
    stem = file_stem(name)
    (log_dir / f"{stem}{SUFFIX}").write_text("")
    assert os.listdir(tmp_path) == ["log"]
    assert os.listdir(log_dir) == [f"{stem}{SUFFIX}"]
    assert stem.isascii() and not stem.startswith((".", "-"))


def test_every_hostile_name_has_a_file_of_its_own() -> None:
    """E10 U29: names that differ in Unicode normal form differ."""
    assert len({file_stem(name) for name in HOSTILE}) == len(HOSTILE)


def test_long_names_that_begin_alike_have_files_of_their_own() -> None:
    """E10"""
    names = {f"{'x' * 200}{number}" for number in range(2000)}
    stems = {file_stem(name) for name in names}
    assert len(stems) == len(names)
    assert not stems & {file_stem(stem) for stem in stems}


def test_a_plain_name_is_its_own_file_name() -> None:
    """E10"""
    assert file_stem("my_queue-2.high") == "my_queue-2.high"


ALPHABET = st.sampled_from("aA.-_~%/\\\x00 2F\u00e9\ud800🎉")
NAMES = (
    st.text(ALPHABET, min_size=1, max_size=12)
    | st.text(ALPHABET, min_size=100, max_size=140)
    | st.text(st.characters())
)


@settings(max_examples=500)
@given(NAMES, NAMES)
def test_two_names_never_share_a_file(one: str, other: str) -> None:
    """E10"""
    assert (file_stem(one) == file_stem(other)) == (one == other)
    assert one == "" or 0 < len(f"{file_stem(one)}{SUFFIX}.lock.1") < 255
    assert "/" not in file_stem(one) and "\x00" not in file_stem(one)


@given(NAMES)
def test_the_file_name_of_a_name_is_not_a_shortcut_to_another(name: str) -> None:
    """E10: a queue named like another's mapped file has another file."""
    if (stem := file_stem(name)) != name:
        assert file_stem(stem) != stem
