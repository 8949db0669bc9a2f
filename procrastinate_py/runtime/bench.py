"""Test mode's workers: the same ones as in a queue's process, that work one task when they're told to."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

from ..core.codec import Codec
from ..core.errors import TestModeError
from ..core.outcome import Outcome
from ..core.queue import QueueSpec
from ..core.task import TaskState
from ..ports.clock import SystemClock
from ..ports.persister import Inspecting
from .logs import LogSettings, QueueLog
from .persister_source import Store
from .sole_consumer import SoleConsumer
from .worker import QueueWorker

_PACKAGE = __name__.partition(".")[0]
_OWNER = "test-mode"
_TOLD_BY_OUTCOME = ("fail", "final_fail")
_NEVER_FRESH = -1.0


class Bench:
    """One worker per queue, made when it's first needed."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._workers: dict[str, tuple[QueueSpec, Store, QueueWorker]] = {}
        self._acting = threading.Lock()
        weakref.finalize(self, _close_all, self._workers)

    def act(self, store: Store, specs: Sequence[QueueSpec]) -> list[Outcome]:
        """One due task on each queue, in this order. Raises what the store raises, and TestModeError where a task's
        body calls it."""
        with self._alone():
            return self._act(store, specs)

    def drain(self, store: Store, specs: Sequence[QueueSpec]) -> list[Outcome]:
        """Acts until nothing is due."""
        outcomes: list[Outcome] = []
        with self._alone():
            while found := self._act(store, specs):
                outcomes.extend(found)
        return outcomes

    def drain_until(
        self,
        store: Store,
        specs: Sequence[QueueSpec],
        inspecting: Inspecting,
        until: float,
        move_to: Callable[[float], None],
    ) -> list[Outcome]:
        """Moves the clock from run_at to run_at, and at last to ``until``. Raises TestModeError where the store goes by
        another clock."""
        outcomes = self.drain(store, specs)
        while (coming := _next_run_at(inspecting, specs, store.now(), until)) is not None:
            _move(store, move_to, coming)
            outcomes.extend(self.drain(store, specs))
        if store.now() < until:
            _move(store, move_to, until)
        return outcomes

    def close(self) -> None:
        """Lets the workers' idle threads end."""
        _close_all(self._workers)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._acting.acquire(blocking=False):
            raise TestModeError(
                "act and drain work one task after another: they can't be called from a task or at once"
            )
        try:
            yield
        finally:
            self._acting.release()

    def _act(self, store: Store, specs: Sequence[QueueSpec]) -> list[Outcome]:
        outcomes = (self._worker(store, spec).act() for spec in specs)
        return [outcome for outcome in outcomes if outcome is not None]

    def _worker(self, store: Store, spec: QueueSpec) -> QueueWorker:
        found = self._workers.get(spec.name)
        if found is not None:
            if found[0] is spec and found[1] is store:
                return found[2]
            found[2].close()
        worker = self._new_worker(store, spec)
        self._workers[spec.name] = (spec, store, worker)
        return worker

    def _new_worker(self, store: Store, spec: QueueSpec) -> QueueWorker:
        log = ApplicationLog(spec.name)
        return QueueWorker(
            spec=spec,
            store=store.capabilities.leasing
            or SoleConsumer(
                store.persister,
                now=store.now,
                fresh_for=_NEVER_FRESH,
                warn=lambda problem: log.warning("row_skipped", reason=problem),
            ),
            codec=self._codec,
            now=store.now,
            # The machine's: a body's time limit must hold while a test's calendar stands still.
            monotonic=SystemClock().monotonic,
            log=log,
            owner=_OWNER,
        )


class ApplicationLog(QueueLog):
    """Test mode has no log file: what nobody would learn of by an outcome goes to the application's own logging."""

    def __init__(self, queue: str) -> None:
        super().__init__(LogSettings(), queue)

    def warning(self, event: str, **fields: object) -> None:
        self._tell("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._tell("error", event, fields)

    def _tell(self, level: str, event: str, fields: dict[str, object]) -> None:
        if event in _TOLD_BY_OUTCOME:
            return
        import logging  # here, since few tests ever need it

        error = fields.pop("error", None)
        told = " ".join(f"{name}={value!r}" for name, value in {"queue": self.queue, **fields}.items())
        write = getattr(logging.getLogger(_PACKAGE), level)
        write("%s %s", event, told, exc_info=error if isinstance(error, BaseException) else None)


def _move(store: Store, move_to: Callable[[float], None], instant: float) -> None:
    move_to(instant)
    if store.now() < instant:
        raise TestModeError(
            "the store goes by its server's clock, which drain can't move: give the environment its URL rather than a "
            "persister, or make the persister with clock="
        )


def _close_all(workers: dict[str, tuple[QueueSpec, Store, QueueWorker]]) -> None:
    while workers:
        _, (_, _, worker) = workers.popitem()
        worker.close()


def _next_run_at(inspecting: Inspecting, specs: Sequence[QueueSpec], now: float, until: float) -> float | None:
    coming = [
        float(record.run_at)
        for spec in specs
        for record in inspecting.select(queue=spec.name, state=TaskState.PENDING)
        if record.run_at is not None and now < record.run_at <= until
    ]
    return min(coming, default=None)
