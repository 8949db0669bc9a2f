"""SQLite under a queue's process: locked by another process, and on a disk that is full."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from procrastinate_py.core.errors import PersisterUnavailableError
from procrastinate_py.persisters import _sqlite_file

from .jobs import Gated, Noted
from .shops import Shop
from .support import eventually, no_process_left


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queue processes are forks, and inherit it."""
    monkeypatch.setattr(_sqlite_file, "BUSY_TIMEOUT", 0.05)


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    with no_process_left():
        shop = Shop(tmp_path, "sqlite")
        yield shop
        shop.close()


def test_a_database_that_another_process_holds_locked_is_waited_for(
    impatient: None, shop: Shop, tmp_path: Path
) -> None:
    """G7 E37"""
    gate = tmp_path / "gate"
    env = shop.started()
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    pids = env.processes
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as another:
        another.execute("BEGIN EXCLUSIVE")
        gate.touch()
        shop.await_note("slow success")
        shop.await_log("WARNING", "store_unavailable", "locked")
        with pytest.raises(PersisterUnavailableError, match="locked"):
            env.delay("email", task=Noted(shop.notes, "refused"))
        another.execute("ROLLBACK")
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")
    eventually(lambda: not env.tasks())
    shop.await_log("INFO", "store_available")
    assert env.processes == pids
    assert len(shop.logged("WARNING")) == 1
    assert len(shop.noted("slow begins")) == 1
    assert not shop.noted("refused")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for little."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m", "procrastinate-test", str(folder)]
    if subprocess.run(mounting, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("this system lets nobody mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """To the last byte."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    assert shutil.disk_usage(folder).free == 0
    return filler


def test_a_full_disk_loses_nothing(small_disk: Path, shop: Shop, tmp_path: Path) -> None:
    """G7 E37: outcomes that found no room are written once there is some, and their tasks don't run again."""
    gate = tmp_path / "gate"
    env = shop.started(persister=f"sqlite:///{small_disk / 'store.db'}")
    slow = [env.delay("email", task=Gated(shop.notes, f"slow{number}", str(gate))) for number in range(5)]
    shop.await_note("begins", times=5)
    pids = env.processes
    filler = fill(small_disk)
    with pytest.raises(PersisterUnavailableError, match="the disk is full"):
        for number in range(10_000):  # the log that SQLite has already made its own takes a few
            slow.append(
                env.delay(
                    "email",
                    task=Noted(
                        shop.notes,
                        f"squeezed{number}",
                    ),
                    run_at=4e9,
                )
            )
    gate.touch()
    shop.await_note("success", times=5)
    shop.await_log("WARNING", "store_unavailable", "the disk is full")
    filler.unlink()
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")
    eventually(lambda: not [task for task in env.tasks() if task.run_at < 4e9])
    assert {task.id for task in env.tasks()} == set(slow[5:])
    shop.await_log("INFO", "store_available")
    assert env.processes == pids
    assert len(shop.logged("WARNING")) == 1
    assert len(shop.noted("begins")) == 6
