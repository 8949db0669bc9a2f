"""Tasks as objects: each is rewritten only where it is still as it was read, and can be found while it may be claimed.

A hint is written before its task is, so that a task which can be claimed is never without one, wherever a process dies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..core.errors import PersisterUnavailableError
from ._s3_bucket import LARGEST_PAGE, Conflict, PatientBucket
from ._s3_documents import StoredTask, task_of, tombstone
from ._s3_keys import TASKS, Hint, due_prefix, hint_of, id_of, task_key

_TRIES = 100


class Gone:
    """What becomes of a task that is removed."""


GONE = Gone()
Decision = Callable[[StoredTask], StoredTask | Gone | None]
"""What is to become of a task; None: it stays as it is."""


class Version(NamedTuple):
    stored: StoredTask
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What was done. ``after`` None: the task is gone, but for a tombstone."""

    before: StoredTask
    after: Version | None
    litter: tuple[str, ...]
    """Keys that are of no use any more: removing them is no hurry."""


class Tasks:
    def __init__(self, bucket: PatientBucket) -> None:
        self._bucket = bucket

    def read(self, task_id: str) -> Version | None:
        found = self._bucket.get(task_key(task_id))
        if found is None:
            return None
        stored = task_of(task_id, found.body)
        return None if stored is None else Version(stored, found.etag)

    def create(self, stored: StoredTask) -> None:
        body = stored.encoded()
        self.put_hint(stored.hint)
        self._bucket.put_once(task_key(stored.record.id), body)

    def help_create(self, stored: StoredTask) -> None:
        """The same by any number of processes: the first one makes it."""
        self.put_hint(stored.hint)
        with contextlib.suppress(Conflict):
            self._bucket.put(task_key(stored.record.id), stored.encoded(), None)

    def rewrite(
        self, task_id: str, decide: Decision, known: Version | None = None, *, once: bool = False
    ) -> Rewrite | None:
        """Does what ``decide`` says of the task as it then is: asked again wherever somebody was faster, but with
        ``once`` nothing is done then. None where there's no such task, or nothing is done. ``known`` saves reading it
        first, if it's still so."""
        version = known or self.read(task_id)
        litter: list[str] = []
        for _ in range(_TRIES):
            after = None if version is None else decide(version.stored)
            if version is None or after is None:
                self.tidy(litter)
                return None
            try:
                written = self._write(version, after)
            except Conflict:
                if isinstance(after, StoredTask) and after.hint is not None:
                    litter.append(after.hint)
                version = None if once else self.read(task_id)
                continue
            litter += [key for key in (version.stored.hint, None if written else task_key(task_id)) if key is not None]
            if version.stored.batch is not None and written is None:
                litter.remove(task_key(task_id))  # those who help its batch in would bring it back
            return Rewrite(before=version.stored, after=written, litter=tuple(litter))
        raise PersisterUnavailableError(f"task {task_id} was changed by others {_TRIES} times in a row")

    def _write(self, version: Version, after: StoredTask | Gone) -> Version | None:
        key = task_key(version.stored.record.id)
        if isinstance(after, Gone):
            self._bucket.put(key, tombstone(), version.etag)
            return None
        body = after.encoded()
        self.put_hint(after.hint)
        return Version(after, self._bucket.put(key, body, version.etag))

    def put_hint(self, key: str | None) -> None:
        """So that the task can be found while it may be claimed."""
        if key is not None:
            with contextlib.suppress(Conflict):
                self._bucket.put(key, b"", None)

    def remove(self, version: Version) -> None:
        """Whatever becomes of it meanwhile."""
        record, hint = version.stored.record, version.stored.hint
        if version.stored.batch is not None:
            self.rewrite(record.id, lambda stored: GONE)
        keys = [] if version.stored.batch is not None else [task_key(record.id)]
        self._bucket.delete(keys if hint is None else [*keys, hint])

    def tidy(self, litter: Sequence[str]) -> None:
        """Removes what nobody would miss, nor be led astray by."""
        if litter:
            with contextlib.suppress(PersisterUnavailableError):
                self._bucket.delete(litter)

    def due(self, queue: str, page: int) -> Iterator[Hint]:
        """The queue's hints in order of run_at, then id; read page by page."""
        prefix = due_prefix(queue)
        after = ""
        while True:
            found = self._bucket.list(prefix, after, min(max(page, 1), LARGEST_PAGE))
            for entry in found.entries:
                hint = hint_of(entry.key)
                if hint is not None:
                    yield hint
            if found.is_last or not found.entries:
                return
            after = found.entries[-1].key

    def ids(self, after: str = "", page: int = LARGEST_PAGE) -> Iterator[tuple[str, int]]:
        """Ids greater than ``after``, in order, and the sizes of their objects."""
        key = f"{TASKS}{after}" if after else ""
        while True:
            found = self._bucket.list(TASKS, key, min(max(page, 1), LARGEST_PAGE))
            for entry in found.entries:
                task_id = id_of(entry.key)
                if task_id is not None:
                    yield task_id, entry.size
            if found.is_last or not found.entries:
                return
            key = found.entries[-1].key
