"""The tree is the architecture: imports point down only, and what each layer may touch is held here.

Each rule is a function from a tree to its faults; each has a test that it catches a planted one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "procrastinate_py"
ROOT = Path(__file__).parent.parent

LAYERS = {"core": 0, "ports": 1, "persisters": 2, "runtime": 3, "tasks": 4, "testing": 5, "environment": 6}
LAYERS |= {"cli": 7, "pytest_plugin": 7, "": 8, "__main__": 9}
"""A module may import what's below its layer, and its own folder. "" is the package's own __init__."""

THIRD_PARTY = {
    "yaml": ("core", "persisters", "runtime", "cli"),
    "structlog": ("runtime.task_logger",),
    "setproctitle": ("runtime",),
    "sqlite3": ("persisters",),
    "psycopg": ("persisters",),
    "click": ("cli",),
    "rich": ("cli",),
    "pytest": ("pytest_plugin", "testing"),
}
"""Where each may be imported; what isn't listed and isn't the standard library's, nowhere."""

IMPURE = {"time", "random", "secrets", "logging", "threading", "os", "socket", "subprocess", "asyncio", "select"}
IMPURE |= {"selectors", "signal", "multiprocessing", "concurrent", "tempfile", "shutil", "pathlib", "sqlite3", "mmap"}

CLOCK_READS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"}
CLOCK_READS |= {"clock_gettime", "clock_gettime_ns", "localtime", "gmtime", "process_time"}
FEW_LINES, SHORT = 400, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    name: str
    """Below the package: ``runtime.worker``; "" is the package itself."""
    path: Path
    text: str
    tree: ast.Module
    is_package: bool

    @property
    def layer(self) -> str:
        return self.name.split(".")[0]

    def within(self, place: str) -> bool:
        return self.name == place or self.name.startswith(place + ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    target: str
    """Ours: the name below the package, with a leading dot. Others': the whole dotted name."""
    line: int
    at_module_level: bool


@cache
def modules_of(root: Path) -> dict[str, Module]:
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root / PACKAGE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text()
        found[name] = Module(name=name, path=path, text=text, tree=ast.parse(text), is_package=is_package)
    return found


def imports_of(module: Module, known: dict[str, Module]) -> Iterator[Import]:
    """Every import wherever it stands, in functions and under TYPE_CHECKING too; import_module("...") counts."""
    typing_only_or_late = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_typing_only(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(module.tree):
        for target in _targets(node, module, known):
            yield Import(target=target, line=node.lineno, at_module_level=id(node) not in typing_only_or_late)


def _is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(node: ast.AST, module: Module, known: dict[str, Module]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield _as_ours(alias.name)
        case ast.ImportFrom(module=source, names=names, level=level):
            base = _absolute(source or "", level, module)
            for alias in names:
                inner = f"{base}.{alias.name}" if base != "." else f".{alias.name}"
                yield inner if base.startswith(".") and inner[1:] in known else base
        case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if "import_module" in ast.unparse(func):
            level = len(name) - len(name.lstrip("."))
            yield _absolute(name[level:], level, module)


def _absolute(source: str, level: int, module: Module) -> str:
    if level == 0:
        return _as_ours(source)
    folder = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    kept = [part for part in folder if part][: len(folder) - (level - 1)] if level > 1 else [p for p in folder if p]
    return "." + ".".join([*kept, *([source] if source else [])])


def _as_ours(name: str) -> str:
    return "." + name[len(PACKAGE) + 1 :] if name == PACKAGE or name.startswith(PACKAGE + ".") else name


Rule = Callable[[dict[str, Module]], Iterator[str]]


def ours(module: Module, known: dict[str, Module]) -> Iterator[tuple[Import, str]]:
    for found in imports_of(module, known):
        if found.target.startswith("."):
            yield found, found.target[1:]


def imports_point_down(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.layer not in LAYERS:
            yield f"{module.name}: not a layer that docs/architecture.md knows"
            continue
        for found, target in ours(module, known):
            layer = target.split(".")[0]
            if layer == module.layer:
                continue
            if layer not in LAYERS or LAYERS[layer] >= LAYERS[module.layer]:
                yield f"{module.name}:{found.line} imports {target or PACKAGE}, which isn't below it"
            if layer == "testing" and module.layer != "pytest_plugin":
                yield f"{module.name}:{found.line} imports the test kit"


def stores_know_no_other_store(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        name = module.name.removeprefix("persisters.")
        if name == module.name or name.startswith("_"):
            continue
        for found, target in ours(module, known):
            other = target.removeprefix("persisters.")
            if other != target and not other.startswith("_") and not other.startswith(name):
                yield f"{module.name}:{found.line} imports {target}"


def there_are_no_cycles(known: dict[str, Module]) -> Iterator[str]:
    edges = {name: {target for _, target in ours(module, known)} - {name} for name, module in known.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> Iterator[str]:
        if name in path:
            yield "cycle: " + " -> ".join([*path[path.index(name) :], name])
            return
        if name in done or name not in edges:
            return
        for target in sorted(edges[name]):
            yield from visit(target, (*path, name))
        done.add(name)

    for name in sorted(edges):
        yield from visit(name, ())


def third_party_stays_in_its_place(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        for found in imports_of(module, known):
            top = found.target.split(".")[0]
            if found.target.startswith(".") or (top in sys.stdlib_module_names and top not in THIRD_PARTY):
                continue
            if not any(module.within(place) for place in THIRD_PARTY.get(top, ())):
                yield f"{module.name}:{found.line} imports {top}"


def the_core_is_pure(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if not module.within("core"):
            continue
        for found in imports_of(module, known):
            if found.target.split(".")[0] in IMPURE:
                yield f"{module.name}:{found.line} imports {found.target}"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "print"}:
                yield f"{module.name}:{node.lineno} calls {node.func.id}"


def only_the_clock_reads_the_time(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.name == "ports.clock":
            continue
        for node in ast.walk(module.tree):
            match node:
                case ast.ImportFrom(module="time", names=names) if {alias.name for alias in names} & CLOCK_READS:
                    yield f"{module.name}:{node.lineno} imports from time"
                case ast.Attribute(value=ast.Name(id="time" | "_time"), attr=attr) if attr in CLOCK_READS:
                    yield f"{module.name}:{node.lineno} uses time.{attr}"
                case ast.Call(func=ast.Attribute(value=value, attr="now" | "utcnow" | "today")) if "date" in (
                    ast.unparse(value)
                ):
                    yield f"{module.name}:{node.lineno} asks {ast.unparse(value)} for the time"


def the_supervisor_knows_no_store(known: dict[str, Module]) -> Iterator[str]:
    """Followed through every import that happens on importing it; what a forked child imports later is its own."""
    seen: dict[str, str] = {}
    todo = [("runtime.supervisor", "runtime.supervisor")]
    while todo:
        name, chain = todo.pop()
        if name in seen or name not in known:
            continue
        seen[name] = chain
        for found, target in ours(known[name], known):
            if found.at_module_level:
                todo.append((target, f"{chain} -> {target}"))
        for found in imports_of(known[name], known):
            if found.at_module_level and found.target.split(".")[0] in {"sqlite3", "yaml", "structlog", "threading"}:
                yield f"{chain} -> {found.target}"
    for name, chain in seen.items():
        if name.startswith("persisters") or name in {"runtime.worker", "runtime.persister_source", "environment"}:
            yield chain


def records_are_frozen(known: dict[str, Module]) -> Iterator[str]:
    """And made by keyword, where there are more than two fields to mix up."""
    for module in known.values():
        if module.layer not in {"core", "ports"}:
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            many = sum(isinstance(line, ast.AnnAssign) for line in node.body) > 2
            wanted = ["frozen=True", "slots=True", *(["kw_only=True"] if many else [])]
            for decorator in map(ast.unparse, node.decorator_list):
                if "dataclass" in decorator and not all(words in decorator for words in wanted):
                    yield f"{module.name}:{node.lineno} {node.name} lacks one of {', '.join(wanted)}"


def files_and_functions_are_short(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        lines = module.text.count("\n")
        if lines > FEW_LINES:
            yield f"{module.name} has {lines} lines"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > SHORT:
                    yield f"{module.name}:{node.lineno} {node.name} has {length} lines"


def nothing_is_waved_through(known: dict[str, Module]) -> Iterator[str]:
    banned = ("type: " + "ignore", "# " + "noqa", "TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
    for module in known.values():
        if module.name.split(".")[-1] in {"utils", "common", "base", "helpers", "types"}:
            yield f"{module.name}: a name that says nothing"
        for number, line in enumerate(module.text.splitlines(), 1):
            for word in banned:
                if word in line:
                    yield f"{module.name}:{number} says {word}"
            if any(char in line for char in "\u2018\u2019\u201c\u201d\u2013\u2014\u2026"):
                yield f"{module.name}:{number} has punctuation that isn't ASCII"


PLANTS: list[tuple[Rule, str, str]] = [
    (imports_point_down, "core/extra.py", "from ..runtime import worker"),
    (imports_point_down, "core/extra.py", "def f():\n    from procrastinate_py.ports.clock import Clock"),
    (
        imports_point_down,
        "ports/extra.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .. import tasks",
    ),
    (imports_point_down, "cli/extra.py", "from ..pytest_plugin import fake_clock"),
    (imports_point_down, "environment.py", "from .testing.clock import FakeClock"),
    (imports_point_down, "ports/extra.py", "import importlib\nimportlib.import_module('..persisters', __package__)"),
    (imports_point_down, "elsewhere.py", "import os"),
    (imports_point_down, "runtime/extra.py", "from .. import Environment"),
    (stores_know_no_other_store, "persisters/extra.py", "from .memory import MemoryPersister"),
    (there_are_no_cycles, "core/one.py|core/two.py", "from .two import b|def f():\n    from .one import a"),
    (
        there_are_no_cycles,
        "tasks/one.py|tasks/two.py|tasks/six.py",
        "from . import two|from . import six|from . import one",
    ),
    (third_party_stays_in_its_place, "runtime/extra.py", "import rich.console"),
    (third_party_stays_in_its_place, "core/extra.py", "import requests"),
    (third_party_stays_in_its_place, "tasks/extra.py", "def f():\n    import sqlite3"),
    (the_core_is_pure, "core/extra.py", "import threading"),
    (the_core_is_pure, "core/extra.py", "def f():\n    from os import path"),
    (the_core_is_pure, "core/extra.py", "open('x')"),
    (only_the_clock_reads_the_time, "runtime/extra.py", "import time\ntime.monotonic()"),
    (only_the_clock_reads_the_time, "core/extra.py", "from datetime import datetime\ndatetime.now()"),
    (only_the_clock_reads_the_time, "cli/extra.py", "from time import sleep"),
    (the_supervisor_knows_no_store, "runtime/supervisor.py", "from .persister_source import PersisterSource"),
    (
        the_supervisor_knows_no_store,
        "runtime/supervisor.py|runtime/a.py",
        "from . import a|from ..persisters import memory",
    ),
    (
        records_are_frozen,
        "core/extra.py",
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    pass",
    ),
    (files_and_functions_are_short, "core/extra.py", "x = 1\n" * 401),
    (files_and_functions_are_short, "core/extra.py", "def f():\n" + "    x = 1\n" * 41),
    (nothing_is_waved_through, "core/extra.py", "x: int = 's'  # type: " + "ignore"),
    (nothing_is_waved_through, "core/utils.py", "x = 1"),
    (nothing_is_waved_through, "cli/extra.py", "x = 'so \u2013 so'"),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in PLANTS))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps(rule: Rule) -> None:
    assert list(rule(modules_of(ROOT))) == []


@pytest.mark.parametrize(("rule", "paths", "texts"), PLANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_fault_is_caught(rule: Rule, paths: str, texts: str, tmp_path: Path) -> None:
    sound = {"persisters/memory.py": "", "runtime/persister_source.py": "", "runtime/supervisor.py": "import os"}
    for folder in ("core", "ports", "persisters", "runtime", "tasks", "testing", "cli"):
        sound[f"{folder}/__init__.py"] = ""
    sound |= {"__init__.py": "", "pytest_plugin.py": "", "testing/clock.py": "", "ports/clock.py": "import time"}
    sound |= {"runtime/worker.py": "from ..core import task", "core/task.py": "import yaml"}
    plant(tmp_path / "sound", sound)
    assert list(rule(modules_of(tmp_path / "sound"))) == []
    plant(tmp_path / "faulty", sound | dict(zip(paths.split("|"), texts.split("|"), strict=True)))
    assert list(rule(modules_of(tmp_path / "faulty"))) != []


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
