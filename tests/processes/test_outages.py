"""A store that fails under a queue's process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .jobs import Gated, Noted
from .shops import Shop
from .stores import Table
from .support import eventually

pytestmark = pytest.mark.parametrize("shop", ["flaky"], indirect=True)


def test_a_store_that_is_down_ends_no_process_and_warns_once(shop: Shop, tmp_path: Path) -> None:
    """E37 U25"""
    down = tmp_path / "store.db.down"
    down.touch()
    env = shop.started()
    pids = env.processes
    shop.await_log("WARNING", "store_unavailable")
    env.delay("email", task=Noted(shop.notes, "one"))
    down.unlink()
    shop.await_note("one success")
    shop.await_log("INFO", "store_available")
    assert env.processes == pids
    assert len(shop.logged("WARNING")) == 1


def test_an_outcome_that_could_not_be_written_is_kept_and_its_task_not_run_again(shop: Shop, tmp_path: Path) -> None:
    """E37"""
    down, gate = tmp_path / "store.db.down", tmp_path / "gate"
    env = shop.started()
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    down.touch()
    gate.touch()
    shop.await_note("slow success")
    shop.await_log("WARNING", "store_unavailable")
    down.unlink()
    eventually(lambda: not env.tasks())
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")
    assert len(shop.noted("slow begins")) == 1


def test_a_factory_that_fails_is_asked_again(shop: Shop, tmp_path: Path) -> None:
    """E37"""
    broken = tmp_path / "broken"
    path = str(tmp_path / "store.db")

    def factory() -> Any:
        if broken.exists():
            raise ConnectionRefusedError("no server there")
        return Table(path)

    env = shop.environment(persister=factory)
    env.delay("email", task=Noted(shop.notes, "one"))
    broken.touch()
    env.start()
    pids = env.processes
    shop.await_log("WARNING", "store_unavailable", "no server there")
    broken.unlink()
    shop.await_note("one success")
    assert env.processes == pids


def test_a_process_that_waits_for_its_store_can_be_stopped(shop: Shop, tmp_path: Path) -> None:
    """E37 E39"""
    (tmp_path / "store.db.down").touch()
    env = shop.started()
    shop.await_log("WARNING", "store_unavailable")
    env.stop()
    assert shop.logged("process_stopped")
