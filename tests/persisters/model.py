"""Any store beside the reference in memory: the same calls must give the same answers (G5).

Ids and tokens differ from store to store, so everything is kept as a pair: the reference's, and the store's.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.core.lifecycle import Close, Complete, Release, Reschedule, Transition
from procrastinate_py.core.task import Claim, NewTask, TaskRecord, TaskState
from procrastinate_py.persisters import MemoryPersister
from procrastinate_py.testing.clock import FakeClock

T = TypeVar("T")

START = 1_000_000
OWNERS = st.sampled_from(["a", "b", "c"])
LIMITS = st.sampled_from([0, 1, 2, 3, 4])
PAUSES = st.sampled_from([0.0, 0.0, 0.25, 5.0, 60.0])
LEASES = st.sampled_from([0.25, 5.0, 60.0])
TEXTS = st.sampled_from(["!a:B {}", '!a:B {"x": "\u2028"}', "!c:D {}", "--- !a:B\nx: 1\n", "no tag", ""]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
)
INSTANTS = st.sampled_from([START - 5, START - 5, START - 1, START, START + 1, START + 30, START + 100])
ERRORS = st.sampled_from(["Task failed: x\n", "Task failed too many times: x\n", "Task expired: x\n"])
FAILURE = {"attempts": st.integers(0, 5), "last_fail_at": INSTANTS, "last_error": ERRORS, "task": st.none() | TEXTS}
TRANSITIONS: st.SearchStrategy[Transition] = st.one_of(
    st.builds(Complete),
    st.builds(Release),
    st.builds(Reschedule, run_at=INSTANTS, **FAILURE),
    st.builds(Close, state=st.sampled_from([TaskState.FAILED, TaskState.EXPIRED]), **FAILURE),
)
NEW_TASKS = st.builds(
    NewTask,
    queue=st.just(""),
    run_at=INSTANTS,
    initial_run_at=INSTANTS,
    expire_at=st.none() | INSTANTS,
    task=TEXTS,
)
FIRST = [
    {"run_at": at, "initial_run_at": at, "expire_at": None} for at in (START - 1, START - 5, START - 5, START + 30)
]
QUEUES = ("q", "other", "caf\u00e9 {1}:/%", "\U0001f600")
NOBODYS_IDS = (10**12, "nonsense", "", -1, 0)
"""No store may take any of these for a task's."""


class Tokens(NamedTuple):
    reference: LeaseToken
    store: LeaseToken


class Records(NamedTuple):
    reference: TaskRecord
    store: TaskRecord


class Agreement(RuleBasedStateMachine):
    """Subclasses give an empty store in ``make_store``; where it can be reopened or shared, they say how."""

    queues: ClassVar[Sequence[str]] = QUEUES
    forks: ClassVar[bool] = False
    """Whether a child of this process may go on with the store object that it inherits."""
    outlives_close: ClassVar[bool] = True
    moves_between_queues: ClassVar[bool] = True
    """Whether update_task may change a task's queue, which no worker does."""

    def make_store(self, clock: FakeClock) -> Any:
        raise NotImplementedError

    def reopened(self, store: Any) -> Any:
        """Another object for the same tasks, as another process would have."""
        return store

    def connection(self) -> AbstractContextManager[Any] | None:
        """A connection of a caller's own to the same store, on which a transaction may be begun."""
        return None

    @initialize()
    def open(self) -> None:
        self.clock = FakeClock(START)
        self.memory = MemoryPersister(self.clock)
        self.store = self.make_store(self.clock)
        self.ids: dict[int, Any] = {}
        self.numbers: dict[Any, int] = {}
        self.tokens = [Tokens(token, token) for token in map(LeaseToken, NOBODYS_IDS, "abcde")]
        self.seen: list[Records] = []
        self.create([NewTask(queue=self.queues[0], **at, task="!a:B {}") for at in FIRST])

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()

    # --- pairs

    def created(self, numbers: Iterable[int], ids: Iterable[Any]) -> None:
        for number, task_id in zip(numbers, ids, strict=True):
            assert task_id not in self.numbers, f"id {task_id!r} was given twice"
            self.ids[number] = task_id
            self.numbers[task_id] = number

    def known(self, data: st.DataObject) -> tuple[Any, Any]:
        """Ids of one task: one that is there, or was, or of none."""
        known = [*self.ids.items()][-12:]
        return data.draw(st.sampled_from([*known, *((task_id, task_id) for task_id in NOBODYS_IDS)]))

    def records_agree(self, reference: Sequence[TaskRecord], store: Sequence[TaskRecord]) -> None:
        assert list(reference) == [self.numbered(record) for record in store]
        self.seen += map(Records, reference, store)

    def numbered(self, record: TaskRecord) -> TaskRecord:
        return replace(record, id=self.numbers[record.id])

    def leased(self, reference: Sequence[Claim], store: Sequence[Claim]) -> None:
        self.records_agree([claim.record for claim in reference], [claim.record for claim in store])
        pairs = [Tokens(one.token, two.token) for one, two in zip(reference, store, strict=True)]
        assert all(token.task_id == record.id for record, token in store)
        assert not {pair.store for pair in pairs} & {pair.store for pair in self.tokens}, "a token was used again"
        self.tokens += pairs

    def chosen(self, data: st.DataObject) -> list[Tokens]:
        """Held ones, or stale ones, too."""
        if not any(self.memory._held(pair.reference) for pair in self.tokens):
            asked = (self.queues[0], "a", 3, 5.0)
            self.leased(self.memory.claim(*asked), self.store.claim(*asked))
        held = [pair for pair in self.tokens if self.memory._held(pair.reference)]
        some = held if held and data.draw(st.booleans()) else self.tokens[-10:]
        return data.draw(st.lists(st.sampled_from(some), unique=True, min_size=1, max_size=4))

    def lost_agree(self, pairs: list[Tokens], reference: Sequence[LeaseToken], store: Sequence[LeaseToken]) -> None:
        assert {pair for pair in pairs if pair.reference in reference} == {
            pair for pair in pairs if pair.store in store
        }
        assert len(reference) == len(store)

    # --- calls

    @rule(data=st.data(), task=NEW_TASKS)
    def create_task(self, data: st.DataObject, task: NewTask) -> None:
        task = self.somewhere(data, task)
        self.created([self.memory.create_task(task.as_mapping())], [self.store.create_task(task.as_mapping())])

    @rule(data=st.data(), tasks=st.lists(NEW_TASKS, max_size=5))
    def create_many(self, data: st.DataObject, tasks: list[NewTask]) -> None:
        self.create([self.somewhere(data, task) for task in tasks])

    def create(self, tasks: Sequence[NewTask]) -> None:
        if hasattr(self.store, "create_many"):
            ids = list(self.store.create_many(tasks))
        else:
            ids = [self.store.create_task(task.as_mapping()) for task in tasks]
        self.created(self.memory.create_many(tasks), ids)

    @rule(data=st.data(), tasks=st.lists(NEW_TASKS, min_size=1, max_size=3), commit=st.booleans())
    def create_in(self, data: st.DataObject, tasks: list[NewTask], commit: bool) -> None:
        tasks = [self.somewhere(data, task) for task in tasks]
        opened = self.connection()
        if opened is None:
            return
        with opened as connection:
            ids = self.store.create_in(connection, tasks)
            if commit:
                connection.commit()
                self.created(self.memory.create_many(tasks), ids)
            else:
                connection.rollback()

    @rule(data=st.data(), pause=PAUSES, owner=OWNERS, limit=LIMITS, lease_for=LEASES)
    def claim(self, data: st.DataObject, pause: float, owner: str, limit: int, lease_for: float) -> None:
        self.clock.tick(pause)
        asked = (self.queue(data), owner, limit, lease_for)
        self.leased(self.memory.claim(*asked), self.store.claim(*asked))

    @precondition(lambda self: self.forks)
    @rule(data=st.data(), pause=PAUSES, owner=OWNERS, limit=LIMITS, lease_for=LEASES)
    def claim_in_a_child(self, data: st.DataObject, pause: float, owner: str, limit: int, lease_for: float) -> None:
        """U31"""
        self.clock.tick(pause)
        asked = (self.queue(data), owner, limit, lease_for)
        self.leased(self.memory.claim(*asked), in_a_child(lambda: list(self.store.claim(*asked))))

    @rule(data=st.data(), pause=PAUSES, owner=OWNERS, limit=LIMITS, lease_for=LEASES, dead=st.none() | OWNERS)
    def lapsed(
        self, data: st.DataObject, pause: float, owner: str, limit: int, lease_for: float, dead: str | None
    ) -> None:
        self.clock.tick(pause)
        asked = (self.queue(data), owner, limit, lease_for, dead)
        self.leased(self.memory.lapsed(*asked), self.store.lapsed(*asked))

    @rule(data=st.data(), pause=PAUSES, repeated=st.booleans())
    def settle(self, data: st.DataObject, pause: float, repeated: bool) -> None:
        """``repeated``: since the reply was lost; then nothing is written twice (U38)."""
        pairs = self.chosen(data)
        self.clock.tick(pause)
        ways = [data.draw(TRANSITIONS) for _ in pairs]
        for _ in range(1 + repeated):
            self.lost_agree(
                pairs,
                self.memory.settle([(pair.reference, way) for pair, way in zip(pairs, ways, strict=True)]),
                self.store.settle([(pair.store, way) for pair, way in zip(pairs, ways, strict=True)]),
            )

    @rule(data=st.data(), pause=PAUSES, lease_for=LEASES)
    def extend(self, data: st.DataObject, pause: float, lease_for: float) -> None:
        pairs = self.chosen(data)
        self.clock.tick(pause)
        reference = self.memory.extend([pair.reference for pair in pairs], lease_for)
        self.lost_agree(pairs, reference, self.store.extend([pair.store for pair in pairs], lease_for))

    @rule(data=st.data(), transition=TRANSITIONS)
    def transition(self, data: st.DataObject, transition: Transition) -> None:
        if self.seen:
            one, two = data.draw(st.sampled_from(self.seen[-10:]))
            done = self.memory.transition(one.id, one, transition)
            assert self.store.transition(two.id, two, transition) is done
            for task_id in NOBODYS_IDS:
                assert self.store.transition(task_id, two, transition) is False

    @rule(data=st.data(), run_at=st.none() | INSTANTS, error=st.none() | ERRORS, task=NEW_TASKS)
    def update_task(self, data: st.DataObject, run_at: int | None, error: str | None, task: NewTask) -> None:
        number, task_id = self.known(data)
        task = self.somewhere(data, task)
        given = {**task.as_mapping(), "attempts": 2, "last_fail_at": START, "last_error": error, "run_at": run_at}
        record = self.memory.find(number)
        if record is not None and not self.moves_between_queues:
            given["queue"] = record.queue
        self.memory.update_task({"id": number, **given})
        self.store.update_task({"id": task_id, **given})

    @rule(data=st.data())
    def delete_task(self, data: st.DataObject) -> None:
        number, task_id = self.known(data)
        found = self.memory.find(number), self.store.find(task_id)
        self.records_agree(*([] if record is None else [record] for record in found))
        self.memory.delete_task(number)
        self.store.delete_task(task_id)

    @rule(
        data=st.data(),
        everywhere=st.booleans(),
        state=st.none() | st.sampled_from(TaskState),
        tag=st.none() | st.sampled_from(["a:B", "c:D"]),
        limit=st.none() | LIMITS,
    )
    def select(self, data: st.DataObject, everywhere: bool, limit: int | None, **filters: Any) -> None:
        """The order of ids is the order of creation within a queue; between queues it's the store's own affair."""
        filters["queue"] = None if everywhere else self.queue(data)
        after = data.draw(st.sampled_from([None, *self.ids]))
        counted = {"queue": filters["queue"], "state": filters["state"]}
        assert dict(self.store.count(**counted)) == self.memory.count(**counted)
        fitting = sorted(self.memory.select(**filters), key=lambda record: self.ids[record.id])
        if after is not None:
            fitting = [record for record in fitting if self.ids[record.id] > self.ids[after]]
        found = self.store.select(**filters, limit=limit, after=self.ids.get(after))  # type: ignore[call-overload]
        self.records_agree(fitting if limit is None else fitting[:limit], found)

    @rule(data=st.data(), seconds=st.sampled_from([-600.0, -0.5, 600.0]))
    def clock_step(self, data: st.DataObject, seconds: float) -> None:
        """G3: and nobody is hurt by a wake-up for nothing."""
        self.clock.move_to(self.clock.now() + seconds)
        if hasattr(self.store, "notify"):
            self.store.notify(self.queue(data))

    @precondition(lambda self: self.outlives_close)
    @rule(anew=st.booleans())
    def close(self, anew: bool) -> None:
        self.store.close()
        if anew:
            self.store = self.reopened(self.store)

    @invariant()
    def they_agree(self) -> None:
        if hasattr(self, "store"):
            assert self.store.now() == self.memory.now()
            self.records_agree(self.memory.select(), sorted(self.store.select(), key=self.number_of))
            del self.seen[:-20]
            for queue in self.queues[:2]:
                assert self.store.next_look_at(queue) == self.memory.next_look_at(queue)
                assert self.rows(self.store, queue, self.numbers) == self.rows(self.memory, queue, None)

    # --- the rest

    def number_of(self, record: TaskRecord) -> int:
        return self.numbers[record.id]

    @staticmethod
    def rows(store: Any, queue: str, numbers: dict[Any, int] | None) -> list[dict[str, Any]]:
        """Closed ones may be left out, and any order will do."""
        rows = [dict(row) for row in store.read_tasks(queue) if row["run_at"] is not None]
        if numbers is not None:
            rows = [{**row, "id": numbers[row["id"]]} for row in rows]
        return sorted(rows, key=lambda row: row["id"])

    def queue(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from((self.queues[0],) * 5 + tuple(self.queues)))

    def somewhere(self, data: st.DataObject, task: NewTask) -> NewTask:
        return replace(task, queue=self.queue(data))


def in_a_child(call: Callable[[], T]) -> T:
    """What it gives in a child of this process."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: that it works is what's tested
        pid = os.fork()
    if pid == 0:
        try:
            said = pickle.dumps((True, call()))
        except BaseException as error:
            said = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        worked, found = pickle.loads(pipe.read())
    os.waitpid(pid, 0)
    assert worked, f"in the child: {found}"
    given: T = found
    return given
