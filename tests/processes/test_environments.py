"""What an application sees of its queue processes: tasks delayed from wherever are run, at once and side by side."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.floor_json import JsonPersister
from procrastinate_py import Environment, setup

ROOT = Path(__file__).parents[2]
SAFETY = 60.0


class Note:
    """Appends a line to a file, in one write."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = str(path)
        self.text = text

    def run(self) -> None:
        note(self.path, self.text)


def note(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


class DelaysAnother(Note):
    def run(self) -> None:
        super().run()
        environments[0].delay("cleanup", task=Note(Path(self.path), "from a body"))


class Together(Note):
    """Notes how many run at once, and waits for a file to appear."""

    lock = threading.Lock()
    running = 0

    def run(self) -> None:
        with self.lock:
            Together.running += 1
            note(self.path, str(Together.running))
        until = time.monotonic() + SAFETY
        while not os.path.exists(f"{self.path}-go") and time.monotonic() < until:
            time.sleep(0.005)
        with self.lock:
            Together.running -= 1


environments: list[Environment] = []
"""For bodies, which find it in their own process."""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture(params=["sqlite", "floor"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    return lambda: JsonPersister(tmp_path / "tasks.json")


@pytest.fixture
def start(given: Any, tmp_path: Path) -> Iterator[Callable[..., Environment]]:
    """By setup, with queues that look into the store once an hour."""

    def start(**options: Any) -> Environment:
        def define(env: Environment) -> None:
            for name in ("email", "cleanup"):
                env.define_queue(name, **{"update_period": 3600, **options})
            environments.append(env)

        return setup(given, define, log_dir=tmp_path / "log")

    yield start
    for env in environments:
        env.stop()
    environments.clear()


def await_lines(path: Path, count: int) -> list[str]:
    until = time.monotonic() + SAFETY
    while time.monotonic() < until:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return lines
        time.sleep(0.005)
    raise AssertionError(f"only {lines}, not {count}")


def test_a_due_task_does_not_wait_for_update_period(start: Callable[..., Environment], notes: Path) -> None:
    """E17 E1"""
    env = start()
    assert list(env.processes) == ["email", "cleanup"]
    for number in range(1, 6):
        env.delay("email", task=Note(notes, str(number)))
        assert await_lines(notes, number) == [str(each) for each in range(1, number + 1)]


def test_a_task_delayed_for_soon_does_not_wait_for_update_period_either(
    start: Callable[..., Environment], notes: Path
) -> None:
    """E17"""
    env = start()
    env.delay("email", task=Note(notes, "first"))
    await_lines(notes, 1)
    env.delay("email", task=Note(notes, "soon"), run_at=env.now() + 1)
    assert await_lines(notes, 2) == ["first", "soon"]


def test_delay_works_from_threads_and_from_a_body(start: Callable[..., Environment], notes: Path) -> None:
    """E18"""
    env = start()
    threads = [
        threading.Thread(target=lambda text=text: env.delay("email", task=Note(notes, text)), daemon=True)
        for text in "abcdefgh"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SAFETY)
    env.delay("email", task=DelaysAnother(notes, "body"))
    assert sorted(await_lines(notes, 10)) == sorted([*"abcdefgh", "body", "from a body"])


def test_delay_works_from_a_fork_of_the_application(start: Callable[..., Environment], notes: Path) -> None:
    """E18"""
    env = start()
    pid = os.fork()
    if pid == 0:
        try:
            env.delay("email", task=Note(notes, "from a fork"))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert await_lines(notes, 1) == ["from a fork"]


SHOP = """
import sys
from examples.floor_json import JsonPersister
from procrastinate_py import Environment

class Append:
    def __init__(self, path):
        self.path = path
    def run(self):
        with open(self.path, "a") as notes:
            notes.write("from elsewhere\\n")

folder = sys.argv[1]
given = f"sqlite:///{folder}/tasks.db" if sys.argv[2] == "sqlite" else lambda: JsonPersister(f"{folder}/tasks.json")
env = Environment(given, log_dir=f"{folder}/log")
env.define_queue("email", update_period=3600)
"""


@pytest.mark.parametrize("kind", ["sqlite", "floor"])
def test_delay_works_from_a_process_that_did_not_start(kind: str, tmp_path: Path, notes: Path) -> None:
    """E18 E17"""
    (tmp_path / "shop.py").write_text(SHOP)
    surroundings = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    works = "import shop, sys; shop.env.start(); print(flush=True); sys.stdin.read(); shop.env.stop()"
    delays = "import shop, sys; shop.env.delay(shop.Append(sys.argv[3])); shop.env.stop()"
    arguments = [str(tmp_path), kind, str(notes)]
    with subprocess.Popen(
        [sys.executable, "-c", works, *arguments], env=surroundings, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        for number in (1, 2):
            subprocess.run([sys.executable, "-W", "error", "-c", delays, *arguments], env=surroundings, check=True)
            assert await_lines(notes, number) == ["from elsewhere"] * number
        worker.communicate(timeout=SAFETY)
    assert worker.returncode == 0


def test_max_tasks_bodies_run_at_once_and_no_more(start: Callable[..., Environment], notes: Path) -> None:
    """E11"""
    env = start(max_tasks=3)
    env.delay_many([("email", Together(notes, "")) for _ in range(5)])
    await_lines(notes, 3)
    Path(f"{notes}-go").touch()
    counts = [int(line) for line in await_lines(notes, 5)]
    assert max(counts) == 3


def test_a_with_block_runs_what_was_delayed_before_it(given: Any, tmp_path: Path, notes: Path) -> None:
    """U1 E18"""
    env = Environment(given, log_dir=tmp_path / "log")
    env.define_queue("email", update_period=3600)
    env.delay(Note(notes, "before"))
    with env:
        await_lines(notes, 1)
        pids = list(env.processes.values())
    assert env.processes == {}
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_spawned_processes_work_too(tmp_path: Path, notes: Path) -> None:
    """E42 E17"""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "main.py").write_text(
        "import shop, sys\n"
        "shop.env.start_method = 'spawn'\n"
        "shop.env.start()\n"
        "shop.env.delay(shop.Append(sys.argv[3]))\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
        "shop.env.stop()\n"
    )
    with subprocess.Popen(
        [sys.executable, "main.py", str(tmp_path), "sqlite", str(notes)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert await_lines(notes, 1) == ["from elsewhere"]
        worker.communicate(timeout=SAFETY)
    assert worker.returncode == 0


def test_queue_processes_hold_no_port_of_the_application(start: Callable[..., Environment]) -> None:
    """E36, E39: after a kill -9 the application can be started again at once, whatever its queues still finish."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = os.readlink(f"/proc/self/fd/{server.fileno()}")
        for pid in start().processes.values():
            descriptors = Path(f"/proc/{pid}/fd")
            held = {os.readlink(entry) for entry in descriptors.iterdir()}
            assert "/dev/null" in held
            assert port not in held
