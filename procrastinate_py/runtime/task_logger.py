"""The logger that a task's hooks get: a structlog BoundLogger, which also takes what ``logging`` takes.

Imported only where a log is opened, since structlog isn't light.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from .log_settings import CRITICAL, DEBUG, ERROR, INFO, WARNING

_NAMES = {DEBUG: "debug", INFO: "info", WARNING: "warning", ERROR: "error", CRITICAL: "critical"}
_RESERVED = frozenset(("time", "level", "event", "pid"))
_KEYWORDS = frozenset(("exc_info", "stack_info", "stacklevel", "extra"))


class TaskLogger(structlog.BoundLoggerBase):
    """``logger.info("sent", to=3)`` and ``logger.info("sent to %s", 3)`` both work. No call ever raises."""

    def debug(self, event: object = "", /, *args: Any, **fields: Any) -> None:
        if self._logger.level <= DEBUG:
            self._tell("debug", event, args, fields)

    def info(self, event: object = "", /, *args: Any, **fields: Any) -> None:
        if self._logger.level <= INFO:
            self._tell("info", event, args, fields)

    def warning(self, event: object = "", /, *args: Any, **fields: Any) -> None:
        if self._logger.level <= WARNING:
            self._tell("warning", event, args, fields)

    def error(self, event: object = "", /, *args: Any, **fields: Any) -> None:
        if self._logger.level <= ERROR:
            self._tell("error", event, args, fields)

    def critical(self, event: object = "", /, *args: Any, **fields: Any) -> None:
        if self._logger.level <= CRITICAL:
            self._tell("critical", event, args, fields)

    def exception(self, event: object = "", /, *args: Any, **fields: Any) -> None:
        """At ERROR, with the traceback of the exception that is being handled."""
        fields.setdefault("exc_info", True)
        self.error(event, *args, **fields)

    def log(self, level: int, event: object = "", /, *args: Any, **fields: Any) -> None:
        if self._logger.level <= level:
            self._tell(_NAMES[max(DEBUG, min(level // 10 * 10, CRITICAL))], event, args, fields)

    def is_enabled_for(self, level: int) -> bool:
        enabled: bool = self._logger.level <= level
        return enabled

    def get_effective_level(self) -> int:
        level: int = self._logger.level
        return level

    warn = warning
    fatal = critical
    msg = info
    # as logging calls them
    isEnabledFor = is_enabled_for
    getEffectiveLevel = get_effective_level

    def _tell(self, method: str, event: object, args: tuple[Any, ...], fields: dict[str, Any]) -> None:
        try:
            words = {**_as_fields(fields), EVENT: _interpolated(event, args)}
            (line,), _ = self._process_event(method, None, words)
            self._logger.write(line)
        except Exception as error:
            self._logger.note(error)


EVENT = " event"
"""Not ``event``, so that a field of this name isn't lost."""


def stamped(time: Callable[[], str]) -> Callable[[Any, str, Any], Any]:
    """A processor: time, level and event come first, the process last; fields of these names get a ``_``."""

    def stamp(_logger: Any, method: str, event: Any) -> Any:
        told = {"time": time(), "level": method, "event": event.pop(EVENT)}
        for key, value in event.items():
            told[f"{key}_" if key in _RESERVED else key] = value
        told["pid"] = os.getpid()
        return told

    return stamp


def _interpolated(event: object, args: tuple[Any, ...]) -> object:
    """As ``logging`` does it; arguments that don't fit are told beside the text rather than lost."""
    if not args:
        return event
    try:
        return str(event) % (args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args)
    except Exception:
        return f"{event} {args!r}"


def _as_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """What ``logging`` takes as keywords, as fields."""
    if fields.keys().isdisjoint(_KEYWORDS):
        return fields
    fields = dict(fields)
    fields.pop("stack_info", None)
    fields.pop("stacklevel", None)
    extra = fields.pop("extra", None)
    if isinstance(extra, Mapping):
        fields = {**{str(key): value for key, value in extra.items()}, **fields}
    raised = fields.pop("exc_info", None)
    error = raised if isinstance(raised, BaseException) else None
    if isinstance(raised, tuple) and len(raised) == 3:
        error = raised[1]
    elif raised and error is None:
        error = sys.exc_info()[1]
    if error is not None:
        fields["error" if "error" not in fields else "exception"] = error
    return fields
