"""What becomes of a task after each ending: E24 to E28, U9."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procrastinate_py.core.backoff import default_backoff
from procrastinate_py.core.errors import TaskExpiredError, TaskTimeoutError, WorkerDiedError
from procrastinate_py.core.lease import Lease
from procrastinate_py.core.lifecycle import (
    DIED_PREFIX,
    LEGAL,
    Abandoned,
    Close,
    Complete,
    Ending,
    Expired,
    Failed,
    Interrupted,
    Release,
    Reschedule,
    RetryPolicy,
    Succeeded,
    TimedOut,
    Transition,
    apply,
    closed_state_of_row,
    decide,
    is_suspect,
    state_after,
    with_text,
)
from procrastinate_py.core.task import TaskRecord, TaskState, state_of

NOW = 1_800_000_000.75
BOOM = ValueError("boom")
ENDINGS: list[Ending] = [
    Succeeded(),
    Failed(error=BOOM),
    TimedOut(error=TaskTimeoutError("slow")),
    Expired(error=TaskExpiredError("late")),
    Abandoned(error=WorkerDiedError("worker died: signal 9")),
    Interrupted(),
]
FAILURES = [ending for ending in ENDINGS if isinstance(ending, Failed | TimedOut | Abandoned)]


def a_record(**fields: object) -> TaskRecord:
    given = {"id": 1, "queue": "email", "task": "!a:B {}", "run_at": 10, "initial_run_at": 10, **fields}
    return TaskRecord(**given)  # type: ignore[arg-type]


def a_policy(max_attempts: int | None = 20) -> RetryPolicy:
    return RetryPolicy(max_attempts=max_attempts, backoff=default_backoff)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: type(ending).__name__)
def test_an_ending_leads_to_what_is_legal_and_to_all_of_it(ending: Ending) -> None:
    """E24 E25 E27 E28: the table that the documentation prints is exact."""
    seen: dict[type, set[TaskState]] = {}
    for attempts, expire_at, limit in itertools.product((0, 1, 19, 20, 10**6), (None, 5, 10**12), (None, 1, 20)):
        record = a_record(attempts=attempts, expire_at=expire_at)
        transition = decide(record, ending, a_policy(limit), NOW)
        seen.setdefault(type(transition), set()).add(state_after(transition))
        after = apply(record, transition)
        assert state_after(transition) is (TaskState.COMPLETED if after is None else state_of(after, NOW))
    assert seen == {kind: set(states) for kind, states in LEGAL[type(ending)].items()}


def test_success_removes_the_row_and_an_interruption_gives_it_back_uncounted() -> None:
    """E25 E39"""
    record = a_record(attempts=3, last_error="old", lease=Lease("me", 5.0))
    assert apply(record, decide(record, Succeeded(), a_policy(), NOW)) is None
    after = apply(record, decide(record, Interrupted(), a_policy(), NOW))
    assert after == dataclasses.replace(record, lease=None)


@pytest.mark.parametrize("ending", FAILURES, ids=lambda ending: type(ending).__name__)
@pytest.mark.parametrize("attempts", [0, 1, 5, 18])
def test_a_failure_is_counted_and_put_off_by_30_and_the_fourth_power(ending: Ending, attempts: int) -> None:
    """E27 E34"""
    record = a_record(attempts=attempts, expire_at=10**12)
    transition = decide(record, ending, a_policy(), NOW)
    assert isinstance(transition, Reschedule)
    assert transition.attempts == attempts + 1
    assert transition.last_fail_at == math.floor(NOW)
    assert transition.run_at == math.floor(NOW) + 30 + (attempts + 1) ** 4
    assert transition.last_error.startswith("Task failed: ")
    after = apply(record, transition)
    assert after is not None
    assert (after.initial_run_at, after.expire_at, after.task) == (10, 10**12, "!a:B {}")
    assert after.lease is None and state_of(after, NOW) is TaskState.PENDING


def test_the_error_is_told_with_its_message_and_its_traceback() -> None:
    """E27"""
    try:
        raise ValueError("boom")
    except ValueError as error:
        transition = decide(a_record(), Failed(error=error), a_policy(), NOW)
    assert isinstance(transition, Reschedule)
    first, second, *rest = transition.last_error.split("\n")
    assert first == "Task failed: boom"
    assert second.startswith("Traceback") and "ValueError: boom" in rest


@pytest.mark.parametrize("ending", FAILURES, ids=lambda ending: type(ending).__name__)
@pytest.mark.parametrize(
    ("attempts", "limit", "is_final"),
    [
        (0, 1, True),
        (0, 2, False),
        (18, 20, False),
        (19, 20, True),
        (20, 20, True),
        (50, 20, True),
        (10**6, None, False),
    ],
)
def test_the_last_attempt_closes_the_task_and_keeps_the_row(
    ending: Ending, attempts: int, limit: int | None, is_final: bool
) -> None:
    """E28 U9: stored attempts already at the limit get one more run, and it's final."""
    record = a_record(attempts=attempts)
    transition = decide(record, ending, a_policy(limit), NOW)
    assert isinstance(transition, Close) is is_final
    if isinstance(transition, Close):
        assert transition.state is TaskState.FAILED
        assert transition.attempts == attempts + 1
        assert transition.last_error.startswith("Task failed too many times: ")
        after = apply(record, transition)
        assert after is not None and after.run_at is None and not after.is_due(math.inf)
        assert (after.closed_as, after.closed_at) == (TaskState.FAILED, math.floor(NOW))


@pytest.mark.parametrize("limit", [1, 20, None])
def test_where_both_limits_are_reached_the_task_expired(limit: int | None) -> None:
    """E28 U9"""
    record = a_record(attempts=19, expire_at=math.floor(NOW))
    transition = decide(record, Failed(error=BOOM), a_policy(limit), NOW)
    assert isinstance(transition, Close)
    assert (transition.state, transition.attempts) == (TaskState.EXPIRED, 20)
    assert transition.last_error.startswith("Task expired: boom\n")


def test_an_expiry_that_never_ran_costs_no_attempt() -> None:
    """E24"""
    record = a_record(attempts=3, expire_at=5)
    transition = decide(record, Expired(error=TaskExpiredError("late")), a_policy(), NOW)
    assert isinstance(transition, Close)
    assert (transition.state, transition.attempts) == (TaskState.EXPIRED, 3)
    assert transition.last_error.startswith("Task expired: late\n")
    after = apply(record, transition)
    assert after is not None and after.expired_at == math.floor(NOW) and after.state is TaskState.EXPIRED


def test_a_retry_waits_for_a_body_that_would_not_stop() -> None:
    """U33"""
    later = NOW + 500
    transition = decide(a_record(), TimedOut(error=BOOM, not_before=later), a_policy(), NOW)
    assert isinstance(transition, Reschedule) and transition.run_at == math.ceil(later)
    transition = decide(a_record(), TimedOut(error=BOOM, not_before=NOW + 1), a_policy(), NOW)
    assert isinstance(transition, Reschedule) and transition.run_at == math.floor(NOW) + 31


def test_a_task_that_killed_its_worker_is_a_suspect_until_it_fails_otherwise() -> None:
    """E38"""
    error = WorkerDiedError("worker died: signal 11")
    record = apply(a_record(), decide(a_record(), Abandoned(error=error), a_policy(), NOW))
    assert record is not None and record.last_error is not None
    assert record.last_error.startswith(DIED_PREFIX) and is_suspect(record)
    after = apply(record, decide(record, Failed(error=BOOM), a_policy(), NOW))
    assert after is not None and not is_suspect(after)
    assert not is_suspect(a_record())


TRANSITIONS: list[Transition] = [
    Complete(),
    Release(),
    Reschedule(run_at=5, attempts=1, last_fail_at=4, last_error="x"),
    Close(state=TaskState.FAILED, attempts=1, last_fail_at=4, last_error="x"),
]


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda transition: type(transition).__name__)
def test_other_texts_make_no_other_decision(transition: Transition) -> None:
    """E23 E33"""
    changed = with_text(transition, task="!a:B {n: 1}", last_error="nul\x00")
    if isinstance(changed, Reschedule | Close):
        assert isinstance(transition, Reschedule | Close)
        assert (changed.task, changed.last_error) == ("!a:B {n: 1}", "nul\\u0000")
        assert dataclasses.replace(changed, task=None, last_error="x") == transition  # type: ignore[misc]
        assert with_text(transition) == transition
        after = apply(a_record(), changed)
        assert after is not None and after.task == "!a:B {n: 1}"
    else:
        assert changed is transition


@pytest.mark.parametrize(
    ("last_error", "state"),
    [
        ("Task failed too many times: x", TaskState.FAILED),
        ("Task expired: x", TaskState.EXPIRED),
        ("Task cancelled (by X): reason", TaskState.CANCELLED),
        ("Task rejected: x", TaskState.FAILED),
        ("anything", TaskState.FAILED),
        (None, TaskState.FAILED),
    ],
)
def test_a_floor_row_tells_by_its_error_what_closed_it(last_error: str | None, state: TaskState) -> None:
    """E28 U8"""
    assert closed_state_of_row(None, last_error) is state
    assert closed_state_of_row(5, last_error) is None


@given(
    attempts=st.integers(0, 10**7),
    limit=st.none() | st.integers(1, 10**7),
    expire_at=st.none() | st.integers(0, 2**33),
    now=st.floats(0, 2**33),
    ending=st.sampled_from(ENDINGS),
)
def test_no_task_runs_beyond_its_limits_and_none_is_put_off_for_ever(
    attempts: int, limit: int | None, expire_at: int | None, now: float, ending: Ending
) -> None:
    """E28 E34"""
    record = a_record(attempts=attempts, expire_at=expire_at)
    after = apply(record, decide(record, ending, a_policy(limit), now))
    if after is None or isinstance(ending, Interrupted):
        return
    assert after.attempts - attempts == (0 if isinstance(ending, Expired) else 1)
    if after.run_at is not None:
        assert limit is None or after.attempts < limit
        assert not record.is_expired(now)
        assert now + 30 <= after.run_at <= now + 365 * 24 * 3600
    else:
        assert after.state.is_closed and after.last_error is not None
