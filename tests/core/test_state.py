"""E20, U6: where objects keep their state, and how it comes back."""

from __future__ import annotations

from typing import Any

import pytest

from procrastinate_py.core.codec import Codec
from procrastinate_py.core.errors import PayloadError, UnstorableError
from procrastinate_py.core.registry import Registry
from tests.core import sample_tasks
from tests.core.sample_tasks import (
    Bag,
    Child,
    FrozenSlots,
    ListTask,
    OwnGetstate,
    OwnSetstate,
    OwnState,
    SendEmail,
    Slotted,
    SlottedChild,
    SlottedSetstate,
)

HERE = "tests.core.sample_tasks"


@pytest.fixture
def codec() -> Codec:
    return Codec(Registry(["tests"]))


def test_a_frozen_dataclass_with_slots_is_stored_by_its_fields(codec: Codec) -> None:
    """U6"""
    task = FrozenSlots("a@example.com", [1])
    text = codec.checked_dump(task)
    assert text == f'!{HERE}:FrozenSlots {{"to": "a@example.com", "parts": [1]}}'
    assert codec.load(text) == task


def test_an_inherited_dataclass_keeps_its_fields_and_its_other_attributes(codec: Codec) -> None:
    """U6"""
    task = Child(1, 5, [3])
    task.__dict__["noted"] = {"x"}
    text = codec.checked_dump(task)
    assert text == f'!{HERE}:Child {{"a": 1, "b": 5, "c": [3], "noted": !set ["x"]}}'
    assert vars(codec.load(text)) == {"a": 1, "b": 5, "c": [3], "noted": {"x"}}


def test_an_unstorable_extra_attribute_of_a_dataclass_is_refused_not_lost(codec: Codec) -> None:
    """E14"""
    task = Child(1)
    task.__dict__["client"] = object()
    with pytest.raises(UnstorableError, match=r"^Child\.client: cannot store an object"):
        codec.dump(task)


def test_an_unstorable_cached_property_is_left_out_since_it_comes_back_by_itself(codec: Codec) -> None:
    task = Child(1, c=[[1, [2]]])  # type: ignore[list-item]
    assert list(task.iterator) == [1]
    loaded = codec.load(codec.checked_dump(task))
    assert loaded == task and list(loaded.iterator) == [1]


def test_a_row_from_before_a_field_was_added_gets_its_default(codec: Codec) -> None:
    """E20"""
    for text in (f'!{HERE}:Child {{"a": 1}}', f"!{HERE}:Child\na: 1\n"):
        first, second = codec.load(text), codec.load(text)
        assert vars(first) == {"a": 1, "b": 2, "c": []}
        assert first.c is not second.c
    assert codec.load(f'!{HERE}:FrozenSlots {{"to": "a"}}') == FrozenSlots("a")


def test_slots_are_stored_even_hidden_ones_and_unset_ones_stay_unset(codec: Codec) -> None:
    """E20"""
    loaded = codec.load(codec.checked_dump(Slotted(1, (2,))))
    assert (loaded.a, loaded.hidden()) == (1, (2,))
    assert not hasattr(loaded, "unset")
    child = SlottedChild(1, 2)
    child.__dict__["more"] = 3
    loaded = codec.load(codec.checked_dump(child))
    assert (loaded.a, loaded.hidden(), loaded.more) == (1, 2, 3)


def test_a_class_own_getstate_and_setstate_are_honoured(codec: Codec) -> None:
    """E20 E21"""
    text = codec.checked_dump(OwnState(7))
    assert text == f'!{HERE}:OwnState [!tuple [7, "tuple"]]'
    assert vars(codec.load(text)) == {"number": 7, "kind": "tuple"}
    text = codec.checked_dump(OwnGetstate())
    assert text == f'!{HERE}:OwnGetstate {{"kept": 1}}'
    assert vars(codec.load(text)) == {"kept": 1}
    assert vars(codec.load(codec.checked_dump(OwnSetstate()))) == {"a": 1, "restored": True}
    loaded = codec.load(codec.checked_dump(SlottedSetstate(1, 2)))
    assert (loaded.a, loaded.hidden()) == (1, 2)


@pytest.mark.parametrize("state", [None, 0, "text", [1], {}, {1: 2}, {"k": 1}, ({"a": 1}, None)])
def test_any_state_reaches_setstate_as_pickle_would_give_it(
    codec: Codec, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E20"""
    given: list[Any] = []
    monkeypatch.setattr(OwnState, "__getstate__", lambda self: state)
    monkeypatch.setattr(OwnState, "__setstate__", lambda self, got: given.append(got))
    codec.load(codec.dump(OwnState(1)))
    assert given == ([] if state is None else [state])


@pytest.mark.parametrize("state", [None, {"a": 1}, (None, {"a": 1}), ({"a": 1}, {"b": 2})])
def test_a_state_in_pickle_default_form_needs_no_setstate(
    codec: Codec, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E20"""
    monkeypatch.setattr(OwnGetstate, "__getstate__", lambda self: state)
    loaded = codec.load(codec.checked_dump(OwnGetstate()))
    assert vars(loaded) == {
        k: v for part in (state if isinstance(state, tuple) else (state,)) for k, v in (part or {}).items()
    }


def test_a_state_that_nothing_takes_back_is_refused(codec: Codec) -> None:
    """E14"""
    with pytest.raises(UnstorableError, match=r"NoWayBack.*__getstate__ gives a list.*__setstate__"):
        codec.dump(sample_tasks.NoWayBack())
    with pytest.raises(UnstorableError, match=r"^BadGetstate: its __getstate__ raised ValueError \(line") as caught:
        codec.dump(sample_tasks.BadGetstate())
    assert "hunter2" not in str(caught.value)
    secretive = sample_tasks.Secretive()
    secretive.__dict__["a"] = 1
    with pytest.raises(UnstorableError, match=r"^Secretive is stored but can't be loaded.*ValueError"):
        codec.checked_dump(secretive)


def test_a_subclass_of_a_builtin_is_refused_where_it_is_delayed(codec: Codec) -> None:
    """E14"""
    with pytest.raises(UnstorableError, match="ListTask.*built-in"):
        codec.checked_dump(ListTask([1, 2]))


def test_what_a_task_changes_on_itself_is_stored_for_the_next_attempt(codec: Codec) -> None:
    """E23"""
    text = codec.checked_dump(SendEmail(tries=0))
    for tries in (1, 2, 3):
        task = codec.load(text)
        task.tries += 1
        text = codec.dump(task)
        assert codec.load(text).tries == tries


@pytest.mark.parametrize("name", ["__class__", "__dict__", "run", "__init__", "__slots__"])
def test_no_name_in_the_state_reaches_the_class(codec: Codec, name: str) -> None:
    """E21"""
    loaded = codec.load(f'!{HERE}:Bag {{"{name}": {{"a": 1}}, "value": 2}}')
    assert type(loaded) is Bag and loaded.__class__ is Bag and loaded.value == 2
    with pytest.raises(PayloadError, match="has no attribute"):
        codec.load(f'!{HERE}:Slotted {{"{name}": 1}}')


@pytest.mark.parametrize("name", [1, "x" * 501, "\ud800"])
def test_an_attribute_with_an_odd_name_is_refused(codec: Codec, name: Any) -> None:
    """E14"""
    task = SendEmail()
    task.__dict__[name] = 1
    with pytest.raises(UnstorableError, match="attribute's name"):
        codec.dump(task)


def test_an_object_whose_state_cannot_even_be_read_is_unstorable(codec: Codec) -> None:
    """E14"""

    class Odd:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("hunter2")

        def run(self) -> None: ...

    codec.registry.register(Odd, name="odd")
    with pytest.raises(UnstorableError) as caught:
        codec.dump(Odd())
    assert "hunter2" not in str(caught.value) and caught.value.__context__ is None
