"""A log file that several processes may append to, that changes over by size, and that never raises."""

from __future__ import annotations

import fcntl
import os
import sys
import threading

from .log_settings import LogSettings


class LogFile:
    """Opened at the first write. One ``write`` is one system call, so lines of several processes don't mix.

    Only the process that holds the file's lock changes it over; the others notice, and follow. The lock is a POSIX
    one: it ends with the process, and isn't passed on to what a task forks.
    """

    def __init__(self, settings: LogSettings, file_name: str) -> None:
        assert settings.directory is not None
        self._directory = settings.directory
        self.path = os.path.join(settings.directory, file_name)
        self._rotate = settings.rotate
        self._keep = settings.keep
        self._noted = False
        self._fd = -1
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._identity = (0, 0)
        self._size = 0
        self._close()

    def write(self, line: bytes) -> None:
        """Appends it, or gives up: a log that fails must not fail a task."""
        if os.getpid() != self._pid:
            self._begin()  # after a fork the lock may be taken for good, and the file is the parent's to change over
        try:
            with self._lock:
                self._write(line)
        except Exception as error:
            self.note(error)

    def note(self, error: BaseException) -> None:
        """Says once on stderr what's wrong with the log."""
        if self._noted:
            return
        self._noted = True
        try:
            sys.stderr.write(f"procrastinate_py: can't write {self.path!a}: {type(error).__name__}: {error!s:.200}\n")
            sys.stderr.flush()
        except Exception:
            pass  # there's nowhere left to tell it

    def close(self) -> None:
        """The next write opens it again."""
        if os.getpid() != self._pid:
            self._begin()
        with self._lock:
            self._close()

    def _write(self, line: bytes) -> None:
        if not self._is_current():
            self._open()
        if self._rotate is not None and self._size and self._size + len(line) > self._rotate:
            self._change_over()
        written = os.write(self._fd, line)
        if written < len(line):  # the disk is nearly full: the rest, or the error that tells so
            os.write(self._fd, line[written:])

    def _is_current(self) -> bool:
        """Whether the file at the path is still the one that's open: it may have been changed over, or removed."""
        if self._fd < 0:
            return False
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        self._size = found.st_size  # others may have appended
        return (found.st_dev, found.st_ino) == self._identity

    def _open(self) -> None:
        self._close()
        os.makedirs(self._directory, exist_ok=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY, 0o640)
        found = os.fstat(self._fd)
        self._identity = (found.st_dev, found.st_ino)
        self._size = found.st_size
        self._holds = self._take_lock()

    def _take_lock(self) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _change_over(self) -> None:
        self._holds = self._holds or self._take_lock()
        if not self._holds:
            return
        if self._is_current():  # else the one who held it before has changed it over meanwhile
            self._shift()
        self._open()

    def _shift(self) -> None:
        """FILE becomes FILE.1, that becomes FILE.2, and so on; what is beyond ``keep`` goes."""
        if self._keep == 0:
            os.unlink(self.path)
            return
        for number in range(self._keep - 1, 0, -1):
            try:
                os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
            except FileNotFoundError:
                pass
        os.replace(self.path, f"{self.path}.1")

    def _close(self) -> None:
        fd, self._fd, self._holds = self._fd, -1, False
        if fd >= 0:
            os.close(fd)
