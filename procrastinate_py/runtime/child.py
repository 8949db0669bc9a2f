"""A queue's process, from its beginning to its end: what surrounds the worker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from setproctitle import setproctitle

from ..core.codec import Codec
from ..core.queue import QueueSpec
from ..persisters._wake import WakeDirectory
from ..ports.clock import SystemClock
from ..ports.persister import WakeListener
from .deaths import REPLACE
from .forking import CRASHED, end_process, let_forks_be_terminated
from .in_hand import InHandFile, acquire_shared, sole_path
from .inbox import Inbox
from .logs import QueueLog
from .orders import Orders
from .owner import lives, new_owner
from .persister_source import Store
from .pipes import EventPipe, QueuePipes
from .plan import Plan, seats, wake_folder
from .quiet import start_nothing_ever
from .settler import Outage
from .sole_consumer import SoleConsumer
from .stop import Exit, StopLevel, StopToken
from .unfinished_imports import forget_unfinished_imports
from .worker import QueueWorker

_LOOK_AT_LOCK_EVERY = 1.0
_LOOKS_AT_A_DROPPED_LOCK = 15  # a holder looks at its lock at least every 10 s while anything is in its hand

T = TypeVar("T")


def run_queue_process(plan: Plan, index: int, pipes: QueuePipes, cause: str | None) -> None:
    """Ends the process. ``cause``: how the process before this one died, if it did."""
    spec, number = seats(plan.queues)[index]
    prefix = f"{plan.process_prefix}-" if plan.process_prefix else ""
    shown = "".join(char if char.isprintable() else "?" for char in spec.name)  # a title can hold no NUL
    setproctitle(f"{prefix}{shown}-queue-worker{f'-{number + 1}' if number else ''}")
    let_forks_be_terminated()
    start_nothing_ever()
    forget_unfinished_imports()
    end_process(QueueProcess(plan, spec, pipes, cause).run())


class QueueProcess:
    def __init__(self, plan: Plan, spec: QueueSpec, pipes: QueuePipes, cause: str | None) -> None:
        self._plan = plan
        self._spec = spec
        self._cause = cause
        self._monotonic = SystemClock().monotonic
        self._log = QueueLog(plan.logs, spec.name, plan.clock)
        self._events = EventPipe(pipes.events)
        self._inbox = Inbox()
        self._stop = StopToken(self._monotonic, self._inbox.poke)
        self._orders = Orders(pipes, self._stop, self._log, plan.grace, self._monotonic)
        self._stands_by = False
        self._lost_lock = False
        self._looks_left = _LOOKS_AT_A_DROPPED_LOCK

    def run(self) -> int:
        """Returns the exit code."""
        threading.excepthook = lambda thread: self._log.error("thread_failed", error=thread.exc_value)
        self._log.info("process_started", parent_pid=os.getppid())
        self._events.begun()
        try:
            self._orders.listen()
            code = self._work()
        except BaseException as error:
            self._log.error("process_failed", error=error)
            code = CRASHED
        self._log.info("process_stopped", reason=self._stop.reason or None)
        self._log.close()
        return code

    def _work(self) -> int:
        store = self._persist(self._plan.source.open)
        if store is None:
            return 0
        in_hand = self._persist(partial(self._hold_queue, store.capabilities.leasing is None))
        if in_hand is None:
            return 0
        listener = self._listen(store)
        worker = self._make_worker(store, in_hand)
        if listener is not None:
            self._inbox.add(listener.fileno(), partial(_woken, listener, worker))
        try:
            ending = worker.work(self._inbox, self._stop)
        finally:
            if listener is not None:
                listener.close()
            in_hand.close(clean=worker.holds_nothing)
        return REPLACE if ending is Exit.REPLACE or self._lost_lock else 0

    # --- what may fail or take long, while the process stays and listens to its orders

    def _persist(self, attempt: Callable[[], T | None]) -> T | None:
        """Until ``attempt`` gives something. It is made anew after an exception, and, where it gave None, once a
        second. None: the process was told to stop before that."""
        outage = Outage(self._log, self._monotonic)
        while self._may_go_on():
            try:
                found = attempt()
                outage.worked("begin")
                if found is not None:
                    return found
                retry_at = self._monotonic() + _LOOK_AT_LOCK_EVERY
            except Exception as error:
                outage.failed("begin", error)
                retry_at = outage.retry_at
            while self._may_go_on() and self._monotonic() < retry_at:
                self._inbox.wait(retry_at - self._monotonic())
        return None

    def _may_go_on(self) -> bool:
        return self._stop.level is StopLevel.NONE

    def _hold_queue(self, is_sole: bool) -> InHandFile | None:
        """A floor persister's queue has one file, whose holder works it; elsewhere every process has its own."""
        folder, queue = self._plan.run_dir, self._spec.name
        if not is_sole:
            return acquire_shared(folder, queue)
        in_hand = InHandFile.try_acquire(sole_path(folder, queue))
        if in_hand is not None and self._is_likely_missed(in_hand):
            in_hand.close(clean=False)
            in_hand = None
        if in_hand is None and not self._stands_by:
            self._stands_by = True
            self._log.info("standing_by", reason="another process on this machine works the queue")
        return in_hand

    def _is_likely_missed(self, in_hand: InHandFile) -> bool:
        """Whether its last holder lives: a task may have made it drop the lock, and it takes that back when it next
        looks. Waited for, but not for ever: its pid may be another's by now."""
        if in_hand.left is None or self._looks_left == 0 or not lives(in_hand.left.owners[0]):
            return False
        self._looks_left -= 1
        return True

    def _still_holds(self, in_hand: InHandFile) -> bool:
        """Where somebody removed the lock, another process may work the queue: this one makes room for a new one, which
        works it with a new lock, or stands by."""
        if not self._lost_lock and not in_hand.is_held():
            self._lost_lock = True
            self._log.error("lock_lost", file=str(in_hand.path), next="this process is drained and replaced")
            self._stop.drain("its lock is gone", self._plan.grace)
        return not self._lost_lock

    def _listen(self, store: Store) -> WakeListener | None:
        """Without wake-ups, the store is looked at every update_period."""
        try:
            if store.capabilities.waking is not None:
                return store.capabilities.waking.listen(self._spec.name)
            return WakeDirectory(wake_folder(self._plan.run_dir)).listen(self._spec.name)
        except Exception as error:
            self._log.warning("no_wake_ups", reason=str(error))
            return None

    def _make_worker(self, store: Store, in_hand: InHandFile) -> QueueWorker:
        left = in_hand.left
        leasing = store.capabilities.leasing or SoleConsumer(
            store.persister,
            now=store.now,
            fresh_for=self._spec.update_period,
            warn=lambda problem: self._log.warning("row_skipped", reason=problem),
            left=[note.key for note in left.begun] if left else (),
            is_sole=partial(self._still_holds, in_hand),
        )
        owner = new_owner()
        in_hand.take(owner)
        worker = QueueWorker(
            spec=self._spec,
            store=leasing,
            codec=Codec(self._plan.registry, self._plan.max_task_bytes),
            now=store.now,
            monotonic=self._monotonic,
            log=self._log,
            owner=owner,
            in_hand=in_hand,
            events=self._events,
            lease_for=self._plan.lease_for,
        )
        if left is not None:
            worker.recover(left, self._cause)
        return worker


def _woken(listener: WakeListener, worker: QueueWorker) -> None:
    listener.drain()
    worker.woken()
