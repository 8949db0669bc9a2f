"""The names of the S3 store's objects, which sort by time, and what a name tells.

tasks/ID                                  a task's record
due/QUEUE/RUN_AT/ID.REVISION              a hint that this revision of the task can be claimed from RUN_AT on
leases/QUEUE/OWNER/NUMBER                 the leases of one claim
batches/ID                                tasks that were put in together and may not all be in their places yet
repair                                    how far the repair has looked
"""

from __future__ import annotations

import os
import re
import threading
from typing import NamedTuple

from ..core.queue import file_stem

TASKS = "tasks/"
BATCHES = "batches/"
REPAIR = "repair"
_ID = re.compile(r"[0-9a-f]{14}-[0-9a-f]{12}")
_LEASE = re.compile(r"[^/]{1,200}/[^/]{1,200}/[0-9a-f]{16}")
_HINT = re.compile(r"due/[^/]+/(?P<run_at>[0-9]{20})/(?P<id>[0-9a-f]{14}-[0-9a-f]{12})\.(?P<revision>[0-9a-f]{16})")
_ZERO = 10**19


class Hint(NamedTuple):
    key: str
    run_at: int
    task_id: str
    revision: str


def task_key(task_id: str) -> str:
    return f"{TASKS}{task_id}"


def due_prefix(queue: str) -> str:
    return f"due/{_segment(queue)}/"


def hint_key(queue: str, run_at: int, task_id: str, revision: str) -> str:
    """Instants before 1970 too are sorted by their digits."""
    return f"{due_prefix(queue)}{_ZERO + run_at:020}/{task_id}.{revision}"


def hint_of(key: str) -> Hint | None:
    """None where the key is nobody's hint."""
    match = _HINT.fullmatch(key)
    if match is None:
        return None
    return Hint(key, int(match["run_at"]) - _ZERO, match["id"], match["revision"])


def lease_prefix(queue: str, owner: str | None = None) -> str:
    return f"leases/{_segment(queue)}/" if owner is None else f"leases/{_segment(queue)}/{_segment(owner)}/"


def new_lease_value(queue: str, owner: str) -> str:
    """The value of the tokens of one claim: the name of its leases' object."""
    return f"{_segment(queue)}/{_segment(owner)}/{os.urandom(8).hex()}"


def lease_key(value: object) -> str | None:
    """None where no token has such a value."""
    return f"leases/{value}" if isinstance(value, str) and _LEASE.fullmatch(value) else None


def lease_value(key: str) -> str:
    return key.removeprefix("leases/")


def is_task_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def id_of(key: str) -> str | None:
    """The task's id, None where the key is no task's."""
    task_id = key.removeprefix(TASKS)
    return task_id if is_task_id(task_id) else None


def batch_key(batch: str) -> str:
    return f"{BATCHES}{batch}"


def made_at(task_id: str) -> float:
    """When the id was made, by the store's clock."""
    return int(task_id[:14], 16) / 1e6


class IdMaker:
    """Ids that grow, within one process even while its clock stands still."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self, now: float) -> str:
        with self._lock:
            self._last = max(self._last + 1, int(now * 1e6))
            return f"{self._last:014x}-{os.urandom(6).hex()}"


def _segment(name: str) -> str:
    return file_stem(name) or "%"
