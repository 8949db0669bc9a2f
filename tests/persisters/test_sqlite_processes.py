"""SQLite with several processes on one file: races and kills (G1, G2)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from procrastinate_py.core.task import NewTask, TaskState
from procrastinate_py.persisters import SQLitePersister

PROCESSES = 8
SAFETY = 120

CLAIMING = """
import sys
from procrastinate_py.core.lifecycle import Complete
from procrastinate_py.persisters import SQLitePersister
store = SQLitePersister(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
while claims := store.claim("q", sys.argv[2], 7, 600):
    assert store.settle([(claim.token, Complete()) for claim in claims]) == []
    print(*[claim.record.id for claim in claims], flush=True)
store.close()
"""

EDITING = """
import sys
from procrastinate_py.core.lifecycle import Close
from procrastinate_py.core.task import TaskState
from procrastinate_py.persisters import SQLitePersister
store = SQLitePersister(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for task_id in range(1, 21):
    record = store.find(task_id)
    close = Close(state=TaskState.FAILED, attempts=1, last_fail_at=1, last_error=sys.argv[2])
    if not record.state.is_closed and store.transition(task_id, record, close):
        print(task_id, flush=True)
store.close()
"""

OPENING = """
import sys
from procrastinate_py.persisters import SQLitePersister
store = SQLitePersister(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
data = {"queue": "q", "run_at": 1, "initial_run_at": 1, "expire_at": None, "task": sys.argv[2]}
print(*[store.create_task(data) for _ in range(10)], flush=True)
store.close()
"""

WRITING = """
import sys
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import SQLitePersister
store = SQLitePersister(sys.argv[1])
tasks = [NewTask(queue="q", run_at=1, initial_run_at=1, expire_at=None, task="x" * 500) for _ in range(40)]
while True:
    print(*store.create_many(tasks), flush=True)
"""

HALF_DONE = """
import sys
from procrastinate_py.persisters import SQLitePersister
store = SQLitePersister(sys.argv[1])
with store._session().durable.writing() as raw:
    raw.execute("PRAGMA cache_size = 1")
    raw.execute("DELETE FROM tasks")
    raw.execute("INSERT INTO tasks (queue, task) SELECT 'q', hex(randomblob(100000)) FROM json_each('[1,2,3,4,5]')")
    print("half done", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tasks.db")


def start(program: str, path: str, number: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, path, f"process {number}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def race(program: str, path: str) -> list[list[int]]:
    """The numbers that each process printed, once all had started and were let go together."""
    processes = [start(program, path, number) for number in range(PROCESSES)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=SAFETY)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [process.returncode for process in processes] == [0] * PROCESSES
    return [[int(word) for word in output.split()] for output in outputs]


def fill(path: str, count: int) -> None:
    task = NewTask(queue="q", run_at=1, initial_run_at=1, expire_at=None, task="!a:B {}")
    with closing(SQLitePersister(path)) as store:
        store.create_many([task] * count)


def test_eight_processes_work_each_task_once(path: str) -> None:
    """G2"""
    fill(path, 500)
    got = race(CLAIMING, path)
    assert sorted(number for numbers in got for number in numbers) == list(range(1, 501))


def test_of_eight_processes_that_race_on_a_row_one_wins(path: str) -> None:
    """G2"""
    fill(path, 20)
    winners = race(EDITING, path)
    assert sorted(number for numbers in winners for number in numbers) == list(range(1, 21))
    with closing(SQLitePersister(path)) as store:
        told = {record.id: record.last_error for record in store.select(state=TaskState.FAILED)}
    assert told == {task_id: f"process {number}" for number, ids in enumerate(winners) for task_id in ids}


def test_eight_processes_that_open_a_new_file_at_once_share_one_schema(path: str) -> None:
    """E3"""
    got = race(OPENING, path)
    assert sorted(number for numbers in got for number in numbers) == list(range(1, 10 * PROCESSES + 1))


def test_a_process_killed_at_any_moment_loses_nothing_that_was_committed(path: str) -> None:
    """G1"""
    told: list[int] = []
    for lines in range(1, 6):
        with start(WRITING, path) as process:
            assert process.stdout is not None
            for _ in range(lines):
                told += [int(word) for word in process.stdout.readline().split()]
            process.send_signal(signal.SIGKILL)
            told += [int(word) for line in process.stdout if line.endswith("\n") for word in line.split()]
    with closing(SQLitePersister(path)) as store:
        stored = [record.id for record in store.select()]
        assert set(told) <= set(stored)
        assert len(stored) % 40 == 0
        store.create_many([])
    assert len(told) >= 40 * (1 + 2 + 3 + 4 + 5)


def test_a_process_killed_inside_a_transaction_leaves_nothing_of_it(path: str) -> None:
    """G1"""
    fill(path, 30)
    with start(HALF_DONE, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half done\n"
        assert os.path.getsize(f"{path}-wal") > 0
        process.send_signal(signal.SIGKILL)
    with closing(SQLitePersister(path)) as store:
        assert [record.task for record in store.select()] == ["!a:B {}"] * 30
        assert store.create_task({"queue": "q", "run_at": 1, "initial_run_at": 1, "expire_at": None, "task": ""}) == 31
