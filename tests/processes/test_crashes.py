"""What becomes of tasks whose process dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py.runtime import supervisor

from .jobs import Exits, Faults, Gated, HoldsInterpreter, Noted, Signals, SignalsOnce, WillNotEnd
from .shops import Shop
from .support import eventually, is_running


def email(**options: Any) -> dict[str, dict[str, Any]]:
    return {"email": options}


def new_process(env: Any, old: int) -> int:
    return eventually(lambda: (pid := env.processes.get("email", old)) != old and pid)


@pytest.mark.parametrize(
    ("killer", "how"),
    [(Exits, "exit code 3"), (Signals, "killed by SIGKILL"), (Faults, "killed by SIGSEGV")],
    ids=["exit", "kill", "segfault"],
)
def test_a_task_that_kills_its_process_ends_after_max_attempts(shop: Shop, killer: Any, how: str) -> None:
    """E38 U27"""
    env = shop.started(email(max_attempts=2))
    task_id = env.delay("email", task=killer(shop.notes, "killer"))
    final = shop.await_note("killer final_fail")
    assert final == [f"killer final_fail WorkerDiedError: worker died while the task was running ({how})"]
    assert len(shop.noted("killer begins")) == 2
    assert len(shop.noted("killer fail WorkerDiedError", how)) == 1
    record = eventually(lambda: (found := env.find(task_id)).run_at is None and found)
    assert record.attempts == 2
    assert record.last_error.startswith("Task failed too many times: worker died")
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")


def test_a_killer_uses_up_no_neighbours_attempts(shop: Shop, tmp_path: Path) -> None:
    """E38"""
    env = shop.environment(email(max_attempts=3, max_tasks=4))
    gate = tmp_path / "gate"
    for name in "abc":
        env.delay("email", task=Gated(shop.notes, name, str(gate)))
    env.delay("email", task=Signals(shop.notes, "killer", beside=[shop.notes]))
    env.start()
    shop.await_note("killer fail")
    gate.touch()
    shop.await_note("killer final_fail")
    assert len(shop.noted("killer begins")) == 3
    for name in "abc":
        shop.await_note(f"{name} success")
        assert len(shop.noted(f"{name} fail")) <= 1
        assert shop.noted(f"{name} final_fail") == []


def test_what_had_not_begun_goes_back_uncounted(shop: Shop) -> None:
    """E38"""
    env = shop.environment(email(max_attempts=2, max_tasks=1))
    env.delay("email", task=Signals(shop.notes, "killer"))
    for number in range(20):
        env.delay("email", task=Noted(shop.notes, f"waiting{number}"))
    env.start()
    for number in range(20):
        shop.await_note(f"waiting{number} success")
    assert shop.noted("waiting", "fail") == []
    shop.await_note("killer final_fail")
    assert shop.logged("success", "attempt=2") == []


def test_a_task_in_hand_at_a_kill_is_run_again(shop: Shop, tmp_path: Path) -> None:
    """E38 G1"""
    env = shop.started(email(max_attempts=3))
    pid = env.processes["email"]
    gate = tmp_path / "gate"
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note(f"slow begins {pid}")
    os.kill(pid, signal.SIGKILL)
    gate.touch()
    shop.await_note("slow success")
    assert shop.noted("slow fail") == [
        "slow fail WorkerDiedError: worker died while the task was running (killed by SIGKILL)"
    ]
    assert shop.noted(f"slow begins {new_process(env, pid)}")


def test_a_process_without_work_that_dies_costs_nobody_an_attempt(shop: Shop) -> None:
    """E38"""
    env = shop.started(email(max_attempts=1))
    pid = env.processes["email"]
    os.kill(pid, signal.SIGKILL)
    new_process(env, pid)
    env.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note("one success")


def test_a_task_that_killed_once_is_done_the_second_time(shop: Shop, tmp_path: Path) -> None:
    """E38"""
    env = shop.started(email(max_attempts=2))
    env.delay("email", task=SignalsOnce(shop.notes, "once", str(tmp_path / "done")))
    shop.await_note("once success")
    assert len(shop.noted("once fail WorkerDiedError")) == 1


def test_a_body_that_holds_the_interpreter_is_a_timeout_counted_once(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U24 E32"""
    monkeypatch.setattr(supervisor, "SILENCE", 0.5)
    env = shop.started(email(timeout=0.3, max_attempts=2))
    pid = env.processes["email"]
    env.delay("email", task=HoldsInterpreter(shop.notes, "hog", str(tmp_path / "done")))
    shop.await_note("hog success")
    assert len(shop.noted("hog fail TaskTimeoutError")) == 1
    assert not is_running(pid)


def test_a_body_that_will_not_end_has_its_process_replaced(shop: Shop, tmp_path: Path) -> None:
    """E32 U33"""
    env = shop.started(email(timeout=0.2, timeout_grace=0.2, max_attempts=2))
    pid = env.processes["email"]
    task_id = env.delay("email", task=WillNotEnd(shop.notes, "stuck", str(tmp_path / "done")))
    shop.await_note("stuck fail TaskTimeoutError")
    new_process(env, pid)
    eventually(lambda: not is_running(pid))
    assert env.find(task_id).attempts == 1
    assert env.find(task_id).run_at > 0
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")


def test_a_supervisor_that_dies_makes_nothing_run_twice_beside_itself(shop: Shop, tmp_path: Path) -> None:
    """U23"""
    env = shop.started(email(max_attempts=2))
    old = env.processes["email"]
    gate = tmp_path / "gate"
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    os.kill(env._supervision.supervisor_pid, signal.SIGKILL)
    shop.await_log("ERROR", "supervisor_gone")
    new_process(env, old)
    env.delay("email", task=Noted(shop.notes, "other"))
    if shop.kind == "sqlite":
        shop.await_note("other success")
    gate.touch()
    shop.await_note("other success")
    shop.await_note("slow success")
    eventually(lambda: not is_running(old))
    assert len(shop.noted("slow begins")) == 1
    assert len(shop.noted("other begins")) == 1
