"""What became of tasks is written as soon as it can be, whatever else can't (E37)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from procrastinate_py.core.errors import PersisterUnavailableError
from procrastinate_py.core.lease import Lease, LeaseToken
from procrastinate_py.core.lifecycle import Reschedule, Transition
from procrastinate_py.core.task import Claim, TaskRecord
from procrastinate_py.runtime.attempt import Attempt
from procrastinate_py.runtime.settler import Outage, Settler

from .workbench import HeardLog

MANY = 8


class Ailing:
    """A store on which it takes ``seconds`` to fail, for these tasks, or for all."""

    def __init__(self, seconds: float, ill: Collection[int] = range(MANY)) -> None:
        self.seconds = seconds
        self.ill = ill
        self.now = 0.0
        self.asked: list[list[Any]] = []

    def monotonic(self) -> float:
        return self.now

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        ids = [token.task_id for token, _ in settlements]
        self.asked.append(ids)
        if set(ids) & set(self.ill):
            self.now += self.seconds
            raise PersisterUnavailableError("no answer")
        return []


def settler_of(store: Any) -> Settler:
    made = Settler(store, HeardLog(), Outage(HeardLog(), store.monotonic))
    for number in range(MANY):
        record = TaskRecord(id=number, queue="q", task="!a:B {}", run_at=0, lease=Lease("me", 30.0))
        attempt = Attempt(Claim(record, LeaseToken(number, "token")))
        attempt.decided = Reschedule(run_at=30, attempts=1, last_fail_at=0, last_error="Task failed: x")
        made.add(attempt)
    return made


def test_a_store_that_hangs_is_waited_for_once_at_a_time() -> None:
    """G7, U24: leases have to be extended in between, limits watched, and the supervisor told that one lives."""
    store = Ailing(seconds=10.0)
    settler = settler_of(store)
    for _ in range(5):
        store.asked.clear()
        written, failed = settler.flush(at_once=True)
        assert written == [] and failed is not None
        assert len(store.asked) == 1
    assert len(settler.unwritten) == MANY


def test_what_cannot_be_written_holds_up_nothing_else() -> None:
    """E37: however many they are, and however long it takes to find out."""
    for seconds in (0.0, 10.0):
        store = Ailing(seconds, ill=range(MANY - 1))
        settler = settler_of(store)
        written = [item.attempt.claim.record.id for _ in range(MANY + 1) for item in settler.flush(at_once=True)[0]]
        assert written == [MANY - 1]
        assert len(settler.unwritten) == MANY - 1
        store.ill = ()
        for _ in range(2):
            settler.flush(at_once=True)
        assert settler.unwritten == []
