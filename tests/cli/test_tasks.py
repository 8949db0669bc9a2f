"""delay, list, show and stats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py import Environment

from .project import Project

SECRET = "hunter2"


@pytest.fixture
def env(project: Project) -> Iterator[Environment]:
    """Another look at the project's store."""
    made = Environment("sqlite:///tasks.db", log_dir=None, trust=[project.module])
    made.define_queue("email")
    made.define_queue("sync reports")
    yield made
    made.stop()


def store_row(env: Environment, queue: str, text: str, **more: Any) -> Any:
    at = int(env.now())
    data = {"queue": queue, "run_at": at, "initial_run_at": at, "expire_at": None, "task": text}
    return env.store().persister.create_task(data | more)


def close_row(env: Environment, task_id: Any, last_error: str) -> None:
    row = {**env.find(task_id).as_mapping(), "run_at": None, "attempts": 3, "last_fail_at": 5, "last_error": last_error}
    env.store().persister.update_task(row)


class TestDelay:
    @pytest.mark.parametrize(
        "state", ["{to: a@example.com}", '{"to": "a@example.com"}', "to: a@example.com", "\nto: a@example.com\n"]
    )
    def test_a_task_is_made_of_a_class_and_yaml(self, project: Project, env: Environment, state: str) -> None:
        done = project.call("delay", f"{project.module}:Send", state, "--queue", "email")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout == f"task 1: {project.module}:Send on email, due now\n"
        assert env.find(1).load().to == "a@example.com"

    def test_a_class_may_have_any_name(self, project: Project, env: Environment) -> None:
        done = project.call("delay", f"{project.module}:Größe", "{to: x}", "--queue", "email")
        assert done.stdout == f"task 1: {project.module}:Größe on email, due now\n"
        assert type(env.find(1).load()).__name__ == "Größe"

    def test_what_was_due_long_ago_is_due_now(self, project: Project, env: Environment) -> None:
        [told] = project.json("delay", f"{project.module}:Send", "--queue", "email", "--run-at", "0")
        assert (told["run_at"], env.find(told["id"]).run_at) == (0, 0)

    def test_its_times_are_told(self, project: Project, env: Environment) -> None:
        [told] = project.json(
            "delay",
            f"{project.module}:Send",
            "{to: x}",
            "--queue",
            "sync reports",
            "--run-at",
            "2h",
            "--expires-at",
            "3h",
        )
        record = env.find(told["id"])
        assert (record.queue, record.run_at, record.expire_at) == ("sync_reports", told["run_at"], told["expire_at"])
        assert 7198 <= told["run_at"] - env.now() <= 7201
        assert told["expire_at"] - told["run_at"] in (3599, 3600)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["{module}:Send", "{}"], "email"),
            (["{module}:Send", "{}", "--queue", "emial"], "email"),
            (["{module}:Sned", "{}", "--queue", "email"], "Sned"),
            (["{module}:env", "{}", "--queue", "email"], "env"),
            (["os:system", "{}", "--queue", "email"], "trust"),
            (["nonsense", "{}", "--queue", "email"], "nonsense"),
            (["a b", "{}", "--queue", "email"], "module:Class"),
            (["x:Y {}\n--- ", "{}", "--queue", "email"], "module:Class"),
            (["{module}:Send", "[1, 2]", "--queue", "email"], "Send"),
            (["{module}:Send", "{to: ", "--queue", "email"], "Send"),
            (["{module}:Send", "{to: !!python/object/apply:os.system [true]}", "--queue", "email"], "tag"),
            (["{module}:Send", "{}", "--queue", "email", "--run-at", "2h", "--expires-at", "1h"], "expire_at"),
            (["{module}:Send", "{}", "--queue", "email", "--run-at", "1" + "0" * 30], "run_at"),
        ],
    )
    def test_what_a_worker_couldnt_run_is_refused_in_one_line(
        self, project: Project, env: Environment, arguments: list[str], said: str
    ) -> None:
        """E21"""
        done = project.call("delay", *(part.replace("{module}", project.module) for part in arguments))
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        assert said in done.stderr
        assert env.tasks() == []


class TestList:
    def test_tasks_are_listed_without_their_state(self, project: Project, env: Environment) -> None:
        """G8"""
        store_row(env, "email", f'!{project.module}:Send {{"to": "{SECRET}"}}', expire_at=int(env.now()) + 9000)
        done = project.call("list")
        assert done.exit_code == 0
        titles, row = done.stdout.splitlines()
        assert titles.split() == ["ID", "QUEUE", "TASK", "STATE", "ATTEMPTS", "DUE", "EXPIRES", "LAST", "ERROR"]
        assert row.split()[:5] == ["1", "email", f"{project.module}:Send", "pending", "0"]
        assert "in 2h" in row
        assert SECRET not in done.output + project.call("list", "--json").output

    def test_only_those_asked_for(self, project: Project, env: Environment) -> None:
        """U20"""
        for queue in ("email", "email", "sync_reports"):
            store_row(env, queue, f"!{project.module}:Send {{}}")
        store_row(env, "email", "!other:Task {}")
        close_row(env, 2, "Task failed too many times: no")

        def ids(*arguments: str) -> list[int]:
            return [task["id"] for task in project.json("list", *arguments)]

        assert ids() == [1, 2, 3, 4]
        assert ids("--queue", "email") == [1, 2, 4]
        assert ids("--queue", "sync reports") == [3]
        assert ids("--state", "failed") == [2]
        assert ids("--task", "other:Task") == [4]
        assert ids("--task", "other:Task", "--state", "failed") == []
        assert ids("--limit", "2") == [1, 2]
        assert "--limit" in project.call("list", "--limit", "2").stdout
        assert project.call("list", "--state", "expired").stdout == "no such tasks\n"
        assert project.call("list", "--queue", "nowhere").exit_code == 1

    def test_stored_texts_cant_act_on_the_terminal(self, project: Project, env: Environment) -> None:
        """G8"""
        task_id = store_row(env, "email", "!\x1b[2Jm:\x07C {}\n---\n\x1b[2J")
        close_row(env, task_id, "Task failed: [bold]\x1b[2J\u202e\nTraceback \x1b[2J")
        for arguments in (
            ["list"],
            ["show", "1"],
            ["show", "1", "--payload"],
            ["stats"],
            ["check"],
            ["list", "--json"],
        ):
            printed = project.call(*arguments).output
            assert all(char.isprintable() or char == "\n" for char in printed), arguments
        assert "[bold]" in project.call("list").output


class TestShow:
    def test_everything_but_the_state_is_shown(self, project: Project, env: Environment) -> None:
        """G8"""
        store_row(env, "email", f'!{project.module}:Send {{"to": "{SECRET}"}}')
        close_row(env, 1, "Task failed too many times: no\nTraceback:\n  line 1")
        done = project.call("show", "1")
        assert done.exit_code == 0
        told = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line and line[0] != " ")
        assert told["state"].strip() == "failed"
        assert told["last fail at"].strip().startswith("1970-01-01T00:00:05Z (")
        assert done.stdout.endswith("last error:\n    Task failed too many times: no\n    Traceback:\n      line 1\n")
        assert SECRET not in done.output + project.call("show", "1", "--json").output

    def test_the_state_is_shown_where_its_asked_for(self, project: Project, env: Environment) -> None:
        text = f'!{project.module}:Send {{"to": "{SECRET}"}}'
        store_row(env, "email", text)
        assert text in project.call("show", "1", "--payload").stdout
        [told] = project.json("show", "1", "--payload")
        assert told["payload"] == text

    @pytest.mark.parametrize("id", ["7", "x", "-1", "9" * 30, "²"])
    def test_an_absent_one_is_refused(self, project: Project, id: str) -> None:
        done = project.call("show", "--", id)
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1
        assert "no stored task" in done.stderr


class TestStats:
    def test_tasks_are_counted_by_queue_and_state(self, project: Project, env: Environment) -> None:
        for queue in ("email", "email", "sync_reports", "forgotten"):
            store_row(env, queue, f"!{project.module}:Send {{}}")
        close_row(env, 1, "Task expired: no")
        done = project.call("stats")
        assert [line.split() for line in done.stdout.splitlines()] == [
            ["QUEUE", "PENDING", "RUNNING", "FAILED", "EXPIRED"],
            ["email", "1", "0", "0", "1"],
            ["sync_reports", "1", "0", "0", "0"],
            ["forgotten", "1", "0", "0", "0"],
        ]
        [told] = project.json("stats")
        assert told["email"] == {"pending": 1, "running": 0, "failed": 0, "expired": 1}

    def test_watching_counts_again_and_again_until_interrupted(self, project: Project) -> None:
        with project.begin("stats", "--watch", "--json") as running:
            assert running.stdout is not None and running.stderr is not None
            first, second = running.stdout.readline(), running.stdout.readline()
            running.send_signal(2)
            assert running.wait() == 0
            assert running.stderr.read() == ""
        assert json.loads(first) == json.loads(second)


def test_a_floor_persister_can_be_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import json, os
from procrastinate_py import Environment

class OneFile:
    def _rows(self):
        return json.load(open("rows.json")) if os.path.exists("rows.json") else []

    def _write(self, rows):
        with open("rows.json", "w") as file:
            json.dump(rows, file)

    def read_tasks(self, queue):
        if not os.path.exists("rows.json"):
            return []
        with open("rows.json") as file:
            return [row for row in json.load(file) if row["queue"] == queue]

    def create_task(self, data):
        rows = self.read_tasks("q")
        rows.append({**data, "id": f"row-{len(rows) + 1}", "attempts": 0})
        self._write(rows)
        return rows[-1]["id"]

    def update_task(self, attributes): ...
    def delete_task(self, task_id): ...

class Send:
    def run(self): ...

env = Environment(OneFile(), log_dir="log")
env.define_queue("q")
"""
    monkeypatch.chdir(tmp_path)
    project = Project.make(tmp_path, text)
    assert project.run("delay", f"{project.module}:Send").stdout.startswith("task row-1: ")
    assert [json.loads(line)["id"] for line in project.run("list", "--json").stdout.splitlines()] == ["row-1"]
    assert "row-1" in project.run("show", "row-1").stdout
    assert project.run("stats").stdout.splitlines()[1].split() == ["q", "1", "0", "0", "0"]
    checked = project.run("check")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "none but the four methods" in checked.stdout
