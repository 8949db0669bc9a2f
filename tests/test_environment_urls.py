"""The same application on any bundled store, by changing one URL; and what it says where the store isn't there."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py import Environment, PersisterUnavailableError, TaskNotFoundError, TestModeError
from procrastinate_py.cli.looking import find
from procrastinate_py.persisters import open_persister
from procrastinate_py.testing import FakeClock

from . import servers
from .processes.support import eventually, lines_of, no_process_left

ROOT = Path(__file__).parent.parent
NOW = 1_800_000_000
SECRET = "hunter2"
SERVERS = ["postgres", "redis", "s3"]


def url_of(kind: str, folder: Path) -> str:
    """Of a store that is there."""
    match kind:
        case "sqlite":
            return f"sqlite:///{folder}/tasks.db"
        case "postgres":
            return servers.postgres_url()
        case "redis":
            return servers.redis_url()
        case "s3":
            return servers.s3_url()
    raise ValueError(kind)


def url_to(kind: str, port: int) -> str:
    """Of a store that isn't: nobody listens there."""
    return {
        "postgres": f"postgresql://scott:{SECRET}@127.0.0.1:{port}/tasks",
        "redis": f"redis://scott:{SECRET}@127.0.0.1:{port}/0",
        "s3": f"s3://bucket/prefix?endpoint=http://127.0.0.1:{port}&region=us-east-1"
        f"&access_key=scott&secret_key={SECRET}",
    }[kind]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Bound, so that nobody else takes it, but not listened to."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@dataclass
class Note:
    notes: str
    text: str

    def run(self) -> None:
        fd = os.open(self.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{self.text}\n".encode())
        os.close(fd)


ran: list[str] = []


@dataclass
class Says:
    text: str

    def run(self) -> None:
        ran.append(self.text)


# --- there


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_the_same_application_runs_on_any_store(kind: str, tmp_path: Path) -> None:
    """E3"""
    notes = tmp_path / "notes"
    with no_process_left():
        env = Environment(url_of(kind, tmp_path), log_dir=tmp_path / "log")
        env.define_queue("email", processes=2, update_period=0.5)
        with env:
            first = env.delay(Note(str(notes), "one"))
            later = env.delay(Note(str(notes), "later"), run_at=NOW * 2)
            env.delay_many([("email", Note(str(notes), text)) for text in ("two", "three")])
            eventually(lambda: len(lines_of(notes)) == 3)
            eventually(lambda: [record.id for record in env.tasks()] == [later])
            assert len(env.processes_of("email")) == 2
            assert type(later) is type(first)
        assert sorted(lines_of(notes)) == ["one", "three", "two"]


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_test_mode_moves_the_time_of_any_store(kind: str, tmp_path: Path) -> None:
    """E44 U12 G3"""
    ran.clear()
    env = Environment(url_of(kind, tmp_path), test_mode=True, clock=FakeClock(NOW))
    env.define_queue("email")
    for text, at in (("third", 86_400), ("first", 0), ("second", 60), ("too late", 10**6)):
        env.delay(Says(text), run_at=NOW + at)
    assert [outcome.state for outcome in env.drain()] == ["completed"]
    assert [outcome.state for outcome in env.drain(until=NOW + 86_400)] == ["completed"] * 2
    assert ran == ["first", "second", "third"]
    assert env.now() == env.clock.now() == NOW + 86_400
    assert env.count() == 1
    env.stop()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_persister_that_goes_by_its_server_has_no_time_to_move(kind: str, tmp_path: Path) -> None:
    """U12"""
    persister = open_persister(url_of(kind, tmp_path))
    env = Environment(persister, test_mode=True, clock=FakeClock(NOW * 2))
    env.define_queue("email")
    env.delay(Says("later"), run_at=NOW * 2)
    with pytest.raises(TestModeError, match="goes by its server's clock"):
        env.drain(until=NOW * 2)
    persister.close()


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_a_task_is_found_by_its_id_on_the_command_line_whatever_ids_are(kind: str, tmp_path: Path) -> None:
    """E50"""
    url = url_of(kind, tmp_path)
    env = Environment(url, log_dir=None)
    env.define_queue("email")
    task_id = env.delay(Says("hello"))
    shown = on_the_command_line(tmp_path, url, "show", str(task_id))
    assert shown.returncode == 0, shown.stderr
    assert f"id              {task_id}\n" in shown.stdout
    assert "Says" in shown.stdout
    assert find(env, str(task_id)).id == task_id
    for nobody in ("nobody", "1" * 23, "-1", "0", "7777777", f"{task_id}0"):
        with pytest.raises(TaskNotFoundError, match="no stored task has the id"):
            find(env, nobody)
    checked = on_the_command_line(tmp_path, url, "check")
    assert "reachable; abilities: leasing" in checked.stdout
    env.stop()


# --- not there


def on_the_command_line(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(
        "import os\nfrom procrastinate_py import Environment\n"
        "env = Environment(os.environ['SHOP_URL'], trust=['tests'])\nenv.define_queue('email')\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "procrastinate_py", "--env", "shop:env", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SHOP_URL": url},
        capture_output=True,
        text=True,
        timeout=servers.PATIENCE,
        check=False,
    )


def driver_is_there(kind: str) -> None:
    pytest.importorskip({"postgres": "psycopg", "redis": "redis", "s3": "botocore"}[kind])


@pytest.mark.parametrize("kind", SERVERS)
def test_an_application_starts_though_its_store_is_not_there(
    kind: str, tmp_path: Path, closed_port: int, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """G7 G8: one warning, as many tries as it takes, and the password nowhere."""
    driver_is_there(kind)
    with no_process_left(), caplog.at_level(logging.DEBUG):
        env = Environment(url_to(kind, closed_port), log_dir=tmp_path / "log", log_level="DEBUG", grace=1)
        env.define_queue("email", update_period=0.1)
        env.start()
        log = tmp_path / "log" / "email-queue-worker.log"
        eventually(lambda: any("store_unavailable" in line for line in lines_of(log)))
        await_another_try(closed_port)
        assert env.processes
        env.stop(0)
    told = log.read_text()
    assert [line.split()[1] for line in told.splitlines() if "WARNING" in line or "ERROR" in line] == ["WARNING"], told
    for text in (told, *capfd.readouterr(), caplog.text, *others(tmp_path)):
        assert SECRET not in text


def await_another_try(port: int) -> None:
    """Listens where the store should be, and hangs up on whoever comes."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        listening.settimeout(servers.PATIENCE)
        listening.accept()[0].close()


def others(folder: Path) -> list[str]:
    return [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]


VERBS: dict[str, Callable[[Any], object]] = {
    "delay": lambda env: env.delay(Says("one")),
    "delay_many": lambda env: env.delay_many([("email", Says("one"))]),
    "counts": lambda env: env.counts("email"),
    "tasks": lambda env: env.tasks(),
    "count": lambda env: env.count(),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_store_that_is_not_there_is_told_to_the_caller_without_the_password(kind: str, closed_port: int) -> None:
    """G8"""
    driver_is_there(kind)
    url = url_to(kind, closed_port)
    env = Environment(url, log_dir=None)
    env.define_queue("email")
    for name, verb in VERBS.items():
        with pytest.raises(PersisterUnavailableError) as caught:
            verb(env)
        for told in (repr(caught.value), "".join(traceback.format_exception(caught.value))):
            assert SECRET not in told, name
    for told in (repr(env), repr(env.store()), repr(env.store().persister), repr(env.store().capabilities)):
        assert SECRET not in told
    env.stop()


@pytest.mark.parametrize("kind", SERVERS)
def test_check_tells_what_cannot_be_reached_without_the_password(kind: str, tmp_path: Path, closed_port: int) -> None:
    """G8 E50"""
    driver_is_there(kind)
    for options in ((), ("--json", "--debug")):
        done = on_the_command_line(tmp_path, url_to(kind, closed_port), "check", *options)
        assert done.returncode == 1
        assert "persister" in done.stdout and "it can't be used: " in done.stdout
        assert SECRET not in done.stdout + done.stderr
    for options in (("stats", "--debug"), ("list", "--json")):
        done = on_the_command_line(tmp_path, url_to(kind, closed_port), *options)
        assert done.returncode == 1
        assert str(closed_port) in done.stderr
        assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("url", ["mysql://scott:hunter2@db/tasks", "postgresql://scott:hunter2@db/x?schema=a%00b"])
def test_a_url_that_is_refused_is_not_quoted(url: str) -> None:
    """G8"""
    with pytest.raises(Exception) as caught:
        Environment(url, log_dir=None)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


LOADS_NO_DRIVER = """
import sys
from procrastinate_py import Environment
for url in sys.argv[1:]:
    env = Environment(url, log_dir=None)
    env.define_queue("email", processes=2)
    repr(env.store().persister)
    env.stop()
print(*sorted({"psycopg", "psycopg_pool", "redis", "botocore", "boto3", "obstore", "sqlite3"} & set(sys.modules)))
"""


def test_no_driver_is_loaded_before_a_store_is_used() -> None:
    """P8"""
    urls = [url_to(kind, 9) for kind in SERVERS]
    done = subprocess.run(
        [sys.executable, "-c", LOADS_NO_DRIVER, *urls], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "\n"
