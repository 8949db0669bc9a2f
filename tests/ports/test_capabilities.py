"""E4: what a persister can do, asked once."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import pytest

from procrastinate_py.core.errors import MalformedPersisterError, UnsupportedByPersisterError
from procrastinate_py.ports.capabilities import Capabilities, check_floor
from procrastinate_py.ports.persister import FLOOR_METHODS, Persister


def a_persister(*methods: str, **attributes: Any) -> Any:
    made = {name: lambda self, *_: None for name in methods}
    return type("MyPersister", (), {**made, **attributes})()


ABILITIES = {
    "leasing": ["claim", "extend", "settle", "lapsed", "next_look_at"],
    "creating": ["create_many"],
    "joining": ["create_in"],
    "editing": ["transition"],
    "waking": ["notify", "listen"],
    "inspecting": ["find", "select", "count"],
    "timekeeping": ["now"],
}


def test_no_persister_at_all_is_told() -> None:
    """E4"""
    with pytest.raises(ValueError, match="the persister is None"):
        check_floor(None)


@pytest.mark.parametrize("count", range(4))
def test_every_missing_method_is_named_at_once(count: int) -> None:
    """E4"""
    for present in itertools.combinations(FLOOR_METHODS, count):
        with pytest.raises(MalformedPersisterError) as caught:
            check_floor(a_persister(*present))
        lacks, _, _ = str(caught.value).partition(":")
        assert lacks.startswith("persister MyPersister lacks ")
        assert set(lacks.removeprefix("persister MyPersister lacks ").split(", ")) == set(FLOOR_METHODS) - set(present)


def test_a_method_that_cannot_be_called_is_missing() -> None:
    """E4"""
    persister = a_persister("read_tasks", "create_task", "update_task", delete_task=5)
    with pytest.raises(MalformedPersisterError, match="lacks delete_task:"):
        check_floor(persister)


def test_the_four_methods_are_enough_and_give_no_further_ability() -> None:
    """E4"""
    persister = a_persister(*FLOOR_METHODS)
    check_floor(persister)
    assert isinstance(persister, Persister)
    capabilities = Capabilities.of(persister)
    assert all(getattr(capabilities, field.name) is None for field in fields(capabilities))


def test_every_ability_is_listed_here() -> None:
    assert set(ABILITIES) == {field.name for field in fields(Capabilities)}


@pytest.mark.parametrize("ability", ABILITIES)
def test_an_ability_is_there_with_all_of_its_methods_only(ability: str) -> None:
    methods = ABILITIES[ability]
    able = a_persister(*FLOOR_METHODS, *methods)
    assert getattr(Capabilities.of(able), ability) is able
    Capabilities.of(able).require(ability, "a feature")
    for missing in methods:
        unable = a_persister(*FLOOR_METHODS, *(name for name in methods if name != missing))
        capabilities = Capabilities.of(unable)
        assert getattr(capabilities, ability) is None
        with pytest.raises(UnsupportedByPersisterError, match=f"^env.find needs .*'{ability}'.*sqlite:///tasks.db"):
            capabilities.require(ability, "env.find")
