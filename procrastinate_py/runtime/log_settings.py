"""What a queue's log is to be, checked where it's declared."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

DEBUG, INFO, WARNING, ERROR, CRITICAL = 10, 20, 30, 40, 50
NEVER = 1 << 30
"""A level that no event reaches."""

FORMATS = ("line", "json")

_NAMES = {
    "NOTSET": 0,
    "DEBUG": DEBUG,
    "INFO": INFO,
    "WARN": WARNING,
    "WARNING": WARNING,
    "ERROR": ERROR,
    "CRITICAL": CRITICAL,
    "FATAL": CRITICAL,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)
_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """``directory`` is absolute, so that a task which changes folders doesn't move the log; None: no file at all.

    ``level`` is the least that is written. ``rotate`` is the most bytes that a file may have, None: no limit;
    ``keep`` is how many older files stay beside it.
    """

    directory: str | None = None
    level: int = INFO
    format: str = "line"
    rotate: int | None = 10 * 2**20
    keep: int = 5

    @classmethod
    def checked(
        cls,
        *,
        log_dir: Any = "log/",
        log_level: Any = "INFO",
        log_format: Any = "line",
        log_rotate: Any = "10 MiB",
        log_keep: Any = 5,
    ) -> LogSettings:
        """Raises ValueError naming setting, value and what it may be."""
        return cls(
            directory=_directory(log_dir),
            level=level_number(log_level),
            format=_format(log_format),
            rotate=_bytes(log_rotate),
            keep=_count(log_keep),
        )


def level_number(value: Any, setting: str = "log_level") -> int:
    """A name or number of ``logging``, in any case; names that the application added count too."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value)
    if isinstance(value, str):
        name = value.strip().upper()
        if name in _NAMES:
            return _NAMES[name]
        if name.isascii() and name.isdigit() and len(name) < 10:
            return int(name)
        import logging  # only to look up a name that the application added

        added = logging.getLevelNamesMapping().get(value.strip())
        if added is not None:
            return added
    raise ValueError(
        f"{setting} must be DEBUG, INFO, WARNING, ERROR, CRITICAL or a number, as in logging, not {value!r}"
    )


def _directory(value: Any) -> str | None:
    if value is None or value is False or value == "":
        return None
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str) and "\0" not in path:
            return os.path.abspath(path)
    raise ValueError(f"log_dir must be the path of a folder (None: no log file), not {value!r}")


def _format(value: Any) -> str:
    if isinstance(value, str) and value.strip().lower() in FORMATS:
        return value.strip().lower()
    raise ValueError(f'log_format must be "line" or "json", not {value!r}')


def _bytes(value: Any) -> int | None:
    if value is None:
        return None
    size = 0
    if isinstance(value, int) and not isinstance(value, bool):
        size = int(value)
    elif isinstance(value, str) and len(value) < 50:
        found = _SIZE.fullmatch(value)
        if found and found[2].lower() in _UNITS:
            size = int(float(found[1]) * _UNITS[found[2].lower()])
    if size < 1:
        raise ValueError(
            f'log_rotate must be a size such as "10 MiB" or "500 KB", or a positive number of bytes '
            f"(None: no limit), not {value!r}"
        )
    return size


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"log_keep must be how many older files to keep, an int of at least 0, not {value!r}")
    return int(value)
