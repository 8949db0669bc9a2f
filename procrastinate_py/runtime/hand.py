"""What a worker has claimed and not settled yet: waiting, in a body thread, or held apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from ..core.lease import LeaseToken
from ..core.lifecycle import is_suspect
from .attempt import NEVER, Attempt
from .events import Heartbeat
from .executor import Executor
from .in_hand import BODY, InHandFile, key_of
from .limit_watch import LimitWatch

_LONGEST_BEHIND = 1.0


class Hand:
    def __init__(
        self,
        executor: Executor,
        watch: LimitWatch,
        heartbeat: Heartbeat,
        monotonic: Callable[[], float],
        in_hand: InHandFile | None,
    ) -> None:
        self._executor = executor
        self._watch = watch
        self._heartbeat = heartbeat
        self._monotonic = monotonic
        self._in_hand = in_hand
        self._suspects: deque[Attempt] = deque()
        self._alone: Attempt | None = None
        self._handed_over_at = 0.0
        self.held: dict[LeaseToken, Attempt] = {}
        """Everything, by its token."""
        self.working: dict[Attempt, None] = {}
        """Given to the executor and not finished, oldest first."""

    @property
    def is_reserved(self) -> bool:
        """Whether a suspect waits for what runs to end, or runs itself: nothing may be put beside it."""
        return bool(self._suspects) or self._runs_alone

    @property
    def _runs_alone(self) -> bool:
        """Whether a suspect is worked on, or is stuck in a thread that was given up."""
        return self._alone is not None and (self._alone in self.working or not self._alone.done)

    def accept(self, attempt: Attempt) -> None:
        """A task whose process died when it last ran is kept back, so that it can take nobody with it."""
        if attempt.given is not None:
            self._note(attempt)
        if attempt.given is None and is_suspect(attempt.claim.record):
            self.held[attempt.claim.token] = attempt
            self._suspects.append(attempt)
        else:
            self.hand_over(attempt)

    def _note(self, attempt: Attempt) -> None:
        """A run that died is owed its count: should this process die too, its successor has to know."""
        if self._in_hand is not None:
            record = attempt.claim.record
            attempt.slots.append(self._in_hand.begin(key_of(record.id, record.attempts), NEVER, BODY))

    def extended(self, lost: Collection[LeaseToken], until: float) -> None:
        """What's held is leased until this monotonic instant; what's lost mustn't begin any more."""
        for token, attempt in self.held.items():
            attempt.leased_until = -NEVER if token in lost else until

    def hand_over(self, attempt: Attempt) -> None:
        if not self.working:
            self._heartbeat.begin(self._watch.soonest_limit)
        self._watch.begin()
        self.held[attempt.claim.token] = attempt
        self.working[attempt] = None
        self._handed_over_at = self._monotonic()
        self._executor.submit(attempt, len(self.working))

    @property
    def may_begin_suspect(self) -> bool:
        """Whether one waits, and nothing else runs, not even in a thread that was given up."""
        return bool(self._suspects) and not self.working and not self._runs_alone and not self._watch.stuck

    def hand_over_suspect(self) -> bool:
        if not self.may_begin_suspect:
            return False
        self._alone = self._suspects.popleft()
        self.hand_over(self._alone)
        return True

    def replace(self, attempt: Attempt, successor: Attempt) -> None:
        """Another attempt at the same claim, for its hook's sake: the first one's thread won't come back in time."""
        successor.slots.extend(attempt.slots)
        self.held[successor.claim.token] = successor
        self.working[successor] = None
        self._executor.submit_apart(successor)

    def finished(self, attempt: Attempt) -> None:
        self.working.pop(attempt, None)

    def let_go(self, attempt: Attempt) -> None:
        self.held.pop(attempt.claim.token, None)

    def take_back_unbegun(self) -> list[Attempt]:
        unbegun = self._take_back_waiting()
        unbegun.extend(self._suspects)
        self._suspects.clear()
        return unbegun

    def take_back_those_behind(self) -> list[Attempt]:
        """What was claimed beyond the free threads, and isn't being begun since those are slow."""
        if self._executor.waiting and self._monotonic() - self._handed_over_at > _LONGEST_BEHIND:
            return self._take_back_waiting()
        return []

    def _take_back_waiting(self) -> list[Attempt]:
        waiting = self._executor.take_back()
        for attempt in waiting:
            self.finished(attempt)
            if attempt is self._alone:
                self._alone = None
        return waiting
