"""The face: queues are declared here, tasks delayed, processes started, and in test mode worked by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from .core.codec import MAX_TASK_BYTES, Codec
from .core.errors import ConfigurationError, TestModeError
from .core.instants import Instant, epoch_seconds
from .core.lease import TaskId
from .core.outcome import Outcome
from .core.queue import QueueSpec
from .core.registry import Registry
from .core.task import NewTask, TaskRecord, TaskState
from .persisters._wake import WakeDirectory
from .ports.clock import Clock
from .ports.strategy import Strategy
from .runtime.caller import trust_of_the_caller
from .runtime.movable_time import mover_of
from .runtime.persister_source import PersisterSource, Store
from .runtime.plan import Plan, wake_folder
from .runtime.queue_table import QueueOptions, QueueTable
from .runtime.quiet import hold_script, start_is_quiet
from .runtime.settings import Settings, seconds
from .runtime.starting import is_told_to_stop, made_folder
from .runtime.viewing import View
from .tasks.delaying import Delayed, Delaying, as_delayed, refuse_unknown, strategy_and_queue

if TYPE_CHECKING:
    from .runtime.bench import Bench
    from .runtime.supervision import Supervision

T = TypeVar("T", bound=type)

_MISSING: Any = object()
_UNSHAREABLE = (
    "this persister lives in one process's memory, so queue processes couldn't see its tasks: "
    'use a file ("sqlite:///tasks.db"), or test mode'
)


class Environment(Settings):
    """Queues, and the store that their tasks are kept in.

    ``persister`` is an object with the four methods, a bundled one, a factory of one, or a URL; where it's left out,
    SQLite in ``./procrastinate.db``, in test mode memory. Every setting is an attribute too, and fixed once the
    environment has started. An application that ends without ``stop()`` leaves nothing behind: its queue processes see
    it go, finish what runs within ``grace`` seconds, and end.
    """

    def __init__(
        self,
        persister: Any = None,
        *,
        log_dir: str | os.PathLike[str] | None = "log/",
        log_level: str | int = "INFO",
        log_format: str = "line",
        log_rotate: str | int | None = "10 MiB",
        log_keep: int = 5,
        process_prefix: str | None = None,
        test_mode: bool | None = None,
        trust: Iterable[str] | None = None,
        max_task_bytes: int = MAX_TASK_BYTES,
        clock: Clock | None = None,
        start_method: str | None = None,
        name: str | None = None,
        grace: float = 30.0,
        run_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        given = dict(locals())
        settings = {key: given[key] for key in given if key not in ("self", "__class__")}
        super().__init__(settings | {"trust": trust_of_the_caller() if trust is None else trust})
        self._registry = Registry(self.trust)
        self._queues = QueueTable()
        self._supervision: Supervision | None = None
        self._make_codec()
        self._make_source()

    def _make_codec(self) -> None:
        self._codec = Codec(self._registry, self.max_task_bytes)
        self._delaying = Delaying(self._codec)
        self._bench: Bench | None = None

    def _make_source(self) -> None:
        self._source = PersisterSource(self.persister, clock=self.clock, test_mode=self.test_mode)

    def _changing(self, name: str) -> None:
        self._refuse_if_started(f"{name} can't be set")
        if name in ("persister", "clock") and self._source.opened() is not None:
            raise ConfigurationError(f"{name} can't be set, the store is in use already: make another Environment")

    def _changed(self, name: str) -> None:
        if name == "trust":
            self._registry.trust = Registry(self.trust).trust
        elif name == "max_task_bytes":
            self._make_codec()
        elif name in ("persister", "clock", "test_mode"):
            self._make_source()

    @property
    def codec(self) -> Codec:
        """Turns tasks into stored text and back, under this environment's trust."""
        return self._codec

    def store(self) -> Store:
        """This process's persister, and what it can do."""
        return self._source.open()

    def now(self) -> float:
        """The time that tasks are due by: the store's clock where it has one, else the environment's."""
        return self.store().now()

    # --- queues

    def define_queue(self, name: str, **options: Unpack[QueueOptions]) -> QueueSpec:
        """Declares a queue, or, by the same spelling of its name, other options for it. Durations are seconds.

        Raises TypeError or ValueError naming queue, option and value, and AlreadyStartedError after ``start()``.
        """
        self._refuse_if_started(f"queue {name!r} can't be defined")
        return self._queues.define(name, options)

    @property
    def queues(self) -> Mapping[str, QueueSpec]:
        """By name, in the order of definition."""
        return self._queues.by_name

    # --- processes

    def start(self, *queues: str) -> None:
        """Starts one process per queue (those named, else all); in test mode none. Returns once they exist.

        With ``PROCRASTINATE_STOP=1`` in the process's environment, none either, and a warning says so. Installs no
        signal handler. Raises NoQueueError, AlreadyStartedError, ConfigurationError.
        """
        if start_is_quiet():
            return
        self._refuse_if_started("start() can't be called again")
        self._started_in = os.getpid()  # from here on, so that two threads don't both start processes
        try:
            specs = self._queues.some(queues)
            if not self.test_mode and not is_told_to_stop():
                self._supervision = self._start_processes(specs)
        except BaseException:
            self._started_in = None
            raise

    def _start_processes(self, specs: list[QueueSpec]) -> Supervision:
        from .runtime.supervision import Supervision  # brings what only processes need

        # Here, where it reaches whoever starts it, and not in a queue's log: a factory may give something else.
        if not self._source.open().is_shareable:
            raise ConfigurationError(_UNSHAREABLE)
        plan = Plan(
            queues=tuple(specs),
            source=self._source,
            registry=self._registry,
            max_task_bytes=self.max_task_bytes,
            logs=self.log_settings,
            run_dir=made_folder(self.run_folder()),
            process_prefix=self.process_prefix,
            grace=self.grace,
            clock=self.clock,
        )
        supervision = Supervision(plan, start_method=self.start_method)
        self._delaying.workers_have_begun = True  # before the fork, since bodies delay too
        try:
            supervision.start()
        except BaseException:
            self._delaying.workers_have_begun = False
            raise
        return supervision

    @property
    def processes(self) -> dict[str, int]:
        """Each queue's process id, in the order of definition."""
        return {} if self._supervision is None else self._supervision.pids()

    def stop(self, grace: float | None = None) -> None:
        """Drains: nothing more is claimed, what runs may finish within ``grace`` seconds (default: the setting), the
        rest is handed back uncounted. Harmless where nothing was started."""
        patience = self.grace if grace is None else seconds("grace", grace)
        supervision, self._supervision = self._supervision, None
        try:
            if supervision is not None:
                supervision.stop(patience)
        finally:
            self._started_in = None
            self._delaying.workers_have_begun = False
            if self._bench is not None:
                self._bench.close()
            self._source.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- delaying

    @overload
    def delay(
        self, queue: str, /, *, task: Strategy, run_at: Instant | None = None, expire_at: Instant | None = None
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
        **unknown: Any,
    ) -> TaskId:
        """Stores a task, to be run from ``run_at`` (default: now) and never after ``expire_at``. Returns its id.

        Instants are epoch seconds, datetimes (naive: local time) or timedeltas from now. The task is serialised and
        read back here, so that what would fail in a worker fails now. Once this has returned, the task is in the
        store. Works from any thread and any process, started or not.
        """
        hold_script()
        refuse_unknown(unknown)
        strategy, name = strategy_and_queue(first, queue, task, _MISSING)
        spec = self._queues.named_or_only(name)
        store = self.store()
        delayed = Delayed(task=strategy, run_at=run_at, expire_at=expire_at)
        new = self._delaying.new_task(spec.name, delayed, store.now())
        task_id = store.persister.create_task(new.as_mapping())
        self._wake(store, spec.name)
        return task_id

    def delay_many(self, tasks: Iterable[Any]) -> list[TaskId]:
        """Each is ``(queue, task, {options})`` or ``Delayed(...)``. Returns the ids in order.

        All are checked before any is stored; stores that can, store all or none.
        """
        hold_script()
        store = self.store()
        now = store.now()
        new = [self._one_of_many(index, item, now) for index, item in enumerate(tasks)]
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

    @overload
    def task(self, cls: T, /) -> T: ...
    @overload
    def task(
        self, none: None = None, /, *, name: str | None = None, aliases: Iterable[str] = ()
    ) -> Callable[[T], T]: ...
    def task(self, cls: Any = None, /, *, name: str | None = None, aliases: Iterable[str] = ()) -> Any:
        """A class decorator: trusts the class, and stores its tasks under ``name``, so that it can be moved. What was
        stored under one of the ``aliases`` is read as this class too."""

        def register(registered: Any) -> Any:
            if not isinstance(registered, type):
                raise TypeError(f"env.task takes a class with a method run, not {registered!r}")
            self._registry.register(registered, name, aliases)
            return registered

        return register if cls is None else register(cls)

    # --- looking

    def find(self, task_id: TaskId) -> TaskRecord:
        """The stored task. Raises TaskNotFoundError where there's none, as after a success."""
        return self._view().find(task_id)

    def tasks(
        self,
        queue: str | None = None,
        state: TaskState | str | None = None,
        task: type | str | None = None,
        *,
        limit: int | None = None,
        after: TaskId | None = None,
    ) -> list[TaskRecord]:
        """Records in order of id; ``task`` is a class or its stored name, ``after`` the id to go on from."""
        return self._view().tasks(queue, state, task, limit, after)

    def count(self, queue: str | None = None, state: TaskState | str | None = None) -> int:
        """How many tasks are stored."""
        return sum(self.counts(queue, state).values())

    def counts(
        self, queue: str | None = None, state: TaskState | str | None = None
    ) -> Mapping[tuple[str, TaskState], int]:
        """How many tasks are stored, by queue and state; pairs with none are left out."""
        return self._view().counts(queue, state)

    def _view(self) -> View:
        return View(self.store(), self._queues, self.codec)

    # --- test mode

    def enable_test_mode(self) -> None:
        """For this environment alone, before ``start()``."""
        self.test_mode = True

    def act(self, *queues: str) -> list[Outcome]:
        """Test mode: works one due task on every queue (or those named, in that order), here and now.

        A queue with nothing due gives no outcome. Raises what the store raises; an outcome that couldn't be written
        is kept, and written by the next call.
        """
        specs = self._in_test_mode("act", queues)
        return self._made_bench().act(self.store(), specs)

    def drain(self, *queues: str, until: Instant | None = None) -> list[Outcome]:
        """Test mode: acts until nothing is due. With ``until`` it moves the clock through the tasks' run_at, up to
        that instant; that takes a FakeClock, or time frozen by freezegun or time-machine."""
        specs = self._in_test_mode("drain", queues)
        store, bench = self.store(), self._made_bench()
        if until is None:
            return bench.drain(store, specs)
        end = epoch_seconds(until, now=store.now(), argument="until")
        return bench.drain_until(store, specs, self._view().inspecting, end, mover_of(self.clock))

    def _in_test_mode(self, verb: str, queues: tuple[str, ...]) -> list[QueueSpec]:
        if not self.test_mode:
            raise TestModeError(
                f"{verb} is for test mode: Environment(test_mode=True), or env.enable_test_mode() before start()"
            )
        return self._queues.some(queues)

    def _made_bench(self) -> Bench:
        if self._bench is None:
            from .runtime.bench import Bench  # brings what an application that only delays has no use for

            self._bench = Bench(self._codec)
        return self._bench

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        return f"<Environment {name}queues: {', '.join(map(repr, self._queues)) or 'none'}>"


def setup(persister: Any = None, define: Any = None, **settings: Any) -> Environment:
    """Makes an Environment, calls ``define(env)`` once, starts it and returns it."""
    if not callable(define):
        raise TypeError(f"define must be a function that takes the environment and defines its queues, not {define!r}")
    env = Environment(persister, **settings)
    define(env)
    env.start()
    return env
