"""Seeded worlds in which everything goes wrong, and nothing may be lost.

Each runs the package's own workers over a store, with simulated time, crashes before and after every call to the
store, stalls past the lease, lost replies, outages, clock steps and tasks that fail, hang and kill. What truly
happened is written down beside them, and every step is held against it. One seed always gives the same run:

    python -m procrastinate_py.testing.simulation --store memory --seed 7

A bundled store on a server is given by its URL, and must be empty; each world has a queue of its own in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count
from random import Random
from typing import Any

from ..persisters import MemoryPersister, SQLitePersister, open_persister
from ..persisters._urls import shown_url
from .clock import FakeClock
from .simulation_invariants import Invariant, Violation
from .simulation_world import Parts, World

__all__ = ["STORES", "FloorOf", "Invariant", "Parts", "Report", "Violation", "simulate"]

STEPS = 400
WORKERS = 3


class FloorOf:
    """Only the four methods of a persister that has more."""

    def __init__(self, persister: Any) -> None:
        self.read_tasks = persister.read_tasks
        self.create_task = persister.create_task
        self.update_task = persister.update_task
        self.delete_task = persister.delete_task


STORES: Mapping[str, Callable[[FakeClock], Any]] = {
    "memory": MemoryPersister,
    "floor": lambda clock: FloorOf(MemoryPersister(clock)),
    "sqlite": lambda clock: SQLitePersister(":memory:", clock),
}
"""Stores that a replay can name; others by URL, or by ``module:callable``, which gets the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one seed showed. ``counts`` tells how often each thing happened."""

    seed: int
    steps: int
    workers: int
    store: str
    violations: tuple[Violation, ...]
    counts: Mapping[str, int]
    trace: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def replay(self) -> str:
        """A command that shows the same run, step by step. What may be a password in a URL is left to the reader."""
        store = shown_url(self.store) if "://" in self.store else self.store
        return (
            f"python -m procrastinate_py.testing.simulation --store {store} --seed {self.seed} "
            f"--steps {self.steps} --workers {self.workers} --trace"
        )

    def __str__(self) -> str:
        if self.ok:
            return f"seed {self.seed}: holds"
        return "\n".join([f"seed {self.seed}: broken", *map(str, self.violations), f"replay: {self.replay}"])


def simulate(
    make_store: Callable[[FakeClock], Any],
    *,
    seed: int,
    steps: int = STEPS,
    workers: int = WORKERS,
    store: str | None = None,
    parts: Parts | None = None,
    keep_trace: bool = False,
) -> Report:
    """One world. ``make_store(clock)`` gives an empty store that goes by this clock: with leases, or with the four
    methods alone. ``store`` is its name for a replay: ``module:callable``, or one of STORES."""
    world = World(make_store, Random(seed), workers=workers, parts=parts or Parts(), keep_trace=keep_trace)
    world.run(steps)
    known = world.ledger.tasks.values()
    world.counts.update({"tasks": len(known), "runs": sum(task.runs for task in known)})
    return Report(
        seed=seed,
        steps=steps,
        workers=workers,
        store=store or _name_of(make_store),
        violations=tuple(world.ledger.violations),
        counts=dict(world.counts),
        trace=tuple(world.trace),
    )


def _name_of(make_store: Callable[[FakeClock], Any]) -> str:
    for name, bundled in STORES.items():
        if bundled is make_store:
            return name
    return f"{getattr(make_store, '__module__', '?')}:{getattr(make_store, '__qualname__', '?')}"


def _found(name: str) -> Callable[[FakeClock], Any]:
    if name in STORES:
        return STORES[name]
    if "://" in name:
        return partial(open_persister, name)
    module, colon, path = name.partition(":")
    if not colon:
        raise SystemExit(f"--store: one of {', '.join(STORES)}, a URL, or module:callable, not {name!r}")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    make: Callable[[FakeClock], Any] = found
    return make


def _seeds(first: int, number: int) -> Iterator[int]:
    return iter(range(first, first + number)) if number else count(first)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: everything held."""
    parser = argparse.ArgumentParser(prog="python -m procrastinate_py.testing.simulation", description=__doc__)
    parser.add_argument("--store", default="memory", help=f"{', '.join(STORES)}, a URL, or module:callable")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=1, help="how many; 0: until one is broken")
    parser.add_argument("--steps", type=int, default=STEPS, help="turns with trouble")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--trace", action="store_true", help="what happened, step by step")
    given = parser.parse_args(arguments)
    make_store = _found(given.store)
    for seed in _seeds(given.seed, given.seeds):
        report = simulate(
            make_store, seed=seed, steps=given.steps, workers=given.workers, store=given.store, keep_trace=given.trace
        )
        for line in (*report.trace, str(report)):
            sys.stdout.write(f"{line}\n")
        if not report.ok:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
