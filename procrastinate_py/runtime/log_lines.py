"""An event as one line of text or JSON. Whatever is in it, it can't pass for another event."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any

from ..core.error_text import storable, traceback_of, type_and_message

LONGEST_VALUE = 16 * 1024
"""Bytes: longer texts lose their middle."""

_PLAIN = re.compile(r"[\w.,:;/@+%<>()\[\]{}*?!#$&|~^'-]+", re.ASCII)


def timestamp(now: float) -> str:
    """ISO 8601, UTC, to the millisecond."""
    try:
        return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"@{now}"


def as_line(event: MutableMapping[str, Any]) -> bytes:
    """``TIME LEVEL event key=value ...``; a traceback follows, indented."""
    trace = _split_off_traceback(event)
    words = [event.pop("time"), f"{event.pop('level').upper():<8}", _event_words(_text(event.pop("event")))]
    words += [f"{_key(key)}={_value_words(value)}" for key, value in event.items()]
    text = " ".join(words)
    if trace is not None:
        text += "".join(f"\n    {printable(line)}" for line in storable(trace).rstrip("\n").split("\n"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def as_json(event: MutableMapping[str, Any]) -> bytes:
    """One line, always, and always JSON."""
    trace = _split_off_traceback(event)
    if trace is not None:
        event["traceback"] = storable(trace)
    return json.dumps({key: _json_value(value) for key, value in event.items()}).encode() + b"\n"


def _split_off_traceback(event: MutableMapping[str, Any]) -> str | None:
    """Exceptions are told in one line; the traceback of the first is returned."""
    trace: str | None = None
    for key in ("error", "exception"):
        error = event.get(key)
        if isinstance(error, BaseException):
            event[key] = type_and_message(error)
            trace = trace or traceback_of(error)
    return trace


def _text(value: Any) -> str:
    if isinstance(value, str):
        return storable(value, LONGEST_VALUE) if len(value) > LONGEST_VALUE // 4 else str(value)
    try:
        told = repr(value)
    except Exception:
        told = f"<{type(value).__name__}: its repr failed>"
    return storable(told, LONGEST_VALUE)


def _key(key: str) -> str:
    return key if key.isidentifier() else _quoted(key)


def _event_words(text: str) -> str:
    """Unquoted where it can't be mistaken for fields."""
    is_plain = text.isprintable() and text.strip() == text and text and "=" not in text and '"' not in text
    return text if is_plain else _quoted(text)


def _value_words(value: Any) -> str:
    text = _text(value)
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    return printable(json.dumps(text, ensure_ascii=False))


def printable(text: str) -> str:
    """Escapes all that isn't printable: line ends, control characters, marks that reverse the reading direction."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple | Mapping):
        try:
            told = json.dumps(value, allow_nan=False)
            if len(told) <= LONGEST_VALUE:
                return json.loads(told)
        except Exception:
            pass  # not JSON: told as text
    return _text(value)
