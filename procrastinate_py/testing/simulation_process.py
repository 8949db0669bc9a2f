"""A queue process in a simulation: the real worker, over doubles of what it gets from the operating system."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..core.codec import Codec
from ..core.queue import QueueSpec
from ..ports.persister import Leasing
from ..runtime.attempt import Attempt
from ..runtime.executor import Executor
from ..runtime.in_hand import Begun, InHandFile, LastWords
from ..runtime.inbox import Inbox
from ..runtime.logs import LogSettings, QueueLog
from ..runtime.stop import StopLevel, StopToken
from ..runtime.worker import QueueWorker
from .simulation_actors import Actor, Gone
from .simulation_invariants import Invariant
from .simulation_ledger import Ledger, Now

_MOST_IDLE_TURNS = 30
STANDBY = 1.0


class Surroundings(Protocol):
    """What a process sees of the world."""

    spec: QueueSpec
    ledger: Ledger
    codec: Codec

    @property
    def elapsed(self) -> float: ...
    def now_for(self, process: Process) -> Now: ...
    def store_for(self, process: Process, left: LastWords | None) -> Leasing: ...
    def notes_for(self, process: Process, book: Notebook) -> InHandFile: ...
    def make_worker(self, process: Process, store: Leasing, notes: InHandFile) -> QueueWorker: ...


@dataclass(slots=True)
class Notebook:
    """What an in-hand file holds: it outlives processes."""

    owners: list[str] = field(default_factory=list)
    begun: dict[int, Begun] = field(default_factory=dict)
    holder: Process | None = None
    slots: int = 0

    @property
    def is_free(self) -> bool:
        return self.holder is None or self.holder.dead


class Notes(InHandFile):
    """As the file that it stands for, without a file."""

    def __init__(self, book: Notebook, process: Process) -> None:
        self._book = book
        book.holder = process
        self._owner = ""
        self._left_slots = list(book.begun)
        self.left = LastWords(tuple(book.owners), tuple(book.begun.values())) if book.owners else None
        if self.left is None:
            book.begun.clear()

    def take(self, owner: str) -> None:
        self._owner = owner
        self._book.owners = [owner, *(self.left.owners[:3] if self.left else ())]

    def recovered(self) -> None:
        for slot in self._left_slots:
            self.end(slot)
        self._left_slots = []
        self.left = None
        self._book.owners = [self._owner]

    def begin(self, key: bytes, deadline: float, phase: int) -> int:
        self._book.slots += 1
        self._book.begun[self._book.slots] = Begun(key, deadline, phase)
        return self._book.slots

    def end(self, slot: int) -> None:
        self._book.begun.pop(slot, None)

    def close(self, *, clean: bool) -> None:
        if clean:
            self._book.owners = []
        self._book.holder = None


class SteppedInbox(Inbox):
    """Waits by giving the baton back."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._poked = False
        self._idle_turns = 0
        self.wake_ups = 0

    def wait(self, timeout: float | None) -> None:
        process = self._process
        actor = process.coordinator
        wait = math.ceil(max(0.0, timeout or 0.0) * 1000) / 1000
        self._count_idle_turns(wait)
        actor.wake_at = process.world.elapsed + wait
        actor.is_ready = self._is_over
        actor.pause()
        while not self._is_over():
            actor.pause()
        actor.is_ready = _now
        self._poked = False
        wake_ups, self.wake_ups = self.wake_ups, 0
        for _ in range(wake_ups):
            process.woken()

    def poke(self) -> None:
        self._poked = True

    def _is_over(self) -> bool:
        return self._poked or self._process.world.elapsed >= self._process.coordinator.wake_at

    def _count_idle_turns(self, wait: float) -> None:
        busy = wait > 0 or self._process.was_busy
        self._idle_turns = 0 if busy else self._idle_turns + 1
        self._process.was_busy = False
        if self._idle_turns == _MOST_IDLE_TURNS:
            told = f"{self._process.owner} woke {_MOST_IDLE_TURNS} times without a call to the store or a body's end"
            self._process.world.ledger.broke(Invariant.NO_SPINNING, told)


class Body(Actor):
    """A body thread. ``heeds``: whether an interruption would end what it runs."""

    def __init__(
        self, process: Process, take: Callable[[Body], Attempt | None], perform: Callable[[Attempt], None]
    ) -> None:
        super().__init__(self._live, lambda: process.dead)
        self._process = process
        self._take = take
        self._perform = perform
        self.attempt: Attempt | None = None
        self.heeds = True

    def _live(self) -> None:
        while (attempt := self._take(self)) is not None:
            self.attempt = attempt
            self.heeds = True
            self._perform(attempt)
            self.attempt = None
            if self._process.dead:
                raise Gone  # nothing of a dead process may go on, not even to the next task
            self._process.was_busy = True

    def sleep(self, seconds: float) -> None:
        """Until then, or until it's interrupted: so it's ready, too, when its limit has come."""
        world = self._process.world
        self.wake_at = world.elapsed + seconds
        looked_at = world.elapsed
        self.is_ready = lambda: world.elapsed >= self.wake_at or (world.elapsed > looked_at and self._is_at_its_limit())
        try:
            if seconds > 0:
                self.pause()
            while world.elapsed < self.wake_at:
                looked_at = world.elapsed
                self.pause()
        finally:
            self.is_ready = _now

    def _is_at_its_limit(self) -> bool:
        attempt = self.attempt
        if not self.heeds or attempt is None or attempt.limit is None:
            return False
        return attempt.stopping or self._process.monotonic() >= attempt.limit[1]

    # --- what the task tells

    def began(self, count: int) -> None:
        process = self._alive()
        process.world.ledger.began(process.owner, self._claimed().claim, count, process.now())

    def over(self, *, succeeded: bool) -> None:
        if not self._process.dead:
            self._process.world.ledger.over(self._process.owner, self._claimed().claim, succeeded=succeeded)

    def hook_began(self, name: str) -> None:
        process = self._alive()
        process.world.ledger.hook_began(process.owner, self._claimed().claim, name)

    def hook_over(self, count: int) -> None:
        if not self._process.dead:
            self._process.world.ledger.hook_over(self._process.owner, self._claimed().claim, count)

    def die(self) -> None:
        self._process.die("killed by SIGSEGV")
        raise Gone

    def _alive(self) -> Process:
        if self._process.dead:
            raise Gone
        return self._process

    def _claimed(self) -> Attempt:
        assert self.attempt is not None
        return self.attempt


class SteppedExecutor(Executor):
    """Body threads that run when the simulation says so."""

    def __init__(self, process: Process, perform: Callable[[Attempt], None], size: int, name: str) -> None:
        super().__init__(perform, size, name)
        self._process = process
        self._queue: deque[Attempt] = deque()
        self._bodies = 0
        self._closing = False

    def submit(self, attempt: Attempt, unfinished: int) -> None:
        self._queue.append(attempt)
        if self._bodies < self._size and self._bodies < unfinished:
            self._bodies += 1
            body = Body(self._process, self._take, self._perform)
            body.is_ready = self._has_work
            self._process.actors.append(body)

    def submit_apart(self, attempt: Attempt) -> None:
        given = deque([attempt])
        self._process.actors.append(Body(self._process, lambda body: given.popleft() if given else None, self._perform))

    def take_back(self) -> list[Attempt]:
        taken = list(self._queue)
        self._queue.clear()
        return taken

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def close(self) -> None:
        self._closing = True

    def _has_work(self) -> bool:
        return bool(self._queue) or self._closing

    def _take(self, body: Body) -> Attempt | None:
        body.is_ready = self._has_work
        body.wake_at = math.inf
        while not self._queue and not self._closing:
            body.pause()
        body.is_ready = _now
        return self._queue.popleft() if self._queue else None


class Process:
    """``host`` tells whose notebook and clock it has."""

    def __init__(self, world: Surroundings, owner: str, book: Notebook, cause: str | None, offset: float) -> None:
        self.world = world
        self.owner = owner
        self.dead = False
        self.cause_of_death: str | None = None
        self.frozen_until = 0.0
        self.was_busy = False
        self.is_born = False
        self.ended_cleanly = False
        self.inbox = SteppedInbox(self)
        self.stop = StopToken(self.monotonic, self.inbox.poke)
        self.log = QueueLog(LogSettings(directory=None), world.spec.name)
        self._book = book
        self._cause = cause
        self._offset = offset
        self._worker: QueueWorker | None = None
        self.coordinator = Actor(self._live, lambda: self.dead)
        self.actors: list[Actor] = [self.coordinator]

    def monotonic(self) -> float:
        return self.world.elapsed + self._offset

    def now(self) -> Now:
        return self.world.now_for(self)

    @property
    def is_frozen(self) -> bool:
        return self.frozen_until > self.world.elapsed

    def die(self, cause: str | None) -> None:
        """Marks it dead; whoever has the baton next lets its threads unwind."""
        self.dead = True
        self.cause_of_death = cause

    def wake(self) -> None:
        """A wake-up has come."""
        self.inbox.wake_ups += 1
        self.inbox.poke()

    def woken(self) -> None:
        if self._worker is not None:
            self._worker.woken()

    def drain(self, grace: float) -> None:
        self.stop.drain("told to stop", grace)

    def bury(self) -> None:
        for actor in self.actors:
            actor.end()

    def _live(self) -> None:
        """As runtime.child does it."""
        while not self._book.is_free:
            self.coordinator.wake_at = self.world.elapsed + STANDBY
            self.coordinator.is_ready = lambda: self.world.elapsed >= self.coordinator.wake_at
            self.coordinator.pause()
            if self.stop.level is not StopLevel.NONE:
                self.ended_cleanly = True
                return self.die(None)
        self.coordinator.is_ready = _now
        notes = self.world.notes_for(self, self._book)
        left = notes.left
        store = self.world.store_for(self, left)
        notes.take(self.owner)
        self.is_born = True
        self.world.ledger.born(self.owner)
        worker = self._worker = self.world.make_worker(self, store, notes)
        if left is not None:
            worker.recover(left, self._cause)
        worker.work(self.inbox, self.stop)
        self.ended_cleanly = worker.holds_nothing
        notes.close(clean=worker.holds_nothing)
        self.die(None)


@dataclass(slots=True)
class Slot:
    """A place for one process at a time, on a host whose clocks are off by ``skew`` and ``offset`` seconds."""

    number: int
    book: Notebook
    skew: float
    offset: float
    process: Process | None = None
    restart_at: float = 0.0
    cause: str | None = None


def _now() -> bool:
    return True
