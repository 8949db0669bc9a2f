"""Threads and processes that want the same task: one alone gets it, and one alone writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.lifecycle import Complete, Release
from ..core.task import Claim
from .conformance_exam import LEASE, QUEUE, Cases, Exam, equal, expect, ids_of
from .conformance_races import PROCESSES, THREADS, race, race_all, race_processes
from .conformance_settling import closed, rescheduled

RACING = Cases("leasing")
RACING_EDITS = Cases("editing")


# --- threads


@RACING("of threads that claim the same task at the same time, one alone gets it")
def _one_claim(exam: Exam) -> None:
    task_id = exam.create()
    got = race(THREADS, lambda: ids_of(exam.claim(1)))
    equal("what the threads got in all", [found for some in got for found in some], [task_id])


@RACING("threads that claim at the same time get each task once, and all of them")
def _claims(exam: Exam) -> None:
    ids = exam.create_all([exam.new() for _ in range(40)])

    def claim_some() -> list[object]:
        return [task_id for _ in range(12) for task_id in ids_of(exam.claim(3))]

    got = [task_id for some in race(4, claim_some) for task_id in some]
    equal("the ids claimed by all threads", sorted(got), sorted(ids))


@RACING("of threads that settle by the same token at the same time, one alone isn't told that it's lost")
def _settles(exam: Exam) -> None:
    for way in (Complete(), rescheduled(exam, 600), Release()):
        task_id = exam.create(-1)
        token = exam.claim_one().token
        results = race(THREADS, partial(exam.settle, (token, way)))
        equal("the number of threads that wrote", results.count([]), 1)
        exam.persister.delete_task(task_id)


@RACING("where settle and the reaper race for a lapsed task, either it's settled or it's reaped")
def _settle_against_reaper(exam: Exam) -> None:
    for way, race_of_two in ((Complete(), _race_of_two), (rescheduled(exam, 600), _race_of_the_other_two)):
        task_id = exam.create(-1)
        token = exam.claim_one(lease_for=1).token
        exam.clock.tick(2)
        results, claims = race_of_two(partial(exam.settle, (token, way)), exam.lapsed)
        equal("the number of threads that had the task", results.count([]) + sum(map(len, claims)), 1)
        exam.persister.delete_task(task_id)


@RACING("where extend and the reaper race for a lapsed task, the loser is told so")
def _extend_against_reaper(exam: Exam) -> None:
    for race_of_two in (_race_of_two, _race_of_the_other_two):
        task_id = exam.create(-1)
        token = exam.claim_one(lease_for=1).token
        exam.clock.tick(2)
        lost, claims = race_of_two(partial(exam.extend, token), exam.lapsed)
        extended, reaped = lost.count([]), sum(map(len, claims))
        told = f"{extended} extended its lease, and {reaped} got the task"
        expect((extended, reaped) in ((0, 1), (len(lost), 0)), f"of {len(lost)} threads of each kind {told}")
        exam.persister.delete_task(task_id)


def _race_of_two(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """What the threads got that did one thing, and what those that did the other at the same time."""
    results = race_all([one, other] * (THREADS // 2))
    return results[::2], results[1::2]


def _race_of_the_other_two(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """As before, but the last to come, which is often the first to run, does the one thing."""
    others, ones = _race_of_two(other, one)
    return ones, others


@RACING("reapers that race get each lapsed task once")
def _reapers(exam: Exam) -> None:
    ids = exam.create_all([exam.new() for _ in range(10)])
    exam.claim(lease_for=1)
    exam.clock.tick(2)
    got = [task_id for some in race(8, lambda: ids_of(exam.lapsed(limit=4))) for task_id in some]
    equal("the ids that the reapers got", sorted(got), sorted(ids))


@RACING("reapers that race for a dead owner's tasks get each once")
def _reapers_of_the_dead(exam: Exam) -> None:
    ids = exam.create_all([exam.new() for _ in range(6)])
    exam.claim(owner="dead")
    got = [task_id for some in race(8, lambda: ids_of(exam.lapsed(dead_owner="dead"))) for task_id in some]
    equal("the ids that the reapers got", sorted(got), sorted(ids))


@RACING("threads that create tasks at the same time get ids of their own, and all tasks are stored")
def _creators(exam: Exam) -> None:
    ids = race(THREADS, exam.create)
    equal("the number of different ids", len(set(ids)), THREADS)
    equal("the number of rows", len(exam.rows()), THREADS)


@RACING("workers that create, claim and settle beside each other settle each task once")
def _workers(exam: Exam) -> None:
    def work(number: int) -> list[Any]:
        done = []
        for _ in range(4):
            exam.create(-number)
            claims = exam.claim(3, owner=f"worker {number}")
            lost = exam.settle(*[(claim.token, Complete()) for claim in claims])
            done += [claim.record.id for claim in claims if claim.token not in lost]
        return done

    done = [task_id for some in race_all([partial(work, number) for number in range(6)]) for task_id in some]
    left = ids_of(exam.claim())
    equal("the number of tasks settled or left", len(done) + len(left), 24)
    equal("the number of different ones", len({*done, *left}), 24)


@RACING_EDITS("of threads that edit the same task at the same time, one alone wins")
def _edits(exam: Exam) -> None:
    for way in (rescheduled(exam, 9), closed(exam), Complete()):
        task_id = exam.create()
        expected = exam.found(task_id)
        answers = race(THREADS, partial(exam.transition, task_id, expected, way))
        equal("the number of winners", answers.count(True), 1)


@RACING_EDITS("where an edit and a settle race for a task in hand, one alone wins")
def _edit_against_settle(exam: Exam) -> None:
    for way, race_of_two in ((rescheduled(exam, 600), _race_of_two), (Complete(), _race_of_the_other_two)):
        task_id = exam.create()
        token = exam.claim_one().token
        expected = exam.found(task_id)
        edit = partial(exam.transition, task_id, expected, closed(exam))
        edits, lost = race_of_two(edit, partial(exam.settle, (token, way)))
        equal("the number of winners", edits.count(True) + lost.count([]), 1)


@RACING_EDITS("where an edit and a claim race for a task, the edit wins or the task is in hand")
def _edit_against_claim(exam: Exam) -> None:
    for race_of_two in (_race_of_two, _race_of_the_other_two):
        task_id = exam.create()
        expected = exam.found(task_id)
        edit = partial(exam.transition, task_id, expected, closed(exam))
        edits, claims = race_of_two(edit, lambda: exam.claim(1))
        equal("the number of winners", edits.count(True) + sum(map(len, claims)), 1)
        exam.persister.delete_task(task_id)


# --- processes


@RACING("of processes that claim the same task at the same time, one alone gets it")
def _processes_claim_one(exam: Exam) -> None:
    exam.needs_processes()
    task_id = exam.create()
    got = race_processes(PROCESSES, lambda: ids_of(exam.claim(1)))
    equal("what the processes got in all", [found for some in got for found in some], [repr(task_id)])


@RACING("processes that claim at the same time get each of two hundred tasks once, and all of them")
def _processes_claim(exam: Exam) -> None:
    exam.needs_processes()
    ids = exam.create_all([exam.new() for _ in range(exam.sized(200))])

    def claim_all() -> list[object]:
        got: list[object] = []
        while claims := exam.claim(7):
            got += ids_of(claims)
        return got

    got = [found for some in race_processes(PROCESSES, claim_all) for found in some]
    equal("the number of tasks that the processes got", len(got), len(ids))
    expect(set(got) == {repr(task_id) for task_id in ids}, "a task was claimed by two processes")


@RACING("of processes that settle by the same token at the same time, one alone isn't told that it's lost")
def _processes_settle(exam: Exam) -> None:
    exam.needs_processes()
    exam.create()
    token = exam.claim_one().token
    got = race_processes(PROCESSES, lambda: exam.settle((token, rescheduled(exam))))
    equal("the number of processes that wrote", got.count([]), 1)


@RACING("of processes that reap at the same time, one alone gets a lapsed task")
def _processes_reap(exam: Exam) -> None:
    exam.needs_processes()
    task_id = exam.create()
    exam.claim_one(lease_for=1)
    exam.clock.tick(2)
    got = race_processes(PROCESSES, lambda: ids_of(exam.lapsed()))
    equal("what the reapers got in all", [found for some in got for found in some], [repr(task_id)])


@RACING("processes that create tasks at the same time get ids of their own")
def _processes_create(exam: Exam) -> None:
    exam.needs_processes()
    ids = [found for some in race_processes(4, lambda: [exam.create() for _ in range(5)]) for found in some]
    equal("the number of different ids", len(set(ids)), 20)
    expect({repr(task_id) for task_id in exam.rows()} == set(ids), "the rows have other ids than were returned")


@RACING("what a process claimed that is gone is had by its name at once, and what it settled is settled")
def _dead_process(exam: Exam) -> None:
    exam.needs_processes()
    ids = [exam.create(), exam.create()]

    def claim_and_die() -> list[object]:
        claims: list[Claim] = exam.claim(2, owner="dead process")
        return exam.settle((claims[0].token, rescheduled(exam, 60)))

    equal("the lost tokens of the process", race_processes(1, claim_and_die), [[]])
    equal("what was in its hand", ids_of(exam.lapsed(dead_owner="dead process")), ids[1:])
    equal("run_at of what it settled", exam.row(ids[0]).run_at, exam.start + 60)


@RACING("a persister that was used before a fork works on in the parent, and in the child")
def _forked(exam: Exam) -> None:
    exam.needs_processes()
    task_id = exam.create()
    token = exam.claim_one().token
    got = race_processes(3, lambda: [exam.row(task_id).run_at, *exam.extend(token)])
    equal("what the children got", got, [[repr(exam.start)]] * 3)
    equal("the lost tokens of the parent", exam.settle((token, Complete())), [])
    equal("what is left", list(exam.rows(QUEUE)), [])


@RACING_EDITS("of processes that edit the same task at the same time, one alone wins")
def _processes_edit(exam: Exam) -> None:
    exam.needs_processes()
    task_id = exam.create()
    expected = exam.found(task_id)
    got = race_processes(PROCESSES, lambda: [exam.transition(task_id, expected, rescheduled(exam, int(LEASE)))])
    equal("the number of winners", got.count(["True"]), 1)
