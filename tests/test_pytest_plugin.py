"""The fixtures, in this suite and in one of a user's own."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from procrastinate_py import Environment
from procrastinate_py.persisters import MemoryPersister
from procrastinate_py.testing import FakeClock, have_task

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
PLUGIN = "procrastinate_py.pytest_plugin"


class Nothing:
    def run(self) -> None:
        pass


def test_the_environment_is_in_test_mode_and_in_memory(procrastinate_env: Environment) -> None:
    """E46"""
    env = procrastinate_env
    assert env.test_mode
    assert isinstance(env.store().persister, MemoryPersister)
    assert env.queues == {}
    env.define_queue("email")
    env.delay(Nothing())
    assert have_task(queue="email", task=Nothing) in env.tasks()
    assert len(env.act()) == 1


def test_the_environment_trusts_the_tests_own_package(procrastinate_env: Environment) -> None:
    """E46 E21"""
    assert set(procrastinate_env.trust) == {"__main__", __name__.partition(".")[0]}
    procrastinate_env.define_queue("email")
    assert type(procrastinate_env.codec.load(f"!{__name__}:Nothing {{}}")) is Nothing


def test_both_fixtures_share_one_clock(procrastinate_env: Environment, fake_clock: FakeClock) -> None:
    """E46 U12"""
    assert procrastinate_env.clock is fake_clock
    procrastinate_env.define_queue("email")
    procrastinate_env.delay(Nothing(), run_at=fake_clock.now() + 60)
    assert procrastinate_env.act() == []
    fake_clock.tick(60)
    assert len(procrastinate_env.act()) == 1


@pytest.fixture
def env(procrastinate_env: Environment) -> Environment:
    return procrastinate_env


@pytest.fixture
def clock(fake_clock: FakeClock) -> FakeClock:
    return fake_clock


def test_they_share_it_through_other_fixtures_too(env: Environment, clock: FakeClock) -> None:
    """U12"""
    assert env.clock is clock


def test_alone_the_environment_goes_by_the_real_clock(procrastinate_env: Environment) -> None:
    """E46"""
    assert not isinstance(procrastinate_env.clock, FakeClock)


def test_alone_the_clock_stands_still(fake_clock: FakeClock) -> None:
    """E46"""
    assert fake_clock.now() == fake_clock.now()


@pytest.fixture
def users(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite of a user's, in a process of its own, with the plugin loaded."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-W error")
    if not any(point.value == PLUGIN for point in entry_points(group="pytest11")):
        monkeypatch.setenv("PYTEST_PLUGINS", PLUGIN)
    return pytester


def test_a_failing_assert_shows_what_differed(users: pytest.Pytester) -> None:
    """U13"""
    users.makepyfile(
        """
        from procrastinate_py.testing import have_task

        class SendWelcome:
            def run(self): ...

        def test_in(procrastinate_env, fake_clock):
            procrastinate_env.define_queue("email")
            procrastinate_env.define_queue("reports")
            procrastinate_env.delay("email", task=SendWelcome(), run_at=1_800_000_060)
            assert have_task(queue="reports", task=SendWelcome, run_at=1_800_000_060) in procrastinate_env.tasks()

        def test_equal(procrastinate_env):
            procrastinate_env.define_queue("email")
            (record,) = [procrastinate_env.find(procrastinate_env.delay(SendWelcome()))]
            assert record == have_task(queue="reports")

        def test_none(procrastinate_env):
            procrastinate_env.define_queue("email")
            assert have_task(queue="email") in procrastinate_env.tasks()
        """
    )
    done = users.runpytest_subprocess()
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines(
        [
            "*assert have_task(queue='reports', task=SendWelcome, run_at=1800000060) in the tasks",
            "*none of 1 task(s); the nearest is number 1 in queue 'email':",
            "*queue: wanted 'reports', it is 'email'",
            "*there is no task at all",
        ]
    )


def test_packages_that_tests_trust_can_be_configured(users: pytest.Pytester) -> None:
    """E46 E21"""
    users.makeini("[pytest]\nprocrastinate_trust = shop")
    users.mkpydir("shop")
    (users.path / "shop" / "kinds.py").write_text("import enum\nclass Kind(enum.Enum):\n    GOLD = 1\n")
    users.makepyfile(
        """
        from shop.kinds import Kind

        class Welcome:
            def __init__(self, kind):
                self.kind = kind
            def run(self):
                assert self.kind is Kind.GOLD

        def test_it(procrastinate_env):
            procrastinate_env.define_queue("email")
            procrastinate_env.delay(Welcome(Kind.GOLD))
            assert [outcome.state for outcome in procrastinate_env.act()] == ["completed"]
        """
    )
    users.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_plugin_that_nobody_uses_loads_nothing_heavy(users: pytest.Pytester) -> None:
    """E46"""
    users.makepyfile(
        """
        import sys

        def test_it():
            assert "procrastinate_py.pytest_plugin" in sys.modules
            assert not {"procrastinate_py.environment", "yaml", "structlog", "sqlite3", "click"} & set(sys.modules)
        """
    )
    users.runpytest_subprocess("-p", "no:xdist", "-p", "no:hypothesispytest").assert_outcomes(passed=1)
