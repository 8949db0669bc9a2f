"""Instants, durations and stored texts as people say and read them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from ..core.instants import Instant
from ..runtime.log_lines import printable

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_SECONDS = {"w": 604_800, **dict(_UNITS)}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[wdhms]\s*)+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([wdhms])", re.ASCII)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)


def duration(seconds: float) -> str:
    """``2h 30m``: the two largest units that count."""
    left = math.floor(abs(seconds))
    parts = []
    for unit, size in _UNITS:
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts[:2]) or "0s"


def relative(at: float | None, now: float) -> str:
    """``in 2h 30m``, ``5s ago``, ``now``; ``-`` for no instant."""
    if at is None:
        return "-"
    if abs(at - now) < 1:
        return "now"
    return f"in {duration(math.ceil(at - now))}" if at > now else f"{duration(at - now)} ago"


def absolute(at: float | None) -> str:
    """ISO 8601, UTC, to the second."""
    if at is None:
        return "-"
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(at)


def instant(text: str) -> Instant:
    """``2h 30m`` and ``in 2h`` are from now; else epoch seconds or ISO 8601 (without a zone: local time).

    Raises ValueError telling what would do.
    """
    words = text.strip()
    ahead = words.removeprefix("in ").removeprefix("+").strip().lower()
    if ahead == "now":
        return timedelta(0)
    if _NUMBER.fullmatch(words):
        return float(words)
    if _DURATION.fullmatch(ahead):
        try:
            return timedelta(seconds=sum(float(part[1]) * _SECONDS[part[2]] for part in _PART.finditer(ahead)))
        except OverflowError:
            pass
    try:
        return datetime.fromisoformat(words)
    except ValueError:
        pass
    raise ValueError(f"{text!r} is no instant: give 2h 30m (from now), 2030-12-24T18:00 or epoch seconds")


def one_line(text: str, longest: int = 100) -> str:
    """A stored text's first line, safe on a terminal, cut where it's longer."""
    first = text[: longest * 4].split("\n", 1)[0]
    told = printable(first)
    return told if len(told) <= longest else told[: longest - 3] + "..."


def safe_lines(text: str) -> list[str]:
    """All lines of a stored text, safe on a terminal."""
    return [printable(line) for line in text.rstrip("\n").split("\n")]
