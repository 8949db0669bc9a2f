"""Writes what became of tasks: one call for many outcomes, and nothing forgotten where the store fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..core.error_text import ascii_fallback, type_and_message
from ..core.lease import LeaseToken
from ..core.lifecycle import Close, Reschedule, Transition, with_text
from ..ports.persister import IncompleteSettle, Leasing
from .attempt import Attempt

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 8.0
"""Seconds. Work has to go on within 10 s of the store's return: what is left is for the calls themselves."""
_FAILURES_IN_A_ROW = 3
_PATIENCE = 5.0
"""Seconds of writing in vain after which the rest waits for another time. A store that hangs takes long to fail, and
whoever waits for it can neither extend leases nor watch limits; its supervisor would take it for hung, too."""


class Outage:
    """One WARNING when calls to the store begin to fail, one INFO when all kinds of them work again; pauses in between.

    A store may answer one kind of call and not another (a full disk can be read): that's still one outage.
    """

    def __init__(self, log: OutageLog, monotonic: Callable[[], float]) -> None:
        self._log = log
        self.monotonic = monotonic
        self._failing: set[str] = set()
        self._pause = 0.0
        self._since = 0.0
        self.retry_at = float("-inf")

    @property
    def pausing(self) -> bool:
        """Whether it's too early to call the store again."""
        return bool(self._failing) and self.monotonic() < self.retry_at

    def failed(self, call: str, error: BaseException) -> None:
        now = self.monotonic()
        if not self._failing:
            self._pause = 0.0
            self._since = now
            self._log.warning("store_unavailable", reason=type_and_message(error))
        self._failing.add(call)
        self._pause = min(max(self._pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
        self.retry_at = now + self._pause

    def worked(self, call: str) -> None:
        if call in self._failing:
            self._failing.discard(call)
            self.retry_at = float("-inf")  # the store is back: what else failed needn't wait for the end of its pause
            if self._failing:
                return
            self._log.info("store_available", duration=round(self.monotonic() - self._since, 3))


class OutageLog(Protocol):
    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Written:
    """An outcome that the store has, or, where the lease was lost, one that's nobody's business any more."""

    attempt: Attempt
    was_lost: bool


class Settler:
    def __init__(self, store: Leasing, log: OutageLog, outage: Outage) -> None:
        self._store = store
        self._log = log
        self._outage = outage
        self._apart = False
        self._written: list[Written] = []
        self.unwritten: list[Attempt] = []

    def add(self, attempt: Attempt) -> None:
        """One whose transition is decided."""
        self.unwritten.append(attempt)

    def flush(self, *, at_once: bool = False) -> tuple[list[Written], BaseException | None]:
        """Writes all that's waiting, unless the store is to be left alone for now (``at_once``: even then).

        Returns what was written, and what failed where not everything was.
        """
        if not self.unwritten or (self._outage.pausing and not at_once):
            return [], None
        if self._apart or len(self.unwritten) == 1:
            failed = self._write_apart()
        else:
            failed = self._write_together()
        self._apart = failed is not None
        if failed is None:
            self._outage.worked("settle")
        else:
            self._outage.failed("settle", failed)
        written, self._written = self._written, []
        return written, failed

    def _write_together(self) -> BaseException | None:
        attempts = self.unwritten
        failures, lost = self._settle([(attempt.claim.token, _decided(attempt)) for attempt in attempts])
        self._finish([attempt for attempt in attempts if attempt.claim.token not in failures], lost)
        if not failures:
            return None
        if len(failures) < len(attempts):
            return self._write_apart()  # the store works: what failed did so on its own account
        return next(iter(failures.values()))

    def _write_apart(self) -> BaseException | None:
        """One at a time, so that one which can't be written doesn't hold up the others: next time they come first."""
        failed: BaseException | None = None
        in_vain: dict[Attempt, None] = {}
        in_a_row = 0
        give_up_at = self._outage.monotonic() + _PATIENCE
        for attempt in self.unwritten:
            error = self._write_alone(attempt, give_up_at)
            if error is None:
                in_a_row = 0
                continue
            failed = error
            in_vain[attempt] = None
            in_a_row += 1
            if in_a_row == _FAILURES_IN_A_ROW or self._outage.monotonic() >= give_up_at:
                break
        self.unwritten = [*(attempt for attempt in self.unwritten if attempt not in in_vain), *in_vain]
        return failed

    def _write_alone(self, attempt: Attempt, give_up_at: float) -> BaseException | None:
        """With its full error text, else with a short ASCII one, else not yet."""
        error: BaseException | None = None
        token = attempt.claim.token
        for transition in _in_full_and_in_short(_decided(attempt)):
            if error is not None and self._outage.monotonic() >= give_up_at:
                break
            failures, lost = self._settle([(token, transition)])
            if not failures:
                self._finish([attempt], lost)
                if error is not None:
                    self._log.warning("error_text_shortened", task_id=token.task_id, reason=type_and_message(error))
                return None
            error = error or failures[token]
        return error

    def _settle(
        self, settlements: Sequence[tuple[LeaseToken, Transition]]
    ) -> tuple[Mapping[LeaseToken, BaseException], Collection[LeaseToken]]:
        """Which writes failed, and which tokens turned out to be lost."""
        try:
            return {}, frozenset(self._store.settle(settlements))
        except IncompleteSettle as error:
            return error.failures, ()
        except Exception as error:
            return {token: error for token, _ in settlements}, ()

    def _finish(self, done: Sequence[Attempt], lost: Collection[LeaseToken]) -> None:
        if len(done) == len(self.unwritten):
            self.unwritten = []
        else:
            gone = set(done)
            self.unwritten = [attempt for attempt in self.unwritten if attempt not in gone]
        self._written.extend(Written(attempt, attempt.claim.token in lost) for attempt in done)


def _decided(attempt: Attempt) -> Transition:
    assert attempt.decided is not None
    return attempt.decided


def _in_full_and_in_short(transition: Transition) -> Iterator[Transition]:
    yield transition
    if isinstance(transition, Reschedule | Close) and transition.last_error is not None:
        yield with_text(transition, last_error=ascii_fallback(transition.last_error))
