"""An object's state as text: JSON where JSON can tell it, and else YAML that looks like it.

What is written without a tag is read alike by a JSON parser and by YAML parsers, 1.1 and 1.2: so all that they take
differently (unescaped line separators, pairs of surrogates, ``1e+16``, long keys) is kept out.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import sys
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from json.encoder import encode_basestring
from typing import Any

from .error_text import shown
from .errors import PayloadError, UnstorableError, UntrustedTaskError
from .registry import Registry
from .scalars import Unwritable, escaped, has_surrogates, real_type, timedelta_parts, write_bytes, write_datetime
from .state import Opaque, StateLayout, article
from .stored_text import written_tag

DEEPEST = 100
"""Levels of nesting: fewer than any parser gives up at."""

_LONGEST_KEY = 500  # YAML looks no further than 1024 characters for the colon
_LARGEST_DECIMAL_INT = 10**600  # Python refuses to parse decimal ints of more than 4300 digits, or as few as 640
_NOT_FOR_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_ODD_FLOATS = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
_THREAD_TYPES = {"lock": "Lock"}


class Offence(Exception):
    """Something that can't be stored, found at ``path`` (innermost first)."""

    def __init__(self, reason: str, kind: type[PayloadError] = UnstorableError) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.path: list[str] = []

    def at(self, step: str) -> Offence:
        self.path.append(step)
        return self


def quoted(text: str) -> str | None:
    """A double-quoted string that JSON and YAML read alike; None where YAML can't hold it."""
    written = encode_basestring(text)
    if written.isascii():
        return written.replace("\x7f", "\\u007f")
    if has_surrogates(written):
        return None
    return _NOT_FOR_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def _cannot_store(value: Any) -> str:
    name = type(value).__name__
    if type(value).__module__ == "_thread":
        name = _THREAD_TYPES.get(name, name)
    return f"cannot store {article(name)}: convert it, or send an id and load it in run"


class ValueWriter:
    """Writes one task. Raises Offence."""

    __slots__ = ("_active", "_layout_of", "_limit", "_registry")

    def __init__(self, registry: Registry, layout_of: Callable[[type], StateLayout], limit: int) -> None:
        self._registry = registry
        self._layout_of = layout_of
        self._limit = limit
        self._active: list[int] = []

    def instance(self, value: Any) -> str:
        """``!tag {state}``."""
        layout = self._layout_of(type(value))
        tag = written_tag(self._registry.tag_of(type(value)))
        self._enter(value)
        try:
            state = layout.take(value)
        except UnstorableError as error:
            raise Offence(str(error)) from None
        text = f"[{self._state(state.value)}]" if isinstance(state, Opaque) else self._attributes(layout, state)
        self._active.pop()
        return f"{tag} {text}"

    def _state(self, value: Any) -> str:
        try:
            return self.write(value)
        except Offence as offence:
            raise offence.at(".__getstate__()") from None

    def write(self, value: Any) -> str:
        writer = _WRITERS.get(type(value))
        return writer(self, value) if writer is not None else self._other(value)

    def _attributes(self, layout: StateLayout, state: dict[str, Any]) -> str:
        parts = []
        # Copied, since a body that outlived its timeout may still change it.
        for name, value in tuple(state.items()):
            key = quoted(name) if type(name) is str else None
            if key is None or len(key) > _LONGEST_KEY:
                raise Offence("an attribute's name must be a short str without lone surrogates")
            depth = len(self._active)
            try:
                parts.append(f"{key}: {self.write(value)}")
            except Offence as offence:
                if not layout.may_lack(name):
                    raise offence.at(f".{name}") from None
                del self._active[depth:]
        return self._within_limit("{" + ", ".join(parts) + "}")

    def _enter(self, value: Any) -> None:
        if id(value) in self._active:
            raise Offence("it contains itself: store an id instead, and load it in run")
        if len(self._active) >= DEEPEST:
            raise Offence(f"it's nested more than {DEEPEST} levels deep: send an id and load it in run")
        self._active.append(id(value))

    def _within_limit(self, text: str) -> str:
        if len(text) > self._limit:
            raise Offence(f"takes more than the {self._limit} bytes of max_task_bytes: send an id and load it in run")
        return text

    def _str(self, value: str) -> str:
        return quoted(value) or f"!escaped {quoted(escaped(value))}"

    def _int(self, value: int) -> str:
        if -_LARGEST_DECIMAL_INT < value < _LARGEST_DECIMAL_INT:
            return repr(value)
        return hex(value)

    def _float(self, value: float) -> str:
        text = repr(value)
        if "." in text:
            return text
        return _ODD_FLOATS.get(text) or text.replace("e", ".0e")  # 1e+16 is a string in YAML 1.1

    def _items(self, items: Iterable[Any]) -> list[str]:
        parts: list[str] = []
        try:
            for item in items:
                parts.append(self.write(item))
        except Offence as offence:
            raise offence.at(f"[{len(parts)}]") from None
        return parts

    def _list(self, value: list[Any] | tuple[Any, ...]) -> str:
        self._enter(value)
        text = "[" + ", ".join(self._items(tuple(value))) + "]"
        self._active.pop()
        return self._within_limit(text)

    def _tuple(self, value: tuple[Any, ...]) -> str:
        return f"!tuple {self._list(value)}"

    def _set(self, value: set[Any] | frozenset[Any]) -> str:
        self._enter(value)
        try:
            parts = sorted(self.write(item) for item in tuple(value))
        except Offence as offence:
            raise offence.at(" (an element)") from None
        self._active.pop()
        return self._within_limit(f"!{type(value).__name__} [{', '.join(parts)}]")

    def _dict(self, value: dict[Any, Any]) -> str:
        self._enter(value)
        parts = []
        items = tuple(value.items())
        for key, item in items:
            written = quoted(key) if type(key) is str else None
            if written is None or len(written) > _LONGEST_KEY:
                text = self._map(items)
                break
            try:
                parts.append(f"{written}: {self.write(item)}")
            except Offence as offence:
                raise offence.at(f"[{shown(key)}]") from None
        else:
            text = "{" + ", ".join(parts) + "}"
        self._active.pop()
        return self._within_limit(text)

    def _map(self, items: tuple[tuple[Any, Any], ...]) -> str:
        parts = []
        for key, item in items:
            try:
                written = self.write(key)
            except Offence as offence:
                raise offence.at(" (a key)") from None
            try:
                parts.append(f"[{written}, {self.write(item)}]")
            except Offence as offence:
                raise offence.at(f"[{shown(key)}]") from None
        return f"!map [{', '.join(parts)}]"

    def _moment(self, value: datetime | time) -> str:
        try:
            return f"!{real_type(type(value)).__name__} {quoted(write_datetime(value))}"
        except Unwritable as error:
            raise Offence(f"cannot store {error}") from None

    def _date(self, value: date) -> str:
        return f'!date "{value.isoformat()}"'

    def _timedelta(self, value: timedelta) -> str:
        parts = ", ".join(f'"{unit}": {number}' for unit, number in timedelta_parts(value).items())
        return f"!timedelta {{{parts}}}"

    def _bytes(self, value: bytes) -> str:
        return self._within_limit(f'!bytes "{write_bytes(value)}"')

    def _other(self, value: Any) -> str:
        cls = type(value)
        stands_for = real_type(cls)
        if stands_for is not cls:
            return _WRITERS[stands_for](self, value)
        if isinstance(value, enum.Enum):
            return f"{self._tag(cls)} {_member(value)}"
        if _is_from(cls, "decimal", "Decimal"):
            return f'!decimal "{value!s}"'
        if _is_from(cls, "uuid", "UUID"):
            return f'!uuid "{value}"'
        if isinstance(value, tuple) and is_namedtuple(cls) and not getattr(value, "__dict__", None):
            return f"{self._tag(cls)} {self._list(tuple(value))}"
        if dataclasses.is_dataclass(cls):
            self._tag(cls)
            return self._within_limit(self.instance(value))
        raise Offence(_cannot_store(value))

    def _tag(self, cls: type) -> str:
        try:
            name = self._registry.tag_of(cls)
        except UnstorableError as error:
            raise Offence(f"{_cannot_store_class(cls)}: {error}") from None
        if not self._registry.trusts(cls):
            raise Offence(
                f"{_cannot_store_class(cls)}: {cls.__module__!r} isn't in a trusted package, so it wouldn't be loaded; "
                "add the package to Environment(trust=[...])",
                UntrustedTaskError,
            )
        return written_tag(name)


def _cannot_store_class(cls: type) -> str:
    return f"cannot store {article(cls.__name__)}"


def is_namedtuple(cls: type) -> bool:
    """Made by namedtuple or NamedTuple, and by nothing that keeps more than its fields."""
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _is_from(cls: type, module: str, name: str) -> bool:
    """Whether it's this very class, without importing its module for those who don't use it."""
    return cls.__name__ == name and getattr(sys.modules.get(module), name, None) is cls


def _member(value: enum.Enum) -> str:
    cls = type(value)
    name: object = value.name  # None for some combinations of flags
    if isinstance(name, str) and cls.__members__.get(name) is value:
        written = quoted(name)
        if written is not None:
            return written
    if isinstance(value, enum.Flag) and type(value.value) is int and cls(value.value) == value:
        return repr(value.value)  # a combination has no name of its own
    raise Offence(f"{_cannot_store_class(cls)} that is no member of its class")


_WRITERS: dict[type, Callable[[ValueWriter, Any], str]] = {
    str: ValueWriter._str,
    int: ValueWriter._int,
    float: ValueWriter._float,
    bool: lambda _, value: "true" if value else "false",
    type(None): lambda _, value: "null",
    list: ValueWriter._list,
    dict: ValueWriter._dict,
    tuple: ValueWriter._tuple,
    set: ValueWriter._set,
    frozenset: ValueWriter._set,
    bytes: ValueWriter._bytes,
    datetime: ValueWriter._moment,
    time: ValueWriter._moment,
    date: ValueWriter._date,
    timedelta: ValueWriter._timedelta,
}
