"""Whether start() may start anything: not while a module is only being imported for its environment, and never in a
queue's process, which may have to import that module for its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_quiet = False
_held = False


class ScriptHeld(BaseException):
    """A script, run again in a spawned queue process for its classes, came to where it starts the environment.

    What stands above that is what a forked process would have; what stands below is the application's alone.
    """


@contextmanager
def starts_nothing() -> Iterator[None]:
    """While it lasts, start() and setup() start no process: for importing an environment's module."""
    global _quiet
    before, _quiet = _quiet, True
    try:
        yield
    finally:
        _quiet = before


def start_nothing_ever() -> None:
    """In a process that is started itself: what it imports or runs would start others, and these others."""
    global _quiet
    _quiet = True


@contextmanager
def holds_script() -> Iterator[None]:
    """While it lasts, start(), setup() and delay() raise ScriptHeld: for running a script only for its classes."""
    global _held
    before, _held = _held, True
    try:
        yield
    finally:
        _held = before


def hold_script() -> None:
    """Called by all that only the application itself may do. Raises ScriptHeld where it isn't the application."""
    if _held:
        raise ScriptHeld


def start_is_quiet() -> bool:
    """Whether start() must start nothing. Raises ScriptHeld in a spawned queue process's look at the script."""
    hold_script()
    return _quiet
