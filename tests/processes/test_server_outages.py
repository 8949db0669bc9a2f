"""Servers that die, hang and refuse under a queue's process: nothing is lost, it warns once, and goes on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from procrastinate_py import Environment
from procrastinate_py.core.errors import PersisterUnavailableError
from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.core.lifecycle import Transition
from procrastinate_py.persisters.redis import RedisPersister
from procrastinate_py.runtime import settler

from .backings import Backing, backing, opened, working
from .jobs import Brief, Gated, Noted
from .shops import Shop
from .support import append, eventually, no_process_left
from .test_kills import SEED

KINDS = ["postgres", "redis", "s3"]
TASKS = {"postgres": 100, "redis": 100, "s3": 12}
REQUESTS_OF_A_SETTLE = {"postgres": 1, "redis": 1, "s3": 4}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Backing]:
    with backing(request.param) as store:
        yield store


@pytest.fixture
def shop(store: Backing, tmp_path: Path) -> Iterator[Shop]:
    with working(store, tmp_path) as shop:
        yield shop


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short leases, short pauses. Queue processes are forks, and inherit it."""
    monkeypatch.setattr(Environment, "_lease_for", 2.0)
    monkeypatch.setattr(settler, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(settler, "LONGEST_PAUSE", 0.1)


def warnings_of(shop: Shop) -> list[str]:
    """But for the one that tells that a store sends no wake-ups."""
    return [line for line in shop.logged("WARNING") if "no_wake_ups" not in line]


@pytest.mark.parametrize(("breaks", "mends"), [("kill", "start"), ("refuse", "forward")])
def test_what_was_in_hand_when_the_store_went_is_settled_when_it_is_back(
    shop: Shop, store: Backing, tmp_path: Path, breaks: str, mends: str
) -> None:
    """G7 G1 E37"""
    culprit = store.server if breaks == "kill" else store.proxy
    gate = tmp_path / "gate"
    env = shop.started()
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    pids = env.processes
    getattr(culprit, breaks)()
    gate.touch()
    shop.await_note("slow success")
    shop.await_log("WARNING", "store_unavailable")
    with pytest.raises(PersisterUnavailableError):
        env.delay("email", task=Noted(shop.notes, "refused"))
    getattr(culprit, mends)()
    shop.await_log("INFO", "store_available")
    env.delay("email", task=Noted(shop.notes, "after"))
    shop.await_note("after success")
    eventually(lambda: not env.tasks())
    assert env.processes == pids
    assert len(warnings_of(shop)) == 1
    assert len(shop.noted("slow begins")) == 1


def test_a_store_that_answers_nothing_is_given_up_and_asked_again(tmp_path: Path) -> None:
    """G7 E37: all three at once, since it takes as long as their calls may last."""
    with no_process_left(), ExitStack() as stack:
        shops: list[tuple[Shop, Backing]] = []
        stores = [stack.enter_context(backing(kind)) for kind in KINDS]
        for store in stores:
            folder = tmp_path / store.kind
            folder.mkdir()
            shops.append((stack.enter_context(opened(store, folder)), store))
        gate = tmp_path / "gate"
        envs = [shop.started() for shop, _ in shops]
        pids = [env.processes for env in envs]
        for env, (shop, _) in zip(envs, shops, strict=True):
            env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
            shop.await_note("slow begins")
        for store in stores:
            store.proxy.stall()
        gate.touch()
        for shop, _ in shops:
            shop.await_log("WARNING", "store_unavailable")
        for store in stores:
            store.proxy.forward()
        for env, (shop, _) in zip(envs, shops, strict=True):
            env.delay("email", task=Noted(shop.notes, "after"))
            shop.await_note("after success")
            eventually(lambda env=env: not env.tasks())
            assert len(shop.noted("slow begins")) == 1
            assert len(warnings_of(shop)) <= 2  # a settle that was carried out, but whose reply came too late, is lost
        assert [env.processes for env in envs] == pids


def test_a_settle_cut_short_is_repeated_and_its_task_is_not(shop: Shop, store: Backing, tmp_path: Path) -> None:
    """G7 U38: at any of its requests, before that was carried out or after."""
    here = shop.environment(persister=store.direct)
    env = shop.started({"email": {"update_period": 60}})
    pids = env.processes
    for skip in range(REQUESTS_OF_A_SETTLE[store.kind]):
        for lose in (store.proxy.lose_requests, store.proxy.lose_replies):
            name = f"{lose.__name__}-{skip}"
            gate = tmp_path / name
            here.delay("email", task=Gated(shop.notes, name, str(gate)))
            shop.await_note(f"{name} begins")
            lose(skip=skip)
            gate.touch()
            shop.await_note(f"{name} success")
            if skip == 0:
                store.proxy.await_fault("request" if lose == store.proxy.lose_requests else "reply")
            eventually(lambda: not here.tasks(limit=1))
            store.proxy.forward()
            assert len(shop.noted(f"{name} begins")) == 1
    assert env.processes == pids


class ForgetsWhatFailed(RedisPersister):
    """A broken store: it takes an outcome for written that it couldn't write."""

    notes = ""

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        try:
            return super().settle(settlements)
        except PersisterUnavailableError:
            append(self.notes, "forgotten")
            return []


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_a_store_that_forgets_a_settle_cut_short_runs_its_task_twice(
    hasty: None, shop: Shop, store: Backing, tmp_path: Path
) -> None:
    """G7: what the test above would see of it."""
    gate = tmp_path / "gate"

    def broken() -> ForgetsWhatFailed:
        persister = ForgetsWhatFailed(store.url)
        persister.notes = shop.notes
        return persister

    here = shop.environment(persister=store.direct)
    shop.started(persister=broken)
    here.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    store.proxy.lose_requests(times=1_000)
    gate.touch()
    shop.await_note("forgotten")
    store.proxy.forward()
    shop.await_note("slow begins", times=2)


def test_a_delay_cut_short_is_told_and_never_half_done(shop: Shop, store: Backing) -> None:
    """G7 U38: the caller hears of it; what it stored nevertheless is a task like any other."""
    env = shop.environment()
    env.delay("email", task=Noted(shop.notes, "first"))
    told = 0
    for lose in (store.proxy.lose_requests, store.proxy.lose_replies):
        for skip in range(3):
            lose(skip=skip)
            try:
                env.delay("email", task=Noted(shop.notes, f"{lose.__name__}-{skip}"))
            except PersisterUnavailableError:
                told += 1
            store.proxy.forward()
    env.delay("email", task=Noted(shop.notes, "last"))
    stored = {task.load().name for task in env.tasks()}
    assert {"first", "last"} <= stored
    assert len(stored) >= 8 - told
    env.start()
    shop.await_note("success", times=len(stored))
    eventually(lambda: not env.tasks())
    assert len(shop.noted("begins")) == len(stored)


def test_connections_cut_at_any_moment_lose_nothing(hasty: None, shop: Shop, store: Backing) -> None:
    """G7 G1 U38: whatever runs twice had been in hand when its lease ran out."""
    print(f"PROCRASTINATE_SEED={SEED}")
    here = shop.environment(persister=store.direct)
    store.proxy.lose_some(rate=0.15, seed=random.Random(SEED).randrange(1 << 30))
    env = shop.started({"email": {"max_tasks": 4, "max_attempts": None, "update_period": 0.2}})
    pids = env.processes
    names = [f"task{number}" for number in range(TASKS[store.kind])]
    for number, name in enumerate(names):
        here.delay("email", task=Brief(shop.notes, name))
        if number % 10 == 9:
            eventually(lambda number=number: len(set(shop.noted())) >= number - 8)
    eventually(lambda: store.proxy.counts()["request"] and store.proxy.counts()["reply"])
    store.proxy.forward()
    eventually(lambda: not here.tasks(limit=1))
    runs = Counter(shop.noted())
    assert set(runs) == set(names)
    died = len(shop.logged("WorkerDiedError"))
    assert runs.total() - len(names) <= died
    assert env.processes == pids
