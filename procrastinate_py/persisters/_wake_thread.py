"""Wake-ups that arrive on a connection to a server, as a file descriptor that a worker can wait on beside others.

A thread per listener waits on the connection, opens it anew where it's lost, and passes on that something came.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from ..core.errors import PersisterUnavailableError

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
"""Seconds between two attempts to connect."""

_SOMETHING = b"\0"
_READ_AT_ONCE = 4096


class WakeSource(Protocol):
    """A connection that wake-ups arrive on. One thread uses it at a time."""

    def fileno(self) -> int:
        """Readable when something came, or when the connection is lost."""

    def read(self) -> bool:
        """Takes in all that came, without waiting. Whether a wake-up was among it. Raises where the connection is
        lost."""

    def close(self) -> None:
        """Never raises."""


class NoWakeUpsError(PersisterUnavailableError):
    """The store is there, but wake-ups can't come through to here, however often it's tried."""


class ThreadListener:
    """One waiting worker's end: a WakeListener.

    ``connect`` gives a source that listens already: what is sent once it returned is not missed. Its first call is
    made here and now; where it raises NoWakeUpsError, so does this. Whatever else it raises is taken for an outage,
    and it's called again after a pause, as it is when a connection is lost. After each of those connections the
    listener is woken once, for what may have been missed.
    """

    def __init__(self, connect: Callable[[], WakeSource], name: str) -> None:
        self._connect = connect
        self._pid = os.getpid()
        source = self._connected()
        # A pair of sockets tells both ways: that something came, and, by a shutdown, that nobody wants to know any
        # more. A closed pipe wouldn't tell that where a fork's child holds it too.
        self._mine, self._threads = socket.socketpair()
        self._mine.setblocking(False)
        self._threads.setblocking(False)
        self._thread = threading.Thread(target=self._pass_on, args=(source,), name=name, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._mine.fileno()

    def drain(self) -> None:
        """Forgets the wake-ups that came so far."""
        try:
            while len(self._mine.recv(_READ_AT_ONCE)) == _READ_AT_ONCE:
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Safe to call twice. In a fork's child it leaves the connection to the process that made it."""
        if self._mine.fileno() < 0:
            return
        if self._pid == os.getpid():
            self._mine.shutdown(socket.SHUT_RDWR)
            # It may be connecting just now, which has a time limit of its own; it ends by itself then.
            self._thread.join(FIRST_PAUSE)
        else:
            self._threads.close()
        self._mine.close()

    # --- in the thread

    def _pass_on(self, source: WakeSource | None) -> None:
        pause = FIRST_PAUSE
        try:
            while True:
                if source is None:
                    if self._is_over_within(pause):
                        return
                    pause = min(pause * 2, LONGEST_PAUSE)
                    source = self._connected_again()
                    if source is None:
                        continue
                    self._poke()
                if self._is_over_after(source):
                    return
                pause = FIRST_PAUSE
                source.close()
                source = None
        finally:
            if source is not None:
                source.close()
            self._threads.close()

    def _is_over_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._threads, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _is_over_after(self, source: WakeSource) -> bool:
        """Passes on what comes. False: the connection was lost; True: nobody listens any more."""
        ours = self._threads.fileno()
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        try:
            poll.register(source.fileno(), select.POLLIN)
            while True:
                if any(fd == ours for fd, _ in poll.poll()):
                    return True
                if source.read():
                    self._poke()
        except Exception:
            return False

    def _connected(self) -> WakeSource | None:
        try:
            return self._connect()
        except NoWakeUpsError:
            raise
        except Exception:
            return None

    def _connected_again(self) -> WakeSource | None:
        try:
            return self._connected()
        except NoWakeUpsError:
            return None  # a server that changed its mind may do so again

    def _poke(self) -> None:
        try:
            self._threads.send(_SOMETHING)
        except OSError:
            return  # full: its listener has wake-ups waiting already; shut down: nobody waits any more
