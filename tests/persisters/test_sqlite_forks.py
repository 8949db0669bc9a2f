"""Forks of a process that writes to an SQLite file in that very moment."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from procrastinate_py.core.errors import PersisterUnavailableError
from procrastinate_py.persisters import SQLitePersister, _sqlite_file, _sqlite_session
from procrastinate_py.runtime.forking import fork_process

FORKS = 12


@contextlib.contextmanager
def writing_all_the_time(persister: SQLitePersister) -> Iterator[None]:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with contextlib.suppress(PersisterUnavailableError):  # where a test makes it impatient
                create(persister)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def create(persister: SQLitePersister) -> None:
    persister.create_task({"queue": "email", "run_at": 0, "initial_run_at": 0, "expire_at": None, "task": "x"})


def forks_that_can_write(persister: SQLitePersister) -> int:
    def write() -> None:
        signal.alarm(30)  # a lock that is nobody's may be one that no timeout ends
        os.close(2)  # what it has to say is its exit code
        create(persister)

    return sum(os.waitpid(fork_process(write), 0)[1] == 0 for _ in range(FORKS))


@pytest.fixture
def persister(tmp_path: Path) -> Iterator[SQLitePersister]:
    persister = SQLitePersister(tmp_path / "tasks.db")
    create(persister)
    yield persister
    persister.close()


def test_a_fork_in_the_middle_of_another_threads_write_can_write_too(persister: SQLitePersister) -> None:
    """U31 G1: it would find the file locked for ever, by a thread that it doesn't have."""
    with writing_all_the_time(persister):
        assert forks_that_can_write(persister) == FORKS


def test_the_test_above_catches_connections_that_forks_do_not_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U31"""
    monkeypatch.setattr(_sqlite_file, "BUSY_TIMEOUT", 0.2)
    monkeypatch.setattr(_sqlite_session, "lock_that_forks_wait_for", threading.Lock)
    persister = SQLitePersister(tmp_path / "tasks.db")
    create(persister)
    with writing_all_the_time(persister):
        assert forks_that_can_write(persister) < FORKS
    persister.close()


def test_two_threads_may_fork_at_once(persister: SQLitePersister) -> None:
    """U31"""
    able: list[int] = []
    threads = [threading.Thread(target=lambda: able.append(forks_that_can_write(persister))) for _ in range(2)]
    with writing_all_the_time(persister):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert able == [FORKS, FORKS]
