"""Writing what became of tasks: by their tokens, all in one call."""

from __future__ import annotations

from dataclasses import replace

from ..core.lifecycle import Close, Complete, Release, Reschedule
from ..core.task import TaskState
from ..ports.persister import IncompleteSettle
from .conformance_exam import LEASE, STRANGE_TEXT, Cases, Exam, equal, expect, ids_of

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
    equal("the next look", exam.looks_at(), None)
    equal("the open tasks", list(exam.rows()), [])


@SETTLING("a closed task is kept, with what closed it")
def _closed_is_kept(exam: Exam) -> None:
    exam.needs_inspecting()
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


@SETTLING("one call settles a thousand tasks from several claims")
def _large(exam: Exam) -> None:
    number = exam.sized(1000)
    exam.create_all([exam.new() for _ in range(number)])
    claims = [claim for _ in range(3) for claim in exam.claim(number // 2)]
    equal("the number of claims", len(claims), number)
    equal("the lost tokens", exam.settle(*[(claim.token, Complete()) for claim in claims]), [])
    equal("the number of tasks left", len(exam.rows()), 0)


@SETTLING("one call settles, and one extends, hundreds of tasks of which half are lost")
def _half_lost(exam: Exam) -> None:
    exam.create_all([exam.new() for _ in range(exam.sized(300))])
    tokens = [claim.token for claim in exam.claim(10**6)]
    lost, held = tokens[::2], tokens[1::2]
    exam.settle(*[(token, Complete()) for token in lost])
    expect(sorted(exam.extend(*tokens)) == sorted(lost), "extend didn't tell the lost tokens, and them only")
    told = exam.settle(*[(token, rescheduled(exam, 77)) for token in tokens])
    expect(sorted(told) == sorted(lost), "settle didn't tell the lost tokens, and them only")
    equal("the run_at of the others", {row.run_at for row in exam.rows().values()}, {exam.start + 77})
    equal("the number of the others", len(exam.rows()), len(held))


@SETTLING("settling nothing loses nothing")
def _nothing(exam: Exam) -> None:
    equal("the lost tokens", exam.settle(), [])


@SETTLING("a lapsed lease can still be settled while nobody has taken it over")
def _late(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one(lease_for=1).token
    exam.clock.tick(100)
    equal("the lost tokens", exam.settle((token, Complete())), [])
    equal("the tasks that are left", list(exam.rows()), [])


@SETTLING("the largest number of attempts and instants fit")
def _large_numbers(exam: Exam) -> None:
    exam.create()
    late = Reschedule(run_at=253_402_300_799, attempts=10**6, last_fail_at=253_402_300_799, last_error="Task failed")
    exam.settle((exam.claim_one().token, late))
    row = next(iter(exam.rows().values()))
    equal("the row", (row.run_at, row.attempts, row.last_fail_at), (253_402_300_799, 10**6, 253_402_300_799))
    expect(exam.claim() == [], "a task of the year 9999 was claimed")


@SETTLING("a task that is rescheduled into the past is due at once")
def _into_the_past(exam: Exam) -> None:
    task_id = exam.create()
    exam.settle((exam.claim_one().token, rescheduled(exam, -100)))
    equal("the claim", ids_of(exam.claim()), [task_id])


@SETTLING("the texts of a failure come back whole, be they large or strange")
def _texts_of_failures(exam: Exam) -> None:
    text, error = "!a:B " + "\U0001f600x\u05d0\n" * 2**16, "Task failed: " + "\u00e9'\"\\\n" * 2**13
    exam.create()
    way = replace(rescheduled(exam, 0, task=text), last_error=error)
    equal("the lost tokens", exam.settle((exam.claim_one().token, way)), [])
    record = exam.claim_one().record
    expect(record.task == text, "the task's text is another one, or cut")
    expect(record.last_error == error, "last_error is another text, or cut")


@SETTLING("a failure's text that looks like SQL, Lua, JSON or null is only text")
def _hostile_errors(exam: Exam) -> None:
    texts = ["null", "12", "'); DELETE FROM tasks; --", "]] redis.call('FLUSHALL') --", '{"a": [1]}', "\\u0000 \\0"]
    exam.create_all([exam.new(n) for n in range(len(texts))])
    exam.clock.tick(60)
    claims = exam.claim()
    ways = [replace(rescheduled(exam, 60 + n, task=text), last_error=text) for n, text in enumerate(texts)]
    exam.settle(*[(claim.token, way) for claim, way in zip(claims, ways, strict=True)])
    rows = [exam.rows()[claim.record.id] for claim in claims]
    equal("the texts", [(row.last_error, row.task) for row in rows], [(text, text) for text in texts])


@SETTLING("an outcome that can't be stored keeps no other one from being stored")
def _unstorable(exam: Exam) -> None:
    spoilt, done = exam.create(-2), exam.create(-1)
    bad, good = exam.claim(2)
    way = replace(rescheduled(exam), last_error="Task failed: \ud83d\0")
    try:
        lost = exam.settle((bad.token, way), (good.token, Complete()))
    except IncompleteSettle as incomplete:
        equal("the tokens that couldn't be written", list(incomplete.failures), [bad.token])
        expect(done not in exam.rows(), "the outcome that could be stored wasn't")
        equal("the lost tokens of another try", exam.settle((bad.token, rescheduled(exam))), [])
    except Exception:
        ways = [(bad.token, rescheduled(exam)), (good.token, Complete())]
        equal("the lost tokens of another try", exam.settle(*ways), [])
    else:
        equal("the lost tokens", lost, [])
        equal("the text that was stored", exam.row(spoilt).last_error, way.last_error)
    equal("the open tasks", list(exam.rows()), [spoilt])


@SETTLING("one call settles tasks of several queues")
def _several_queues(exam: Exam) -> None:
    exam.create(), exam.create(queue="other")
    claims = [*exam.claim(), *exam.claim(queue="other")]
    equal("the lost tokens", exam.settle(*[(claim.token, rescheduled(exam, 9)) for claim in claims]), [])
    rows = [*exam.rows().values(), *exam.rows("other").values()]
    equal("the run_at of both", [row.run_at for row in rows], [exam.start + 9] * 2)


@SETTLING("settling leaves tasks alone that aren't named")
def _only_named(exam: Exam) -> None:
    exam.create_all([exam.new() for _ in range(4)])
    claims = exam.claim(3, lease_for=10)
    exam.settle((claims[0].token, Complete()), (claims[1].token, Release()))
    equal("the next look", exam.looks_at(), 0.0)
    exam.clock.tick(11)
    equal("what lapsed", ids_of(exam.lapsed()), [claims[2].record.id])
    equal("the number that can be claimed", len(exam.claim()), 2)
