"""A store, its notes and its logs in a folder, and environments that work it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from procrastinate_py import Environment

from .stores import Flaky, Table
from .support import eventually, lines_of


class Shop:
    """A folder with a store, and environments on it. ``kind``: sqlite, floor, flaky (a floor that can fail), or the URL
    of a store that is somewhere else."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.notes = str(folder / "notes")
        self.environments: list[Environment] = []
        self.tables: list[Table] = []

    def persister(self) -> Any:
        if "://" in self.kind:
            return self.kind
        path = str(self.folder / "store.db")
        if self.kind == "sqlite":
            return f"sqlite:///{path}"
        kind = Flaky if self.kind == "flaky" else Table

        def factory() -> Table:
            self.tables.append(kind(path))
            return self.tables[-1]

        return factory

    def environment(self, queues: dict[str, dict[str, Any]] | None = None, **settings: Any) -> Environment:
        """Looks often, so that what a test waits for comes soon."""
        settings = {"log_dir": str(self.folder / "log"), "log_level": "DEBUG", "trust": ["processes"], **settings}
        env = Environment(settings.pop("persister", None) or self.persister(), **settings)
        for name, options in (queues or {"email": {}}).items():
            env.define_queue(name, **{"update_period": 0.1, "backoff": at_once, **options})
        self.environments.append(env)
        return env

    def started(self, queues: dict[str, dict[str, Any]] | None = None, **settings: Any) -> Environment:
        env = self.environment(queues, **settings)
        env.start()
        return env

    def noted(self, *fragments: str) -> list[str]:
        return [line for line in lines_of(Path(self.notes)) if all(fragment in line for fragment in fragments)]

    def await_note(self, *fragments: str, times: int = 1) -> list[str]:
        return eventually(lambda: (found := self.noted(*fragments))[times - 1 :] and found, " ".join(fragments))

    def logged(self, *fragments: str, queue: str = "email") -> list[str]:
        lines = lines_of(self.folder / "log" / f"{queue}-queue-worker.log")
        return [line for line in lines if all(fragment in line for fragment in fragments)]

    def await_log(self, *fragments: str, queue: str = "email") -> list[str]:
        return eventually(lambda: self.logged(*fragments, queue=queue), " ".join(fragments))

    def close(self) -> None:
        for env in self.environments:
            env.stop(0)
        for table in self.tables:
            table.close()


def at_once(attempts: int) -> float:
    return 0.0
