"""Stores that are each wrong in one way, as stores on servers tend to be: the model test must see it (G5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from procrastinate_py.core.lease import Lease, LeaseToken
from procrastinate_py.core.lifecycle import Transition
from procrastinate_py.core.task import Claim, NewTask, TaskRecord
from procrastinate_py.persisters import MemoryPersister
from procrastinate_py.testing.clock import FakeClock
from tests.simulation import broken_stores

from .model import Agreement

ENOUGH = settings(
    max_examples=400,
    stateful_step_count=30,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)


class LapsesUnheedingOfExtensions(MemoryPersister):
    """The end of a lease is indexed when it's given, and the index isn't told of its extension."""

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        ends = {token.task_id: self._rows[token.task_id].lease for token in tokens if token.task_id in self._rows}
        lost = super().extend(tokens, lease_for)
        self._indexed = {**getattr(self, "_indexed", {}), **ends}
        return lost

    def lapsed(self, queue: str, *more: Any) -> list[Claim]:
        for task_id, lease in getattr(self, "_indexed", {}).items():
            row = self._rows.get(task_id)
            if row is not None and row.lease is not None and lease is not None and row.lease.owner == lease.owner:
                self._rows[task_id] = replace(row, lease=lease)
        return super().lapsed(queue, *more)


class EvictsWhatIsOld(MemoryPersister):
    """As a cache does with a time to live."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        with self._lock:
            for row in [row for row in self._rows.values() if row.run_at and row.run_at + 50 < self.now()]:
                self._remove(row.id)
        return super().claim(queue, owner, limit, lease_for)


class EditsWhateverIsThere(MemoryPersister):
    """A conditional write whose condition the server doesn't know, and ignores."""

    def transition(self, task_id: Any, expected: TaskRecord, transition: Transition) -> bool:
        row = self.find(task_id)
        return row is not None and super().transition(task_id, row, transition)


class WritesAgainWhenAskedAgain(MemoryPersister):
    """It keeps the token of what it settled, so that a repeated call, its reply lost, counts as done."""

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        lost = super().settle(settlements)
        settled = self.__dict__.setdefault("_settled", set())
        settled |= {token for token, _ in settlements if token not in lost}
        return [token for token in lost if token not in settled]


class PagesFromTheLastOneOn(MemoryPersister):
    def select(self, *, after: Any = None, **filters: Any) -> list[TaskRecord]:
        return super().select(after=None if after is None else after - 1, **filters)


class OrdersByIdAlone(MemoryPersister):
    """Its index of what's due knows the time of a task no finer than that it has come."""

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        claims = super().claim(queue, owner, limit, lease_for)
        return sorted(claims, key=lambda claim: claim.record.id)


class SleepsBesideALease(MemoryPersister):
    """When to look next goes by what is due alone: a lapsed lease is seen at the next poll, or never."""

    def next_look_at(self, queue: str) -> float | None:
        with self._lock:
            first = self._first(queue)
        return None if first is None else float(first[0])


class RoundsLeases(MemoryPersister):
    """The server keeps whole seconds."""

    def _lease(self, task_id: int, lease: Lease, token: str, now: float) -> Claim:
        return super()._lease(task_id, Lease(lease.owner, float(int(lease.expires_at))), token, now)


class ForgetsThatItWasLeased(MemoryPersister):
    """A release puts the task back as it was when it was created."""

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        lost = super().settle(settlements)
        for token, _ in settlements:
            row = self._rows.get(token.task_id)
            if row is not None and token not in lost and row.run_at is not None:
                self.update_task({**row.as_mapping(), "run_at": row.initial_run_at})
        return lost


class StripsTexts(MemoryPersister):
    def create_many(self, tasks: Sequence[NewTask]) -> list[int]:
        return super().create_many([replace(task, task=task.task.strip()) for task in tasks])


class CountsWhatLapsedAsRunning(MemoryPersister):
    def count(self, **filters: Any) -> dict[Any, int]:
        counts = super().count(**filters)
        return {**counts, **{pair: 1 for pair in counts if pair[1] == "running"}}


class ReturnsLapsedLeasesToTheirHolders(MemoryPersister):
    """Whoever extends too late finds that the lease is gone, though nobody else has taken it."""

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        late = [
            token for token in tokens if (row := self._held(token)) and row.lease and row.lease.has_lapsed(self.now())
        ]
        return super().extend([token for token in tokens if token not in late], lease_for) + late


DOUBLES = [
    LapsesUnheedingOfExtensions,
    EvictsWhatIsOld,
    EditsWhateverIsThere,
    WritesAgainWhenAskedAgain,
    PagesFromTheLastOneOn,
    OrdersByIdAlone,
    SleepsBesideALease,
    RoundsLeases,
    ForgetsThatItWasLeased,
    StripsTexts,
    CountsWhatLapsedAsRunning,
    ReturnsLapsedLeasesToTheirHolders,
    broken_stores.ClaimsWhatHasLapsed,
    broken_stores.SettlesWithoutToken,
    broken_stores.SettlesHalf,
    broken_stores.RevivesLostLeases,
    broken_stores.ReapsTheLiving,
    broken_stores.ForgetsState,
    broken_stores.UsesIdsAgain,
    broken_stores.UsesTokensAgain,
]


def machine(store: type[MemoryPersister]) -> type[Agreement]:
    class Double(Agreement):
        def make_store(self, clock: FakeClock) -> Any:
            return store(clock)

    return Double


@pytest.mark.parametrize("store", DOUBLES, ids=lambda store: store.__name__)
def test_the_model_test_catches(store: type[MemoryPersister]) -> None:
    """G5"""
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(machine(store), settings=ENOUGH)


def test_the_reference_agrees_with_itself() -> None:
    """G5"""
    run_state_machine_as_test(machine(MemoryPersister), settings=settings(ENOUGH, max_examples=50))
