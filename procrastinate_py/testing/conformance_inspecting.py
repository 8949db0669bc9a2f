"""Looking at tasks: one by one, page by page, and how many there are; and by whose clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..core.lifecycle import Complete, Release
from ..core.task import TaskState
from .conformance_exam import LEASE, QUEUE, STRANGE_TEXT, TEXT, Cases, Exam, equal, expect
from .conformance_floor import updated
from .conformance_floor_values import TELLING_NAMES
from .conformance_settling import closed, rescheduled

INSPECTING = Cases("inspecting")


@INSPECTING("find tells every field of a task, and nothing of one that isn't there")
def _find(exam: Exam) -> None:
    task_id = exam.create(5, task=STRANGE_TEXT, expire_at=exam.start + 9)
    record = exam.found(task_id)
    got = (record.id, record.queue, record.run_at, record.initial_run_at, record.expire_at, record.task)
    equal("the record", got, (task_id, QUEUE, exam.start + 5, exam.start + 5, exam.start + 9, STRANGE_TEXT))
    equal("the rest", (record.attempts, record.last_error, record.closed_as, record.lease), (0, None, None, None))
    exam.persister.delete_task(task_id)
    equal("what find tells of a deleted task", exam.persister.find(task_id), None)


@INSPECTING("a task in hand is RUNNING, and PENDING once its lease has lapsed")
def _find_running(exam: Exam) -> None:
    task_id = exam.create()
    equal("the state before the claim", exam.found(task_id).state, TaskState.PENDING)
    claim = exam.claim_one("me", 10)
    record = exam.found(task_id)
    equal("the state in hand", record.state, TaskState.RUNNING)
    equal("the lease", record.lease, claim.record.lease)
    exam.clock.tick(10.5)
    equal("the state after the lease", exam.found(task_id).state, TaskState.PENDING)


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
        # A store may number each queue's tasks on their own: those of several come in order of id all the same.
        equal(f"select({filters})", _ids(exam.persister.select(**filters)), sorted(ids))


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


@INSPECTING("find tells what each kind of transition leaves of a task")
def _after_each_transition(exam: Exam) -> None:
    ids = [exam.create() for _ in range(5)]
    ways = (Release(), rescheduled(exam, 9), closed(exam), closed(exam, TaskState.EXPIRED), Complete())
    exam.settle(*[(claim.token, way) for claim, way in zip(exam.claim(), ways, strict=True)])
    released, failed, dead, expired = (exam.found(task_id) for task_id in ids[:4])
    got = [(record.state, record.run_at, record.attempts) for record in (released, failed, dead, expired)]
    wanted = [
        (TaskState.PENDING, exam.start, 0),
        (TaskState.PENDING, exam.start + 9, 1),
        (TaskState.FAILED, None, 3),
        (TaskState.EXPIRED, None, 3),
    ]
    equal("state, run_at and attempts", got, wanted)
    equal("the leases", {record.lease for record in (released, failed, dead, expired)}, {None})
    equal("when the last two were closed", [dead.closed_at, expired.closed_at], [exam.start + 1] * 2)
    equal("what find tells of the completed one", exam.persister.find(ids[4]), None)


@INSPECTING("counts follow each kind of transition, and completed tasks aren't counted")
def _counts_follow(exam: Exam) -> None:
    for way, state in (
        (Release(), TaskState.PENDING),
        (rescheduled(exam, 9), TaskState.PENDING),
        (closed(exam), TaskState.FAILED),
        (closed(exam, TaskState.EXPIRED), TaskState.EXPIRED),
        (Complete(), None),
    ):
        task_id = exam.create(-1)
        token = exam.claim_one().token
        equal("the counts in hand", dict(exam.persister.count()), {(QUEUE, TaskState.RUNNING): 1})
        exam.settle((token, way))
        wanted = {} if state is None else {(QUEUE, state): 1}
        equal(f"the counts after {type(way).__name__}", dict(exam.persister.count()), wanted)
        exam.persister.delete_task(task_id)
    equal("the counts of nothing", dict(exam.persister.count()), {})


@INSPECTING("a task is RUNNING up to the very end of its lease, for find, select and count alike")
def _end_of_lease(exam: Exam) -> None:
    task_id = exam.create()
    exam.claim_one(lease_for=8)
    exam.clock.tick(8)
    for state in (TaskState.RUNNING, TaskState.PENDING):
        equal("the state by find", exam.found(task_id).state, state)
        equal(f"select(state={state})", _ids(exam.persister.select(state=state)), [task_id])
        equal("the counts", dict(exam.persister.count()), {(QUEUE, state): 1})
        equal(f"count(state={state})", dict(exam.persister.count(state=state)), {(QUEUE, state): 1})
        exam.clock.tick(0.5)


@INSPECTING("find, select and claim tell the same of a task")
def _records_alike(exam: Exam) -> None:
    exam.create(task=STRANGE_TEXT, expire_at=exam.start + 99)
    exam.settle((exam.claim_one().token, rescheduled(exam, -1)))
    record = exam.claim_one("me", 12.5).record
    equal("what find tells", exam.found(record.id), record)
    equal("what select tells", list(exam.persister.select()), [record])


@INSPECTING("a task that update_task closed is in the state that its error's first words tell")
def _closed_by_update(exam: Exam) -> None:
    for words, state in (
        ("Task failed too many times: no", TaskState.FAILED),
        ("Task expired: late", TaskState.EXPIRED),
        ("Task cancelled: by a person", TaskState.CANCELLED),
        ("Task rejected: no", TaskState.FAILED),
    ):
        task_id = exam.create()
        exam.persister.update_task({**updated(exam, task_id), "run_at": None, "last_error": words})
        record = exam.found(task_id)
        equal(f"the state after {words!r}", (record.state, record.closed_at), (state, exam.start + 3))
        equal("those in the state", _ids(exam.persister.select(state=state))[-1:], [task_id])


@INSPECTING("find tells nothing of ids that no task has, whatever they look like")
def _find_absent(exam: Exam) -> None:
    task_id = exam.create()
    for absent in (0, -1, 2**70, "", "no-such-id", "../x", "a\0b", f"{task_id} ", f"{task_id}0"):
        equal(f"find({absent!r})", exam.persister.find(absent), None)


# --- paging


@INSPECTING("select with limit 0, or a negative one, gives nothing; with a huge one everything")
def _select_limits(exam: Exam) -> None:
    ids = [exam.create(), exam.create()]
    equal("with limit 0", _ids(exam.persister.select(limit=0)), [])
    equal("with limit -1", _ids(exam.persister.select(limit=-1)), [])
    equal("with limit 10**12", _ids(exam.persister.select(limit=10**12)), ids)


@INSPECTING("paging through a thousand tasks gives each once, in the order in which they were created")
def _pages(exam: Exam) -> None:
    number = exam.sized(1000)
    ids = exam.create_all([exam.new(-n % 17) for n in range(number)])
    pages = list(_pages_of(exam, number // 8))
    expect([task_id for page in pages for task_id in page] == ids, "a task is missing, there twice or out of order")
    equal("the number of pages", len(pages), -(-number // (number // 8)))


@INSPECTING("paging isn't disturbed by tasks that come and go meanwhile")
def _pages_meanwhile(exam: Exam) -> None:
    ids = exam.create_all([exam.new(n) for n in range(12)])
    pages = _pages_of(exam, 4)
    seen = next(pages)
    for gone in (ids[0], ids[3], ids[5]):
        exam.persister.delete_task(gone)
    added = exam.create_all([exam.new(-n) for n in range(3)])
    seen += [task_id for page in pages for task_id in page]
    equal("the ids that the pages gave", seen, [*ids[:5], *ids[6:], *added])


@INSPECTING("paging isn't disturbed by tasks that are claimed, closed and put off meanwhile")
def _pages_of_changing(exam: Exam) -> None:
    ids = exam.create_all([exam.new(-n) for n in range(9)])
    pages = _pages_of(exam, 3)
    seen = next(pages)
    claims = exam.claim(6)
    exam.settle(*[(claim.token, way) for claim, way in zip(claims[:2], (closed(exam), rescheduled(exam)), strict=True)])
    seen += [task_id for page in pages for task_id in page]
    equal("the ids that the pages gave", seen, ids)


@INSPECTING("paging within a queue, a state and a stored name gives those tasks only, each once")
def _pages_filtered(exam: Exam) -> None:
    exam.create_all([exam.new(queue=("other", QUEUE)[n % 2], task=(TEXT, "!a:B {}")[n % 3 == 0]) for n in range(24)])
    filters = {"queue": QUEUE, "state": TaskState.PENDING, "tag": "conformance:Sample"}
    seen = [task_id for page in _pages_of(exam, 3, **filters) for task_id in page]
    wanted = [task_id for task_id, row in sorted(exam.rows().items()) if row.task == TEXT]
    equal("the ids that the pages gave", seen, wanted)


@INSPECTING("select tells queues with similar names apart, and so does count")
def _similar_queues(exam: Exam) -> None:
    names = TELLING_NAMES[:12]
    ids = exam.create_all([exam.new(queue=name) for name in names])
    for name, task_id in zip(names, ids, strict=True):
        equal(f"select(queue={name!r})", _ids(exam.persister.select(queue=name)), [task_id])
    equal("all counts", dict(exam.persister.count()), {(name, TaskState.PENDING): 1 for name in names})
    equal("the counts of one", dict(exam.persister.count(queue="a*")), {("a*", TaskState.PENDING): 1})
    equal("the counts of none", dict(exam.persister.count(queue="none")), {})


def _pages_of(exam: Exam, limit: int, **filters: Any) -> Iterator[list[Any]]:
    after = None
    while page := _ids(exam.persister.select(limit=limit, after=after, **filters)):
        yield page
        after = page[-1]
