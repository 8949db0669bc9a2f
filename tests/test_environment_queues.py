"""Queues, as they're declared and named."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py import Environment, UnknownQueueError
from procrastinate_py.core.queue import file_stem
from procrastinate_py.runtime.logs import log_file_name
from tests.environments import Spy, env_on


class Nothing:
    def run(self) -> None:
        pass


@pytest.fixture
def env() -> Environment:
    return Environment(test_mode=True)


def test_a_queue_has_the_gems_defaults(env: Environment) -> None:
    """E7"""
    spec = env.define_queue("email")
    assert (spec.timeout, spec.max_attempts, spec.update_period, spec.max_tasks) == (3600, 20, 10, 10)
    assert env.queues == {"email": spec}


def test_a_queue_takes_options(env: Environment) -> None:
    """E7 U30"""
    spec = env.define_queue(
        "email",
        timeout=1.5,
        max_attempts=3,
        update_period=0.1,
        max_tasks=2,
        backoff=lambda n: 5,
        hook_timeout=2,
        timeout_grace=1,
    )
    assert (spec.timeout, spec.max_attempts, spec.update_period, spec.max_tasks) == (1.5, 3, 0.1, 2)
    assert (spec.backoff(1), spec.hook_timeout, spec.timeout_grace) == (5, 2, 1)


@pytest.mark.parametrize("option", ["timeout", "max_attempts"])
def test_none_means_no_limit(env: Environment, option: str) -> None:
    """E8"""
    options: Any = {option: None}
    assert getattr(env.define_queue("email", **options), option) is None
    if option == "timeout":
        assert env.define_queue("email", timeout=0).timeout is None


BAD_SECONDS = [-1, math.nan, math.inf, True, "3", []]
BAD_COUNTS = [0, -1, 1.5, True, "3", math.inf]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("timeout", value) for value in BAD_SECONDS],
        *[("update_period", value) for value in [*BAD_SECONDS, 0, None]],
        *[("max_attempts", value) for value in BAD_COUNTS],
        *[("max_tasks", value) for value in [*BAD_COUNTS, None]],
    ],
)
def test_a_wrong_option_is_told_with_queue_option_and_value(env: Environment, option: str, value: Any) -> None:
    """E8"""
    with pytest.raises(ValueError) as told:
        env.define_queue("email", **{option: value})  # type: ignore[misc]
    assert all(word in str(told.value) for word in ("'email'", option, repr(value)))
    assert env.queues == {}


@pytest.mark.parametrize("option", ["timeout", "update_period"])
def test_a_number_beyond_all_floats_is_no_number_of_seconds(env: Environment, option: str) -> None:
    """E8"""
    with pytest.raises(ValueError, match=f"'email': {option}"):
        env.define_queue("email", **{option: 10**400})  # type: ignore[misc]


@pytest.mark.parametrize(("name", "error"), [(None, TypeError), (3, TypeError), ("", ValueError), (" \n", ValueError)])
def test_a_wrong_name_is_told(env: Environment, name: Any, error: type[Exception]) -> None:
    """E8"""
    with pytest.raises(error, match="name"):
        env.define_queue(name)


def test_an_unknown_option_is_told_with_the_nearest(env: Environment) -> None:
    """E8"""
    with pytest.raises(TypeError, match="max_attempt'.*did you mean 'max_attempts'"):
        env.define_queue("email", max_attempt=3)  # type: ignore[call-arg]


def test_one_name_has_one_spelling_everywhere() -> None:
    """E9"""
    spy = Spy()
    env = env_on(spy, "  my \t queue ")
    assert list(env.queues) == ["my_queue"]
    task_id = env.delay("my queue", task=Nothing())
    assert spy.rows[task_id]["queue"] == "my_queue"
    assert env.find(task_id).queue == "my_queue"
    assert len(env.act(" my queue")) == 1
    assert {queue for name, queue in spy.calls if name == "read_tasks"} == {"my_queue"}
    assert log_file_name("my_queue") == "my_queue-queue-worker.log"
    with pytest.raises(UnknownQueueError, match="'my_queue'"):
        env.delay("my queues", task=Nothing())


def test_two_names_that_normalise_alike_are_refused(env: Environment) -> None:
    """E9 U4"""
    env.define_queue("my queue", max_tasks=3)
    with pytest.raises(ValueError, match=r"'my_queue'.*'my queue'"):
        env.define_queue("my_queue")
    assert env.queues["my_queue"].max_tasks == 3


def test_a_redefined_queue_has_new_options_and_its_old_place(env: Environment) -> None:
    """E9 U4"""
    env.define_queue("a queue", max_tasks=3, timeout=5)
    env.define_queue("other")
    env.define_queue("a queue", max_attempts=2)
    assert list(env.queues) == ["a_queue", "other"]
    assert (env.queues["a_queue"].max_tasks, env.queues["a_queue"].max_attempts) == (10, 2)
    assert env.queues["a_queue"].timeout == 3600


def test_names_that_differ_in_unicode_normal_form_are_two_queues(env: Environment) -> None:
    """U29 E10"""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    env.define_queue(composed)
    env.define_queue(decomposed)
    assert len(env.queues) == 2
    assert log_file_name(composed) != log_file_name(decomposed)


HOSTILE = ["../../x", "/abs", "nul\0", "\N{PILE OF POO}" * 64, ".", "..", "-rf", "a/b", "%2F", "\udc80", "x" * 5000]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    """E10 U4"""
    file = log_file_name(name)
    assert os.path.dirname(os.path.normpath(tmp_path / file)) == str(tmp_path)
    assert file.endswith("-queue-worker.log")
    assert len(file.encode()) < 255
    (tmp_path / file).touch()
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_no_two_names_share_a_file() -> None:
    """E10"""
    assert len({file_stem(name) for name in [*HOSTILE, "%2E", "%2e", "x" * 5001, "X", "x"]}) == len(HOSTILE) + 5


def test_a_queue_of_hostile_name_works(tmp_path: Path) -> None:
    """E10"""
    env = env_on(f"sqlite:///{tmp_path}/tasks.db", *[name for name in HOSTILE if "\udc80" not in name])
    for name in env.queues:
        env.delay(name, task=Nothing())
    assert len(env.act()) == len(HOSTILE) - 1
    env.stop()
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"tasks.db"}


def test_the_queues_cannot_be_changed_through_the_view(env: Environment) -> None:
    env.define_queue("email")
    with pytest.raises(TypeError):
        env.queues["other"] = env.queues["email"]  # type: ignore[index]
