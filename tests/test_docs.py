"""The docs are run: every Python block is an example with a directive before it, and must work as it stands.

``<!-- example: NAME -->`` saves the block under that name and runs it; ``saved`` only saves it, ``pytest`` runs it by
pytest, ``until: TEXT`` keeps its stdin open until it has printed that text. ``<!-- shell -->`` runs a bash block.
The examples of one document share a folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from procrastinate_py.core.lifecycle import LEGAL

ROOT = Path(__file__).parent.parent
DOCS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
]
PATIENCE = 120

BLOCK = re.compile(r"(?:^<!-- (?P<directive>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    name: str
    text: str
    how: str


def name_of(doc: Path) -> str:
    return str(doc.relative_to(ROOT))


def blocks_of(doc: Path, *languages: str) -> list[re.Match[str]]:
    return [block for block in BLOCK.finditer(doc.read_text()) if block["language"] in languages]


def examples_of(doc: Path) -> list[Example]:
    found = []
    for block in blocks_of(doc, "python", "bash"):
        kind, _, rest = (block["directive"] or "").partition(": ")
        if kind == "example":
            name, _, how = rest.partition(", ")
            found.append(Example(name=name, text=block["text"], how=how or "script"))
        elif kind == "shell":
            found.append(Example(name="shell", text=block["text"], how="shell"))
    return found


@pytest.mark.parametrize("doc", [doc for doc in DOCS if examples_of(doc)], ids=name_of)
def test_its_examples_work(doc: Path, tmp_path: Path) -> None:
    for example in examples_of(doc):
        if example.how != "shell":
            path = tmp_path / example.name
            path.parent.mkdir(exist_ok=True)
            path.write_text(example.text)
        run(example, tmp_path)


@pytest.mark.parametrize("doc", DOCS, ids=name_of)
def test_its_excerpts_are_from_their_files(doc: Path) -> None:
    for block in blocks_of(doc, "python"):
        kind, _, name = (block["directive"] or "").partition(": ")
        if kind == "excerpt":
            assert block["text"] in (ROOT / name).read_text()


def run(example: Example, folder: Path) -> None:
    script = [sys.executable, "-W", "error", example.name]
    match example.how.partition(": "):
        case ("saved", _, _):
            kept = ROOT / example.name
            assert not kept.exists() or kept.read_text() == example.text, f"{example.name} differs from the file"
        case ("script", _, _):
            finish(script, folder)
        case ("pytest", _, _):
            finish([sys.executable, "-W", "error", "-m", "pytest", "-q", *plugin_option(), example.name], folder)
        case ("shell", _, _):
            command = f'set -eu; python() {{ "{sys.executable}" "$@"; }}\n'
            command += f'procrastinate-py() {{ python -m procrastinate_py "$@"; }}\n{example.text}'
            finish(["bash", "-c", command], folder)
        case ("until", _, text):
            finish_after(script, folder, text)
        case _:
            pytest.fail(f"{example.name}: no such directive: {example.how}")


def plugin_option() -> list[str]:
    """Where the package isn't installed, its entry point can't load the plugin."""
    name = "procrastinate_py.pytest_plugin"
    return [] if any(point.value == name for point in entry_points(group="pytest11")) else ["-p", name]


def surroundings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PROCRASTINATE"))}
    return kept | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def finish(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def finish_after(command: list[str], folder: Path, text: str) -> None:
    errors = folder / "stderr"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command,
            cwd=folder,
            env=surroundings(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            if text in line:
                break
        else:
            pytest.fail(f"{command[-1]} ended without saying {text!r}: {errors.read_text()}")
        process.stdin.write("\n")
        process.stdin.close()
        rest = process.stdout.read()
        assert process.wait(PATIENCE) == 0, rest + errors.read_text()
    assert errors.read_text() == ""


@pytest.mark.parametrize("doc", DOCS, ids=name_of)
def test_no_python_block_goes_unchecked(doc: Path) -> None:
    unchecked = [block["text"] for block in blocks_of(doc, "python", "py") if not block["directive"]]
    assert unchecked == []


@pytest.mark.parametrize("doc", DOCS, ids=name_of)
def test_its_links_lead_somewhere(doc: Path) -> None:
    broken = []
    for link in LINK.findall(doc.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (doc.parent / path).resolve() if path else doc
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def anchors_of(doc: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", doc.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("doc", DOCS, ids=name_of)
def test_the_commands_it_names_exist(doc: Path) -> None:
    from procrastinate_py.cli.program import program

    known = set(program.list_commands(click.Context(program)))
    text = doc.read_text()
    named = set(re.findall(r"procrastinate-py(?: --env [\w.:]+)? ([a-z]+)\b", text))
    assert named <= known
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= targets


@pytest.mark.parametrize("doc", DOCS, ids=name_of)
def test_the_environment_variables_it_names_exist(doc: Path) -> None:
    sources = [*(ROOT / "procrastinate_py").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    known = {name for path in sources for name in re.findall(r"PROCRASTINATE_[A-Z]+", path.read_text())}
    assert set(re.findall(r"PROCRASTINATE_[A-Z]+", doc.read_text())) <= known


@pytest.mark.parametrize("doc", DOCS, ids=name_of)
def test_it_promises_no_more_than_at_least_once(doc: Path) -> None:
    for paragraph in re.split(r"\n\s*\n|\n- |\n\|", doc.read_text()):
        if re.search(r"exactly.once", paragraph, re.I):
            assert re.search(r"\b(not|isn't|no|never)\b", paragraph, re.I), paragraph


@pytest.mark.parametrize("doc", DOCS, ids=name_of)
def test_it_uses_one_word_per_thing(doc: Path) -> None:
    prose = BLOCK.sub("", doc.read_text())
    assert re.findall(r"\b(?:jobs?|brokers?|acks?|etas?|actors?|canceled|enqueued?)\b", prose, re.I) == []


def rows_of(doc: Path, header: str) -> list[list[str]]:
    """The cells of the table that begins with this header."""
    lines = doc.read_text().splitlines()
    rows = []
    for line in lines[lines.index(header) + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_table_of_transitions_is_the_codes() -> None:
    told = rows_of(ROOT / "docs/lifecycle.md", "| ending | transition | state it leaves |")
    legal = [
        [ending.__name__, transition.__name__, str(state)]
        for ending, transitions in LEGAL.items()
        for transition, states in transitions.items()
        for state in states
    ]
    assert sorted(told) == sorted(legal)


def test_the_glossary_knows_the_words_of_the_design() -> None:
    told = [word for word, _ in rows_of(ROOT / "docs/glossary.md", "| word | meaning |")]
    assert len(told) == len(set(told))
    wanted = (
        "task strategy queue persister delay due claim lease extend attempt ending transition outcome settle release"
    )
    assert {*wanted.split(), "backoff", "dead letter", "reaper", "poison task", "drain", "at-least-once"} <= set(told)


def test_the_states_told_are_the_codes() -> None:
    from procrastinate_py.core.task import TaskState

    told = [state.strip("`") for state, _ in rows_of(ROOT / "docs/lifecycle.md", "| state | meaning |")]
    assert told == [str(state) for state in TaskState]


def test_the_mistakes_told_are_caught_by_cases_of_the_exam() -> None:
    """G6"""
    from procrastinate_py.testing.conformance import CASES

    told = [case for _, case in rows_of(ROOT / "docs/writing-a-persister.md", "| mistake | case |")]
    assert len(told) > 10
    assert set(told) <= {case.sentence for case in CASES}
    assert f"{len(CASES)} cases" in (ROOT / "docs/writing-a-persister.md").read_text()
