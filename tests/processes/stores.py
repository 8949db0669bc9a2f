"""Floor persisters that many processes can share."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import suppress
from typing import Any

COLUMNS = "queue, run_at, initial_run_at, expire_at, attempts, last_fail_at, last_error, task"


class Table:
    """Four methods on a table of one's own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.connection: sqlite3.Connection | None = None
        self.pid = 0

    def db(self) -> sqlite3.Connection:
        if self.connection is None or self.pid != os.getpid():
            self.pid = os.getpid()
            self.connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=60)
            self.connection.row_factory = sqlite3.Row
            with suppress(sqlite3.OperationalError):  # where another process is doing just that
                self.connection.execute("pragma journal_mode = wal")
            self.connection.execute("pragma synchronous = off")
            self.connection.execute(
                f"create table if not exists chores (id integer primary key autoincrement, {COLUMNS})"
            )
        return self.connection

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        rows = self.db().execute("select * from chores where queue = ?", (queue,))
        return [dict(row) for row in rows]

    def create_task(self, data: dict[str, Any]) -> int | None:
        marks = ", ".join(f":{name}" for name in data)
        return self.db().execute(f"insert into chores ({', '.join(data)}) values ({marks})", data).lastrowid

    def update_task(self, attributes: dict[str, Any]) -> None:
        changes = ", ".join(f"{name} = :{name}" for name in attributes)
        self.db().execute(f"update chores set {changes} where id = :id", attributes)

    def delete_task(self, task_id: int) -> None:
        self.db().execute("delete from chores where id = ?", (task_id,))

    def close(self) -> None:
        if self.connection is not None and self.pid == os.getpid():
            self.connection.close()
        self.connection = None


class Flaky(Table):
    """Every call but create_task fails while the file ``PATH.down`` exists."""

    def _check(self) -> None:
        if os.path.exists(f"{self.path}.down"):
            raise ConnectionError("the store is down")

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        self._check()
        return super().read_tasks(queue)

    def update_task(self, attributes: dict[str, Any]) -> None:
        self._check()
        super().update_task(attributes)

    def delete_task(self, task_id: int) -> None:
        self._check()
        super().delete_task(task_id)


class Hanging(Table):
    """Reading never comes back: no exception, no end."""

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        open(f"{self.path}.hangs", "w").close()
        while True:
            signal.pause()
