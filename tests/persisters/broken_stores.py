"""Stores that are broken in one way each, as real ones are; each tells which case of the exam catches it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Double:
    """``alone``: no other case would have caught it."""

    make: Callable[[Any], Any]
    reopen: Callable[[Any], Any] | None
    ability: str
    sentence: str
    alone: bool
    name: str


DOUBLES: list[Double] = []


def caught_by(ability: str, sentence: str, *, alone: bool = False) -> Callable[[type[Any]], type[Any]]:
    """Adds the class. It's called with a clock; its ``reopened()``, where it has one, gives the store opened anew."""

    def add(broken: type[Any]) -> type[Any]:
        DOUBLES.append(
            Double(
                make=broken,
                reopen=(lambda persister: persister.reopened()) if hasattr(broken, "reopened") else None,
                ability=ability,
                sentence=sentence,
                alone=alone,
                name=broken.__name__,
            )
        )
        return broken

    return add


def pause() -> None:
    """Lets other threads come between what was looked at and what is written, where there are any."""
    if threading.active_count() > 2:
        time.sleep(0.05)
