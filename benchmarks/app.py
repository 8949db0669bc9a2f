"""The application under measurement: an environment on the store that BENCH_STORE names, with no-op tasks.

Run as a program it works the queues until its stdin closes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from examples.own_table import OwnTable  # noqa: E402
from procrastinate_py import Environment  # noqa: E402
from procrastinate_py.persisters import SQLitePersister, open_persister  # noqa: E402

FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
_lines: int | None = None


def lines() -> int:
    """Every no-op appends a line to one file, by one write: from outside it tells when which task ran."""
    global _lines
    if _lines is None:
        _lines = os.open(FOLDER / "lines", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return _lines


class Noop:
    def __init__(self, number: int) -> None:
        self.number = number

    def run(self) -> None:
        os.write(lines(), b"d %d %.6f\n" % (self.number, time.monotonic()))


class Nothing:
    """For costs in process: not even a line."""

    def __init__(self, number: int) -> None:
        self.number = number

    def run(self) -> None:
        pass


def own_table() -> OwnTable:
    """As a user would set it up who cares for speed: WAL."""
    table = OwnTable(str(FOLDER / "own.db"))
    table.db.execute("pragma journal_mode = wal")
    return table


def sqlite_url() -> str:
    return f"sqlite:///{FOLDER / 'tasks.db'}"


def sqlite_store() -> SQLitePersister:
    store = open_persister(sqlite_url())
    assert isinstance(store, SQLitePersister)
    return store


def url_of(store: str) -> str:
    """A server's is told by whoever started it."""
    return sqlite_url() if store == "sqlite" else os.environ["BENCH_URL"]


def environment(store: str, queues: int = 1) -> Environment:
    persister = own_table if store == "floor" else url_of(store)
    env = Environment(persister, log_dir=str(FOLDER / "log"), trust=["app", "__main__"])
    for number in range(queues):
        env.define_queue("bench" if number == 0 else f"bench-{number}", max_tasks=10)
    return env


def prefill_own_table(count: int) -> None:
    """Rows as delay would write them, in one transaction: delay_many on a floor persister is one insert each."""
    env = environment("floor")
    env.delay("bench", task=Noop(0))
    table = own_table()
    table.db.execute(
        "insert into chores (queue, run_at, initial_run_at, task) with recursive n(i) as"
        " (select 1 union all select i + 1 from n where i + 1 < ?)"
        " select queue, run_at, initial_run_at, replace(task, '0', n.i) from chores, n",
        (count,),
    )
    table.db.close()


def main() -> None:
    env = environment(os.environ["BENCH_STORE"], int(os.environ.get("BENCH_QUEUES", "1")))
    env.start()
    print(*env.processes.values(), flush=True)
    sys.stdin.read()
    env.stop()


if __name__ == "__main__":
    sys.modules["app"] = sys.modules["__main__"]
    main()
