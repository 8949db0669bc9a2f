"""When tasks are due, in which order, and what a clock may do: stop at fractions, step back, go far away."""

from __future__ import annotations

from ..core.lifecycle import Complete, Release
from .conformance_exam import LEASE, Cases, Exam, equal, expect, ids_of
from .conformance_floor import updated
from .conformance_floor_values import LATEST
from .conformance_settling import closed, rescheduled

TIMING = Cases("leasing")


@TIMING("tasks of the same run_at are claimed in the order in which they were created, however they were")
def _creation_order(exam: Exam) -> None:
    ids = [
        exam.create(),
        *exam.create_all([exam.new() for _ in range(12)]),
        exam.create(),
        *exam.create_all([exam.new() for _ in range(3)]),
    ]
    equal("the order of the claim", ids_of(exam.claim()), ids)


@TIMING("a task created later, but due earlier, comes first in the next claim")
def _earlier_comes_first(exam: Exam) -> None:
    late = [exam.create(-n) for n in (2, 1)]
    equal("the first claim", ids_of(exam.claim(1)), late[:1])
    early = exam.create(-9)
    equal("the second claim", ids_of(exam.claim(2)), [early, late[1]])


@TIMING("a rescheduled task takes its place by its new run_at, and among equals by its id")
def _order_after_reschedule(exam: Exam) -> None:
    first, second, third = (exam.create(n) for n in (0, 30, 31))
    exam.settle((exam.claim_one().token, rescheduled(exam, 31)))
    fourth = exam.create(31)
    exam.clock.tick(40)
    equal("the order of the claim", ids_of(exam.claim()), [second, first, third, fourth])


@TIMING("a released task keeps its place")
def _order_after_release(exam: Exam) -> None:
    ids = [exam.create(-n) for n in (3, 2, 1)]
    claim = exam.claim_one()
    exam.settle((claim.token, Release()))
    equal("the order of the claim", ids_of(exam.claim()), ids)


@TIMING("instants are ordered as numbers: before 1970, of few digits and of many")
def _numeric_order(exam: Exam) -> None:
    instants = (-LATEST, -86_400, -10, -9, 0, 9, 10, 100, 999_999_999, 1_000_000_000)
    ids = {instant: exam.create(instant - exam.start) for instant in sorted(instants, key=str)}
    equal("the order of the claim", ids_of(exam.claim()), [ids[instant] for instant in instants])


@TIMING("update_task can make a task due, or put it off")
def _updated_run_at(exam: Exam) -> None:
    sooner, later, other = exam.create(600), exam.create(-9), exam.create()
    exam.persister.update_task({**updated(exam, sooner), "run_at": exam.start - 20})
    exam.persister.update_task({**updated(exam, later), "run_at": exam.start + 600})
    equal("the claim", ids_of(exam.claim()), [sooner, other])
    exam.clock.tick(600)
    equal("the claim when the time has come", ids_of(exam.claim()), [later])


@TIMING("a task that update_task closed isn't claimed, and one that it opened again is")
def _closed_and_opened(exam: Exam) -> None:
    task_id = exam.create()
    exam.persister.update_task({**updated(exam, task_id), "run_at": None})
    equal("the claim", ids_of(exam.claim()), [])
    equal("the next look", exam.looks_at(), None)
    exam.persister.update_task({**updated(exam, task_id), "run_at": exam.start, "last_error": None})
    equal("the claim after it was opened", ids_of(exam.claim()), [task_id])


@TIMING("a deleted task isn't claimed")
def _deleted(exam: Exam) -> None:
    gone, kept = exam.create(), exam.create()
    exam.persister.delete_task(gone)
    equal("the claim", ids_of(exam.claim()), [kept])


@TIMING("leases may last fractions of a second")
def _fractions(exam: Exam) -> None:
    task_id = exam.create()
    exam.clock.tick(0.125)
    exam.claim_one(lease_for=0.25)
    exam.clock.tick(0.25)
    equal("what has lapsed at the end", ids_of(exam.lapsed()), [])
    exam.clock.tick(0.125)
    (claim,) = exam.lapsed()
    equal("the lost tokens of an extension", exam.extend(claim.token, lease_for=0.5), [])
    exam.clock.tick(0.5)
    equal("what has lapsed at the new end", ids_of(exam.lapsed()), [])
    exam.clock.tick(0.125)
    equal("what has lapsed after it", ids_of(exam.lapsed()), [task_id])


@TIMING("a task of the year 9999 isn't due before, and is then")
def _far_future(exam: Exam) -> None:
    task_id = exam.create(LATEST - exam.start)
    exam.clock.move_to(LATEST - 1)
    equal("the claim a second early", ids_of(exam.claim()), [])
    exam.clock.move_to(LATEST)
    equal("the claim on time", ids_of(exam.claim(lease_for=LEASE)), [task_id])
    exam.clock.move_to(LATEST - 60)
    equal("what has lapsed a minute before", ids_of(exam.lapsed()), [])


@TIMING("where the clock stepped back, a task that was due is due when the time has come again")
def _due_again(exam: Exam) -> None:
    task_id = exam.create(50)
    exam.clock.tick(60)
    equal("what another queue has then", ids_of(exam.claim(queue="other")), [])
    exam.clock.move_to(exam.start + 49)
    equal("the claim before the time has come again", ids_of(exam.claim()), [])
    exam.clock.tick(1)
    equal("the claim after it", ids_of(exam.claim()), [task_id])


@TIMING("where the clock stepped back, a task in hand stays in hand, and can be settled")
def _held_after_stepping_back(exam: Exam) -> None:
    exam.create()
    exam.clock.tick(600)
    token = exam.claim_one(lease_for=10).token
    exam.clock.move_to(exam.start + 1)
    equal("the claim", ids_of(exam.claim(owner="other")), [])
    equal("what has lapsed", ids_of(exam.lapsed()), [])
    equal("the lost tokens", exam.settle((token, Complete())), [])


@TIMING("where the clock stepped back, extend makes a lease end by the new time")
def _extended_after_stepping_back(exam: Exam) -> None:
    task_id = exam.create()
    exam.clock.tick(600)
    token = exam.claim_one(lease_for=10).token
    exam.clock.move_to(exam.start + 1)
    exam.extend(token, lease_for=10)
    equal("the next look", exam.looks_at(), 11.0)
    exam.clock.tick(10.5)
    equal("what has lapsed", ids_of(exam.lapsed()), [task_id])


@TIMING("where the clock leapt ahead, what is due and what has lapsed is told apart as ever")
def _leap_ahead(exam: Exam) -> None:
    held, due, dead = exam.create(-3), exam.create(86_400 * 300), exam.create(-4)
    exam.settle((exam.claim_one().token, closed(exam)))
    exam.claim_one()
    exam.clock.tick(86_400 * 365 * 20)
    equal("the claim", ids_of(exam.claim()), [due])
    equal("what has lapsed", ids_of(exam.lapsed()), [held])
    equal("whether the closed task is open", dead in exam.rows(), False)


@TIMING("claims page through a backlog in order, batch by batch, each task once")
def _batches(exam: Exam) -> None:
    number = exam.sized(200)
    ids = exam.create_all([exam.new(-1 - (n * 7) % 50) for n in range(number)])
    wanted = [task_id for _, _, task_id in sorted((-1 - (n * 7) % 50, n, ids[n]) for n in range(number))]
    got: list[object] = []
    while claims := exam.claim(max(3, number // 6)):
        got.extend(ids_of(claims))
    expect(got == wanted, f"{len(got)} of {number} tasks were claimed, or not in order")
