"""The tasks of the demo: ordinary ones, that also note when and where they ran, so that the demo can check it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from ..ports.clock import SystemClock


def soon(_attempts: int) -> float:
    """A backoff for people who are watching."""
    return 1.0


@dataclass
class Noted:
    note: str

    def begin(self) -> int:
        """Notes this run, and returns how many there have been before."""
        path = Path(self.note)
        before = len(path.read_text().splitlines()) if path.exists() else 0
        run = {"at": SystemClock().now(), "pid": os.getpid(), "parent": os.getppid()}
        with path.open("a") as file:
            file.write(json.dumps(run) + "\n")
        return before


@dataclass
class Greet(Noted):
    name: str = "Ada"

    def run(self) -> None:
        self.begin()

    def success(self, logger: Any) -> None:
        logger.info("greeted", name=self.name)


@dataclass
class FetchPage(Noted):
    url: str = "example.com"

    def run(self) -> None:
        self.begin()
        raise ConnectionError(f"{self.url} doesn't answer")

    def fail(self, logger: Any, error: Exception) -> None:
        logger.info("will try again", url=self.url)

    def final_fail(self, logger: Any, error: Exception) -> None:
        logger.info("giving up", url=self.url)


@dataclass
class BuildReport(Noted):
    """Never ends the first time, for the demo to kill its process; is quick after that."""

    def run(self) -> None:
        if self.begin() == 0:
            Event().wait()
