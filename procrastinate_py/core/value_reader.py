"""A stored task's YAML as values, from the events of PyYAML's safe loader.

Events rather than its constructors, so that only tags of ours mean something, aliases and repeated keys are refused
before anything is built, and a deep document meets our limit rather than the interpreter's.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Hashable
from typing import Any

import yaml

from .errors import PayloadError, UnknownTaskError
from .registry import Registry
from .scalars import READERS, read_timedelta
from .state import StateLayout
from .value_writer import DEEPEST, is_namedtuple

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST_NODE = 3 * DEEPEST + 10  # a dict with odd keys takes three nodes
_STANDARD = "tag:yaml.org,2002:"
_LONGEST_SEXAGESIMAL = 50  # 1:30:00 is a number in YAML 1.1, and a long one takes quadratic time
_JSON_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?[eE][-+]?[0-9]+")
_INT = re.compile(r"-?[0-9]+")


class ValueReader:
    """Reads one document. Raises PayloadError, or what a broken value makes its constructor raise."""

    def __init__(self, text: str, registry: Registry, layout_of: Callable[[type], StateLayout]) -> None:
        self._loader = _Loader(text)
        self._registry = registry
        self._layout_of = layout_of
        self._depth = 0

    def read(self, task_class: Callable[[str], type]) -> Any:
        """The task of the first document; ``task_class`` judges what its tag names."""
        try:
            self._next()  # the stream's start
            if not isinstance(self._next(), yaml.DocumentStartEvent):
                raise UnknownTaskError("the stored text isn't a task: it's empty")
            event = self._next()
            tag = getattr(event, "tag", None)
            cls = task_class(tag or "")
            value = self._instance(event, cls)
            self._next()  # the document's end
            self._next()  # the stream's: raises where something else follows
            return value
        finally:
            self._loader.dispose()

    def _next(self) -> Any:
        event = self._loader.get_event()
        if getattr(event, "anchor", None) is not None:
            raise PayloadError(f"anchors and aliases aren't allowed ({_place(event)})")
        return event

    def _value(self, event: Any) -> Any:
        tag = event.tag
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, tag)
        if tag in _SEQUENCES and isinstance(event, yaml.SequenceStartEvent):
            return _SEQUENCES[tag](self._sequence())
        if tag == "!timedelta" and isinstance(event, yaml.MappingStartEvent):
            return read_timedelta(self._mapping())
        if tag is None or tag == "!" or tag in (f"{_STANDARD}seq", f"{_STANDARD}map"):
            return self._sequence() if isinstance(event, yaml.SequenceStartEvent) else self._mapping()
        cls = self._class_of(event)
        if isinstance(event, yaml.SequenceStartEvent) and is_namedtuple(cls):
            return _namedtuple(cls, self._sequence())
        if not hasattr(cls, "__dataclass_fields__"):
            raise PayloadError(f"{cls.__name__} isn't a dataclass, a named tuple or an enum ({_place(event)})")
        return self._instance(event, cls)

    def _class_of(self, event: Any) -> type:
        if event.tag.startswith(_STANDARD) or event.tag[:1] != "!":
            raise PayloadError(f"a tag means nothing here ({_place(event)})")
        return self._registry.resolve(event.tag[1:])

    def _instance(self, event: Any, cls: type) -> Any:
        layout = self._layout_of(cls)
        if isinstance(event, yaml.ScalarEvent):
            if event.value or event.style:
                raise PayloadError(f"{cls.__name__}'s state must be a mapping of attributes ({_place(event)})")
            return layout.create({})
        if isinstance(event, yaml.MappingStartEvent):
            state = self._mapping()
            if not all(type(name) is str for name in state):
                raise PayloadError(f"{cls.__name__}: the names of attributes must be strings ({_place(event)})")
            return layout.create(state)
        items = self._sequence()
        if len(items) != 1:
            raise PayloadError(f"{cls.__name__}'s state must be a mapping of attributes ({_place(event)})")
        return layout.create_opaque(items[0])

    def _sequence(self) -> list[Any]:
        self._enter()
        items = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(event))
        self._depth -= 1
        return items

    def _mapping(self) -> dict[Any, Any]:
        self._enter()
        pairs: dict[Any, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and not event.style:
                raise PayloadError(f"merge keys aren't allowed ({_place(event)})")
            _add(pairs, self._value(event), self._value(self._next()), event)
        self._depth -= 1
        return pairs

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST_NODE:
            raise PayloadError("the stored text is nested too deeply")

    def _scalar(self, event: Any, tag: str | None) -> Any:
        value: str = event.value
        if tag in READERS:
            return READERS[tag](value)
        if tag == "!":
            return value
        if tag is None:
            if not event.style and _JSON_FLOAT.fullmatch(value):
                return float(value)
            tag = self._loader.resolve(yaml.ScalarNode, value, event.implicit)
        if tag.startswith(_STANDARD):
            return self._standard(event, tag)
        return _enum_member(self._class_of(event), value, is_quoted=bool(event.style))

    def _standard(self, event: Any, tag: str) -> Any:
        kind = tag[len(_STANDARD) :]
        if kind in ("str", "value", "merge"):
            return event.value
        if kind not in ("null", "bool", "int", "float", "timestamp", "binary"):
            raise PayloadError(f"a tag means nothing here ({_place(event)})")
        if kind in ("int", "float") and ":" in event.value and len(event.value) > _LONGEST_SEXAGESIMAL:
            raise PayloadError(f"a number is too long ({_place(event)})")
        construct = getattr(self._loader, f"construct_yaml_{kind}")
        return construct(yaml.ScalarNode(tag, event.value))


def _place(event: Any) -> str:
    return f"line {event.start_mark.line + 1}, column {event.start_mark.column + 1}"


def _add(pairs: dict[Any, Any], key: Any, value: Any, event: Any) -> None:
    if not isinstance(key, Hashable):
        raise PayloadError(f"a list or mapping can't be a key ({_place(event)})")
    if key in pairs:
        raise PayloadError(f"a key is given twice ({_place(event)})")
    pairs[key] = value


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if not all(type(item) is list and len(item) == 2 for item in items):
        raise PayloadError("a !map must be a list of [key, value] pairs")
    pairs = dict(items)
    if len(pairs) != len(items):
        raise PayloadError("a key of a !map is given twice")
    return pairs


def _namedtuple(cls: type, items: list[Any]) -> Any:
    wanted = len(getattr(cls, "_fields", ()))
    if len(items) != wanted:
        raise PayloadError(f"{cls.__name__} takes {wanted} values, not {len(items)}")
    return tuple.__new__(cls, items)


def _enum_member(cls: type, value: str, *, is_quoted: bool) -> Any:
    if not issubclass(cls, enum.Enum):
        raise PayloadError(f"{cls.__name__} isn't an enum: its state must be a mapping of attributes")
    if not is_quoted and issubclass(cls, enum.Flag) and _INT.fullmatch(value):
        return cls(int(value))
    if value not in cls.__members__:
        raise PayloadError(f"{cls.__name__} has no such member")
    return cls.__members__[value]


_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "!tuple": tuple,
    "!set": set,
    "!frozenset": frozenset,
    "!map": _pairs,
}
