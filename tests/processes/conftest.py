"""An application in the test's own process, and applications that a test may kill."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .shops import Shop
from .support import SAFETY, eventually, in_session, kill_session, no_process_left

HERE = Path(__file__).parent
PYTHONPATH = os.pathsep.join([str(HERE.parent), str(HERE.parent.parent)])


@pytest.fixture(params=["sqlite", "floor"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    with no_process_left():
        shop = Shop(tmp_path, request.param)
        yield shop
        shop.close()


class Application:
    """``application.py`` in a process and session of its own."""

    def __init__(self, folder: Path, kind: str, settings: dict[str, Any]) -> None:
        what = {"folder": str(folder), "kind": kind, **settings}
        with (folder / "stderr").open("a") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "processes.application", json.dumps(what)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": PYTHONPATH},
            )
        self.pid = self.process.pid
        self.pids: dict[str, int] = json.loads(self.answer())

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def ask(self, command: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()
        return self.answer()

    @property
    def supervisor(self) -> int:
        return int(self.ask("supervisor"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SAFETY)

    def others(self) -> list[int]:
        """What else is left of its session."""
        return [pid for pid in in_session(self.pid) if pid != self.pid]

    def close(self) -> None:
        self.process.kill()
        kill_session(self.pid)
        self.process.wait(SAFETY)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        eventually(lambda: not in_session(self.pid))


Start = Callable[..., Application]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an application on the shop's folder."""
    started: list[Application] = []

    def start(shop: Shop, **settings: Any) -> Application:
        started.append(Application(tmp_path, shop.kind, settings))
        return started[-1]

    yield start
    for application in started:
        application.close()
