"""A queue that several processes work: ``define_queue(processes=N)``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.floor_dict import DictPersister
from procrastinate_py import Environment, UnknownQueueError, UnsupportedByPersisterError
from procrastinate_py.runtime import child
from procrastinate_py.runtime.in_hand import BODY, InHandFile, acquire_shared, key_of, shared_path

from .jobs import Gated, Noted
from .shops import Shop
from .support import eventually, is_running, no_process_left, title_of

FOUR: dict[str, dict[str, Any]] = {"email": {"processes": 4, "max_tasks": 2, "max_attempts": 3}}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with no_process_left():
        shop = Shop(tmp_path, "sqlite")
        yield shop
        shop.close()


def each_with_one_in_hand(shop: Shop, gate: Path, **settings: Any) -> tuple[Any, dict[str, int]]:
    """Four processes with two gated tasks each: the environment, and the pid by the task's name."""
    env = shop.environment(FOUR, **settings)
    for number in range(8):
        env.delay("email", task=Gated(shop.notes, f"task{number}", str(gate)))
    env.start()
    shop.await_note("begins", times=8)
    return env, {line.split()[0]: int(line.split()[-1]) for line in shop.noted("begins")}


def test_each_has_a_title_and_the_first_one_is_the_queues(shop: Shop) -> None:
    """E35"""
    env = shop.started({**FOUR, "cleanup": {}}, process_prefix="shop")
    pids = env.processes_of("email")
    assert [title_of(pid) for pid in pids] == [
        "shop-email-queue-worker",
        "shop-email-queue-worker-2",
        "shop-email-queue-worker-3",
        "shop-email-queue-worker-4",
    ]
    assert env.processes == {"email": pids[0], "cleanup": env.processes_of("cleanup")[0]}
    assert len(set(pids)) == 4
    env.stop()
    assert not any(map(is_running, pids))
    assert env.processes_of("email") == []


def test_they_share_the_work_and_one_log(shop: Shop, tmp_path: Path) -> None:
    """G2 E40"""
    gate = tmp_path / "gate"
    env, holder = each_with_one_in_hand(shop, gate)
    assert sorted(holder.values()) == sorted(env.processes_of("email") * 2)  # two tasks at a time, as max_tasks says
    gate.touch()
    for number in range(8, 200):
        env.delay("email", task=Noted(shop.notes, f"task{number}"))
    shop.await_note("success", times=200)
    eventually(lambda: not env.tasks())
    assert len(shop.noted("begins")) == 200
    for pid in env.processes_of("email"):
        shop.await_log("process_started", f"pid={pid}")


def test_what_a_killed_one_had_in_hand_is_back_at_once_and_counted_once(shop: Shop, tmp_path: Path) -> None:
    """G1 U27: told by the cause, which only the process that takes its place knows; a lapsed lease tells another."""
    gate = tmp_path / "gate"
    env, holder = each_with_one_in_hand(shop, gate)
    victim = env.processes_of("email")[2]
    hit = sorted(name for name, pid in holder.items() if pid == victim)
    os.kill(victim, signal.SIGKILL)
    shop.await_note("fail", times=2)
    assert sorted(shop.noted(" fail ")) == [
        f"{name} fail WorkerDiedError: worker died while the task was running (killed by SIGKILL)" for name in hit
    ]
    gate.touch()
    shop.await_note("success", times=8)
    eventually(lambda: not env.tasks())
    assert len(shop.noted(" fail ")) == 2
    assert len(shop.noted("begins")) == 10
    assert len(set(eventually(lambda: (pids := env.processes_of("email"))[3:] and pids)) - {victim}) == 4


def test_the_test_above_catches_processes_that_do_not_recover_each_others_hands(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1: with a hand of its own for every process that ever was, a dead one's would be nobody's."""

    def always_another(run_dir: str, queue: str) -> InHandFile:
        taken = InHandFile.try_acquire(shared_path(run_dir, queue, os.getpid()))
        assert taken is not None
        return taken

    monkeypatch.setattr(child, "acquire_shared", always_another)
    gate = tmp_path / "gate"
    env, _ = each_with_one_in_hand(shop, gate)
    victim = env.processes_of("email")[2]
    os.kill(victim, signal.SIGKILL)
    fresh = eventually(lambda: (pids := env.processes_of("email"))[3:] and victim not in pids and pids[2])
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note(f"after begins {fresh}")
    assert shop.noted(" fail ") == []  # they wait for their leases to lapse
    gate.touch()


def test_all_killed_at_once_are_replaced_and_lose_nothing(shop: Shop, tmp_path: Path) -> None:
    """G1"""
    gate = tmp_path / "gate"
    env, _ = each_with_one_in_hand(shop, gate)
    for pid in env.processes_of("email"):
        os.kill(pid, signal.SIGKILL)
    shop.await_note("fail", times=8)
    gate.touch()
    shop.await_note("success", times=8)
    eventually(lambda: not env.tasks())
    assert len(shop.noted(" fail WorkerDiedError", "killed by SIGKILL")) == len(shop.noted(" fail ")) == 8


def test_a_new_supervisor_starts_them_all_again(shop: Shop) -> None:
    """U23"""
    env = shop.started(FOUR)
    old = env.processes_of("email")
    os.kill(env._supervision.supervisor_pid, signal.SIGKILL)
    new = eventually(lambda: (pids := env.processes_of("email"))[3:] and not set(pids) & set(old) and pids)
    env.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note("one success")
    assert [title_of(pid) for pid in new][3] == "email-queue-worker-4"


def test_they_can_be_spawned(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """E42"""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
    env = shop.started({"email": {"processes": 2}}, start_method="spawn")
    assert [title_of(pid) for pid in env.processes_of("email")] == ["email-queue-worker", "email-queue-worker-2"]
    env.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note("one success")


def test_a_dead_ones_hand_is_taken_before_a_free_and_empty_one(tmp_path: Path) -> None:
    """U27"""
    acquire_shared(str(tmp_path), "email").close(clean=True)
    dead = InHandFile.try_acquire(shared_path(str(tmp_path), "email", 1))
    assert dead is not None
    dead.take("dead:1:1:x")
    dead.begin(key_of(7), 0.0, BODY)
    dead.close(clean=False)
    found = acquire_shared(str(tmp_path), "email")
    assert found.path == shared_path(str(tmp_path), "email", 1)
    assert found.left is not None and found.left.owners == ("dead:1:1:x",)
    found.recovered()
    found.close(clean=True)
    again = acquire_shared(str(tmp_path), "email")
    assert again.path == shared_path(str(tmp_path), "email", 0)
    again.close(clean=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["email@0.in-hand", "email@1.in-hand"]


@pytest.mark.parametrize("test_mode", [False, True])
def test_a_persister_without_leases_is_refused_where_the_queue_is_declared(test_mode: bool) -> None:
    """E4"""
    env = Environment(DictPersister(), log_dir=None, test_mode=test_mode)
    env.define_queue("email", processes=1)
    told = (
        r"queue 'email': processes=4 needs a persister with the ability 'leasing': SQLite \(sqlite:///tasks.db\).* S3"
    )
    with pytest.raises(UnsupportedByPersisterError, match=told):
        env.define_queue("email", processes=4)
    assert env.queues["email"].processes == 1


def test_a_factory_of_one_without_leases_is_refused_at_start(tmp_path: Path) -> None:
    """E4"""
    with no_process_left():
        shop = Shop(tmp_path, "floor")
        env = shop.environment({"cleanup": {}, "email": {"processes": 2}})
        with pytest.raises(UnsupportedByPersisterError, match="queue 'email': processes=2 needs .*'leasing'"):
            env.start()
        assert env.processes == {}
        env.start("cleanup")
        shop.close()


def test_it_can_be_defined_anew_until_the_start(shop: Shop) -> None:
    """E9"""
    env = shop.environment({"email": {"processes": 3}})
    env.define_queue("email", processes=2)
    env.start()
    assert len(env.processes_of("email")) == 2


def test_processes_of_a_queue_that_is_not_there_are_not_asked_for_in_silence(shop: Shop) -> None:
    env = shop.environment()
    assert env.processes_of("email") == []
    with pytest.raises(UnknownQueueError, match="there is no queue 'emial'"):
        env.processes_of("emial")
