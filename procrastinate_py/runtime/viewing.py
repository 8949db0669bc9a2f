"""Looking at stored tasks, through whatever the store can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core.codec import Codec
from ..core.errors import TaskNotFoundError
from ..core.lease import TaskId
from ..core.task import TaskRecord, TaskState
from ..ports.persister import Inspecting
from .floor_inspecting import FloorInspecting
from .persister_source import Store
from .queue_table import QueueTable


class View:
    """Its records can be loaded."""

    def __init__(self, store: Store, queues: QueueTable, codec: Codec) -> None:
        self.inspecting: Inspecting = store.capabilities.inspecting or FloorInspecting(
            store.persister, queues, store.now
        )
        self._queues = queues
        self._codec = codec

    def find(self, task_id: TaskId) -> TaskRecord:
        record = self.inspecting.find(task_id)
        if record is None:
            raise TaskNotFoundError(f"no stored task has the id {task_id!r}: it has completed, or never was")
        return self._loadable(record)

    def tasks(
        self, queue: Any, state: Any, task: type | str | None, limit: Any, after: TaskId | None
    ) -> list[TaskRecord]:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ValueError(f"limit must be a positive int (None: no limit), not {limit!r}")
        found = self.inspecting.select(
            queue=self._name(queue),
            state=_state(state),
            tag=self._codec.registry.tag_of(task) if isinstance(task, type) else task,
            limit=limit,
            after=after,
        )
        return [self._loadable(record) for record in found]

    def counts(self, queue: Any, state: Any) -> Mapping[tuple[str, TaskState], int]:
        return self.inspecting.count(queue=self._name(queue), state=_state(state))

    def _name(self, queue: Any) -> str | None:
        return None if queue is None else self._queues.named(queue).name

    def _loadable(self, record: TaskRecord) -> TaskRecord:
        return replace(record, loader=self._codec.load)


def _state(state: Any) -> TaskState | None:
    try:
        return None if state is None else TaskState(state)
    except ValueError:
        known = ", ".join(known.value for known in TaskState)
        raise ValueError(f"there is no state {state!r}; there are {known}") from None
