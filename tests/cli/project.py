"""A small application in a folder of its own, and the program run on it: in this process, or as a real one."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from procrastinate_py.cli.program import program

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 60.0
"""Seconds after which a test that waits on a fact gives up; no test is meant to take that long."""

_NUMBERS = itertools.count()

APPLICATION = '''
import os
from dataclasses import dataclass, field
from pathlib import Path
from procrastinate_py import Environment

env = Environment("sqlite:///tasks.db", log_dir="log", grace=60)
env.define_queue("email")
env.define_queue("sync reports", max_attempts=1)


@dataclass
class Send:
    to: str = "nobody"

    def run(self):
        pass


class Größe(Send):
    pass


@dataclass
class Waits:
    """Says that it has begun, and ends when it's let go."""
    folder: str

    def run(self):
        Path(self.folder, "begun").write_text(str(os.getpid()))
        with open(Path(self.folder, "gate")) as gate:
            gate.read()
        Path(self.folder, "ended").touch()


def make_environment():
    return env


not_one = 7
'''


@dataclass
class Project:
    folder: Path
    module: str

    @classmethod
    def make(cls, folder: Path, text: str = APPLICATION) -> Project:
        module = f"application_{os.getpid()}_{next(_NUMBERS)}"
        (folder / f"{module}.py").write_text(text)
        return cls(folder, module)

    @property
    def env(self) -> str:
        return f"{self.module}:env"

    def call(self, *arguments: str, env: str | None = None) -> Result:
        """In this process, which must be in the project's folder. Output and errors are kept apart."""
        return CliRunner().invoke(program, ["--env", env or self.env, *arguments], prog_name="procrastinate-py")

    def json(self, *arguments: str) -> list[Any]:
        done = self.call(*arguments, "--json")
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "procrastinate_py", *arguments]

    def variables(self) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**os.environ, "PYTHONPATH": path, "PROCRASTINATE_ENV": self.env, "PYTHONUNBUFFERED": "1"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """As a process of its own."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def begin(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(self.command(*arguments), cwd=self.folder, env=self.variables(), text=True, **options)
