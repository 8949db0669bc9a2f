"""Attempts that somebody else began and didn't end: a dead process's, or those whose lease has lapsed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from ..core.errors import TaskTimeoutError, WorkerDiedError
from ..core.lease import LeaseToken
from ..core.lifecycle import Abandoned, Ending, TimedOut
from ..core.task import Claim
from ..ports.persister import Leasing
from .attempt import Attempt
from .deaths import HUNG
from .in_hand import EXPIRY, RECOVERY, Begun, LastWords, key_of

_BATCH = 500


class Reaper:
    """What it returns is leased to ``owner``, under new tokens."""

    def __init__(
        self, store: Leasing, queue: str, owner: str, lease_for: float, monotonic: Callable[[], float]
    ) -> None:
        self._store = store
        self._queue = queue
        self._owner = owner
        self._lease_for = lease_for
        self._monotonic = monotonic
        self._may_have_claimed = False
        self._may_have_reaped_until = float("-inf")

    def claim_failed(self) -> None:
        """It may have been carried out all the same, and its reply been lost."""
        self._may_have_claimed = True

    def unheard_of(self, held: Collection[LeaseToken]) -> list[Attempt]:
        """Claims whose reply was lost: they haven't begun, so they just run. Left to lapse, they'd count as begun, and
        a task with one attempt would be dead without ever having run. Looked for once nothing is ``held``, since what
        is would get new tokens too."""
        now = self._monotonic()
        if not self._may_have_claimed or held or now <= self._may_have_reaped_until:
            return []
        leased_until = now + self._lease_for
        claims = self._store.lapsed(self._queue, self._owner, _BATCH, self._lease_for, self._owner)
        self._may_have_claimed = False
        attempts = [Attempt(claim) for claim in claims]
        for attempt in attempts:
            attempt.leased_until = leased_until
        return attempts

    def lapsed(self) -> list[Attempt]:
        """Nobody here can know whether ``run`` had begun, so it counts: what kills its host must come to an end."""
        claims = self._taken_over()
        return [Attempt(claim, Abandoned(error=_died("its lease ran out"))) for claim in claims]

    def left_by(self, left: LastWords, cause: str | None) -> Iterator[Attempt]:
        """Of a process that died on this machine it's known what had begun: only that counts, the rest just runs."""
        begun = {note.key: note for note in sorted(left.begun, key=lambda note: note.phase)}
        for dead_owner in left.owners:
            while True:
                leased_until = self._monotonic() + self._lease_for
                claims = self._taken_over(dead_owner)
                if not claims:
                    break
                for claim in claims:
                    note = begun.get(key_of(claim.record.id, claim.record.attempts))
                    attempt = self._attempt(claim, note, cause)
                    attempt.leased_until = leased_until
                    yield attempt

    def _taken_over(self, dead_owner: str | None = None) -> Sequence[Claim]:
        try:
            return self._store.lapsed(self._queue, self._owner, _BATCH, self._lease_for, dead_owner)
        except Exception:
            # What died mustn't be taken for unbegun, where it's the reply that failed: it lapses first.
            self._may_have_reaped_until = self._monotonic() + self._lease_for
            raise

    def _attempt(self, claim: Claim, note: Begun | None, cause: str | None) -> Attempt:
        if note is None or note.phase == EXPIRY:
            return Attempt(claim, hookless=note is not None)
        # A hook that was under way for an earlier death has now died too: it isn't called a third time.
        return Attempt(claim, self._ending(note, cause), hookless=note.phase == RECOVERY)

    def _ending(self, note: Begun, cause: str | None) -> Ending:
        if cause == HUNG and note.deadline <= self._monotonic():
            return TimedOut(error=TaskTimeoutError("it ran past its timeout without letting go of the interpreter"))
        return Abandoned(error=_died(cause or "nobody saw how"))


def _died(how: str) -> WorkerDiedError:
    return WorkerDiedError(f"worker died while the task was running ({how})")
