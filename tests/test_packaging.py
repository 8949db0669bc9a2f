"""What is shipped is what was meant."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "procrastinate_py"

HEAVY = ["yaml", "rich", "click", "sqlite3", "structlog", "setproctitle", "asyncio", "multiprocessing", "pytest"]

# Spelled in pieces, so that this file doesn't name them itself.
FORBIDDEN = {
    "a package host": r"pypi\.o" + r"rg|pythonhosted\.o" + r"rg|--(extra-)?index-u" + r"rl|--find-l" + r"inks",
    "a path of the machine it was written on": r"(?<![\w.])/(w"
    + r"ork/(main|shared)|tmp/v\b|opt/(wh"
    + r"eels|py"
    + r"pi))",
}


@pytest.fixture(scope="module")
def setup_cfg() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """Built from a copy, so that nothing is left in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    shutil.copytree(PACKAGE, source / "procrastinate_py", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.Path(built)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.Path) -> Message:
    (info,) = [entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info")]
    return Parser().parsestr((info / "METADATA").read_text())


def test_the_version_is_the_changelogs_newest(setup_cfg: ConfigParser) -> None:
    versions = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == setup_cfg["metadata"]["version"]
    assert len(versions) == len(set(versions))


def test_the_wheel_holds_all_that_the_package_reads(wheel: zipfile.Path) -> None:
    shipped = set(wheel.root.namelist())
    wanted = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {str(path.relative_to(ROOT)) for path in wanted} <= shipped
    assert "procrastinate_py/py.typed" in shipped
    assert any(name.startswith("procrastinate_py/persisters/schema/") for name in shipped)
    assert not [name for name in shipped if name.startswith(("tests/", "benchmarks/", "examples/"))]


def test_the_metadata_tells_who_may_install_it(metadata: Message) -> None:
    assert metadata["Name"] in {"procrastinate_py", "procrastinate-py"}
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT" or metadata["License"] == "MIT"
    pythons = {line.rsplit(" ", 1)[1] for line in metadata.get_all("Classifier", []) if ":: 3." in line}
    assert pythons == {"3.11", "3.12", "3.13", "3.14"}


def test_what_it_needs_and_its_extras_are_declared(metadata: Message) -> None:
    always = {line.split(">")[0].strip() for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert always == {"PyYAML", "structlog", "setproctitle", "click", "rich"}
    assert {"all", "test", "dev"} <= set(metadata.get_all("Provides-Extra", []))


def test_entry_points_lead_somewhere(wheel: zipfile.Path) -> None:
    (info,) = [entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info")]
    points = ConfigParser()
    points.read_string((info / "entry_points.txt").read_text())
    assert dict(points["console_scripts"]) == {"procrastinate-py": "procrastinate_py.cli:main"}
    assert dict(points["pytest11"]) == {"procrastinate_py": "procrastinate_py.pytest_plugin"}
    for target in (points["console_scripts"]["procrastinate-py"], points["pytest11"]["procrastinate_py"]):
        module, _, attribute = target.partition(":")
        found = import_module(module)
        assert not attribute or callable(getattr(found, attribute))


@pytest.mark.parametrize("module", ["procrastinate_py", "procrastinate_py.pytest_plugin"])
def test_the_import_is_light(module: str) -> None:
    """P8"""
    heavy = [name for name in HEAVY if name != "pytest" or module == "procrastinate_py"]
    program = (
        f"import sys; before = set(sys.modules); import {module}; print(*(set({heavy}) & (set(sys.modules) - before)))"
    )
    preloaded = "" if module == "procrastinate_py" else "import pytest; "
    done = subprocess.run(
        [sys.executable, "-c", preloaded + program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == []


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=False, cwd=ROOT)
    if listed.returncode != 0:
        return list(PACKAGE.rglob("*.py"))
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    named = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if re.search(FORBIDDEN[what], line)
    ]
    assert named == []


def test_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert (ROOT / ".ci/run").stat().st_mode & 0o100
