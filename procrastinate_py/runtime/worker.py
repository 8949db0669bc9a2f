"""The coordinator of one queue: claims, hands over, watches limits, settles. It never runs the user's code.

``step()`` is one tick; ``work()`` repeats it and waits in between; ``act()`` is test mode's: one due task, now.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ..core.codec import Codec
from ..core.lifecycle import Interrupted, Release, Reschedule, TimedOut
from ..core.outcome import Outcome
from ..core.queue import QueueSpec
from ..core.task import Claim
from ..ports.persister import Leasing
from .attempt import NEVER, Attempt, AttemptRunner, timeout_error
from .events import Events, Heartbeat, Unheard
from .executor import Executor
from .hand import Hand
from .in_hand import InHandFile, LastWords
from .inbox import Inbox
from .lease_keeper import LEASE_FOR, LeaseKeeper
from .limit_watch import LimitWatch
from .logs import QueueLog
from .looks import Looks
from .pace import Pace
from .reaper import Reaper
from .settler import Outage, Settler, Written
from .stop import Exit, StopLevel, StopToken

REPLACE_WITHIN = 30.0
"""Seconds after its limit by which a body that won't end is gone, and its process with it."""
_TIME_TO_DIE = 5.0
_LAST_WORDS = 1.0
"""Seconds that interrupted bodies get to end when the worker stops."""
_BATCH = 64
_LINGER = 0.01
_LONGEST_WAIT = 3600.0


class QueueWorker:
    """``now`` is the store's clock where it has one; ``monotonic`` is always this machine's."""

    _asleep = False
    _last_words: tuple[LastWords, str | None] | None = None
    _stop: StopToken | None = None
    _drain_begun = False
    _give_up_at: float | None = None
    _must_replace = False

    def __init__(
        self,
        *,
        spec: QueueSpec,
        store: Leasing,
        codec: Codec,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        log: QueueLog,
        owner: str,
        in_hand: InHandFile | None = None,
        events: Events | None = None,
        lease_for: float = LEASE_FOR,
        executor: Callable[[Callable[[Attempt], None], int, str], Executor] = Executor,
    ) -> None:
        self._spec = spec
        self._store = store
        self._now = now
        self._monotonic = monotonic
        self._log = log
        self._owner = owner
        self._in_hand_file = in_hand
        self._events: Events = events or Unheard()
        self._heartbeat = Heartbeat(self._events, monotonic)
        self._outage = Outage(log, monotonic)
        self._settler = Settler(store, log, self._outage)
        self._leases = LeaseKeeper(store, monotonic, lease_for)
        self._reaper = Reaper(store, spec.name, owner, lease_for, monotonic)
        self._watch = LimitWatch(spec, monotonic)
        self._pace = Pace(monotonic)
        self._looks = Looks(store, spec.name, spec.update_period, now, monotonic)
        runner = AttemptRunner(
            spec=spec, codec=codec, now=now, monotonic=monotonic, log=log, in_hand=in_hand, finished=self._finished
        )
        self._executor = executor(runner.perform, spec.max_tasks, f"{spec.name}-body")
        self._hand = Hand(self._executor, self._watch, self._heartbeat, monotonic, in_hand)
        self._done: deque[Attempt] = deque()
        self._busy_reap_at = float("-inf")
        self._acted = threading.Event()
        self._wake: Callable[[], None] = self._acted.set

    # --- what a process, a test or a simulation calls

    def recover(self, left: LastWords, cause: str | None) -> None:
        """Before anything is claimed, deals with what dead predecessors on this machine left in hand."""
        self._last_words = (left, cause)

    def woken(self) -> None:
        """Something may be due that wasn't known of."""
        self._looks.at_once()

    def step(self) -> None:
        """One tick. Never raises what the store raises."""
        self._enforce_limits()
        self._collect()
        self._settle()
        self._extend_leases(self._leases.due_at)
        if not self._is_draining:
            self._reap()
            self._claim()
            self._free_those_behind()
        self._heartbeat.beat((lambda: self._watch.earliest(self._hand.working)) if self._hand.working else None)

    def work(self, inbox: Inbox, stop: StopToken) -> Exit:
        """Until told to stop, or until the process has to be replaced."""
        self._wake = inbox.poke
        self._stop = stop
        self._events.ready()
        while True:
            self.step()
            if self._is_draining and self._drain(stop):
                break
            self._sleep(inbox)
        self._executor.close()
        return Exit.REPLACE if self._must_replace else Exit.STOPPED

    @property
    def holds_nothing(self) -> bool:
        """Whether all that was ever claimed here, or left behind by dead predecessors, has been settled."""
        return not self._hand.held and self._last_words is None

    def act(self) -> Outcome | None:
        """Test mode's: works one due task to its end. Raises what the store raises; an outcome that couldn't be
        written then is kept, and written by the next call instead of running anything."""
        written = self._settle_or_raise()
        if written:
            return written[0]
        claims = self._store.claim(self._spec.name, self._owner, 1, self._leases.lease_for)
        if not claims:
            return None
        self._wake = self._acted.set
        self._hand.hand_over(Attempt(claims[0]))
        while self._hand.working:
            self._acted.clear()
            self._asleep = True  # before the look: whatever ends after it has to wake this thread
            self._enforce_limits()
            self._collect()
            if self._hand.working:
                self._acted.wait(min(max(0.0, self._watch.next_at - self._monotonic()), _LONGEST_WAIT))
        return self._settle_or_raise()[0]

    def close(self) -> None:
        """Lets the idle threads end. What runs is left to itself."""
        self._executor.close()

    # --- the parts of a tick

    @property
    def _is_draining(self) -> bool:
        return self._stop is not None and self._stop.level is not StopLevel.NONE

    def _enforce_limits(self) -> None:
        if self._monotonic() < self._watch.next_at:
            return
        for attempt in self._watch.overdue(self._hand.working):
            self._take_over(attempt)
        if self._watch.must_replace and not self._must_replace:
            self._must_replace = True
            self._log.error("body_will_not_end", next="this process is drained and replaced")
            if self._stop is not None:
                self._stop.drain("a body will not end", REPLACE_WITHIN - _TIME_TO_DIE - self._spec.timeout_grace)

    def _take_over(self, attempt: Attempt) -> None:
        """The body or hook doesn't heed its interruption: its thread is given up, its outcome isn't."""
        if not attempt.disown():
            return
        record = attempt.claim.record
        self._log.warning("body_left_behind", task_id=record.id, attempt=record.attempts + 1)
        self._watch.taken_over(attempt)
        self._hand.finished(attempt)
        if attempt.decided is not None:
            self._settler.add(attempt)  # a hook that won't end: what it was called for is decided already
            return
        not_before = self._now() + self._spec.timeout_grace + REPLACE_WITHIN
        error = timeout_error(record.id, self._spec.timeout)
        error.add_note(f"It was still here when its time was over:\n{attempt.guard.stack()}")
        ending = TimedOut(error=error, not_before=not_before)
        self._hand.replace(attempt, attempt.successor(ending))

    def _finished(self, attempt: Attempt) -> None:
        """In a body thread."""
        self._done.append(attempt)
        if self._asleep and (self._executor.waiting == 0 or len(self._done) >= _BATCH):
            self._asleep = False
            self._wake()

    def _collect(self) -> None:
        for _ in range(len(self._done)):
            attempt = self._done.popleft()
            self._hand.finished(attempt)
            self._settler.add(attempt)

    def _settle(self) -> None:
        if self._settler.unwritten:
            written, _ = self._settler.flush()
            for item in written:
                self._let_go(item)
            if written:
                self._pace.finished(len(written))
                self._events.settled(len(written))

    def _settle_or_raise(self) -> list[Outcome]:
        written, failed = self._settler.flush(at_once=True)
        for item in written:
            self._let_go(item)
        if failed is not None:
            raise failed
        return [item.attempt.outcome() for item in written]

    def _let_go(self, item: Written) -> None:
        attempt = item.attempt
        self._hand.let_go(attempt)
        if not self._hand.held:
            self._outage.worked("extend")  # there's nothing left for which it could be tried again
        if isinstance(attempt.decided, Reschedule):
            self._looks.expect(attempt.decided.run_at)
        elif isinstance(attempt.decided, Release):
            self._looks.at_once()
        if self._in_hand_file is not None:
            for slot in attempt.slots:
                self._in_hand_file.end(slot)
        if item.was_lost:
            self._log.warning("lease_lost", task_id=attempt.claim.record.id)

    def _extend_leases(self, due_at: float) -> bool:
        """Whether one may reap: where the store's clock has leapt, what is in hand here may have lapsed."""
        if self._hand.held and self._monotonic() >= due_at:
            until = self._leases.until
            try:
                lost = self._leases.extend(list(self._hand.held))
            except Exception as error:
                self._outage.failed("extend", error)
                return False
            self._outage.worked("extend")
            self._hand.extended(lost, until)
            for token in [token for token in lost if token in self._hand.held]:
                self._log.warning("lease_lost", task_id=token.task_id)
        return True

    def _reap(self) -> None:
        """Tasks that were in somebody's hand who's gone come first: they've waited longest."""
        if self._outage.pausing:
            return
        try:
            if self._last_words is not None:
                for attempt in self._reaper.left_by(*self._last_words):
                    self._hand.accept(attempt)
                self._last_words = None
                if self._in_hand_file is not None:
                    self._in_hand_file.recovered()
            for attempt in self._reaper.unheard_of(self._hand.held):
                self._hand.accept(attempt)
            if self._monotonic() >= self._looks.reap_at and self._extend_leases(self._looks.reap_at):
                self._looks.reap_at = NEVER
                for attempt in self._reaper.lapsed():
                    self._hand.accept(attempt)
        except Exception as error:
            self._looks.reap_at = float("-inf")
            self._outage.failed("reap", error)
        else:
            self._outage.worked("reap")

    def _claim(self) -> None:
        if self._hand.hand_over_suspect():
            return
        room = self._room()
        if room <= 0:
            return
        try:
            if self._looks.is_worth_a_claim():
                self._claim_up_to(room)
        except Exception as error:
            self._reaper.claim_failed()
            self._outage.failed("claim", error)
        else:
            self._outage.worked("claim")

    def _claim_up_to(self, room: int) -> None:
        until = self._leases.until
        claims = self._store.claim(self._spec.name, self._owner, room, self._leases.lease_for)
        if not claims:
            self._looks.plan(found=False)
            return
        self._accept_all(claims, until)
        self._events.claimed(len(claims))
        if len(claims) < room:
            self._looks.soon()

    def _room(self) -> int:
        """How many tasks may be claimed now; 0 while it's better to wait for a batch worth a call."""
        if self._hand.is_reserved or self._settler.unwritten or self._outage.pausing:
            return 0
        target = self._spec.max_tasks + self._pace.prefetch
        room = target - len(self._hand.working) - self._watch.stuck
        if room < min(_BATCH, target // 2) and self._executor.waiting:
            return 0
        return room

    def _accept_all(self, claims: Sequence[Claim], until: float) -> None:
        if not self._hand.held:
            self._leases.begin()
            self._pace.begin()
        for claim in claims:
            attempt = Attempt(claim)
            attempt.leased_until = until
            self._hand.accept(attempt)
        if self._monotonic() >= self._busy_reap_at:
            self._busy_reap_at = self._monotonic() + self._leases.lease_for / 3
            self._looks.reap_at = float("-inf")

    def _free_those_behind(self) -> None:
        behind = self._hand.take_back_those_behind()
        if behind:
            self._pace.stalled()
            self._hand_back(behind)
            self._settle()  # now: while an outcome is unwritten nothing is claimed, and nothing else may end the wait
            if (shortage := self._executor.take_shortage()) is not None:
                self._log.warning("no_thread", reason=str(shortage), next="it is tried again and again")

    def _hand_back(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            if attempt.given is not None:
                self._hand.hand_over(attempt)  # what became of it is known: only its hook is missing
            elif attempt.judge(Interrupted(), Release()):
                self._settler.add(attempt)

    def _drain(self, stop: StopToken) -> bool:
        """Whether all is done that can be done."""
        if not self._drain_begun:
            self._drain_begun = True
            self._events.stopping()
            self._hand_back(self._hand.take_back_unbegun())
            self._settle()
        if not self._hand.working and not self._settler.unwritten:
            return True
        now = self._monotonic()
        if now < stop.deadline:
            return False
        if self._give_up_at is None:
            self._give_up_at = now + _LAST_WORDS
            self._interrupt_all()
        if now < self._give_up_at:
            return False
        return self._give_up()

    def _interrupt_all(self) -> None:
        for attempt in self._hand.working:
            if (limit := attempt.limit) is not None:
                attempt.stopping = True
                attempt.guard.interrupt(limit[0])

    def _give_up(self) -> bool:
        """The process ends with these threads still in a body: their tasks go back first."""
        for attempt in [attempt for attempt in self._hand.working if attempt.disown()]:
            self._hand.finished(attempt)
            if attempt.decided is None and attempt.given is not None:
                continue  # it counts, and must be told to its hook: the next process finds it noted
            attempt.decided = attempt.decided or Release()
            self._settler.add(attempt)
        self._collect()
        self._settle()
        if self._settler.unwritten:
            self._log.error("outcomes_not_written", number=len(self._settler.unwritten))
        return True

    def _sleep(self, inbox: Inbox) -> None:
        self._asleep = True
        now = self._monotonic()
        inbox.wait(0.0 if self._done else max(0.0, self._next_tick_at(now) - now))
        self._asleep = False

    def _next_tick_at(self, now: float) -> float:
        if self._hand.may_begin_suspect and not self._is_draining:
            return now
        moments = [self._watch.next_at, self._heartbeat.next_at, now + _LONGEST_WAIT]
        if self._executor.waiting:
            moments.append(now + _LINGER)
        if self._hand.held:
            moments.append(self._leases.due_at)
        if self._outage.pausing or self._settler.unwritten:  # or another call ended the outage after this tick's settle
            moments.append(self._outage.retry_at)
        elif not self._is_draining:
            moments.append(self._looks.reap_at)
            if self._room() > 0:
                moments.append(self._looks.next_at)
        if self._stop is not None and self._is_draining:
            moments.append(self._stop.deadline if self._give_up_at is None else self._give_up_at)
        return min(moments)
