"""Environments in test mode, on each kind of store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from examples.floor_dict import DictPersister
from examples.floor_json import JsonPersister
from procrastinate_py import Environment
from procrastinate_py.persisters import MemoryPersister, SQLitePersister
from procrastinate_py.testing import FakeClock

KINDS = ["memory", "sqlite", "dict", "json"]
FLOORS = ["dict", "json"]
NOW = 1_800_000_000


def persister(kind: str, folder: Path) -> Any:
    match kind:
        case "memory":
            return MemoryPersister()
        case "sqlite":
            return SQLitePersister(folder / "tasks.db")
        case "dict":
            return DictPersister()
        case "json":
            return JsonPersister(folder / "tasks.json")
    raise ValueError(kind)


def env_on(store: Any, *queues: str, now: float = NOW + 0.75, **settings: Any) -> Environment:
    """In test mode, by a FakeClock, with these queues."""
    env = Environment(store, test_mode=True, **({"clock": FakeClock(now)} | settings))
    for queue in queues:
        env.define_queue(queue)
    return env


class Spy:
    """A floor persister that notes every call."""

    def __init__(self) -> None:
        self.inner = DictPersister()
        self.calls: list[tuple[str, Any]] = []
        self.failing: set[str] = set()
        self.thread_ids: set[int] = set()

    @property
    def rows(self) -> dict[int, dict[str, Any]]:
        return self.inner.rows

    def names(self) -> list[str]:
        return [name for name, _ in self.calls if name != "read_tasks"]

    def _call(self, name: str, argument: Any) -> Any:
        self.calls.append((name, argument))
        self.thread_ids.add(threading.get_ident())
        if name in self.failing:
            raise OSError(f"{name} is down")
        return getattr(self.inner, name)(argument)

    def read_tasks(self, queue: str) -> Any:
        return self._call("read_tasks", queue)

    def create_task(self, data: dict[str, Any]) -> Any:
        return self._call("create_task", data)

    def update_task(self, attributes: dict[str, Any]) -> Any:
        return self._call("update_task", attributes)

    def delete_task(self, task_id: int) -> Any:
        return self._call("delete_task", task_id)
