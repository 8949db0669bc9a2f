"""Which tasks a queue process has begun, in a memory-mapped file that outlives the process however it dies.

A task is noted before any of its code runs, and struck out once what became of it has been written. The next process
finds here what a dead one left, without a call to the store. The file is also the lock that makes a queue's consumer
sole: a POSIX lock, since it ends with the process and isn't passed on to what the process forks.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from ..core.lease import TaskId
from ..core.queue import file_stem

_MAGIC = b"PPINHAND1\0\0\0\0\0\0\0"
_OWNER_BYTES = 1008
_MOST_OWNERS = 4
_HEADER = struct.Struct(f"<16s{_OWNER_BYTES}s")
_SLOT = struct.Struct("<BBxxxxxxd112s")
_LONGEST_KEY = 112
_SLOTS = 8192
_SIZE = _HEADER.size + _SLOTS * _SLOT.size

# Where a task has several notes, the highest phase tells.
EXPIRY = 1
"""The hook of a task that expired before it could run had begun: nothing to count, but the hook kills."""
BODY = 2
"""The task's own attempt had begun."""
RECOVERY = 3
"""A hook for an attempt that an earlier death ended had begun: a second death means that the hook kills."""

MOST_PROCESSES = 1000
"""That may work one queue of a store with leases, with one run_dir."""


def sole_path(run_dir: str, queue: str) -> Path:
    """The file of the one process that works a floor persister's queue."""
    return Path(run_dir, f"{file_stem(queue)}.in-hand")


def shared_path(run_dir: str, queue: str, number: int) -> Path:
    """One of those of a queue that several processes may work. A stem may hold dots and digits, but no ``@``, so no
    other queue's file has this name."""
    return Path(run_dir, f"{file_stem(queue)}@{number}.in-hand")


@dataclass(frozen=True, slots=True)
class Begun:
    """A task that a dead process had begun. ``deadline`` is a monotonic instant, infinite where there was none."""

    key: bytes
    deadline: float
    phase: int


@dataclass(frozen=True, slots=True)
class LastWords:
    """What dead processes left behind: the newest owner first, for one may have died while it recovered another."""

    owners: tuple[str, ...]
    begun: tuple[Begun, ...]


def key_of(task_id: TaskId, attempts: int = 0) -> bytes:
    """A task, by its id of any type and its stored attempts, as at most 112 bytes; no two share a key.

    Attempts belong to it since a row that has changed was settled, even if its note couldn't be struck out any more.
    """
    key = f"{type(task_id).__name__}:{attempts}:{task_id}".encode("utf-8", "surrogatepass")
    if len(key) <= _LONGEST_KEY:
        return key
    import hashlib  # here, since OpenSSL costs 4 MiB and few ids are long

    return b"#" + hashlib.sha256(key).hexdigest().encode()


class InHandFile:
    """Held by one live process at a time. ``left`` is what earlier holders left, None after a clean end."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        _reserve(fd)
        self._map = mmap.mmap(fd, _SIZE)
        self._owner = ""
        self._left_slots: list[int] = []
        self.left = self._read()
        left = set(self._left_slots)
        self._free = [slot for slot in range(_SLOTS - 1, -1, -1) if slot not in left]

    @classmethod
    def try_acquire(cls, path: Path) -> InHandFile | None:
        """None where another live process holds it. Raises OSError where the folder can't be written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(path, fd)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, BlockingIOError | PermissionError):
                return None
            raise

    def is_held(self) -> bool:
        """Whether it still keeps others away. Not where somebody has removed it, as by emptying the folder: the next
        who comes makes another. A lock that was dropped, as when a task opens and closes the file, is taken back."""
        try:
            here, held = os.stat(self.path), os.fstat(self._fd)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (held.st_dev, held.st_ino)

    def take(self, owner: str) -> None:
        """Makes the file this process's. What was left stays noted until ``recovered``."""
        self._owner = owner
        self._write_owners(owner, *(self.left.owners[: _MOST_OWNERS - 1] if self.left else ()))

    def recovered(self) -> None:
        """What was left is settled or in this process's hand by now."""
        for slot in self._left_slots:
            self.end(slot)
        self._left_slots = []
        self.left = None
        self._write_owners(self._owner)

    def begin(self, key: bytes, deadline: float, phase: int) -> int:
        """Notes a task. Returns its slot, or -1 where there's no room: then a crash takes it as not begun."""
        try:
            slot = self._free.pop()
        except IndexError:
            return -1
        offset = _HEADER.size + slot * _SLOT.size
        _SLOT.pack_into(self._map, offset, 0, len(key), deadline, key)
        self._map[offset] = phase  # last, so that a death in between leaves no half-written note
        return slot

    def end(self, slot: int) -> None:
        if slot >= 0:
            self._map[_HEADER.size + slot * _SLOT.size] = 0
            self._free.append(slot)

    def close(self, *, clean: bool) -> None:
        """After a clean end nothing is left in hand, so the next process has nothing to recover."""
        if clean:
            self._write_owners()
        self._map.close()
        os.close(self._fd)

    def _write_owners(self, *owners: str) -> None:
        _HEADER.pack_into(self._map, 0, _MAGIC, "\n".join(owners).encode("utf-8", "replace")[:_OWNER_BYTES])

    def _read(self) -> LastWords | None:
        magic, text = _HEADER.unpack_from(self._map, 0)
        owners = tuple(text.rstrip(b"\0").decode("utf-8", "replace").split())
        if magic != _MAGIC or not owners:
            self._map[:] = bytes(_SIZE)
            return None
        begun = []
        for slot in range(_SLOTS):
            offset = _HEADER.size + slot * _SLOT.size
            if self._map[offset]:
                phase, length, deadline, key = _SLOT.unpack_from(self._map, offset)
                begun.append(Begun(key[:length], deadline, phase))
                self._left_slots.append(slot)
        return LastWords(owners, tuple(begun))


def acquire_shared(run_dir: str, queue: str) -> InHandFile:
    """A file of one's own, of a queue that several processes may work: one that a dead process left with something in
    it, if there is such a one, so that this is recovered at once and not when its leases lapse. Raises OSError."""
    clean: list[InHandFile] = []
    try:
        for number in range(MOST_PROCESSES):
            path = shared_path(run_dir, queue, number)
            if clean and not path.exists():
                break
            own = InHandFile.try_acquire(path)
            if own is not None and own.left is not None:
                return own
            if own is not None:
                clean.append(own)
        if clean:
            return clean.pop(0)
        raise OSError(f"{MOST_PROCESSES} processes work queue {queue!r} with one run_dir")
    finally:
        for file in clean:
            file.close(clean=True)


def _reserve(fd: int) -> None:
    """Gives the file all its blocks, or raises OSError: a write to memory that a full disk has none for would kill the
    process (SIGBUS)."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, _SIZE)
    else:
        size = os.fstat(fd).st_size
        os.pwrite(fd, bytes(max(0, _SIZE - size)), size)
