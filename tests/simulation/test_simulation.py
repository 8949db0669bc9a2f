"""The package's own workers, in seeded worlds in which everything goes wrong.

SIMULATION_SEEDS=5000 runs that many more of each store, beginning with SIMULATION_FIRST_SEED.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.core.lifecycle import Complete
from procrastinate_py.persisters import MemoryPersister
from procrastinate_py.runtime.in_hand import InHandFile
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.faults import StoreFault, TroubledFloor, TroubledLeasing
from procrastinate_py.testing.simulation import STORES, Invariant, Parts, main, simulate
from procrastinate_py.testing.simulation_process import Notebook, Process
from tests.simulation.broken_stores import SettlesHalf
from tests.simulation.seeds import SOUND

ROOT = Path(__file__).parent.parent.parent
CHUNK = 10
FIRST_SEED = int(os.environ.get("SIMULATION_FIRST_SEED", "0"))
MORE_SEEDS = int(os.environ.get("SIMULATION_SEEDS", "0"))
TROUBLE = {
    "crashes",
    "crashes in a call",
    "machines lost",
    "stalls",
    "lost replies",
    "failed calls",
    "outages",
    "clock steps",
    "drains",
}


def chunks() -> Iterator[Any]:
    for store, number in SOUND.items():
        for start in range(FIRST_SEED, FIRST_SEED + max(number, MORE_SEEDS), CHUNK):
            yield pytest.param(store, start, id=f"{store}-{start}")


@pytest.mark.parametrize(("store", "start"), list(chunks()))
def test_nothing_is_lost_whatever_happens(store: str, start: int) -> None:
    """E23-E30, E37-E40, U27, U33, G1, G2, G4: each invariant at every step; a failure prints its replay command."""
    for seed in range(start, start + CHUNK):
        report = simulate(STORES[store], seed=seed)
        assert report.ok, str(report)


@pytest.mark.parametrize("workers", [1, 6])
def test_it_holds_for_few_workers_and_for_many(workers: int) -> None:
    """G1, G2"""
    for seed in range(1000, 1008):
        report = simulate(STORES["memory"], seed=seed, workers=workers)
        assert report.ok, str(report)


def test_every_kind_of_trouble_happens() -> None:
    """G4: a simulation that never loses a reply proves nothing about lost replies."""
    counts: Counter[str] = Counter()
    for seed in range(25):
        counts.update(simulate(STORES["memory"], seed=seed).counts)
    assert {kind for kind in TROUBLE if counts[kind] < 10} == set()
    assert counts["runs"] > counts["tasks"] > 100


def test_a_store_changes_nothing_about_what_happens() -> None:
    """G5: SQLite does what the store in memory does, step by step."""
    for seed in range(10):
        traces = [simulate(STORES[store], seed=seed, keep_trace=True).trace for store in ("memory", "sqlite")]
        assert traces[0] == traces[1]


@pytest.mark.parametrize("store", STORES)
def test_a_seed_is_a_run(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """G4: in this process and in any other, whatever its hashes are."""
    first, second = (simulate(STORES[store], seed=5, keep_trace=True) for _ in range(2))
    assert first.trace == second.trace
    command = [sys.executable, *shlex.split(first.replay)[1:]]
    replayed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert replayed.stdout.splitlines() == [*first.trace, str(first)]
    assert replayed.returncode == 0


def test_a_broken_run_can_be_replayed_from_what_it_prints() -> None:
    """G4"""
    report = next(report for seed in range(20) if not (report := simulate(SettlesHalf, seed=seed)).ok)
    printed = next(line for line in str(report).splitlines() if line.startswith("replay: "))
    command = [sys.executable, *shlex.split(printed.removeprefix("replay: "))[1:]]
    replayed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert replayed.returncode == 1
    assert replayed.stdout.endswith(f"{report}\n")


def test_the_command_runs_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", "floor", "--seed", "3", "--seeds", "2", "--steps", "50"]) == 0
    assert capsys.readouterr().out.splitlines() == ["seed 3: holds", "seed 4: holds"]
    with pytest.raises(SystemExit, match="module:callable"):
        main(["--store", "nonsense"])


def test_no_thread_is_left_behind() -> None:
    """G9"""
    before = threading.active_count()
    for seed in range(10):
        simulate(STORES["floor"], seed=seed)
    assert threading.active_count() == before


class DictOfRows:
    """Somebody's own store, of four methods."""

    def __init__(self, clock: FakeClock) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        return [row for row in self.rows.values() if row["queue"] == queue]

    def create_task(self, data: dict[str, Any]) -> str:
        task_id = f"task-{len(self.rows)}-{data['run_at']}"
        self.rows[task_id] = {"id": task_id, **data}
        return task_id

    def update_task(self, attributes: dict[str, Any]) -> None:
        self.rows[attributes["id"]] = dict(attributes)

    def delete_task(self, task_id: str) -> None:
        self.rows.pop(task_id, None)


class ForgetfulDict(DictOfRows):
    def update_task(self, attributes: dict[str, Any]) -> None:
        super().update_task({**attributes, "attempts": 0})


def test_anybody_can_put_a_store_of_their_own_through_it() -> None:
    """G4, G6"""
    unsound = [simulate(ForgetfulDict, seed=seed) for seed in range(10)]
    assert Invariant.ATTEMPTS_ONLY_GROW in {found.invariant for report in unsound for found in report.violations}
    for seed in range(10):
        report = simulate(DictOfRows, seed=seed)
        assert report.ok, str(report)


class Told:
    """Trouble that strikes where it's told to."""

    def __init__(self, strikes: str) -> None:
        self.strikes = strikes
        self.calls: list[str] = []

    def before(self, call: str) -> None:
        self.calls.append(call)
        if self.strikes == "before":
            raise StoreFault(call)

    def after(self, call: str) -> None:
        if self.strikes == "after":
            raise StoreFault(call)


@pytest.mark.parametrize(("strikes", "left"), [("before", 1), ("after", 0)])
def test_trouble_strikes_before_a_call_or_after_it(strikes: str, left: int) -> None:
    """G4: after it, what was asked for has happened, and only the reply is lost."""
    store = MemoryPersister(FakeClock())
    data = {"queue": "q", "run_at": 1, "initial_run_at": 1, "expire_at": None, "task": "!x {}"}
    task_id = store.create_task(data)
    with pytest.raises(StoreFault):
        TroubledFloor(store, Told(strikes)).delete_task(task_id)
    assert len(store.read_tasks("q")) == left
    store.delete_task(task_id)
    store.create_task(data)
    with pytest.raises(StoreFault):
        TroubledLeasing(store, Told(strikes)).claim("q", "me", 1, 30.0)
    assert len([record for record in store.select() if record.lease]) == 1 - left


def test_without_trouble_every_call_passes_through() -> None:
    store, trouble = MemoryPersister(FakeClock()), Told("nowhere")
    floor, leasing = TroubledFloor(store, trouble), TroubledLeasing(store, trouble)
    task_id = floor.create_task({"queue": "q", "run_at": 1, "initial_run_at": 1, "expire_at": None, "task": "!x {}"})
    (row,) = floor.read_tasks("q")
    floor.update_task({**row, "attempts": 1})
    assert leasing.next_look_at("q") == 1.0
    (claim,) = leasing.claim("q", "me", 9, 30.0)
    assert leasing.extend([claim.token], 30.0) == []
    assert leasing.lapsed("q", "me", 9, 30.0) == []
    assert leasing.settle([(LeaseToken(task_id, "another's"), Complete())]) != []
    assert leasing.settle([(claim.token, Complete())]) == []
    floor.delete_task(task_id)
    calls = "create_task read_tasks update_task next_look_at claim extend lapsed settle settle delete_task"
    assert trouble.calls == calls.split()


class NotesInFile(InHandFile):
    """The file itself, in place of its double."""

    def __init__(self, folder: Path, opened: list[int], book: Notebook, process: Process) -> None:
        self._book = book
        book.holder = process
        path = folder / f"{id(book)}.in-hand"
        if not book.owners:
            path.unlink(missing_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        opened.append(fd)
        super().__init__(path, fd)

    def take(self, owner: str) -> None:
        super().take(owner)
        self._book.owners = [owner]

    def close(self, *, clean: bool) -> None:
        if clean:
            self._book.owners = []
            self._write_owners()
        self._book.holder = None


@pytest.mark.parametrize("store", ["memory", "floor"])
def test_in_hand_files_do_what_their_double_does(store: str, tmp_path: Path) -> None:
    """E38: the same seeds, with files that outlive their processes, give the same runs."""
    for seed in range(4):
        opened: list[int] = []
        (folder := tmp_path / str(seed)).mkdir()
        with_files = Parts(notes=partial(NotesInFile, folder, opened))
        try:
            reports = [simulate(STORES[store], seed=seed, parts=parts, keep_trace=True) for parts in (None, with_files)]
        finally:
            for fd in opened:
                os.close(fd)
        assert reports[0].trace == reports[1].trace
        assert reports[1].ok, str(reports[1])
