"""The reference store: what the others do, in one process's memory. Test mode's own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from ..core.lease import Lease, LeaseToken, TaskId
from ..core.lifecycle import Transition, apply
from ..core.stored_text import tag_of_text
from ..core.task import Claim, NewTask, TaskRecord, TaskState, counts_of, state_of
from ..ports.clock import Clock, SystemClock
from ..ports.persister import WakeListener
from ._rows import is_as_expected, new_token, overwritten
from ._wake import LocalWake


@dataclass(slots=True)
class _Queue:
    """``due`` is a heap of (run_at, id). Entries that no longer fit their row are dropped when they come up."""

    due: list[tuple[int, int]] = field(default_factory=list)
    leased: set[int] = field(default_factory=set)


class MemoryPersister:
    """Keeps tasks in memory, for one process: tests, and trying things out. Every ability but joining; any thread."""

    is_shareable = False
    """Whether several processes can work on the same tasks through it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._rows: dict[int, TaskRecord] = {}
        self._tokens: dict[int, str] = {}
        self._queues: dict[str, _Queue] = {}
        self._wake = LocalWake()

    # --- floor

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        with self._lock:
            return [row.as_mapping() for row in self._rows.values() if row.queue == queue and row.run_at is not None]

    def create_task(self, data: dict[str, Any]) -> int:
        new = NewTask(**data)
        with self._lock:
            task_id = self._insert(new)
        self.notify(new.queue)
        return task_id

    def update_task(self, attributes: dict[str, Any]) -> None:
        with self._lock:
            old = self._rows.get(attributes["id"])
            if old is not None:
                self._take_out(old)
                self._put(overwritten(old, attributes))

    def delete_task(self, task_id: TaskId) -> None:
        with self._lock:
            self._remove(task_id)

    # --- leasing

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        now = self.now()
        token = new_token()
        lease = Lease(owner, now + lease_for)
        claims: list[Claim] = []
        with self._lock:
            while len(claims) < limit:
                first = self._first(queue)
                if first is None or first[0] > now:
                    break
                heappop(self._queues[queue].due)
                claims.append(self._lease(first[1], lease, token, now))
        return claims

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        now = self.now()
        lost = []
        with self._lock:
            for token in tokens:
                row = self._held(token)
                if row is None or row.lease is None:
                    lost.append(token)
                else:
                    self._rows[row.id] = replace(row, lease=Lease(row.lease.owner, now + lease_for))
        return lost

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        lost = []
        with self._lock:
            for token, transition in settlements:
                row = self._held(token)
                if row is None:
                    lost.append(token)
                else:
                    self._carry_out(row, transition)
        return lost

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> list[Claim]:
        now = self.now()
        token = new_token()
        lease = Lease(owner, now + lease_for)
        with self._lock:
            free = []
            for task_id in self._queues[queue].leased if queue in self._queues else ():
                row = self._rows[task_id]
                if row.run_at is not None and row.lease is not None and _is_for_reaper(row.lease, dead_owner, now):
                    free.append((row.run_at, task_id))
            return [self._lease(task_id, lease, token, now) for _, task_id in sorted(free)[: max(limit, 0)]]

    def next_look_at(self, queue: str) -> float | None:
        with self._lock:
            first = self._first(queue)
            instants = [] if first is None else [float(first[0])]
            for task_id in self._queues[queue].leased if queue in self._queues else ():
                lease = self._rows[task_id].lease
                if lease is not None:
                    instants.append(lease.expires_at)
            return min(instants, default=None)

    # --- creating and editing

    def create_many(self, tasks: Sequence[NewTask]) -> list[int]:
        with self._lock:
            ids = [self._insert(task) for task in tasks]
        for queue in {task.queue for task in tasks}:
            self.notify(queue)
        return ids

    def transition(self, task_id: TaskId, expected: TaskRecord, transition: Transition) -> bool:
        now = self.now()
        with self._lock:
            row = self._rows.get(task_id)
            if row is None or not is_as_expected(row, expected, now):
                return False
            self._carry_out(row, transition)
        self.notify(row.queue)
        return True

    # --- waking

    def notify(self, queue: str) -> None:
        self._wake.notify(queue)

    def listen(self, queue: str) -> WakeListener:
        return self._wake.listen(queue)

    # --- inspecting

    def find(self, task_id: TaskId) -> TaskRecord | None:
        now = self.now()
        with self._lock:
            row = self._rows.get(task_id)
            return row and replace(row, read_at=now)

    def select(
        self,
        *,
        queue: str | None = None,
        state: TaskState | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: TaskId | None = None,
    ) -> list[TaskRecord]:
        now = self.now()
        with self._lock:
            fitting = (
                replace(row, read_at=now)
                for row in self._rows.values()
                if (after is None or row.id > after)
                and (queue is None or row.queue == queue)
                and (state is None or state_of(row, now) is state)
                and (tag is None or tag_of_text(row.task) == tag)
            )
            return list(itertools.islice(fitting, None if limit is None else max(limit, 0)))

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> dict[tuple[str, TaskState], int]:
        return counts_of(self.select(queue=queue, state=state))

    # --- time and the rest

    def now(self) -> float:
        return self._clock.now()

    def use_clock(self, clock: Clock) -> None:
        self._clock = clock

    def close(self) -> None:
        """Nothing to let go of: the tasks stay."""

    def __repr__(self) -> str:
        return f"MemoryPersister({len(self._rows)} tasks)"

    def __reduce__(self) -> Any:
        raise TypeError("a MemoryPersister can't be sent to another process: its tasks live in this one's memory")

    # --- rows; the lock is held

    def _insert(self, task: NewTask) -> int:
        row = TaskRecord(id=next(self._ids), **task.as_mapping())
        self._put(row)
        return int(row.id)

    def _put(self, row: TaskRecord) -> None:
        self._rows[row.id] = row
        queue = self._queues.setdefault(row.queue, _Queue())
        if row.lease is not None:
            queue.leased.add(row.id)
            return
        self._tokens.pop(row.id, None)
        if row.run_at is not None:
            heappush(queue.due, (row.run_at, row.id))

    def _remove(self, task_id: TaskId) -> None:
        row = self._rows.pop(task_id, None)
        if row is not None:
            self._tokens.pop(task_id, None)
            self._take_out(row)

    def _take_out(self, row: TaskRecord) -> None:
        self._queues[row.queue].leased.discard(row.id)

    def _first(self, queue: str) -> tuple[int, int] | None:
        """The heap's first entry that still fits its row."""
        due = self._queues[queue].due if queue in self._queues else []
        while due:
            row = self._rows.get(due[0][1])
            if row is not None and row.lease is None and row.run_at == due[0][0] and row.queue == queue:
                return due[0]
            heappop(due)
        return None

    def _lease(self, task_id: int, lease: Lease, token: str, now: float) -> Claim:
        row = self._rows[task_id] = replace(self._rows[task_id], lease=lease, read_at=now)
        self._tokens[task_id] = token
        self._queues[row.queue].leased.add(task_id)
        return Claim(row, LeaseToken(task_id, token))

    def _held(self, token: LeaseToken) -> TaskRecord | None:
        return self._rows[token.task_id] if self._tokens.get(token.task_id) == token.value else None

    def _carry_out(self, row: TaskRecord, transition: Transition) -> None:
        after = apply(row, transition)
        if after is None:
            self._remove(row.id)
        else:
            self._take_out(row)
            self._put(after)


def _is_for_reaper(lease: Lease, dead_owner: str | None, now: float) -> bool:
    return lease.has_lapsed(now) if dead_owner is None else lease.owner == dead_owner
