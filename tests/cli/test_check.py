from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py import Environment

from .project import APPLICATION, Project


def findings(project: Project) -> tuple[int, dict[str, tuple[str, str]]]:
    done = project.run("check", "--json")
    assert done.stderr == ""
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {finding["about"]: (finding["level"], finding["told"]) for finding in told}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_is_well_but_nobody_works(here: Path) -> None:
    project = Project.make(here)
    code, found = findings(project)
    assert code == 0
    assert {about: level for about, (level, _) in found.items()} == {
        "environment": "ok",
        "log_dir": "ok",
        "persister": "ok",
        "queue email": "warning",
        "queue sync_reports": "warning",
        "classes": "ok",
    }
    assert "leasing" in found["persister"][1]
    assert "work" in found["queue email"][1]
    assert not (here / "log").exists()


def test_a_person_gets_a_table(here: Path) -> None:
    done = Project.make(here).run("check")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split() == ["ok", "environment", "queues:", "email,", "sync_reports"]


def test_tasks_that_nobody_could_run_are_problems(here: Path) -> None:
    project = Project.make(here)
    env = Environment("sqlite:///tasks.db", log_dir=None)
    for queue, text in (
        ("email", f"!{project.module}:Send {{}}"),
        ("email", f'!{project.module}:Gone {{"password": "hunter2"}}'),
        ("email", f"!{project.module}:Gone {{}}"),
        ("email", "!os:system {}"),
        ("email", f'!{project.module}:Send {{"password": "hunter2'),
        ("forgotten", f"!{project.module}:Send {{}}"),
    ):
        new: dict[str, Any] = {"queue": queue, "run_at": 1, "initial_run_at": 1, "expire_at": None, "task": text}
        env.store().persister.create_task(new)
    env.stop()
    code, found = findings(project)
    assert code == 1
    assert found["queue forgotten"] == (
        "problem",
        "1 task(s) wait in it, but it isn't defined: define it where its tasks are to be run",
    )
    assert found[f"class {project.module}:Gone"][0] == "problem"
    assert found[f"class {project.module}:Gone"][1].startswith("2 task(s): ")
    assert "trust" in found["class os:system"][1]
    assert found[f"class {project.module}:Send"][1].startswith("1 task(s): ")
    assert "hunter2" not in str(found)


def test_a_log_dir_that_cant_be_written_is_a_problem(here: Path) -> None:
    (here / "log").write_text("a file")
    code, found = findings(Project.make(here))
    assert code == 1
    assert found["log_dir"][0] == "problem"
    assert "is no folder" in found["log_dir"][1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_log_dir_of_somebody_else_is_a_problem(here: Path) -> None:
    (here / "log").mkdir(mode=0o500)
    code, found = findings(Project.make(here))
    assert (code, found["log_dir"][0]) == (1, "problem")


def test_no_logs_is_a_warning(here: Path) -> None:
    code, found = findings(Project.make(here, APPLICATION.replace('log_dir="log"', "log_dir=None")))
    assert (code, found["log_dir"][0]) == (0, "warning")


@pytest.mark.parametrize(
    ("persister", "said"),
    [
        ('"sqlite:////proc/nowhere/tasks.db"', ""),
        ("lambda: None", "None"),
        ("lambda: object()", "read_tasks"),
        ("lambda: 1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_persister_that_cant_be_used_is_a_problem(here: Path, persister: str, said: str) -> None:
    code, found = findings(Project.make(here, APPLICATION.replace('"sqlite:///tasks.db"', persister)))
    assert code == 1
    assert found["persister"][0] == "problem"
    assert said in found["persister"][1]


def test_an_environment_without_queues_is_a_problem(here: Path) -> None:
    code, found = findings(Project.make(here, "from procrastinate_py import Environment\nenv = Environment()\n"))
    assert (code, found["environment"][0]) == (1, "problem")
