"""What is written in the S3 store's objects: JSON, a document each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.errors import PersisterError
from ..core.task import ATTRIBUTES, TaskRecord, TaskState
from ._s3_keys import hint_key

_KEPT = tuple(name for name in ATTRIBUTES if name != "id")
_LARGEST_REVISION = 16**8
_REVISION = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    """A task's record as it lies in the store; who has it in hand until when, its lease's object tells.

    ``revision`` grows with every writing that puts the task into nobody's hand: its first half counts, the other tells
    racing writers apart. ``token`` is the value of the lease token that fences it, None in nobody's hand. ``batch``
    is the one it came with, where it came with others.
    """

    record: TaskRecord
    revision: str
    token: str | None = None
    batch: str | None = None

    @property
    def hint(self) -> str | None:
        """The key of the hint that a claim finds it by, None where it can't be claimed."""
        if self.token is not None or self.record.run_at is None:
            return None
        return hint_key(self.record.queue, self.record.run_at, self.record.id, self.revision)

    def in_hand(self, token: str) -> StoredTask:
        return replace(self, token=token)

    def free(self, record: TaskRecord) -> StoredTask:
        """What follows it where the task is in nobody's hand (any more)."""
        return replace(self, record=replace(record, lease=None), revision=_after(self.revision), token=None)

    def encoded(self) -> bytes:
        """Raises PersisterError where a value can't be stored."""
        record = self.record
        document = {name: getattr(record, name) for name in _KEPT}
        check_values(document)
        if record.closed_as is not None:
            document |= {"closed_as": record.closed_as.value, "closed_at": record.closed_at}
        document |= {"revision": self.revision, "writing": os.urandom(8).hex()}
        if self.token is not None:
            document["token"] = self.token
        if self.batch is not None:
            document["batch"] = self.batch
        return _bytes(document)


def new_revision() -> str:
    return f"{1:08x}{os.urandom(4).hex()}"


def _after(revision: str) -> str:
    return f"{(int(revision[:8], 16) + 1) % _LARGEST_REVISION:08x}{os.urandom(4).hex()}"


def generation(revision: str) -> int:
    return int(revision[:8], 16)


def tombstone() -> bytes:
    """What a completed task's object holds until it's removed."""
    return _bytes({"gone": os.urandom(8).hex()})


TOMBSTONE_SIZE = len('{"gone":"0123456789abcdef"}')
"""No task's document is as short, so a listing tells which of them are gone."""


def task_of(task_id: str, body: bytes) -> StoredTask | None:
    """None for a tombstone. Raises PersisterError for what no version of this store has written."""
    document = _document(body, f"task {task_id}")
    return None if "gone" in document else _task(task_id, document)


def encoded_batch(tasks: Sequence[StoredTask]) -> bytes:
    """Raises PersisterError where a value of any of them can't be stored."""
    return b'{"tasks":{' + b",".join(b'"%s":%s' % (task.record.id.encode(), task.encoded()) for task in tasks) + b"}}"


def tasks_of(body: bytes) -> list[StoredTask]:
    """Of a batch."""
    documents = _document(body, "a batch").get("tasks")
    if not isinstance(documents, dict):
        raise PersisterError("a batch isn't one of this store's")
    return [_task(task_id, document) for task_id, document in documents.items()]


def _task(task_id: str, document: Mapping[str, Any]) -> StoredTask:
    try:
        closed_as = document.get("closed_as")
        record = TaskRecord(
            id=task_id,
            closed_as=None if closed_as is None else TaskState(closed_as),
            closed_at=document.get("closed_at"),
            **{name: document[name] for name in _KEPT},
        )
        stored = StoredTask(
            record=record,
            revision=document["revision"],
            token=document.get("token"),
            batch=document.get("batch"),
        )
        _check_task(stored)
        return stored
    except (KeyError, ValueError, TypeError, PersisterError):
        raise PersisterError(f"the object of task {task_id} isn't one of this store's") from None


def _check_task(stored: StoredTask) -> None:
    """Raises where it couldn't be worked with or written again, as after somebody's editing: then it's this task's
    trouble alone."""
    record = stored.record
    maybe_text = (record.last_error, stored.token, stored.batch)
    maybe_whole = (record.run_at, record.initial_run_at, record.expire_at, record.last_fail_at, record.closed_at)
    for text in (record.queue, record.task, stored.revision, *(text for text in maybe_text if text is not None)):
        _text(text)
    for number in (record.attempts, *(number for number in maybe_whole if number is not None)):
        _whole(number)
    if _REVISION.fullmatch(stored.revision) is None:
        raise ValueError("it isn't one of this store's revisions")
    check_values({name: getattr(record, name) for name in _KEPT})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("it isn't text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("it isn't a whole number")
    return value


def _instant(value: object) -> float:
    """What is no number, or as JSON can't tell it (NaN), couldn't be compared."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 2**63:
        raise TypeError("it isn't an instant")
    return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseDocument:
    """The leases of one claim. ``ends``: until when, by task id; None: taken away, never to be extended again."""

    owner: str
    ends: Mapping[str, float | None] = field(default_factory=dict)

    def without(self, task_ids: Collection[str]) -> LeaseDocument:
        return replace(self, ends={task_id: end for task_id, end in self.ends.items() if task_id not in task_ids})

    def encoded(self) -> bytes:
        check_values({"owner": self.owner})
        return _bytes({"owner": self.owner, "ends": dict(self.ends), "writing": os.urandom(8).hex()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the repair has looked, and when it last went on."""

    after: str
    at: float

    def encoded(self) -> bytes:
        return _bytes({"after": self.after, "at": self.at, "writing": os.urandom(8).hex()})


def progress_of(body: bytes) -> Progress:
    """From the beginning where it can't be read."""
    try:
        document = _document(body, "the object that tells how far the repair is")
        return Progress(after=_text(document["after"]), at=_instant(document["at"]))
    except (KeyError, ValueError, TypeError, PersisterError):
        return Progress(after="", at=0.0)


def leases_of(body: bytes) -> LeaseDocument:
    """Holds no lease where it can't be read: one broken object mustn't hold up a queue, and the repair finds the tasks
    that it led to."""
    try:
        document = _document(body, "an object of leases")
        ends = {task_id: None if end is None else _instant(end) for task_id, end in document["ends"].items()}
        return LeaseDocument(owner=_text(document["owner"]), ends=ends)
    except (KeyError, ValueError, TypeError, AttributeError, PersisterError):
        return LeaseDocument(owner="")


def check_values(values: Mapping[str, object]) -> None:
    """Raises PersisterError for an int beyond 64 bits and for text that has no UTF-8."""
    for name, value in values.items():
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise PersisterError(f"{name} can't be stored as UTF-8: {error.reason} at {error.start}") from None
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise PersisterError(f"{name} is too large: whole numbers of 64 bits are stored")


def _bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _document(body: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise PersisterError(f"{what} holds no document of this store's")
    return document
