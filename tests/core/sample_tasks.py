"""Classes for the tests of the codec and the registry: they need a module of their own to be found in."""

from __future__ import annotations

import dataclasses
import enum
import functools
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

Popen = subprocess.Popen  # re-exported: trusted by nobody
NOT_A_CLASS = 42


class Task:
    def run(self) -> None: ...


class Bag(Task):
    """Holds any one value."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


class SendEmail(Task):
    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)


class Outer:
    class Inner(Bag):
        pass


class Étude(Bag):
    pass


class NoRun:
    pass


class Colour(enum.Enum):
    RED = 1
    GREEN = "green"
    SCARLET = RED


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


class Perm(enum.Flag):
    R = 4
    W = 2
    X = 1


class Mode(enum.IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: Any


@dataclasses.dataclass
class Address:
    street: str
    extra: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    to: str
    parts: list[Any] = dataclasses.field(default_factory=list)

    def run(self) -> None: ...


@dataclasses.dataclass
class Parent:
    a: int

    def run(self) -> None: ...


@dataclasses.dataclass
class Child(Parent):
    b: int = 2
    c: list[int] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def iterator(self) -> Iterator[int]:
        return iter([1])


class Slotted:
    __slots__ = ("a", "__hidden", "unset")

    def __init__(self, a: Any, hidden: Any) -> None:
        self.a = a
        self.__hidden = hidden

    def hidden(self) -> Any:
        return self.__hidden

    def run(self) -> None: ...


class SlottedChild(Slotted):
    """Slots of its parent, and a dict of its own."""


class OwnState(Task):
    """Both methods are its own, and the state isn't a mapping."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __getstate__(self) -> Any:
        return (self.number, "tuple")

    def __setstate__(self, state: Any) -> None:
        self.number, self.kind = state


class OwnGetstate(Task):
    """Leaves something out, and needs nothing to come back."""

    def __init__(self) -> None:
        self.kept = 1
        self.left_out = object()

    def __getstate__(self) -> dict[str, Any]:
        return {"kept": self.kept}


class OwnSetstate(Task):
    def __init__(self) -> None:
        self.a = 1

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, restored=True)


class SlottedSetstate(Slotted):
    """Pickle gives a slotted class's __setstate__ a pair."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        assert state[0] is None
        for name, value in state[1].items():
            setattr(self, name, value)


class Secretive(Task):
    """Quotes its state in what it raises."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError(f"hunter2 {state}")


class BadGetstate(Task):
    def __getstate__(self) -> Any:
        raise ValueError("hunter2")


class NoWayBack(Task):
    def __getstate__(self) -> Any:
        return [1, 2]


class InitCounts(Task):
    made = 0

    def __init__(self) -> None:
        type(self).made += 1


class ListTask(list[Any]):
    def run(self) -> None: ...


class SubStr(str):
    pass
