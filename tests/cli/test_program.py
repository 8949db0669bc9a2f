"""What all commands have in common."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from procrastinate_py.cli.program import program

from .project import APPLICATION, Project


def test_without_a_command_it_tells_its_commands_and_thats_a_usage_error() -> None:
    done = CliRunner().invoke(program, [])
    assert (done.exit_code, done.stdout) == (2, "")
    for command in ("work", "demo", "delay", "list", "show", "stats", "tail", "check"):
        assert command in done.stderr


@pytest.mark.parametrize("command", ["work", "demo", "delay", "list", "show", "stats", "tail", "check"])
def test_every_command_has_help_and_json(command: str) -> None:
    done = CliRunner().invoke(program, [command, "--help"])
    assert done.exit_code == 0
    assert "--json" in done.stdout
    assert "--debug" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lst"], "lst"),
        (["list", "--limit", "0"], "--limit"),
        (["list", "--limit", "many"], "--limit"),
        (["list", "--state", "lost"], "--state"),
        (["list", "--lmit", "3"], "--lmit"),
        (["show"], "ID"),
        (["delay"], "TASK"),
        (["tail"], "QUEUE"),
        (["delay", "x:Y", "--run-at", "tomorrow"], "2h 30m"),
        (["tail", "email", "--level", "LOUD", "--no-follow"], "--level"),
    ],
)
def test_wrong_usage_is_told_in_one_line_with_exit_code_2(project: Project, arguments: list[str], said: str) -> None:
    done = project.call(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert "--help" in done.stderr


def test_the_environment_must_be_named() -> None:
    done = CliRunner().invoke(program, ["list"], env={"PROCRASTINATE_ENV": ""})
    assert done.exit_code == 2
    assert "--env module:attribute" in done.stderr


def test_it_may_be_named_by_a_variable_before_or_after_the_command(project: Project) -> None:
    for arguments, variable in (
        (["--env", project.env, "list"], ""),
        (["list", "--env", project.env], ""),
        (["list"], project.env),
        (["list", "--env", project.env], "elsewhere:env"),
        (["--env", project.env, "list"], "elsewhere:env"),
    ):
        done = CliRunner().invoke(program, arguments, env={"PROCRASTINATE_ENV": variable})
        assert (done.exit_code, done.stdout) == (0, "no tasks\n"), done.output


def test_it_may_be_a_function_that_gives_one(project: Project) -> None:
    assert project.call("list", env=f"{project.module}:make_environment").exit_code == 0


@pytest.mark.parametrize(
    ("reference", "code", "said"),
    [
        ("no_such_module_here:env", 1, "run this from the folder that holds it"),
        ("{}", 2, "module:attribute"),
        ("{}:", 2, "module:attribute"),
        ("{}:envv", 1, "it has {}:env"),
        ("{}:not_one", 1, "no Environment but an int"),
        ("{}:Send", 1, "no Environment but a Send"),
        ("{}:Send.run.nothing", 1, "it has {}:env"),
    ],
)
def test_what_is_wrong_with_its_name_is_told(project: Project, reference: str, code: int, said: str) -> None:
    done = project.call("list", env=reference.format(project.module))
    assert done.exit_code == code
    assert done.stderr.count("\n") == 1
    assert said.format(project.module) in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_library", "no_such_library"),
        ("1/0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("def", "SyntaxError"),
    ],
)
def test_a_module_that_cant_be_imported_is_told_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    broken = Project.make(tmp_path, text)
    done = broken.run("list")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    told = broken.run("list", "--debug")
    assert "Traceback" in told.stderr


def test_an_environment_that_starts_while_its_module_is_imported_starts_nothing(tmp_path: Path) -> None:
    """U35"""
    text = APPLICATION.replace(
        "\n\n@dataclass\nclass Send", "\nenv.start()\nassert not env.processes\n\n@dataclass\nclass Send"
    )
    text += (
        "\nfrom procrastinate_py import setup\n"
        "other = setup('sqlite:///other.db', lambda env: env.define_queue('q'), log_dir='log')\n"
        "assert not other.processes\n"
    )
    starting = Project.make(tmp_path, text)
    done = starting.run("list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no tasks\n", "")


def test_a_reader_that_leaves_early_is_no_error(project: Project) -> None:
    with project.begin("stats", "--watch") as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.wait() == 1
        assert running.stderr.read() == ""


def test_names_from_the_command_line_cant_act_on_the_terminal(project: Project) -> None:
    """G8"""
    for arguments in (["show", "\x1b[2J"], ["list", "--queue", "\x1b[2J"], ["delay", "\x1b[2J:X"], ["tail", "\x1b[2J"]):
        done = project.call(*arguments)
        assert done.exit_code == 1
        assert "\x1b" not in done.output


def test_the_library_itself_needs_neither_click_nor_rich() -> None:
    script = (
        "import sys, procrastinate_py\n"
        "procrastinate_py.Environment('sqlite://', log_dir=None).define_queue('q')\n"
        "print([name for name in ('click', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_rich_waits_for_a_terminal(project: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "procrastinate_py", "list", "--json"],
        cwd=project.folder,
        env=project.variables(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "click.core" in done.stderr
    assert "rich" not in done.stderr.replace("enrich", "")


def test_json_is_one_value_a_line(project: Project) -> None:
    for number in range(3):
        project.call("delay", f"{project.module}:Send", json.dumps({"to": f"a{number}"}), "--queue", "email")
    assert [task["id"] for task in project.json("list")] == [1, 2, 3]
