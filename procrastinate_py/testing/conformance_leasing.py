"""Who gets which task, and for how long."""

from __future__ import annotations

from ..core.lease import Lease, LeaseToken
from ..core.lifecycle import Complete, Release
from ..core.task import TaskState
from .conformance_exam import LEASE, QUEUE, STRANGE_TEXT, Cases, Exam, equal, expect, ids_of
from .conformance_floor_values import LONG_NAMES, TELLING_NAMES

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


@LEASING("a claim with a negative limit takes nothing")
def _negative_limit(exam: Exam) -> None:
    exam.create()
    equal("the claim", ids_of(exam.claim(-1)), [])


@LEASING("a claim with a limit far beyond what's there takes what's there")
def _huge_limit(exam: Exam) -> None:
    ids = [exam.create(), exam.create()]
    equal("the claim", ids_of(exam.claim(10**12)), ids)


@LEASING("a claim takes tasks of its own queue only")
def _own_queue(exam: Exam) -> None:
    exam.create(queue="other")
    mine = exam.create()
    equal("the claim", ids_of(exam.claim()), [mine])
    equal("the claim on a queue without tasks", ids_of(exam.claim(queue="none")), [])


@LEASING("a claim on a queue of any name takes that queue's tasks only")
def _queue_names(exam: Exam) -> None:
    names = [*TELLING_NAMES[:24], *LONG_NAMES]
    ids = exam.create_all([exam.new(queue=name) for name in names])
    for name, task_id in reversed(list(zip(names, ids, strict=True))):
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
    exam.create_all([exam.new(1000 - n) for n in range(exam.sized(100))])
    due = exam.create()
    equal("the claim", ids_of(exam.claim(1)), [due])


@LEASING("a new task never gets the id of one that was deleted")
def _ids_used_once(exam: Exam) -> None:
    gone = exam.create()
    exam.settle((exam.claim_one().token, Complete()))
    also_gone = exam.create()
    exam.persister.delete_task(also_gone)
    expect(exam.create() not in (gone, also_gone), "a deleted task's id was given again")


@LEASING("a claim changes none of the nine attributes, and leaves the task among those that read_tasks gives")
def _claim_changes_nothing(exam: Exam) -> None:
    ids = [exam.create(-2, expire_at=exam.start + 9), exam.create(5)]
    before = exam.rows()
    exam.claim(lease_for=10)
    equal("the rows while a task is in hand", exam.rows(), before)
    exam.clock.tick(20)
    exam.lapsed()
    rows = exam.rows()
    equal("the ids after the reaper came", list(rows), ids)
    got = [(row.run_at, row.attempts, row.task) for row in rows.values()]
    equal("the rows", got, [(row.run_at, row.attempts, row.task) for row in before.values()])


@LEASING("a task whose expire_at has passed is claimed like any other: the worker sees to it")
def _expired_is_claimed(exam: Exam) -> None:
    task_id = exam.create(-10, expire_at=exam.start - 5)
    exam.clock.tick(86_400)
    equal("the claim", ids_of(exam.claim()), [task_id])
    exam.clock.tick(LEASE * 2)
    equal("what lapsed", ids_of(exam.lapsed()), [task_id])


@LEASING("tasks of one claim have one owner and one end, and a token each")
def _one_claim(exam: Exam) -> None:
    for _ in range(5):
        exam.create()
    claims = exam.claim(owner="me", lease_for=7.5)
    leases = {claim.record.lease for claim in claims}
    equal("the leases", leases, {Lease("me", exam.start + 7.5)})
    equal("the number of different tokens", len({claim.token for claim in claims}), 5)


@LEASING("a claim of large texts gives each whole")
def _large_texts(exam: Exam) -> None:
    texts = ["!a:B " + letter * 2**20 for letter in "xyz"]
    ids = exam.create_all([exam.new(task=text) for text in texts])
    claims = exam.claim()
    equal("the claim", ids_of(claims), ids)
    expect([claim.record.task for claim in claims] == texts, "a text is another one, or cut")


@LEASING("a claim whose reply was lost leaves its tasks to the reaper, and the next claim takes others")
def _lost_claim(exam: Exam) -> None:
    lost, next_one = exam.create(-2), exam.create(-1)
    exam.claim(1, lease_for=10)
    equal("the claim that was made again", ids_of(exam.claim(1, lease_for=60)), [next_one])
    exam.clock.tick(10.5)
    equal("what has lapsed", ids_of(exam.lapsed()), [lost])
