"""Whether an object can be worked as a task: told to whoever delays it, not to a log at night."""

from __future__ import annotations

from typing import Any

from ..core.errors import MalformedTaskError
from ..ports.strategy import HOOKS


class StrategyCheck:
    """Remembers the classes that passed. Safe to use from any thread."""

    def __init__(self) -> None:
        self._passed: set[type] = set()

    def __call__(self, task: Any) -> None:
        """Raises MalformedTaskError naming what's wrong and how to put it right."""
        cls = type(task)
        if cls in self._passed and not _has_own_methods(task):
            return
        check_strategy(task)
        if not _has_own_methods(task):
            self._passed.add(cls)


def check_strategy(task: Any) -> None:
    """By binding the calls that a worker will make, so that defaults and ``*args`` pass."""
    if task is None:
        raise MalformedTaskError("task must be an object with a method run, not None")
    if isinstance(task, type):
        raise MalformedTaskError(f"task must be an instance, not the class {task.__name__}: {task.__name__}(...)")
    name = type(task).__name__
    run = getattr(task, "run", None)
    if not callable(run):
        raise MalformedTaskError(f"{name} can't be a task: it has no method run")
    _check_call(name, "run", run, ())
    for hook, count in HOOKS.items():
        method = getattr(task, hook, None)
        if method is None:
            continue
        if not callable(method):
            raise MalformedTaskError(f"{name}.{hook} must be a method (or None), not {type(method).__name__}")
        _check_call(name, hook, method, ("logger", "error")[:count])


def _check_call(name: str, method: str, function: Any, arguments: tuple[str, ...]) -> None:
    import inspect  # not light, and the same class is checked once

    wanted = f"{method}({', '.join(arguments)})"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise MalformedTaskError(f"{name}.{method} is async: it must be a plain method")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # written in C, or a stand-in: it says nothing about its parameters
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise MalformedTaskError(f"{name}.{method} can't be called as {wanted}: {error}") from None


def _has_own_methods(task: Any) -> bool:
    """Whether this object has another run or hook than its class."""
    attributes = getattr(task, "__dict__", None)
    return isinstance(attributes, dict) and not _METHODS.isdisjoint(attributes)


_METHODS = frozenset({"run", *HOOKS})
