"""The name by which a store knows who holds a task: this process, and no other that ever was or will be."""

from __future__ import annotations

import os

_UNKNOWN = "-"
_LONGEST_HOST = 100


def new_owner() -> str:
    """``host:pid:start:random``. ``start`` is when the process began, in the system's own ticks, so that a later
    process with the same pid isn't taken for this one; the rest tells apart what even that can't (a reboot, a clone of
    a machine)."""
    pid = os.getpid()
    return f"{_host()}:{pid}:{_started(pid) or _UNKNOWN}:{os.urandom(4).hex()}"


def lives(owner: str) -> bool:
    """Whether the process that called itself so is there, as far as it can be seen from here. False for this process's
    own pid: whoever asks holds what the owner held."""
    try:
        host, number, started, _ = owner.rsplit(":", 3)
        pid = int(number)
    except ValueError:
        return False
    if host != _host() or pid == os.getpid() or not _is_there(pid):
        return False
    seen = _started(pid)
    return seen is None or started in (_UNKNOWN, seen)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (OverflowError, ProcessLookupError):
        return False
    except OSError:
        return True  # and another user's
    return True


def _host() -> str:
    return "".join(os.uname().nodename.split())[:_LONGEST_HOST]


def _started(pid: int) -> str | None:
    """None where the system doesn't tell. A file and no library: this is asked once in a process's life."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is a name in parentheses, which may hold anything; the start is the 22nd.
            return file.read().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError, ValueError):
        return None
