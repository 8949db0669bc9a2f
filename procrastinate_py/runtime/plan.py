"""All that a queue process needs to know, decided before the first fork."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..core.queue import QueueSpec
from ..core.registry import Registry
from ..ports.clock import Clock
from .lease_keeper import LEASE_FOR
from .logs import LogSettings
from .persister_source import PersisterSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Can be pickled (for ``start_method="spawn"``) where its source and its queues' backoff can."""

    queues: tuple[QueueSpec, ...]
    source: PersisterSource
    registry: Registry
    max_task_bytes: int
    logs: LogSettings
    run_dir: str
    """Absolute; where locks, in-hand files and wake-ups live."""
    process_prefix: str | None
    grace: float
    clock: Clock
    lease_for: float = LEASE_FOR


class Seat(NamedTuple):
    """One of the processes of a queue, which are numbered from 0."""

    queue: QueueSpec
    number: int


def seats(queues: Sequence[QueueSpec]) -> tuple[Seat, ...]:
    """All processes there are to be; everywhere between processes one is told by its index here."""
    return tuple(Seat(queue, number) for queue in queues for number in range(queue.processes))


def wake_folder(run_dir: str) -> str:
    """Where queue processes of a floor persister listen for wake-ups."""
    return os.path.join(run_dir, "wake")
