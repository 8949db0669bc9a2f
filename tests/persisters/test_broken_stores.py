"""The exam finds what's wrong with stores that are broken (G6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from procrastinate_py.testing.conformance import ABILITIES, CASES, grade
from tests.persisters import broken_abilities, broken_floors, broken_leases
from tests.persisters.broken_stores import DOUBLES, Double

KINDS = (broken_floors, broken_leases, broken_abilities)
"""Named, since importing them is what fills DOUBLES."""
QUICKLY: Any = {"scale": 0.1, "wake_within": 0.1}
QUICK = tuple(ability for ability in ABILITIES if ability != "waking")
"""The cases of waking wait for silence."""


def name_of(double: Double) -> str:
    return double.name


@pytest.mark.parametrize("double", DOUBLES, ids=name_of)
def test_a_broken_store_is_caught(double: Double) -> None:
    """G6: one that is broken in one way only fails one case, so without it nobody would know."""
    abilities = (double.ability,) if not double.alone else ABILITIES if double.ability == "waking" else QUICK
    report = grade(double.make, reopen=double.reopen, abilities=abilities, **QUICKLY)
    failed = [failure.sentence for failure in report.failures]
    assert double.sentence in failed
    assert double.sentence in str(report)
    if double.alone:
        assert failed == [double.sentence]


def test_each_double_names_a_case_and_there_are_many_of_each_kind() -> None:
    """G6: at least 20 for each grade; the further abilities are what a store needs to be complete."""
    assert {(double.ability, double.sentence) for double in DOUBLES} <= {
        (case.ability, case.sentence) for case in CASES
    }
    number = Counter(double.ability for double in DOUBLES)
    assert number["floor"] >= 20
    assert number["leasing"] >= 20
    assert number.total() - number["floor"] - number["leasing"] >= 20
