"""What an environment can be told: each setting is checked where it's set, and fixed once it has started."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar, overload

from ..core.errors import AlreadyStartedError, ConfigurationError
from ..core.queue import file_stem
from ..core.registry import Registry
from ..ports.clock import Clock, SystemClock
from .logs import LogSettings

T = TypeVar("T")

_PACKAGE = __name__.partition(".")[0]
_LOG_FIELDS = {
    "log_dir": "directory",
    "log_level": "level",
    "log_format": "format",
    "log_rotate": "rotate",
    "log_keep": "keep",
}


class Setting(Generic[T]):
    """A keyword argument of the environment that is a plain attribute too."""

    def __init__(self, check: Callable[[str, Any], T]) -> None:
        self._check = check
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, settings: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, settings: Settings, owner: type) -> T: ...
    def __get__(self, settings: Settings | None, owner: type) -> Setting[T] | T:
        if settings is None:
            return self
        value: T = settings._values[self._name]
        return value

    def __set__(self, settings: Settings, value: Any) -> None:
        settings._set(self._name, self._check(self._name, value))


def _as_given(name: str, value: Any) -> Any:
    return value


def _one_line(name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value and value.isprintable()):
        return value
    raise ValueError(f"{name} must be a printable str (None: none), not {value!r}")


def _test_mode(name: str, value: Any) -> bool:
    if value is None:
        return bool(getattr(sys.modules[_PACKAGE], "test_mode", False))
    if isinstance(value, bool):
        return value
    raise ValueError(f"{name} must be True, False, or None for what {_PACKAGE}.test_mode says, not {value!r}")


def _trust(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(f'{name} must be a list of packages, such as ["myapp"], not {value!r}')
    packages = tuple(value)
    Registry(packages)
    return packages


def _positive_int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive int, not {value!r}")
    return value


def seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a number of seconds of at least 0, not {value!r}")
    return float(value)


def _clock(name: str, value: Any) -> Clock:
    if value is None:
        return SystemClock()
    if isinstance(value, type) or not (callable(getattr(value, "now", None)) and _has_monotonic(value)):
        raise ValueError(f"{name} must have now() and monotonic(), as FakeClock() has, not be {value!r}")
    clock: Clock = value
    return clock


def _has_monotonic(value: Any) -> bool:
    return callable(getattr(value, "monotonic", None))


def _start_method(name: str, value: Any) -> str | None:
    if value not in (None, "fork", "spawn"):
        raise ConfigurationError(f'{name} must be "fork" or "spawn", not {value!r}')
    if value == "fork" and not hasattr(os, "fork"):
        raise ConfigurationError(f'{name}: this platform has no fork: use "spawn"')
    method: str | None = value
    return method


def _folder(name: str, value: Any) -> str | None:
    """Absolute from now on, so that changing folders doesn't move it."""
    if value is None:
        return None
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str) and path and "\0" not in path:
            return os.path.abspath(path)
    raise ValueError(f"{name} must be the path of a folder (None: beside the logs), not {value!r}")


class Settings:
    """Holds them, and tells of each that is set anew."""

    persister = Setting(_as_given)
    log_dir = Setting(_as_given)
    log_level = Setting(_as_given)
    log_format = Setting(_as_given)
    log_rotate = Setting(_as_given)
    log_keep = Setting(_as_given)
    process_prefix = Setting(_one_line)
    test_mode = Setting(_test_mode)
    trust = Setting(_trust)
    max_task_bytes = Setting(_positive_int)
    clock = Setting(_clock)
    start_method = Setting(_start_method)
    name = Setting(_one_line)
    grace = Setting(seconds)
    run_dir = Setting(_folder)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values: dict[str, Any] = {}
        self._started_in: int | None = None
        self._made_in = os.getcwd()
        self._logs = LogSettings()
        for name, value in values.items():
            setattr(self, name, value)

    def _set(self, name: str, value: Any) -> None:
        is_new = name not in self._values
        if not is_new:
            self._changing(name)
        field = _LOG_FIELDS.get(name)
        if field is not None:  # checked here, since what comes of it is kept too
            checked = LogSettings.checked(**{name: value})
            self._logs = replace(self._logs, **{field: getattr(checked, field)})
        self._values[name] = value
        if not is_new:
            self._changed(name)

    def _changing(self, name: str) -> None:
        """Raises where it can't be set any more."""

    def _changed(self, name: str) -> None:
        """For what depends on a setting."""

    @property
    def _has_started(self) -> bool:
        """A fork of a process that has started it hasn't."""
        return self._started_in == os.getpid()

    def _refuse_if_started(self, what: str) -> None:
        if self._has_started:
            raise AlreadyStartedError(f"{what}: the environment has started (stop() it first)")

    @property
    def log_settings(self) -> LogSettings:
        """Checked, with the folder's absolute path. In test mode there's no file."""
        return replace(self._logs, directory=None) if self.test_mode else self._logs

    def run_folder(self) -> str:
        """Where locks, in-hand files and wake-ups live: ``run_dir``, or beside the logs, or in the user's own state."""
        if self.run_dir is not None:
            return self.run_dir
        if self._logs.directory is not None:
            return self._logs.directory
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        return os.path.join(os.path.abspath(state), _PACKAGE, file_stem(self.name or self._made_in))
