"""Puts something that makes trouble between a worker and its store.

A ``Trouble`` is told before and after every call to the store. It may raise in either place: before, the call isn't
made; after, it was made, and the caller only doesn't hear of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..core.lease import LeaseToken, TaskId
from ..core.lifecycle import Transition
from ..core.task import Claim
from ..ports.persister import Leasing, Persister

T = TypeVar("T")


class StoreFault(Exception):
    """What a store in trouble raises: the call failed, or its reply was lost."""


class Trouble(Protocol):
    def before(self, call: str) -> None: ...
    def after(self, call: str) -> None: ...


class _Troubled:
    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble

    def _make(self, call: str, make: Callable[[], T]) -> T:
        self._trouble.before(call)
        reply = make()
        self._trouble.after(call)
        return reply


class TroubledLeasing(_Troubled):
    """A store with leases, behind trouble."""

    def __init__(self, store: Leasing, trouble: Trouble) -> None:
        super().__init__(trouble)
        self._store = store

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> Sequence[Claim]:
        return self._make("claim", lambda: self._store.claim(queue, owner, limit, lease_for))

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> Sequence[LeaseToken]:
        return self._make("extend", lambda: self._store.extend(tokens, lease_for))

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> Sequence[LeaseToken]:
        return self._make("settle", lambda: self._store.settle(settlements))

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> Sequence[Claim]:
        return self._make("lapsed", lambda: self._store.lapsed(queue, owner, limit, lease_for, dead_owner))

    def next_look_at(self, queue: str) -> float | None:
        return self._make("next_look_at", lambda: self._store.next_look_at(queue))


class TroubledFloor(_Troubled):
    """A persister of four methods, behind trouble."""

    def __init__(self, persister: Persister, trouble: Trouble) -> None:
        super().__init__(trouble)
        self._persister = persister

    def read_tasks(self, queue: str) -> Iterable[Mapping[str, Any]]:
        return self._make("read_tasks", lambda: list(self._persister.read_tasks(queue)))

    def create_task(self, data: dict[str, Any]) -> TaskId:
        return self._make("create_task", lambda: self._persister.create_task(data))

    def update_task(self, attributes: dict[str, Any]) -> Any:
        return self._make("update_task", lambda: self._persister.update_task(attributes))

    def delete_task(self, task_id: TaskId) -> Any:
        return self._make("delete_task", lambda: self._persister.delete_task(task_id))
