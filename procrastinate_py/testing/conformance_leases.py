"""What becomes of leases: extended, lapsed, taken over; and when there's something to do next."""

from __future__ import annotations

from ..core.lease import LeaseToken
from ..core.lifecycle import Complete, Release
from ..ports.persister import Closing
from .conformance_exam import LEASE, STRANGE_TEXT, TEXT, Cases, Exam, Inapplicable, equal, expect, ids_of
from .conformance_floor_values import LATEST
from .conformance_settling import closed, rescheduled

LEASES = Cases("leasing")


@LEASES("extend makes a lease last from now on, whatever was left of it")
def _extend(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one(lease_for=10).token
    exam.clock.tick(8)
    equal("the lost tokens", exam.extend(token, lease_for=10.0), [])
    exam.clock.tick(10)
    equal("what has lapsed at the new end", ids_of(exam.lapsed()), [])
    exam.clock.tick(0.5)
    equal("what has lapsed after the new end", ids_of(exam.lapsed()), [token.task_id])


@LEASES("extend brings a lapsed lease back that nobody has taken over")
def _extend_lapsed(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one(lease_for=10).token
    exam.clock.tick(20)
    equal("the lost tokens", exam.extend(token, lease_for=10.0), [])
    equal("what has lapsed after it", ids_of(exam.lapsed()), [])


@LEASES("extend returns the tokens whose lease is gone or another's, and extends the rest")
def _extend_lost(exam: Exam) -> None:
    done, taken, kept = exam.create(), exam.create(), exam.create()
    tokens = {claim.record.id: claim.token for claim in exam.claim(2, lease_for=10)}
    tokens[kept] = exam.claim_one(lease_for=60).token
    exam.settle((tokens[done], Complete()))
    exam.clock.tick(20)
    equal("what the reaper gets", ids_of(exam.lapsed()), [taken])
    lost = exam.extend(tokens[done], tokens[kept], tokens[taken], lease_for=100.0)
    equal("the lost tokens", sorted(lost), sorted([tokens[done], tokens[taken]]))
    exam.clock.tick(90)
    expect(kept not in ids_of(exam.lapsed()), "the lease that wasn't lost wasn't extended")


@LEASES("extending one task of a claim doesn't extend the others")
def _extend_one(exam: Exam) -> None:
    first, second = exam.create(), exam.create()
    claims = exam.claim(2, lease_for=10)
    exam.extend(claims[0].token, lease_for=100.0)
    exam.clock.tick(20)
    equal("what has lapsed", ids_of(exam.lapsed()), [second])
    equal("the first of the claim", claims[0].record.id, first)


@LEASES("extending nothing loses nothing")
def _extend_nothing(exam: Exam) -> None:
    equal("the lost tokens", exam.extend(), [])


@LEASES("the token stays the same when its lease is extended, however often")
def _extended_token(exam: Exam) -> None:
    exam.create()
    token = exam.claim_one(lease_for=10).token
    for _ in range(3):
        equal("the lost tokens", exam.extend(token, lease_for=10), [])
        exam.clock.tick(8)
    equal("the lost tokens of the settle", exam.settle((token, Complete())), [])


@LEASES("extend can make a lease end sooner")
def _extend_shorter(exam: Exam) -> None:
    task_id = exam.create()
    token = exam.claim_one(lease_for=1000).token
    exam.extend(token, lease_for=5)
    exam.clock.tick(5.5)
    equal("what has lapsed", ids_of(exam.lapsed()), [task_id])


@LEASES("extend by a token that was never given out, or another task's, is lost and extends nothing")
def _extend_forged(exam: Exam) -> None:
    ids = [exam.create(), exam.create()]
    one, two = exam.claim_one(lease_for=10).token, exam.claim_one(lease_for=10).token
    wrong = [LeaseToken(ids[0], two.value), LeaseToken(ids[0], one.value + "x"), LeaseToken(ids[1], "")]
    if one.value == two.value:
        wrong = wrong[1:]
    equal("the lost tokens", sorted(exam.extend(*wrong, lease_for=100)), sorted(wrong))
    exam.clock.tick(10.5)
    equal("what has lapsed", ids_of(exam.lapsed()), ids)


@LEASES("extend by a stale token leaves the new holder's lease alone")
def _extend_stale(exam: Exam) -> None:
    task_id = exam.create()
    stale = exam.claim_one(lease_for=1).token
    exam.clock.tick(2)
    exam.lapsed()
    equal("the lost tokens", exam.extend(stale, lease_for=1000), [stale])
    exam.clock.tick(LEASE + 0.5)
    equal("what has lapsed of the reaper's", ids_of(exam.lapsed("another")), [task_id])


@LEASES("extend of a task that was released or rescheduled is lost")
def _extend_released(exam: Exam) -> None:
    for way in (Release(), rescheduled(exam, 900), closed(exam)):
        exam.create(-1)
        token = exam.claim_one().token
        exam.settle((token, way))
        equal("the lost tokens", exam.extend(token), [token])
        equal("what lapses or is leased", [*ids_of(exam.lapsed(dead_owner="worker")), *ids_of(exam.lapsed())], [])
        for claim in exam.claim():
            exam.settle((claim.token, Complete()))


# --- reaping


@LEASES("a lease has lapsed after its end, and not at it")
def _lapsed(exam: Exam) -> None:
    task_id = exam.create()
    exam.create(1000)
    exam.claim_one(lease_for=10)
    exam.clock.tick(10)
    equal("what has lapsed at the end", ids_of(exam.lapsed()), [])
    exam.clock.tick(0.25)
    equal("what has lapsed after it", ids_of(exam.lapsed()), [task_id])


@LEASES("what lapsed leases to the reaper, under a new token and for a full time")
def _lapsed_leases(exam: Exam) -> None:
    exam.create(task=STRANGE_TEXT)
    old = exam.claim_one(lease_for=1)
    exam.clock.tick(2)
    (claim,) = exam.lapsed("reaper")
    expect(claim.token != old.token, "the reaper got the token of the lapsed lease")
    equal("the record's task", claim.record.task, STRANGE_TEXT)
    assert claim.record.lease is not None
    equal("the lease's owner", claim.record.lease.owner, "reaper")
    equal("the lease's end", float(claim.record.lease.expires_at), exam.start + 2 + LEASE)
    equal("a second reaper's find", ids_of(exam.lapsed("other")), [])
    equal("the lost tokens of the reaper's settle", exam.settle((claim.token, Complete())), [])


@LEASES("lapsed keeps to its limit, its queue, and the order of run_at, then id")
def _lapsed_limit(exam: Exam) -> None:
    ids = [exam.create(-n) for n in (1, 3, 2)]
    exam.create(queue="other")
    exam.claim(lease_for=1)
    exam.claim(lease_for=1, queue="other")
    exam.clock.tick(2)
    equal("the first find of 2", ids_of(exam.lapsed(limit=2)), [ids[1], ids[2]])
    equal("the second find of 2", ids_of(exam.lapsed(limit=2)), [ids[0]])


@LEASES("a dead owner's tasks are had at once, and nobody else's with them")
def _dead_owner(exam: Exam) -> None:
    dead, living, long_gone = exam.create(), exam.create(), exam.create()
    exam.claim_one("dead")
    exam.claim_one("living")
    exam.claim_one("long gone", lease_for=1)
    exam.create()
    exam.clock.tick(2)
    equal("the dead owner's", ids_of(exam.lapsed(dead_owner="dead")), [dead])
    equal("the dead owner's, asked again", ids_of(exam.lapsed(dead_owner="dead")), [])
    equal("what lapsed by itself", ids_of(exam.lapsed()), [long_gone])
    expect(living not in ids_of(exam.lapsed()), "a living owner's task was taken away")


@LEASES("a worker has by its own name what a claim gave it whose reply was lost")
def _own_name(exam: Exam) -> None:
    task_id = exam.create()
    unheard_of = exam.claim_one("worker").token
    (again,) = exam.lapsed("worker", dead_owner="worker")
    equal("the task", again.record.id, task_id)
    equal("the lost tokens of the claim that nobody heard of", exam.settle((unheard_of, Complete())), [unheard_of])
    equal("the lost tokens of the new one", exam.settle((again.token, Complete())), [])


@LEASES("lapsed with limit 0, or a negative one, takes nothing")
def _lapsed_none(exam: Exam) -> None:
    task_id = exam.create()
    exam.claim_one(lease_for=1)
    exam.clock.tick(2)
    equal("with limit 0", ids_of(exam.lapsed(limit=0)), [])
    equal("with limit -1", ids_of(exam.lapsed(limit=-1)), [])
    equal("with limit -1, of a dead owner", ids_of(exam.lapsed(limit=-1, dead_owner="worker")), [])
    equal("with a huge limit", ids_of(exam.lapsed(limit=10**12)), [task_id])


@LEASES("lapsed finds nothing where nothing was claimed, or no queue of that name is known")
def _lapsed_nothing(exam: Exam) -> None:
    exam.create(-5)
    exam.clock.tick(86_400)
    equal("the tasks that nobody claimed", ids_of(exam.lapsed()), [])
    equal("an unknown queue's", ids_of(exam.lapsed(queue="none")), [])
    equal("a dead owner's who had none", ids_of(exam.lapsed(dead_owner="nobody")), [])


@LEASES("a reaper's own lease lapses too, and then its token is as stale as any")
def _reaper_dies(exam: Exam) -> None:
    task_id = exam.create()
    first = exam.claim_one(lease_for=1).token
    exam.clock.tick(2)
    (second,) = exam.lapsed("reaper")
    exam.clock.tick(LEASE + 0.5)
    (third,) = exam.lapsed("another")
    equal("the task", third.record.id, task_id)
    equal("the number of different tokens", len({first, second.token, third.token}), 3)
    for stale in (first, second.token):
        equal("the lost tokens of a former holder", exam.settle((stale, Complete())), [stale])
    equal("the lost tokens of the holder", exam.settle((third.token, Complete())), [])


@LEASES("taking over a lapsed lease changes nothing else of the task")
def _lapsed_changes_nothing(exam: Exam) -> None:
    exam.create(-3, expire_at=exam.start + 1)
    exam.settle((exam.claim_one().token, rescheduled(exam, 0)))
    before = exam.claim_one(lease_for=1).record
    exam.clock.tick(5)
    (claim,) = exam.lapsed()
    equal("the record", claim.record.as_mapping(), before.as_mapping())


@LEASES("a dead owner's tasks that lapsed already are had by its name, too")
def _dead_and_lapsed(exam: Exam) -> None:
    ids = [exam.create(), exam.create()]
    exam.claim(1, owner="dead", lease_for=1)
    exam.claim(1, owner="dead", lease_for=100)
    exam.clock.tick(2)
    equal("the dead owner's", ids_of(exam.lapsed(dead_owner="dead")), ids)


@LEASES("a dead owner's tasks of another queue are left to that queue's reaper")
def _dead_in_queues(exam: Exam) -> None:
    mine, other = exam.create(), exam.create(queue="other")
    exam.claim(owner="dead")
    exam.claim(owner="dead", queue="other")
    equal("this queue's", ids_of(exam.lapsed(dead_owner="dead")), [mine])
    equal("the other queue's", ids_of(exam.lapsed(dead_owner="dead", queue="other")), [other])


@LEASES("owners are told apart by their whole names, whatever these hold")
def _owner_names(exam: Exam) -> None:
    owners = ["host/1:2", "host/1:21", "host/1", "Host/1", "h' OR 1=1 --", "{h}*", "%", "\u00e9", "e\u0301", "x" * 200]
    ids = []
    for owner in owners:
        ids.append(exam.create())
        equal("the claim's owner", getattr(exam.claim_one(owner).record.lease, "owner", None), owner)
    for owner, task_id in zip(owners, ids, strict=True):
        equal(f"the tasks of owner {owner!r}", ids_of(exam.lapsed(dead_owner=owner)), [task_id])


@LEASES("a task that its reaper releases can be claimed again")
def _reaped_and_released(exam: Exam) -> None:
    task_id = exam.create()
    exam.claim_one(lease_for=1)
    exam.clock.tick(2)
    (claim,) = exam.lapsed()
    exam.settle((claim.token, Release()))
    equal("the claim", ids_of(exam.claim()), [task_id])


@LEASES("queues with similar names share neither leases nor looks")
def _queues_apart(exam: Exam) -> None:
    names = ["q", "Q", "q:1", "q/1", "q*", "{q}", "q%", "q_"]
    ids = exam.create_all([exam.new(queue=name) for name in names])
    for number, name in enumerate(names):
        exam.claim(queue=name, lease_for=10 + number)
        equal(f"the next look at {name!r}", exam.looks_at(name), 10.0 + number)
    exam.clock.tick(60)
    for name, task_id in zip(names, ids, strict=True):
        equal(f"what lapsed of queue {name!r}", ids_of(exam.lapsed(queue=name)), [task_id])


@LEASES("leases outlive the store's being opened anew")
def _leases_are_durable(exam: Exam) -> None:
    exam.needs_reopening()
    held, free = exam.create(-1), exam.create()
    token = exam.claim_one("me").token
    exam.reopen()
    equal("the claim after opening anew", ids_of(exam.claim()), [free])
    equal("the lost tokens of the first claim", exam.settle((token, Complete())), [])
    expect(held not in exam.rows(), "the settled task is still there")


# --- knowing when to look


@LEASES("the next look is due at the earliest run_at or end of a lease, and never where there is neither")
def _next_look(exam: Exam) -> None:
    equal("the next look without tasks", exam.looks_at(), None)
    exam.create(90, queue="other")
    exam.create(50)
    exam.create(40)
    equal("the next look", exam.looks_at(), 40.0)
    exam.create()
    equal("the next look", exam.looks_at(), 0.0)
    token = exam.claim_one(lease_for=20.5).token
    equal("the next look", exam.looks_at(), 20.5)
    exam.extend(token, lease_for=60.0)
    equal("the next look", exam.looks_at(), 40.0)
    exam.settle((token, Complete()))
    equal("the next look", exam.looks_at(), 40.0)


@LEASES("a task that is deleted while in hand can't be written, and isn't looked for")
def _deleted_in_hand(exam: Exam) -> None:
    task_id = exam.create(task=TEXT)
    token = exam.claim_one().token
    exam.persister.delete_task(task_id)
    equal("the lost tokens", exam.settle((token, Release())), [token])
    equal("the next look", exam.looks_at(), None)


@LEASES("the next look is at the earliest of all ends of leases, and follows each extension")
def _next_look_at_leases(exam: Exam) -> None:
    for _ in range(3):
        exam.create()
    claims = [exam.claim_one(lease_for=lease_for) for lease_for in (30, 10, 20)]
    equal("the next look", exam.looks_at(), 10.0)
    exam.extend(claims[1].token, lease_for=50)
    equal("the next look after the earliest was extended", exam.looks_at(), 20.0)
    exam.settle((claims[2].token, Complete()))
    equal("the next look after the next was settled", exam.looks_at(), 30.0)


@LEASES("the next look is in the past where something has been due, or lapsed, for long")
def _next_look_in_the_past(exam: Exam) -> None:
    exam.create(-50)
    equal("the next look", exam.looks_at(), -50.0)
    exam.claim_one(lease_for=5)
    exam.clock.tick(100)
    equal("the next look after the lease", exam.looks_at(), 5.0)


@LEASES("the next look follows what is created, rescheduled, released, updated and deleted")
def _next_look_follows(exam: Exam) -> None:
    first = exam.create(40)
    second = exam.create(70)
    exam.persister.update_task({**exam.row(first).as_mapping(), "run_at": exam.start + 90})
    equal("the next look after an update", exam.looks_at(), 70.0)
    exam.persister.delete_task(second)
    equal("the next look after a deletion", exam.looks_at(), 90.0)
    exam.create(0)
    exam.settle((exam.claim_one().token, rescheduled(exam, 31)))
    equal("the next look after a reschedule", exam.looks_at(), 31.0)
    exam.create(0)
    exam.settle((exam.claim_one().token, Release()))
    equal("the next look after a release", exam.looks_at(), 0.0)


@LEASES("the next look is told for the year 9999, and for instants before 1970")
def _next_look_far_away(exam: Exam) -> None:
    exam.create(LATEST - exam.start)
    equal("the next look", exam.looks_at(), float(LATEST - exam.start))
    exam.create(-7 - exam.start)
    equal("the next look before 1970", exam.looks_at(), float(-7 - exam.start))


@LEASES("a persister can be used after it was closed, and closed twice")
def _closed_and_used(exam: Exam) -> None:
    if not isinstance(exam.persister, Closing):
        raise Inapplicable("it needs a persister that can be closed")
    exam.create()
    exam.persister.close()
    exam.persister.close()
    task_id = exam.create(-1)
    equal("the claim", ids_of(exam.claim(1)), [task_id])


@LEASES("what was claimed, closed and rescheduled is so after the store was opened anew")
def _states_are_durable(exam: Exam) -> None:
    exam.needs_reopening()
    later, dead, held = exam.create(-3), exam.create(-2), exam.create(-1)
    exam.settle((exam.claim_one().token, rescheduled(exam, 40)))
    exam.settle((exam.claim_one().token, closed(exam)))
    token = exam.claim_one(lease_for=10).token
    exam.reopen()
    equal("the lost tokens of an extension", exam.extend(token, lease_for=10), [])
    equal("the next look", exam.looks_at(), 10.0)
    exam.clock.tick(41)
    equal("what lapsed", ids_of(exam.lapsed()), [held])
    equal("the claim", ids_of(exam.claim()), [later])
    expect(dead not in exam.rows(), "a closed task is open again")
