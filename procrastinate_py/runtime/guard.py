"""Runs code that another thread may interrupt, so that the interruption lands in that code or nowhere.

CPython delivers an asynchronous exception at some later bytecode of the target thread. Left alone, it could strike
after the code has returned: in a hook, in our own settling, in the next task. So a window is opened around the code,
an interruption is sent only while it's open, at most once, and closing it absorbs one that hasn't landed yet.
Nor is one sent while the code is in a call to this package or in the middle of an import: an import that's cut short
can leave its lock held for good.
"""

from __future__ import annotations

import re
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from .forking import end_if_forked


class Interruption(BaseException):
    """Raised inside a body or hook that must end. Not an Exception, so that ``except Exception`` lets it pass."""


class Guard:
    """One window at a time, in one thread. Windows are numbered, so that an interruption can't hit a later one."""

    __slots__ = ("_lock", "_sent", "_thread", "window")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0
        self._sent = False
        self.window = 0

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns or raises; Interruption where one was sent, whatever the function made of it."""
        try:
            self._open()
            try:
                value = function(*arguments)
                end_if_forked(None)
            except BaseException as error:
                end_if_forked(error)
                raise
            finally:
                self._close()
        except BaseException as error:
            self._close()  # again: it may have struck inside _close; but it strikes only once
            if self._sent and not isinstance(error, Interruption):
                raise Interruption from error
            raise
        if self._sent:
            raise Interruption
        return value

    def interrupt(self, window: int) -> bool:
        """Whether an interruption was sent: False where that window isn't open, one was sent before, or it would
        strike at a bad moment; then a later call may do better."""
        with self._lock:
            if not self._thread or self._sent or self.window != window:
                return False
            if _is_fragile(self._thread) or _would_hang_here():
                return False
            self._sent = True
            _raise_in(self._thread, Interruption)
            return True

    def stack(self) -> str:
        """Where the code inside the window is right now; empty where no window is open."""
        frame = sys._current_frames().get(self._thread)
        return "" if frame is None else "".join(traceback.format_stack(frame))

    def _open(self) -> None:
        with self._lock:
            self._sent = False
            self.window += 1
            self._thread = threading.get_ident()

    def _close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, 0
        if thread and self._sent:
            _absorb(thread)


def _absorb(thread: int) -> None:
    """Leaves no interruption pending in this thread, whether the one that was sent has landed yet or not.

    Taking it back by a null one would leave CPython 3.11 looking for it for ever. So another is sent, which replaces
    one that's still pending: exactly one lands, and here.
    """
    try:
        _raise_in(thread, Interruption)
        while True:
            pass
    except Interruption:
        return


_FRAGILE = re.compile(
    r"importlib\._bootstrap|procrastinate_py\.(core|ports|persisters|environment|runtime\.(?!attempt$|guard$))"
)


def _is_fragile(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not Guard.call.__code__:
        if _FRAGILE.match(frame.f_globals.get("__name__") or ""):
            return True
        frame = frame.f_back
    return False


def _would_hang_here() -> bool:
    """CPython 3.11 loops for ever in a traced thread (coverage, a debugger) while another has an interruption pending,
    as a body that waits for something would. Then bodies past their limit are just left behind."""
    return sys.version_info < (3, 12) and (sys.gettrace() or sys.getprofile()) is not None


def _raise_in(thread: int, exception: type[BaseException]) -> None:
    import ctypes  # here, since few processes ever interrupt anything

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))
