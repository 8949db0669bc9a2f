"""The queues of an environment, and what is said where one is named wrongly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypedDict

from ..core.backoff import Backoff
from ..core.error_text import did_you_mean
from ..core.errors import NoQueueError, UnknownQueueError
from ..core.queue import QueueSpec, normalise_name, queue_spec
from ..ports.capabilities import Capabilities


class QueueOptions(TypedDict, total=False):
    """What define_queue takes."""

    timeout: float | None
    max_attempts: int | None
    update_period: float
    max_tasks: int
    backoff: Backoff
    hook_timeout: float | None
    timeout_grace: float
    processes: int


class QueueTable:
    """In the order of definition. One name has one spelling: two that come to the same are refused."""

    def __init__(self) -> None:
        self._specs: dict[str, QueueSpec] = {}
        self._spellings: dict[str, str] = {}

    def define(self, name: Any, options: Mapping[str, Any], capabilities: Capabilities | None = None) -> QueueSpec:
        """A name that's defined already keeps its place. ``capabilities``: of the persister, where that's known yet.
        Raises TypeError, ValueError or UnsupportedByPersisterError."""
        spec = queue_spec(name, dict(options))
        if capabilities is not None:
            require_for(spec, capabilities)
        spelling = self._spellings.get(spec.name, name)
        if spelling != name:
            raise ValueError(f"queue {name!r} is the same as {spelling!r}, both are {spec.name!r}: rename one of them")
        self._spellings[spec.name] = name
        self._specs[spec.name] = spec
        return spec

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    @property
    def by_name(self) -> Mapping[str, QueueSpec]:
        return MappingProxyType(self._specs)

    def named(self, name: Any) -> QueueSpec:
        """Raises TypeError, ValueError or UnknownQueueError."""
        spec = self._specs.get(name) if isinstance(name, str) else None
        if spec is not None:
            return spec
        normal = normalise_name(name)
        if normal in self._specs:
            return self._specs[normal]
        raise UnknownQueueError(
            f"there is no queue {name!r}{did_you_mean(normal, self._specs)}; "
            f"defined: {_listed(self._specs) or 'none'} (see define_queue)"
        )

    def named_or_only(self, name: Any) -> QueueSpec:
        """The one queue there is, where none is named."""
        if name is not None:
            return self.named(name)
        if len(self._specs) > 1:
            raise ValueError(f"queue must be named, there are several: {_listed(self._specs)}")
        return self.some(())[0]

    def some(self, names: Iterable[Any]) -> list[QueueSpec]:
        """Those named, in that order, else all. Raises NoQueueError where there are none at all."""
        if not self._specs:
            raise NoQueueError("no queue is defined: call define_queue first")
        return [self.named(name) for name in names] or list(self._specs.values())


def require_for(spec: QueueSpec, capabilities: Capabilities) -> None:
    """Raises UnsupportedByPersisterError where the store can't do what the queue's options ask for."""
    if spec.processes > 1:
        capabilities.require("leasing", f"queue {spec.name!r}: processes={spec.processes}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
