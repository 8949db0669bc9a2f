"""kill -9 of anything, at any moment: nothing is lost, and only what was in hand runs twice."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

from .conftest import Application, Start
from .jobs import Brief
from .shops import Shop
from .support import SAFETY, eventually, lines_of

THOROUGH = os.environ.get("PROCRASTINATE_THOROUGH") == "1"
TASKS = 20_000 if THOROUGH else 2_000
KILLS = 10
SEED = int(os.environ.get("PROCRASTINATE_SEED", "0")) or random.randrange(1, 1 << 30)


def kill_something(application: Application, what: str) -> None:
    """Of an application that lives: it goes on by itself but for its own death."""
    if what == "application":
        application.kill()
        eventually(lambda: not application.others())
        return
    pid = application.supervisor if what == "supervisor" else json.loads(application.ask("processes")).get("email", 0)
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it was being replaced


def test_nothing_is_lost_and_only_what_was_in_hand_runs_twice(shop: Shop, start: Start) -> None:
    """G1 E38 U27"""
    print(f"PROCRASTINATE_SEED={SEED}")
    chance = random.Random(SEED)
    options = {"email": {"max_tasks": 4, "update_period": 0.2, "max_attempts": None}}
    here = shop.environment(options)
    ids = here.delay_many([("email", Brief(shop.notes, f"task{number}"), {}) for number in range(TASKS)])
    victims = ["process"] * 6 + ["supervisor"] * 2 + ["application"] * 2
    chance.shuffle(victims)
    application = start(shop, queues=options, grace=0.0)
    for count, what in enumerate(victims):
        worked = len(lines_of(Path(shop.notes)))
        goal = min(worked + chance.randrange(TASKS // KILLS), TASKS * (count + 1) // (KILLS + 1))
        eventually(lambda goal=goal: len(lines_of(Path(shop.notes))) >= goal)
        kill_something(application, what)
        if what == "application":
            application = start(shop, queues=options, grace=0.0)
    eventually(lambda: not here.tasks(), patience=SAFETY * (10 if THOROUGH else 2))
    runs = Counter(lines_of(Path(shop.notes)))
    assert set(runs) == {f"task{number}" for number in range(TASKS)}
    died = Counter(int(line.split("task_id=")[1].split()[0]) for line in shop.logged("WorkerDiedError"))
    for task_id, number in zip(ids, range(TASKS), strict=True):
        # Every further run is of a task whose run had begun at a death, or whose application had gone.
        assert runs[f"task{number}"] - 1 <= died[task_id] + victims.count("application")
