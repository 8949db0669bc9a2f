"""Moves the time that test mode goes by: a FakeClock's, or the one that freezegun or time-machine shows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ..core.errors import TestModeError
from ..ports.clock import Clock, SystemClock

# Bound while this module is loaded: freezegun replaces the name datetime in every module, by a class of its own.
_from_timestamp = datetime.fromtimestamp


def mover_of(clock: Clock) -> Callable[[float], None]:
    """Sets the clock to an instant in epoch seconds. Raises TestModeError where it's the real one."""
    move_to = getattr(clock, "move_to", None)
    if callable(move_to):
        mover: Callable[[float], None] = move_to
        return mover
    frozen = _frozen_by_a_library() if isinstance(clock, SystemClock) else None
    if frozen is None:
        raise TestModeError(
            "drain(until=...) moves the clock, and this one can't be moved: give the environment clock=FakeClock() "
            "(procrastinate_py.testing), or freeze the time with freezegun or time-machine"
        )
    return lambda seconds: frozen.move_to(_from_timestamp(seconds, UTC))


def _frozen_by_a_library() -> Any:
    """What moves the frozen time; looked up, not imported, so that neither library is needed."""
    for module, stacks in (
        ("freezegun.api", ("freeze_factories",)),
        ("time_machine", ("traveller_stack", "coordinates_stack")),
    ):
        for stack in stacks:
            frozen = getattr(sys.modules.get(module), stack, None)
            if frozen and callable(getattr(frozen[-1], "move_to", None)):
                return frozen[-1]
    return None
