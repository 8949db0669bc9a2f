"""A world of a few queue processes, one store and all that can go wrong between them, as one seed draws it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import floor, inf
from random import Random
from typing import Any
from uuid import uuid4

from ..core.codec import Codec
from ..core.lease import TaskId
from ..core.lifecycle import RetryPolicy
from ..core.queue import QueueSpec
from ..core.registry import Registry
from ..core.row import record_from_row
from ..core.task import NewTask, TaskRecord
from ..ports.capabilities import Capabilities
from ..ports.persister import Closing, Leasing
from ..runtime.deaths import HUNG
from ..runtime.in_hand import InHandFile, LastWords
from ..runtime.sole_consumer import SoleConsumer
from ..runtime.stop import StopLevel
from ..runtime.worker import QueueWorker
from .clock import FakeClock
from .faults import StoreFault, TroubledFloor, TroubledLeasing
from .simulation_actors import Actor, Gone
from .simulation_invariants import Invariant
from .simulation_ledger import Ledger, Now
from .simulation_process import Notebook, Notes, Process, Slot, SteppedExecutor
from .simulation_task import BEHAVIOURS, STORED_AS, SimulatedTask
from .simulation_weather import FAIR, Weather
from .simulation_witness import ConsumerWitness, FloorWitness, LeasingWitness, Witness

QUEUE = QueueSpec(name="simulated", timeout=20.0, hook_timeout=20.0, max_attempts=3, max_tasks=3)
_MOST_TASKS = 12
_MOST_TURNS_TO_FINISH = 40_000
_FURTHEST_STEP = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a simulated world is made of. Tests of the simulation put broken parts in their place."""

    worker: Callable[..., QueueWorker] = QueueWorker
    consumer: Callable[..., SoleConsumer] = SoleConsumer
    notes: Callable[[Notebook, Process], InHandFile] = Notes
    weather: Callable[[Random], Weather] = Weather.drawn


class World:
    """``random`` draws all that isn't decided otherwise, in one order."""

    def __init__(
        self, make_store: Callable[[FakeClock], Any], random: Random, *, workers: int, parts: Parts, keep_trace: bool
    ) -> None:
        self._clock = FakeClock()
        self._store = make_store(self._clock)
        self.spec = QUEUE
        if getattr(self._store, "is_shareable", False):  # what other worlds have put into it isn't this one's
            self.spec = replace(QUEUE, name=f"{QUEUE.name}-{uuid4().hex}")
        self.random = random
        self.elapsed = 0.0
        self.weather = parts.weather(random)
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self._keep_trace = keep_trace
        self._parts = parts
        self._abilities = Capabilities.of(self._store)
        self._is_floor = self._abilities.leasing is None
        self.ledger = Ledger(
            RetryPolicy(max_attempts=QUEUE.max_attempts, backoff=QUEUE.backoff), floor=self._is_floor, tell=self.tell
        )
        registry = Registry()
        registry.register(SimulatedTask, STORED_AS)
        self.codec = Codec(registry)
        self._down_until = 0.0
        self._born = 0
        shared = Notebook()
        skews = [random.choice((0.0, 0.0, random.uniform(-_FURTHEST_STEP, _FURTHEST_STEP))) for _ in range(workers)]
        self._slots = [
            Slot(
                number=number,
                book=shared if self._is_floor else Notebook(),
                skew=skews[0] if self._is_floor else skews[number],
                offset=1000.0 if self._is_floor else random.uniform(0.0, 1000.0),
            )
            for number in range(workers)
        ]

    def run(self, steps: int) -> None:
        """Trouble for ``steps`` turns, then fair weather until all tasks are finished, or a violation."""
        try:
            for _ in range(steps):
                self._act()
                if self.ledger.violations:
                    return
            self._finish()
        finally:
            for slot in self._slots:
                if slot.process is not None:
                    slot.process.die(None)
                    slot.process.bury()
            if isinstance(self._store, Closing):
                self._store.close()

    def tell(self, what: str) -> None:
        if self._keep_trace:
            self.trace.append(f"{self.elapsed:9.3f}  {what}")

    # --- what processes see of it

    def now_for(self, process: Process) -> Now:
        store = self._clock.now()
        draining = process.stop.level is not StopLevel.NONE
        if self._abilities.timekeeping is not None and not self._is_floor:
            return Now(store=store, worker=store, elapsed=self.elapsed, draining=draining)
        host = store + self._slot_of(process).skew
        return Now(store=host if self._is_floor else store, worker=host, elapsed=self.elapsed, draining=draining)

    def store_for(self, process: Process, left: LastWords | None) -> Leasing:
        trouble = ProcessTrouble(self, process)
        witness = Witness(self.ledger, process.owner, process.now, self._look)
        if self._abilities.leasing is not None:
            return TroubledLeasing(LeasingWitness(self._abilities.leasing, witness), trouble)
        consumer = self._parts.consumer(
            TroubledFloor(FloorWitness(self._store, witness, self.spec.name), trouble),
            now=lambda: process.now().worker,
            fresh_for=self.spec.update_period,
            warn=self.tell,
            left=[note.key for note in left.begun] if left else (),
        )
        return ConsumerWitness(consumer, witness)

    def notes_for(self, process: Process, book: Notebook) -> InHandFile:
        return self._parts.notes(book, process)

    def make_worker(self, process: Process, store: Leasing, notes: InHandFile) -> QueueWorker:
        return self._parts.worker(
            spec=self.spec,
            store=store,
            codec=self.codec,
            now=lambda: process.now().worker,
            monotonic=process.monotonic,
            log=process.log,
            owner=process.owner,
            in_hand=notes,
            executor=partial(SteppedExecutor, process),
        )

    @property
    def store_is_down(self) -> bool:
        return self.elapsed < self._down_until

    # --- turns

    def _act(self) -> None:
        random, weather = self.random, self.weather
        if random.random() < 0.05 and len(self.ledger.tasks) < _MOST_TASKS and not self.store_is_down:
            for _ in range(random.choice((1, 1, 4))):
                self._delay()
            self._wake_all()
        for chance, event in (
            (weather.kill, self._kill),
            (weather.freeze, self._freeze),
            (weather.drain, self._drain),
            (weather.outage, self._fail_store),
            (weather.clock_step, self._step_clock),
        ):
            if chance and random.random() < chance:
                event()
        self._turn()

    def _turn(self) -> None:
        for slot in self._slots:
            if slot.process is None and slot.restart_at <= self.elapsed:
                self._start(slot)
        ready = [
            (slot, actor)
            for slot in self._slots
            if slot.process is not None and not slot.process.is_frozen
            for actor in slot.process.actors
            if actor.is_ready()
        ]
        if ready and self.random.random() >= self.weather.late_turn:
            self._resume(*self.random.choice(ready))
        else:
            self._pass_time(bool(ready))

    def _resume(self, slot: Slot, actor: Actor) -> None:
        process = slot.process
        assert process is not None
        actor.resume()
        if actor.failure is not None:
            self.ledger.broke(Invariant.WORKER_LIVES, f"{process.owner}: {actor.failure!r}")
            process.die("exit code 70")
        if actor.ended and actor in process.actors:
            process.actors.remove(actor)
        if process.dead:
            self._bury(slot, process)

    def _pass_time(self, something_is_ready: bool) -> None:
        random = self.random
        wait = min(self._next_moments(), default=inf) - self.elapsed
        if something_is_ready or wait == inf:
            wait = min(wait, random.uniform(0.0, 2.0))
        elif self.weather is not FAIR:
            wait *= random.choice((1.0, 1.0, 1.0, random.random()))
            wait += random.choice((0.0, 0.0, 0.0, random.uniform(0.0, 5.0)))
        self._advance(wait)

    def _advance(self, seconds: float) -> None:
        if seconds > 0:
            self.elapsed += seconds
            self._clock.tick(seconds)

    def _next_moments(self) -> list[float]:
        moments = []
        for slot in self._slots:
            if slot.process is None:
                moments.append(slot.restart_at)
            elif slot.process.is_frozen:
                moments.append(slot.process.frozen_until)
            else:
                moments.extend(actor.wake_at for actor in slot.process.actors)
        return [moment for moment in moments if moment > self.elapsed]

    def _finish(self) -> None:
        self.tell("-- fair weather")
        self.weather = FAIR
        self._down_until = 0.0
        for slot in self._slots:
            if slot.process is not None:
                slot.process.frozen_until = 0.0
        for _ in range(_MOST_TURNS_TO_FINISH):
            if self.ledger.violations or not self.ledger.unfinished:
                break
            self._turn()
        if self.ledger.unfinished and not self.ledger.violations:
            told = f"unfinished after {self.elapsed:.0f} s: tasks {self.ledger.unfinished}"
            self.ledger.broke(Invariant.NONE_LOST, told)
        self._look()

    # --- events

    def _start(self, slot: Slot) -> None:
        self._born += 1
        slot.process = Process(self, f"worker-{self._born}", slot.book, slot.cause, slot.offset)
        self.tell(f"{slot.process.owner} starts on host {slot.number}")

    def _bury(self, slot: Slot, process: Process) -> None:
        process.bury()
        may_lose_machine = process.is_born and not process.ended_cleanly
        machine_lost = may_lose_machine and self.random.random() < self.weather.lost_machine
        self.tell(f"{process.owner} ends: {process.cause_of_death}{', its machine too' if machine_lost else ''}")
        self.counts["ends" if process.ended_cleanly else "crashes"] += 1
        if process.is_born:
            self.ledger.died(process.owner, notes_kept=not machine_lost)
        slot.process = None
        slot.cause = process.cause_of_death
        slot.restart_at = self.elapsed + self.random.choice((0.1, 1.0, 40.0))
        if machine_lost:
            self.counts["machines lost"] += 1
            slot.book.owners.clear()
            slot.book.begun.clear()

    def _living(self) -> Slot | None:
        living = [slot for slot in self._slots if slot.process is not None]
        return self.random.choice(living) if living else None

    def _kill(self) -> None:
        slot = self._living()
        if slot is not None and slot.process is not None:
            process = slot.process
            process.die(HUNG if process.is_frozen else "killed by SIGKILL")
            self._bury(slot, process)

    def _freeze(self) -> None:
        slot = self._living()
        if slot is not None and slot.process is not None:
            self.freeze(slot.process)

    def freeze(self, process: Process) -> None:
        """Nothing in it runs for a while: a suspended machine, a hog of the interpreter."""
        seconds = self.random.choice((5.0, 35.0, 90.0))
        process.frozen_until = self.elapsed + seconds
        self.counts["stalls"] += 1
        self.ledger.froze(process.owner)
        self.ledger.troubled(process.owner, process.frozen_until)
        self.tell(f"{process.owner} is frozen for {seconds} s")

    def _drain(self) -> None:
        slot = self._living()
        if slot is not None and slot.process is not None:
            self.counts["drains"] += 1
            slot.process.drain(self.random.choice((0.0, 2.0, 30.0)))

    def _fail_store(self) -> None:
        self._down_until = self.elapsed + self.random.choice((1.0, 10.0, 60.0))
        self.counts["outages"] += 1
        self.tell(f"the store is down until {self._down_until:.3f}")

    def _step_clock(self) -> None:
        step = self.random.choice((-1.0, 1.0)) * self.random.choice((0.5, 20.0, _FURTHEST_STEP))
        self.counts["clock steps"] += 1
        self.tell(f"the clock steps by {step} s")
        self.ledger.clock_stepped(self._clock.now() + max(slot.skew for slot in self._slots))
        self._clock.move_to(self._clock.now() + step)

    def _delay(self) -> None:
        random = self.random
        now = floor(self._clock.now() + (self._slots[0].skew if self._is_floor else 0.0))
        run_at = now + random.choice((0, 0, 0, random.randrange(-5, 30)))
        loads = random.random() > 0.05
        behaviour = random.choice(BEHAVIOURS[:3] * 3 + BEHAVIOURS[3:])
        strategy = SimulatedTask(behaviour, random.choice((0.0, 0.5, 3.0, 40.0)))
        task = NewTask(
            queue=self.spec.name,
            run_at=run_at,
            initial_run_at=run_at,
            expire_at=random.choice((None, None, None, run_at + random.randrange(0, 60))),
            task=self.codec.dump(strategy) if loads else "!nowhere:Nothing {}",
        )
        task_id: TaskId = self._store.create_task(task.as_mapping())
        self.tell(f"task {task_id} delayed to {run_at}: {strategy.behaviour}, {strategy.seconds} s, {task.expire_at=}")
        self.ledger.created(task_id, task, loads=loads)

    def _wake_all(self) -> None:
        for slot in self._slots:
            if slot.process is not None and self.random.random() >= self.weather.lost_wake_up:
                for _ in range(self.random.choice((1, 1, 2))):
                    slot.process.wake()

    # --- looking

    def _look(self) -> None:
        inspecting = None if self._is_floor else self._abilities.inspecting
        rows: list[TaskRecord]
        if inspecting is not None:
            rows = list(inspecting.select(queue=self.spec.name))
        else:
            rows = [record_from_row(self.spec.name, row, 0.0) for row in self._store.read_tasks(self.spec.name)]
        self.ledger.saw({row.id: row for row in rows}, with_leases=inspecting is not None)

    def _slot_of(self, process: Process) -> Slot:
        return next(slot for slot in self._slots if slot.process is process)


class ProcessTrouble:
    """What happens to a process around a call to its store. In its coordinator's thread."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def before(self, call: str) -> None:
        world = self._world
        self._process.was_busy = True
        self._yield()
        self._maybe_crash(f"before {call}")
        if world.store_is_down or self._happens(world.weather.failing_call):
            world.counts["failed calls"] += 1
            world.tell(f"{self._process.owner} {call} fails")
            world.ledger.troubled(self._process.owner, world.elapsed)
            raise StoreFault(f"{call}: the store is down")

    def after(self, call: str) -> None:
        world = self._world
        self._maybe_crash(f"after {call}")
        if self._happens(world.weather.stall_in_call):
            world.freeze(self._process)
            self._process.coordinator.pause()
        if self._happens(world.weather.lost_reply):
            world.counts["lost replies"] += 1
            world.ledger.unheard(self._process.owner)
            world.ledger.troubled(self._process.owner, world.elapsed)
            world.tell(f"{self._process.owner} {call}: the reply is lost")
            raise StoreFault(f"{call}: the reply was lost")
        self._yield()
        world.ledger.heard(self._process.owner)

    def _yield(self) -> None:
        if self._world.random.random() < 0.2:
            self._process.coordinator.pause()

    def _maybe_crash(self, when: str) -> None:
        if self._happens(self._world.weather.crash_in_call):
            self._world.counts["crashes in a call"] += 1
            self._process.die(f"killed by SIGKILL {when}")
            raise Gone

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._world.random.random() < chance
