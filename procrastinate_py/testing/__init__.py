"""For tests: a clock that only you move, a matcher for delayed tasks, and the exam for persisters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import FakeClock as FakeClock
    from .conformance import PersisterConformance as PersisterConformance
    from .matchers import have_task as have_task

_HOMES = {"FakeClock": "clock", "PersisterConformance": "conformance", "have_task": "matchers"}

__all__ = ["FakeClock", "PersisterConformance", "have_task"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
