"""What an exam found, and the grade that it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

ABILITIES = ("floor", "leasing", "creating", "editing", "waking", "inspecting", "timekeeping")

GRADES = {
    "floor": ("floor",),
    "leasing": ("floor", "leasing"),
    "complete": ("floor", "leasing", "creating", "editing", "inspecting", "timekeeping"),
}
"""The abilities that each grade needs, lowest grade first. Waking makes nothing possible, only sooner: a store without
it may be complete, while one that does it wrongly isn't."""


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
    no fault. ``left_out``: how many cases couldn't be examined, by the reason.
    """

    persister: str
    cases: dict[str, int]
    lacking: tuple[str, ...]
    failures: tuple[Failure, ...]
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def grade(self) -> str | None:
        """The highest grade whose abilities were examined and passed, every one; None where not even the floor was."""
        failed = {failure.ability for failure in self.failures}
        sound = self.cases.keys() - failed
        best = None
        for name, needed in GRADES.items():
            if sound.issuperset(needed) and not (name == "complete" and "waking" in failed):
                best = name
        return best

    def __str__(self) -> str:
        lines = [f"{self.persister}: {self.grade or 'no grade'}"]
        for ability, number in self.cases.items():
            failed = sum(failure.ability == ability for failure in self.failures)
            lines.append(f"  {ability}: {number - failed} of {number}")
        if self.lacking:
            lines.append(f"  without: {', '.join(self.lacking)}")
        for why, number in self.left_out.items():
            lines.append(f"  left out: {number} case{'s' if number > 1 else ''}, since {why}")
        return "\n".join([*lines, *(f"- {failure}" for failure in self.failures)])
