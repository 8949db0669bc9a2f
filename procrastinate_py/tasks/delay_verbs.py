"""The verbs by which an environment takes tasks, and what they need of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

from ..core.instants import Instant
from ..core.lease import TaskId
from ..core.task import NewTask
from ..persisters._wake import WakeDirectory
from ..ports.capabilities import lacking
from ..ports.strategy import Strategy
from ..runtime.persister_source import PersisterSource, Store
from ..runtime.plan import wake_folder
from ..runtime.queue_table import QueueTable
from ..runtime.quiet import hold_script
from ..runtime.settings import Settings
from .delaying import Delayed, Delaying, as_delayed, refuse_unknown, strategy_and_queue

_MISSING: Any = object()


class DelayVerbs(Settings):
    """The part of an Environment that needs no process."""

    _queues: QueueTable
    _delaying: Delaying
    _source: PersisterSource

    def store(self) -> Store:
        """This process's persister, and what it can do."""
        return self._source.open()

    def now(self) -> float:
        """The time that tasks are due by: the store's clock where it has one, else the environment's."""
        return self.store().now()

    @overload
    def delay(
        self,
        queue: str,
        /,
        *,
        task: Strategy,
        run_at: Instant | None = None,
        expire_at: Instant | None = None,
        connection: Any = None,
    ) -> TaskId: ...
    @overload
    def delay(
        self,
        task: Strategy,
        /,
        *,
        queue: str | None = None,
        run_at: Instant | None = None,
        expire_at: Instant | None = None,
        connection: Any = None,
    ) -> TaskId: ...
    @overload
    def delay(
        self,
        none: None = None,
        /,
        *,
        task: Strategy,
        queue: str | None = None,
        run_at: Instant | None = None,
        expire_at: Instant | None = None,
        connection: Any = None,
    ) -> TaskId: ...
    def delay(
        self,
        first: Any = None,
        /,
        *,
        queue: Any = None,
        task: Any = _MISSING,
        run_at: Any = None,
        expire_at: Any = None,
        connection: Any = None,
        **unknown: Any,
    ) -> TaskId:
        """Stores a task, to be run from ``run_at`` (default: now) and never after ``expire_at``. Returns its id.

        Instants are epoch seconds, datetimes (naive: local time) or timedeltas from now. The task is serialised and
        read back here, so that what would fail in a worker fails now. Once this has returned, the task is in the
        store. Works from any thread and any process, started or not.

        With ``connection`` (of the database driver, SQLAlchemy or Django, to the database that the tasks are in) it's
        stored in that connection's transaction: seen and run once the caller commits, gone if the caller rolls back.
        Raises UnsupportedByPersisterError where the store has no such transactions.
        """
        hold_script()
        refuse_unknown(unknown)
        strategy, name = strategy_and_queue(first, queue, task, _MISSING)
        spec = self._queues.named_or_only(name)
        store = self.store()
        delayed = Delayed(task=strategy, run_at=run_at, expire_at=expire_at)
        new = self._delaying.new_task(spec.name, delayed, store.now())
        if connection is not None:
            return _join(store, connection, [new], "delay")[0]
        task_id = store.persister.create_task(new.as_mapping())
        self._wake(store, spec.name)
        return task_id

    def delay_many(self, tasks: Iterable[Any], *, connection: Any = None) -> list[TaskId]:
        """Each is ``(queue, task, {options})`` or ``Delayed(...)``. Returns the ids in order.

        All are checked before any is stored; stores that can, store all or none. ``connection`` as for ``delay``.
        """
        hold_script()
        store = self.store()
        now = store.now()
        new = [self._one_of_many(index, item, now) for index, item in enumerate(tasks)]
        if connection is not None:
            return _join(store, connection, new, "delay_many")
        if not new:
            return []
        creating = store.capabilities.creating
        if creating is not None:
            ids = list(creating.create_many(new))
        else:
            ids = [store.persister.create_task(task.as_mapping()) for task in new]
        for queue in dict.fromkeys(task.queue for task in new):
            self._wake(store, queue)
        return ids

    def _one_of_many(self, index: int, item: Any, now: float) -> NewTask:
        try:
            delayed = as_delayed(item)
            return self._delaying.new_task(self._queues.named_or_only(delayed.queue).name, delayed, now)
        except Exception as error:
            error.add_note(f"It is number {index} of those given to delay_many; none was stored.")
            raise

    def _wake(self, store: Store, queue: str) -> None:
        """A worker that sleeps until its next look knows nothing of a new task; a store that can wake has woken it."""
        if store.capabilities.waking is None and not self.test_mode:
            WakeDirectory(wake_folder(self.run_folder())).notify(queue)


def _join(store: Store, connection: Any, tasks: Sequence[NewTask], verb: str) -> list[TaskId]:
    joining = store.capabilities.joining
    if joining is None:
        raise lacking("joining", f"{verb}(connection=)")
    return list(joining.create_in(connection, tasks))
