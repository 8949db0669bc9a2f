"""What the cases of the conformance suite are made of."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core.lease import TaskId
from ..core.row import record_from_row
from ..core.task import Claim, NewTask, TaskRecord
from ..ports.persister import Closing, Creating, Inspecting
from .clock import FakeClock

QUEUE = "conformance"
TEXT = '!conformance:Sample {"n": 1}'
LEASE = 30.0
STRANGE_TEXT = '\'; DROP TABLE tasks; --\n\t"%s" \\u0041 \\ {} !tag &a *a \u00e9 \u2028 \u05d0 \U0001f600 \r\n end '

WAKE_WITHIN = 20.0
"""Seconds in which a wake-up must have come through; one that comes ends the wait at once."""
_QUIET = 0.05
"""Seconds without a wake-up that are taken for silence. A longer wait could only find more."""


class Unfulfilled(AssertionError):
    """A persister didn't do what a case wants; the message is the sentence that tells it."""


class Inapplicable(Exception):
    """A case can't be examined on this persister, which is no fault; the message tells why."""


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

    def __init__(
        self,
        make_persister: Callable[[FakeClock], Any],
        reopen: Callable[[Any], Any] | None = None,
        scale: float = 1.0,
        wake_within: float = WAKE_WITHIN,
    ) -> None:
        self.clock = FakeClock()
        self.start = int(self.clock.now())
        self.persister = make_persister(self.clock)
        self._reopen = reopen
        self._scale = scale
        self._wake_within = wake_within

    def close(self) -> None:
        if isinstance(self.persister, Closing):
            self.persister.close()

    def sized(self, number: int) -> int:
        """How many tasks a large case is to have where ``number`` are meant; ten at least."""
        return max(10, int(number * self._scale))

    def needs_reopening(self) -> None:
        if self._reopen is None:
            raise Inapplicable("it needs a way to open the store anew")

    def needs_processes(self) -> None:
        if not getattr(self.persister, "is_shareable", False):
            raise Inapplicable("it needs a persister that processes can share (is_shareable)")

    def needs_inspecting(self) -> None:
        if not isinstance(self.persister, Inspecting):
            raise Inapplicable("it needs a persister that can be inspected")

    def reopen(self) -> None:
        """From here on the persister is one that another process might have opened."""
        self.needs_reopening()
        assert self._reopen is not None
        self.persister = self._reopen(self.persister)

    def create(self, run_in: int = 0, *, queue: str = QUEUE, task: str = TEXT, expire_at: int | None = None) -> TaskId:
        """A task due ``run_in`` seconds after the start; its id."""
        return self.persister.create_task(self.new(run_in, queue=queue, task=task, expire_at=expire_at).as_mapping())

    def new(self, run_in: int = 0, *, queue: str = QUEUE, task: str = TEXT, expire_at: int | None = None) -> NewTask:
        run_at = self.start + run_in
        return NewTask(queue=queue, run_at=run_at, initial_run_at=run_at, expire_at=expire_at, task=task)

    def create_all(self, tasks: Sequence[NewTask]) -> list[TaskId]:
        """All of them, in as few calls as the persister allows; their ids."""
        if isinstance(self.persister, Creating):
            return list(self.persister.create_many(tasks))
        return [self.persister.create_task(task.as_mapping()) for task in tasks]

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

    def lapsed(
        self, owner: str = "reaper", limit: int = 100, dead_owner: str | None = None, queue: str = QUEUE
    ) -> list[Claim]:
        return list(self.persister.lapsed(queue, owner, limit, LEASE, dead_owner))

    def extend(self, *tokens: Any, lease_for: float = LEASE) -> list[Any]:
        return list(self.persister.extend(tokens, lease_for))

    def found(self, task_id: TaskId) -> TaskRecord:
        record: TaskRecord | None = self.persister.find(task_id)
        expect(record is not None, f"find({task_id!r}) found nothing")
        assert record is not None
        return record

    def transition(self, task_id: TaskId, expected: TaskRecord, transition: Any) -> bool:
        done: bool = self.persister.transition(task_id, expected, transition)
        return done

    def wakes(self, listener: Any) -> bool:
        """Whether a wake-up is there, or comes."""
        return bool(_awake([listener], self._wake_within))

    def looks_at(self, queue: str = QUEUE) -> float | None:
        """Counted in seconds from the start."""
        instant = self.persister.next_look_at(queue)
        return None if instant is None else float(instant) - self.start

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


def sleep(*listeners: Any) -> bool:
    """Whether none of them has a wake-up, nor gets one soon."""
    return not _awake(listeners, _QUIET)


def calm(*listeners: Any) -> None:
    """Drains them until they're silent: wake-ups from a server may come late, and a new listener may wake once for
    nothing."""
    for _ in range(100):
        for listener in listeners:
            listener.drain()
        if sleep(*listeners):
            return
    raise Unfulfilled("a listener that is drained is awake again and again, though nobody wakes it")


def _awake(listeners: Sequence[Any], timeout: float) -> list[tuple[int, int]]:
    # Not select.select(), which refuses descriptors from 1024 on.
    poll = select.poll()
    for listener in listeners:
        poll.register(listener.fileno(), select.POLLIN)
    return poll.poll(timeout * 1000)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:100]}...{text[-90:]}"
