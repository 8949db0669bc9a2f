"""Wake-ups between the processes of one machine, by named pipes in a folder: one pipe per waiting worker."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable

from ..core.queue import file_stem

_SOMETHING = b"\0"
_READ_AT_ONCE = 4096


class WakeDirectory:
    """A folder of pipes. It's made by the first listener, so a store that nobody waits on leaves none behind."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def notify(self, name: str) -> None:
        """Wakes every listener of that name, in any process. Never raises, never blocks."""
        prefix = _prefix(name)
        try:
            entries = os.listdir(self.path)
        except (OSError, ValueError):
            return
        for entry in entries:
            if entry.startswith(prefix):
                _write_to(os.path.join(self.path, entry))

    def listen(self, name: str) -> PipeListener:
        """A pipe of one's own. Raises OSError where the folder can't be made or written."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        return PipeListener(os.path.join(self.path, f"{_prefix(name)}{os.getpid()}.{os.urandom(6).hex()}"))


class PipeListener:
    """One waiting worker's end of a pipe."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._pid = os.getpid()
        # It gets its name once it's open: a notifier takes a pipe that nobody reads for a dead worker's.
        unnamed = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}")
        os.mkfifo(unnamed, 0o600)
        # Open for writing too: a pipe whose last writer closes would be readable for ever, at its end of file.
        self._fd = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.rename(unnamed, path)

    def fileno(self) -> int:
        return self._fd

    def drain(self) -> None:
        """Forgets the wake-ups that came so far."""
        _empty(self._fd)

    def close(self) -> None:
        """Safe to call twice. In a fork's child it leaves the pipe to the process that made it."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        os.close(fd)


def _prefix(name: str) -> str:
    # A stem may hold dots, so it isn't enough to end it by one: "a" must not match the pipes of "a.b".
    return f"{file_stem(name)}@"


def _write_to(path: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:
            _sweep(path)
        return
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, _SOMETHING)
    except OSError:
        pass  # full: its listener has wake-ups waiting already
    finally:
        os.close(fd)


def _empty(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while len(os.read(fd, _READ_AT_ONCE)) == _READ_AT_ONCE:
            pass


def _sweep(path: str) -> None:
    """Removes a pipe whose listener was killed: nobody has it open any more."""
    with contextlib.suppress(OSError):
        if stat.S_ISFIFO(os.lstat(path).st_mode):
            os.unlink(path)


class LocalWake:
    """Wake-ups within one process, for stores that live in its memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, list[LocalListener]] = {}

    def notify(self, name: str) -> None:
        with self._lock:
            for listener in self._listeners.get(name, ()):
                listener.wake()

    def listen(self, name: str) -> LocalListener:
        listener = LocalListener(lambda: self._forget(name, listener))
        with self._lock:
            self._listeners.setdefault(name, []).append(listener)
        return listener

    def _forget(self, name: str, listener: LocalListener) -> None:
        with self._lock:
            self._listeners[name].remove(listener)


class LocalListener:
    """A waiting thread's end of a pipe."""

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._write, _SOMETHING)

    def drain(self) -> None:
        _empty(self._read)

    def close(self) -> None:
        """Safe to call twice."""
        if self._read < 0:
            return
        self._forget()
        read, self._read = self._read, -1
        os.close(read)
        os.close(self._write)
