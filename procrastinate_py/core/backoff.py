"""How long a failed task waits before it runs again."""

from __future__ import annotations

from collections.abc import Callable

from .error_text import shown

Backoff = Callable[[int], float]
"""From the number of attempts made so far (1 after the first failure) to seconds."""

LONGEST_DELAY = 365 * 24 * 3600
"""No delay is longer, whatever a policy asks for: it must fit every store and every sleep."""

_LAST_UNCAPPED_ATTEMPT = int(LONGEST_DELAY**0.25)


def default_backoff(attempts: int) -> float:
    """30 + attempts**4 seconds, capped before the power is taken."""
    if attempts > _LAST_UNCAPPED_ATTEMPT:
        return float(LONGEST_DELAY)
    return float(min(30 + attempts**4, LONGEST_DELAY))


def bounded_delay(seconds: object) -> float:
    """What a policy answered, as a usable number of seconds. Raises ValueError for nonsense."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:  # nan isn't either
        raise ValueError(f"a backoff must give a number of seconds of at least 0, not {shown(seconds)}")
    return float(min(seconds, LONGEST_DELAY))
