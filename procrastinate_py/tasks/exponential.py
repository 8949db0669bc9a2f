"""A backoff that grows by a factor, for ``define_queue(backoff=...)``."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..core.backoff import LONGEST_DELAY


@dataclass(frozen=True, slots=True)
class Exponential:
    """``min(cap, base * factor**(n-1))`` seconds after the n-th failure, times a factor drawn from [1, 1 + jitter].

    ``base`` and ``cap`` are seconds. Jitter keeps tasks that failed together from coming back together.
    """

    base: float = 30.0
    factor: float = 2.0
    cap: float = 24 * 3600.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for field, least in zip(fields(self), (0.0, 1.0, 0.0, 0.0), strict=True):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"Exponential: {field.name} must be a number, not {value!r}")
            if not least <= value <= LONGEST_DELAY:  # also False for NaN
                raise ValueError(f"Exponential: {field.name} must be from {least:g} to {LONGEST_DELAY}, not {value!r}")

    def __call__(self, attempts: int) -> float:
        grown = self.base * _power(float(self.factor), attempts - 1) if self.base else 0.0
        delay = min(self.cap, grown)
        if self.jitter:
            import random  # not light, and few queues ask for it

            delay *= random.uniform(1.0, 1.0 + self.jitter)
        return float(min(delay, LONGEST_DELAY))


def _power(factor: float, exponent: int) -> float:
    try:
        return float(factor**exponent)
    except OverflowError:
        return math.inf
