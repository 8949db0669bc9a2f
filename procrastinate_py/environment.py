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
from .core.task import TaskRecord, TaskState
from .ports.capabilities import Capabilities
from .ports.clock import Clock
from .runtime.caller import trust_of_the_caller
from .runtime.lease_keeper import LEASE_FOR
from .runtime.movable_time import mover_of
from .runtime.persister_source import PersisterSource, given_persister
from .runtime.plan import Plan
from .runtime.queue_table import QueueOptions, QueueTable, require_for
from .runtime.quiet import start_is_quiet
from .runtime.settings import seconds
from .runtime.starting import is_told_to_stop, made_folder
from .runtime.viewing import View
from .tasks.delay_verbs import DelayVerbs
from .tasks.delaying import Delaying

if TYPE_CHECKING:
    from .runtime.bench import Bench
    from .runtime.supervision import Supervision

T = TypeVar("T", bound=type)

_UNSHAREABLE = (
    "this persister lives in one process's memory, so queue processes couldn't see its tasks: "
    'use a file ("sqlite:///tasks.db"), or test mode'
)


class Environment(DelayVerbs):
    """Queues, and the store that their tasks are kept in.

    ``persister`` is an object with the four methods, a bundled one, a factory of one, or a URL; where it's left out,
    SQLite in ``./procrastinate.db``, in test mode memory. Every setting is an attribute too, and fixed once the
    environment has started. An application that ends without ``stop()`` leaves nothing behind: its queue processes see
    it go, finish what runs within ``grace`` seconds, and end.
    """

    _lease_for = LEASE_FOR
    """Seconds; no setting, but tests of what happens when leases lapse make it shorter."""

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

    # --- queues

    def define_queue(self, name: str, **options: Unpack[QueueOptions]) -> QueueSpec:
        """Declares a queue, or, by the same spelling of its name, other options for it. Durations are seconds.

        Raises TypeError or ValueError naming queue, option and value, UnsupportedByPersisterError where the persister
        is an object that can't do what an option asks for, and AlreadyStartedError after ``start()``.
        """
        self._refuse_if_started(f"queue {name!r} can't be defined")
        given = given_persister(self.persister)
        return self._queues.define(name, options, None if given is None else Capabilities.of(given))

    @property
    def queues(self) -> Mapping[str, QueueSpec]:
        """By name, in the order of definition."""
        return self._queues.by_name

    # --- processes

    def start(self, *queues: str) -> None:
        """Starts the processes of the queues (those named, else all); in test mode none. Returns once they exist.

        A store that can't be reached is no reason not to start: they try again until it's there. With
        ``PROCRASTINATE_STOP=1`` in the process's environment, none are started either, and a warning says so. Installs
        no signal handler. Raises NoQueueError, AlreadyStartedError, UnsupportedByPersisterError, ConfigurationError.
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
        store = self._source.open()
        if not store.is_shareable:
            raise ConfigurationError(_UNSHAREABLE)
        for spec in specs:
            require_for(spec, store.capabilities)
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
            lease_for=self._lease_for,
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
        """Each queue's process id, in the order of definition; where it has several processes, the first one's."""
        return {} if self._supervision is None else self._supervision.pids()

    def processes_of(self, queue: str) -> list[int]:
        """The ids of all processes of a queue, first one first. Raises UnknownQueueError."""
        name = self._queues.named(queue).name
        return [] if self._supervision is None else self._supervision.pids_of(name)

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

    # --- tasks

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
