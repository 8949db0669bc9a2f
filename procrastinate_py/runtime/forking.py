"""Forks: one place that knows what a child must shed before anything else happens in it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType

GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal or a service manager sends to a whole group: only the application answers to them."""

CRASHED = 70
"""Exit code of a process of ours that failed: what failed is in its log, or nobody knows."""


def fork_process(body: Callable[[], None]) -> int:
    """Runs ``body`` in a fork that ends with it, and returns the pid.

    No handler of the parent's runs in the child, no exception of the child's reaches its terminal, and the child's
    garbage collector leaves alone what it inherited, so that memory stays shared.
    """
    _flush_standard_streams()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        with warnings.catch_warnings():
            # Python 3.12 and later warn where threads are about. The child uses no lock that one of them may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _run(body)
    finally:
        if pid == 0:
            os._exit(CRASHED)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pid


def _run(body: Callable[[], None]) -> None:
    code = CRASHED
    try:
        gc.freeze()
        shed_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        body()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else CRASHED
    finally:
        os._exit(code)


def shed_signals() -> None:
    """Puts aside the parent's handlers. What it handled is ignored here; what it left alone keeps its default."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number in (signal.SIGKILL, signal.SIGSTOP):
            continue
        if callable(signal.getsignal(number)) and number not in GROUP_SIGNALS:
            signal.signal(number, _do_nothing)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    outlive_group_signals()


def outlive_group_signals() -> None:
    """Handlers that do nothing, rather than SIG_IGN: that one would be passed on to programs that tasks run."""
    for number in GROUP_SIGNALS:
        signal.signal(number, _do_nothing)


def let_forks_be_terminated() -> None:
    """From now on, what this process forks heeds the group's signals, like any process.

    They wait while a fork is under way: one that came at its very beginning would still meet the parent's handlers.
    """
    blocked = threading.local()

    def before() -> None:
        blocked.mask = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)

    def in_child() -> None:
        global _forked_by_a_task
        _forked_by_a_task = True
        for number in GROUP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        after()

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked.mask)

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=in_child)


_forked_by_a_task = False


def end_if_forked(error: BaseException | None) -> None:
    """Called where the user's code has come back: in what it forked, nothing of ours may go on as if it were the
    queue's process. Ends such a fork as a program would end: with its exit code, or 1 after an exception."""
    if not _forked_by_a_task:
        return
    code: object = 0
    if error is not None:
        code = error.code if isinstance(error, SystemExit) else 1
    end_process(code if isinstance(code, int) else int(code is not None))


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    return


def detach_from_terminal_input() -> None:
    """stdin becomes empty: a queue process must not take what is typed for the application."""
    empty = os.open(os.devnull, os.O_RDONLY)
    if empty != 0:
        os.dup2(empty, 0)
        os.close(empty)


def leave_listening_sockets() -> None:
    """A port of the application's must be free as soon as the application has gone, whoever is still at work.

    The descriptor stays taken, by nothing: the socket's object was copied into this process, and may yet close it.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd in _open_descriptors():
        if fd != nothing and _is_listening(fd):
            os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)


def _open_descriptors() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return [int(name) for name in os.listdir(folder)]
    return []


def _is_listening(fd: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        import socket  # here, since whoever has a socket has it loaded

        with socket.socket(fileno=os.dup(fd)) as copy:
            return bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def end_process(code: int) -> None:
    """Ends at once: threads that are stuck aren't waited for, and exit handlers of the application don't run."""
    _flush_standard_streams()
    os._exit(code)


def _flush_standard_streams() -> None:
    """What is in a buffer at a fork would be written by both processes."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
