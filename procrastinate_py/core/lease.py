"""Who holds a task and until when, and the token that every write after a claim presents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

TaskId = Any
"""What create_task returned: an int in the bundled stores, anything hashable elsewhere."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A task in somebody's hand. It has lapsed once ``now > expires_at``."""

    owner: str
    expires_at: float

    def has_lapsed(self, now: float) -> bool:
        return now > self.expires_at


class LeaseToken(NamedTuple):
    """Fences writes: a settle or extend is refused once the row carries another value."""

    task_id: TaskId
    value: str
