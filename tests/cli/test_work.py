"""work: a real process, under real signals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py import Environment

from .project import APPLICATION, PATIENCE, Project


@contextlib.contextmanager
def working(project: Project, *queues: str, **options: Any) -> Iterator[tuple[subprocess.Popen[str], dict[str, int]]]:
    """``work --json``, once its processes exist; killed if the test leaves it behind."""
    with project.begin("work", "--json", *queues, **options) as work:
        try:
            assert work.stdout is not None
            started = json.loads(work.stdout.readline())
            assert started["event"] == "started"
            yield work, started["processes"]
        finally:
            work.kill()


@contextlib.contextmanager
def a_task_in_hand(project: Project) -> Iterator[int]:
    """A pipe for the task to wait on, and the task; gives its id."""
    os.mkfifo(project.folder / "gate")
    [told] = project.json(
        "delay", f"{project.module}:Waits", json.dumps({"folder": str(project.folder)}), "--queue", "email"
    )
    yield told["id"]


def wait_for_file(project: Project, name: str) -> str:
    path = project.folder / name
    for _ in range(int(PATIENCE / 0.01)):
        if path.exists() and (text := path.read_text()):
            return text
        select.select([], [], [], 0.01)
    raise AssertionError(f"{name} didn't appear")


def said(work: subprocess.Popen[str]) -> list[str]:
    assert work.stdout is not None
    return [json.loads(line)["event"] for line in work.stdout.read().splitlines()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def look(project: Project, task_id: int) -> Any:
    env = Environment("sqlite:///tasks.db", log_dir=None, trust=[project.module])
    env.define_queue("email")
    try:
        return env.find(task_id)
    finally:
        env.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_works_every_queue_until_a_signal_and_leaves_nothing_behind(project: Project, number: int) -> None:
    """U21 U35"""
    with working(project) as (work, processes):
        assert list(processes) == ["email", "sync_reports"]
        assert all(map(is_alive, processes.values()))
        work.send_signal(number)
        assert work.wait(PATIENCE) == 0
        assert said(work) == ["stopping", "stopped"]
        assert work.stderr is not None and work.stderr.read() == ""
    assert not any(map(is_alive, processes.values()))


def test_it_tells_every_process_of_a_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project = Project.make(tmp_path, APPLICATION.replace('("email")', '("email", processes=3)'))
    with project.begin("work", "--json", "email") as work:
        assert work.stdout is not None
        started = json.loads(work.stdout.readline())
        assert len(started["all_processes"]["email"]) == len(set(started["all_processes"]["email"])) == 3
        assert started["processes"] == {"email": started["all_processes"]["email"][0]}
        assert all(map(is_alive, started["all_processes"]["email"]))
        work.terminate()
        assert work.wait(PATIENCE) == 0
    assert not any(map(is_alive, started["all_processes"]["email"]))
    with project.begin("work", "email") as work:
        assert work.stdout is not None
        told = re.fullmatch(r"working email \(pid (\d+) (\d+) (\d+)\)\n", work.stdout.readline())
        assert told is not None
        work.terminate()
        assert work.wait(PATIENCE) == 0


def test_it_works_only_the_queues_that_are_named(project: Project) -> None:
    with working(project, "sync reports") as (work, processes):
        assert list(processes) == ["sync_reports"]
        assert "a process of this machine works it" in project.call("check").stdout
        work.terminate()
        assert work.wait(PATIENCE) == 0


def test_an_unknown_queue_is_refused(project: Project) -> None:
    done = project.run("work", "emial")
    assert done.returncode == 1
    assert "did you mean" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_first_signal_lets_a_task_end(project: Project) -> None:
    """E39"""
    with working(project) as (work, _), a_task_in_hand(project) as task_id:
        wait_for_file(project, "begun")
        work.terminate()
        assert work.stdout is not None
        assert json.loads(work.stdout.readline())["event"] == "stopping"
        (project.folder / "gate").write_text("go")
        assert work.wait(PATIENCE) == 0
        assert (project.folder / "ended").exists()
        assert project.call("show", str(task_id)).exit_code == 1


def test_a_second_signal_stops_at_once_and_the_task_goes_back_uncounted(project: Project) -> None:
    """E39"""
    with working(project) as (work, processes), a_task_in_hand(project) as task_id:
        wait_for_file(project, "begun")
        work.terminate()
        assert work.stdout is not None
        assert json.loads(work.stdout.readline())["event"] == "stopping"
        press_until_it_ends(work)
        assert work.returncode == 1
        assert said(work) == ["stopped at once"]
        assert work.stderr is not None and work.stderr.read() == ""
    assert not any(map(is_alive, processes.values()))
    record = look(project, task_id)
    assert (record.attempts, record.last_error) == (0, None)


def press_until_it_ends(work: subprocess.Popen[str]) -> None:
    """A signal that comes right after the first may be taken for the same one."""
    for _ in range(int(PATIENCE / 0.1)):
        work.terminate()
        try:
            work.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        return
    raise AssertionError("it didn't stop")


def test_told_not_to_start_it_says_so(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """E41"""
    monkeypatch.setenv("PROCRASTINATE_STOP", "1")
    done = project.run("work")
    assert (done.returncode, done.stdout) == (1, "")
    assert "unset it" in done.stderr


class Terminal:
    """``work`` on a terminal of its own, where Ctrl-C reaches every process of the group."""

    def __init__(self, project: Project, *arguments: str) -> None:
        self.text = ""
        self.is_open = True
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(project.folder)
            variables = {**project.variables(), "TERM": "xterm", "COLUMNS": "100"}
            command = project.command(*arguments)
            os.execvpe(command[0], command, variables)

    def wait_for(self, pattern: str) -> re.Match[str]:
        while not (found := re.search(pattern, self.text)):
            ready = select.select([self.fd], [], [], PATIENCE)[0]
            assert ready and self.is_open, f"{pattern!r} isn't in {self.text!r}"
            self._read()
        return found

    def press(self, key: bytes) -> None:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            os.write(self.fd, key)

    def read_for(self, seconds: float) -> None:
        """What it prints until it says nothing for so long."""
        while self.is_open and select.select([self.fd], [], [], seconds)[0]:
            self._read()

    def end(self) -> int:
        """The exit code, once it has ended; all that it printed is in ``text``."""
        while self.is_open:
            self._read()
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> None:
        try:
            data = os.read(self.fd, 4096)
        except OSError:  # Linux: the other end is closed
            data = b""
        self.text += data.decode(errors="replace")
        self.is_open = bool(data)


def test_on_a_terminal_it_shows_the_queues_and_ctrl_c_drains_without_a_traceback(project: Project) -> None:
    """E39"""
    terminal = Terminal(project, "work")
    pids = [int(pid) for pid in re.findall(r"pid (\d+)", terminal.wait_for(r"working .*\n")[0])]
    terminal.wait_for("pending")
    terminal.press(b"\x03")
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text
    assert "stopped" in terminal.text
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


def test_a_second_ctrl_c_on_a_terminal_stops_at_once(project: Project) -> None:
    """E39"""
    terminal = Terminal(project, "work")
    terminal.wait_for("working")
    with a_task_in_hand(project) as task_id:
        wait_for_file(project, "begun")
        terminal.press(b"\x03")
        terminal.wait_for("stopping")
        while terminal.is_open:
            terminal.press(b"\x03")
            terminal.read_for(0.3)
        assert terminal.end() == 1
        assert "Traceback" not in terminal.text
        assert look(project, task_id).attempts == 0
