"""By whose clock a store goes."""

from __future__ import annotations

from ..ports.persister import Inspecting
from .conformance_exam import Cases, Exam, equal

TIMEKEEPING = Cases("timekeeping")


@TIMEKEEPING("now is in epoch seconds, by the clock that the persister was given")
def _now(exam: Exam) -> None:
    equal("now", exam.persister.now(), exam.clock.now())
    exam.clock.tick(1.5)
    equal("now after 1.5 s", exam.persister.now(), exam.clock.now())


@TIMEKEEPING("now follows a clock that steps back, or leaps ahead")
def _now_steps(exam: Exam) -> None:
    for instant in (exam.start - 3600.25, exam.start + 86_400.0 * 400, 0.5):
        exam.clock.move_to(instant)
        equal("now", exam.persister.now(), instant)


@TIMEKEEPING("records tell when they were read")
def _read_at(exam: Exam) -> None:
    exam.create()
    exam.clock.tick(2.5)
    equal("read_at of a claim", exam.claim_one(lease_for=1).record.read_at, exam.start + 2.5)
    exam.clock.tick(3)
    equal("read_at of what lapsed", exam.lapsed()[0].record.read_at, exam.start + 5.5)


@TIMEKEEPING("records that were looked at tell when they were read")
def _looked_at(exam: Exam) -> None:
    exam.needs_inspecting()
    assert isinstance(exam.persister, Inspecting)
    task_id = exam.create()
    exam.clock.tick(2.5)
    equal("read_at by find", exam.found(task_id).read_at, exam.start + 2.5)
    exam.clock.tick(1)
    equal("read_at by select", [record.read_at for record in exam.persister.select()], [exam.start + 3.5])
