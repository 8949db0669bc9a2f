"""How a task is kept in Redis, and under which keys.

A task is one text: a line with what changes, a line with what doesn't, and the stored text of the task itself. A script
can so put a new first line before the rest without reading either. Instants and numbers stand there as they are; only
run_at is a score too, which a double must hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..core.errors import PersisterError
from ..core.lease import Lease, LeaseToken
from ..core.lifecycle import Close, Reschedule
from ..core.task import Claim, NewTask, TaskRecord, TaskState
from ._redis_defects import check_numbers, defective

STRIDE = 10_000
"""How many queues there may be: an id is a number in the queue times this, and the queue's own number."""
CLOSED_STATES = (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.EXPIRED)
_PLACES = {state: str(place).encode() for place, state in enumerate(CLOSED_STATES, 1)}
_EXACT = 2**53
_read = json.JSONDecoder().raw_decode
_INDEX = ("completed", "failed", "cancelled", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueKeys:
    """A queue's keys, as groups in the order in which the scripts take them. All are in one hash slot."""

    channel: bytes
    meta: bytes
    create: tuple[bytes, ...]
    claim: tuple[bytes, ...]
    lapsed: tuple[bytes, ...]
    extend: tuple[bytes, ...]
    row: tuple[bytes, ...]
    look: tuple[bytes, ...]
    find: tuple[bytes, ...]
    page: tuple[bytes, ...]
    count: tuple[bytes, ...]
    closed: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A task as it was read: the record, and what is kept of it, by which it's known whether it changed since."""

    record: TaskRecord
    text: bytes
    lease: bytes
    end: bytes


def keys_of(prefix: str, queue: str) -> QueueKeys:
    """Raises PersisterError for a name that has no UTF-8."""
    slot = f"{{{prefix}:{queue}}}"

    def key(name: str) -> bytes:
        return _utf8(f"{slot}:{name}")

    meta, due, leased, leases, tasks, ids = map(key, ("meta", "due", "leased", "leases", "tasks", "ids"))
    closed = tuple(map(key, _INDEX))
    return QueueKeys(
        channel=key("wake"),
        meta=meta,
        create=(meta, due, tasks, ids),
        claim=(due, leased, leases, tasks),
        lapsed=(leased, leases, tasks),
        extend=(leased, leases),
        row=(leased, leases, due, tasks, ids, *closed),
        look=(due, leased),
        find=(meta, tasks, leases, leased),
        page=(ids, tasks, leases, leased),
        count=(due, leased, *closed),
        closed=closed,
    )


def member(task_id: int) -> str:
    """The id as it's a member of sets: of one length, so that what sorts by text sorts by number."""
    return f"{task_id:016d}"


def is_id(task_id: object) -> bool:
    """Whether a task could have this id."""
    return isinstance(task_id, int) and STRIDE <= task_id < _EXACT


def place_of(state: TaskState | None) -> bytes:
    return b"" if state is None else _PLACES[state]


def score_of(run_at: int | None) -> bytes:
    """Raises PersisterError for an instant that Redis couldn't keep exactly."""
    if run_at is None:
        return b""
    if not isinstance(run_at, int):
        raise PersisterError(f"run_at must be an int, not a {type(run_at).__name__}")
    if not -_EXACT <= run_at <= _EXACT:
        raise PersisterError("run_at is an instant that Redis couldn't keep exactly: it's beyond 2**53 seconds")
    return b"%d" % run_at


def new_text(task: NewTask) -> tuple[bytes, bytes]:
    """run_at and the text of a new task. Raises PersisterError where it couldn't be kept."""
    score = score_of(task.run_at)
    if not score:
        raise PersisterError("run_at of a new task must be an int, not None")
    expire_at = "null" if task.expire_at is None else _int("expire_at", task.expire_at)
    fixed = f"[{_int('initial_run_at', task.initial_run_at)},{expire_at}]"
    if not isinstance(task.task, str):
        raise PersisterError(f"task of a new task must be text, not a {type(task.task).__name__}")
    return score, _utf8(f"[{score.decode()},0,null,null,null,null]\n{fixed}\n{task.task}")


def text_of(record: TaskRecord) -> bytes:
    """Raises PersisterError where it couldn't be kept."""
    fixed = json.dumps([record.initial_run_at, record.expire_at])
    state = None if record.closed_as is None else record.closed_as.value
    changing = [record.run_at, record.attempts, record.last_fail_at, record.last_error, state, record.closed_at]
    return b"%b\n%b\n%b" % (json.dumps(changing).encode(), fixed.encode(), _utf8(record.task))


def rewriting(transition: Reschedule | Close) -> list[bytes]:
    """What the settle script takes. Raises PersisterError where it couldn't be kept."""
    failed_at = transition.last_fail_at
    if isinstance(transition, Close):
        run_at, closed = None, transition.state
    else:
        run_at, closed = transition.run_at, None
    closing = (None, None) if closed is None else (closed.value, failed_at)
    line = json.dumps([run_at, transition.attempts, failed_at, transition.last_error, *closing])
    text = transition.task
    return [
        score_of(run_at),
        place_of(closed),
        line.encode(),
        b"" if text is None else b"1",
        b"" if text is None else _utf8(text),
    ]


def record_of(task_id: int, queue: str, text: bytes, lease: Lease | None, read_at: float) -> TaskRecord:
    """Where the text can't be read, with a defect: it mustn't hold up those that were read with it."""
    try:
        return _sound(task_id, queue, text, lease, read_at)
    except (ValueError, TypeError, RecursionError):
        return replace(defective(task_id, queue, text, read_at), lease=lease)


def _sound(task_id: int, queue: str, text: bytes, lease: Lease | None, read_at: float) -> TaskRecord:
    changing, fixed, task = text.decode().split("\n", 2)
    run_at, attempts, last_fail_at, last_error, closed_as, closed_at = _read(changing)[0]
    initial_run_at, expire_at = _read(fixed)[0]
    check_numbers(run_at, attempts, last_fail_at, closed_at, initial_run_at, expire_at)
    if attempts is None or not (last_error is None or isinstance(last_error, str)):
        raise TypeError("it has no number of attempts, or an error that isn't text")
    return TaskRecord(
        id=task_id,
        queue=queue,
        task=task,
        run_at=run_at,
        initial_run_at=initial_run_at,
        expire_at=expire_at,
        attempts=attempts,
        last_fail_at=last_fail_at,
        last_error=last_error,
        closed_as=closed_as and TaskState(closed_as),
        closed_at=closed_at,
        lease=lease,
        read_at=read_at,
    )


def claims_of(queue: str, reply: Sequence[bytes], owner: str, token: str) -> list[Claim]:
    """What the claim script replied."""
    read_at, expires_at, ids, sizes, texts = reply
    lease = Lease(owner, float(expires_at))
    now = float(read_at)
    return [
        Claim(record_of(task_id, queue, text, lease, now), LeaseToken(task_id, token))
        for task_id, text in zip(map(int, ids.split()), _cut(texts, sizes), strict=True)
        if text is not None
    ]


def page_of(queue: str, reply: Sequence[bytes | Sequence[bytes]]) -> tuple[int, list[TaskRecord]]:
    """What the page script replied: the last id that it came to (0: there were no more), and the tasks."""
    read_at, ids, sizes, texts, leases, ends = reply
    assert isinstance(read_at, bytes) and isinstance(ids, bytes) and isinstance(sizes, bytes)
    assert isinstance(texts, bytes)
    numbers = list(map(int, ids.split()))
    rows = zip(numbers, _cut(texts, sizes), leases, ends, strict=True)
    records = [
        record_of(task_id, queue, text, lease_of(lease, end), float(read_at))
        for task_id, text, lease, end in rows
        if text is not None and isinstance(lease, bytes) and isinstance(end, bytes)
    ]
    return (numbers[-1] if numbers else 0), records


def lease_of(lease: bytes | None, end: bytes | None) -> Lease | None:
    return Lease(lease.split(b" ", 2)[2].decode(), float(end)) if lease and end else None


def found_of(task_id: int, queue: str, reply: Sequence[bytes | None]) -> Found | None:
    """What the find script replied."""
    read_at, _, text, lease, end = reply
    if text is None:
        return None
    record = record_of(task_id, queue, text, lease_of(lease, end), float(read_at or 0.0))
    return Found(record=record, text=text, lease=lease or b"", end=end or b"")


def replacing(found: Found, after: TaskRecord | None) -> list[bytes]:
    """What the replace script takes, between the time and the channel. Raises PersisterError where the record can't be
    kept."""
    before = found.record
    has_lapsed = before.lease is not None and before.lease.has_lapsed(before.read_at)
    words = [member(before.id).encode(), found.text, found.lease, found.end, b"1" if has_lapsed else b""]
    if after is None:
        return [*words, b"", b"", b"", b""]
    run_at = score_of(after.run_at)
    kept = b""
    if after.lease is not None and found.lease:
        token, _, owner = found.lease.split(b" ", 2)
        kept = b"%b %b %b" % (token, run_at, owner)
    return [*words, text_of(after), run_at, place_of(after.closed_as), kept]


def _cut(texts: bytes, sizes: bytes) -> Iterable[bytes | None]:
    start = 0
    for size in map(int, sizes.split()):
        yield texts[start : start + size] if size >= 0 else None
        start += max(size, 0)


def _int(name: str, value: object) -> int:
    if not isinstance(value, int):
        raise PersisterError(f"{name} of a task must be an int, not a {type(value).__name__}")
    return value


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise PersisterError(f"a text can't be stored as UTF-8: {error.reason} at {error.start}") from None
