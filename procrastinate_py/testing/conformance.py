"""The public exam for persisters: every bundled store passes it, and so can yours.

With pytest, a subclass in one of your test modules::

    class TestMyPersister(PersisterConformance):
        def make_persister(self, clock):
            return MyPersister(empty_store(), clock)

Without pytest: ``print(grade(lambda clock: MyPersister(empty_store(), clock)))``, or from the command line::

    python -m procrastinate_py.testing.conformance my_module:make_persister
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..ports.capabilities import Capabilities, check_floor
from .clock import FakeClock
from .conformance_creating import CREATING
from .conformance_editing import EDITING
from .conformance_exam import WAKE_WITHIN, Case, Exam, Inapplicable, Unfulfilled
from .conformance_fencing import FENCING
from .conformance_floor import FLOOR
from .conformance_floor_values import FLOOR_VALUES
from .conformance_inspecting import INSPECTING
from .conformance_leases import LEASES
from .conformance_leasing import LEASING
from .conformance_racing import RACING, RACING_EDITS
from .conformance_report import ABILITIES, Failure, Report
from .conformance_settling import SETTLING
from .conformance_timekeeping import TIMEKEEPING
from .conformance_timing import TIMING
from .conformance_waking import WAKING

__all__ = ["ABILITIES", "CASES", "Failure", "PersisterConformance", "Report", "abilities_of", "grade"]

_GROUPS = (
    *(FLOOR, FLOOR_VALUES),
    *(LEASING, TIMING, LEASES, SETTLING, FENCING, RACING),
    *(CREATING, EDITING, RACING_EDITS, WAKING, INSPECTING, TIMEKEEPING),
)
CASES: tuple[Case, ...] = tuple(case for group in _GROUPS for case in group.all)

_NEEDED_BESIDES = {
    "editing": ("leasing", "inspecting"),
    "inspecting": ("leasing",),
    "timekeeping": ("leasing",),
    "waking": ("leasing",),
}
"""Abilities that an ability's cases need too."""


def grade(
    make_persister: Callable[[FakeClock], Any],
    *,
    reopen: Callable[[Any], Any] | None = None,
    abilities: Sequence[str] = ABILITIES,
    scale: float = 1.0,
    wake_within: float = WAKE_WITHIN,
) -> Report:
    """Runs every case of those of ``abilities`` that the persister has, each on a persister of its own.

    ``make_persister(clock)`` gives a persister with an empty store, which goes by the clock where it has leases.
    ``reopen(persister)`` gives another one on the same store, as a restarted process would open it. ``scale``: what
    part of the tasks that large cases have, for a store whose calls take long. ``wake_within``: seconds after which
    a wake-up is taken for lost.
    """
    name, has = _look_at(make_persister)
    counts: dict[str, int] = {}
    left_out: dict[str, int] = {}
    failures: list[Failure] = []
    for case in CASES:
        if case.ability not in abilities or case.ability not in has:
            continue
        try:
            why = _fault_found_by(case, Exam(make_persister, reopen, scale, wake_within))
        except Inapplicable as inapplicable:
            left_out[str(inapplicable)] = left_out.get(str(inapplicable), 0) + 1
            continue
        counts[case.ability] = counts.get(case.ability, 0) + 1
        if why is not None:
            failures.append(Failure(ability=case.ability, sentence=case.sentence, why=why))
    return Report(
        persister=name,
        cases=counts,
        lacking=tuple(ability for ability in abilities if ability not in has),
        failures=tuple(failures),
        left_out=left_out,
    )


def _look_at(make_persister: Callable[[FakeClock], Any]) -> tuple[str, tuple[str, ...]]:
    exam = Exam(make_persister)
    try:
        check_floor(exam.persister)
        return type(exam.persister).__name__, abilities_of(exam.persister)
    finally:
        exam.close()


def abilities_of(persister: Any) -> tuple[str, ...]:
    """Those that can be examined."""
    capabilities = Capabilities.of(persister)
    has = {"floor", *(name for name in ABILITIES[1:] if getattr(capabilities, name) is not None)}
    return tuple(name for name in ABILITIES if name in has and has.issuperset(_NEEDED_BESIDES.get(name, ())))


def _fault_found_by(case: Case, exam: Exam) -> str | None:
    """What's wrong, in words. Closes the exam's persister."""
    try:
        case.check(exam)
    except Unfulfilled as unfulfilled:
        return str(unfulfilled)
    except Inapplicable:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"it raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
    finally:
        exam.close()
    return None


class PersisterConformance:
    """For pytest: subclass it as ``Test...``, and give it ``make_persister``. One test for each case; those of
    abilities that the persister lacks are skipped."""

    expects: ClassVar[Sequence[str]] = ()
    """Abilities that the persister must have, so that a misspelt method doesn't go for a missing ability."""

    abilities: ClassVar[Sequence[str]] = ABILITIES
    """Those to examine. ``("floor",)`` spares a persister of four methods the skipped tests."""

    scale: ClassVar[float] = 1.0
    """What part of the tasks that large cases have, for a store whose calls take long."""

    def make_persister(self, clock: FakeClock) -> Any:
        """A persister with an empty store, at each call. It goes by ``clock`` where it has leases."""
        raise TypeError(f"{type(self).__name__} must define make_persister(self, clock)")

    def reopen(self, persister: Any) -> Any:
        """Another persister on the same store, as a restarted process would open it; where it outlives one."""
        return None

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "conformance_case" in metafunc.fixturenames:
            cases = [case for case in CASES if case.ability in self.abilities]
            ids = [f"{case.ability}: {case.sentence}" for case in cases]
            metafunc.parametrize("conformance_case", cases, ids=ids)

    def test_it_has_the_abilities_it_expects(self) -> None:
        name, has = _look_at(self.make_persister)
        for ability in self.expects:
            if ability not in has:
                raise AssertionError(f"{name} lacks the ability {ability!r}: a method of it is missing")

    def test_it_holds_that(self, conformance_case: Case) -> None:
        lasting = type(self).reopen is not PersisterConformance.reopen
        exam = Exam(self.make_persister, self.reopen if lasting else None, self.scale)
        if conformance_case.ability not in abilities_of(exam.persister):
            exam.close()
            _skip(f"{type(exam.persister).__name__} has no {conformance_case.ability}")
        try:
            why = _fault_found_by(conformance_case, exam)
        except Inapplicable as inapplicable:
            _skip(str(inapplicable))
            return
        if why is not None:
            raise AssertionError(f"a persister should hold that {conformance_case.sentence}; but {why}")


def _skip(why: str) -> None:
    import pytest  # here, since the exam can be sat without it

    pytest.skip(why)


if __name__ == "__main__":
    from .conformance_command import main

    sys.exit(main(sys.argv[1:], grade))
