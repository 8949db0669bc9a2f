"""P10 and P12: what a task costs in one process, without a store on disk and without forks. Microseconds a task."""

from __future__ import annotations

import itertools
import tempfile
import time
from typing import Any

from procrastinate_py.core.codec import Codec
from procrastinate_py.core.lifecycle import Complete
from procrastinate_py.core.queue import queue_spec
from procrastinate_py.core.registry import Registry
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters.memory import MemoryPersister
from procrastinate_py.ports.clock import SystemClock
from procrastinate_py.runtime.inbox import Inbox
from procrastinate_py.runtime.logs import LogSettings, QueueLog
from procrastinate_py.runtime.sole_consumer import SoleConsumer
from procrastinate_py.runtime.stop import StopToken
from procrastinate_py.runtime.worker import QueueWorker

QUEUE = "bench"
BATCH = 200


class Countdown:
    """The last one to run ends the measurement."""

    left = itertools.count()
    last = 0
    stop: StopToken

    def __init__(self, number: int) -> None:
        self.number = number

    def run(self) -> None:
        if next(Countdown.left) == Countdown.last:
            Countdown.stop.drain("all ran", 30.0)


class RowsInMemory:
    """A floor persister without any cost of its own."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.reads = 0
        self._ids = itertools.count(1)

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        self.reads += 1
        return list(self.rows.values())

    def create_task(self, data: dict[str, Any]) -> int:
        task_id = next(self._ids)
        self.rows[task_id] = {**data, "id": task_id, "attempts": 0, "last_fail_at": None, "last_error": None}
        return task_id

    def update_task(self, attributes: dict[str, Any]) -> None:
        self.rows[attributes["id"]] = dict(attributes)

    def delete_task(self, task_id: int) -> None:
        self.rows.pop(task_id, None)


def codec_of_ours() -> Codec:
    registry = Registry(trust=[__name__])
    registry.see(Countdown)
    return Codec(registry)


def new_tasks(count: int) -> list[NewTask]:
    codec, now = codec_of_ours(), int(SystemClock().now())
    return [
        NewTask(queue=QUEUE, run_at=now, initial_run_at=now, expire_at=None, task=codec.dump(Countdown(number)))
        for number in range(count)
    ]


def filled_memory(count: int) -> MemoryPersister:
    store = MemoryPersister()
    store.create_many(new_tasks(count))
    return store


def worked_off(store: Any, count: int) -> float:
    """Seconds that a worker takes for all that is in the store."""
    clock, inbox = SystemClock(), Inbox()
    stop = StopToken(clock.monotonic, inbox.poke)
    Countdown.left, Countdown.last, Countdown.stop = itertools.count(), count - 1, stop
    with tempfile.TemporaryDirectory() as folder:
        log = QueueLog(LogSettings.checked(log_dir=folder), QUEUE)
        worker = QueueWorker(
            spec=queue_spec(QUEUE, {"max_tasks": 10}),
            store=store,
            codec=codec_of_ours(),
            now=clock.now,
            monotonic=clock.monotonic,
            log=log,
            owner="bench",
        )
        began = time.perf_counter()
        worker.work(inbox, stop)
        took = time.perf_counter() - began
        log.close()
    inbox.close()
    assert worker.holds_nothing
    return took


def worker_microseconds(count: int) -> float:
    return worked_off(filled_memory(count), count) / count * 1e6


def floor_microseconds(count: int) -> float:
    rows = RowsInMemory()
    for new in new_tasks(count):
        rows.create_task(new.as_mapping())
    store = SoleConsumer(rows, now=SystemClock().now, fresh_for=10.0, warn=print)
    took = worked_off(store, count)
    assert not rows.rows
    if rows.reads > 10:
        print(f"the floor persister was read {rows.reads} times")
    return took / count * 1e6


def claimed_and_settled(store: Any) -> int:
    """The store's calls and nothing else."""
    settled = 0
    while claims := store.claim(QUEUE, "bench", BATCH, 30.0):
        store.settle([(claim.token, Complete()) for claim in claims])
        settled += len(claims)
    return settled


def bare_microseconds(count: int) -> float:
    store = filled_memory(count)
    began = time.perf_counter()
    assert claimed_and_settled(store) == count
    return (time.perf_counter() - began) / count * 1e6
