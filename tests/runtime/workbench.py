"""A worker over the reference store or a floor persister, and tasks that do as they're told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from procrastinate_py.core.codec import Codec
from procrastinate_py.core.queue import queue_spec
from procrastinate_py.core.registry import Registry
from procrastinate_py.core.task import NewTask, TaskRecord
from procrastinate_py.persisters.memory import MemoryPersister
from procrastinate_py.ports.clock import SystemClock
from procrastinate_py.runtime.events import Unheard
from procrastinate_py.runtime.inbox import Inbox
from procrastinate_py.runtime.logs import LogSettings, QueueLog
from procrastinate_py.runtime.sole_consumer import SoleConsumer
from procrastinate_py.runtime.stop import Exit, StopToken
from procrastinate_py.runtime.worker import QueueWorker
from procrastinate_py.testing.clock import FakeClock

START = 1_800_000_000
PATIENCE = 60.0
"""Seconds after which a test that waits on a fact gives up; no test is meant to take that long."""


class HeardLog(QueueLog):
    """Writes nothing, remembers everything."""

    def __init__(self) -> None:
        settings = LogSettings.checked(log_dir=None, log_level="DEBUG", log_format="line", log_rotate=None, log_keep=5)
        super().__init__(settings, "q")
        self.heard: list[tuple[str, str, dict[str, object]]] = []

    def debug(self, event: str, **fields: object) -> None:
        self.heard.append(("debug", event, fields))

    def info(self, event: str, **fields: object) -> None:
        self.heard.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.heard.append(("warning", event, fields))

    def error(self, event: str, **fields: object) -> None:
        self.heard.append(("error", event, fields))

    def enabled(self, level: int) -> bool:
        return True

    def events(self, level: str | None = None) -> list[str]:
        return [event for at, event, _ in self.heard if level in (None, at)]


class DictPersister:
    """A floor persister that counts its calls and fails when told to."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self.calls: list[tuple[str, Any]] = []
        self.fail: Callable[[str, Any], None] = lambda call, argument: None

    def _called(self, call: str, argument: Any) -> None:
        self.calls.append((call, argument))
        self.fail(call, argument)

    def read_tasks(self, queue: str) -> list[Mapping[str, Any]]:
        self._called("read", queue)
        return [dict(row) for row in self.rows.values() if row.get("queue") == queue]

    def create_task(self, data: dict[str, Any]) -> int:
        self._called("create", data)
        task_id = len(self.rows) + 1
        self.rows[task_id] = {"id": task_id, "attempts": 0, **data}
        return task_id

    def update_task(self, attributes: dict[str, Any]) -> None:
        self._called("update", attributes)
        self.rows[attributes["id"]] = dict(attributes)

    def delete_task(self, task_id: Any) -> None:
        self._called("delete", task_id)
        del self.rows[task_id]

    def said(self, call: str) -> list[Any]:
        return [argument for name, argument in self.calls if name == call]


class Bench:
    """``store`` is what tasks are put into; the worker works it through the leasing shape."""

    def __init__(self, *, floor: bool = False, clock: FakeClock | None = None, **options: Any) -> None:
        self.clock = clock or FakeClock(START)
        self.spec = queue_spec("q", options)
        self.codec = Codec(Registry(trust=[__name__.split(".")[0], "tests"]))
        self.log = HeardLog()
        self.monotonic = SystemClock().monotonic
        self.store: Any = DictPersister() if floor else MemoryPersister(self.clock)
        self.leasing: Any = self.store
        if floor:
            self.leasing = SoleConsumer(
                self.store, now=self.clock.now, fresh_for=self.spec.update_period, warn=self._warn
            )
        self.worker = self.make_worker()

    def _warn(self, problem: str) -> None:
        self.log.warning("row_skipped", reason=problem)

    def make_worker(self, **more: Any) -> QueueWorker:
        arguments: dict[str, Any] = {
            "spec": self.spec,
            "store": self.leasing,
            "codec": self.codec,
            "now": self.clock.now,
            "monotonic": self.monotonic,
            "log": self.log,
            "owner": "me",
        }
        return QueueWorker(**(arguments | more))

    def delay(
        self, task: Any, *, run_at: int | None = None, expire_at: int | None = None, text: str | None = None
    ) -> Any:
        self.codec.registry.see(type(task))
        at = int(self.clock.now()) if run_at is None else run_at
        stored = self.codec.checked_dump(task) if text is None else text
        new = NewTask(queue="q", run_at=at, initial_run_at=at, expire_at=expire_at, task=stored)
        return self.store.create_task(new.as_mapping())

    def find(self, task_id: Any) -> TaskRecord:
        record = self.store.find(task_id)
        assert isinstance(record, TaskRecord)
        return record


class Running:
    """A worker at work in a thread of its own, as it is in a process."""

    def __init__(self, bench: Bench, **more: Any) -> None:
        self.settled = threading.Semaphore(0)
        self.events = Told(self.settled)
        self.worker = bench.make_worker(events=self.events, **more)
        self.inbox = Inbox()
        self.stop = StopToken(bench.monotonic, self.inbox.poke)
        self.ending: Exit | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        self.ending = self.worker.work(self.inbox, self.stop)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def wait_settled(self, number: int) -> None:
        for _ in range(number):
            assert self.settled.acquire(timeout=PATIENCE), "the worker settled less than it should have"

    def wait_ended(self) -> Exit:
        self._thread.join(PATIENCE)
        assert self.ending is not None, "the worker didn't end"
        return self.ending

    def __exit__(self, *_: object) -> None:
        self.stop.now("the test is over")
        self._thread.join(PATIENCE)
        self.inbox.close()


class Told(Unheard):
    def __init__(self, settled: threading.Semaphore) -> None:
        self._settled = settled
        self.said: list[tuple[str, Any]] = []

    def alive(self, deadline: float | None) -> None:
        self.said.append(("alive", deadline))

    def claimed(self, number: int) -> None:
        self.said.append(("claimed", number))

    def settled(self, number: int) -> None:
        self.said.append(("settled", number))
        self._settled.release(number)

    def stopping(self) -> None:
        self.said.append(("stopping", None))
