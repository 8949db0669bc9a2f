"""One attempt: a claim in hand, from its first line of user code to the decision about it.

Everything of the user's (loading, ``run``, hooks, ``__getstate__``) runs in a body thread inside a guard's window, so
that the coordinator can interrupt it. Nothing of ours runs inside a window.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ..core.backoff import bounded_delay, default_backoff
from ..core.codec import Codec, split_documents, tag_of_text
from ..core.error_text import type_and_message
from ..core.errors import MalformedTaskError, TaskExpiredError, TaskTimeoutError, UnknownTaskError
from ..core.lifecycle import (
    Close,
    Complete,
    Ending,
    Expired,
    Failed,
    Interrupted,
    Reschedule,
    RetryPolicy,
    Succeeded,
    TimedOut,
    Transition,
    decide,
    state_after,
    with_text,
)
from ..core.outcome import Outcome
from ..core.queue import QueueSpec
from ..core.task import Claim, TaskRecord
from .guard import Guard, Interruption
from .in_hand import BODY, EXPIRY, RECOVERY, InHandFile, key_of
from .logs import QueueLog

if TYPE_CHECKING:
    from .task_logger import TaskLogger

NEVER = float("inf")

LOADING_LIMIT = 30.0
"""The least that a task gets to be loaded, however short its timeout: its module may have to be imported first."""

_LONGEST_REASON = 500


class Attempt:
    """Shared by the body thread that performs it and the coordinator that watches it."""

    __slots__ = (
        "_disowned",
        "_lock",
        "claim",
        "decided",
        "done",
        "ending",
        "given",
        "guard",
        "hookless",
        "judging",
        "leased_until",
        "limit",
        "slots",
        "stopping",
        "strategy",
        "takes_default_backoff",
    )

    def __init__(self, claim: Claim, given: Ending | None = None, *, hookless: bool = False) -> None:
        self.claim = claim
        self.given = given
        """How it ended before it came here: the process died, or the body wouldn't end. Then ``run`` isn't called."""
        self.hookless = hookless
        self.leased_until = NEVER
        """The monotonic instant until which the lease lasts for certain: after it, ``run`` mustn't begin any more."""
        self.guard = Guard()
        self.limit: tuple[int, float] | None = None
        """The window that's open or about to open, and the monotonic instant at which it has lasted too long."""
        self.stopping = False
        """Whether an interruption is for the worker's sake, not for a time limit's."""
        self.slots: list[int] = []
        self.judging: Ending | None = None
        """What the queue's backoff is being asked about right now: it's the user's code too, and may not answer."""
        self.takes_default_backoff = False
        self.strategy: Any = None
        self.ending: Ending | None = None
        self.decided: Transition | None = None
        self.done = False
        self._disowned = False
        self._lock = threading.Lock()

    def successor(self, ending: Ending) -> Attempt:
        """To be judged in the place of this one, whose thread won't come back in time."""
        successor = Attempt(self.claim, self.judging or self.given or ending)
        successor.takes_default_backoff = self.judging is not None
        return successor

    def judge(self, ending: Ending, decided: Transition) -> bool:
        """By the body thread, once its body is over. False: the coordinator has judged already."""
        with self._lock:
            if self._disowned:
                return False
            self.ending = ending
            self.decided = decided
            return True

    def outcome(self) -> Outcome:
        """What a person sees of it, once it's judged."""
        assert self.decided is not None
        error = getattr(self.ending, "error", None)
        return Outcome(task_id=self.claim.record.id, state=state_after(self.decided), error=error)

    def finish(self) -> bool:
        """By the body thread, at its end. False: the coordinator has taken the outcome out of its hands."""
        with self._lock:
            self.done = True
            return not self._disowned

    def disown(self) -> bool:
        """By the coordinator: whatever the body thread still brings is dropped. False: it has finished already.

        From then on ``decided`` tells whether it was the body that wouldn't end (None) or a hook.
        """
        with self._lock:
            if self.done:
                return False
            self._disowned = True
            return True


class AttemptRunner:
    """Performs attempts of one queue, in any number of threads. ``finished`` is called in the body thread."""

    def __init__(
        self,
        *,
        spec: QueueSpec,
        codec: Codec,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        log: QueueLog,
        in_hand: InHandFile | None,
        finished: Callable[[Attempt], None],
    ) -> None:
        self._spec = spec
        self._codec = codec
        self._now = now
        self._monotonic = monotonic
        self._log = log
        self._in_hand = in_hand
        self._finished = finished
        self._policy = RetryPolicy(max_attempts=spec.max_attempts, backoff=safe_backoff(spec, log))
        self._default_policy = RetryPolicy(max_attempts=spec.max_attempts, backoff=default_backoff)
        self._tells_success = log.enabled(logging.DEBUG)
        log.bind()  # what a logger has to import is imported now: in a window, an interruption could cut it short

    def perform(self, attempt: Attempt) -> None:
        try:
            self._attend(attempt)
        except BaseException as error:
            # A fault of this package's: the user's code is fenced off by then. The task must not hang on it.
            self._log.error("attempt_broke", task_id=attempt.claim.record.id, error=error)
            if attempt.decided is None:
                self._judge(attempt, Failed(error=error))
        if attempt.finish():
            self._finished(attempt)

    def _attend(self, attempt: Attempt) -> None:
        began = self._monotonic()
        if attempt.given is None and began > attempt.leased_until:
            self._judge(attempt, Interrupted())  # another worker may have it by now
            return
        self._note(attempt, began)
        ending = self._ending_of(attempt, began)
        decided = self._judge(attempt, ending)
        if decided is None or isinstance(ending, Interrupted):
            return
        if isinstance(decided, Complete):
            if _may_have(attempt.strategy, "success"):
                self._guarded(
                    attempt,
                    self._spec.hook_timeout,
                    "success",
                    self._call_hook,
                    attempt,
                    "success",
                    self._logger(attempt),
                )
        else:
            self._load_for_hook(attempt)
            if attempt.strategy is not None:
                name = "final_fail" if isinstance(decided, Close) else "fail"
                self._guarded(
                    attempt, self._spec.hook_timeout, name, self._close_attempt, attempt, name, self._logger(attempt)
                )
        self._tell(attempt, ending, self._monotonic() - began)

    def _note(self, attempt: Attempt, began: float) -> None:
        if self._in_hand is not None:
            deadline = NEVER if self._spec.timeout is None else began + self._spec.timeout
            record = attempt.claim.record
            key = key_of(record.id, record.attempts)
            attempt.slots.append(self._in_hand.begin(key, deadline, self._phase_of(attempt)))

    def _phase_of(self, attempt: Attempt) -> int:
        if attempt.given is not None:
            return RECOVERY
        return EXPIRY if self._has_expired(attempt.claim.record) else BODY

    def _has_expired(self, record: TaskRecord) -> bool:
        return record.expire_at is not None and record.is_expired(self._now())

    def _ending_of(self, attempt: Attempt, began: float) -> Ending:
        record = attempt.claim.record
        if attempt.given is not None:
            return attempt.given
        if record.defect is not None:
            return Failed(error=UnknownTaskError(f"task {record.id!r}: {record.defect}"))
        if self._has_expired(record):
            return Expired(
                error=TaskExpiredError(f"task {record.id!r} expired at {record.expire_at}, before it could run")
            )
        timeout = self._spec.timeout
        attempt.limit = (attempt.guard.window + 1, NEVER if timeout is None else began + max(timeout, LOADING_LIMIT))
        try:
            attempt.guard.call(self._load_and_run, attempt, record.task, timeout)
        except Interruption as interruption:
            if attempt.stopping:
                return Interrupted()
            error = timeout_error(attempt.claim.record.id, self._spec.timeout)
            return TimedOut(error=error.with_traceback(interruption.__traceback__))
        except BaseException as error:
            return Failed(error=error)
        return Succeeded()

    def _load_and_run(self, attempt: Attempt, text: str, timeout: float | None) -> None:
        attempt.strategy = strategy = self._codec.load(text)
        if timeout is not None:
            attempt.limit = (attempt.guard.window, self._monotonic() + timeout)
        value = strategy.run()
        if value is not None and type(value) is CoroutineType:
            value.close()
            raise MalformedTaskError(f"{type(strategy).__name__}.run is async: it must be a plain method")

    def _judge(self, attempt: Attempt, ending: Ending) -> Transition | None:
        policy = self._default_policy if attempt.takes_default_backoff else self._policy
        if not isinstance(ending, Succeeded | Interrupted):
            attempt.limit = (attempt.guard.window, self._monotonic() + LOADING_LIMIT)
            attempt.judging = ending
        decided = decide(attempt.claim.record, ending, policy, self._now())
        attempt.judging = None
        return decided if attempt.judge(ending, decided) else None

    def _load_for_hook(self, attempt: Attempt) -> None:
        """An attempt that never got to ``run`` has no strategy yet; where it can't be loaded there's no hook."""
        record = attempt.claim.record
        if attempt.hookless:
            attempt.strategy = None
        elif attempt.strategy is None and record.defect is None and not isinstance(attempt.ending, Failed):
            self._guarded(attempt, LOADING_LIMIT, "loading", self._load, attempt, record.task)

    def _load(self, attempt: Attempt, text: str) -> None:
        attempt.strategy = self._codec.load(text)

    def _close_attempt(self, attempt: Attempt, name: str, logger: TaskLogger) -> None:
        """The hook, then the object's state as ``run`` and the hook left it, for the next attempt."""
        try:
            self._call_hook(attempt, name, logger, getattr(attempt.ending, "error", None))
        finally:
            assert attempt.decided is not None
            attempt.decided = with_text(attempt.decided, task=self._stored_anew(attempt))

    def _call_hook(self, attempt: Attempt, name: str, *arguments: object) -> None:
        hook = getattr(attempt.strategy, name, None)
        if hook is not None:
            hook(*arguments)

    def _stored_anew(self, attempt: Attempt) -> str:
        """What follows the task's own document isn't the object's, and stays as it is."""
        text = self._codec.dump(attempt.strategy)
        options = split_documents(attempt.claim.record.task)[1]
        return text if options is None else f"{text}\n---\n{options}"

    def _logger(self, attempt: Attempt) -> TaskLogger:
        record = attempt.claim.record
        return self._log.bind(task_id=record.id, task=tag_of_text(record.task), attempt=record.attempts + 1)

    def _guarded(
        self, attempt: Attempt, limit: float | None, what: str, function: Callable[..., None], *arguments: object
    ) -> None:
        """What a hook does changes no outcome: it's logged."""
        attempt.limit = (attempt.guard.window + 1, NEVER if limit is None else self._monotonic() + limit)
        try:
            attempt.guard.call(function, *arguments)
        except BaseException as error:
            record = attempt.claim.record
            self._log.error(
                "hook_interrupted" if isinstance(error, Interruption) else "hook_failed",
                hook=what,
                task_id=record.id,
                task=tag_of_text(record.task),
                attempt=record.attempts + 1,
                error=error,
            )

    def _tell(self, attempt: Attempt, ending: Ending, duration: float) -> None:
        match attempt.decided:
            case Complete():
                if not self._tells_success:
                    return
                tell, event = self._log.debug, "success"
            case Reschedule():
                tell, event = self._log.warning, "fail"
            case _:
                tell, event = self._log.error, "final_fail"
        record = attempt.claim.record
        error = getattr(ending, "error", None)
        reason = {} if error is None else {"reason": type_and_message(error)[:_LONGEST_REASON]}
        tell(
            event,
            task_id=record.id,
            task=tag_of_text(record.task),
            attempt=record.attempts + (not isinstance(ending, Expired)),
            duration=round(duration, 6),
            **reason,
        )


def safe_backoff(spec: QueueSpec, log: QueueLog) -> Callable[[int], float]:
    """A user's policy that raises or answers nonsense is logged, and the default one is asked instead."""

    def seconds(attempts: int) -> float:
        try:
            return bounded_delay(spec.backoff(attempts))
        except BaseException as error:  # SystemExit too: it would end the thread, and the task with it
            log.error("backoff_failed", attempt=attempts, error=error)
            return default_backoff(attempts)

    return seconds


def _may_have(strategy: object, hook: str) -> bool:
    """Looked up without running any code of the strategy's, as a property or ``__getattr__`` would."""
    cls = type(strategy)
    return hasattr(cls, hook) or hasattr(cls, "__getattr__") or hook in getattr(strategy, "__dict__", ())


def timeout_error(task_id: object, timeout: float | None) -> TaskTimeoutError:
    return TaskTimeoutError(f"task {task_id!r} ran longer than its timeout of {timeout:g} s")
