"""Every store passes the public exam (G6), and the exam finds what's wrong with broken ones."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.floor_dict import DictPersister
from examples.floor_json import JsonPersister
from procrastinate_py.core.errors import MalformedPersisterError
from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.core.lifecycle import Complete, Reschedule
from procrastinate_py.core.task import Claim
from procrastinate_py.persisters import MemoryPersister, SQLitePersister
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import ABILITIES, CASES, PersisterConformance, grade


class TestMemory(PersisterConformance):
    expects = ABILITIES

    def make_persister(self, clock: FakeClock) -> MemoryPersister:
        return MemoryPersister(clock)


class TestSQLiteInMemory(PersisterConformance):
    expects = ABILITIES

    def make_persister(self, clock: FakeClock) -> SQLitePersister:
        return SQLitePersister(":memory:", clock)


class TestSQLite(PersisterConformance):
    """E3: the default store; what it writes is there after it was opened anew."""

    expects = ABILITIES

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{number}.db" for number in itertools.count())

    def make_persister(self, clock: FakeClock) -> SQLitePersister:
        self.clock = clock
        return SQLitePersister(next(self.paths), clock)

    def reopen(self, persister: SQLitePersister) -> SQLitePersister:
        persister.close()
        return SQLitePersister(persister.path, self.clock)


class TestDict(PersisterConformance):
    def make_persister(self, clock: FakeClock) -> DictPersister:
        return DictPersister()


class TestJson(PersisterConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{number}.json" for number in itertools.count())

    def make_persister(self, clock: FakeClock) -> JsonPersister:
        return JsonPersister(next(self.paths))

    def reopen(self, persister: JsonPersister) -> JsonPersister:
        return JsonPersister(persister.path)


def test_a_persister_without_the_four_methods_is_refused() -> None:
    """E4"""
    with pytest.raises(MalformedPersisterError, match=r"lacks read_tasks.*delete_task"):
        grade(lambda clock: object())


def test_abilities_that_a_persister_lacks_are_told_and_not_examined() -> None:
    """G6"""
    report = grade(lambda clock: DictPersister())
    assert report.passed
    assert list(report.cases) == ["floor"]
    assert report.lacking == ABILITIES[1:]
    assert str(report).splitlines() == [
        "DictPersister:",
        "  floor: 23 of 23",
        "  without: leasing, creating, editing, waking, inspecting, timekeeping",
    ]


def test_every_case_has_a_sentence_of_its_own() -> None:
    assert len({(case.ability, case.sentence) for case in CASES}) == len(CASES)
    assert len(CASES) >= 90


def test_an_ability_that_is_expected_must_be_there() -> None:
    class Incomplete(PersisterConformance):
        expects = ("floor", "leasing")

        def make_persister(self, clock: FakeClock) -> DictPersister:
            return DictPersister()

    Incomplete().test_floor()
    with pytest.raises(AssertionError, match="lacks the ability 'leasing'"):
        Incomplete().test_leasing()


# --- broken stores


class ForgetsExpiry(DictPersister):
    def create_task(self, data: dict[str, Any]) -> int:
        return super().create_task({**data, "expire_at": None})


class RevivesDeleted(DictPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        self.rows[attributes["id"]] = dict(attributes)


class CutsTexts(DictPersister):
    def create_task(self, data: dict[str, Any]) -> int:
        return super().create_task({**data, "task": data["task"][:255]})


class RaisesOnAbsent(DictPersister):
    def delete_task(self, task_id: int) -> None:
        del self.rows[task_id]


class MixesQueues(DictPersister):
    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self.rows.values()]


class UpdatesOnlyRunAt(DictPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        if attributes["id"] in self.rows:
            self.rows[attributes["id"]]["run_at"] = attributes["run_at"]


class ClaimsLapsed(MemoryPersister):
    """Takes a lapsed lease over in claim, so that a task which kills its worker never ends."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        fresh = super().claim(queue, owner, limit, lease_for)
        return fresh + super().lapsed(queue, owner, limit - len(fresh), lease_for)


class ClaimsEarly(MemoryPersister):
    def now(self) -> float:
        return float(int(super().now()) + 1)


class OnlyById(MemoryPersister):
    """Completes by the id alone, as most peers do."""

    def settle(self, settlements: Any) -> Any:
        for token, transition in settlements:
            if token.task_id in self._tokens:
                super().settle([(LeaseToken(token.task_id, self._tokens[token.task_id]), transition)])
        return []


class SaysNothingIsLost(MemoryPersister):
    def settle(self, settlements: Any) -> Any:
        super().settle(settlements)
        return []


class SameTokenForAll(MemoryPersister):
    def _lease(self, task_id: int, lease: Any, token: str, now: float) -> Claim:
        return super()._lease(task_id, lease, "the token", now)


class KeepsTheLease(MemoryPersister):
    """A rescheduled task stays in the hand of whoever failed at it."""

    def settle(self, settlements: Any) -> Any:
        return super().settle([pair for pair in settlements if not isinstance(pair[1], Reschedule)])


class WritesAllOrNothing(MemoryPersister):
    """One lost token, and the others' outcomes are dropped too."""

    def settle(self, settlements: Any) -> Any:
        lost = [token for token, _ in settlements if self._held(token) is None]
        return lost or super().settle(settlements)


class CreatesSome(MemoryPersister):
    def create_many(self, tasks: Any) -> Any:
        ids = []
        for task in tasks:
            if task.run_at > 2**63:
                raise OverflowError("too large")
            ids.append(self.create_task(task.as_mapping()))
        return ids


class EditsBlindly(MemoryPersister):
    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        current = self.find(task_id)
        return current is not None and super().transition(task_id, current, transition)


class ReapsTheLiving(MemoryPersister):
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None) -> Any:
        with self._lock:
            for task_id, row in self._rows.items():
                if row.lease is not None and dead_owner is not None:
                    self._rows[task_id] = replace(row, lease=replace(row.lease, owner=dead_owner))
        return super().lapsed(queue, owner, limit, lease_for, dead_owner)


class ReusesIds(MemoryPersister):
    def delete_task(self, task_id: Any) -> None:
        super().delete_task(task_id)
        self._ids = itertools.count(max(self._rows, default=0) + 1)

    def settle(self, settlements: Any) -> Any:
        lost = super().settle(settlements)
        if any(isinstance(transition, Complete) for _, transition in settlements):
            self._ids = itertools.count(max(self._rows, default=0) + 1)
        return lost


class WakesEverybody(MemoryPersister):
    def notify(self, queue: str) -> None:
        for name in list(self._wake._listeners):
            super().notify(name)


class SortsByIdOnly(MemoryPersister):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return sorted(super().claim(queue, owner, limit, lease_for), key=lambda claim: claim.record.id)


class CountsLapsedAsRunning(MemoryPersister):
    def find(self, task_id: Any) -> Any:
        record = super().find(task_id)
        return record and replace(record, read_at=0.0)


class LooksTooLate(MemoryPersister):
    def next_look_at(self, queue: str) -> float | None:
        """Forgets that leases end."""
        first = self._first(queue)
        return None if first is None else float(first[0])


BROKEN: dict[type[Any], str] = {
    ForgetsExpiry: "what create_task got is what read_tasks gives",
    RevivesDeleted: "updating a task that is gone doesn't bring it back",
    CutsTexts: "a text of a mebibyte comes back whole",
    RaisesOnAbsent: "deleting a task that is gone already raises nothing",
    MixesQueues: "read_tasks gives the tasks of the queue that was asked for, and no others",
    UpdatesOnlyRunAt: "update_task overwrites the nine attributes",
    ClaimsLapsed: "a lapsed lease still keeps its task from being claimed: it's the reaper's",
    ClaimsEarly: "a task is due at its run_at, and not a moment before",
    OnlyById: "a worker whose lease the reaper took over can't write",
    SaysNothingIsLost: "a token that was never given out writes nothing",
    SameTokenForAll: "each claim of a task has another token",
    KeepsTheLease: "a rescheduled task is in nobody's hand",
    WritesAllOrNothing: "lost tokens among others don't keep the others from being written",
    CreatesSome: "create_many stores all of its tasks or none",
    EditsBlindly: "a transition is refused where the task failed meanwhile",
    ReapsTheLiving: "a dead owner's tasks are had at once, and nobody else's with them",
    ReusesIds: "a new task never gets the id of one that was deleted",
    WakesEverybody: "notify wakes every listener of its queue, and none of another's",
    SortsByIdOnly: "tasks are claimed in order of run_at, then of id",
    CountsLapsedAsRunning: "a task in hand is RUNNING, and PENDING once its lease has lapsed",
    LooksTooLate: "the next look is due at the earliest run_at or end of a lease, and never where there is neither",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_store_is_caught(broken: type[Any]) -> None:
    """G6"""
    report = grade(lambda clock: broken(clock) if issubclass(broken, MemoryPersister) else broken())
    assert BROKEN[broken] in [failure.sentence for failure in report.failures]
    assert BROKEN[broken] in str(report)
