"""A floor persister that keeps tasks in a JSON file, which any number of processes of one machine may use.

Good for a few hundred tasks: every change reads and writes the whole file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import Any


class JsonPersister:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        rows = self._read()["rows"].values()
        return [row for row in rows if row["queue"] == queue and row["run_at"] is not None]

    def create_task(self, data: dict[str, Any]) -> int:
        with self._changing() as content:
            task_id = content["last_id"] = content["last_id"] + 1
            content["rows"][str(task_id)] = {"id": task_id, "attempts": 0, **data}
        return int(task_id)

    def update_task(self, attributes: dict[str, Any]) -> None:
        with self._changing() as content:
            if str(attributes["id"]) in content["rows"]:
                content["rows"][str(attributes["id"])] = attributes

    def delete_task(self, task_id: int) -> None:
        with self._changing() as content:
            content["rows"].pop(str(task_id), None)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """One process at a time; a new file takes the old one's place, so that no reader sees half of it."""
        with open(f"{self.path}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self._read()
            yield content
            with open(f"{self.path}.new", "w") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{self.path}.new", self.path)

    def _read(self) -> dict[str, Any]:
        try:
            with open(self.path) as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {"last_id": 0, "rows": {}}
