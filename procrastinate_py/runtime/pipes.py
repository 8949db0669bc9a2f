"""Pipes between processes: whole short lines, written without waiting, so that no process can block another."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass

_LONGEST_LINE = 500
_LOWEST_FD = 3
_MOST_READS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorPipes:
    """The supervisor's ends. ``application`` is at its end once the application is gone."""

    application: int
    control: int
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePipes:
    """A queue process's ends. ``orders`` is at its end once the supervisor is gone.

    ``status`` is only held: by its end, the application sees that none of its processes is left.
    """

    application: int
    orders: int
    events: int
    status: int


def make_pipe() -> tuple[int, int]:
    """Read end and write end: non-blocking, closed by exec, and never taking the place of stdin, stdout or stderr."""
    ends = []
    for fd in os.pipe():
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST_FD)
        os.close(fd)
        os.set_blocking(high, False)
        ends.append(high)
    return ends[0], ends[1]


def write_line(fd: int, line: str) -> bool:
    """Writes a whole line, or nothing where the pipe is full or has no reader left: False then."""
    data = line.replace("\n", " ").encode("utf-8", "replace")[:_LONGEST_LINE]
    try:
        os.write(fd, data + b"\n")
    except OSError:
        return False
    return True


def close_all(*fds: int) -> None:
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            continue  # closed already, by somebody who closes what isn't theirs


class LineReader:
    """What a non-blocking pipe holds, as lines."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.at_end = False
        self._rest = b""

    def lines(self) -> list[str]:
        """The whole lines that have come, without waiting for more. ``at_end`` tells that no writer is left."""
        for _ in range(_MOST_READS):  # bounded: a writer that never pauses must not keep its reader here
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.at_end = True
                break
            self._rest += data
        *whole, self._rest = self._rest.split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]


class EventPipe:
    """A queue process tells its supervisor how it is. What doesn't fit is dropped: nothing here ever blocks."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def begun(self) -> None:
        """The plan has been read: what can go wrong from here on is the store's."""
        write_line(self._fd, "begun")

    def failed(self, why: str) -> None:
        """The process can't begin, and a new one couldn't either."""
        write_line(self._fd, f"failed {why}")

    def ready(self) -> None:
        """The store is open and the queue is this process's: it claims from now on."""
        write_line(self._fd, "ready")

    def alive(self, deadline: float | None) -> None:
        """``deadline``: the monotonic instant by which the first of what runs must have ended; None: no limit."""
        write_line(self._fd, "alive -" if deadline is None else f"alive {deadline!r}")

    def claimed(self, number: int) -> None:
        write_line(self._fd, f"claimed {number}")

    def settled(self, number: int) -> None:
        write_line(self._fd, f"settled {number}")

    def stopping(self) -> None:
        """Nothing more is claimed."""
        write_line(self._fd, "stopping")
