"""Each of these stores, workers and consumers is wrong in one way: the simulation must say which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from procrastinate_py.testing.simulation import STORES, Invariant, Parts, Report, simulate
from procrastinate_py.testing.simulation_weather import Weather
from tests.simulation import broken_stores as stores
from tests.simulation import broken_workers as workers
from tests.simulation.seeds import ENOUGH, SOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    name: str
    caught_as: tuple[Invariant, ...]
    make_store: Callable[..., Any] = STORES["memory"]
    parts: Parts = Parts()


def in_store(make_store: type, *caught_as: Invariant) -> Bug:
    return Bug(name=make_store.__name__, caught_as=caught_as, make_store=make_store)


def in_worker(worker: Callable[..., Any], *caught_as: Invariant) -> Bug:
    return Bug(name=worker.__name__, caught_as=caught_as, parts=Parts(worker=worker))


def between(store: type[workers.Between], *caught_as: Invariant) -> Bug:
    return Bug(name=store.__name__, caught_as=caught_as, parts=Parts(worker=workers.with_store(store)))


def in_body(change: Callable[..., None], *caught_as: Invariant) -> Bug:
    return Bug(name=change.__name__, caught_as=caught_as, parts=Parts(worker=workers.with_perform(change)))


def in_notes(notes: type, *caught_as: Invariant, store: str = "memory") -> Bug:
    return Bug(
        name=f"{notes.__name__}-{store}", caught_as=caught_as, make_store=STORES[store], parts=Parts(notes=notes)
    )


def in_consumer(consumer: type, *caught_as: Invariant, weather: Weather | None = None) -> Bug:
    parts = Parts(consumer=consumer)
    if weather is not None:
        parts = replace(parts, weather=lambda random: weather)
    return Bug(name=consumer.__name__, caught_as=caught_as, make_store=STORES["floor"], parts=parts)


BUGS = [
    in_store(stores.ClaimsWhatIsLeased, Invariant.ONE_HOLDER),
    in_store(stores.ClaimsWhatHasLapsed, Invariant.ONE_HOLDER),
    in_store(stores.ClaimsBeforeDue, Invariant.WRITTEN, Invariant.NOT_BEFORE_DUE),
    in_store(stores.ReopensClosed, Invariant.CLOSED_STAYS_CLOSED),
    in_store(stores.SettlesWithoutToken, Invariant.NO_ZOMBIE),
    in_store(stores.SettlesHalf, Invariant.WRITTEN),
    in_store(stores.LosesTokensItHolds, Invariant.LEASE_HOLDS),
    in_store(stores.RevivesLostLeases, Invariant.NO_ZOMBIE),
    in_store(stores.ExtendsNothing, Invariant.LEASE_HOLDS),
    in_store(stores.LeasesByAnotherClock, Invariant.LEASE_HOLDS),
    in_store(stores.ReapsTheLiving, Invariant.REAPED_TOO_EARLY),
    in_store(stores.ReapsTwice, Invariant.LEASE_HOLDS),
    in_store(stores.CountsReleases, Invariant.WRITTEN),
    in_store(stores.ForgetsAttempts, Invariant.ATTEMPTS_ONLY_GROW),
    in_store(stores.ForgetsState, Invariant.WRITTEN),
    in_store(stores.DeletesOnFailure, Invariant.NONE_LOST),
    in_store(stores.KeepsLeaseAfterRetry, Invariant.LEASE_HOLDS),
    in_store(stores.UsesIdsAgain, Invariant.UNIQUE),
    in_store(stores.UsesTokensAgain, Invariant.UNIQUE),
    in_store(stores.HandsOutMoreThanAsked, Invariant.ONE_HOLDER),
    in_store(
        stores.FloorThatDropsAnUpdate, Invariant.WRITTEN, Invariant.ATTEMPTS_ONLY_GROW, Invariant.CLOSED_STAYS_CLOSED
    ),
    between(workers.DropsOutcomes, Invariant.KEEPS_HOLD),
    between(workers.ClaimsWithoutExpiry, Invariant.NOT_AFTER_EXPIRY),
    between(workers.ClaimsWithoutSuspicion, Invariant.SUSPECTS_ALONE),
    between(workers.NeverExtends, Invariant.KEEPS_HOLD),
    in_worker(workers.settles_before_run, Invariant.TRUE_OUTCOME),
    in_worker(workers.retries_the_work, Invariant.ONE_RUN_A_CLAIM),
    in_worker(workers.recovers_from_the_living, Invariant.REAPED_TOO_EARLY),
    in_worker(workers.takes_over_what_it_holds, Invariant.REAPED_TOO_EARLY),
    in_worker(workers.ignores_max_attempts, Invariant.MAX_ATTEMPTS),
    in_worker(workers.gives_up_early, Invariant.MAX_ATTEMPTS),
    in_worker(workers.retries_at_once, Invariant.BACKOFF),
    in_worker(workers.goes_by_its_own_clock, Invariant.NOT_AFTER_EXPIRY),
    in_worker(workers.forgets_state, Invariant.STATE_KEPT),
    in_worker(workers.SleeplessWorker, Invariant.NO_SPINNING),
    in_worker(workers.DeafWorker, Invariant.NONE_LOST),
    in_worker(workers.FragileWorker, Invariant.WORKER_LIVES),
    in_body(workers.runs_without_lease, Invariant.NO_RUN_WITHOUT_LEASE),
    in_body(workers.runs_what_died, Invariant.COUNTED, Invariant.ONE_RUN_A_CLAIM),
    in_body(workers.calls_no_hook, Invariant.HOOKS),
    in_body(workers.succeeds_twice, Invariant.HOOKS),
    in_body(workers.takes_failures_for_success, Invariant.TRUE_OUTCOME),
    in_notes(workers.NoNotes, Invariant.COUNTED),
    in_notes(workers.NoNotes, Invariant.COUNTED, store="floor"),
    in_notes(workers.NotesWipedByRestart, Invariant.COUNTED),
    in_consumer(workers.ForgetsWhatIsHeld, Invariant.ONE_HOLDER),
    in_consumer(workers.ForgetsWhatWasLeft, Invariant.COUNTED),
    in_consumer(workers.DropsWhatFails, Invariant.WRITTEN),
    # Only a batch shows it, of which one write fails and another one puts its task off.
    in_consumer(workers.HoldsWhatIsWritten, Invariant.NONE_LOST, weather=Weather(failing_call=0.3, late_turn=0.2)),
    in_consumer(workers.DeletesWhatFailed, Invariant.TRUE_OUTCOME),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_catches(bug: Bug) -> None:
    """E37, E38, G1, G2, G4"""
    seen: list[Report] = []
    for seed in range(ENOUGH):
        report = simulate(bug.make_store, seed=seed, parts=bug.parts)
        if any(violation.invariant in bug.caught_as for violation in report.violations):
            return
        seen.append(report)
    pytest.fail("\n".join([f"{ENOUGH} seeds found otherwise:", *(str(report) for report in seen if not report.ok)]))


def test_each_invariant_has_a_bug_that_it_catches() -> None:
    assert set(Invariant) == {invariant for bug in BUGS for invariant in bug.caught_as}


def test_the_same_seeds_hold_where_nothing_is_wrong() -> None:
    """test_nothing_is_lost_whatever_happens runs them."""
    assert min(SOUND["memory"], SOUND["floor"]) >= ENOUGH
