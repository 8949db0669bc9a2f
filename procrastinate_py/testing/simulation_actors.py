"""Threads of which only one runs at a time: the one that the simulation has handed the baton to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ..runtime.guard import Interruption

HERE: ContextVar[Any] = ContextVar("HERE")
"""The actor whose thread this is."""

_LONGEST_DEATH = 1000


class Gone(BaseException):
    """Raised in every thread of a simulated process that has died, wherever it waits."""


class Actor:
    """A thread of a simulated process. Between ``resume`` and the next ``pause`` nothing else runs.

    ``is_ready`` tells whether it has something to do. ``is_dead`` tells whether its process has died.
    """

    def __init__(self, work: Callable[[], None], is_dead: Callable[[], bool]) -> None:
        self._work = work
        self._is_dead = is_dead
        self._go = threading.Lock()
        self._go.acquire()
        self._back = threading.Lock()
        self._back.acquire()
        self._granted = False
        self._thread: threading.Thread | None = None
        self.is_ready: Callable[[], bool] = _always
        self.wake_at = 0.0
        """The simulated instant until which it has nothing to do, for who moves the time."""
        self.ended = False
        self.failure: BaseException | None = None

    def resume(self) -> None:
        """By the simulation: hands it the baton, and waits to get it back."""
        self._granted = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, daemon=True)
            self._thread.start()
        elif self._go.locked():
            self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        """In its own thread: gives the baton back. Raises Gone if the process died meanwhile."""
        self._granted = False
        try:
            self._back.release()
            self._sleep()
        except Interruption:
            # It may have struck on the way to sleep or back: nothing may go on before the baton is here again.
            self._sleep()
            self._heed_death()
            raise
        self._heed_death()

    def end(self) -> None:
        """After the death of its process: lets the thread unwind."""
        for _ in range(_LONGEST_DEATH):
            if self._thread is None or self.ended:
                break
            self.resume()
        if self._thread is not None:
            if not self.ended:
                raise RuntimeError(f"a simulated thread didn't end though it was told so {_LONGEST_DEATH} times")
            self._thread.join()
        self.ended = True

    def _heed_death(self) -> None:
        if self._is_dead():
            raise Gone

    def _sleep(self) -> None:
        while not self._granted:
            self._go.acquire()

    def _main(self) -> None:
        HERE.set(self)
        try:
            self._work()
        except Gone:
            pass
        except BaseException as error:
            self.failure = error
        self.ended = True
        self._back.release()


def _always() -> bool:
    return True
