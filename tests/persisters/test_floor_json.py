"""The JSON file among processes: floor persisters are shared by applications that delay (E18)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from examples.floor_json import JsonPersister

CREATING = """
import sys
from examples.floor_json import JsonPersister
store = JsonPersister(sys.argv[1])
data = {"queue": "q", "run_at": 1, "initial_run_at": 1, "expire_at": None, "task": "!a:B {}"}
for _ in range(20):
    store.create_task(data)
"""


def test_processes_that_write_at_once_lose_no_task(tmp_path: Path) -> None:
    """E18"""
    path = str(tmp_path / "tasks.json")
    command = [sys.executable, "-c", CREATING, path]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert [row["id"] for row in JsonPersister(path).read_tasks("q")] == list(range(1, 81))
