"""What the smaller abilities do: creating many, editing, waking, inspecting, keeping the time."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..core.lifecycle import Complete, Release
from ..core.task import TaskRecord, TaskState
from .conformance_exam import LEASE, QUEUE, Cases, Exam, equal, expect, ids_of, is_awake, listening, race
from .conformance_floor import STRANGE_TEXT
from .conformance_settling import closed, rescheduled

CREATING = Cases("creating")
EDITING = Cases("editing")
WAKING = Cases("waking")
INSPECTING = Cases("inspecting")
TIMEKEEPING = Cases("timekeeping")


# --- creating


@CREATING("create_many stores each task as it was given, and returns the ids in order")
def _create_many(exam: Exam) -> None:
    tasks = [exam.new(n % 7, task=f"!a:B {n} {STRANGE_TEXT}", expire_at=None if n % 2 else 9**9) for n in range(50)]
    ids = list(exam.persister.create_many(tasks))
    rows = exam.rows()
    got = [(row.task, row.run_at, row.initial_run_at, row.expire_at) for row in map(rows.__getitem__, ids)]
    equal("the rows by id", got, [(new.task, new.run_at, new.initial_run_at, new.expire_at) for new in tasks])
    equal("attempts", {row.attempts for row in rows.values()}, {0})


@CREATING("create_many of thousands returns as many ids, in order")
def _create_thousands(exam: Exam) -> None:
    ids = list(exam.persister.create_many([exam.new(task=f"!a:B {n}") for n in range(2_500)]))
    equal("the number of different ids", len(set(ids)), 2_500)
    rows = exam.rows()
    expect([rows[task_id].task for task_id in ids] == [f"!a:B {n}" for n in range(2_500)], "the ids are out of order")


@CREATING("create_many of nothing stores nothing")
def _create_none(exam: Exam) -> None:
    equal("the ids", list(exam.persister.create_many([])), [])
    equal("the rows", list(exam.rows()), [])


@CREATING("create_many takes tasks of several queues, of any name")
def _create_in_queues(exam: Exam) -> None:
    names = ["a'b", "nul\0nul", "nul", "\U0001f600", QUEUE]
    ids = list(exam.persister.create_many([exam.new(queue=name) for name in names]))
    for name, task_id in zip(names, ids, strict=True):
        equal(f"the ids of queue {name!r}", list(exam.rows(name)), [task_id])


@CREATING("create_many stores all of its tasks or none")
def _all_or_none(exam: Exam) -> None:
    tasks = [exam.new() for _ in range(5)]
    tasks[3] = exam.new(10**40)
    try:
        exam.persister.create_many(tasks)
    except Exception:
        equal("the number of rows after a create_many that raised", _stored(exam), 0)
    else:
        equal("the number of rows after a create_many that returned", _stored(exam), 5)


def _stored(exam: Exam) -> int:
    """Counted, not read: nobody else could read the one that a store shouldn't have taken."""
    return len(list(exam.persister.read_tasks(QUEUE)))


@CREATING("create_task and create_many never give the same id")
def _ids_apart(exam: Exam) -> None:
    ids = [exam.create(), *exam.persister.create_many([exam.new(), exam.new()]), exam.create()]
    equal("the number of different ids", len(set(ids)), 4)


# --- editing


def _found(exam: Exam, task_id: Any) -> TaskRecord:
    record: TaskRecord | None = exam.persister.find(task_id)
    expect(record is not None, f"find({task_id!r}) found nothing")
    assert record is not None
    return record


@EDITING("a transition is carried out on a task that is as expected")
def _transition(exam: Exam) -> None:
    task_id = exam.create()
    done = exam.persister.transition(task_id, _found(exam, task_id), rescheduled(exam, 77, task=STRANGE_TEXT))
    equal("the answer", done, True)
    record = _found(exam, task_id)
    got = (record.run_at, record.attempts, record.task, record.state)
    equal("the record", got, (exam.start + 77, 1, STRANGE_TEXT, TaskState.PENDING))


@EDITING("a transition can close or complete a task")
def _transition_to_the_end(exam: Exam) -> None:
    dead, done = exam.create(), exam.create()
    equal("closing", exam.persister.transition(dead, _found(exam, dead), closed(exam)), True)
    equal("the closed task's state", _found(exam, dead).state, TaskState.FAILED)
    equal("completing", exam.persister.transition(done, _found(exam, done), Complete()), True)
    equal("what find tells of the completed one", exam.persister.find(done), None)
    equal("the claim after it", ids_of(exam.claim()), [])


@EDITING("a transition is refused where the task failed meanwhile")
def _changed_meanwhile(exam: Exam) -> None:
    task_id = exam.create()
    expected = _found(exam, task_id)
    exam.settle((exam.claim_one().token, rescheduled(exam, 5)))
    equal("the answer", exam.persister.transition(task_id, expected, closed(exam)), False)
    equal("the state", _found(exam, task_id).state, TaskState.PENDING)


@EDITING("a transition is refused where the task was claimed meanwhile")
def _claimed_meanwhile(exam: Exam) -> None:
    task_id = exam.create()
    expected = _found(exam, task_id)
    token = exam.claim_one().token
    equal("the answer", exam.persister.transition(task_id, expected, closed(exam)), False)
    equal("the lost tokens of the worker", exam.settle((token, Complete())), [])


@EDITING("a transition is refused where the lease has lapsed or was extended meanwhile")
def _lease_changed(exam: Exam) -> None:
    task_id = exam.create()
    token = exam.claim_one(lease_for=10).token
    expected = _found(exam, task_id)
    exam.clock.tick(20)
    equal("the answer after the lease lapsed", exam.persister.transition(task_id, expected, closed(exam)), False)
    exam.persister.extend([token], LEASE)
    equal("the answer after it was extended", exam.persister.transition(task_id, expected, closed(exam)), False)


@EDITING("a transition ends the lease of the task, so that its worker can't write any more")
def _ends_lease(exam: Exam) -> None:
    task_id = exam.create()
    token = exam.claim_one().token
    equal("the answer", exam.persister.transition(task_id, _found(exam, task_id), Release()), True)
    equal("the lost tokens of the worker", exam.settle((token, Complete())), [token])
    equal("the next claim", ids_of(exam.claim()), [task_id])


@EDITING("a transition of a task that is gone, or that never was, is refused")
def _edit_absent(exam: Exam) -> None:
    task_id = exam.create()
    expected = _found(exam, task_id)
    exam.persister.delete_task(task_id)
    equal("the answer", exam.persister.transition(task_id, expected, Release()), False)
    equal("the rows", list(exam.rows()), [])


@EDITING("of threads that race on the same row, one alone wins")
def _racing_edits(exam: Exam) -> None:
    for way in (rescheduled(exam, 9), closed(exam), Complete()):
        task_id = exam.create()
        expected = _found(exam, task_id)
        answers = race(6, partial(exam.persister.transition, task_id, expected, way))
        equal("the number of winners", answers.count(True), 1)


# --- waking


@WAKING("notify makes a listener readable, until it drains")
def _wake(exam: Exam) -> None:
    with listening(exam) as listener:
        expect(not is_awake(listener), "a new listener is awake before any notify")
        exam.persister.notify(QUEUE)
        expect(is_awake(listener), "notify didn't wake the listener")
        listener.drain()
        expect(not is_awake(listener), "drain left the listener awake")
        exam.persister.notify(QUEUE)
        expect(is_awake(listener), "a second notify didn't wake the listener")


@WAKING("notify wakes every listener of its queue, and none of another's")
def _wake_all(exam: Exam) -> None:
    with listening(exam) as one, listening(exam) as two, listening(exam, "other") as other:
        exam.persister.notify(QUEUE)
        expect(is_awake(one) and is_awake(two), "a listener of the queue slept on")
        expect(not is_awake(other), "a listener of another queue woke up")


@WAKING("notify raises nothing and doesn't block, with nobody listening or nobody draining")
def _wake_nobody(exam: Exam) -> None:
    exam.persister.notify(QUEUE)
    with listening(exam) as listener:
        for _ in range(100):
            exam.persister.notify(QUEUE)
        listener.drain()
        expect(not is_awake(listener), "drain left wake-ups behind")
    exam.persister.notify(QUEUE)


# --- inspecting


@INSPECTING("find tells every field of a task, and nothing of one that isn't there")
def _find(exam: Exam) -> None:
    task_id = exam.create(5, task=STRANGE_TEXT, expire_at=exam.start + 9)
    record = _found(exam, task_id)
    got = (record.id, record.queue, record.run_at, record.initial_run_at, record.expire_at, record.task)
    equal("the record", got, (task_id, QUEUE, exam.start + 5, exam.start + 5, exam.start + 9, STRANGE_TEXT))
    equal("the rest", (record.attempts, record.last_error, record.closed_as, record.lease), (0, None, None, None))
    exam.persister.delete_task(task_id)
    equal("what find tells of a deleted task", exam.persister.find(task_id), None)


@INSPECTING("a task in hand is RUNNING, and PENDING once its lease has lapsed")
def _find_running(exam: Exam) -> None:
    task_id = exam.create()
    equal("the state before the claim", _found(exam, task_id).state, TaskState.PENDING)
    claim = exam.claim_one("me", 10)
    record = _found(exam, task_id)
    equal("the state in hand", record.state, TaskState.RUNNING)
    equal("the lease", record.lease, claim.record.lease)
    exam.clock.tick(10.5)
    equal("the state after the lease", _found(exam, task_id).state, TaskState.PENDING)


@INSPECTING("select gives tasks in order of id, page by page")
def _select_pages(exam: Exam) -> None:
    ids = [exam.create(-n) for n in range(7)]
    equal("all", _ids(exam.persister.select()), ids)
    equal("the first 3", _ids(exam.persister.select(limit=3)), ids[:3])
    equal("3 after the third", _ids(exam.persister.select(limit=3, after=ids[2])), ids[3:6])
    equal("3 after the sixth", _ids(exam.persister.select(limit=3, after=ids[5])), ids[6:])
    equal("those after the last", _ids(exam.persister.select(after=ids[6])), [])


@INSPECTING("select tells tasks apart by queue, state and stored name, and by all of them at once")
def _select_filters(exam: Exam) -> None:
    dead, running, pending, mail = _one_of_each(exam)
    other = exam.create(5, queue="other")
    wanted: list[tuple[dict[str, Any], list[Any]]] = [
        ({"queue": QUEUE}, [dead, running, pending, mail]),
        ({"queue": "other"}, [other]),
        ({"queue": "none"}, []),
        ({"state": TaskState.FAILED}, [dead]),
        ({"state": TaskState.RUNNING}, [running]),
        ({"state": TaskState.PENDING}, [pending, mail, other]),
        ({"state": TaskState.EXPIRED}, []),
        ({"tag": "app.mail:Send"}, [mail]),
        ({"tag": "app.mail:Sen"}, []),
        ({"tag": "conformance:Sample", "queue": QUEUE, "state": TaskState.PENDING, "limit": 5}, [pending]),
    ]
    for filters, ids in wanted:
        equal(f"select({filters})", _ids(exam.persister.select(**filters)), ids)


@INSPECTING("count tells how many tasks there are by queue and state, and leaves out what there's none of")
def _count(exam: Exam) -> None:
    equal("the counts of nothing", dict(exam.persister.count()), {})
    _one_of_each(exam)
    exam.create(5, queue="other")
    mine = {(QUEUE, TaskState.FAILED): 1, (QUEUE, TaskState.RUNNING): 1, (QUEUE, TaskState.PENDING): 2}
    equal("the counts of the queue", dict(exam.persister.count(queue=QUEUE)), mine)
    equal("all counts", dict(exam.persister.count()), {**mine, ("other", TaskState.PENDING): 1})
    pending = {(QUEUE, TaskState.PENDING): 2, ("other", TaskState.PENDING): 1}
    equal("the counts of one state", dict(exam.persister.count(state=TaskState.PENDING)), pending)
    exam.clock.tick(LEASE * 2)
    counts = dict(exam.persister.count(queue=QUEUE))
    equal("the number PENDING after the lease", counts.get((QUEUE, TaskState.PENDING)), 3)


def _one_of_each(exam: Exam) -> tuple[Any, Any, Any, Any]:
    dead, running = exam.create(-2), exam.create(-1)
    exam.settle((exam.claim_one().token, closed(exam)))
    exam.claim_one()
    return dead, running, exam.create(5), exam.create(5, task='!app.mail:Send {"to": "a@example.com"}')


def _ids(records: Any) -> list[Any]:
    return [record.id for record in records]


# --- timekeeping


@TIMEKEEPING("now is in epoch seconds, by the clock that the persister was given")
def _now(exam: Exam) -> None:
    equal("now", exam.persister.now(), exam.clock.now())
    exam.clock.tick(1.5)
    equal("now after 1.5 s", exam.persister.now(), exam.clock.now())


@TIMEKEEPING("records tell when they were read")
def _read_at(exam: Exam) -> None:
    exam.create()
    exam.clock.tick(2.5)
    equal("read_at of a claim", exam.claim_one().record.read_at, exam.start + 2.5)
