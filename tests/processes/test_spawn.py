"""Queue processes that are new interpreters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from procrastinate_py.core.errors import ConfigurationError
from procrastinate_py.runtime.quiet import ScriptHeld, hold_script, holds_script, start_is_quiet, starts_nothing

from .conftest import PYTHONPATH, Start
from .jobs import Noted
from .shops import Shop
from .stores import Table
from .support import SAFETY, eventually, no_process_left, title_of


@pytest.fixture(autouse=True)
def findable(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest imports tests without sys.path; a new interpreter can't."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))


def test_a_url_is_spawned(tmp_path: Path) -> None:
    """E42"""
    shop = Shop(tmp_path, "sqlite")
    with no_process_left():
        env = shop.started({"email": {}, "cleanup": {}}, start_method="spawn")
        for queue in env.queues:
            env.delay(queue, task=Noted(shop.notes, queue))
            shop.await_note(f"{queue} success")
        assert [title_of(pid) for pid in env.processes.values()] == ["email-queue-worker", "cleanup-queue-worker"]
        assert title_of(env._supervision.supervisor_pid) == "procrastinate-supervisor"
        env.stop()


def make_table() -> Table:
    return Table(os.environ["PROCESSES_TABLE"])


def test_a_factory_is_spawned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E42"""
    monkeypatch.setenv("PROCESSES_TABLE", str(tmp_path / "store.db"))
    shop = Shop(tmp_path, "floor")
    with no_process_left():
        env = shop.started(persister=make_table, start_method="spawn")
        env.delay("email", task=Noted(shop.notes, "one"))
        shop.await_note("one success")
        env.stop()


def test_an_instance_that_can_be_pickled_is_spawned(tmp_path: Path) -> None:
    """E42"""
    shop = Shop(tmp_path, "floor")
    with no_process_left():
        env = shop.started(persister=Table(str(tmp_path / "store.db")), start_method="spawn")
        eventually(lambda: shop.logged("process_started"))
        env.stop()


class Unpicklable(Table):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    "persister", [Unpicklable("never opened"), lambda: Table("never opened")], ids=["lock", "lambda"]
)
def test_a_persister_that_cannot_be_pickled_is_one_clear_error(tmp_path: Path, persister: object) -> None:
    """E42"""
    env = Shop(tmp_path, "floor").environment(persister=persister, start_method="spawn")
    with no_process_left(), pytest.raises(ConfigurationError, match=r"spawn.*a persister that can be pickled.*URL"):
        env.start()


def test_a_backoff_that_cannot_be_pickled_is_one_clear_error(tmp_path: Path) -> None:
    """E42"""
    env = Shop(tmp_path, "sqlite").environment({"email": {"backoff": lambda n: 1.0}}, start_method="spawn")
    with no_process_left(), pytest.raises(ConfigurationError, match="options of queue 'email' that can be pickled"):
        env.start()


def test_spawned_processes_are_replaced_and_end_with_the_application(tmp_path: Path, start: Start) -> None:
    """E36 E38 E42"""
    shop = Shop(tmp_path, "sqlite")
    application = start(shop, start_method="spawn")
    os.kill(application.pids["email"], signal.SIGKILL)
    eventually(lambda: f'"email": {application.pids["email"]}' not in application.ask("processes"))
    here = shop.environment()
    here.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note("one success")
    application.kill()
    eventually(lambda: not application.others())
    assert shop.logged("ERROR", "application_gone")


def test_a_spawned_supervisor_that_dies_is_replaced(tmp_path: Path) -> None:
    """U23 E42"""
    shop = Shop(tmp_path, "sqlite")
    with no_process_left():
        env = shop.started(start_method="spawn")
        old = env.processes["email"]
        os.kill(env._supervision.supervisor_pid, signal.SIGKILL)
        eventually(lambda: env.processes.get("email", old) != old)
        env.delay("email", task=Noted(shop.notes, "one"))
        shop.await_note("one success")
        env.stop()


# --- scripts

UNGUARDED = """
import os, sys
from pathlib import Path
from procrastinate_py import Environment

notes = sys.argv[1] + "/notes"

class Append:
    def __init__(self, path, line):
        self.path, self.line = path, line
    def run(self):
        with open(self.path, "a") as file:
            file.write(self.line + os.linesep)

def wait_for(line):
    import time
    while not (Path(notes).exists() and line in Path(notes).read_text().splitlines()):
        time.sleep(0.01)

with open(sys.argv[1] + "/runs", "a") as file:
    file.write("run" + os.linesep)

env = Environment("sqlite:///" + sys.argv[1] + "/store.db", log_dir=sys.argv[1] + "/log", start_method="spawn")
env.define_queue("email")
BEFORE
env.start()
env.delay(task=Append(notes, "after start"))
wait_for("after start")
env.stop()
print("done", flush=True)
"""


def run_script(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=SAFETY,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )


def test_a_script_without_a_guard_works_and_is_no_fork_bomb(tmp_path: Path) -> None:
    """E42"""
    done = run_script(tmp_path, UNGUARDED.replace("BEFORE", ""))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert (tmp_path / "notes").read_text() == "after start\n"
    assert len((tmp_path / "runs").read_text().splitlines()) == 2  # the application's, and the queue process's look


def test_what_a_script_delays_before_its_start_is_delayed_once(tmp_path: Path) -> None:
    """E42"""
    done = run_script(tmp_path, UNGUARDED.replace("BEFORE", 'env.delay(task=Append(notes, "before start"))'))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted((tmp_path / "notes").read_text().splitlines()) == ["after start", "before start"]


def test_a_script_with_a_guard_works(tmp_path: Path) -> None:
    """E42"""
    head, start, tail = UNGUARDED.replace("BEFORE", "").partition("env.start()")
    body = "".join(f"    {line}\n" for line in (start + tail).splitlines())
    done = run_script(tmp_path, f'{head}if __name__ == "__main__":\n{body}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert (tmp_path / "notes").read_text() == "after start\n"


def test_a_script_that_cannot_be_run_again_is_one_clear_error(tmp_path: Path) -> None:
    """E42"""
    text = UNGUARDED.replace("BEFORE", 'if __name__ != "__main__": raise RuntimeError("no second run")')
    done = run_script(tmp_path, text)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "ConfigurationError" in last and "queue 'email'" in last and "no second run" in last


STARTED_WHEN_IMPORTED = """
import os
from procrastinate_py import setup
from processes.stores import Table

folder = os.environ["PROCESSES_FOLDER"]
with open(folder + "/imports", "a") as file:
    file.write("import" + os.linesep)
if len(open(folder + "/imports").readlines()) > 10:
    os._exit(1)  # a fork bomb goes no further than this

def factory():
    return Table(folder + "/store.db")

class Imports:
    def __init__(self, notes):
        self.notes = notes
    def run(self):
        import started_when_imported  # in a fork, nobody holds its lock any more
        env.start()  # in a queue's process: nothing
        with open(self.notes, "a") as file:
            file.write(f"{len(env.processes)} started here" + os.linesep)

env = setup(factory, lambda env: env.define_queue("email"), log_dir=folder + "/log", start_method=METHOD)
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_module_that_starts_when_it_is_imported_is_no_fork_bomb(tmp_path: Path, method: str) -> None:
    """E42: a queue's process imports it for its factory and its tasks, and starts nothing."""
    (tmp_path / "started_when_imported.py").write_text(STARTED_WHEN_IMPORTED.replace("METHOD", repr(method)))
    program = (
        "import os, sys, time\n"
        "import started_when_imported as app\n"
        "notes = os.environ['PROCESSES_FOLDER'] + '/notes'\n"
        "app.env.delay(task=app.Imports(notes))\n"
        "while not os.path.exists(notes): time.sleep(0.01)\n"
        "app.env.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=SAFETY,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PROCESSES_FOLDER": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "notes").read_text() == "0 started here\n"
    assert len((tmp_path / "imports").read_text().splitlines()) == 2  # the application's, and the queue process's


def test_a_factory_in_a_main_module_without_a_file_is_one_clear_error(tmp_path: Path) -> None:
    """E42"""
    program = (
        "from procrastinate_py import Environment\n"
        "from processes.stores import Table\n"
        "def factory(): return Table('never opened')\n"
        f"env = Environment(factory, log_dir={str(tmp_path)!r}, start_method='spawn')\n"
        "env.define_queue('email')\n"
        "env.start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=SAFETY,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )
    assert "ConfigurationError" in done.stderr and "this __main__ has no file" in done.stderr


# --- quiet


def test_while_quiet_a_start_starts_nothing() -> None:
    """U35"""
    assert not start_is_quiet()
    with starts_nothing():
        assert start_is_quiet()
        with starts_nothing():
            assert start_is_quiet()
        assert start_is_quiet()
    assert not start_is_quiet()


def test_a_held_script_goes_no_further_than_its_start() -> None:
    """E42"""
    hold_script()
    with holds_script():
        with pytest.raises(ScriptHeld):
            hold_script()
        with pytest.raises(ScriptHeld):
            start_is_quiet()
    hold_script()
