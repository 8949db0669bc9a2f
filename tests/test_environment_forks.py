"""What an environment is to a process that was forked from its own, and what start() looks at first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py import AlreadyStartedError, ConfigurationError, Environment, MalformedPersisterError
from procrastinate_py.persisters import MemoryPersister


class Nothing:
    def run(self) -> None: ...


def in_a_fork(function: Callable[[], Any]) -> str:
    """The repr of what it returns, or the name of what it raises, in a child of this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            try:
                told = repr(function())
            except BaseException as error:
                told = type(error).__name__
            os.write(writing, told.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    os.waitpid(pid, 0)
    return told


def unstarted(folder: Path, persister: Any = None) -> Environment:
    env = Environment(persister or f"sqlite:///{folder}/tasks.db", log_dir=None, run_dir=folder / "run")
    env.define_queue("email")
    return env


def test_a_forked_process_delays_into_the_same_store(tmp_path: Path) -> None:
    """E18, U31: with a connection of its own."""
    env = unstarted(tmp_path)
    env.delay(Nothing())
    assert in_a_fork(lambda: env.delay(Nothing())) == "2"
    assert env.delay(Nothing()) == 3
    assert env.count() == 3


def test_a_forked_process_has_not_started(tmp_path: Path) -> None:
    """E6, U3: what was started belongs to the process that did it."""
    env = Environment(test_mode=True)
    env.define_queue("email")
    env.start()
    with pytest.raises(AlreadyStartedError):
        env.start()

    def start_anew() -> str:
        env.log_level = "DEBUG"
        env.start()
        return "started"

    assert in_a_fork(start_anew) == "'started'"


def test_a_forked_process_neither_sees_nor_stops_the_queue_processes(tmp_path: Path) -> None:
    """E18, E35"""
    env = unstarted(tmp_path)
    with env:
        pids = env.processes
        assert in_a_fork(lambda: env.processes) == "{}"
        assert in_a_fork(lambda: env.stop(0)) == "None"
        assert env.processes == pids
        assert all(os.path.exists(f"/proc/{pid}") for pid in pids.values())


@pytest.mark.parametrize(
    ("made", "error"), [(None, ValueError), (object(), MalformedPersisterError)], ids=["None", "no methods"]
)
def test_start_tells_what_is_wrong_with_what_a_factory_makes(tmp_path: Path, made: object, error: type) -> None:
    """E1, E4, U2: to whoever starts it, not only to a queue's log."""
    env = unstarted(tmp_path, lambda: made)
    with pytest.raises(error):
        env.start()
    assert env.processes == {}


@pytest.mark.parametrize("persister", [MemoryPersister(), MemoryPersister, "sqlite://"], ids=repr)
def test_start_refuses_a_store_that_other_processes_cannot_see(tmp_path: Path, persister: Any) -> None:
    """E3: an in-memory store would swallow the tasks."""
    env = unstarted(tmp_path, persister)
    with pytest.raises(ConfigurationError, match="memory"):
        env.start()
    env.log_level = "DEBUG"  # it hasn't started


def test_a_relative_database_stays_where_the_environment_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E3, U29: whatever the folder is called, and wherever the application goes to."""
    home, elsewhere = tmp_path / "100%41 ? # shop", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(home)
    env = unstarted(tmp_path, "sqlite:///tasks.db")
    monkeypatch.chdir(elsewhere)
    env.delay(Nothing())
    assert (home / "tasks.db").exists()
    assert list(elsewhere.iterdir()) == []
    env.stop()


def test_a_database_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U29: the spelling that others use, too."""
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite://", "sqlite:///:memory:"):
        env = Environment(url, test_mode=True)
        env.define_queue("email")
        env.delay(Nothing())
        assert [outcome.state for outcome in env.act()] == ["completed"]
        env.stop()
    assert list(tmp_path.iterdir()) == []
