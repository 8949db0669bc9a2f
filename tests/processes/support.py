"""What the tests of processes share: waiting on facts, finding processes, stand-ins for a queue's process."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from procrastinate_py.runtime.pipes import EventPipe, LineReader, QueuePipes

T = TypeVar("T")

SAFETY = 60.0
"""Seconds after which a fact that hasn't come true never will. No test depends on how long anything takes."""


def eventually(fact: Callable[[], T], what: str = "", patience: float = SAFETY) -> T:
    """Waits until ``fact()`` is true, and returns what it gave."""
    until = time.monotonic() + patience
    while True:
        found = fact()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"didn't come true: {what or fact}")
        time.sleep(0.005)


def lines_of(path: Path) -> list[str]:
    """The whole lines of a file that others append to."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return text[: text.rfind("\n") + 1].splitlines()


def append(path: str | os.PathLike[str], line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


# --- processes


def is_running(pid: int) -> bool:
    """Whether it exists and is no zombie."""
    return state_of_process(pid) not in (None, "Z", "X")


def state_of_process(pid: int) -> str | None:
    stat = _stat(pid)
    return None if stat is None else stat[0]


def parent_of(pid: int) -> int | None:
    stat = _stat(pid)
    return None if stat is None else int(stat[1])


def title_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


def descriptors_of(pid: int) -> dict[int, str]:
    found = {}
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/{pid}/fd/{entry}")
        except OSError:
            continue
    return found


def in_session(session: int) -> list[int]:
    """Every live process of a session, zombies left out."""
    found = []
    for entry in os.listdir("/proc"):
        stat = _stat(int(entry)) if entry.isdigit() else None
        if stat is not None and int(stat[3]) == session and stat[0] not in "ZX":
            found.append(int(entry))
    return found


def kill_session(session: int) -> None:
    for pid in in_session(session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def children_of(parent: int) -> list[int]:
    """Zombies too."""
    found = []
    for entry in os.listdir("/proc"):
        stat = _stat(int(entry)) if entry.isdigit() else None
        if stat is not None and int(stat[1]) == parent and stat[0] != "X":
            found.append(int(entry))
    return found


def _stat(pid: int) -> list[str] | None:
    """state, parent, group, session, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


@contextmanager
def no_process_left() -> Iterator[None]:
    """All children that came meanwhile have gone, and were waited for."""
    before = set(children_of(os.getpid()))
    yield
    left = [pid for pid in children_of(os.getpid()) if pid not in before]
    assert not left, [(pid, state_of_process(pid), title_of(pid)) for pid in left]


# --- stand-ins for a queue's process


def obedient(plan: Any, index: int, pipes: QueuePipes, cause: str | None) -> None:
    """Ends when it's told to, or when whoever it works for has gone."""
    note = Path(plan.notes)
    append(note, f"{index} begins {os.getpid()} {cause}")
    EventPipe(pipes.events).begun()
    poll = select.poll()
    poll.register(pipes.application, select.POLLIN)
    poll.register(pipes.orders, select.POLLIN)
    poll.poll()
    orders = LineReader(pipes.orders)
    append(note, f"{index} ends {os.getpid()} {orders.lines()} {orders.at_end}")


def stubborn(plan: Any, index: int, pipes: QueuePipes, cause: str | None) -> None:
    """Heeds nothing."""
    append(plan.notes, f"{index} begins {os.getpid()} {cause}")
    EventPipe(pipes.events).begun()
    while True:
        signal.pause()
