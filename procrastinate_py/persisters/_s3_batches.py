"""Many tasks at once, all or none: they're stored when one object is that holds them all.

Whoever wrote it then puts each task in its place, and if it's cut short, others help. So that a helper who comes late
brings nothing back, a task that came with others leaves a tombstone until its batch is long gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..core.errors import PersisterError, PersisterUnavailableError
from ._s3_bucket import PatientBucket
from ._s3_documents import StoredTask, encoded_batch, tasks_of
from ._s3_keys import BATCHES, batch_key, is_task_id, made_at
from ._s3_pool import Pool
from ._s3_tasks import Tasks

HELP_AFTER = 120.0
"""Seconds after which it's not expected that whoever wrote a batch will put its tasks in their places."""
_HELP_FOR = 600.0
KEEP_TOMBSTONES = 3600.0
"""Longer than anybody puts tasks in their places."""


class Batches:
    def __init__(
        self,
        bucket: PatientBucket,
        tasks: Tasks,
        pool: Pool,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._bucket = bucket
        self._tasks = tasks
        self._pool = pool
        self._now = now
        self._monotonic = monotonic

    def create(self, tasks: Sequence[StoredTask]) -> None:
        """Its name is its first id, so it's no greater than any of its tasks'."""
        if len(tasks) < 2:
            for task in tasks:
                self._tasks.create(task)
            return
        batch = str(tasks[0].record.id)
        tasks = [replace(task, batch=batch) for task in tasks]
        self._bucket.put_once(batch_key(batch), encoded_batch(tasks))
        self._put_in_place(batch, tasks)

    def help(self) -> int:
        """Puts the tasks of unfinished batches in their places; how many batches there were. One that can't be read
        holds up nobody."""
        number = 0
        for batch in [batch for batch in self.unfinished() if self._now() - made_at(batch) > HELP_AFTER]:
            found = self._bucket.get(batch_key(batch))
            if found is not None and (tasks := _readable(found.body)) is not None:
                self._put_in_place(batch, tasks)
                number += 1
        return number

    def unfinished(self) -> list[str]:
        """The oldest, in order."""
        names = [entry.key.removeprefix(BATCHES) for entry in self._bucket.list(BATCHES).entries]
        return [name for name in names if is_task_id(name)]

    def _put_in_place(self, batch: str, tasks: Sequence[StoredTask]) -> None:
        """Where that fails, the batch stays for others. Nothing is put in place by one who was away for long, since
        the tombstones may be gone."""
        until = self._monotonic() + _HELP_FOR

        def put(task: StoredTask) -> None:
            if self._monotonic() > until:
                raise PersisterUnavailableError("putting a batch in its place took too long: others will do it")
            self._tasks.help_create(task)

        answers = self._pool.each(put, tasks)
        if not any(isinstance(answer, PersisterError) for answer in answers):
            with contextlib.suppress(PersisterUnavailableError):
                self._bucket.delete([batch_key(batch)])


def _readable(body: bytes) -> list[StoredTask] | None:
    try:
        return tasks_of(body)
    except PersisterError:
        return None
