"""What the four methods of a floor persister do."""

from __future__ import annotations

import copy
from typing import Any

from ..core.row import record_from_row
from .conformance_exam import QUEUE, Cases, Exam, equal, expect

FLOOR = Cases("floor")

STRANGE_TEXT = '\'; DROP TABLE tasks; --\n\t"%s" \\u0041 \\ {} !tag &a *a \u00e9 \u2028 \u05d0 \U0001f600 \r\n end '


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


@FLOOR("text of any language, with quotes and line breaks, comes back as it was")
def _strange_text(exam: Exam) -> None:
    equal("task", exam.row(exam.create(task=STRANGE_TEXT)).task, STRANGE_TEXT)


@FLOOR("a text of a mebibyte comes back whole")
def _long_text(exam: Exam) -> None:
    text = "!a:B " + "0123456789abcdef" * 2**16
    expect(exam.row(exam.create(task=text)).task == text, "the task's text is another one, or cut")


@FLOOR("any instant from 1970 to the year 9999 comes back as it was")
def _instants(exam: Exam) -> None:
    for instant in (0, 1, 2**31 - 1, 2**31, 2**32, 253_402_300_799):
        task_id = exam.create(instant - exam.start, expire_at=instant)
        row = exam.row(task_id)
        equal("run_at", row.run_at, instant)
        equal("expire_at", row.expire_at, instant)


@FLOOR("read_tasks gives the tasks of the queue that was asked for, and no others")
def _queues_apart(exam: Exam) -> None:
    mine = exam.create()
    exam.create(queue="other")
    exam.create(queue=f"{QUEUE}2")
    equal("the ids of the queue", list(exam.rows()), [mine])
    equal("the tasks of a queue without any", list(exam.rows("none")), [])


@FLOOR("a queue may have any name")
def _queue_names(exam: Exam) -> None:
    for name in ("a'b\"c", "50%_", "../../etc", "\u00e9", "e\u0301", "\U0001f600" * 64, "Name", "name"):
        task_id = exam.create(queue=name)
        equal(f"the ids of queue {name!r}", list(exam.rows(name)), [task_id])


@FLOOR("reading changes nothing")
def _reading(exam: Exam) -> None:
    exam.create()
    equal("the second reading", exam.rows(), exam.rows())


@FLOOR("read_tasks gives hundreds of tasks")
def _many(exam: Exam) -> None:
    ids = {exam.create(n) for n in range(200)}
    expect(set(exam.rows()) == ids, "not all of 200 tasks came back")


@FLOOR("a task that isn't due yet is given too")
def _not_due(exam: Exam) -> None:
    exam.row(exam.create(86_400 * 365))


@FLOOR("update_task overwrites the nine attributes")
def _update(exam: Exam) -> None:
    task_id = exam.create(expire_at=exam.start + 5)
    wanted = _updated(exam, task_id)
    exam.persister.update_task(dict(wanted))
    row = exam.row(task_id)
    for name, value in wanted.items():
        equal(f"{name} after update_task", getattr(row, name), value)


@FLOOR("update_task can set what may be missing to None")
def _update_to_none(exam: Exam) -> None:
    task_id = exam.create(expire_at=exam.start + 5)
    exam.persister.update_task(_updated(exam, task_id))
    exam.persister.update_task({**_updated(exam, task_id), "expire_at": None, "last_fail_at": None, "last_error": None})
    row = exam.row(task_id)
    equal("the emptied attributes", (row.expire_at, row.last_fail_at, row.last_error), (None, None, None))


@FLOOR("the same update_task twice is as good as once")
def _update_twice(exam: Exam) -> None:
    task_id = exam.create()
    exam.persister.update_task(_updated(exam, task_id))
    once = exam.row(task_id)
    exam.persister.update_task(_updated(exam, task_id))
    equal("the row after the second update", exam.row(task_id), once)
    equal("the number of rows", len(exam.rows()), 1)


@FLOOR("update_task touches no other task")
def _update_one(exam: Exam) -> None:
    others = [exam.create(), exam.create()]
    before = [exam.row(task_id) for task_id in others]
    exam.persister.update_task(_updated(exam, exam.create()))
    equal("the other rows", [exam.row(task_id) for task_id in others], before)


@FLOOR("an error text of 64 KiB with line breaks comes back as it was")
def _error_text(exam: Exam) -> None:
    task_id = exam.create()
    text = ("Task failed: \u00e9\U0001f600\n  File 'x'\n" * 2000)[: 64 * 1024]
    exam.persister.update_task({**_updated(exam, task_id), "last_error": text})
    expect(exam.row(task_id).last_error == text, "last_error is another text, or cut")


@FLOOR("a task with run_at None is left out by read_tasks, or given with run_at None")
def _closed(exam: Exam) -> None:
    task_id = exam.create()
    closed = {**_updated(exam, task_id), "run_at": None, "last_error": "Task failed too many times: no\n"}
    exam.persister.update_task(closed)
    for row in exam.persister.read_tasks(QUEUE):
        equal("run_at of a closed task", record_from_row(QUEUE, row, 0.0).run_at, None)


@FLOOR("updating a task that is gone doesn't bring it back")
def _update_absent(exam: Exam) -> None:
    task_id = exam.create()
    exam.persister.delete_task(task_id)
    try:
        exam.persister.update_task(_updated(exam, task_id))
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
    if not exam.can_reopen:
        return
    plain, updated, deleted = exam.create(3), exam.create(), exam.create()
    exam.persister.update_task(_updated(exam, updated))
    exam.persister.delete_task(deleted)
    before = exam.rows()
    exam.reopen()
    equal("the rows after opening anew", exam.rows(), before)
    equal("their ids", sorted(exam.rows()), sorted([plain, updated]))
    expect(exam.create() not in before, "a new task got the id of an old one after opening anew")


def _updated(exam: Exam, task_id: Any) -> dict[str, Any]:
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
