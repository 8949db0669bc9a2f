"""Writing what became of tasks: by their tokens, all in one call."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..core.lease import LeaseToken
from ..core.lifecycle import Close, Complete, Release, Reschedule
from ..core.task import TaskState
from ..ports.persister import Inspecting
from .conformance_exam import LEASE, QUEUE, TEXT, Cases, Exam, equal, expect, ids_of, race
from .conformance_floor import STRANGE_TEXT

SETTLING = Cases("leasing")


def rescheduled(exam: Exam, run_in: int = 31, task: str | None = None) -> Reschedule:
    return Reschedule(
        run_at=exam.start + run_in,
        attempts=1,
        last_fail_at=exam.start,
        last_error=f"Task failed: {STRANGE_TEXT}",
        task=task,
    )


def closed(exam: Exam, state: TaskState = TaskState.FAILED, task: str | None = None) -> Close:
    prefix = "Task failed too many times" if state is TaskState.FAILED else "Task expired"
    return Close(state=state, attempts=3, last_fail_at=exam.start + 1, last_error=f"{prefix}: no\n", task=task)


@SETTLING("a completed task is gone")
def _complete(exam: Exam) -> None:
    kept = exam.create(5)
    exam.create()
    equal("the lost tokens", exam.settle((exam.claim_one().token, Complete())), [])
    equal("the ids that are left", list(exam.rows()), [kept])
    exam.clock.tick(LEASE * 10)
    equal("what has lapsed later", ids_of(exam.lapsed()), [])


@SETTLING("a rescheduled task is claimed again when its new run_at has come, and tells of its failure")
def _reschedule(exam: Exam) -> None:
    task_id = exam.create(-4, expire_at=exam.start + 999)
    exam.settle((exam.claim_one().token, rescheduled(exam)))
    equal("the claim at once", ids_of(exam.claim()), [])
    exam.clock.tick(30.5)
    equal("the claim half a second early", ids_of(exam.claim()), [])
    exam.clock.tick(0.5)
    record = exam.claim_one().record
    got = (record.id, record.run_at, record.attempts, record.last_fail_at, record.last_error)
    equal("the record", got, (task_id, exam.start + 31, 1, exam.start, f"Task failed: {STRANGE_TEXT}"))
    equal("what stays", (record.initial_run_at, record.expire_at), (exam.start - 4, exam.start + 999))


@SETTLING("a reschedule without a text leaves the task's text as it is; one with a text replaces it")
def _reschedule_text(exam: Exam) -> None:
    exam.create(task=STRANGE_TEXT)
    exam.settle((exam.claim_one().token, rescheduled(exam, 0)))
    claim = exam.claim_one()
    equal("the text after a reschedule without one", claim.record.task, STRANGE_TEXT)
    exam.settle((claim.token, rescheduled(exam, 0, task="!new:Text {}")))
    equal("the text after a reschedule with one", exam.claim_one().record.task, "!new:Text {}")


@SETTLING("a rescheduled task is in nobody's hand")
def _reschedule_ends_the_lease(exam: Exam) -> None:
    exam.create()
    exam.settle((exam.claim_one(lease_for=1).token, rescheduled(exam)))
    exam.clock.tick(5)
    equal("what has lapsed", ids_of(exam.lapsed()), [])
    equal("the dead owner's", ids_of(exam.lapsed(dead_owner="worker")), [])


@SETTLING("a closed task is never claimed again, nor looked for")
def _close(exam: Exam) -> None:
    for state in (TaskState.FAILED, TaskState.EXPIRED):
        exam.create()
        exam.settle((exam.claim_one(lease_for=1).token, closed(exam, state)))
    exam.clock.tick(86_400 * 1000)
    equal("the claim much later", ids_of(exam.claim()), [])
    equal("what has lapsed", ids_of(exam.lapsed()), [])
    equal("next_look_at", exam.persister.next_look_at(QUEUE), None)
    equal("the open tasks", list(exam.rows()), [])


@SETTLING("a closed task is kept, with what closed it")
def _closed_is_kept(exam: Exam) -> None:
    if not isinstance(exam.persister, Inspecting):
        return
    for state in (TaskState.FAILED, TaskState.EXPIRED):
        task_id = exam.create()
        exam.settle((exam.claim_one().token, closed(exam, state, task="!last:Text {}")))
        record = exam.persister.find(task_id)
        assert record is not None
        got = (record.state, record.run_at, record.attempts, record.closed_at, record.last_error, record.task)
        text = "Task failed too many times: no\n" if state is TaskState.FAILED else "Task expired: no\n"
        equal("the closed record", got, (state, None, 3, exam.start + 1, text, "!last:Text {}"))


@SETTLING("a released task is as it was, and can be claimed at once")
def _release(exam: Exam) -> None:
    exam.create(-3, expire_at=exam.start + 5)
    first = exam.claim_one()
    exam.settle((first.token, Release()))
    again = exam.claim_one("other")
    same = replace(again.record, lease=first.record.lease, read_at=first.record.read_at)
    equal("the record of the second claim", same, first.record)


@SETTLING("one call settles many tasks in many ways")
def _mixed(exam: Exam) -> None:
    ids = [exam.create() for _ in range(4)]
    ways = (Complete(), rescheduled(exam), closed(exam), Release())
    claims = exam.claim()
    settlements = [(claim.token, way) for claim, way in zip(claims, ways, strict=True)]
    equal("the lost tokens", exam.settle(*settlements), [])
    equal("the claim after it", ids_of(exam.claim()), [ids[3]])
    equal("the open tasks", sorted(exam.rows()), sorted([ids[1], ids[3]]))


@SETTLING("one call settles five hundred tasks from several claims")
def _large(exam: Exam) -> None:
    for _ in range(500):
        exam.create()
    claims = [claim for _ in range(5) for claim in exam.claim(100)]
    equal("the lost tokens", exam.settle(*[(claim.token, Complete()) for claim in claims]), [])
    equal("the number of tasks left", len(exam.rows()), 0)


@SETTLING("settling nothing loses nothing")
def _nothing(exam: Exam) -> None:
    equal("the lost tokens", exam.settle(), [])


@SETTLING("a settle that is repeated, since its reply was lost, writes nothing more and calls its tokens lost")
def _repeated(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one().token
    exam.settle((token, rescheduled(exam, 0)))
    equal("the lost tokens of the second call", exam.settle((token, closed(exam))), [token])
    record = exam.claim_one().record
    equal("attempts after the second call", record.attempts, 1)
    exam.create(-1)
    done = exam.claim_one().token
    exam.settle((done, Complete()))
    equal("the lost tokens after a completion", exam.settle((done, Complete())), [done])


@SETTLING("a worker whose lease the reaper took over can't write")
def _stale(exam: Exam) -> None:
    exam.create()
    stale = exam.claim_one(lease_for=1).token
    exam.clock.tick(2)
    (held,) = exam.lapsed()
    for way in (Complete(), rescheduled(exam), closed(exam), Release()):
        equal("the lost tokens of the stale worker", exam.settle((stale, way)), [stale])
    equal("the lost tokens of the reaper", exam.settle((held.token, Release())), [])
    equal("attempts", exam.claim_one().record.attempts, 0)


@SETTLING("a worker whose task was released and claimed by another can't write")
def _stale_after_release(exam: Exam) -> None:
    exam.create()
    stale = exam.claim_one("me").token
    exam.settle((stale, Release()))
    held = exam.claim_one("you").token
    equal("the lost tokens", exam.settle((stale, Complete())), [stale])
    equal("the lost tokens of the holder", exam.settle((held, Complete())), [])


@SETTLING("a lapsed lease can still be settled while nobody has taken it over")
def _late(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one(lease_for=1).token
    exam.clock.tick(100)
    equal("the lost tokens", exam.settle((token, Complete())), [])
    equal("the tasks that are left", list(exam.rows()), [])


@SETTLING("a token that was never given out writes nothing")
def _forged(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one().token
    forged = LeaseToken(token.task_id, token.value + "x")
    equal("the lost tokens", exam.settle((forged, Complete())), [forged])
    equal("the lost tokens of the holder", exam.settle((token, Complete())), [])


@SETTLING("a token belongs to its task: its value writes no other one")
def _token_of_another(exam: Exam) -> None:
    first, second = exam.create(), exam.create()
    one, two = exam.claim_one().token, exam.claim_one().token
    crossed = [LeaseToken(first, two.value), LeaseToken(second, one.value)]
    equal("the lost tokens", sorted(exam.settle(*[(token, Complete()) for token in crossed])), sorted(crossed))
    equal("the open tasks", sorted(exam.rows()), sorted([first, second]))


@SETTLING("lost tokens among others don't keep the others from being written")
def _some_lost(exam: Exam) -> None:
    ids = [exam.create() for _ in range(4)]
    claims = exam.claim()
    lost = [claims[1].token, claims[2].token]
    exam.settle((lost[0], Complete()), (lost[1], rescheduled(exam, 500)))
    ways = (Complete(), Complete(), closed(exam), rescheduled(exam, 600, task=TEXT))
    settlements = [(claim.token, way) for claim, way in zip(claims, ways, strict=True)]
    equal("the lost tokens", sorted(exam.settle(*settlements)), sorted(lost))
    rows = exam.rows()
    equal("the open tasks", sorted(rows), sorted([ids[2], ids[3]]))
    equal("run_at of the one that wasn't lost", rows[ids[3]].run_at, exam.start + 600)
    equal("run_at of the one that was", rows[ids[2]].run_at, exam.start + 500)


@SETTLING("of threads that settle the same token at the same time, one alone isn't told that it's lost")
def _racing_settles(exam: Exam) -> None:
    for way in (Complete(), rescheduled(exam), Release()):
        exam.create(-1)
        token = exam.claim_one().token
        results = race(4, partial(exam.settle, (token, way)))
        equal("the number of threads that wrote", results.count([]), 1)
        exam.clock.tick(100)
        for claim in exam.claim():
            exam.settle((claim.token, Complete()))


@SETTLING("the largest number of attempts and instants fit")
def _large_numbers(exam: Exam) -> None:
    exam.create()
    late = Reschedule(run_at=253_402_300_799, attempts=10**6, last_fail_at=253_402_300_799, last_error="Task failed")
    exam.settle((exam.claim_one().token, late))
    row = next(iter(exam.rows().values()))
    equal("the row", (row.run_at, row.attempts, row.last_fail_at), (253_402_300_799, 10**6, 253_402_300_799))
    expect(exam.claim() == [], "a task of the year 9999 was claimed")
