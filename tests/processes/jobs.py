"""Tasks that tell what happens to them, by lines in a file, and wait for what a test does."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .support import SAFETY, append


def wait_for(path: str) -> None:
    """Until the file exists. Python code, so it can be interrupted."""
    until = time.monotonic() + SAFETY
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise AssertionError(f"nobody made {path}")
        time.sleep(0.005)


@dataclass
class Note:
    """Notes its name each time it runs."""

    notes: str
    name: str

    def run(self) -> None:
        append(self.notes, self.name)


@dataclass
class Reads:
    """Reads a file, notes that, and goes on until another file exists."""

    notes: str
    file: str
    gate: str

    def run(self) -> None:
        Path(self.file).read_bytes()
        append(self.notes, "read")
        wait_for(self.gate)


@dataclass
class Brief(Note):
    """Takes a moment, so that a kill finds it in hand."""

    def run(self) -> None:
        super().run()
        time.sleep(0.002)


@dataclass
class Noted:
    """Notes each step: ``NAME begins PID``, ``NAME ends``, and its hooks."""

    notes: str
    name: str

    def note(self, what: str) -> None:
        append(self.notes, f"{self.name} {what}")

    def run(self) -> None:
        self.note(f"begins {os.getpid()}")
        self.body()
        self.note("ends")

    def body(self) -> None:
        return

    def success(self, logger: Any) -> None:
        self.note("success")

    def fail(self, logger: Any, error: BaseException) -> None:
        self.note(f"fail {type(error).__name__}: {error}")

    def final_fail(self, logger: Any, error: BaseException) -> None:
        self.note(f"final_fail {type(error).__name__}: {error}")


@dataclass
class Gated(Noted):
    """Runs until the file ``gate`` exists."""

    gate: str = ""

    def body(self) -> None:
        wait_for(self.gate)


@dataclass
class Exits(Noted):
    code: int = 3

    def body(self) -> None:
        os._exit(self.code)


@dataclass
class Signals(Noted):
    """Kills its process, once those ``beside`` it have begun."""

    number: int = int(signal.SIGKILL)
    beside: list[str] | None = None

    def body(self) -> None:
        for path in self.beside or ():
            wait_for(path)
        os.kill(os.getpid(), self.number)


@dataclass
class SignalsOnce(Noted):
    """Kills its process the first time only: the file ``done`` tells."""

    done: str = ""

    def body(self) -> None:
        if not os.path.exists(self.done):
            Path(self.done).touch()
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Faults(Noted):
    """A real segmentation fault in C code."""

    def body(self) -> None:
        ctypes.string_at(0)


@dataclass
class HoldsInterpreter(Noted):
    """C code that keeps the interpreter's lock, the first time it runs."""

    done: str = ""

    def body(self) -> None:
        if not os.path.exists(self.done):
            Path(self.done).touch()
            ctypes.PyDLL(None).sleep(1000)


@dataclass
class WillNotEnd(Noted):
    """Sleeps in one call into the system that no exception interrupts, the first time it runs."""

    done: str = ""

    def body(self) -> None:
        if not os.path.exists(self.done):
            Path(self.done).touch()
            ctypes.CDLL(None).sleep(1000)
