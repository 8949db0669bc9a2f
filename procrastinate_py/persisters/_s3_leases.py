"""Leases as objects, one for each claim: extending all that a claim took is one write.

A lease's object is written before its tasks carry its token, so that whatever is in hand is found when it lapses. To
take a task over from a lease that has lapsed, it's first taken away in the object: from then on it can't be extended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from ..core.errors import PersisterUnavailableError
from ..core.lease import Lease
from ._s3_bucket import Conflict, Listed, PatientBucket
from ._s3_documents import LeaseDocument, StoredTask, leases_of
from ._s3_keys import lease_key, lease_prefix, lease_value, new_lease_value

_TRIES = 100
_MOST_KNOWN = 1000
TAKEN_AWAY = 0.0


class Leases:
    def __init__(self, bucket: PatientBucket) -> None:
        self._bucket = bucket
        self._known: dict[str, tuple[str, LeaseDocument]] = {}

    def begin(self, queue: str, owner: str, task_ids: Collection[str], end: float) -> str:
        """Returns the value of its tokens."""
        value = new_lease_value(queue, owner)
        document = LeaseDocument(owner=owner, ends=dict.fromkeys(task_ids, end))
        self._remember(value, self._bucket.put(f"leases/{value}", document.encoded(), None), document)
        return value

    def lease_of(self, stored: StoredTask, seen: dict[str, LeaseDocument | None] | None = None) -> Lease | None:
        """The task's lease, None in nobody's hand. ``seen`` saves reading an object twice."""
        if stored.token is None:
            return None
        seen = {} if seen is None else seen
        if stored.token not in seen:
            seen[stored.token] = self._read(stored.token)
        document = seen[stored.token]
        if document is None:
            return Lease("", TAKEN_AWAY)
        return Lease(document.owner, _end(document, stored.record.id))

    def extend(self, value: str, task_ids: Collection[str], end: float) -> set[str]:
        """Returns the ids whose lease is lost."""

        def extended(document: LeaseDocument) -> LeaseDocument | None:
            ends = {task_id: end for task_id in task_ids if document.ends.get(task_id) is not None}
            return replace(document, ends={**document.ends, **ends}) if ends else None

        document = self._change(value, extended)
        return {task_id for task_id in task_ids if document is None or document.ends.get(task_id) is None}

    def take_away(self, value: str, task_ids: Collection[str], has_ended: Callable[[float], bool]) -> set[str]:
        """Returns those of the ids that can't be extended any more: unless they were extended meanwhile."""

        def taken(document: LeaseDocument) -> LeaseDocument | None:
            lapsed = [
                task_id for task_id in task_ids if (end := document.ends.get(task_id)) is not None and has_ended(end)
            ]
            return replace(document, ends={**document.ends, **dict.fromkeys(lapsed)}) if lapsed else None

        document = self._change(value, taken)
        if document is None:
            return set()
        return {task_id for task_id in task_ids if task_id in document.ends and document.ends[task_id] is None}

    def drop(self, value: str, task_ids: Collection[str]) -> None:
        """They're not in this lease's hand any more. Where it fails, that is found out when the lease has lapsed."""

        def without(document: LeaseDocument) -> LeaseDocument | None:
            return document.without(task_ids) if any(task_id in document.ends for task_id in task_ids) else None

        with contextlib.suppress(PersisterUnavailableError):
            self._change(value, without)

    def restore(self, value: str, task_id: str) -> bool:
        """A task carries the token: if the object is gone or doesn't know of it, it's had by the next who looks for
        lapsed leases. Whether that was so."""
        key, restored = lease_key(value), False
        if key is None:
            return False

        def with_it(document: LeaseDocument) -> LeaseDocument | None:
            nonlocal restored
            restored = task_id not in document.ends
            return replace(document, ends={**document.ends, task_id: None}) if restored else None

        if self._change(value, with_it) is None:
            restored = True
            with contextlib.suppress(Conflict):
                self._bucket.put(key, LeaseDocument(owner="", ends={task_id: None}).encoded(), None)
        return restored

    def of_queue(self, queue: str, owner: str | None = None) -> Iterator[tuple[str, LeaseDocument]]:
        """One listing, and a reading of each object that has changed since it was read last."""
        prefix, after = lease_prefix(queue, owner), ""
        while True:
            page = self._bucket.list(prefix, after)
            for entry in page.entries:
                document = self._listed(entry)
                if document is not None and (owner is None or document.owner == owner):
                    yield lease_value(entry.key), document
            if page.is_last or not page.entries:
                return
            after = page.entries[-1].key

    def next_end(self, queue: str) -> float | None:
        ends = [_end(document, task_id) for _, document in self.of_queue(queue) for task_id in document.ends]
        return min(ends, default=None)

    def _listed(self, entry: Listed) -> LeaseDocument | None:
        value = lease_value(entry.key)
        known = self._known.get(value)
        return known[1] if known is not None and known[0] == entry.etag else self._read(value)

    def _read(self, value: str) -> LeaseDocument | None:
        key = lease_key(value)
        found = None if key is None else self._bucket.get(key)
        if found is None:
            self._known.pop(value, None)
            return None
        document = leases_of(found.body)
        self._remember(value, found.etag, document)
        return document

    def _change(self, value: str, edit: Callable[[LeaseDocument], LeaseDocument | None]) -> LeaseDocument | None:
        """The document as it is after the edit, which returns None where there's nothing to change. None where there's
        no such object. One that holds no lease any more is removed."""
        key = lease_key(value)
        for attempt in range(_TRIES if key is not None else 0):
            if attempt or value not in self._known:
                self._read(value)
            known = self._known.get(value)
            if known is None or key is None:
                return None
            after = edit(known[1])
            if after is None and attempt == 0:
                self._read(value)  # what was known may be of yesterday
                continue
            if after is None:
                return known[1]
            try:
                self._write(value, key, after, known[0])
            except Conflict:
                continue
            return after
        if key is None:
            return None
        raise PersisterUnavailableError(f"leases were changed by others {_TRIES} times in a row")

    def _write(self, value: str, key: str, document: LeaseDocument, etag: str) -> None:
        if document.ends:
            self._remember(value, self._bucket.put(key, document.encoded(), etag), document)
        else:
            self._bucket.delete([key])
            self._known.pop(value, None)

    def _remember(self, value: str, etag: str, document: LeaseDocument) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[value] = (etag, document)


def _end(document: LeaseDocument, task_id: str) -> float:
    end = document.ends.get(task_id)
    return TAKEN_AWAY if end is None else end


def grouped(pairs: Collection[tuple[str, str]]) -> Mapping[str, list[str]]:
    """Task ids by the value of their token."""
    groups: dict[str, list[str]] = {}
    for value, task_id in pairs:
        groups.setdefault(value, []).append(task_id)
    return groups
