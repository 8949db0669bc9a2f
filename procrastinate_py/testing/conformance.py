"""The public exam for persisters: every bundled store passes it, and so can yours.

With pytest, a subclass in one of your test modules::

    class TestMyPersister(PersisterConformance):
        def make_persister(self, clock):
            return MyPersister(empty_store(), clock)

Without pytest: ``print(grade(lambda clock: MyPersister(empty_store(), clock)))``.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..ports.capabilities import Capabilities, check_floor
from .clock import FakeClock
from .conformance_abilities import CREATING, EDITING, INSPECTING, TIMEKEEPING, WAKING
from .conformance_exam import Case, Exam, Unfulfilled
from .conformance_floor import FLOOR
from .conformance_leasing import LEASING
from .conformance_settling import SETTLING

ABILITIES = ("floor", "leasing", "creating", "editing", "waking", "inspecting", "timekeeping")

CASES: tuple[Case, ...] = tuple(
    case
    for group in (FLOOR, LEASING, SETTLING, CREATING, EDITING, WAKING, INSPECTING, TIMEKEEPING)
    for case in group.all
)

_NEEDED_BESIDES = {
    "editing": ("leasing", "inspecting"),
    "inspecting": ("leasing",),
    "timekeeping": ("leasing",),
}
"""Abilities that an ability's cases need too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that a persister failed."""

    ability: str
    sentence: str
    why: str

    def __str__(self) -> str:
        return f"{self.ability}: a persister should hold that {self.sentence}; but {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an exam found.

    ``cases``: how many were run for each ability. ``lacking``: abilities that the persister doesn't have, which is
    no fault.
    """

    persister: str
    cases: dict[str, int]
    lacking: tuple[str, ...]
    failures: tuple[Failure, ...]

    @property
    def passed(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        lines = [f"{self.persister}:"]
        for ability, number in self.cases.items():
            failed = sum(failure.ability == ability for failure in self.failures)
            lines.append(f"  {ability}: {number - failed} of {number}")
        if self.lacking:
            lines.append(f"  without: {', '.join(self.lacking)}")
        return "\n".join([*lines, *(f"- {failure}" for failure in self.failures)])


def grade(
    make_persister: Callable[[FakeClock], Any],
    *,
    reopen: Callable[[Any], Any] | None = None,
    abilities: Sequence[str] = ABILITIES,
) -> Report:
    """Runs every case of those of ``abilities`` that the persister has, each on a persister of its own.

    ``make_persister(clock)`` gives a persister with an empty store, which goes by the clock where it has leases.
    ``reopen(persister)`` gives another one on the same store, as a restarted process would open it.
    """
    first = Exam(make_persister)
    try:
        check_floor(first.persister)
        has = abilities_of(first.persister)
    finally:
        first.close()
    counts: dict[str, int] = {}
    failures: list[Failure] = []
    for case in CASES:
        if case.ability not in abilities or case.ability not in has:
            continue
        counts[case.ability] = counts.get(case.ability, 0) + 1
        why = _fault_found_by(case, make_persister, reopen)
        if why is not None:
            failures.append(Failure(ability=case.ability, sentence=case.sentence, why=why))
    return Report(
        persister=type(first.persister).__name__,
        cases=counts,
        lacking=tuple(ability for ability in abilities if ability not in has),
        failures=tuple(failures),
    )


def abilities_of(persister: Any) -> tuple[str, ...]:
    """Those that can be examined."""
    capabilities = Capabilities.of(persister)
    has = {"floor", *(name for name in ABILITIES[1:] if getattr(capabilities, name) is not None)}
    return tuple(name for name in ABILITIES if name in has and has.issuperset(_NEEDED_BESIDES.get(name, ())))


def _fault_found_by(
    case: Case, make_persister: Callable[[FakeClock], Any], reopen: Callable[[Any], Any] | None
) -> str | None:
    exam = Exam(make_persister, reopen)
    try:
        case.check(exam)
    except Unfulfilled as unfulfilled:
        return str(unfulfilled)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"it raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
    finally:
        exam.close()
    return None


class PersisterConformance:
    """For pytest: subclass it as ``Test...``, and give it ``make_persister``. One test for each ability."""

    expects: ClassVar[Sequence[str]] = ()
    """Abilities that the persister must have, so that a misspelt method doesn't go for a missing ability."""

    def make_persister(self, clock: FakeClock) -> Any:
        """A persister with an empty store, at each call. It goes by ``clock`` where it has leases."""
        raise TypeError(f"{type(self).__name__} must define make_persister(self, clock)")

    def reopen(self, persister: Any) -> Any:
        """Another persister on the same store, as a restarted process would open it; where it outlives one."""
        return None

    def test_floor(self) -> None:
        self._examine("floor")

    def test_leasing(self) -> None:
        self._examine("leasing")

    def test_creating(self) -> None:
        self._examine("creating")

    def test_editing(self) -> None:
        self._examine("editing")

    def test_waking(self) -> None:
        self._examine("waking")

    def test_inspecting(self) -> None:
        self._examine("inspecting")

    def test_timekeeping(self) -> None:
        self._examine("timekeeping")

    def _examine(self, ability: str) -> None:
        lasting = type(self).reopen is not PersisterConformance.reopen
        report = grade(self.make_persister, reopen=self.reopen if lasting else None, abilities=(ability,))
        if ability in self.expects and ability not in report.cases:
            raise AssertionError(f"{report.persister} lacks the ability {ability!r}: a method of it is missing")
        if not report.passed:
            raise AssertionError(str(report))
