"""S3: many machines, and no server to run. Any object store that honours conditional writes will do."""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import ConfigurationError, PersisterError, PersisterUnavailableError
from ..core.lease import Lease, LeaseToken, TaskId
from ..core.lifecycle import Transition, apply
from ..core.stored_text import tag_of_text
from ..core.task import Claim, NewTask, TaskRecord, TaskState, counts_of
from ..ports.clock import Clock, SystemClock
from ._drivers import need_driver
from ._rows import is_as_expected, overwritten
from ._s3_batches import Batches
from ._s3_boto import EXTRA, MODULE, Address, BotoBucket
from ._s3_bucket import LARGEST_PAGE, Bucket, PatientBucket
from ._s3_documents import TOMBSTONE_SIZE, LeaseDocument, StoredTask, new_revision
from ._s3_keys import REPAIR, IdMaker, is_task_id
from ._s3_leases import Leases
from ._s3_leasing import Worker
from ._s3_pool import AT_ONCE, Pool
from ._s3_repair import Repair
from ._s3_tasks import GONE, Gone, Rewrite, Tasks, Version
from ._s3_trial import check_conditions
from ._server_time import ServerTime

_abandoned: list[object] = []
"""What a fork inherited: kept, so that nothing closes it."""


class S3Persister:
    """Keeps tasks as objects in a bucket: ``s3://bucket/prefix?region=...``. Every ability but waking and joining.

    Credentials come from the environment, as for any AWS tool; other stores than Amazon's are named by ``endpoint=``.
    Ids are texts that sort by the time of creation. Nothing is opened before the first call, which tries out whether
    the endpoint honours conditional writes and raises ConfigurationError where it doesn't. With ``clock`` the store
    goes by it, else by the server's, as the replies' Date tells it.
    """

    is_shareable = True
    """Whether several processes can work on the same tasks through it."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._address = Address.of(url)
        need_driver(MODULE, EXTRA)
        self._url = url
        self._clock = clock
        self._ids = IdMaker()
        self._is_tried_out = False
        self._session_of_process: Session | None = None

    # --- floor

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        """Reads every object of every queue."""
        return [
            version.stored.record.as_mapping()
            for version in self._all(self._session())
            if version.stored.record.queue == queue and version.stored.record.run_at is not None
        ]

    def create_task(self, data: dict[str, Any]) -> str:
        session = self._session()
        stored = self._new(NewTask(**data))
        session.tasks.create(stored)
        return str(stored.record.id)

    def update_task(self, attributes: dict[str, Any]) -> None:
        def decide(stored: StoredTask) -> StoredTask:
            in_hand = None if stored.token is None else Lease("", 0.0)
            record = overwritten(replace(stored.record, lease=in_hand), attributes)
            if record.lease is None:
                return stored.free(record)
            return replace(stored, record=replace(record, lease=None))

        self._edit(attributes["id"], decide)

    def delete_task(self, task_id: TaskId) -> None:
        session = self._session()
        version = session.tasks.read(task_id) if is_task_id(task_id) else None
        if version is not None:
            session.tasks.remove(version)
            if version.stored.token is not None:
                session.leases.drop(version.stored.token, [task_id])

    # --- leasing

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        return self._session().worker.claim(queue, owner, limit, lease_for)

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        return self._session().worker.extend(tokens, lease_for)

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        """Not a transaction: where only some could be written, IncompleteSettle tells which couldn't."""
        return self._session().worker.settle(settlements)

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> list[Claim]:
        return self._session().worker.lapsed(queue, owner, limit, lease_for, dead_owner)

    def next_look_at(self, queue: str) -> float | None:
        """Two listings, and a reading of each claim that was extended since the last look. Now and then a page of
        tasks is looked over beside it."""
        session = self._session()
        session.repair.go_on_if_due()
        return session.worker.next_look_at(queue)

    # --- creating and editing

    def create_many(self, tasks: Sequence[NewTask]) -> list[str]:
        """All are stored when one object is; if this is cut short after that, workers put them in their places."""
        stored = [self._new(task) for task in tasks]
        self._session().batches.create(stored)
        return [str(task.record.id) for task in stored]

    def transition(self, task_id: TaskId, expected: TaskRecord, transition: Transition) -> bool:
        session = self._session()

        def decide(stored: StoredTask) -> StoredTask | Gone | None:
            row = session.as_record(stored, self.now())
            if not is_as_expected(row, expected, row.read_at):
                return None
            after = apply(stored.record, transition)
            return GONE if after is None else stored.free(after)

        return self._edit(task_id, decide) is not None

    # --- inspecting

    def find(self, task_id: TaskId) -> TaskRecord | None:
        session = self._session()
        version = session.tasks.read(task_id) if is_task_id(task_id) else None
        return None if version is None else session.as_record(version.stored, self.now())

    def select(
        self,
        *,
        queue: str | None = None,
        state: TaskState | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: TaskId | None = None,
    ) -> list[TaskRecord]:
        """Reads every object from ``after`` on, until ``limit`` tasks are found that fit."""
        session = self._session()
        now = self.now()
        seen: dict[str, LeaseDocument | None] = {}
        fitting = (
            record
            for version in self._all(session, "" if after is None else str(after), limit)
            if (queue is None or version.stored.record.queue == queue)
            and (tag is None or tag_of_text(version.stored.record.task) == tag)
            for record in (session.as_record(version.stored, now, seen),)
            if state is None or record.state is state
        )
        return list(itertools.islice(fitting, None if limit is None else max(limit, 0)))

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> dict[tuple[str, TaskState], int]:
        """Reads every object of every queue."""
        return counts_of(self.select(queue=queue, state=state))

    def repair(self) -> int:
        """Looks over all tasks, and makes findable and ends what wasn't any more, as where somebody deleted objects;
        how much was put right. Workers do the same by themselves, a page every five minutes."""
        return self._session().repair.all()

    # --- time and the rest

    def now(self) -> float:
        return self._session().now()

    def close(self) -> None:
        """Lets this process's connections go; the next call opens new ones."""
        session, self._session_of_process = self._session_of_process, None
        if session is None:
            return
        if session.pid == os.getpid():
            session.close()
        else:
            _abandoned.append(session)

    def __repr__(self) -> str:
        return f"S3Persister({self._address.shown!r})"

    def __reduce__(self) -> Any:
        return type(self), (self._url,)

    # --- objects

    def _bucket(self, time: ServerTime) -> Bucket:
        """What the store is kept in."""
        return BotoBucket(self._address, time, SystemClock().monotonic)

    def _session(self) -> Session:
        session = self._session_of_process
        if session is None or session.pid != os.getpid():
            if session is not None:
                _abandoned.append(session)
            time = ServerTime(SystemClock().monotonic)
            session = self._session_of_process = Session(self._bucket(time), time, self._clock, self._address.shown)
        if not self._is_tried_out:
            with session.lock:
                if not self._is_tried_out:
                    check_conditions(session.raw, self._address.shown)
                    self._is_tried_out = True
        return session

    def _new(self, task: NewTask) -> StoredTask:
        record = TaskRecord(id=self._ids.new(self.now()), **task.as_mapping())
        return StoredTask(record=record, revision=new_revision())

    def _edit(self, task_id: TaskId, decide: Any) -> Rewrite | None:
        session = self._session()
        done = session.tasks.rewrite(task_id, decide) if is_task_id(task_id) else None
        if done is not None:
            if done.before.token is not None and (done.after is None or done.after.stored.token is None):
                session.leases.drop(done.before.token, [task_id])
            session.tasks.tidy(done.litter)
        return done

    def _all(self, session: Session, after: str = "", limit: int | None = None) -> Iterator[Version]:
        """In order of id; read side by side, and not many more than ``limit``."""
        page = LARGEST_PAGE if limit is None else min(max(limit, AT_ONCE), LARGEST_PAGE)
        listed = session.tasks.ids(after, page)
        while some := list(itertools.islice(listed, page)):
            there = [task_id for task_id, size in some if size != TOMBSTONE_SIZE]
            for version in session.pool.each(session.tasks.read, there):
                if isinstance(version, PersisterUnavailableError):
                    raise version
                if version is not None and not isinstance(version, PersisterError):
                    yield version


class Session:
    """What one process has open."""

    def __init__(self, bucket: Bucket, time: ServerTime, clock: Clock | None, shown: str) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.raw = bucket
        self._monotonic = SystemClock().monotonic
        self.pool = Pool()
        self._patient = PatientBucket(bucket)
        self.tasks = Tasks(self._patient)
        self.leases = Leases(self._patient)
        self.worker = Worker(self.tasks, self.leases, self.pool, self.now)
        self.batches = Batches(self._patient, self.tasks, self.pool, self.now, self._monotonic)
        self.repair = Repair(self._patient, self.tasks, self.leases, self.batches, self.pool, self.now, self._monotonic)
        self._clock = clock
        self._time = time
        self._shown = shown

    def now(self) -> float:
        """By the replies' Date; where nothing was heard for long, a request asks for one, unless it must fail. Raises
        ConfigurationError for a server whose replies have none."""
        if self._clock is not None:
            return self._clock.now()
        now = self._time.now_or_ask(lambda: self._patient.get(REPAIR))
        if now == -math.inf:
            raise ConfigurationError(f"{self._shown}: its replies have no Date, so nobody could know what is due")
        return now

    def as_record(
        self, stored: StoredTask, now: float, seen: dict[str, LeaseDocument | None] | None = None
    ) -> TaskRecord:
        return replace(stored.record, lease=self.leases.lease_of(stored, seen), read_at=now)

    def close(self) -> None:
        self.pool.close()
        close = getattr(self.raw, "close", None)
        if close is not None:
            close()
