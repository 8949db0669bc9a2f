"""Keeps forks away from the middle of a statement.

SQLite remembers within the process who holds which lock of a file. A child that is forked while another thread writes
inherits that memory, and nobody in it will ever let go: whatever it opens, the file stays locked to it for good.
"""

from __future__ import annotations

import os
import threading
import weakref

_PATIENCE = 10.0
"""Seconds that a fork waits for a statement to end: beyond it, something is wrong with that one, not with the fork."""

_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
_making = threading.Lock()
_held = threading.local()


def lock_that_forks_wait_for() -> threading.Lock:
    """To be held by whoever is in the middle of a statement."""
    lock = threading.Lock()
    with _making:
        _locks.add(lock)
    return lock


def _before() -> None:
    with _making:
        locks = sorted(_locks, key=id)  # in one order, should two threads fork at once
    _held.locks = [lock for lock in locks if lock.acquire(timeout=_PATIENCE)]


def _after() -> None:
    held, _held.locks = _held.locks, []
    for lock in held:
        lock.release()


def _after_in_child() -> None:
    global _making
    _making = threading.Lock()
    _after()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
