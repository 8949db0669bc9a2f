"""What the cases of the conformance suite are made of."""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core.lease import TaskId
from ..core.row import record_from_row
from ..core.task import Claim, NewTask, TaskRecord
from ..ports.persister import Closing
from .clock import FakeClock

QUEUE = "conformance"
TEXT = '!conformance:Sample {"n": 1}'
LEASE = 30.0


class Unfulfilled(AssertionError):
    """A persister didn't do what a case wants; the message is the sentence that tells it."""


class Case(NamedTuple):
    ability: str
    sentence: str
    """What a persister with the ability does."""
    check: Callable[[Exam], None]


@dataclass(frozen=True, slots=True)
class Cases:
    """One ability's cases, in the order in which they're written down."""

    ability: str
    all: list[Case] = field(default_factory=list)

    def __call__(self, sentence: str) -> Callable[[Callable[[Exam], None]], Callable[[Exam], None]]:
        def add(check: Callable[[Exam], None]) -> Callable[[Exam], None]:
            self.all.append(Case(self.ability, sentence, check))
            return check

        return add


class Exam:
    """One case's own persister, with an empty store and a clock that the case moves."""

    def __init__(self, make_persister: Callable[[FakeClock], Any], reopen: Callable[[Any], Any] | None = None) -> None:
        self.clock = FakeClock()
        self.start = int(self.clock.now())
        self.persister = make_persister(self.clock)
        self._reopen = reopen

    def close(self) -> None:
        if isinstance(self.persister, Closing):
            self.persister.close()

    @property
    def can_reopen(self) -> bool:
        return self._reopen is not None

    def reopen(self) -> None:
        """From here on the persister is one that another process might have opened."""
        if self._reopen is not None:
            self.persister = self._reopen(self.persister)

    def create(self, run_in: int = 0, *, queue: str = QUEUE, task: str = TEXT, expire_at: int | None = None) -> TaskId:
        """A task due ``run_in`` seconds after the start; its id."""
        return self.persister.create_task(self.new(run_in, queue=queue, task=task, expire_at=expire_at).as_mapping())

    def new(self, run_in: int = 0, *, queue: str = QUEUE, task: str = TEXT, expire_at: int | None = None) -> NewTask:
        run_at = self.start + run_in
        return NewTask(queue=queue, run_at=run_at, initial_run_at=run_at, expire_at=expire_at, task=task)

    def rows(self, queue: str = QUEUE) -> dict[TaskId, TaskRecord]:
        """What read_tasks tells of tasks that may still run."""
        records = [record_from_row(queue, row, self.clock.now()) for row in self.persister.read_tasks(queue)]
        ids = [record.id for record in records]
        expect(len(ids) == len(set(ids)), f"read_tasks gave an id twice: {ids!r}")
        return {record.id: record for record in records if record.run_at is not None}

    def row(self, task_id: TaskId, queue: str = QUEUE) -> TaskRecord:
        found = self.rows(queue).get(task_id)
        if found is None:
            raise Unfulfilled(f"read_tasks({queue!r}) leaves out the open task {task_id!r}")
        return found

    def claim(
        self, limit: int = 100, *, owner: str = "worker", lease_for: float = LEASE, queue: str = QUEUE
    ) -> list[Claim]:
        return list(self.persister.claim(queue, owner, limit, lease_for))

    def claim_one(self, owner: str = "worker", lease_for: float = LEASE) -> Claim:
        claims = self.claim(1, owner=owner, lease_for=lease_for)
        if len(claims) != 1:
            raise Unfulfilled(f"claim with limit 1 gave {len(claims)} tasks where there were due ones")
        return claims[0]

    def lapsed(self, owner: str = "reaper", limit: int = 100, dead_owner: str | None = None) -> list[Claim]:
        return list(self.persister.lapsed(QUEUE, owner, limit, LEASE, dead_owner))

    def settle(self, *settlements: Any) -> list[Any]:
        return list(self.persister.settle(settlements))


def expect(condition: object, sentence: str) -> None:
    if not condition:
        raise Unfulfilled(sentence)


def equal(what: str, got: object, wanted: object) -> None:
    """Raises Unfulfilled unless both are equal and of the same type."""
    if got != wanted or type(got) is not type(wanted):
        raise Unfulfilled(f"{what} is {_shown(got)} and should be {_shown(wanted)}")


def ids_of(claims: list[Claim]) -> list[TaskId]:
    return [claim.record.id for claim in claims]


def race(runners: int, run: Callable[[], Any]) -> list[Any]:
    """What each of the threads got that did the same at the same time. Raises the first exception of theirs."""
    barrier = threading.Barrier(runners)
    results: list[Any] = []
    errors: list[BaseException] = []

    def runner() -> None:
        try:
            barrier.wait(timeout=60)
            results.append(run())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=runner) for _ in range(runners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@contextlib.contextmanager
def listening(exam: Exam, queue: str = QUEUE) -> Iterator[Any]:
    listener = exam.persister.listen(queue)
    try:
        yield listener
    finally:
        listener.close()


def is_awake(listener: Any) -> bool:
    return bool(select.select([listener.fileno()], [], [], 0)[0])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:100]}...{text[-90:]}"
