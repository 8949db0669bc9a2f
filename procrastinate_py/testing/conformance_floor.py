"""What the four methods of a floor persister do."""

from __future__ import annotations

import copy
from typing import Any

from ..core.row import record_from_row
from .conformance_exam import QUEUE, STRANGE_TEXT, TEXT, Cases, Exam, equal, expect

FLOOR = Cases("floor")


@FLOOR("create_task returns an id that can be a key of a dict, and no two are alike")
def _ids(exam: Exam) -> None:
    ids = [exam.create() for _ in range(5)]
    expect(None not in ids, "create_task returned None")
    equal("the number of different ids of 5 tasks", len(set(ids)), 5)


@FLOOR("what create_task got is what read_tasks gives")
def _round_trip(exam: Exam) -> None:
    task_id = exam.create(7, expire_at=exam.start + 99)
    row = exam.row(task_id)
    equal("queue", row.queue, QUEUE)
    equal("run_at", row.run_at, exam.start + 7)
    equal("initial_run_at", row.initial_run_at, exam.start + 7)
    equal("expire_at", row.expire_at, exam.start + 99)
    equal("task", row.task, exam.new().task)
    expect(row.defect is None, f"the row can't be read: {row.defect}")


@FLOOR("a new task has no attempts, failure or error")
def _fresh(exam: Exam) -> None:
    row = exam.row(exam.create())
    equal("attempts", row.attempts, 0)
    equal("last_fail_at", row.last_fail_at, None)
    equal("last_error", row.last_error, None)


@FLOOR("expire_at None stays None")
def _no_expiry(exam: Exam) -> None:
    equal("expire_at", exam.row(exam.create()).expire_at, None)


@FLOOR("create_task leaves the dict that it got as it was")
def _data_untouched(exam: Exam) -> None:
    data = exam.new().as_mapping()
    before = copy.copy(data)
    exam.persister.create_task(data)
    equal("the dict after create_task", data, before)


@FLOOR("what is done to the dict after create_task returned changes nothing in the store")
def _data_is_copied(exam: Exam) -> None:
    data = exam.new().as_mapping()
    task_id = exam.persister.create_task(data)
    data.update(run_at=1, task="!another:Text {}", expire_at=2)
    row = exam.row(task_id)
    equal("the row", (row.run_at, row.task, row.expire_at), (exam.start, TEXT, None))


@FLOOR("what is done to a row that read_tasks gave changes nothing in the store")
def _rows_are_copies(exam: Exam) -> None:
    task_id = exam.create()
    for row in exam.persister.read_tasks(QUEUE):
        if isinstance(row, dict):
            row.update(run_at=1, task="!another:Text {}")
    row = exam.row(task_id)
    equal("the row", (row.run_at, row.task), (exam.start, TEXT))


@FLOOR("two tasks that are alike in everything are two tasks")
def _alike(exam: Exam) -> None:
    ids = {exam.create(), exam.create()}
    equal("the number of rows", len(exam.rows()), 2)
    expect(set(exam.rows()) == ids, "the rows have other ids than those that were returned")


@FLOOR("read_tasks gives the tasks of the queue that was asked for, and no others")
def _queues_apart(exam: Exam) -> None:
    mine = exam.create()
    exam.create(queue="other")
    exam.create(queue=f"{QUEUE}2")
    equal("the ids of the queue", list(exam.rows()), [mine])
    equal("the tasks of a queue without any", list(exam.rows("none")), [])


@FLOOR("reading changes nothing")
def _reading(exam: Exam) -> None:
    exam.create()
    equal("the second reading", exam.rows(), exam.rows())


@FLOOR("read_tasks gives hundreds of tasks")
def _many(exam: Exam) -> None:
    ids = set(exam.create_all([exam.new(n) for n in range(exam.sized(200))]))
    expect(set(exam.rows()) == ids, f"not all of {len(ids)} tasks came back")


@FLOOR("a task that isn't due yet is given too")
def _not_due(exam: Exam) -> None:
    exam.row(exam.create(86_400 * 365))


@FLOOR("update_task overwrites the nine attributes")
def _update(exam: Exam) -> None:
    task_id = exam.create(expire_at=exam.start + 5)
    wanted = updated(exam, task_id)
    exam.persister.update_task(dict(wanted))
    row = exam.row(task_id)
    for name, value in wanted.items():
        equal(f"{name} after update_task", getattr(row, name), value)


@FLOOR("update_task can set what may be missing to None")
def _update_to_none(exam: Exam) -> None:
    task_id = exam.create(expire_at=exam.start + 5)
    exam.persister.update_task(updated(exam, task_id))
    exam.persister.update_task({**updated(exam, task_id), "expire_at": None, "last_fail_at": None, "last_error": None})
    row = exam.row(task_id)
    equal("the emptied attributes", (row.expire_at, row.last_fail_at, row.last_error), (None, None, None))


@FLOOR("the same update_task twice is as good as once")
def _update_twice(exam: Exam) -> None:
    task_id = exam.create()
    exam.persister.update_task(updated(exam, task_id))
    once = exam.row(task_id)
    exam.persister.update_task(updated(exam, task_id))
    equal("the row after the second update", exam.row(task_id), once)
    equal("the number of rows", len(exam.rows()), 1)


@FLOOR("update_task touches no other task")
def _update_one(exam: Exam) -> None:
    others = [exam.create(), exam.create()]
    before = [exam.row(task_id) for task_id in others]
    exam.persister.update_task(updated(exam, exam.create()))
    equal("the other rows", [exam.row(task_id) for task_id in others], before)


@FLOOR("a task with run_at None is left out by read_tasks, or given with run_at None")
def _closed(exam: Exam) -> None:
    task_id = exam.create()
    closed = {**updated(exam, task_id), "run_at": None, "last_error": "Task failed too many times: no\n"}
    exam.persister.update_task(closed)
    for row in exam.persister.read_tasks(QUEUE):
        equal("run_at of a closed task", record_from_row(QUEUE, row, 0.0).run_at, None)


@FLOOR("what is done to the dict after update_task returned changes nothing in the store")
def _update_is_copied(exam: Exam) -> None:
    task_id = exam.create()
    attributes = updated(exam, task_id)
    exam.persister.update_task(attributes)
    attributes.update(run_at=1, attempts=7, last_error=None)
    row = exam.row(task_id)
    equal("the row", (row.run_at, row.attempts), (exam.start + 500, 1_000_000))
    expect(row.last_error is not None, "last_error is gone")


@FLOOR("a closed task can be opened again by update_task")
def _reopened(exam: Exam) -> None:
    task_id = exam.create()
    exam.persister.update_task({**updated(exam, task_id), "run_at": None})
    equal("the open tasks", list(exam.rows()), [])
    exam.persister.update_task({**updated(exam, task_id), "attempts": 0, "last_error": None, "last_fail_at": None})
    row = exam.row(task_id)
    equal("the row", (row.run_at, row.attempts, row.last_error), (exam.start + 500, 0, None))


@FLOOR("update_task and delete_task leave the tasks of other queues alone")
def _other_queues(exam: Exam) -> None:
    mine, other = exam.create(), exam.create(queue="other")
    before = exam.rows("other")
    exam.persister.update_task(updated(exam, mine))
    equal("the other queue's rows after update_task", exam.rows("other"), before)
    exam.persister.delete_task(mine)
    equal("the other queue's rows after delete_task", exam.rows("other"), before)
    equal("their ids", list(before), [other])


@FLOOR("updating a task that is gone doesn't bring it back")
def _update_absent(exam: Exam) -> None:
    task_id = exam.create()
    exam.persister.delete_task(task_id)
    try:
        exam.persister.update_task(updated(exam, task_id))
    except Exception:
        pass  # saying so is as good as ignoring it
    equal("the tasks after updating a deleted one", list(exam.rows()), [])


@FLOOR("delete_task removes that task alone")
def _delete(exam: Exam) -> None:
    kept, gone = exam.create(), exam.create()
    exam.persister.delete_task(gone)
    equal("the ids that are left", list(exam.rows()), [kept])


@FLOOR("deleting a task that is gone already raises nothing")
def _delete_absent(exam: Exam) -> None:
    kept, gone = exam.create(), exam.create()
    exam.persister.delete_task(gone)
    exam.persister.delete_task(gone)
    equal("the ids that are left", list(exam.rows()), [kept])


@FLOOR("what was written is there after the store was opened anew")
def _durable(exam: Exam) -> None:
    exam.needs_reopening()
    plain, changed, deleted = exam.create(3), exam.create(), exam.create()
    exam.persister.update_task(updated(exam, changed))
    exam.persister.delete_task(deleted)
    before = exam.rows()
    exam.reopen()
    equal("the rows after opening anew", exam.rows(), before)
    equal("their ids", sorted(exam.rows()), sorted([plain, changed]))
    expect(exam.create() not in before, "a new task got the id of an old one after opening anew")


@FLOOR("tasks from before the store was opened anew are updated and deleted by their ids")
def _durable_ids(exam: Exam) -> None:
    exam.needs_reopening()
    kept, changed, gone = exam.create(1), exam.create(2), exam.create(3)
    exam.reopen()
    exam.persister.update_task(updated(exam, changed))
    exam.persister.delete_task(gone)
    rows = exam.rows()
    expect(set(rows) == {kept, changed}, f"the ids are {list(rows)!r}")
    equal("run_at of both", [rows[kept].run_at, rows[changed].run_at], [exam.start + 1, exam.start + 500])


def updated(exam: Exam, task_id: Any) -> dict[str, Any]:
    return {
        "id": task_id,
        "queue": QUEUE,
        "run_at": exam.start + 500,
        "initial_run_at": exam.start,
        "expire_at": exam.start + 900,
        "attempts": 1_000_000,
        "last_fail_at": exam.start + 3,
        "last_error": f"Task failed: {STRANGE_TEXT}",
        "task": f"!conformance:Sample {STRANGE_TEXT}",
    }
