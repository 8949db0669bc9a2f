"""What queue processes do when the application has gone, however it went."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from procrastinate_py.runtime import orders

from .conftest import Start
from .jobs import Gated, Noted
from .shops import Shop
from .stores import Hanging
from .support import eventually, is_running, state_of_process, title_of

pytestmark = pytest.mark.parametrize("shop", ["floor"], indirect=True)


def test_processes_end_when_the_application_is_killed(shop: Shop, start: Start) -> None:
    """E36"""
    application = start(shop, queues={"email": {}, "cleanup": {}})
    application.kill()
    eventually(lambda: not application.others())
    for queue in ("email", "cleanup"):
        assert len(shop.logged("ERROR", "application_gone", queue=queue)) == 1
        assert len(shop.logged("INFO", "process_stopped", queue=queue)) == 1
        assert shop.logged("supervisor_gone", queue=queue) == []


def test_processes_end_when_the_application_just_ends(shop: Shop, start: Start) -> None:
    """E36"""
    application = start(shop)
    assert application.process.stdin is not None
    application.process.stdin.close()  # it reads its commands to the end, and doesn't stop anything
    assert application.process.wait(60) == 0
    eventually(lambda: not application.others())


def test_a_zombie_application_counts_as_gone(shop: Shop, start: Start) -> None:
    """E36"""
    application = start(shop)
    os.kill(application.pid, signal.SIGKILL)  # and nobody waits for it
    eventually(lambda: not application.others())
    assert state_of_process(application.pid) == "Z"


def test_an_application_that_becomes_another_program_counts_as_gone(shop: Shop, start: Start) -> None:
    """E36"""
    application = start(shop)
    assert application.process.stdin is not None
    application.process.stdin.write(b"exec\n")
    application.process.stdin.flush()
    eventually(lambda: not application.others())
    assert is_running(application.pid)


def test_an_application_gone_before_anybody_looked_is_noticed(shop: Shop, start: Start) -> None:
    """E36"""
    application = start(shop)
    others = application.others()
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    application.kill()
    for pid in others:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not application.others())
    assert shop.logged("ERROR", "application_gone")


def test_application_and_supervisor_killed_together_leave_nothing(shop: Shop, start: Start) -> None:
    """E36"""
    application = start(shop)
    supervisor = application.supervisor
    os.kill(application.pid, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    application.kill()
    eventually(lambda: not application.others())
    assert len(shop.logged("ERROR", "_gone")) == 1


def test_a_store_that_hangs_makes_no_process_deaf(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E36 E37"""
    monkeypatch.setattr(orders, "MARGIN", 0.0)
    path = str(tmp_path / "store.db")
    env = shop.started(persister=lambda: Hanging(path), grace=0.05)
    pid = env.processes["email"]
    eventually(Path(f"{path}.hangs").exists)
    os.kill(env._supervision.supervisor_pid, signal.SIGKILL)
    shop.await_log("ERROR", "supervisor_gone", f"pid={pid}")
    eventually(lambda: not is_running(pid))
    assert shop.logged("ERROR", "process_failed", f"pid={pid}")


def test_a_fork_of_the_application_that_outlives_it_keeps_nothing_alive(shop: Shop, start: Start) -> None:
    """E36"""
    application = start(shop)
    left = int(application.ask("fork"))
    application.kill()
    eventually(lambda: application.others() == [left])
    assert title_of(left)


def test_what_runs_may_end_and_nothing_more_is_claimed(shop: Shop, start: Start, tmp_path: Path) -> None:
    """E36"""
    application = start(shop)
    here = shop.environment()
    gate = tmp_path / "gate"
    here.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    application.kill()
    shop.await_log("ERROR", "application_gone")
    later = here.delay("email", task=Noted(shop.notes, "later"))
    gate.touch()
    shop.await_note("slow success")
    eventually(lambda: not application.others())
    assert shop.noted("later") == []
    assert [record.id for record in here.tasks()] == [later]
    assert here.find(later).attempts == 0


def test_past_the_grace_what_runs_is_handed_back_uncounted(shop: Shop, start: Start, tmp_path: Path) -> None:
    """E36 U22"""
    application = start(shop, grace=0.05)
    here = shop.environment()
    task_id = here.delay("email", task=Gated(shop.notes, "slow", str(tmp_path / "gate")))
    shop.await_note("slow begins")
    application.kill()
    eventually(lambda: not application.others())
    assert shop.noted("slow ends") == []
    assert here.find(task_id).attempts == 0
    assert here.find(task_id).run_at is not None
