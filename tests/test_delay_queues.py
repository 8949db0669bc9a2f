"""Which queue a delayed task goes to, in each way of saying it."""

from __future__ import annotations

from typing import Any

import pytest

from procrastinate_py import Delayed, Environment, MalformedTaskError, NoQueueError, UnknownQueueError
from tests.environments import Spy, env_on


class Nothing:
    def run(self) -> None:
        pass


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def one(spy: Spy) -> Environment:
    return env_on(spy, "email")


@pytest.fixture
def several(spy: Spy) -> Environment:
    return env_on(spy, "email", "cleanup", "a report")


def queue_of(env: Environment, task_id: Any) -> str:
    return env.find(task_id).queue


def test_the_three_forms_are_the_same(one: Environment, spy: Spy) -> None:
    """E12"""
    one.delay("email", task=Nothing())
    one.delay(queue="email", task=Nothing())
    one.delay(Nothing())
    one.delay(task=Nothing())
    one.delay(None, task=Nothing())
    one.delay(Nothing(), queue="email")
    rows = [data for name, data in spy.calls if name == "create_task"]
    assert len(rows) == 6
    assert all(row == rows[0] for row in rows)


def test_the_only_queue_is_the_default(one: Environment) -> None:
    """E12"""
    assert queue_of(one, one.delay(task=Nothing())) == "email"


def test_of_several_queues_one_must_be_named(several: Environment, spy: Spy) -> None:
    """E12"""
    for delay in (lambda: several.delay(task=Nothing()), lambda: several.delay(Nothing())):
        with pytest.raises(ValueError, match="'email', 'cleanup', 'a_report'"):
            delay()
    assert spy.names() == []
    assert queue_of(several, several.delay("cleanup", task=Nothing())) == "cleanup"


def test_an_unknown_queue_is_told_with_the_known_and_the_nearest(several: Environment, spy: Spy) -> None:
    """E12"""
    with pytest.raises(UnknownQueueError, match=r"'emial' \(did you mean 'email'\?\).*'email', 'cleanup', 'a_report'"):
        several.delay("emial", task=Nothing())
    with pytest.raises(UnknownQueueError) as told:
        several.delay("zzz", task=Nothing())
    assert "did you mean" not in str(told.value)
    assert spy.names() == []


def test_without_a_queue_defined_nothing_can_be_delayed() -> None:
    """E12"""
    env = Environment(test_mode=True)
    with pytest.raises(NoQueueError, match="define_queue"):
        env.delay(Nothing())
    with pytest.raises(UnknownQueueError, match="none"):
        env.delay("email", task=Nothing())


@pytest.mark.parametrize("queue", [3, True, b"email", ["email"], object()])
def test_a_queue_that_is_no_str_is_refused(one: Environment, queue: Any) -> None:
    """E12"""
    with pytest.raises(TypeError, match="queue"):
        one.delay(queue, task=Nothing())
    with pytest.raises(TypeError, match="queue"):
        one.delay(queue=queue, task=Nothing())


def test_an_empty_name_is_not_the_default(one: Environment) -> None:
    """E12"""
    with pytest.raises(ValueError, match="empty"):
        one.delay("", task=Nothing())


def test_two_queues_are_one_too_many(one: Environment) -> None:
    """E12"""
    with pytest.raises(TypeError, match="two queues"):
        one.delay("email", queue="email", task=Nothing())  # type: ignore[call-overload]


def test_a_task_must_be_given(one: Environment) -> None:
    """E12 E13"""
    with pytest.raises(MalformedTaskError, match="task="):
        one.delay("email")  # type: ignore[call-overload]
    with pytest.raises(MalformedTaskError, match="task="):
        one.delay()  # type: ignore[call-overload]


def test_an_unknown_option_is_told_with_the_nearest(one: Environment, spy: Spy) -> None:
    """E12"""
    with pytest.raises(TypeError, match=r"run_a' \(did you mean 'run_at'\?\).*run_at, expire_at"):
        one.delay("email", task=Nothing(), run_a=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="whatever"):
        one.delay("email", task=Nothing(), whatever=None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="did you mean 'expire_at'"):
        one.delay_many([("email", Nothing(), {"expires_at": 3})])
    assert spy.names() == []


# --- many at once


@pytest.mark.parametrize("kind", ["floor", "memory"])
def test_many_are_stored_in_order(kind: str) -> None:
    """E12"""
    env = env_on(Spy() if kind == "floor" else None, "email", "cleanup")
    ids = env.delay_many(
        [
            ("email", Nothing(), {"run_at": 5}),
            ("cleanup", Nothing(), {}),
            ("cleanup", Nothing()),
            Delayed(queue="email", task=Nothing(), run_at=7, expire_at=9),
        ]
    )
    records = [env.find(task_id) for task_id in ids]
    assert [record.queue for record in records] == ["email", "cleanup", "cleanup", "email"]
    assert [record.run_at for record in records][::3] == [5, 7]
    assert records[3].expire_at == 9
    assert ids == sorted(ids)


def test_many_may_come_from_a_generator_and_may_be_none(one: Environment) -> None:
    assert one.delay_many(Delayed(task=Nothing()) for _ in range(3)) == [1, 2, 3]
    assert one.delay_many([]) == []


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (("email", 3, {}), MalformedTaskError),
        (("emial", Nothing(), {}), UnknownQueueError),
        (("email", Nothing(), {"run_at": True}), TypeError),
        (("email", Nothing(), {}, 1), TypeError),
        (Nothing(), TypeError),
        ("em", TypeError),
    ],
)
def test_one_wrong_item_means_that_none_is_stored(
    one: Environment, spy: Spy, item: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as told:
        one.delay_many([("email", Nothing(), {}), item])
    assert any("number 1" in note for note in told.value.__notes__)
    assert spy.names() == []
