"""Workers and sole consumers that are each wrong in one way, for the simulation to catch.

Each is made with what a sound one is made with, and differs by what's put in place of one of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from procrastinate_py.core.codec import Codec
from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.core.lifecycle import Close, Complete, Transition
from procrastinate_py.core.task import Claim, TaskRecord
from procrastinate_py.ports.persister import IncompleteSettle
from procrastinate_py.runtime.attempt import NEVER, Attempt
from procrastinate_py.runtime.executor import Executor
from procrastinate_py.runtime.in_hand import LastWords
from procrastinate_py.runtime.sole_consumer import SoleConsumer
from procrastinate_py.runtime.worker import QueueWorker
from procrastinate_py.testing.simulation_process import Notes
from procrastinate_py.testing.simulation_task import SimulatedTask

Settlements = Sequence[tuple[LeaseToken, Transition]]


class Between:
    """Between a worker and its store: passes everything on."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def with_store(between: type[Between]) -> Callable[..., QueueWorker]:
    return lambda *, store, **parts: QueueWorker(store=between(store), **parts)


def with_perform(change: Callable[[Attempt, Callable[[Attempt], None]], None]) -> Callable[..., QueueWorker]:
    """``change`` is called in the body thread in place of what performs an attempt."""

    def make(*, executor: Callable[..., Executor], **parts: Any) -> QueueWorker:
        def broken(perform: Callable[[Attempt], None], size: int, name: str) -> Executor:
            return executor(lambda attempt: change(attempt, perform), size, name)

        return QueueWorker(executor=broken, **parts)

    return make


# --- what it does with the store


class DropsOutcomes(Between):
    """What couldn't be written is forgotten."""

    def settle(self, settlements: Settlements) -> Sequence[LeaseToken]:
        try:
            return list(self.store.settle(settlements))
        except Exception:
            return ()


class ClaimsWithoutExpiry(Between):
    """What expired while it waited in hand is run."""

    def claim(self, *arguments: Any) -> list[Claim]:
        return [claim._replace(record=replace(claim.record, expire_at=None)) for claim in self.store.claim(*arguments)]


class ClaimsWithoutSuspicion(Between):
    def claim(self, *arguments: Any) -> list[Claim]:
        return [claim._replace(record=replace(claim.record, last_error=None)) for claim in self.store.claim(*arguments)]


class NeverExtends(Between):
    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> Sequence[LeaseToken]:
        return ()


def settles_before_run(*, store: Any, executor: Callable[..., Executor], **parts: Any) -> QueueWorker:
    def settling_first(perform: Callable[[Attempt], None], size: int, name: str) -> Executor:
        made = executor(perform, size, name)
        submit = made.submit

        def settle_and_submit(attempt: Attempt, unfinished: int) -> None:
            store.settle([(attempt.claim.token, Complete())])
            submit(attempt, unfinished)

        made.submit = settle_and_submit  # type: ignore[method-assign]
        return made

    return QueueWorker(store=store, executor=settling_first, **parts)


def retries_the_work(*, store: Any, executor: Callable[..., Executor], **parts: Any) -> QueueWorker:
    """Where the outcome can't be written, the task is run once more."""
    made: list[Executor] = []
    claims: dict[LeaseToken, Claim] = {}

    class Remembers(Between):
        def claim(self, *arguments: Any) -> list[Claim]:
            found = list(self.store.claim(*arguments))
            claims.update({claim.token: claim for claim in found})
            return found

        def settle(self, settlements: Settlements) -> Sequence[LeaseToken]:
            try:
                return list(self.store.settle(settlements))
            except Exception:
                for token, _ in settlements:
                    if token in claims:
                        made[0].submit(Attempt(claims[token]), 1)
                raise

    def remembered(*arguments: Any) -> Executor:
        made.append(executor(*arguments))
        return made[0]

    return QueueWorker(store=Remembers(store), executor=remembered, **parts)


def recovers_from_the_living(**parts: Any) -> QueueWorker:
    worker = QueueWorker(**parts)
    worker.recover(LastWords(("worker-1", "worker-2"), ()), None)
    return worker


def takes_over_what_it_holds(**parts: Any) -> QueueWorker:
    worker = QueueWorker(**parts)
    unheard_of = worker._reaper.unheard_of
    worker._reaper.unheard_of = lambda held: unheard_of(())  # type: ignore[method-assign]
    return worker


# --- what it decides by


def ignores_max_attempts(*, spec: Any, **parts: Any) -> QueueWorker:
    return QueueWorker(spec=replace(spec, max_attempts=None), **parts)


def gives_up_early(*, spec: Any, **parts: Any) -> QueueWorker:
    return QueueWorker(spec=replace(spec, max_attempts=2), **parts)


def retries_at_once(*, spec: Any, **parts: Any) -> QueueWorker:
    return QueueWorker(spec=replace(spec, backoff=lambda attempts: 1.0), **parts)


def goes_by_its_own_clock(*, now: Callable[[], float], **parts: Any) -> QueueWorker:
    return QueueWorker(now=lambda: now() - 300, **parts)


class ForgetfulCodec(Codec):
    def dump(self, strategy: Any) -> str:
        if isinstance(strategy, SimulatedTask):
            strategy = SimulatedTask(strategy.behaviour, strategy.seconds)
        return super().dump(strategy)


def forgets_state(*, codec: Codec, **parts: Any) -> QueueWorker:
    return QueueWorker(codec=ForgetfulCodec(codec.registry), **parts)


# --- how it runs what it holds


def runs_without_lease(attempt: Attempt, perform: Callable[[Attempt], None]) -> None:
    attempt.leased_until = NEVER
    perform(attempt)


def runs_what_died(attempt: Attempt, perform: Callable[[Attempt], None]) -> None:
    """Without counting that it did."""
    attempt.given = None
    perform(attempt)


def calls_no_hook(attempt: Attempt, perform: Callable[[Attempt], None]) -> None:
    attempt.hookless = attempt.given is not None
    perform(attempt)


def succeeds_twice(attempt: Attempt, perform: Callable[[Attempt], None]) -> None:
    perform(attempt)
    if isinstance(attempt.decided, Complete) and attempt.strategy is not None:
        attempt.strategy.success(None)


def takes_failures_for_success(attempt: Attempt, perform: Callable[[Attempt], None]) -> None:
    perform(attempt)
    if isinstance(attempt.decided, Close):
        attempt.decided = Complete()


class SleeplessWorker(QueueWorker):
    def _next_tick_at(self, now: float) -> float:
        return now


class DeafWorker(QueueWorker):
    """Looks once, and never again."""

    def __init__(self, *, spec: Any, **parts: Any) -> None:
        super().__init__(spec=replace(spec, update_period=10.0**9), **parts)

    def woken(self) -> None:
        return


class FragileWorker(QueueWorker):
    def step(self) -> None:
        super().step()
        if self._outage.pausing:
            raise RuntimeError("the store is down, and I with it")


# --- what it leaves behind


class NoNotes(Notes):
    def begin(self, key: bytes, deadline: float, phase: int) -> int:
        return -1


class NotesWipedByRestart(Notes):
    def __init__(self, book: Any, process: Any) -> None:
        book.begun.clear()
        super().__init__(book, process)


class NotesKept(Notes):
    """What was settled stays noted, so that a crash counts it again."""

    def end(self, slot: int) -> None:
        return


# --- sole consumers


class ForgetsWhatIsHeld(SoleConsumer):
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> Sequence[Claim]:
        self._held.clear()
        return super().claim(queue, owner, limit, lease_for)


class ForgetsWhatWasLeft(SoleConsumer):
    def lapsed(self, *arguments: Any, **more: Any) -> Sequence[Claim]:
        return ()


class DropsWhatFails(SoleConsumer):
    def settle(self, settlements: Settlements) -> Sequence[LeaseToken]:
        try:
            return super().settle(settlements)
        except IncompleteSettle as error:
            for token in error.failures:
                del self._held[token.task_id]
            return ()


class HoldsWhatIsWritten(SoleConsumer):
    """Where one of a batch fails, it never lets go of the others: their retries are never seen."""

    def settle(self, settlements: Settlements) -> Sequence[LeaseToken]:
        held = dict(self._held)
        try:
            return super().settle(settlements)
        except IncompleteSettle:
            self._held.update(held)
            raise


class DeletesWhatFailed(SoleConsumer):
    def _write(self, record: TaskRecord, transition: Transition) -> None:
        super()._write(record, Complete() if isinstance(transition, Close) else transition)
