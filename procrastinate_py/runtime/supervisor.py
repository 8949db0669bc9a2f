"""The process between an application and its queue processes: starts them, watches them, replaces what dies.

It has one thread, opens no store and runs none of the user's code, so nothing of theirs can bring it down.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..ports.clock import SystemClock
from .deaths import HUNG, REPLACE, cause_of_death
from .pipes import LineReader, QueuePipes, SupervisorPipes, close_all, make_pipe, write_line

SILENCE = 30.0
"""How long a queue process may be silent beyond the earliest deadline that it told, before it is killed."""

MARGIN = 5.0
"""How much longer than its grace a queue process may take to end, before it is killed."""

AT_ONCE = 3.0
"""How long a process that was told to stop at once may take to hand back what it holds."""

LONGEST_PAUSE = 30.0
"""Between two starts of a queue process that keeps dying: 0, 1, 2, 4 ... seconds, never more than this."""

HEALTHY_AFTER = 60.0
"""A queue process that lived this long starts the pauses anew."""

_LONGEST_WAIT = 5.0
_SHORTEST_WAIT = 0.05  # what was killed may take its time to go


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorPlan:
    """What a supervisor needs to know; nothing in it is the user's code."""

    processes: tuple[str, ...]
    """The queue of each."""
    title: str
    grace: float


Launch = Callable[[int, QueuePipes, str | None, tuple[int, ...]], int]
"""Starts the process with this index, tells it how its predecessor died, and returns its pid. The last
argument are the supervisor's own descriptors: a fork must close them, or nobody would see the supervisor end."""


class QueueProcess:
    """A process of a queue and its successors, as the supervisor sees them."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid: int | None = None
        self.orders = -1
        self.events: LineReader | None = None
        self.announced = False
        self.cause: str | None = None
        self.restart_at = 0.0
        self._killed_hung = False
        self._deaths = 0
        self._started_at = 0.0
        self._heard_at = 0.0
        self._deadline = math.inf

    def started(self, pid: int, orders: int, events: int, now: float) -> None:
        self.pid, self.orders, self.events = pid, orders, LineReader(events)
        self.announced = self._killed_hung = False
        self._started_at = self._heard_at = now
        self._deadline = math.inf

    def heard(self, line: str, now: float) -> None:
        self._heard_at = now
        word, _, value = line.partition(" ")
        if word == "alive":
            with contextlib.suppress(ValueError):
                self._deadline = math.inf if value == "-" else float(value)

    def forgive(self, now: float) -> None:
        self._heard_at = now

    def hangs_at(self, silence: float) -> float:
        """The instant from which it counts as hung, unless it says something before."""
        return max(self._heard_at, self._deadline) + silence

    def kill(self, hung: bool = False) -> None:
        if self.pid is not None:
            self._killed_hung = self._killed_hung or hung
            os.kill(self.pid, signal.SIGKILL)

    def ended(self, status: int, now: float) -> None:
        """Sets when the next one may start: at once the first time, then later and later while it keeps dying."""
        assert self.events is not None
        close_all(self.orders, self.events.fd)
        self.pid, self.events = None, None
        self.cause = HUNG if self._killed_hung else cause_of_death(status)
        if os.waitstatus_to_exitcode(status) == REPLACE:
            self.restart_at = now
            return
        self.could_not_live(now, lived=now - self._started_at)

    def could_not_live(self, now: float, lived: float = 0.0) -> None:
        self._deaths = 1 if lived >= HEALTHY_AFTER else self._deaths + 1
        pause = 0.0 if self._deaths == 1 else min(2.0 ** min(self._deaths - 2, 10), LONGEST_PAUSE)
        self.restart_at = now + pause


class Supervisor:
    def __init__(self, plan: SupervisorPlan, pipes: SupervisorPipes, launch: Launch) -> None:
        self._plan = plan
        self._pipes = pipes
        self._launch = launch
        self._monotonic = SystemClock().monotonic
        self._queues = [QueueProcess(index) for index in range(len(plan.processes))]
        self._control = LineReader(pipes.control)
        self._poll = select.poll()
        self._stopping = False
        self._kill_at = math.inf
        self._last_tick = self._monotonic()
        self._woken, self._wakes = make_pipe()
        self._pipes_of_queues = QueuePipes(application=pipes.application, status=pipes.status, orders=-1, events=-1)

    def run(self) -> None:
        """Returns once it was told to stop, or the application has gone, and every queue process has ended."""
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for fd in (self._woken, self._pipes.application, self._pipes.control):
            self._poll.register(fd, select.POLLIN)
        while not (self._stopping and all(queue.pid is None for queue in self._queues)):
            self._start_what_is_due()
            self._wait()
            self._forgive_what_slept()
            self._reap()
            self._kill_what_is_overdue()
        write_line(self._pipes.status, "stopped")

    # --- starting

    def _start_what_is_due(self) -> None:
        for queue in self._queues:
            if not self._stopping and queue.pid is None and self._monotonic() >= queue.restart_at:
                # Whoever saw the application go and ended by that may be buried before that is seen here.
                if self._application_has_gone():
                    self._application_gone()
                else:
                    self._start(queue)

    def _start(self, queue: QueueProcess) -> None:
        pipes: tuple[int, ...] = ()
        try:
            pipes = make_pipe()
            pipes += make_pipe()
            orders_read, orders, events, events_write = pipes
            theirs = replace(self._pipes_of_queues, orders=orders_read, events=events_write)
            pid = self._launch(queue.index, theirs, queue.cause, (*self._own_descriptors(), orders, events))
        except OSError as error:
            close_all(*pipes)
            queue.could_not_live(self._monotonic())
            self._tell_failure(queue, f"its process can't be started: {error}")
            return
        close_all(orders_read, events_write)
        queue.started(pid, orders, events, self._monotonic())
        self._poll.register(events, select.POLLIN)

    def _own_descriptors(self) -> Iterator[int]:
        yield from (self._woken, self._wakes, self._pipes.control)
        for queue in self._queues:
            if queue.events is not None:
                yield from (queue.orders, queue.events.fd)

    # --- watching

    def _wait(self) -> None:
        for fd, _ in self._poll.poll(self._patience()):
            if fd == self._woken:
                os.read(fd, 4096)
            elif fd == self._pipes.application:
                self._poll.unregister(fd)
                self._application_gone()
            elif fd == self._pipes.control:
                self._heed_control()
            else:
                self._hear_from(fd)

    def _patience(self) -> int:
        """Milliseconds until there may be something to do that no descriptor tells."""
        now = self._monotonic()
        instants = [self._kill_at]
        for queue in self._queues:
            if queue.pid is not None:
                instants.append(queue.hangs_at(SILENCE))
            elif not self._stopping:
                instants.append(queue.restart_at)
        return math.ceil(1000 * min(_LONGEST_WAIT, max(_SHORTEST_WAIT, min(instants) - now)))

    def _forgive_what_slept(self) -> None:
        """Who was stopped, by Ctrl-Z say, was so with all its group: silence meanwhile means nothing."""
        now = self._monotonic()
        if now - self._last_tick > _LONGEST_WAIT + SILENCE / 2:
            for queue in self._queues:
                queue.forgive(now)
        self._last_tick = now

    def _hear_from(self, fd: int) -> None:
        for queue in self._queues:
            if queue.events is not None and queue.events.fd == fd:
                self._hear(queue, queue.events)
                if queue.events.at_end:
                    self._poll.unregister(fd)

    def _hear(self, queue: QueueProcess, events: LineReader) -> None:
        now = self._monotonic()
        for line in events.lines():
            queue.heard(line, now)
            word, _, value = line.partition(" ")
            if word == "begun" and not queue.announced:
                queue.announced = True
                write_line(self._pipes.status, f"pid {queue.index} {queue.pid}")
            elif word == "failed":
                self._tell_failure(queue, value)

    def _tell_failure(self, queue: QueueProcess, why: str) -> None:
        write_line(self._pipes.status, f"failed queue {self._plan.processes[queue.index]!r}: {why}")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for queue in self._queues:
                if queue.pid == pid and queue.events is not None:
                    self._bury(queue, queue.events, status)

    def _bury(self, queue: QueueProcess, events: LineReader, status: int) -> None:
        self._hear(queue, events)
        if not queue.announced:
            how = cause_of_death(status) or f"exit code {REPLACE}"
            self._tell_failure(queue, f"its process ended before it began ({how})")
        with contextlib.suppress(KeyError):  # where its end was seen before its exit
            self._poll.unregister(events.fd)
        queue.ended(status, self._monotonic())

    # --- stopping

    def _heed_control(self) -> None:
        for line in self._control.lines():
            word, _, value = line.partition(" ")
            if word == "stop":
                self._order(f"drain {value}", float(value) + MARGIN)
            elif word == "kill":
                self._order("now", AT_ONCE)
        if self._control.at_end:
            self._poll.unregister(self._pipes.control)

    def _application_has_gone(self) -> bool:
        poll = select.poll()
        poll.register(self._pipes.application, select.POLLIN)
        return bool(poll.poll(0))

    def _application_gone(self) -> None:
        """The queue processes see it themselves."""
        self._stopping = True
        self._kill_at = min(self._kill_at, self._monotonic() + self._plan.grace + MARGIN)

    def _order(self, order: str, patience: float) -> None:
        self._stopping = True
        self._kill_at = min(self._kill_at, self._monotonic() + patience)
        for queue in self._queues:
            if queue.pid is not None:
                write_line(queue.orders, order)

    def _kill_what_is_overdue(self) -> None:
        now = self._monotonic()
        for queue in self._queues:
            if now >= self._kill_at:
                queue.kill()
            elif now >= queue.hangs_at(SILENCE):
                queue.kill(hung=True)
