"""The smallest floor persister: tasks in a dict, for one process."""

from __future__ import annotations

import itertools
from typing import Any


class DictPersister:
    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self._ids = itertools.count(1)

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self.rows.values() if row["queue"] == queue and row["run_at"] is not None]

    def create_task(self, data: dict[str, Any]) -> int:
        task_id = next(self._ids)
        self.rows[task_id] = {"id": task_id, "attempts": 0, "last_fail_at": None, "last_error": None, **data}
        return task_id

    def update_task(self, attributes: dict[str, Any]) -> None:
        if attributes["id"] in self.rows:
            self.rows[attributes["id"]] = dict(attributes)

    def delete_task(self, task_id: int) -> None:
        self.rows.pop(task_id, None)
