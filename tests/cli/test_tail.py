from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from procrastinate_py.runtime.logs import LogSettings, QueueLog

from .project import Project


@pytest.fixture
def log(project: Project) -> QueueLog:
    """The log of the project's queue, with a task's few events in it."""
    written = QueueLog(LogSettings.checked(log_dir=project.folder / "log", log_level="DEBUG", log_rotate=3000), "email")
    written.info("process_started", parent_pid=1)
    task = written.bind(task_id=7, task="app:Send", attempt=1)
    try:
        raise ValueError("odd")
    except ValueError as error:
        task.warning("fail", error=error)
    written.bind(task_id=8, task="app:Other").debug("success")
    return written


def test_the_last_lines_are_shown_with_their_tracebacks(project: Project, log: QueueLog) -> None:
    log.close()
    done = project.call("tail", "email", "--no-follow", "--lines", "2")
    assert (done.exit_code, done.stderr) == (0, "")
    first, *trace, last = done.stdout.splitlines()
    assert " WARNING  fail queue=email task_id=7 task=app:Send" in first
    assert trace[0] == "    Traceback (most recent call last):"
    assert trace[-1] == "    ValueError: odd"
    assert " DEBUG    success " in last


@pytest.mark.parametrize(
    ("filters", "events"),
    [
        ([], ["process_started", "fail", "success"]),
        (["--level", "warning"], ["fail"]),
        (["--level", "20"], ["process_started", "fail"]),
        (["--task", "7"], ["fail"]),
        (["--task", "app:Other"], ["success"]),
        (["--task", "Send", "--level", "ERROR"], []),
        (["-n", "1"], ["success"]),
        (["-n", "0"], []),
    ],
)
def test_only_what_is_asked_for_is_shown(
    project: Project, log: QueueLog, filters: list[str], events: list[str]
) -> None:
    log.close()
    assert [event["event"] for event in project.json("tail", "email", "--no-follow", *filters)] == events


def test_it_follows_across_changes_of_file(project: Project, log: QueueLog) -> None:
    """E49"""
    with project.begin("tail", "email", "--json", "-n", "1") as tail:
        assert tail.stdout is not None and tail.stderr is not None
        assert json.loads(tail.stdout.readline())["event"] == "success"
        inodes = set()
        for number in range(0, 60, 20):
            for each in range(number, number + 20):
                log.info("event", number=each)
                inodes.add(os.stat(log.path or "").st_ino)
            told = [json.loads(tail.stdout.readline())["number"] for _ in range(20)]
            assert told == [str(each) for each in range(number, number + 20)]
        tail.send_signal(2)
        assert tail.wait() == 0
        assert tail.stderr.read() == ""
    log.close()
    assert len(inodes) > 1


def test_it_waits_for_a_log_that_isnt_there_yet(project: Project) -> None:
    with project.begin("tail", "email") as tail:
        assert tail.stdout is not None
        log = QueueLog(LogSettings.checked(log_dir=project.folder / "log"), "email")
        log.info("hello")
        log.close()
        assert "hello" in tail.stdout.readline()
        tail.send_signal(2)
        assert tail.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "said"), [(["nowhere", "--no-follow"], "nowhere"), (["email", "--no-follow"], "no log yet")]
)
def test_what_cant_be_shown_is_refused(project: Project, arguments: list[str], said: str) -> None:
    done = project.call("tail", *arguments)
    assert done.exit_code == 1
    assert said in done.stderr


def test_without_logs_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    silent = Project.make(
        tmp_path, "from procrastinate_py import Environment\nenv = Environment(log_dir=None)\nenv.define_queue('q')\n"
    )
    assert "log_dir" in silent.run("tail", "q").stderr
