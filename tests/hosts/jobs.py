"""Tasks that tell which host runs them, and when, by a clock that all hosts of one machine share."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.processes.support import append

NAME = "HOST_OF_THIS_TEST"


@dataclass
class Stays:
    """Begins, and ends once it's told to, on this host."""

    folder: str
    name: str

    def run(self) -> None:
        host = os.environ[NAME]
        tell(self.folder, "begun", self.name)
        while not Path(self.folder, f"{self.name}-may-end-on-{host}").exists():
            time.sleep(0.005)
        tell(self.folder, "ended", self.name)


@dataclass
class Passes:
    folder: str
    name: str

    def run(self) -> None:
        tell(self.folder, "begun", self.name)
        tell(self.folder, "ended", self.name)


def tell(folder: str, what: str, name: str) -> None:
    append(Path(folder, "journal"), f"{what} {name} {os.environ[NAME]} {time.monotonic()} {time.time()}")
