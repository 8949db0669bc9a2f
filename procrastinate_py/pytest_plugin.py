"""Fixtures for tests of tasks, and what a failing ``have_task`` says. Imports what a test uses when it's used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .environment import Environment
    from .testing.clock import FakeClock

_MATCHERS = "procrastinate_py.testing.matchers"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "procrastinate_trust",
        "packages whose classes tasks may hold in the procrastinate_env fixture, besides the test's own",
        type="args",
        default=[],
    )


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that stands still until the test moves it; procrastinate_env goes by it where both are asked for."""
    from .testing.clock import FakeClock

    return FakeClock()


@pytest.fixture
def procrastinate_env(request: pytest.FixtureRequest) -> Iterator[Environment]:
    """An environment in test mode, on a store in memory. It has no queue yet."""
    from .environment import Environment

    module = request.node.getparent(pytest.Module)
    package = "" if module is None else module.obj.__name__.partition(".")[0]
    trust = {"__main__", package, *request.config.getini("procrastinate_trust")} - {""}
    clock = request.getfixturevalue("fake_clock") if "fake_clock" in request.fixturenames else None
    env = Environment(test_mode=True, clock=clock, trust=sorted(trust))
    yield env
    env.stop()


def pytest_assertrepr_compare(op: str, left: Any, right: Any) -> list[str] | None:
    """What differed from the nearest record."""
    matcher, other = (left, right) if type(left).__module__ == _MATCHERS else (right, left)
    if type(matcher).__module__ != _MATCHERS or op not in ("in", "=="):
        return None
    return [f"{matcher!r} {op} the tasks", *matcher.explanation(other)]
