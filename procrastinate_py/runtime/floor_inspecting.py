"""Looking at tasks where all the store can do is to read a queue: as ``Inspecting`` does, by ``read_tasks``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from ..core.lease import TaskId
from ..core.row import record_from_row
from ..core.stored_text import tag_of_text
from ..core.task import TaskRecord, TaskState, counts_of, state_of
from ..ports.persister import Persister


class FloorInspecting:
    """Sees the queues it's told of. Who has a task in hand isn't in such a store, so those count as PENDING."""

    def __init__(self, persister: Persister, queues: Iterable[str], now: Callable[[], float]) -> None:
        self._persister = persister
        self._queues = tuple(queues)
        self._now = now

    def find(self, task_id: TaskId) -> TaskRecord | None:
        return next((record for record in self._records(self._queues) if record.id == task_id), None)

    def select(
        self,
        *,
        queue: str | None = None,
        state: TaskState | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: TaskId | None = None,
    ) -> list[TaskRecord]:
        now = self._now()
        fitting = [
            record
            for record in self._records(self._queues if queue is None else (queue,))
            if (state is None or state_of(record, now) is state) and (tag is None or tag_of_text(record.task) == tag)
        ]
        return list(islice(_after(_by_id(fitting), after), limit))

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> dict[tuple[str, TaskState], int]:
        return counts_of(self.select(queue=queue, state=state))

    def _records(self, queues: Iterable[str]) -> Iterator[TaskRecord]:
        now = self._now()
        for queue in queues:
            for row in self._persister.read_tasks(queue):
                try:
                    yield record_from_row(queue, row, now)
                except Exception:
                    continue  # the queue's log tells of it; there's no task to show


def _by_id(records: list[TaskRecord]) -> list[TaskRecord]:
    """Ids that can't be compared with each other keep the order in which they were read."""
    try:
        return sorted(records, key=_id_of)
    except TypeError:
        return records


def _id_of(record: TaskRecord) -> Any:
    return record.id


def _after(records: list[TaskRecord], task_id: TaskId | None) -> list[TaskRecord]:
    if task_id is None:
        return records
    try:
        return [record for record in records if record.id > task_id]
    except TypeError:
        ids = [record.id for record in records]
        return records[ids.index(task_id) + 1 :] if task_id in ids else []
