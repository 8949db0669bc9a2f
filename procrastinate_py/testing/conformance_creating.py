"""Creating many tasks in one call: all or none."""

from __future__ import annotations

from .conformance_exam import QUEUE, STRANGE_TEXT, Cases, Exam, equal, expect
from .conformance_floor_values import LATEST, LONG_NAMES, TELLING_NAMES
from .conformance_races import race

CREATING = Cases("creating")


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
    texts = [f"!a:B {n}" for n in range(exam.sized(2_500))]
    ids = list(exam.persister.create_many([exam.new(task=text) for text in texts]))
    equal("the number of different ids", len(set(ids)), len(texts))
    rows = exam.rows()
    expect([rows[task_id].task for task_id in ids] == texts, "the ids are out of order")


@CREATING("create_many of nothing stores nothing")
def _create_none(exam: Exam) -> None:
    equal("the ids", list(exam.persister.create_many([])), [])
    equal("the rows", list(exam.rows()), [])


@CREATING("create_many takes tasks of several queues, of any name, and gives each to its own")
def _create_in_queues(exam: Exam) -> None:
    names = [*TELLING_NAMES[-12:], *LONG_NAMES, QUEUE]
    ids = list(exam.persister.create_many([exam.new(n, queue=name) for n, name in enumerate(names)]))
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


@CREATING("create_many that can't store one task's text stores none of the others")
def _unstorable_text(exam: Exam) -> None:
    texts = ["!a:B 1", "half \ud83d", "nul \0", "!a:B 2"]
    try:
        ids = exam.persister.create_many([exam.new(task=text) for text in texts])
    except Exception:
        equal("the number of rows after a create_many that raised", _stored(exam), 0)
    else:
        equal("the texts", [exam.row(task_id).task for task_id in ids], texts)


@CREATING("create_many of large texts stores each whole")
def _large_texts(exam: Exam) -> None:
    texts = ["!a:B " + text * 2**19 for text in ("x", "\u00e9", "'\"")]
    ids = list(exam.persister.create_many([exam.new(task=text) for text in texts]))
    rows = exam.rows()
    expect([rows[task_id].task for task_id in ids] == texts, "a text is another one, or cut")


@CREATING("create_many makes as many tasks of equal ones as it was given")
def _equal_tasks(exam: Exam) -> None:
    ids = exam.persister.create_many([exam.new()] * 5)
    equal("the number of different ids", len(set(ids)), 5)
    equal("the number of rows", len(exam.rows()), 5)


@CREATING("create_many takes any instant, before 1970 and to the year 9999")
def _instants(exam: Exam) -> None:
    instants = [LATEST, -1, 0, -LATEST, 2**31]
    ids = exam.persister.create_many([exam.new(instant - exam.start, expire_at=instant) for instant in instants])
    rows = exam.rows()
    equal("run_at", [rows[task_id].run_at for task_id in ids], instants)
    equal("expire_at", [rows[task_id].expire_at for task_id in ids], instants)


@CREATING("threads that create many at the same time get ids of their own, and every task is stored")
def _racing(exam: Exam) -> None:
    got = race(8, lambda: list(exam.persister.create_many([exam.new() for _ in range(5)])))
    ids = [task_id for some in got for task_id in some]
    equal("the number of different ids", len(set(ids)), 40)
    equal("the rows", set(exam.rows()) == set(ids), True)


@CREATING("what create_many stored is there after the store was opened anew")
def _durable(exam: Exam) -> None:
    exam.needs_reopening()
    ids = list(exam.persister.create_many([exam.new(n) for n in range(5)]))
    exam.reopen()
    equal("the ids", sorted(exam.rows()), sorted(ids))
    expect(not set(exam.persister.create_many([exam.new()])) & set(ids), "an id was given again")
