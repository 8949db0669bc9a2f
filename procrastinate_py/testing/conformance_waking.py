"""Waking those who wait: by notify, and by the store itself where it has something to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..core.lifecycle import Complete
from ..ports.persister import Creating, Editing, Inspecting
from .conformance_exam import QUEUE, Cases, Exam, Inapplicable, calm, equal, expect, ids_of, sleep
from .conformance_floor_values import LONG_NAMES
from .conformance_races import THREADS, race, race_processes
from .conformance_settling import closed, rescheduled

WAKING = Cases("waking")


@contextlib.contextmanager
def listening(exam: Exam, queue: str = QUEUE) -> Iterator[Any]:
    listener = exam.persister.listen(queue)
    try:
        calm(listener)
        yield listener
    finally:
        listener.close()


@WAKING("notify makes a listener readable, until it drains")
def _wake(exam: Exam) -> None:
    with listening(exam) as listener:
        for _ in range(2):
            exam.persister.notify(QUEUE)
            expect(exam.wakes(listener), "notify didn't wake the listener")
            expect(exam.wakes(listener), "the wake-up was gone before drain")
            calm(listener)


@WAKING("notify wakes every listener of its queue, and none of another's")
def _wake_all(exam: Exam) -> None:
    with listening(exam) as one, listening(exam) as two, listening(exam, "other") as other:
        exam.persister.notify(QUEUE)
        expect(exam.wakes(one) and exam.wakes(two), "a listener of the queue slept on")
        expect(sleep(other), "a listener of another queue woke up")


@WAKING("draining one listener leaves another's wake-up where it is")
def _drained_apart(exam: Exam) -> None:
    with listening(exam) as one, listening(exam) as two:
        exam.persister.notify(QUEUE)
        expect(exam.wakes(one) and exam.wakes(two), "a listener of the queue slept on")
        calm(one)
        expect(exam.wakes(two), "the other listener's wake-up is gone")


@WAKING("notify raises nothing and doesn't block, with nobody listening or nobody draining")
def _wake_nobody(exam: Exam) -> None:
    exam.persister.notify(QUEUE)
    with listening(exam) as listener:
        for _ in range(100):
            exam.persister.notify(QUEUE)
        expect(exam.wakes(listener), "a hundred wake-ups didn't wake the listener")
        calm(listener)
    exam.persister.notify(QUEUE)


@WAKING("a wake-up that comes after drain, and before anybody waits, isn't lost")
def _not_lost(exam: Exam) -> None:
    with listening(exam) as listener:
        for _ in range(5):
            listener.drain()
            exam.persister.notify(QUEUE)
            expect(exam.wakes(listener), "the wake-up was lost")


@WAKING("create_task wakes the queue's listener, which can claim the task then, and no other queue's")
def _create_wakes(exam: Exam) -> None:
    with listening(exam) as listener, listening(exam, "other") as other:
        task_id = exam.create()
        expect(exam.wakes(listener), "create_task didn't wake the listener")
        equal("the claim of the one that woke", ids_of(exam.claim()), [task_id])
        expect(sleep(other), "a listener of another queue woke up")


@WAKING("create_task wakes for a task of the future too, since it may be the next to look at")
def _future_wakes(exam: Exam) -> None:
    with listening(exam) as listener:
        exam.create(5)
        expect(exam.wakes(listener), "create_task didn't wake the listener")
        equal("the next look", exam.looks_at(), 5.0)


@WAKING("create_many wakes the listeners of each queue that got a task, and no others")
def _create_many_wakes(exam: Exam) -> None:
    if not isinstance(exam.persister, Creating):
        raise Inapplicable("it needs a persister with create_many")
    with listening(exam, "a") as one, listening(exam, "b") as two, listening(exam, "c") as other:
        exam.persister.create_many([exam.new(queue=name) for name in ("a", "b", "a")])
        expect(exam.wakes(one) and exam.wakes(two), "create_many left a listener asleep")
        expect(sleep(other), "a listener of another queue woke up")


@WAKING("a transition that makes a task due wakes the queue's listener, and no other queue's")
def _transition_wakes(exam: Exam) -> None:
    if not (isinstance(exam.persister, Editing) and isinstance(exam.persister, Inspecting)):
        raise Inapplicable("it needs a persister with transition and find")
    task_id = exam.create()
    exam.settle((exam.claim_one().token, closed(exam)))
    with listening(exam) as listener, listening(exam, "other") as other:
        exam.transition(task_id, exam.found(task_id), rescheduled(exam, 0))
        expect(exam.wakes(listener), "the transition didn't wake the listener")
        equal("the claim of the one that woke", ids_of(exam.claim()), [task_id])
        expect(sleep(other), "a listener of another queue woke up")


@WAKING("looking, claiming, extending and completing wake nobody")
def _idle_calls(exam: Exam) -> None:
    exam.create()
    with listening(exam) as listener:
        exam.rows()
        token = exam.claim_one().token
        exam.extend(token)
        exam.lapsed()
        exam.looks_at()
        exam.settle((token, Complete()))
        expect(sleep(listener), "a call that makes nothing due woke the listener: workers would never rest")


@WAKING("a listener can be closed twice, and the others go on")
def _closed(exam: Exam) -> None:
    with listening(exam) as kept:
        with listening(exam) as closed_one:
            pass
        closed_one.close()
        exam.persister.notify(QUEUE)
        expect(exam.wakes(kept), "the listener that wasn't closed slept on")


@WAKING("a queue can be listened to again after its last listener was closed")
def _listened_again(exam: Exam) -> None:
    for _ in range(3):
        with listening(exam) as listener:
            exam.persister.notify(QUEUE)
            expect(exam.wakes(listener), "notify didn't wake the new listener")


@WAKING("queues with similar or long names wake their own listeners only")
def _names_apart(exam: Exam) -> None:
    names = ("a", "A", "a.1", "a:1", "a*", "a'b", "\u00e9", *LONG_NAMES[:3])
    with contextlib.ExitStack() as stack:
        listeners = {name: exam.persister.listen(name) for name in names}
        for listener in listeners.values():
            stack.callback(listener.close)
        calm(*listeners.values())
        for name in ("a", "a*", "\u00e9", LONG_NAMES[0]):
            exam.persister.notify(name)
            expect(exam.wakes(listeners[name]), f"notify didn't wake the listener of queue {name!r}")
            others = [listeners[other] for other in names if other != name]
            expect(sleep(*others), f"notify of queue {name!r} woke a listener of another queue")
            calm(listeners[name])


@WAKING("threads that notify at the same time wake a listener, and none of them fails")
def _racing(exam: Exam) -> None:
    with listening(exam) as listener:
        race(THREADS, lambda: exam.persister.notify(QUEUE))
        expect(exam.wakes(listener), "none of the wake-ups came through")


@WAKING("what another process creates wakes a listener")
def _from_another_process(exam: Exam) -> None:
    exam.needs_processes()
    with listening(exam) as listener, listening(exam, "other") as other:
        race_processes(1, lambda: [exam.create()])
        expect(exam.wakes(listener), "the listener slept on")
        expect(sleep(other), "a listener of another queue woke up")
        equal("the number that can be claimed", len(exam.claim()), 1)
