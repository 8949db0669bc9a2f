"""Who gets which task, for how long, and what becomes of leases whose holder is gone."""

from __future__ import annotations

from ..core.lease import LeaseToken
from ..core.lifecycle import Complete, Release
from ..core.task import TaskState
from .conformance_exam import LEASE, QUEUE, TEXT, Cases, Exam, equal, expect, ids_of, race
from .conformance_floor import STRANGE_TEXT

LEASING = Cases("leasing")


@LEASING("a task is due at its run_at, and not a moment before")
def _due(exam: Exam) -> None:
    task_id = exam.create(2)
    exam.clock.tick(1.75)
    equal("the claim a quarter second early", ids_of(exam.claim()), [])
    exam.clock.tick(0.25)
    equal("the claim on time", ids_of(exam.claim()), [task_id])


@LEASING("tasks are claimed in order of run_at, then of id")
def _order(exam: Exam) -> None:
    ids = [exam.create(-n) for n in (3, 1, 2, 1, 3, 2)]
    wanted = [ids[index] for index in (0, 4, 2, 5, 1, 3)]
    equal("the order of the claim", ids_of(exam.claim()), wanted)


@LEASING("a claim takes no more than its limit, the earliest first, and the next one goes on from there")
def _limit(exam: Exam) -> None:
    ids = [exam.create(-10 + n) for n in range(5)]
    equal("the first claim of 2", ids_of(exam.claim(2)), ids[:2])
    equal("the second claim of 2", ids_of(exam.claim(2)), ids[2:4])
    equal("the third claim of 2", ids_of(exam.claim(2)), ids[4:])
    equal("the fourth claim of 2", ids_of(exam.claim(2)), [])


@LEASING("a claim with limit 0 takes nothing")
def _limit_of_none(exam: Exam) -> None:
    exam.create()
    equal("the claim", ids_of(exam.claim(0)), [])


@LEASING("a claim takes tasks of its own queue only")
def _own_queue(exam: Exam) -> None:
    exam.create(queue="other")
    mine = exam.create()
    equal("the claim", ids_of(exam.claim()), [mine])
    equal("the claim on a queue without tasks", ids_of(exam.claim(queue="none")), [])


@LEASING("a queue may have any name")
def _queue_names(exam: Exam) -> None:
    for name in ("a'b\"c", "50%_", "../../etc", "\u00e9", "e\u0301", "\U0001f600" * 64, "nul\0nul", "nul"):
        task_id = exam.create(queue=name)
        claims = exam.claim(queue=name)
        equal(f"the claim on queue {name!r}", ids_of(claims), [task_id])
        equal("the record's queue", claims[0].record.queue, name)


@LEASING("a claim tells every field of the task")
def _fields(exam: Exam) -> None:
    task_id = exam.create(-5, task=STRANGE_TEXT, expire_at=exam.start + 9)
    record = exam.claim_one().record
    got = (record.id, record.queue, record.run_at, record.initial_run_at, record.expire_at, record.task)
    equal("the record", got, (task_id, QUEUE, exam.start - 5, exam.start - 5, exam.start + 9, STRANGE_TEXT))
    failures = (record.attempts, record.last_fail_at, record.last_error, record.closed_as, record.closed_at)
    equal("the record's failures", failures, (0, None, None, None, None))


@LEASING("a claimed task is RUNNING, by a lease that tells its owner and its end")
def _lease(exam: Exam) -> None:
    exam.create()
    exam.clock.tick(0.5)
    record = exam.claim_one("me", 12.5).record
    equal("state", record.state, TaskState.RUNNING)
    expect(record.lease is not None, "the record of a claim has no lease")
    assert record.lease is not None
    equal("the lease's owner", record.lease.owner, "me")
    equal("the lease's end", float(record.lease.expires_at), exam.start + 13.0)


@LEASING("the token of a claim names its task")
def _token(exam: Exam) -> None:
    exam.create()
    claim = exam.claim_one()
    expect(isinstance(claim.token, LeaseToken), "the token of a claim is no LeaseToken")
    equal("the token's task_id", claim.token.task_id, claim.record.id)


@LEASING("a leased task isn't claimed again, not even by its owner")
def _leased(exam: Exam) -> None:
    exam.create()
    exam.claim_one("me")
    equal("the owner's next claim", ids_of(exam.claim(owner="me")), [])
    equal("another's claim", ids_of(exam.claim(owner="you")), [])


@LEASING("a lapsed lease still keeps its task from being claimed: it's the reaper's")
def _lapsed_is_not_claimed(exam: Exam) -> None:
    exam.create()
    exam.claim_one()
    exam.clock.tick(LEASE * 100)
    equal("the claim after the lease", ids_of(exam.claim(owner="other")), [])


@LEASING("each claim of a task has another token")
def _new_token(exam: Exam) -> None:
    exam.create()
    tokens = set()
    for _ in range(5):
        claim = exam.claim_one()
        tokens.add(claim.token)
        exam.settle((claim.token, Release()))
    equal("the number of different tokens of 5 claims", len(tokens), 5)


@LEASING("tasks that aren't due don't stand in the way of those that are")
def _backlog(exam: Exam) -> None:
    for n in range(100):
        exam.create(1000 - n)
    due = exam.create()
    equal("the claim", ids_of(exam.claim(1)), [due])


@LEASING("a new task never gets the id of one that was deleted")
def _ids_used_once(exam: Exam) -> None:
    gone = exam.create()
    exam.settle((exam.claim_one().token, Complete()))
    also_gone = exam.create()
    exam.persister.delete_task(also_gone)
    expect(exam.create() not in (gone, also_gone), "a deleted task's id was given again")


@LEASING("threads that claim at the same time get each task once, and all of them")
def _racing_claims(exam: Exam) -> None:
    ids = [exam.create() for _ in range(40)]

    def claim_some() -> list[object]:
        return [task_id for _ in range(5) for task_id in ids_of(exam.claim(3))]

    got = [task_id for some in race(4, claim_some) for task_id in some]
    equal("the ids claimed by all threads", sorted(got), sorted(ids))


# --- extending


@LEASING("extend makes a lease last from now on, whatever was left of it")
def _extend(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one(lease_for=10).token
    exam.clock.tick(8)
    equal("the lost tokens", list(exam.persister.extend([token], 10.0)), [])
    exam.clock.tick(10)
    equal("what has lapsed at the new end", ids_of(exam.lapsed()), [])
    exam.clock.tick(0.5)
    equal("what has lapsed after the new end", ids_of(exam.lapsed()), [token.task_id])


@LEASING("extend brings a lapsed lease back that nobody has taken over")
def _extend_lapsed(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one(lease_for=10).token
    exam.clock.tick(20)
    equal("the lost tokens", list(exam.persister.extend([token], 10.0)), [])
    equal("what has lapsed after it", ids_of(exam.lapsed()), [])


@LEASING("extend returns the tokens whose lease is gone or another's, and extends the rest")
def _extend_lost(exam: Exam) -> None:
    done, taken, kept = exam.create(), exam.create(), exam.create()
    tokens = {claim.record.id: claim.token for claim in exam.claim(2, lease_for=10)}
    tokens[kept] = exam.claim_one(lease_for=60).token
    exam.settle((tokens[done], Complete()))
    exam.clock.tick(20)
    equal("what the reaper gets", ids_of(exam.lapsed()), [taken])
    lost = list(exam.persister.extend([tokens[done], tokens[kept], tokens[taken]], 100.0))
    equal("the lost tokens", sorted(lost), sorted([tokens[done], tokens[taken]]))
    exam.clock.tick(90)
    expect(kept not in ids_of(exam.lapsed()), "the lease that wasn't lost wasn't extended")


@LEASING("extending one task of a claim doesn't extend the others")
def _extend_one(exam: Exam) -> None:
    first, second = exam.create(), exam.create()
    claims = exam.claim(2, lease_for=10)
    exam.persister.extend([claims[0].token], 100.0)
    exam.clock.tick(20)
    equal("what has lapsed", ids_of(exam.lapsed()), [second])
    equal("the first of the claim", claims[0].record.id, first)


@LEASING("extending nothing loses nothing")
def _extend_nothing(exam: Exam) -> None:
    equal("the lost tokens", list(exam.persister.extend([], LEASE)), [])


# --- reaping


@LEASING("a lease has lapsed after its end, and not at it")
def _lapsed(exam: Exam) -> None:
    task_id = exam.create()
    exam.create(1000)
    exam.claim_one(lease_for=10)
    exam.clock.tick(10)
    equal("what has lapsed at the end", ids_of(exam.lapsed()), [])
    exam.clock.tick(0.25)
    equal("what has lapsed after it", ids_of(exam.lapsed()), [task_id])


@LEASING("what lapsed leases to the reaper, under a new token and for a full time")
def _lapsed_leases(exam: Exam) -> None:
    exam.create(task=STRANGE_TEXT)
    old = exam.claim_one(lease_for=1)
    exam.clock.tick(2)
    (claim,) = exam.lapsed("reaper")
    expect(claim.token != old.token, "the reaper got the token of the lapsed lease")
    equal("the record's task", claim.record.task, STRANGE_TEXT)
    assert claim.record.lease is not None
    equal("the lease's owner", claim.record.lease.owner, "reaper")
    equal("the lease's end", float(claim.record.lease.expires_at), exam.start + 2 + LEASE)
    equal("a second reaper's find", ids_of(exam.lapsed("other")), [])
    equal("the lost tokens of the reaper's settle", exam.settle((claim.token, Complete())), [])


@LEASING("lapsed keeps to its limit, its queue, and the order of run_at, then id")
def _lapsed_limit(exam: Exam) -> None:
    ids = [exam.create(-n) for n in (1, 3, 2)]
    exam.create(queue="other")
    exam.claim(lease_for=1)
    exam.claim(lease_for=1, queue="other")
    exam.clock.tick(2)
    equal("the first find of 2", ids_of(exam.lapsed(limit=2)), [ids[1], ids[2]])
    equal("the second find of 2", ids_of(exam.lapsed(limit=2)), [ids[0]])


@LEASING("a dead owner's tasks are had at once, and nobody else's with them")
def _dead_owner(exam: Exam) -> None:
    dead, living, long_gone = exam.create(), exam.create(), exam.create()
    exam.claim_one("dead")
    exam.claim_one("living")
    exam.claim_one("long gone", lease_for=1)
    exam.create()
    exam.clock.tick(2)
    equal("the dead owner's", ids_of(exam.lapsed(dead_owner="dead")), [dead])
    equal("the dead owner's, asked again", ids_of(exam.lapsed(dead_owner="dead")), [])
    equal("what lapsed by itself", ids_of(exam.lapsed()), [long_gone])
    expect(living not in ids_of(exam.lapsed()), "a living owner's task was taken away")


@LEASING("reapers that race get each lapsed task once")
def _racing_reapers(exam: Exam) -> None:
    ids = [exam.create() for _ in range(10)]
    exam.claim(lease_for=1)
    exam.clock.tick(2)
    got = [task_id for some in race(4, lambda: ids_of(exam.lapsed())) for task_id in some]
    equal("the ids that the reapers got", sorted(got), sorted(ids))


@LEASING("leases outlive the store's being opened anew")
def _leases_are_durable(exam: Exam) -> None:
    if not exam.can_reopen:
        return
    held, free = exam.create(-1), exam.create()
    token = exam.claim_one("me").token
    exam.reopen()
    equal("the claim after opening anew", ids_of(exam.claim()), [free])
    equal("the lost tokens of the first claim", exam.settle((token, Complete())), [])
    expect(held not in exam.rows(), "the settled task is still there")


# --- knowing when to look


@LEASING("the next look is due at the earliest run_at or end of a lease, and never where there is neither")
def _next_look(exam: Exam) -> None:
    equal("next_look_at without tasks", exam.persister.next_look_at(QUEUE), None)
    exam.create(90, queue="other")
    exam.create(50)
    exam.create(40)
    _next_look_is(exam, 40)
    exam.create()
    _next_look_is(exam, 0)
    token = exam.claim_one(lease_for=20.5).token
    _next_look_is(exam, 20.5)
    exam.persister.extend([token], 60.0)
    _next_look_is(exam, 40)
    exam.settle((token, Complete()))
    _next_look_is(exam, 40)


@LEASING("a task that is deleted while in hand can't be written, and isn't looked for")
def _deleted_in_hand(exam: Exam) -> None:
    task_id = exam.create(task=TEXT)
    token = exam.claim_one().token
    exam.persister.delete_task(task_id)
    equal("the lost tokens", exam.settle((token, Release())), [token])
    equal("next_look_at", exam.persister.next_look_at(QUEUE), None)


def _next_look_is(exam: Exam, seconds: float) -> None:
    found = exam.persister.next_look_at(QUEUE)
    expect(found is not None, f"next_look_at is None and should be {seconds} s after the start")
    equal("next_look_at, counted from the start", float(found) - exam.start, float(seconds))
