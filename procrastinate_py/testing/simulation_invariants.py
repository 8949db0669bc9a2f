"""What must hold at every step of a simulation, and the record of what broke it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Invariant(enum.StrEnum):
    """Each by its sentence."""

    NONE_LOST = "no task is lost, and none stays unfinished once faults have stopped"
    ONE_HOLDER = "no task is handed out while a lease on it lasts, lapsed or not"
    REAPED_TOO_EARLY = "only a lapsed lease, a dead worker's, or one's own that one never heard of, is taken over"
    LEASE_HOLDS = "a lease is as long as it was said to be, and its holder may use it"
    KEEPS_HOLD = "a live worker writes or extends in time what it holds, unless its store is in trouble"
    NO_ZOMBIE = "a lease that was lost can't be extended or settled"
    NO_RUN_WITHOUT_LEASE = "no body begins without the lease, nor beside another run of the same task"
    ONE_RUN_A_CLAIM = "a claim is run once at most"
    WRITTEN = "what was settled is in the store, as it was settled, and nothing else changes"
    TRUE_OUTCOME = "what is written is what happened: complete means that run had returned"
    COUNTED = "an attempt is counted once if it began, and not if it didn't"
    ATTEMPTS_ONLY_GROW = "attempts never go down"
    MAX_ATTEMPTS = "no task runs or is retried beyond max_attempts"
    BACKOFF = "a retry waits for as long as its backoff says"
    CLOSED_STAYS_CLOSED = "what is closed or complete is never run or written again"
    NOT_AFTER_EXPIRY = "no body begins after its task's expire_at"
    NOT_BEFORE_DUE = "no task is handed out before it's due"
    HOOKS = "the right hook is called: success once after success, else fail or, at the end, final_fail"
    STATE_KEPT = "what a task changed on itself is there at its next attempt"
    SUSPECTS_ALONE = "a task whose last run killed its process runs with nothing beside it"
    UNIQUE = "ids and lease tokens are never used twice"
    WORKER_LIVES = "a worker doesn't raise, whatever its store does"
    NO_SPINNING = "a worker with nothing to do sleeps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """``told`` says which task or worker, and what it did."""

    invariant: Invariant
    told: str

    def __str__(self) -> str:
        return f"{self.invariant.name}: {self.invariant}\n  {self.told}"
