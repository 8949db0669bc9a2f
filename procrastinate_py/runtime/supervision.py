"""The application's end of its queue processes: starts their supervisor, replaces it if it dies, stops it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol

from ..core.errors import ConfigurationError
from ..ports.clock import SystemClock
from .forking import detach_from_terminal_input, fork_process, leave_listening_sockets
from .pipes import LineReader, QueuePipes, SupervisorPipes, close_all, make_pipe, write_line
from .plan import Plan, Seat, seats
from .supervisor import AT_ONCE, LONGEST_PAUSE, MARGIN, Supervisor, SupervisorPlan

START_METHODS = ("fork", "spawn")

_LONGEST_START = 60.0
_PATIENCE = 5.0
_NO_PIPES = SupervisorPipes(application=-1, control=-1, status=-1)
_LOOK_EVERY = 0.2  # seconds, where the platform can't tell the end of a process by a descriptor

RunQueue = Callable[[Plan, int, QueuePipes, str | None], None]
"""A queue's process, from its fork to its exit: plan, its index, its pipes, how its predecessor died."""


class Launcher(Protocol):
    def start_supervisor(self, pipes: SupervisorPipes, ours: tuple[int, ...]) -> int:
        """Returns the pid. ``ours`` are the application's ends, which no other process may hold."""


class ForkLauncher:
    def __init__(self, plan: Plan, run_queue: RunQueue) -> None:
        # Before the fork: an import that another thread is in the middle of would never end in a fork.
        from setproctitle import setproctitle

        self._plan = plan
        self._run_queue = run_queue
        self._set_title = setproctitle

    def start_supervisor(self, pipes: SupervisorPipes, ours: tuple[int, ...]) -> int:
        return fork_process(lambda: self._supervise(pipes, ours))

    def _supervise(self, pipes: SupervisorPipes, ours: tuple[int, ...]) -> None:
        close_all(*ours)
        plan = supervisor_plan(self._plan)
        self._set_title(plan.title)
        detach_from_terminal_input()
        leave_listening_sockets()
        Supervisor(plan, pipes, self._launch).run()

    def _launch(self, index: int, pipes: QueuePipes, cause: str | None, foreign: tuple[int, ...]) -> int:
        def run() -> None:
            close_all(*foreign)
            self._run_queue(self._plan, index, pipes, cause)

        return fork_process(run)


class Supervision:
    """The queue processes of one environment. Belongs to the process that made it: in a fork it's inert."""

    def __init__(self, plan: Plan, *, start_method: str | None = None, run_queue: RunQueue | None = None) -> None:
        self._plan = plan
        self._start_method = start_method or default_start_method()
        if self._start_method not in START_METHODS:
            raise ConfigurationError(f"start_method must be one of {', '.join(START_METHODS)}, not {start_method!r}")
        self._run_queue = run_queue
        self._seats = seats(plan.queues)
        self._owner = os.getpid()
        self._ours: tuple[int, ...] = ()
        self._theirs = _NO_PIPES
        self._monitor: threading.Thread | None = None
        self._pids: dict[int, int] = {}
        self._failure: str | None = None
        self._has_started = False
        self._supervisor = 0
        self._clean = False
        self._forking = 0
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._ended = threading.Event()

    # --- starting

    def start(self) -> None:
        """Returns once every queue has its processes. Raises ConfigurationError where that can't be."""
        self._launcher = self._make_launcher()
        application, self._application = make_pipe()
        control, self._control = make_pipe()
        self._status, status = make_pipe()
        self._theirs = SupervisorPipes(application=application, control=control, status=status)
        self._ours = (self._application, self._control, self._status)
        _alive.add(self)
        try:
            self._start_supervisor()
        except OSError as error:
            self._let_go()
            raise ConfigurationError(f"the queue processes can't be started: {error}") from error
        try:
            self._monitor = threading.Thread(target=self._watch, name="procrastinate-supervision", daemon=True)
            self._monitor.start()
            self._await_processes()
        except BaseException:
            self.kill()
            raise

    def _make_launcher(self) -> Launcher:
        if self._start_method == "spawn":
            from .spawning import SpawnLauncher

            return SpawnLauncher(self._plan, supervisor_plan(self._plan))
        if self._run_queue is None:
            from .child import run_queue_process

            self._run_queue = run_queue_process
        return ForkLauncher(self._plan, self._run_queue)

    def _start_supervisor(self) -> None:
        self._forking = threading.get_ident()
        try:
            self._supervisor = self._launcher.start_supervisor(self._theirs, self._ours)
        finally:
            self._forking = 0

    def _await_processes(self) -> None:
        with self._changed:
            self._changed.wait_for(self._has_started_or_failed, _LONGEST_START)
            if len(self._pids) < len(self._seats):
                why = self._failure or f"they didn't begin within {_LONGEST_START:.0f} s"
                raise ConfigurationError(f"the queue processes can't be started: {why}")
            self._has_started = True

    def _has_started_or_failed(self) -> bool:
        return len(self._pids) == len(self._seats) or self._failure is not None or self._ended.is_set()

    # --- watching

    def pids(self) -> dict[str, int]:
        """Each queue's first process, in the order of definition; one that is being replaced may be absent or gone."""
        return {seat.queue.name: pid for seat, pid in self._seated() if seat.number == 0}

    def pids_of(self, queue: str) -> list[int]:
        """All processes of a queue, in the order of their numbers."""
        return [pid for seat, pid in self._seated() if seat.queue.name == queue]

    def _seated(self) -> list[tuple[Seat, int]]:
        if not self._is_ours():
            return []
        with self._changed:
            pids = dict(self._pids)
        return [(seat, pids[index]) for index, seat in enumerate(self._seats) if index in pids]

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor

    def _is_ours(self) -> bool:
        return self._owner == os.getpid() and bool(self._ours)

    def _watch(self) -> None:
        status = LineReader(self._status)
        pause = 0.0
        clock = SystemClock()
        while True:
            started_at = clock.monotonic()
            code = self._watch_one(status)
            if self._stopping.is_set():
                self._clean = code == 0
                break
            pause = 0.0 if clock.monotonic() - started_at > LONGEST_PAUSE else pause
            self._replace(pause)
            pause = min(max(1.0, pause * 2), LONGEST_PAUSE)
        with self._changed:
            self._ended.set()
            self._changed.notify_all()

    def _watch_one(self, status: LineReader) -> int | None:
        """Hears the supervisor until it ends. Returns its exit code, None where somebody else took that."""
        with _end_of(self._supervisor) as end:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if end is not None:
                poll.register(end, select.POLLIN)
            while True:
                poll.poll(None if end is not None else int(_LOOK_EVERY * 1000))
                self._hear(status)
                with self._changed:
                    ended, code = _reaped(self._supervisor)
                    if ended:
                        self._supervisor = 0
                if ended:
                    self._hear(status)
                    self._failure = self._failure or f"their supervisor ended with exit code {code}"
                    return code

    def _hear(self, status: LineReader) -> None:
        for line in status.lines():
            word, _, value = line.partition(" ")
            with self._changed:
                if word == "pid":
                    index, pid = value.split()
                    self._pids[int(index)] = int(pid)
                elif word == "failed":
                    self._failed(value)
                self._changed.notify_all()

    def _failed(self, why: str) -> None:
        """The first reason is start()'s; later ones nobody waits for, and the queue's log may not even be open."""
        self._failure = self._failure or why
        if self._has_started and not self._stopping.is_set():
            import logging

            logging.getLogger("procrastinate_py").error("a queue process can't be replaced yet: %s", why)

    def _replace(self, pause: float) -> None:
        """The queue processes of the one that died see that it's gone, and end by themselves."""
        with self._changed:
            self._pids.clear()
        while not self._stopping.wait(pause):
            with contextlib.suppress(OSError):
                self._start_supervisor()
                return
            pause = LONGEST_PAUSE

    # --- stopping

    def stop(self, grace: float) -> None:
        """Drains: what runs may go on for ``grace`` seconds. Returns once all processes have ended.

        An exception that comes meanwhile (a second Ctrl-C) stops them at once, and is raised then.
        """
        self._end(f"stop {grace}", max(grace, self._plan.grace) + MARGIN)

    def kill(self) -> None:
        """Stops at once: what runs is interrupted and handed back."""
        self._end("kill", AT_ONCE)

    def hurry(self) -> None:
        """Makes a stop() that is under way, in this or another thread, stop at once. Safe in a signal handler."""
        if self._is_ours():
            write_line(self._control, "kill")

    def _end(self, command: str, patience: float) -> None:
        if not self._is_ours():
            return
        try:
            self._stopping.set()
            write_line(self._control, command)
            self._await_end(patience)
        except BaseException:
            self.hurry()
            self._await_end(AT_ONCE)
            raise
        finally:
            self._let_go()

    def _await_end(self, patience: float) -> None:
        if not self._ended.wait(patience + _PATIENCE):
            with self._changed:
                if self._supervisor:
                    os.kill(self._supervisor, signal.SIGKILL)
            self._ended.wait(_PATIENCE)
        if not self._clean and self._is_ours():
            self._await_orphans(patience)

    def _await_orphans(self, patience: float) -> None:
        """Queue processes that lost their supervisor end by themselves; the end of the status pipe tells when."""
        status = LineReader(os.dup(self._status))
        self.close_descriptors()
        clock = SystemClock()
        until = clock.monotonic() + patience
        poll = select.poll()
        poll.register(status.fd, select.POLLIN)
        try:
            while not status.at_end and clock.monotonic() < until:
                poll.poll(int(_LOOK_EVERY * 1000))
                status.lines()
        finally:
            os.close(status.fd)

    def _let_go(self) -> None:
        self.close_descriptors()
        if self._monitor is not None:
            self._monitor.join(_PATIENCE)
        _alive.discard(self)

    def close_descriptors(self) -> None:
        ours, theirs = self._ours, self._theirs
        self._forget_descriptors()
        close_all(*ours, *(fd for fd in (theirs.application, theirs.control, theirs.status) if fd >= 0))

    def _forget_descriptors(self) -> None:
        self._ours, self._theirs = (), _NO_PIPES

    def forked(self) -> None:
        """In a fork's child: only the application itself may hold the pipe by whose end its processes see it go. The
        supervisor, forked from here, knows which ones to close."""
        if self._forking == threading.get_ident():
            self._forget_descriptors()
        else:
            self.close_descriptors()


def default_start_method() -> str:
    return "fork" if hasattr(os, "fork") else "spawn"


def supervisor_plan(plan: Plan) -> SupervisorPlan:
    prefix = f"{plan.process_prefix}-" if plan.process_prefix else ""
    return SupervisorPlan(
        processes=tuple(seat.queue.name for seat in seats(plan.queues)),
        title=f"{prefix}procrastinate-supervisor",
        grace=plan.grace,
    )


@contextlib.contextmanager
def _end_of(pid: int) -> Iterator[int | None]:
    """A descriptor that is readable once the process has ended; None where the platform has none."""
    fd = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _reaped(pid: int) -> tuple[bool, int | None]:
    """Whether the child has ended, and with what exit code; None where the application reaped it itself."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True, None
    return found == pid, os.waitstatus_to_exitcode(status) if found == pid else None


_alive: weakref.WeakSet[Supervision] = weakref.WeakSet()


def _let_go_in_a_fork() -> None:
    for supervision in list(_alive):
        supervision.forked()


os.register_at_fork(after_in_child=_let_go_in_a_fork)
