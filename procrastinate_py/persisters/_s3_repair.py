"""Looks over all tasks, some at a time, for what got lost: hints are only hints, and objects can be deleted by hand."""

from __future__ import annotations

from collections.abc import Callable

from ..core.errors import PersisterError, PersisterUnavailableError
from ._s3_batches import KEEP_TOMBSTONES, Batches
from ._s3_bucket import Conflict, PatientBucket
from ._s3_documents import TOMBSTONE_SIZE, Progress, progress_of
from ._s3_keys import REPAIR, made_at, task_key
from ._s3_leases import Leases
from ._s3_pool import Pool
from ._s3_tasks import Tasks

EVERY = 300.0
"""Seconds from page to page, however many workers there are."""
PAGE = 200
_FIRST_AFTER = 30.0


class Repair:
    def __init__(
        self,
        bucket: PatientBucket,
        tasks: Tasks,
        leases: Leases,
        batches: Batches,
        pool: Pool,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._bucket = bucket
        self._tasks = tasks
        self._leases = leases
        self._batches = batches
        self._pool = pool
        self._now = now
        self._monotonic = monotonic
        self._next_at = monotonic() + _FIRST_AFTER

    def go_on_if_due(self) -> None:
        """What a worker calls now and then. Raises nothing: it's tried again later."""
        if self._monotonic() < self._next_at:
            return
        self._next_at = self._monotonic() + EVERY
        try:
            self.go_on()
        except PersisterError:
            pass

    def go_on(self) -> None:
        """Looks at the next page, unless somebody did so lately."""
        found = self._bucket.get(REPAIR)
        progress = Progress(after="", at=0.0) if found is None else progress_of(found.body)
        if abs(self._now() - progress.at) < EVERY:
            return
        page = self._page(progress.after)
        after = page[-1][0] if len(page) == PAGE else ""
        try:
            body = Progress(after=after, at=self._now()).encoded()
            self._bucket.put(REPAIR, body, None if found is None else found.etag)
        except Conflict:
            return
        self._batches.help()
        self._look_at(page)

    def all(self) -> int:
        """Looks at all there is; how much was put right."""
        number = self._batches.help()
        after = ""
        while page := self._page(after):
            number += self._look_at(page)
            after = page[-1][0]
        return number

    def _page(self, after: str) -> list[tuple[str, int]]:
        return [entry for entry, _ in zip(self._tasks.ids(after, PAGE), range(PAGE), strict=False)]

    def _look_at(self, page: list[tuple[str, int]]) -> int:
        tombstones = [task_id for task_id, size in page if size == TOMBSTONE_SIZE]
        over = self._over(tombstones) if tombstones else []
        self._tasks.tidy([task_key(task_id) for task_id in over])
        answers = self._pool.each(self._mend, [task_id for task_id, size in page if size != TOMBSTONE_SIZE])
        for answer in answers:
            if isinstance(answer, PersisterUnavailableError):
                raise answer
        return len(over) + sum(answer is True for answer in answers)

    def _over(self, tombstones: list[str]) -> list[str]:
        """Those that keep no batch's task from coming back."""
        unfinished = self._batches.unfinished()
        made_before = self._now() - KEEP_TOMBSTONES
        return [
            task_id
            for task_id in tombstones
            if made_at(task_id) < made_before and not (unfinished and task_id >= unfinished[0])
        ]

    def _mend(self, task_id: str) -> bool:
        """Whether there was something to put right."""
        version = self._tasks.read(task_id)
        if version is None:
            return False
        if version.stored.token is not None:
            return self._leases.restore(version.stored.token, task_id)
        hint = version.stored.hint
        if hint is None or self._bucket.get(hint) is not None:
            return False
        self._tasks.put_hint(hint)
        return True
