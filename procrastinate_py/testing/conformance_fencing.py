"""Who may write: the one whose token the row carries, and nobody else, whatever is repeated or comes late."""

from __future__ import annotations

from ..core.lease import LeaseToken
from ..core.lifecycle import Complete, Release
from .conformance_exam import QUEUE, TEXT, Cases, Exam, equal, ids_of
from .conformance_floor import updated
from .conformance_settling import closed, rescheduled

FENCING = Cases("leasing")


@FENCING("a settle that is repeated, since its reply was lost, writes nothing more and calls its tokens lost")
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


@FENCING("a worker whose lease the reaper took over can't write")
def _stale(exam: Exam) -> None:
    exam.create()
    stale = exam.claim_one(lease_for=1).token
    exam.clock.tick(2)
    (held,) = exam.lapsed()
    for way in (Complete(), rescheduled(exam), closed(exam), Release()):
        equal("the lost tokens of the stale worker", exam.settle((stale, way)), [stale])
    equal("the lost tokens of the reaper", exam.settle((held.token, Release())), [])
    equal("attempts", exam.claim_one().record.attempts, 0)


@FENCING("a worker whose task was released and claimed by another can't write")
def _stale_after_release(exam: Exam) -> None:
    exam.create()
    stale = exam.claim_one("me").token
    exam.settle((stale, Release()))
    held = exam.claim_one("you").token
    equal("the lost tokens", exam.settle((stale, Complete())), [stale])
    equal("the lost tokens of the holder", exam.settle((held, Complete())), [])


@FENCING("a token that was never given out writes nothing")
def _forged(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one().token
    forged = LeaseToken(token.task_id, token.value + "x")
    equal("the lost tokens", exam.settle((forged, Complete())), [forged])
    equal("the lost tokens of the holder", exam.settle((token, Complete())), [])


@FENCING("a token belongs to its task: its value writes no other one")
def _token_of_another(exam: Exam) -> None:
    first, second = exam.create(), exam.create()
    one, two = exam.claim_one().token, exam.claim_one().token
    crossed = [LeaseToken(first, two.value), LeaseToken(second, one.value)]
    equal("the lost tokens", sorted(exam.settle(*[(token, Complete()) for token in crossed])), sorted(crossed))
    equal("the open tasks", sorted(exam.rows()), sorted([first, second]))


@FENCING("lost tokens among others don't keep the others from being written")
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


@FENCING("whatever a settle wrote, repeating it writes nothing and calls its token lost")
def _repeated_in_each_way(exam: Exam) -> None:
    for way in (rescheduled(exam, 5), closed(exam), Complete(), Release()):
        exam.create(-1)
        claim = exam.claim_one()
        exam.settle((claim.token, way))
        before = exam.rows()
        equal(f"the lost tokens of a repeated {type(way).__name__}", exam.settle((claim.token, way)), [claim.token])
        equal("the rows after it", exam.rows(), before)
        exam.persister.delete_task(claim.record.id)


@FENCING("a settle repeated together with new outcomes writes the new ones only")
def _repeated_in_part(exam: Exam) -> None:
    done, failed, fresh = (exam.create(n - 3) for n in range(3))
    claims = exam.claim()
    first = [(claims[0].token, Complete()), (claims[1].token, rescheduled(exam, 60))]
    exam.settle(*first)
    again = exam.settle(*first, (claims[2].token, rescheduled(exam, 90)))
    equal("the lost tokens", sorted(again), sorted([claims[0].token, claims[1].token]))
    got = {task_id: (row.run_at, row.attempts) for task_id, row in exam.rows().items()}
    equal("the rows", got, {failed: (exam.start + 60, 1), fresh: (exam.start + 90, 1)})
    equal("whether the completed one is back", done in got, False)


@FENCING("a worker whose tasks were taken over since it was thought dead can't write, though its lease hadn't ended")
def _thought_dead(exam: Exam) -> None:
    exam.create()
    stale = exam.claim_one("thought dead", 1000).token
    (held,) = exam.lapsed(dead_owner="thought dead")
    for way in (Complete(), rescheduled(exam), closed(exam), Release()):
        equal("the lost tokens of the one thought dead", exam.settle((stale, way)), [stale])
    equal("its lost tokens of an extension", exam.extend(stale), [stale])
    equal("the lost tokens of the reaper", exam.settle((held.token, Complete())), [])


@FENCING("a token from an earlier attempt of the same worker writes nothing")
def _earlier_attempt(exam: Exam) -> None:
    exam.create()
    tokens = []
    for way in (Release(), rescheduled(exam, -5)):
        tokens.append(exam.claim_one("me").token)
        exam.settle((tokens[-1], way))
    held = exam.claim_one("me").token
    for stale in tokens:
        equal("the lost tokens", exam.settle((stale, Complete())), [stale])
        equal("the lost tokens of an extension", exam.extend(stale), [stale])
    equal("the lost tokens of the holder", exam.settle((held, Complete())), [])


@FENCING("a token of a task that was rescheduled or closed writes nothing while nobody holds it")
def _nobody_holds(exam: Exam) -> None:
    for way in (rescheduled(exam, 500), closed(exam)):
        exam.create()
        token = exam.claim_one().token
        exam.settle((token, way))
        before = exam.rows()
        for late in (Complete(), Release(), rescheduled(exam, 1)):
            equal("the lost tokens", exam.settle((token, late)), [token])
        equal("the rows", exam.rows(), before)


@FENCING("stale tokens beside the holder's own in one call change nothing for the holder")
def _stale_beside(exam: Exam) -> None:
    task_id = exam.create()
    stale = exam.claim_one(lease_for=1).token
    exam.clock.tick(2)
    (held,) = exam.lapsed()
    lost = exam.settle((stale, Complete()), (held.token, rescheduled(exam, 50)), (stale, closed(exam)))
    equal("the lost tokens", set(lost), {stale})
    equal("run_at", exam.row(task_id).run_at, exam.start + 50)


@FENCING("update_task leaves a task that is in hand in its holder's hand")
def _updated_in_hand(exam: Exam) -> None:
    task_id = exam.create()
    token = exam.claim_one(lease_for=10).token
    exam.persister.update_task({**updated(exam, task_id), "run_at": exam.start - 5, "task": TEXT})
    equal("the claim after the update", ids_of(exam.claim()), [])
    equal("the lost tokens of an extension", exam.extend(token, lease_for=10), [])
    equal("the lost tokens of the settle", exam.settle((token, Release())), [])
    record = exam.claim_one().record
    equal("the record", (record.id, record.run_at, record.attempts), (task_id, exam.start - 5, 1_000_000))


@FENCING("update_task that closes a task in hand takes it out of the hand")
def _closed_in_hand(exam: Exam) -> None:
    task_id = exam.create()
    token = exam.claim_one(lease_for=1).token
    exam.persister.update_task({**updated(exam, task_id), "run_at": None})
    equal("the lost tokens", exam.settle((token, rescheduled(exam, 0))), [token])
    exam.clock.tick(5)
    equal("what lapsed", ids_of(exam.lapsed()), [])
    equal("the claim", ids_of(exam.claim()), [])
    equal("the open tasks", list(exam.rows(QUEUE)), [])


@FENCING("tokens are told apart after the store was opened anew, as before")
def _fenced_after_reopening(exam: Exam) -> None:
    exam.needs_reopening()
    exam.create()
    stale = exam.claim_one(lease_for=1).token
    exam.clock.tick(2)
    (held,) = exam.lapsed()
    exam.reopen()
    equal("the lost tokens of the stale one", exam.settle((stale, Complete())), [stale])
    equal("the lost tokens of the holder", exam.settle((held.token, Release())), [])
    again = exam.claim_one().token
    equal("the number of different tokens", len({stale, held.token, again}), 3)
