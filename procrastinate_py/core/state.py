"""How an object's state is taken, and given back to a new one without calling ``__init__``."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

from .errors import PayloadError, UnstorableError

_HEAP_TYPE = 1 << 9
_DEFAULT_GETSTATE: Any = object.__getstate__


@dataclasses.dataclass(frozen=True, slots=True)
class Opaque:
    """A state that isn't a mapping of attributes: only the class's own ``__setstate__`` knows what it means."""

    value: Any


class StateLayout:
    """Where instances of a class keep their state.

    A class's own ``__getstate__`` and ``__setstate__`` are honoured as pickle honours them. What dataclasses
    generate for frozen slots doesn't count as own: fields are stored by name.
    """

    __slots__ = ("_defaults", "_fields", "_getstate", "_has_dict", "_is_plain", "_setstate", "_slots", "cls")

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self._has_dict = cls.__dictoffset__ != 0
        self._slots = _slots_of(cls)
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        self._fields = tuple(field.name for field in fields)
        self._defaults = {field.name: field for field in fields if _has_default(field)}
        self._setstate = _is_own(getattr(cls, "__setstate__", None))
        getstate: Any = cls.__getstate__
        own_getstate = getstate is not _DEFAULT_GETSTATE and _is_own(getstate)
        # Pickle's default state, (dict, slots), is what a __setstate__ without a __getstate__ of its own expects.
        self._getstate = own_getstate or (self._setstate and not fields)
        self._is_plain = self._has_dict and not (self._slots or self._fields or self._setstate)

    def take(self, instance: Any) -> dict[str, Any] | Opaque:
        """Attributes by name, dataclass fields first. Raises UnstorableError, without the path."""
        if self._getstate:
            return self._own_state(instance)
        if self._is_plain:
            state: dict[str, Any] = instance.__dict__
            return state
        slots = {name: slot.__get__(instance) for name, slot in self._slots.items() if _is_set(slot, instance)}
        state = slots | instance.__dict__ if self._has_dict else slots
        return {name: state[name] for name in self._fields if name in state} | state

    def _own_state(self, instance: Any) -> dict[str, Any] | Opaque:
        try:
            state = instance.__getstate__()
        except Exception as error:
            told = _told(error)
        else:
            return self._normal(state)
        raise UnstorableError(f"its __getstate__ raised {told}")

    def _normal(self, state: Any) -> dict[str, Any] | Opaque:
        if type(state) is dict and all(type(name) is str for name in state):
            return state
        if self._setstate:
            return Opaque(state)
        if state is None:
            return {}
        if type(state) is tuple and len(state) == 2 and all(part is None or type(part) is dict for part in state):
            return (state[0] or {}) | (state[1] or {})
        raise UnstorableError(
            f"its __getstate__ gives {article(type(state).__name__)}, which needs a __setstate__ to take it back"
        )

    def may_lack(self, name: str) -> bool:
        """Whether the attribute comes back by itself when it isn't stored, as a cached property does."""
        return not self._getstate and isinstance(getattr(self.cls, name, None), functools.cached_property)

    def create(self, state: dict[str, Any]) -> Any:
        """A new instance with these attributes. Raises PayloadError."""
        instance = self._blank()
        if self._setstate:
            self._set_state(instance, state)
        elif self._is_plain:
            instance.__dict__.update(state)
        else:
            self._fill(instance, state)
        return instance

    def create_opaque(self, state: Any) -> Any:
        """A new instance whose class takes ``state`` itself. Raises PayloadError."""
        if not self._setstate:
            raise PayloadError(f"{self.cls.__name__} has no __setstate__: its state must be a mapping of attributes")
        instance = self._blank()
        if state is not None:  # as pickle does it
            self._set_state(instance, state)
        return instance

    def _blank(self) -> Any:
        try:
            return object.__new__(self.cls)
        except TypeError:
            pass
        raise UnstorableError(f"{self.cls.__name__} is abstract or extends a built-in type: neither can be stored")

    def _set_state(self, instance: Any, state: Any) -> None:
        try:
            instance.__setstate__(state)
        except Exception as error:
            told = _told(error)
        else:
            return
        raise PayloadError(f"{self.cls.__name__}.__setstate__ raised {told}")

    def _fill(self, instance: Any, state: dict[str, Any]) -> None:
        for name, value in state.items():
            self._put(instance, name, value)
        for name, field in self._defaults.items():
            if name not in state:  # a row from before the field was added
                self._put(instance, name, self._default(field))

    def _put(self, instance: Any, name: str, value: Any) -> None:
        slot = self._slots.get(name)
        if slot is not None:
            slot.__set__(instance, value)
        elif self._has_dict:
            instance.__dict__[name] = value
        else:
            raise PayloadError(f"{self.cls.__name__} has no attribute {name[:100]!r}")

    def _default(self, field: dataclasses.Field[Any]) -> Any:
        if field.default is not dataclasses.MISSING:
            return field.default
        assert field.default_factory is not dataclasses.MISSING
        return field.default_factory()


def article(name: str) -> str:
    return f"an {name}" if name[:1] in "aeiouAEIOU" else f"a {name}"


def _told(error: BaseException) -> str:
    """The error's type and place. Not its words: they may quote the state, which may hold secrets."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" (line {trace.tb_lineno} of {trace.tb_frame.f_code.co_filename})" if trace is not None else ""
    return type(error).__name__ + place


def _is_own(method: Any) -> bool:
    return method is not None and getattr(method, "__module__", None) != "dataclasses"


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _slots_of(cls: type) -> dict[str, types.MemberDescriptorType]:
    """Every slot that a class statement in the class's line of descent made, under its mangled name."""
    return {
        name: attribute
        for base in reversed(cls.__mro__)
        if base.__flags__ & _HEAP_TYPE
        for name, attribute in vars(base).items()
        if isinstance(attribute, types.MemberDescriptorType)
    }


def _is_set(slot: types.MemberDescriptorType, instance: Any) -> bool:
    try:
        slot.__get__(instance)
    except AttributeError:
        return False
    return True
