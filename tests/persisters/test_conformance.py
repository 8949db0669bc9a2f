"""Every store of this machine passes the public exam (G6), and the exam tells what it found."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.floor_dict import DictPersister
from examples.floor_json import JsonPersister
from examples.floor_sqlalchemy import TablePersister
from examples.leasing_sqlalchemy import LeasingPersister
from procrastinate_py.core.errors import MalformedPersisterError
from procrastinate_py.persisters import MemoryPersister, SQLitePersister
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import (
    ABILITIES,
    CASES,
    Failure,
    PersisterConformance,
    Report,
    grade,
)


class TestMemory(PersisterConformance):
    expects = ABILITIES

    def make_persister(self, clock: FakeClock) -> MemoryPersister:
        return MemoryPersister(clock)


class TestSQLiteInMemory(PersisterConformance):
    expects = ABILITIES

    def make_persister(self, clock: FakeClock) -> SQLitePersister:
        return SQLitePersister(":memory:", clock)


class TestSQLite(PersisterConformance):
    """E3: the default store; what it writes is there after it was opened anew."""

    expects = ABILITIES

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{number}.db" for number in itertools.count())

    def make_persister(self, clock: FakeClock) -> SQLitePersister:
        self.clock = clock
        return SQLitePersister(next(self.paths), clock)

    def reopen(self, persister: SQLitePersister) -> SQLitePersister:
        persister.close()
        return SQLitePersister(persister.path, self.clock)


class TestDict(PersisterConformance):
    abilities = ("floor",)

    def make_persister(self, clock: FakeClock) -> DictPersister:
        return DictPersister()


class TestJson(PersisterConformance):
    abilities = ("floor",)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{number}.json" for number in itertools.count())

    def make_persister(self, clock: FakeClock) -> JsonPersister:
        return JsonPersister(next(self.paths))

    def reopen(self, persister: JsonPersister) -> JsonPersister:
        return JsonPersister(persister.path)


class TestFloorOnSQLAlchemy(PersisterConformance):
    """G6: the worked example of docs/writing-a-persister.md."""

    expects = abilities = ("floor",)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.urls = (f"sqlite:///{tmp_path}/{number}.db" for number in itertools.count())

    def make_persister(self, clock: FakeClock) -> TablePersister:
        self.url = next(self.urls)
        return TablePersister(self.url)

    def reopen(self, persister: TablePersister) -> TablePersister:
        persister.close()
        return TablePersister(self.url)


class TestLeasingOnSQLAlchemy(PersisterConformance):
    """G6: the worked example of docs/writing-a-persister.md."""

    expects = abilities = ("floor", "leasing")
    scale = 0.2

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.urls = (f"sqlite:///{tmp_path}/{number}.db" for number in itertools.count())

    def make_persister(self, clock: FakeClock) -> LeasingPersister:
        self.clock = clock
        return LeasingPersister(next(self.urls), clock)

    def reopen(self, persister: LeasingPersister) -> LeasingPersister:
        persister.close()
        return LeasingPersister(persister.url, self.clock)


def test_a_persister_without_the_four_methods_is_refused() -> None:
    """E4"""
    with pytest.raises(MalformedPersisterError, match=r"lacks read_tasks.*delete_task"):
        grade(lambda clock: object())


def test_abilities_that_a_persister_lacks_are_told_and_not_examined() -> None:
    """G6"""
    report = grade(lambda clock: DictPersister())
    assert report.passed
    assert list(report.cases) == ["floor"]
    assert report.lacking == ABILITIES[1:]
    number = report.cases["floor"]
    assert str(report).splitlines() == [
        "DictPersister: floor",
        f"  floor: {number} of {number}",
        "  without: leasing, creating, editing, waking, inspecting, timekeeping",
        "  left out: 2 cases, since it needs a way to open the store anew",
    ]


def test_there_are_enough_cases_and_each_has_a_sentence_of_its_own() -> None:
    """G6"""
    assert len({(case.ability, case.sentence) for case in CASES}) == len(CASES)
    assert len(CASES) >= 160


def report_of(failed: tuple[str, ...] = (), lacking: tuple[str, ...] = ()) -> Report:
    return Report(
        persister="Made",
        cases={ability: 5 for ability in ABILITIES if ability not in lacking},
        lacking=lacking,
        failures=tuple(Failure(ability=ability, sentence="it holds", why="it doesn't") for ability in failed),
    )


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (report_of(), "complete"),
        (report_of(lacking=("waking",)), "complete"),
        (report_of(failed=("waking",)), "leasing"),
        (report_of(failed=("editing",)), "leasing"),
        (report_of(lacking=("inspecting",)), "leasing"),
        (report_of(failed=("leasing",)), "floor"),
        (report_of(lacking=ABILITIES[1:]), "floor"),
        (report_of(failed=("floor",)), None),
        (report_of(failed=("floor",), lacking=ABILITIES[1:]), None),
    ],
)
def test_a_grade_is_the_highest_whose_abilities_all_pass(report: Report, expected: str | None) -> None:
    """G6"""
    assert report.grade == expected
    assert str(report).startswith(f"Made: {expected or 'no grade'}\n")


def test_large_cases_shrink_with_the_scale() -> None:
    """G6: a store whose calls take long is examined in a time that suits."""
    made: list[int] = []

    class Counting(MemoryPersister):
        def _insert(self, task: Any) -> int:
            made.append(1)
            return super()._insert(task)

    grade(Counting, abilities=("creating", "leasing"), scale=0.01)
    few = len(made)
    made.clear()
    grade(Counting, abilities=("creating", "leasing"))
    assert few < len(made) / 3


TEST_MODULE = """
from procrastinate_py.persisters import MemoryPersister
from procrastinate_py.testing import PersisterConformance


class TestSound(PersisterConformance):
    abilities = ("leasing", "editing")

    def make_persister(self, clock):
        return MemoryPersister(clock)


class Broken(MemoryPersister):
    def claim(self, queue, owner, limit, lease_for):
        return super().claim(queue, owner, limit + 1, lease_for)


class TestBroken(PersisterConformance):
    abilities = ("leasing",)

    def make_persister(self, clock):
        return Broken(clock)


class Floor:
    def __init__(self):
        self.store = MemoryPersister()
        for name in ("read_tasks", "create_task", "update_task", "delete_task"):
            setattr(self, name, getattr(self.store, name))


class TestFloor(PersisterConformance):
    expects = ("floor", "leasing")

    def make_persister(self, clock):
        return Floor()
"""


def test_pytest_shows_each_case_by_its_sentence(tmp_path: Path) -> None:
    """G6"""
    path = tmp_path / "test_mine.py"
    path.write_text(TEST_MODULE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", path.name],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    told = done.stdout
    assert done.returncode == 1, told + done.stderr
    assert "PASSED test_mine.py::TestSound::test_it_holds_that[leasing: a claim with limit 0 takes nothing]" in told
    assert "FAILED test_mine.py::TestBroken::test_it_holds_that[leasing: a claim with limit 0 takes nothing]" in told
    assert "a persister should hold that a claim with limit 0 takes nothing; but the claim is [1]" in told
    assert "FAILED test_mine.py::TestFloor::test_it_has_the_abilities_it_expects" in told
    assert "Floor lacks the ability 'leasing': a method of it is missing" in told
    assert "PASSED test_mine.py::TestFloor::test_it_holds_that[floor: two tasks that are alike" in told
    assert "Floor has no leasing" in told


# --- from the command line


def examine(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "procrastinate_py.testing.conformance", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_store_is_examined_by_its_url(tmp_path: Path) -> None:
    """G6: one line for a store, and nothing is left in it."""
    done = examine("sqlite:///exam.db", "--scale", "0.1", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("SQLitePersister: complete\n")
    assert "left out" not in done.stdout
    persister = SQLitePersister(tmp_path / "exam.db")
    assert persister.count() == {}
    persister.close()


def test_a_store_that_holds_tasks_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """G6"""
    persister = SQLitePersister(tmp_path / "used.db")
    new = {"queue": "mail", "run_at": 1, "initial_run_at": 1, "expire_at": None, "task": "!a:B {}"}
    task_id = persister.create_task(new)
    done = examine("sqlite:///used.db", folder=tmp_path)
    assert done.returncode == 2
    assert "nothing was examined: the store isn't empty" in done.stderr
    assert persister.find(task_id) is not None
    persister.close()


def test_a_persister_of_ones_own_is_examined_by_its_name(tmp_path: Path) -> None:
    """G6"""
    (tmp_path / "mine.py").write_text(TEST_MODULE)
    assert examine("mine:Broken", "--scale", "0.1", folder=tmp_path).returncode == 1
    done = examine("procrastinate_py.persisters:MemoryPersister", "--scale", "0.1", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("MemoryPersister: complete\n")


@pytest.mark.parametrize(
    "target",
    ["nonsense", "no_such_module:make", "json:no_such_thing", "carrier-pigeon://x", "sqlite:///no_such_folder/x.db"],
)
def test_what_cannot_be_examined_is_told(target: str, tmp_path: Path) -> None:
    done = examine(target, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("nothing was examined: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("scale", ["-1", "0", "nan", "inf"])
def test_a_scale_at_which_large_cases_would_examine_nothing_is_refused(scale: str, tmp_path: Path) -> None:
    """G6"""
    done = examine("sqlite:///exam.db", "--scale", scale, folder=tmp_path)
    assert done.returncode == 2
    assert "must be above 0" in done.stderr
