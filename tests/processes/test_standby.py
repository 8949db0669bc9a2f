"""Several applications on one machine and one floor persister."""

from __future__ import annotations

import shutil

import pytest

from .conftest import Start
from .jobs import Noted, Reads
from .shops import Shop
from .support import eventually

pytestmark = pytest.mark.parametrize("shop", ["floor"], indirect=True)


def test_of_two_applications_each_task_is_run_once(shop: Shop, start: Start) -> None:
    """E40"""
    pids = {start(shop).pids["email"], start(shop).pids["email"]}
    here = shop.environment()
    shop.await_log("INFO", "standing_by")
    for number in range(200):
        here.delay("email", task=Noted(shop.notes, f"task{number}"))
    shop.await_note("success", times=200)
    eventually(lambda: not here.tasks())
    assert len(shop.noted("begins")) == 200
    workers = {int(line.split()[-1]) for line in shop.noted("begins")}
    assert len(workers) == 1 and workers < pids


def test_standing_by_is_logged_once(shop: Shop, start: Start) -> None:
    """E40"""
    start(shop)
    shop.await_log("process_started")
    second = start(shop)
    shop.await_log("standing_by")
    assert second.ask("stop 1") == "stopped"
    assert len(shop.logged("standing_by")) == 1


def test_who_stood_by_takes_over_when_the_holder_is_killed(shop: Shop, start: Start) -> None:
    """E40"""
    first = start(shop)
    here = shop.environment()
    here.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note(f"one begins {first.pids['email']}")
    second = start(shop)
    shop.await_log("standing_by")
    first.kill()
    eventually(lambda: not first.others())  # until then its process may still take a task
    here.delay("email", task=Noted(shop.notes, "two"))
    shop.await_note(f"two begins {second.pids['email']}")


def test_who_lost_its_lock_works_no_further(shop: Shop, start: Start) -> None:
    """E40: whoever empties the folder of the logs removes the lock too, and the next who comes makes another."""
    first = start(shop)
    here = shop.environment()
    here.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note("one success")
    shutil.rmtree(shop.folder / "log")
    second = start(shop)
    shop.await_log("process_started", str(second.pids["email"]))
    for number in range(100):
        here.delay("email", task=Noted(shop.notes, f"task{number}."))
    shop.await_note("success", times=101)
    eventually(lambda: not here.tasks())
    assert len(shop.noted("begins")) == 101
    shop.await_log("lock_lost", str(first.pids["email"]))
    shop.await_log("standing_by")


def test_a_lock_that_a_task_drops_is_taken_back(shop: Shop, start: Start) -> None:
    """E40: closing a file drops this process's lock on it, so that a task which copies the folder of the logs does."""
    first = start(shop)
    here = shop.environment()
    shop.await_log("process_started", str(first.pids["email"]))
    gate = shop.folder / "gate"
    here.delay("email", task=Reads(shop.notes, str(shop.folder / "log" / "email.in-hand"), str(gate)))
    shop.await_note("read")
    second = start(shop)
    shop.await_log("standing_by", str(second.pids["email"]))
    here.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note(f"one begins {first.pids['email']}")
    gate.touch()
    eventually(lambda: not here.tasks())
    assert len(shop.noted("read")) == 1
    assert shop.logged("lock_lost") == []


def test_on_a_store_with_leases_nobody_stands_by(shop: Shop, start: Start) -> None:
    """E40"""
    shop.kind = "sqlite"
    first, second = start(shop), start(shop)
    shop.await_log("process_started")
    here = shop.environment()
    for number in range(100):
        here.delay("email", task=Noted(shop.notes, f"task{number}"))
    shop.await_note("success", times=100)
    assert first.ask("stop 1") == second.ask("stop 1") == "stopped"
    assert len(shop.noted("begins")) == 100
    assert shop.logged("standing_by") == []
