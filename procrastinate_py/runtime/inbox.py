"""One place where a process's main thread waits: on file descriptors, a time limit and pokes."""

from __future__ import annotations

import math
import os
import select
from collections.abc import Callable


class Inbox:
    """Waits on many descriptors at once. Only ``poke`` may be called from other threads and signal handlers."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.add(self._read_end, self._drain_pokes)

    def add(self, fd: int, callback: Callable[[], None]) -> None:
        """Calls back in ``wait`` whenever ``fd`` is readable or at its end: the callback must read, or remove it."""
        self._callbacks[fd] = callback
        self._poll.register(fd, select.POLLIN)

    def remove(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def wait(self, timeout: float | None) -> None:
        """Until something is readable, somebody pokes, or ``timeout`` seconds have passed (None: no limit)."""
        milliseconds = None if timeout is None else max(0, math.ceil(min(timeout, 86_400.0) * 1000))
        for fd, _ in self._poll.poll(milliseconds):
            callback = self._callbacks.get(fd)
            if callback is not None:
                callback()

    def poke(self) -> None:
        """Ends the current or the next ``wait``."""
        try:
            os.write(self._write_end, b"\0")
        except OSError:
            return  # full: a poke is waiting already; closed: nobody waits any more

    def close(self) -> None:
        self._callbacks.clear()
        os.close(self._read_end)
        os.close(self._write_end)

    def _drain_pokes(self) -> None:
        try:
            os.read(self._read_end, 4096)
        except BlockingIOError:
            return
