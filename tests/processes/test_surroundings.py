"""What a queue's process finds around it."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from .jobs import Noted, SignalsOnce
from .shops import Shop
from .stores import Table
from .support import eventually


class Looks(Noted):
    """Notes what a task of its process would see."""

    def body(self) -> None:
        self.note(f"stdin {os.fstat(0).st_rdev == os.stat(os.devnull).st_rdev}")
        sys.stdout.write("printed by a task\n")


def test_a_task_reads_nothing_from_the_terminal_and_may_print(shop: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    """E39"""
    env = shop.started()
    env.delay("email", task=Looks(shop.notes, "looks"))
    shop.await_note("looks success")
    env.stop()
    assert shop.noted("looks stdin True")
    out, err = capfd.readouterr()
    assert (out, err) == ("printed by a task\n", "")


def test_with_logging_off_all_else_works(shop: Shop, tmp_path: Path) -> None:
    """U26"""
    env = shop.started({"email": {"max_attempts": 2}}, log_dir=None, run_dir=str(tmp_path / "run"))
    env.delay("email", task=SignalsOnce(shop.notes, "once", str(tmp_path / "done")))
    shop.await_note("once success")
    assert len(shop.noted("once fail WorkerDiedError")) == 1
    assert not list(tmp_path.rglob("*.log"))
    assert list((tmp_path / "run").glob("email*.in-hand"))


@pytest.mark.parametrize("shop", ["floor"], indirect=True)
def test_locks_and_in_hand_files_live_beside_the_logs(shop: Shop, tmp_path: Path) -> None:
    """U26"""
    shop.started()
    eventually(lambda: (tmp_path / "log" / "email.in-hand").exists())


class Connected(Table):
    """An instance whose connection was opened by the application."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.db()
        self.inherited: sqlite3.Connection | None = None

    def after_fork(self) -> None:
        self.inherited = self.connection  # kept, so that it isn't closed here
        self.connection = None
        Path(f"{self.path}.after-fork").write_text(str(os.getpid()))


@pytest.mark.parametrize("shop", ["floor"], indirect=True)
def test_an_instance_is_told_of_the_fork_before_it_is_used(shop: Shop, tmp_path: Path) -> None:
    """U31"""
    persister = Connected(str(tmp_path / "store.db"))
    env = shop.started(persister=persister)
    env.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note("one success")
    assert (tmp_path / "store.db.after-fork").read_text() == str(env.processes["email"])
    env.stop()
    persister.close()


def test_the_applications_connection_is_usable_after_its_processes_came_and_went(shop: Shop) -> None:
    """U31"""
    env = shop.environment()
    env.delay("email", task=Noted(shop.notes, "before"))  # opens the application's connection before the fork
    env.start()
    shop.await_note("before success")
    os.kill(env.processes["email"], 9)
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")
    eventually(lambda: not env.tasks())
