"""Tasks as stored text, and back: ``!myapp.mail:SendWelcome {"to": "a@example.com"}``.

Loading runs no code that the text chose: it names a trusted class, whose ``__init__`` isn't called. No message
quotes the text, which may hold secrets.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from .errors import PayloadError, UnknownTaskError, UnstorableError
from .registry import VALUE_TAGS, Registry
from .state import StateLayout
from .stored_text import is_plain_tag, name_of_tag, split_documents, tag_of_text, written_tag
from .value_writer import Offence, ValueWriter

__all__ = ["MAX_TASK_BYTES", "Codec", "split_documents", "tag_of_text"]

MAX_TASK_BYTES: Final = 2**20

_LONGEST_CHARACTER = 4  # bytes of UTF-8


class Codec:
    """Not shared between processes; safe to use from any thread."""

    def __init__(self, registry: Registry, max_task_bytes: int = MAX_TASK_BYTES) -> None:
        self.registry = registry
        self.max_task_bytes = max_task_bytes
        self._surely_fits = max_task_bytes // _LONGEST_CHARACTER
        self._layouts: dict[type, StateLayout] = {}
        self._layout_of_tag: dict[str, StateLayout] = {}

    def dump(self, strategy: Any) -> str:
        """Raises UnstorableError (or UntrustedTaskError for what wouldn't be loaded) naming the offender's path."""
        name = type(strategy).__name__
        try:
            text = ValueWriter(self.registry, self._layout_of, self.max_task_bytes).instance(strategy)
        except PayloadError:
            raise
        except Offence as offence:
            kind, told = offence.kind, f"{name}{''.join(reversed(offence.path))}: {offence.reason}"
        except Exception as error:
            kind, told = UnstorableError, f"{name}: its state can't be read ({type(error).__name__})"
        else:
            if self._is_too_long(text):
                raise UnstorableError(
                    f"{name}: takes more than the {self.max_task_bytes} bytes of max_task_bytes: "
                    "send an id and load it in run"
                )
            return text
        raise kind(told)

    def checked_dump(self, strategy: Any) -> str:
        """What delay stores: the class is trusted from now on, and the text was read back once.

        Raises PayloadError for all that would fail in a worker, or ConfigurationError where the class's stored name
        is another's.
        """
        self.registry.see(type(strategy))
        text = self.dump(strategy)
        try:
            loaded = self.load(text)
        except PayloadError as error:
            told = str(error)
        else:
            if self.registry.tag_of(type(loaded)) == self.registry.tag_of(type(strategy)):
                return text
            told = f"it comes back as another class, {type(loaded).__name__}"
        raise UnstorableError(f"{type(strategy).__name__} is stored but can't be loaded: {told}")

    def load(self, text: str) -> Any:
        """A new object with the stored state. Raises a PayloadError of some kind, and no other Exception."""
        try:
            tag, _, body = text.partition(" ")
            layout = self._layout_of_tag.get(tag)
            if layout is not None and len(text) <= self._surely_fits:
                # Where this fails, the text isn't plain JSON, and is read again from its start.
                state, end = _JSON.raw_decode(body)
                if end == len(body) and type(state) is dict:
                    return layout.create(state)
        except (PayloadError, MemoryError):
            raise
        except Exception:
            pass
        return self._load_slowly(text)

    def _load_slowly(self, text: str) -> Any:
        try:
            return self._read(text)
        except PayloadError:
            raise
        except Exception as error:
            mark = getattr(error, "problem_mark", None)
            place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
            told = f"the stored text{_of(text)} can't be read{place} ({type(error).__name__})"
        raise PayloadError(told)

    def _read(self, text: str) -> Any:
        if not isinstance(text, str):
            raise UnknownTaskError(f"the stored task is no text but {type(text).__name__}")
        if self._is_too_long(text):
            raise PayloadError(
                f"the stored text{_of(text)} takes more than the {self.max_task_bytes} bytes of max_task_bytes"
            )
        document, _ = split_documents(text)
        tag, _, body = document.rstrip().partition(" ")
        if is_plain_tag(tag) and body[:1] == "{":
            layout = self._task_layout(tag)
            state = _json_or_none(body)
            if type(state) is dict:
                return layout.create(state)
        from .value_reader import ValueReader  # imports yaml, which a process without such texts never needs

        return ValueReader(document, self.registry, self._layout_of).read(self._task_class)

    def _task_layout(self, tag: str) -> StateLayout:
        layout = self._layout_of_tag.get(tag)
        if layout is None:
            name = name_of_tag(tag)
            layout = self._layout_of(self._task_class("!" + name))
            if tag == written_tag(name):  # no other spelling, of which there may be many
                self._layout_of_tag[tag] = layout
        return layout

    def _task_class(self, tag: str) -> type:
        if tag[:1] != "!" or not tag[1:]:
            raise UnknownTaskError("the stored text isn't a task: it doesn't begin with a tag such as !module:Class")
        if tag[1:] in VALUE_TAGS:
            raise UnknownTaskError(f"the stored text isn't a task but a {tag[1:]}")
        cls = self.registry.resolve(tag[1:])
        if not callable(getattr(cls, "run", None)):
            raise UnknownTaskError(f"{tag[1:]} isn't a task: it has no method run")
        return cls

    def _layout_of(self, cls: type) -> StateLayout:
        layout = self._layouts.get(cls)
        if layout is None:
            layout = self._layouts[cls] = StateLayout(cls)
        return layout

    def _is_too_long(self, text: str) -> bool:
        if len(text) <= self._surely_fits:
            return False
        return len(text.encode("utf-8", "surrogatepass")) > self.max_task_bytes


def _of(text: Any) -> str:
    name = tag_of_text(text)
    return f" of {name}" if name is not None else ""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise PayloadError("the stored text gives a key twice")
    return mapping


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is a number in no YAML")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _json_or_none(body: str) -> Any:
    try:
        return _JSON.decode(body)
    except (ValueError, RecursionError):
        return None
