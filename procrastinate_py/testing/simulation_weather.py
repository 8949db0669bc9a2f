"""How probable each fault is in a simulated world."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How probable each fault is, per turn or per call."""

    crash_in_call: float = 0.0
    lost_reply: float = 0.0
    failing_call: float = 0.0
    stall_in_call: float = 0.0
    kill: float = 0.0
    freeze: float = 0.0
    drain: float = 0.0
    outage: float = 0.0
    clock_step: float = 0.0
    lost_machine: float = 0.0
    late_turn: float = 0.0
    lost_wake_up: float = 0.0

    @classmethod
    def drawn(cls, random: Random) -> Weather:
        """Each kind of fault is absent from some worlds, so that it can't hide what another would show."""

        def some(most: float) -> float:
            return random.choice((0.0, most / 4, most))

        return cls(
            crash_in_call=some(0.04),
            lost_reply=some(0.1),
            failing_call=some(0.3),
            stall_in_call=some(0.04),
            kill=some(0.01),
            freeze=some(0.01),
            drain=some(0.01),
            outage=some(0.01),
            clock_step=some(0.01) if random.random() < 0.3 else 0.0,
            lost_machine=some(0.4),
            late_turn=some(0.2),
            lost_wake_up=some(0.5),
        )


FAIR = Weather()
