"""have_task: what it matches, and what it says of the nearest where nothing does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from procrastinate_py import Environment
from procrastinate_py.testing import have_task
from tests.environments import NOW, env_on


class SendWelcome:
    def __init__(self, to: str) -> None:
        self.to = to

    def run(self) -> None:
        pass


class SendSpecialWelcome(SendWelcome):
    pass


@dataclass
class Report:
    month: int

    def run(self) -> None:
        pass


@pytest.fixture
def env() -> Environment:
    env = env_on(None, "email", "reports", now=NOW)
    env.delay("email", task=SendWelcome("ada"), run_at=NOW + 60)
    env.delay("reports", task=Report(3), expire_at=NOW + 600)
    return env


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"queue": "email"},
        {"queue": " email "},
        {"task": SendWelcome},
        {"task": f"{__name__}:SendWelcome"},
        {"task": SendWelcome("ada")},
        {"task": Report(3)},
        {"run_at": NOW + 60},
        {"run_at": NOW + 59.5},
        {"run_at": timedelta(minutes=1)},
        {"run_at": datetime.fromtimestamp(NOW + 60, UTC)},
        {"expire_at": NOW + 600},
        {"expire_at": None},
        {"state": "pending", "attempts": 0},
        {"queue": "email", "task": SendWelcome, "run_at": NOW + 60, "expire_at": None},
    ],
)
def test_it_equals_a_record_that_is_as_described(env: Environment, wanted: dict[str, Any]) -> None:
    """U13 E46"""
    assert have_task(**wanted) in env.tasks()
    assert any(record == have_task(**wanted) for record in env.tasks())


@pytest.mark.parametrize(
    "wanted",
    [
        {"queue": "reports", "task": SendWelcome},
        {"task": SendSpecialWelcome},
        {"task": SendWelcome("bob")},
        {"task": Report(4)},
        {"task": "SendWelcome"},
        {"run_at": NOW + 61},
        {"run_at": None},
        {"expire_at": NOW + 601},
        {"state": "failed"},
        {"attempts": 1},
    ],
)
def test_it_equals_no_record_that_differs(env: Environment, wanted: dict[str, Any]) -> None:
    """U13"""
    assert have_task(**wanted) not in env.tasks()
    assert have_task(**wanted) != "a task"


def test_a_subclass_is_another_class(env: Environment) -> None:
    """U13 U20"""
    env.delay("email", task=SendSpecialWelcome("eve"))
    assert [record == have_task(task=SendWelcome) for record in env.tasks()] == [True, False, False]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [({"run_at": "soon"}, TypeError), ({"queue": ""}, ValueError), ({"state": "done"}, ValueError)],
)
def test_a_wrong_description_is_told(wanted: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        have_task(**wanted)
    with pytest.raises(TypeError):
        have_task("email")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (
            {"queue": "email", "task": SendWelcome, "run_at": NOW + 50},
            [
                "none of 2 task(s); the nearest is number 1 in queue 'email':",
                f"  run_at: wanted {NOW + 50}, it is {NOW + 60} (+10 s)",
            ],
        ),
        (
            {"queue": "email", "task": SendWelcome("bob")},
            [
                "none of 2 task(s); the nearest is number 1 in queue 'email':",
                "  task: SendWelcome with to: wanted 'bob', it is 'ada'",
            ],
        ),
        (
            {"queue": "reports", "task": SendWelcome, "state": "pending"},
            [
                "none of 2 task(s); the nearest is number 1 in queue 'email':",
                "  queue: wanted 'reports', it is 'email'",
            ],
        ),
        (
            {"queue": "reports", "task": Report(4), "expire_at": timedelta(minutes=10)},
            [
                "none of 2 task(s); the nearest is number 2 in queue 'reports':",
                "  task: wanted Report(month=4), it is Report(month=3)",
            ],
        ),
    ],
)
def test_it_tells_what_the_nearest_record_differs_in(env: Environment, wanted: Any, lines: list[str]) -> None:
    """U13"""
    assert have_task(**wanted).explanation(env.tasks()) == lines


def test_it_tells_that_there_is_nothing() -> None:
    """U13"""
    assert have_task(queue="email").explanation([]) == ["there is no task at all"]


def test_a_task_that_cannot_be_loaded_differs(env: Environment) -> None:
    """U13"""
    other = env_on(env.store().persister, "email", now=NOW, trust=["shop"])
    record = other.tasks()[0]
    assert record != have_task(task=SendWelcome)
    assert record == have_task(task=f"{__name__}:SendWelcome", queue="email")
    (line,) = have_task(task=SendWelcome).differences(record)
    assert "can't be loaded" in line


def test_it_shows_what_it_wants() -> None:
    assert repr(have_task(queue="email", task=SendWelcome)) == "have_task(queue='email', task=SendWelcome)"
