"""Changing a task from outside, if it's still as it was when it was read."""

from __future__ import annotations

from ..core.lifecycle import Complete, Release
from ..core.task import TaskState
from .conformance_exam import STRANGE_TEXT, Cases, Exam, equal, ids_of
from .conformance_settling import closed, rescheduled

EDITING = Cases("editing")


@EDITING("a transition is carried out on a task that is as expected")
def _transition(exam: Exam) -> None:
    task_id = exam.create()
    done = exam.transition(task_id, exam.found(task_id), rescheduled(exam, 77, task=STRANGE_TEXT))
    equal("the answer", done, True)
    record = exam.found(task_id)
    got = (record.run_at, record.attempts, record.task, record.state)
    equal("the record", got, (exam.start + 77, 1, STRANGE_TEXT, TaskState.PENDING))


@EDITING("a transition can close or complete a task")
def _transition_to_the_end(exam: Exam) -> None:
    dead, done = exam.create(), exam.create()
    equal("closing", exam.transition(dead, exam.found(dead), closed(exam)), True)
    equal("the closed task's state", exam.found(dead).state, TaskState.FAILED)
    equal("completing", exam.transition(done, exam.found(done), Complete()), True)
    equal("what find tells of the completed one", exam.persister.find(done), None)
    equal("the claim after it", ids_of(exam.claim()), [])


@EDITING("a transition is refused where the task failed meanwhile")
def _changed_meanwhile(exam: Exam) -> None:
    task_id = exam.create()
    expected = exam.found(task_id)
    exam.settle((exam.claim_one().token, rescheduled(exam, 5)))
    equal("the answer", exam.transition(task_id, expected, closed(exam)), False)
    equal("the state", exam.found(task_id).state, TaskState.PENDING)


@EDITING("a transition is refused where the task was claimed meanwhile")
def _claimed_meanwhile(exam: Exam) -> None:
    task_id = exam.create()
    expected = exam.found(task_id)
    token = exam.claim_one().token
    equal("the answer", exam.transition(task_id, expected, closed(exam)), False)
    equal("the lost tokens of the worker", exam.settle((token, Complete())), [])


@EDITING("a transition is refused where the lease has lapsed or was extended meanwhile")
def _lease_changed(exam: Exam) -> None:
    task_id = exam.create()
    token = exam.claim_one(lease_for=10).token
    expected = exam.found(task_id)
    exam.clock.tick(20)
    equal("the answer after the lease lapsed", exam.transition(task_id, expected, closed(exam)), False)
    exam.extend(token)
    equal("the answer after it was extended", exam.transition(task_id, expected, closed(exam)), False)


@EDITING("a transition ends the lease of the task, so that its worker can't write any more")
def _ends_lease(exam: Exam) -> None:
    task_id = exam.create()
    token = exam.claim_one().token
    equal("the answer", exam.transition(task_id, exam.found(task_id), Release()), True)
    equal("the lost tokens of the worker", exam.settle((token, Complete())), [token])
    equal("the next claim", ids_of(exam.claim()), [task_id])


@EDITING("a transition of a task that is gone, or that never was, is refused")
def _edit_absent(exam: Exam) -> None:
    task_id = exam.create()
    expected = exam.found(task_id)
    exam.persister.delete_task(task_id)
    equal("the answer", exam.transition(task_id, expected, Release()), False)
    equal("the rows", list(exam.rows()), [])


@EDITING("a transition that is repeated, since its reply was lost, is refused and changes nothing more")
def _repeated(exam: Exam) -> None:
    for way in (rescheduled(exam, 77), closed(exam), Complete()):
        task_id = exam.create()
        expected = exam.found(task_id)
        equal("the answer", exam.transition(task_id, expected, way), True)
        before = exam.persister.find(task_id)
        equal("the answer to the repeated call", exam.transition(task_id, expected, way), False)
        equal("the record after it", exam.persister.find(task_id), before)


@EDITING("a transition touches no other task")
def _no_other(exam: Exam) -> None:
    other, task_id = exam.create(), exam.create()
    before = exam.found(other)
    exam.transition(task_id, exam.found(task_id), closed(exam))
    equal("the other record", exam.found(other), before)


@EDITING("a closed task can be put off anew by a transition, and is claimed when its time has come")
def _opened_again(exam: Exam) -> None:
    task_id = exam.create()
    exam.settle((exam.claim_one().token, closed(exam)))
    equal("the answer", exam.transition(task_id, exam.found(task_id), rescheduled(exam, 20)), True)
    record = exam.found(task_id)
    equal("the record", (record.state, record.closed_as, record.closed_at), (TaskState.PENDING, None, None))
    equal("the claim at once", ids_of(exam.claim()), [])
    exam.clock.tick(20)
    equal("the claim on time", ids_of(exam.claim()), [task_id])


@EDITING("a transition is refused where the task was closed, or opened again, meanwhile")
def _closed_meanwhile(exam: Exam) -> None:
    task_id = exam.create()
    pending = exam.found(task_id)
    exam.transition(task_id, pending, closed(exam))
    dead = exam.found(task_id)
    equal("the answer where it was closed", exam.transition(task_id, pending, rescheduled(exam)), False)
    exam.transition(task_id, dead, rescheduled(exam))
    equal("the answer where it was opened again", exam.transition(task_id, dead, Complete()), False)
    equal("the state", exam.found(task_id).state, TaskState.PENDING)


@EDITING("a transition is refused where update_task changed run_at or attempts meanwhile")
def _updated_meanwhile(exam: Exam) -> None:
    for change in ({"run_at": exam.start + 1}, {"attempts": 1}):
        task_id = exam.create()
        expected = exam.found(task_id)
        exam.persister.update_task({**expected.as_mapping(), **change})
        equal(f"the answer after {change}", exam.transition(task_id, expected, closed(exam)), False)


@EDITING("a transition is refused where the task changed hands meanwhile")
def _changed_hands(exam: Exam) -> None:
    task_id = exam.create()
    exam.claim_one("me", 10)
    expected = exam.found(task_id)
    exam.lapsed("reaper", dead_owner="me")
    equal("the answer", exam.transition(task_id, expected, closed(exam)), False)
    equal("the state", exam.found(task_id).state, TaskState.RUNNING)


@EDITING("a transition of a task whose lease had lapsed when it was read takes it from the reaper")
def _lapsed_as_expected(exam: Exam) -> None:
    task_id = exam.create()
    token = exam.claim_one(lease_for=1).token
    exam.clock.tick(5)
    equal("the answer", exam.transition(task_id, exam.found(task_id), rescheduled(exam, 60)), True)
    equal("what has lapsed", ids_of(exam.lapsed()), [])
    equal("the lost tokens of the worker", exam.settle((token, Complete())), [token])
    equal("the next look", exam.looks_at(), 60.0)


@EDITING("a record from a claim, or from select, is as good for a transition as one from find")
def _records_alike(exam: Exam) -> None:
    claimed, selected = exam.create(-1), exam.create()
    record = exam.claim_one().record
    equal("the answer with the claim's", exam.transition(claimed, record, Release()), True)
    (record,) = (found for found in exam.persister.select() if found.id == selected)
    equal("the answer with select's", exam.transition(selected, record, closed(exam)), True)


@EDITING("a transition works as before after the store was opened anew")
def _after_reopening(exam: Exam) -> None:
    exam.needs_reopening()
    task_id = exam.create()
    expected = exam.found(task_id)
    exam.reopen()
    equal("the answer", exam.transition(task_id, expected, rescheduled(exam, 5)), True)
    equal("the answer to the same once more", exam.transition(task_id, expected, Complete()), False)
