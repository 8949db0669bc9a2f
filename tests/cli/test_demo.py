from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .project import PATIENCE, ROOT


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The demo, run once, as a person does it without a terminal."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, run(folder)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "procrastinate_py", "demo", *options],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )


def test_the_demo_shows_all_it_promises(shown: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = shown
    assert (done.returncode, done.stderr) == (0, "")
    for fact in (
        "ms after delay was called",
        "Rescheduled at +31 s",
        "dead letter",
        "closed without being run",
        "ms after the second it was due in began",
        "kill -9",
        "ran it again, and it succeeded",
        "process_started",
        "All processes have ended",
    ):
        assert fact in done.stdout
    assert "\x1b" not in done.stdout
    assert sorted(path.name for path in folder.glob("*/log/*.log")) == [
        "email-queue-worker.log",
        "reports-queue-worker.log",
        "sync-queue-worker.log",
    ]


def test_the_demo_for_programs_is_json(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    steps = {}
    for line in done.stdout.splitlines():
        told = json.loads(line)
        steps[told["step"]] = told
    assert list(steps) == ["success", "failure", "exhaustion", "expiry", "delay", "crash", "log", "end"]
    assert steps["failure"]["run_at"] - steps["failure"]["last_fail_at"] == 31
    assert steps["exhaustion"]["state"] == "failed"
    assert steps["expiry"]["state"] == "expired"
    assert steps["delay"]["late_ms"] >= 0
    assert "SIGKILL" in steps["crash"]["last_error"]
    assert steps["end"]["processes_left"] == []
