"""SQLite and the in-memory reference agree, step by step, whatever they're asked (G5)."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.core.lifecycle import Close, Complete, Release, Reschedule, Transition
from procrastinate_py.core.task import Claim, NewTask, TaskRecord, TaskState
from procrastinate_py.persisters import MemoryPersister, SQLitePersister
from procrastinate_py.testing.clock import FakeClock

START = 1_000_000
QUEUES = st.sampled_from(["q", "other", "nul\0", "\U0001f600"])
OWNERS = st.sampled_from(["a", "b", "c"])
LIMITS = st.integers(0, 4)
SECONDS = st.sampled_from([0.25, 1.0, 5.0, 60.0])
TEXTS = st.sampled_from(["!a:B {}", '!a:B {"x": "\u2028"}', "!c:D {}", "--- !a:B\nx: 1\n", "no tag", ""]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
)
INSTANTS = st.integers(START - 5, START + 100)
ERRORS = st.sampled_from(["Task failed: x\n", "Task failed too many times: x\n", "Task expired: x\n"])
NEW_TASKS = st.builds(
    NewTask,
    queue=QUEUES,
    run_at=INSTANTS,
    initial_run_at=INSTANTS,
    expire_at=st.none() | INSTANTS,
    task=TEXTS,
)
FAILURE = {"attempts": st.integers(0, 5), "last_fail_at": INSTANTS, "last_error": ERRORS, "task": st.none() | TEXTS}
TRANSITIONS: st.SearchStrategy[Transition] = st.one_of(
    st.builds(Complete),
    st.builds(Release),
    st.builds(Reschedule, run_at=INSTANTS, **FAILURE),
    st.builds(Close, state=st.sampled_from([TaskState.FAILED, TaskState.EXPIRED]), **FAILURE),
)


class BothStores(RuleBasedStateMachine):
    """Tokens differ from store to store, so each claim keeps a pair of them."""

    @initialize()
    def open(self) -> None:
        self.clock = FakeClock(START)
        self.memory = MemoryPersister(self.clock)
        self.sqlite = SQLitePersister(":memory:", self.clock)
        self.tokens: list[tuple[LeaseToken, LeaseToken]] = []
        self.seen: list[TaskRecord] = []
        self.ids: list[Any] = [99]

    def teardown(self) -> None:
        self.sqlite.close()

    def both(self, method: str, *given: Any, **named: Any) -> Any:
        answers = [getattr(store, method)(*given, **named) for store in (self.memory, self.sqlite)]
        assert answers[0] == answers[1], method
        return answers[0]

    def leased(self, method: str, *given: Any) -> None:
        one, two = (getattr(store, method)(*given) for store in (self.memory, self.sqlite))
        assert [claim.record for claim in one] == [claim.record for claim in two]
        self.tokens += [(a.token, b.token) for a, b in zip(one, two, strict=True)]
        self.see(one)

    def see(self, claims: list[Claim]) -> None:
        self.seen += [claim.record for claim in claims]

    def chosen(self, data: st.DataObject, count: int) -> list[tuple[LeaseToken, LeaseToken]]:
        return data.draw(st.lists(st.sampled_from(self.tokens), unique=True, max_size=count)) if self.tokens else []

    def lost(self, pairs: list[tuple[LeaseToken, LeaseToken]], one: Any, two: Any) -> None:
        assert {pair[0] for pair in pairs if pair[0] in one} == {pair[0] for pair in pairs if pair[1] in two}
        assert len(one) == len(two)

    @rule(task=NEW_TASKS)
    def create_task(self, task: NewTask) -> None:
        self.ids.append(self.both("create_task", task.as_mapping()))

    @rule(tasks=st.lists(NEW_TASKS, max_size=5))
    def create_many(self, tasks: list[NewTask]) -> None:
        self.ids += self.both("create_many", tasks)

    @rule(queue=QUEUES, owner=OWNERS, limit=LIMITS, lease_for=SECONDS)
    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> None:
        self.leased("claim", queue, owner, limit, lease_for)

    @rule(queue=QUEUES, owner=OWNERS, limit=LIMITS, lease_for=SECONDS, dead=st.none() | OWNERS)
    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead: str | None) -> None:
        self.leased("lapsed", queue, owner, limit, lease_for, dead)

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        pairs = self.chosen(data, 4)
        transitions = [data.draw(TRANSITIONS) for _ in pairs]
        one = self.memory.settle([(pair[0], way) for pair, way in zip(pairs, transitions, strict=True)])
        two = self.sqlite.settle([(pair[1], way) for pair, way in zip(pairs, transitions, strict=True)])
        self.lost(pairs, one, two)

    @rule(data=st.data(), lease_for=SECONDS)
    def extend(self, data: st.DataObject, lease_for: float) -> None:
        pairs = self.chosen(data, 4)
        one = self.memory.extend([pair[0] for pair in pairs], lease_for)
        two = self.sqlite.extend([pair[1] for pair in pairs], lease_for)
        self.lost(pairs, one, two)

    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        record = self.both("find", data.draw(st.sampled_from(self.ids)))
        if record is not None:
            self.seen.append(record)

    @rule(data=st.data(), transition=TRANSITIONS)
    def edit(self, data: st.DataObject, transition: Transition) -> None:
        if self.seen:
            expected = data.draw(st.sampled_from(self.seen[-10:]))
            self.both("transition", expected.id, expected, transition)

    @rule(data=st.data(), run_at=st.none() | INSTANTS, error=st.none() | ERRORS, task=NEW_TASKS)
    def update_task(self, data: st.DataObject, run_at: int | None, error: str | None, task: NewTask) -> None:
        task_id = data.draw(st.sampled_from(self.ids))
        attributes = {"id": task_id, **task.as_mapping(), "attempts": 2, "last_fail_at": START, "last_error": error}
        self.both("update_task", {**attributes, "run_at": run_at})

    @rule(data=st.data())
    def delete_task(self, data: st.DataObject) -> None:
        self.both("delete_task", data.draw(st.sampled_from(self.ids)))

    @rule(seconds=SECONDS)
    def tick(self, seconds: float) -> None:
        self.clock.tick(seconds)

    @rule(
        queue=st.none() | QUEUES,
        state=st.none() | st.sampled_from(TaskState),
        tag=st.none() | st.sampled_from(["a:B", "c:D"]),
        limit=st.none() | LIMITS,
        after=st.none() | st.integers(0, 9),
    )
    def select(self, **filters: Any) -> None:
        self.both("select", **filters)

    @rule(queue=st.none() | QUEUES, state=st.none() | st.sampled_from(TaskState))
    def count(self, queue: str | None, state: TaskState | None) -> None:
        self.both("count", queue=queue, state=state)

    @invariant()
    def they_agree(self) -> None:
        if hasattr(self, "memory"):
            self.both("select")
            for queue in ("q", "nul\0"):
                self.both("read_tasks", queue)
                self.both("next_look_at", queue)


TestBothStores = BothStores.TestCase
TestBothStores.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
