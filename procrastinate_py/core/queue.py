"""A queue's name and options, checked where they're declared."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

from .backoff import Backoff, default_backoff
from .error_text import did_you_mean, shown

DEFAULT_TIMEOUT: Final = 3600.0
SAME_AS_TIMEOUT: Final = "same as timeout"

_WHITESPACE = re.compile(r"\s+")
_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")
_LONGEST_FILE_NAME = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A declared queue. Durations are seconds; ``timeout``, ``hook_timeout``, ``max_attempts`` None: no limit."""

    name: str
    timeout: float | None = DEFAULT_TIMEOUT
    max_attempts: int | None = 20
    update_period: float = 10.0
    max_tasks: int = 10
    backoff: Backoff = default_backoff
    hook_timeout: float | None = DEFAULT_TIMEOUT
    timeout_grace: float = 5.0
    processes: int = 1
    """Of one application. More than one takes a store with leases."""


QUEUE_OPTIONS = tuple(spec.name for spec in fields(QueueSpec) if spec.name != "name")


def normalise_name(name: object) -> str:
    """The one spelling of a queue's name: runs of white space become ``_``, ends are stripped."""
    if not isinstance(name, str):
        raise TypeError(f"a queue's name must be a str, not {shown(name)}")
    normal = _WHITESPACE.sub("_", name.strip())
    if not normal:
        raise ValueError(f"a queue's name must not be empty, as {shown(name)} is")
    return normal


def queue_spec(name: object, options: dict[str, Any]) -> QueueSpec:
    """A queue from what define_queue got. Raises TypeError or ValueError naming queue, option and value."""
    normal = normalise_name(name)
    for option in options:
        if option not in QUEUE_OPTIONS:
            raise TypeError(
                f"queue {normal!r}: unknown option {option!r}{did_you_mean(option, QUEUE_OPTIONS)}; "
                f"known: {', '.join(QUEUE_OPTIONS)}"
            )
    checked: dict[str, Any] = {}
    for option, value in options.items():
        checked[option] = _CHECKS[option](normal, option, value)
    if checked.get("hook_timeout", SAME_AS_TIMEOUT) == SAME_AS_TIMEOUT:
        checked["hook_timeout"] = checked.get("timeout", DEFAULT_TIMEOUT)
    return QueueSpec(name=normal, **checked)


def _wrong(queue: str, option: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"queue {queue!r}: {option} must be {wanted}, not {shown(value)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _limit(queue: str, option: str, value: Any) -> float | None:
    if value is None or (_is_number(value) and value == 0):
        return None
    if not _is_number(value) or value < 0:
        raise _wrong(queue, option, value, "a positive number of seconds (None or 0: no limit)")
    return float(value)


def _hook_limit(queue: str, option: str, value: Any) -> float | None | str:
    return SAME_AS_TIMEOUT if value == SAME_AS_TIMEOUT else _limit(queue, option, value)


def _period(queue: str, option: str, value: Any) -> float:
    if not _is_number(value) or value <= 0:
        raise _wrong(queue, option, value, "a positive number of seconds")
    return float(value)


def _count(queue: str, option: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(queue, option, value, "a positive int")
    return value


def _attempts(queue: str, option: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise _wrong(queue, option, value, "a positive int (None: no limit)")
    return value if value is None else int(value)


def _backoff(queue: str, option: str, value: Any) -> Backoff:
    if not callable(value):
        raise _wrong(queue, option, value, "callable: from attempts made to seconds")
    backoff: Backoff = value
    return backoff


_CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "timeout": _limit,
    "max_attempts": _attempts,
    "update_period": _period,
    "max_tasks": _count,
    "backoff": _backoff,
    "hook_timeout": _hook_limit,
    "timeout_grace": _period,
    "processes": _count,
}


def file_stem(name: str) -> str:
    """A queue's name as a file name: injective, bounded, and never a path.

    Letters, digits, ``_``, ``-`` and inner dots stand for themselves, all else is percent-encoded UTF-8; where
    that grows too long, the rest gives way to ``~`` (never written otherwise) and a digest of the whole name.
    """
    encoded = "".join(
        chr(byte) if byte in _SAFE and not (index == 0 and byte in b".-") else f"%{byte:02X}"
        for index, byte in enumerate(name.encode("utf-8", "surrogatepass"))
    )
    if len(encoded) <= _LONGEST_FILE_NAME:
        return encoded
    import hashlib  # here, since OpenSSL costs 4 MiB and few names are long

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{encoded[:40]}~{digest}"
