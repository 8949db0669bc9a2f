"""How an environment is made, what it's told, and when it starts."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import procrastinate_py
from examples.floor_dict import DictPersister
from procrastinate_py import Environment, setup
from procrastinate_py.core.errors import (
    AlreadyStartedError,
    ConfigurationError,
    MalformedPersisterError,
    NoQueueError,
)
from procrastinate_py.persisters import MemoryPersister, SQLitePersister
from procrastinate_py.runtime.quiet import starts_nothing
from procrastinate_py.runtime.supervision import Supervision
from procrastinate_py.testing import FakeClock

ROOT = Path(__file__).parent.parent


class Nothing:
    def run(self) -> None:
        pass


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROCRASTINATE_STOP", raising=False)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Supervision]:
    """Supervisions that would have been started; no process is."""
    started: list[Supervision] = []
    monkeypatch.setattr(Supervision, "start", lambda self: started.append(self))
    monkeypatch.setattr(Supervision, "stop", lambda self, grace: None)
    return started


def queues(env: Environment) -> None:
    env.define_queue("email")
    env.define_queue("cleanup")


# --- setup


def test_setup_defines_once_starts_and_returns_the_environment(starts: list[Supervision]) -> None:
    """E1"""
    seen: list[Environment] = []

    def define(env: Environment) -> None:
        seen.append(env)
        queues(env)

    env = setup("sqlite:///tasks.db", define, log_dir=None)
    assert seen == [env]
    assert list(env.queues) == ["email", "cleanup"]
    assert len(starts) == 1
    assert [queue.name for queue in starts[0]._plan.queues] == ["email", "cleanup"]


def test_setup_in_test_mode_starts_no_process(starts: list[Supervision]) -> None:
    """E1 E43"""
    env = setup(None, queues, test_mode=True)
    assert starts == []
    assert env.processes == {}
    with pytest.raises(AlreadyStartedError):
        env.start()


def test_a_with_block_starts_on_entry_and_stops_on_exit(
    starts: list[Supervision], monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1 U1"""
    stopped: list[float] = []
    monkeypatch.setattr(Supervision, "stop", lambda self, grace: stopped.append(grace))
    env = Environment(log_dir=None, grace=7)
    queues(env)
    with env as entered:
        assert entered is env
        assert len(starts) == 1
    assert stopped == [7.0]
    env.log_level = "DEBUG"


def test_a_with_block_stops_after_an_exception_too(starts: list[Supervision], monkeypatch: pytest.MonkeyPatch) -> None:
    """U1"""
    stopped: list[float] = []
    monkeypatch.setattr(Supervision, "stop", lambda self, grace: stopped.append(grace))
    env = Environment(log_dir=None)
    queues(env)
    with pytest.raises(ZeroDivisionError), env:
        raise ZeroDivisionError
    assert stopped == [30.0]


@pytest.mark.parametrize("define", [None, "email", 3])
def test_setup_needs_a_function_that_defines(define: Any) -> None:
    """E2"""
    with pytest.raises(TypeError, match="define must be a function"):
        setup(None, define, test_mode=True)
    with pytest.raises(TypeError, match="define must be a function"):
        setup(DictPersister())


def test_an_environment_without_a_queue_cannot_start() -> None:
    """E2"""
    with pytest.raises(NoQueueError, match="define_queue"):
        setup(None, lambda env: None, test_mode=True)
    with pytest.raises(NoQueueError, match="define_queue"):
        Environment(test_mode=True).start()
    with pytest.raises(NoQueueError, match="define_queue"):
        Environment().start()


def test_setup_counts_its_caller_as_the_one_that_made_the_environment() -> None:
    """U3 E21"""
    package = __name__.partition(".")[0]
    assert set(setup(None, queues, test_mode=True).trust) == {"__main__", package}
    assert set(Environment().trust) == {"__main__", package}
    assert Environment(trust=["shop"]).trust == ("shop",)


def test_a_subclass_counts_its_own_module_as_the_one_that_made_it() -> None:
    """E21"""

    class Ours(Environment):
        def __init__(self) -> None:
            super().__init__(test_mode=True)

    assert __name__.partition(".")[0] in Ours().trust


def test_a_module_that_runs_as_main_has_its_package_trusted(tmp_path: Path) -> None:
    """E21"""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "work.py").write_text("from procrastinate_py import Environment\nprint(sorted(Environment().trust))")
    done = subprocess.run(
        [sys.executable, "-m", "shop.work"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.strip() == "['__main__', 'shop']"


# --- persisters


def test_a_factory_is_called_once_and_not_before_it_is_needed() -> None:
    """E3 U2"""
    made: list[DictPersister] = []

    def factory() -> DictPersister:
        made.append(DictPersister())
        return made[-1]

    env = Environment(factory, test_mode=True)
    env.define_queue("email")
    assert made == []
    env.delay(Nothing())
    env.act()
    env.tasks()
    assert len(made) == 1


def test_a_class_is_a_factory() -> None:
    """E3"""
    env = Environment(DictPersister, test_mode=True)
    env.define_queue("email")
    assert env.delay(Nothing()) == 1


def test_a_factory_is_called_again_in_a_forked_process() -> None:
    """E3"""
    env = Environment(DictPersister, test_mode=True)
    env.define_queue("email")
    ours = id(env.store().persister)
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, b"same" if id(env.store().persister) == ours else b"other")
        os._exit(0)
    os.wait()
    assert os.read(read, 10) == b"other"
    os.close(read)
    os.close(write)


def test_a_url_names_a_bundled_store(tmp_path: Path) -> None:
    """E3"""
    env = Environment("sqlite:///shop.db")
    env.define_queue("email")
    os.chdir("/")
    assert env.delay(Nothing()) == 1
    env.stop()
    assert (tmp_path / "shop.db").exists()


@pytest.mark.parametrize("url", ["mysql://x:secret@host/db", "nonsense", "sqlite:/one", "sqlite://host/x"])
def test_a_wrong_url_is_told_at_once_without_what_it_holds(url: str) -> None:
    """E3 U29"""
    with pytest.raises(ConfigurationError) as told:
        Environment(url)
    assert "sqlite:///" in str(told.value)
    assert "secret" not in str(told.value)


def test_without_a_persister_it_is_sqlite_in_the_working_folder(tmp_path: Path) -> None:
    """E3 U2"""
    env = Environment()
    env.define_queue("email")
    env.delay(Nothing())
    assert isinstance(env.store().persister, SQLitePersister)
    env.stop()
    assert (tmp_path / "procrastinate.db").exists()


def test_without_a_persister_test_mode_uses_memory(tmp_path: Path) -> None:
    """U2"""
    env = Environment(test_mode=True)
    env.define_queue("email")
    env.delay(Nothing())
    assert isinstance(env.store().persister, MemoryPersister)
    assert list(tmp_path.iterdir()) == []


def test_none_from_a_factory_is_refused() -> None:
    """E4"""
    env = Environment(lambda: None, test_mode=True)
    env.define_queue("email")
    with pytest.raises(ValueError, match="None"):
        env.delay(Nothing())


class HalfAPersister:
    delete_task = "not a method"

    def read_tasks(self, queue: str) -> list[Any]:
        return []

    def create_task(self, data: Any) -> int:
        return 1


def test_an_instance_that_lacks_methods_is_refused_when_the_environment_is_made() -> None:
    """E4 U2"""
    with pytest.raises(MalformedPersisterError, match=r"HalfAPersister lacks update_task, delete_task:"):
        Environment(HalfAPersister())
    with pytest.raises(MalformedPersisterError, match="read_tasks, create_task, update_task, delete_task"):
        Environment(object())


def test_a_factory_of_such_is_refused_at_its_first_call() -> None:
    """E4 U2"""
    env = Environment(HalfAPersister, test_mode=True)
    env.define_queue("email")
    with pytest.raises(MalformedPersisterError, match="update_task, delete_task"):
        env.act()


@pytest.mark.parametrize("given", ["sqlite://", MemoryPersister, MemoryPersister(), lambda: MemoryPersister()])
def test_a_store_in_memory_is_refused_for_processes(given: Any, starts: list[Supervision]) -> None:
    """U29"""
    env = Environment(given, log_dir=None)
    queues(env)
    with pytest.raises(ConfigurationError, match="memory"):
        env.start()
    assert starts == []


def test_a_persister_of_four_methods_gets_one_call_at_a_time() -> None:
    import threading

    class Fragile(DictPersister):
        inside = 0

        def create_task(self, data: dict[str, Any]) -> int:
            self.inside += 1
            assert self.inside == 1
            threading.Event().wait(0.001)
            self.inside -= 1
            return super().create_task(data)

    env = Environment(Fragile(), test_mode=True)
    env.define_queue("email")
    failed: list[BaseException] = []

    def delay() -> None:
        try:
            env.delay(Nothing())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=delay) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert env.count() == 8


# --- settings


def test_settings_have_their_defaults() -> None:
    """E5"""
    env = Environment()
    assert (env.log_dir, env.log_level, env.process_prefix, env.test_mode, env.name) == (
        "log/",
        "INFO",
        None,
        False,
        None,
    )
    assert (env.log_format, env.log_rotate, env.log_keep, env.grace) == ("line", "10 MiB", 5, 30.0)


SETTINGS: dict[str, Any] = {
    "persister": DictPersister(),
    "log_dir": "elsewhere",
    "log_level": "DEBUG",
    "log_format": "json",
    "log_rotate": "1 MiB",
    "log_keep": 2,
    "process_prefix": "shop",
    "test_mode": True,
    "trust": ("shop",),
    "max_task_bytes": 100,
    "clock": FakeClock(),
    "start_method": "spawn",
    "name": "shop",
    "grace": 3.0,
    "run_dir": "/tmp",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_is_an_argument_and_an_attribute_until_the_start(name: str) -> None:
    """E5"""
    value = SETTINGS[name]
    assert getattr(Environment(**{name: value}), name) == value
    env = Environment(test_mode=True)
    env.define_queue("email")
    setattr(env, name, value)
    assert getattr(env, name) == value
    env.test_mode = True
    env.start()
    with pytest.raises(AlreadyStartedError, match=name):
        setattr(env, name, value)
    env.stop()
    setattr(env, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log_level", "LOUD"),
        ("log_level", True),
        ("log_format", "xml"),
        ("log_rotate", -1),
        ("log_keep", -1),
        ("log_dir", 3),
        ("process_prefix", "two\nlines"),
        ("process_prefix", 3),
        ("test_mode", "yes"),
        ("trust", "shop"),
        ("trust", ["not a package"]),
        ("max_task_bytes", 0),
        ("max_task_bytes", True),
        ("clock", FakeClock),
        ("clock", object()),
        ("start_method", "thread"),
        ("name", ""),
        ("grace", -1),
        ("grace", float("nan")),
        ("grace", True),
        ("run_dir", "a\0b"),
        ("run_dir", 3),
    ],
)
def test_a_wrong_setting_is_told_where_it_is_made(name: str, value: Any) -> None:
    """E5"""
    wrong = (ValueError, ConfigurationError)
    with pytest.raises(wrong, match=name if name != "trust" else "trust"):
        Environment(**{name: value})
    env = Environment()
    before = getattr(env, name)
    with pytest.raises(wrong, match="trust" if name == "trust" else name):
        setattr(env, name, value)
    assert getattr(env, name) is before or getattr(env, name) == before


def test_an_unknown_setting_is_refused() -> None:
    """E5"""
    with pytest.raises(TypeError, match="log_directory"):
        Environment(log_directory="x")  # type: ignore[call-arg]


def test_settings_take_effect_when_they_are_set_later(tmp_path: Path) -> None:
    """E5"""
    env = Environment(log_dir="one")
    env.log_dir = "two"
    env.log_level = "debug"
    os.chdir("/")
    assert env.log_settings.directory == str(tmp_path / "two")
    assert env.log_settings.level == logging.DEBUG
    assert env.run_folder() == str(tmp_path / "two")
    env.max_task_bytes = 20
    assert env.codec.max_task_bytes == 20
    env.trust = ["shop"]
    assert env.codec.registry.trust == {"shop"}


def test_the_store_stays_once_it_is_in_use() -> None:
    env = Environment(test_mode=True)
    env.define_queue("email")
    env.delay(Nothing())
    for name, value in (("persister", DictPersister()), ("clock", FakeClock())):
        with pytest.raises(ConfigurationError, match=name):
            setattr(env, name, value)
    assert env.count() == 1


def test_locks_and_wake_ups_have_a_folder_where_logging_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U26"""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folders = {Environment(log_dir=None, name=name).run_folder() for name in (None, "shop", "../shop")}
    assert len(folders) == 3
    assert {os.path.dirname(folder) for folder in folders} == {str(tmp_path / "state" / "procrastinate_py")}
    assert Environment(log_dir=None, run_dir="here").run_folder() == str(tmp_path / "here")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Environment(log_dir="").run_folder().startswith(str(tmp_path / "home" / ".local" / "state"))


def test_a_run_dir_that_cannot_be_made_is_told_at_the_start(tmp_path: Path, starts: list[Supervision]) -> None:
    """U26"""
    (tmp_path / "file").touch()
    env = Environment(run_dir="file/within")
    queues(env)
    with pytest.raises(ConfigurationError, match="run_dir"):
        env.start()
    assert starts == []
    env.run_dir = "elsewhere"
    env.start()
    assert len(starts) == 1


# --- test mode's flag


@pytest.fixture
def flag() -> Iterator[None]:
    yield
    procrastinate_py.test_mode = False


def test_the_modules_flag_is_read_when_an_environment_is_made(flag: None) -> None:
    """E6"""
    before = Environment()
    assert procrastinate_py.test_mode is False
    procrastinate_py.test_mode = True
    assert Environment().test_mode
    assert not Environment(test_mode=False).test_mode
    assert not before.test_mode
    made = Environment()
    procrastinate_py.test_mode = False
    assert made.test_mode


def test_test_mode_can_be_enabled_for_one_environment_before_its_start(starts: list[Supervision]) -> None:
    """E6"""
    env = Environment()
    queues(env)
    env.enable_test_mode()
    assert env.act() == []
    env.start()
    assert starts == []
    with pytest.raises(AlreadyStartedError):
        env.enable_test_mode()


# --- starting


def test_test_mode_needs_no_start_but_allows_it() -> None:
    """U3"""
    env = Environment(test_mode=True)
    env.define_queue("email")
    env.delay(Nothing())
    assert len(env.act()) == 1
    env.start()
    env.delay(Nothing())
    assert len(env.act()) == 1


def test_a_second_start_is_refused(starts: list[Supervision]) -> None:
    """U22 E5"""
    env = Environment(log_dir=None)
    queues(env)
    env.start()
    with pytest.raises(AlreadyStartedError):
        env.start()
    assert len(starts) == 1
    with pytest.raises(AlreadyStartedError):
        env.define_queue("more")
    env.stop()
    env.start()
    assert len(starts) == 2


def test_of_two_threads_that_start_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """U22"""
    env = Environment(log_dir=None)
    queues(env)
    under_way, go_on = threading.Event(), threading.Event()

    def slow(self: Supervision) -> None:
        under_way.set()
        assert go_on.wait(60)

    monkeypatch.setattr(Supervision, "start", slow)
    monkeypatch.setattr(Supervision, "stop", lambda self, grace: None)
    first = threading.Thread(target=env.start)
    first.start()
    try:
        assert under_way.wait(60)
        monkeypatch.setattr(Supervision, "start", lambda self: None)
        with pytest.raises(AlreadyStartedError):
            env.start()
    finally:
        go_on.set()
        first.join(60)
    env.stop()


def test_stop_is_harmless_where_nothing_was_started() -> None:
    env = Environment()
    env.stop()
    env.stop()


@pytest.mark.parametrize("grace", [-1, "30", True, float("nan")])
def test_stop_takes_a_number_of_seconds(grace: Any, starts: list[Supervision]) -> None:
    """E39"""
    env = Environment(log_dir=None)
    queues(env)
    env.start()
    with pytest.raises(ValueError, match="grace"):
        env.stop(grace)
    with pytest.raises(AlreadyStartedError):
        env.start()
    env.stop(0)


def test_a_start_that_fails_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch, starts: list[Supervision]) -> None:
    """E1"""
    env = Environment("sqlite:///tasks.db", log_dir=None, trust=["shop"])
    queues(env)

    def fail(self: Supervision) -> None:
        raise ConfigurationError("no processes to be had")

    with monkeypatch.context() as broken:
        broken.setattr(Supervision, "start", fail)
        with pytest.raises(ConfigurationError, match="no processes"):
            env.start()
    assert env.processes == {}
    env.delay("email", task=Nothing())
    env.log_level = "DEBUG"
    env.start()
    assert len(starts) == 1
    env.stop()


def test_where_it_is_told_to_stop_no_process_starts_and_a_warning_says_so(
    starts: list[Supervision], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """E41 U3 U29"""
    monkeypatch.setenv("PROCRASTINATE_STOP", "1")
    env = Environment()
    queues(env)
    env.start()
    assert starts == []
    assert [(record.levelname, record.name) for record in caplog.records] == [("WARNING", "procrastinate_py")]
    assert "PROCRASTINATE_STOP" in caplog.text
    with pytest.raises(AlreadyStartedError):
        env.start()
    assert env.delay("email", task=Nothing()) == 1
    assert not (tmp_path / "log").exists()
    env.stop()


def test_told_not_to_stop_it_starts(starts: list[Supervision], monkeypatch: pytest.MonkeyPatch) -> None:
    """E41"""
    monkeypatch.setenv("PROCRASTINATE_STOP", "0")
    env = Environment(log_dir=None)
    queues(env)
    env.start()
    assert len(starts) == 1


def test_while_a_module_is_imported_for_its_environment_nothing_starts(starts: list[Supervision]) -> None:
    """U35"""
    with starts_nothing():
        env = setup("sqlite:///tasks.db", queues, log_dir=None)
        assert starts == []
        env.delay("email", task=Nothing())
    env.start("cleanup")
    assert [queue.name for queue in starts[0]._plan.queues] == ["cleanup"]
    env.stop()


def test_the_application_keeps_its_logging(starts: list[Supervision]) -> None:
    """U14"""
    root = logging.getLogger()
    before = (list(root.handlers), root.level, list(logging.getLogger("procrastinate_py").handlers))
    env = Environment(log_level="DEBUG")
    queues(env)
    env.start()
    assert before == (list(root.handlers), root.level, list(logging.getLogger("procrastinate_py").handlers))


def test_what_it_shows_of_itself_holds_no_secret() -> None:
    env = Environment("sqlite:///secret.db", name="shop")
    queues(env)
    assert repr(env) == "<Environment 'shop', queues: 'email', 'cleanup'>"


class Closable:
    """A floor persister that holds something which has to be let go."""

    made = 0
    closed = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.inner = DictPersister()
        for name in ("read_tasks", "create_task", "update_task", "delete_task"):
            setattr(self, name, getattr(self.inner, name))

    def close(self) -> None:
        type(self).closed += 1


def test_stop_closes_what_a_factory_made_and_leaves_what_was_given() -> None:
    """E3"""
    Closable.made = Closable.closed = 0
    for persister, closed in ((Closable, 1), (Closable(), 1)):
        env = Environment(persister, test_mode=True)
        env.define_queue("email")
        env.act()
        env.stop()
        assert Closable.closed == closed
    assert Closable.made == 2
