"""Texts for last_error: whatever an exception says, something storable comes out."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_ERROR_BYTES = 64 * 1024

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_GAP = "\n[... cut ...]\n"


def message_of(error: BaseException) -> str:
    """The exception's own words, or its type's name where it has none or can't say them."""
    try:
        text = str.__str__(str(error))  # a subclass of str may have hostile methods of its own
    except BaseException:
        text = "(its __str__ failed)"
    return text or type(error).__name__


def type_and_message(error: BaseException) -> str:
    """``TYPE: MESSAGE``, for a line of a log or of a terminal."""
    return f"{type(error).__name__}: {message_of(error)}"


def traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:
        return f"{type(error).__name__} (its traceback can't be told)\n"


def shown(value: object) -> str:
    """Its repr, shortened, for a message that must come out whatever the value is."""
    try:
        text = str.__str__(repr(value))
    except Exception:  # a repr of its own, or an int of more digits than Python prints
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 200 else text[:200] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'NEAREST'?)``, or nothing where none is near."""
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def storable(text: str, limit: int = LONGEST_ERROR_BYTES) -> str:
    """Escapes NUL and lone surrogates, then cuts to ``limit`` bytes of UTF-8, keeping both ends."""
    if len(text) > 2 * limit:  # a character is a byte at least: what's further in than this can't stay
        text = text[:limit] + text[-limit:]
    text = _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    data = text.encode()
    if len(data) <= limit:
        return text
    half = (limit - len(_GAP)) // 2
    return data[:half].decode(errors="ignore") + _GAP + data[-half:].decode(errors="ignore")


def error_text(prefix: str, error: BaseException) -> str:
    """``PREFIX: MESSAGE`` and the traceback, storable."""
    return storable(f"{prefix}: {message_of(error)}\n{traceback_of(error)}")


def ascii_fallback(text: str) -> str:
    """A short form that a store refusing ``text`` may still take: its first line, in plain ASCII."""
    first = text.split("\n", 1)[0][:200]
    return first.encode("ascii", "replace").decode("ascii")
