"""Four processes share a queue, and kill -9 takes one after the other: nothing is lost, and only what was in hand runs
twice."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers

from .conftest import Application, Start
from .jobs import Brief
from .shops import Shop
from .support import SAFETY, eventually, lines_of, no_process_left

THOROUGH = os.environ.get("PROCRASTINATE_THOROUGH") == "1"
TASKS = 20_000 if THOROUGH else 2_000
FEW_TASKS = 2_000 if THOROUGH else 100
"""Where a call takes long."""
KILLS = 10
PROCESSES = 4
SEED = int(os.environ.get("PROCRASTINATE_SEED", "0")) or random.randrange(1, 1 << 30)
URLS = {"postgres": servers.postgres_url, "redis": servers.redis_url, "s3": servers.s3_url}


@pytest.fixture(params=["sqlite", *URLS])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = URLS[request.param]() if request.param in URLS else request.param
    with no_process_left():
        shop = Shop(tmp_path, url)
        yield shop
        shop.close()


def kill_one_of(application: Application, chance: random.Random) -> None:
    pids = [pid for pid in json.loads(application.ask("processes_of email")) if pid]
    if pids:
        try:
            os.kill(chance.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return  # it was being replaced


def test_four_processes_on_one_queue_lose_nothing_and_run_only_what_was_in_hand_twice(
    shared: Shop, start: Start
) -> None:
    """G1 G2 E38 U27"""
    print(f"PROCRASTINATE_SEED={SEED}")
    chance = random.Random(SEED)
    tasks = FEW_TASKS if shared.kind.startswith("s3") else TASKS
    options = {"email": {"processes": PROCESSES, "max_tasks": 4, "update_period": 0.2, "max_attempts": None}}
    here = shared.environment(options)
    ids = here.delay_many([("email", Brief(shared.notes, f"task{number}"), {}) for number in range(tasks)])
    application = start(shared, queues=options)
    for count in range(KILLS):
        worked = len(lines_of(Path(shared.notes)))
        goal = min(worked + chance.randrange(tasks // KILLS), tasks * (count + 1) // (KILLS + 1))
        eventually(lambda goal=goal: len(lines_of(Path(shared.notes))) >= goal)
        kill_one_of(application, chance)
    eventually(lambda: not here.tasks(limit=1), patience=SAFETY * (10 if THOROUGH else 2))
    runs = Counter(lines_of(Path(shared.notes)))
    assert set(runs) == {f"task{number}" for number in range(tasks)}
    died = Counter(re.findall(r"task_id=(\S+)", "\n".join(shared.logged("WorkerDiedError"))))
    for task_id, number in zip(ids, range(tasks), strict=True):
        # Every further run is of a task whose run had begun at a death.
        assert runs[f"task{number}"] - 1 <= died[str(task_id)]
    print(f"{tasks} tasks, {runs.total()} runs, {died.total()} in hand at the {KILLS} deaths")
