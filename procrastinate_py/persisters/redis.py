"""Redis and Valkey: many machines, fast. Every change is one script, which runs as a whole or not at all."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..core.errors import PersisterError
from ..core.lease import LeaseToken, TaskId
from ..core.lifecycle import Close, Complete, Release, Reschedule, Transition, apply
from ..core.stored_text import tag_of_text
from ..core.task import Claim, NewTask, TaskRecord, TaskState
from ..ports.clock import Clock, SystemClock
from ..ports.persister import IncompleteSettle, WakeListener
from . import _redis_rows as rows
from ._drivers import need_driver
from ._redis_listener import subscribe
from ._redis_queues import Queues
from ._redis_session import Session
from ._redis_url import address_of
from ._redis_wire import Argument
from ._rows import is_as_expected, new_token, overwritten
from ._server_time import ServerTime
from ._wake_thread import ThreadListener

_PAGE = 500
_MOST_AT_ONCE = 200_000
_LARGEST_AT_ONCE = 256 * 2**20


class RedisPersister:
    """Keeps tasks in Redis 6.2 or later, or Valkey, a server or a cluster. Every ability; any number of machines.

    ``url``: ``redis://``, ``rediss://`` or ``valkey://``. All keys begin with ``prefix`` (in the URL: ``?prefix=``),
    and those of a queue are in one hash slot. The server's clock decides, unless ``clock`` is given.
    """

    is_shareable = True
    """Whether several processes can work on the same tasks through it."""

    def __init__(self, url: str, prefix: str | None = None, *, clock: Clock | None = None) -> None:
        self._address = address_of(url, prefix)
        need_driver("redis", "redis")
        self._given = (url, prefix)
        self._clock = clock
        self._monotonic = SystemClock().monotonic
        self._server_time = ServerTime(self._monotonic)
        self._session_of_process = Session(self._address)
        self._queues = Queues(self._address.prefix, self._session)

    # --- floor

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        records = self._pages(queue, self._queues.keys(queue).page, 0, _PAGE)
        return [record.as_mapping() for record in records if record.run_at is not None]

    def create_task(self, data: dict[str, Any]) -> int:
        new = NewTask(**data)
        return self._create({new.queue: [rows.new_text(new)]})[new.queue]

    def update_task(self, attributes: dict[str, Any]) -> None:
        while (found := self._found(attributes["id"])) is not None:
            if attributes["queue"] != found.record.queue:
                raise PersisterError("a task in Redis can't be moved to another queue: its id belongs to its own")
            if self._replace(found, overwritten(found.record, attributes), wakes=False):
                return

    def delete_task(self, task_id: TaskId) -> None:
        if (found := self._found(task_id)) is not None:
            self._run("delete", self._queues.keys(found.record.queue).row, [rows.member(task_id)])

    # --- leasing

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return self._lease("claim", self._queues.keys(queue).claim, queue, owner, limit, lease_for)

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> list[Claim]:
        whose = ("", "") if dead_owner is None else ("1", dead_owner)
        return self._lease("lapsed", self._queues.keys(queue).lapsed, queue, owner, limit, lease_for, *whose)

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        lost: list[LeaseToken] = []
        for queue, places in self._by_queue(tokens):
            if queue is None:
                lost += [tokens[place] for place in places]
                continue
            ids, values = _as_json([tokens[place] for place in places])
            reply = self._run("extend", self._queues.keys(queue).extend, [self._now(), repr(lease_for), ids, values])
            lost += [tokens[places[int(place)]] for place in reply[1].split()]
        return lost

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        tokens = [token for token, _ in settlements]
        lost: list[LeaseToken] = []
        failures: dict[LeaseToken, BaseException] = {}
        for queue, places in self._by_queue(tokens):
            if queue is None:
                lost += [tokens[place] for place in places]
                continue
            writable, ways, texts = _settlements(((settlements[place]) for place in places), failures)
            if writable:
                reply = self._run("settle", self._queues.keys(queue).row, [*_as_json(writable), ways, *texts])
                lost += [writable[int(place)] for place in reply[1].split()]
        if failures:
            raise IncompleteSettle(failures)
        return lost

    def next_look_at(self, queue: str) -> float | None:
        reply = self._run("next_look", self._queues.keys(queue).look)
        return min((float(instant) for instant in reply[1:] if instant), default=None)

    # --- creating and editing

    def create_many(self, tasks: Sequence[NewTask]) -> list[int]:
        """All or none; in a cluster, whose slots know nothing of each other, all or none of each queue's."""
        if not tasks:
            return []
        texts: dict[str, list[tuple[bytes, bytes]]] = {}
        for task in tasks:
            texts.setdefault(task.queue, []).append(rows.new_text(task))
        size = sum(len(text) for group in texts.values() for _, text in group)
        if len(tasks) > _MOST_AT_ONCE or size > _LARGEST_AT_ONCE:
            raise PersisterError(
                f"{len(tasks):,} tasks of {size:,} bytes are too much for one call to Redis, which does nothing else "
                f"meanwhile: give it up to {_MOST_AT_ONCE:,} tasks or {_LARGEST_AT_ONCE:,} bytes at a time"
            )
        next_ids = self._create(texts)
        ids = []
        for task in tasks:
            ids.append(next_ids[task.queue])
            next_ids[task.queue] += rows.STRIDE
        return ids

    def transition(self, task_id: TaskId, expected: TaskRecord, transition: Transition) -> bool:
        while (found := self._found(task_id)) is not None:
            if not is_as_expected(found.record, expected, found.record.read_at):
                return False
            if self._replace(found, apply(found.record, transition), wakes=True):
                return True
        return False

    # --- waking

    def notify(self, queue: str) -> None:
        try:
            self._session().execute("PUBLISH", self._queues.keys(queue).channel, b"")
        except Exception:
            return

    def listen(self, queue: str) -> WakeListener:
        channel = self._queues.keys(queue).channel
        return ThreadListener(lambda: subscribe(self._session(), channel), "redis-wake")

    # --- inspecting

    def find(self, task_id: TaskId) -> TaskRecord | None:
        found = self._found(task_id)
        return None if found is None else found.record

    def select(
        self,
        *,
        queue: str | None = None,
        state: TaskState | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: TaskId | None = None,
    ) -> list[TaskRecord]:
        most = None if limit is None else max(limit, 0)
        if most == 0:
            return []
        names = self._queues.names() if queue is None else [queue]
        wanted = (self._selected(name, state, tag, after or 0, most) for name in names)
        in_order = heapq.merge(*wanted, key=lambda record: int(record.id))
        return list(islice(in_order, most))

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> dict[tuple[str, TaskState], int]:
        counts = {}
        for name in self._queues.names() if queue is None else [queue]:
            reply = self._run("count", self._queues.keys(name).count, [self._now()])
            for of, number in zip(_COUNTED, reply[1:], strict=True):
                if number and state in (None, of):
                    counts[name, of] = int(number)
        return counts

    # --- time and the rest

    def now(self) -> float:
        if self._clock is not None:
            return self._clock.now()
        return self._server_time.now_or_ask(lambda: self._run("time", self._queues.registry[:1]))

    def close(self) -> None:
        """Lets this process's connections go; the next call opens new ones."""
        self._session().close()

    def __repr__(self) -> str:
        return f"RedisPersister({self._address.shown!r}, prefix={self._address.prefix!r})"

    def __reduce__(self) -> Any:
        return _opened_again, self._given

    # --- the server

    def _session(self) -> Session:
        session = self._session_of_process
        if session.pid != os.getpid():
            session.abandon()
            session = self._session_of_process = Session(self._address)
        return session

    def _run(self, name: str, keys: Sequence[bytes], arguments: Iterable[Argument] = ()) -> list[Any]:
        asked_at = self._monotonic()
        reply = self._session().run(name, keys, arguments)
        if self._clock is None:
            self._server_time.heard(float(reply[0]), asked_at=asked_at)
        return reply

    def _now(self) -> str:
        """As the scripts take it: empty for the server's own."""
        return "" if self._clock is None else repr(float(self._clock.now()))

    def _create(self, texts: dict[str, list[tuple[bytes, bytes]]]) -> dict[str, int]:
        """The first id of each queue's tasks; the others follow by strides."""
        if len(texts) > 1 and self._session().is_cluster:
            return {queue: self._create({queue: group})[queue] for queue, group in texts.items()}
        numbers: dict[str, int] = {}
        while True:
            firsts = self._created(texts, numbers)
            if -1 not in firsts.values():
                break
            numbers = {queue: self._queues.register(queue) for queue in texts}
        for queue, first in firsts.items():
            # A number that was given just now is confirmed: the server may have been emptied in between.
            if numbers or not self._queues.knows(queue, first):
                self._queues.register(queue, first % rows.STRIDE)
        return firsts

    def _created(self, texts: dict[str, list[tuple[bytes, bytes]]], numbers: dict[str, int]) -> dict[str, int]:
        keys: list[bytes] = []
        arguments: list[Argument] = [rows.STRIDE]
        for queue, group in texts.items():
            of_queue = self._queues.keys(queue)
            keys += of_queue.create
            arguments += [numbers.get(queue, b""), of_queue.channel, len(group)]
            for pair in group:
                arguments += pair
        return dict(zip(texts, self._run("create", keys, arguments)[1:], strict=True))

    def _lease(
        self, name: str, keys: Sequence[bytes], queue: str, owner: str, limit: int, lease_for: float, *more: str
    ) -> list[Claim]:
        token = new_token()
        reply = self._run(name, keys, [self._now(), max(limit, 0), repr(lease_for), token, owner, *more])
        claims = rows.claims_of(queue, reply, owner, token)
        if claims:
            self._queues.learn(queue, claims[0].record.id)
        return claims

    def _by_queue(self, tokens: Sequence[LeaseToken]) -> Iterable[tuple[str | None, list[int]]]:
        """Their places, by the queue that they belong to; None: to none."""
        by_number: dict[int | None, list[int]] = {}
        for place, (task_id, _) in enumerate(tokens):
            by_number.setdefault(task_id % rows.STRIDE if rows.is_id(task_id) else None, []).append(place)
        return [
            (None if number is None else self._queues.name_of(number), places) for number, places in by_number.items()
        ]

    def _found(self, task_id: TaskId) -> rows.Found | None:
        if not rows.is_id(task_id):
            return None
        for anew in (False, True):
            queue = self._queues.name_of(task_id, anew=anew)
            if queue is None:
                return None
            reply = self._run("find", self._queues.keys(queue).find, [self._now(), rows.member(task_id)])
            if reply[1] is not None and int(reply[1]) == task_id % rows.STRIDE:
                return rows.found_of(task_id, queue, reply)
        return None

    def _replace(self, found: rows.Found, after: TaskRecord | None, *, wakes: bool) -> bool:
        """Whether it was still as it was found."""
        keys = self._queues.keys(found.record.queue)
        words = rows.replacing(found, after)
        reply = self._run("replace", keys.row, [self._now(), *words, keys.channel if wakes else b""])
        return bool(reply[1])

    def _pages(
        self, queue: str, keys: Sequence[bytes], after: int, size: int, running: bool = False
    ) -> Iterator[TaskRecord]:
        while True:
            start = rows.member(after) if after else ""
            after, records = rows.page_of(
                queue, self._run("page", keys, [self._now(), start, size, "1" if running else ""])
            )
            if not after:
                return
            yield from records

    def _selected(
        self, queue: str, state: TaskState | None, tag: str | None, after: int, most: int | None
    ) -> Iterator[TaskRecord]:
        keys = self._queues.keys(queue)
        by_id = keys.page
        if state is not None and state.is_closed:
            by_id = (keys.closed[rows.CLOSED_STATES.index(state)], *keys.page[1:])
        size = _PAGE if most is None or tag is not None or state is TaskState.PENDING else min(most, _PAGE)
        for record in self._pages(queue, by_id, after, size, state is TaskState.RUNNING):
            if state in (None, record.state) and (tag is None or tag_of_text(record.task) == tag):
                yield record


_COUNTED = (TaskState.PENDING, TaskState.RUNNING, *rows.CLOSED_STATES)


def _opened_again(url: str, prefix: str | None) -> RedisPersister:
    return RedisPersister(url, prefix=prefix)


def _as_json(tokens: Sequence[LeaseToken]) -> tuple[str, str]:
    return json.dumps([rows.member(token.task_id) for token in tokens]), json.dumps([token.value for token in tokens])


def _settlements(
    settlements: Iterable[tuple[LeaseToken, Transition]], failures: dict[LeaseToken, BaseException]
) -> tuple[list[LeaseToken], str, list[bytes]]:
    """Those that can be written, as the settle script takes them; the others are added to ``failures``."""
    tokens: list[LeaseToken] = []
    ways: list[str] = []
    texts: list[bytes] = []
    for token, transition in settlements:
        try:
            if isinstance(transition, Reschedule | Close):
                texts += rows.rewriting(transition)
        except PersisterError as error:
            failures[token] = error
            continue
        tokens.append(token)
        ways.append("c" if isinstance(transition, Complete) else "r" if isinstance(transition, Release) else "w")
    return tokens, "".join(ways), texts
