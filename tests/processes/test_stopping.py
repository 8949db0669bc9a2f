"""Drains, and what stops at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import PYTHONPATH
from .jobs import Gated, Noted, WillNotEnd
from .shops import Shop
from .support import SAFETY, eventually, in_session, is_running, kill_session, parent_of, title_of


def test_titles_tell_prefix_and_queue(shop: Shop) -> None:
    """E35"""
    env = shop.started({"email": {}, "clean up": {}}, process_prefix="shop")
    eventually(lambda: shop.logged("process_started", queue="clean_up"))
    assert {name: title_of(pid) for name, pid in env.processes.items()} == {
        "email": "shop-email-queue-worker",
        "clean_up": "shop-clean_up-queue-worker",
    }


def test_a_title_shows_what_it_cannot_hold_by_a_question_mark(shop: Shop) -> None:
    """E10, E35: any name makes a queue, and a process whose title could end it."""
    env = shop.started({"/a\0b\x1b": {}})
    assert [title_of(pid) for pid in env.processes.values()] == ["/a?b?-queue-worker"]


def test_the_log_tells_when_a_process_began_and_ended_and_whose_it_was(shop: Shop) -> None:
    """E48, E47"""
    env = shop.started({"email": {}})
    pid = env.processes["email"]
    (began,) = shop.await_log("process_started")
    assert f"parent_pid={parent_of(pid)}" in began
    env.stop()
    (ended,) = shop.logged("process_stopped")
    for line in (began, ended):
        instant, level, *_ = line.split()
        assert instant.endswith("Z")
        assert level == "INFO"
        assert "queue=email" in line
        assert f"pid={pid}" in line.split()


def test_an_idle_stop_asks_and_is_answered(shop: Shop) -> None:
    """E39"""
    env = shop.started({"email": {"update_period": 3600}})
    pid = env.processes["email"]
    shop.await_log("process_started")
    env.stop()
    assert not is_running(pid)
    assert len(shop.logged("process_stopped", "told to stop")) == 1
    assert shop.logged("ERROR") == shop.logged("WARNING") == []


def test_a_drain_lets_what_runs_end_and_hands_back_the_rest(shop: Shop, tmp_path: Path) -> None:
    """E39"""
    env = shop.started({"email": {"max_tasks": 1}})
    gate = tmp_path / "gate"
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    rest = [env.delay("email", task=Noted(shop.notes, f"rest{number}")) for number in range(5)]
    stopping = threading.Thread(target=env.stop)
    stopping.start()
    gate.touch()
    stopping.join()
    assert shop.noted("slow success")
    done = shop.noted("rest", "success")
    left = {record.id: record.attempts for record in shop.environment().tasks()}
    assert len(left) == len(rest) - len(done)
    assert set(left.values()) <= {0}


def test_past_the_grace_what_runs_is_interrupted_and_handed_back_uncounted(shop: Shop, tmp_path: Path) -> None:
    """E39"""
    env = shop.started()
    task_id = env.delay("email", task=Gated(shop.notes, "slow", str(tmp_path / "gate")))
    shop.await_note("slow begins")
    env.stop(0.05)
    record = shop.environment().find(task_id)
    assert record.attempts == 0 and record.last_error is None and record.run_at is not None
    assert shop.noted("slow ends") == shop.noted("slow fail") == []


def test_a_body_that_heeds_nothing_delays_no_stop_for_good(shop: Shop, tmp_path: Path) -> None:
    """E39"""
    env = shop.started()
    pid = env.processes["email"]
    task_id = env.delay("email", task=WillNotEnd(shop.notes, "stuck", str(tmp_path / "done")))
    shop.await_note("stuck begins")
    eventually((tmp_path / "done").exists)
    env.stop(0.05)
    assert not is_running(pid)
    record = shop.environment().find(task_id)
    assert record.attempts == 0 and record.run_at is not None


def test_what_was_handed_back_is_worked_by_the_next_who_starts(shop: Shop, tmp_path: Path) -> None:
    """E39"""
    env = shop.started()
    gate = tmp_path / "gate"
    env.delay("email", task=Gated(shop.notes, "slow", str(gate)))
    shop.await_note("slow begins")
    env.stop(0.05)
    gate.touch()
    shop.started()
    shop.await_note("slow success")
    assert shop.noted("slow fail") == []


def test_what_a_task_forks_can_be_terminated(shop: Shop, tmp_path: Path) -> None:
    """U21"""
    env = shop.started()
    env.delay("email", task=Forks(shop.notes, "forks"))
    shop.await_note("forks success")
    assert shop.noted("forks child ended by 15")


class Forks(Noted):
    def body(self) -> None:
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        self.note(f"child ended by {-os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")


@pytest.mark.parametrize(("way", "code"), [("returns", 0), ("exits", 5), ("raises", 1)])
def test_a_fork_that_comes_back_from_its_task_ends_there(shop: Shop, way: str, code: int) -> None:
    """E38"""
    env = shop.started()
    env.delay("email", task=ForksAndComesBack(shop.notes, "forks", way))
    shop.await_note("forks success")
    assert len(shop.noted("forks success")) == len(shop.noted("forks ends")) == 1
    assert shop.noted(f"forks child ended with {code}")


@dataclass
class ForksAndComesBack(Noted):
    way: str

    def run(self) -> None:
        pid = os.fork()
        if pid == 0:
            if self.way == "exits":
                sys.exit(5)
            if self.way == "raises":
                raise ValueError("in the fork")
            return
        self.note(f"child ended with {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
        self.note("ends")


# --- on a terminal

SCRIPT = """
import sys
from pathlib import Path
from processes.jobs import Gated
from processes.shops import Shop

shop = Shop(Path(sys.argv[1]), sys.argv[2])
try:
    with shop.environment(grace=1_000_000) as env:
        env.delay("email", task=Gated(shop.notes, "slow", sys.argv[1] + "/gate"))
        print("started", flush=True)
        import signal
        while True:
            signal.pause()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""


class Terminal:
    def __init__(self, *arguments: str) -> None:
        self.master, slave = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self.text = ""

    def ctrl_c(self) -> None:
        os.write(self.master, b"\x03")

    def shows(self, text: str) -> bool:
        try:
            self.text += os.read(self.master, 65536).decode(errors="replace")
        except (BlockingIOError, OSError):
            pass  # nothing yet, or nobody left to write
        return text in self.text

    def close(self) -> None:
        self.process.kill()
        kill_session(self.process.pid)
        self.process.wait(SAFETY)
        os.close(self.master)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*arguments: str) -> Terminal:
        opened.append(Terminal(*arguments))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


def test_ctrl_c_drains(shop: Shop, tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    """E39 U21"""
    screen = terminal(SCRIPT, str(tmp_path), shop.kind)
    shop.await_note("slow begins")
    screen.ctrl_c()
    shop.await_log("draining")
    (tmp_path / "gate").touch()
    eventually(lambda: screen.shows("interrupted"))
    assert screen.process.wait(SAFETY) == 0
    assert shop.noted("slow success")
    assert in_session(screen.process.pid) == []
    assert "Traceback" not in screen.text


def test_a_second_ctrl_c_stops_at_once(shop: Shop, tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    """E39"""
    screen = terminal(SCRIPT, str(tmp_path), shop.kind)
    shop.await_note("slow begins")
    screen.ctrl_c()
    shop.await_log("draining")
    screen.ctrl_c()
    eventually(lambda: screen.shows("interrupted"))
    assert screen.process.wait(SAFETY) == 0
    assert in_session(screen.process.pid) == []
    assert "Traceback" not in screen.text
    here = shop.environment()
    assert [(record.attempts, record.last_error) for record in here.tasks()] == [(0, None)]
    assert shop.noted("slow fail") == shop.noted("slow ends") == []
