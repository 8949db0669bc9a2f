"""Where a process gets its persister from: an instance, a factory, a URL, or nothing at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.lease import TaskId
from ..persisters import MemoryPersister, open_persister
from ..ports.capabilities import Capabilities, check_floor
from ..ports.clock import Clock
from ..ports.persister import ClockBound, Closing, Persister

DEFAULT_URL = "sqlite:///procrastinate.db"
_SQLITE = "sqlite:///"
_QUOTED = (("%", "%25"), ("?", "%3F"), ("#", "%23"))  # urllib.parse could, but brings too much for that


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A persister that was checked, what it can do, and the clock to go by."""

    persister: Persister
    capabilities: Capabilities
    clock: Clock

    def now(self) -> float:
        """The store's clock where it has one, else the environment's."""
        timekeeping = self.capabilities.timekeeping
        return self.clock.now() if timekeeping is None else timekeeping.now()

    @property
    def is_shareable(self) -> bool:
        """Whether other processes see what this one stores; a user's persister is believed to be."""
        return getattr(self.persister, "is_shareable", True) is not False


class OneAtATime:
    """A floor persister as its author wrote it: called from any thread, but never twice at once."""

    def __init__(self, persister: Persister) -> None:
        self._persister = persister
        self._lock = threading.RLock()

    def read_tasks(self, queue: str) -> Iterable[Mapping[str, Any]]:
        with self._lock:
            return list(self._persister.read_tasks(queue))

    def create_task(self, data: dict[str, Any]) -> TaskId:
        with self._lock:
            return self._persister.create_task(data)

    def update_task(self, attributes: dict[str, Any]) -> Any:
        with self._lock:
            return self._persister.update_task(attributes)

    def delete_task(self, task_id: TaskId) -> Any:
        with self._lock:
            return self._persister.delete_task(task_id)

    def close(self) -> bool:
        """Whether its author gave it a ``close``: then it was called, and the object isn't to be used again."""
        close = getattr(self._persister, "close", None)
        if not callable(close):
            return False
        with self._lock:
            close()
        return True


class PersisterSource:
    """Opens one store per process. Can be pickled where what was given can."""

    def __init__(self, given: Any, *, clock: Clock, test_mode: bool) -> None:
        if given is not None and not isinstance(given, str) and not _is_factory(given):
            check_floor(given)
        # A relative path means the folder in which the environment was made, whatever a process changes to later.
        url = DEFAULT_URL if given is None and not test_mode else given
        self.given = anchored(url, os.getcwd()) if isinstance(url, str) else url
        if isinstance(self.given, str):
            open_persister(self.given)  # opens nothing yet, and tells now what's wrong with the URL
        self._clock = clock
        self._test_mode = test_mode
        self._begin()

    def _begin(self) -> None:
        self._made_in = os.getpid()
        self._stores: dict[int, Store] = {}
        self._locks: dict[int, threading.Lock] = {}

    def open(self) -> Store:
        """This process's store, opened at the first call. Raises ValueError or MalformedPersisterError where a factory
        gives something else than a persister, and whatever the factory raises."""
        pid = os.getpid()
        store = self._stores.get(pid)
        if store is None:
            # A lock per process: another's might have been held by a thread that a fork left behind.
            with self._locks.setdefault(pid, threading.Lock()):
                store = self._stores.get(pid)
                if store is None:
                    store = self._stores[pid] = self._make()
        return store

    def opened(self) -> Store | None:
        """This process's store, if it has been opened."""
        return self._stores.get(os.getpid())

    def close(self) -> None:
        """Lets go of this process's store, if it was made here: an instance that was given is its giver's to close,
        and what lives in memory would be gone."""
        store = self._stores.get(os.getpid())
        if store is None or not store.is_shareable or not (isinstance(self.given, str) or _is_factory(self.given)):
            return
        if isinstance(store.persister, OneAtATime):
            if store.persister.close():
                del self._stores[os.getpid()]
        elif isinstance(store.persister, Closing):
            store.persister.close()

    def _make(self) -> Store:
        persister = self._persister()
        check_floor(persister)
        if isinstance(persister, ClockBound):
            persister.use_clock(self._clock)
        capabilities = Capabilities.of(persister)
        if capabilities.leasing is None:
            persister = OneAtATime(persister)
        return Store(persister=persister, capabilities=capabilities, clock=self._clock)

    def _persister(self) -> Any:
        given = self.given
        if given is None:
            return MemoryPersister(self._clock)
        if isinstance(given, str):
            # Beyond test mode, where one process does it all, a server's own clock is what its users share.
            return open_persister(given, self._clock if self._test_mode else None)
        if _is_factory(given):
            return given()
        if os.getpid() != self._made_in:
            after_fork = getattr(given, "after_fork", None)
            if callable(after_fork):
                after_fork()
        return given

    def __getstate__(self) -> dict[str, Any]:
        return {"given": self.given, "_clock": self._clock, "_test_mode": self._test_mode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()


def _is_factory(given: Any) -> bool:
    """A class or anything callable that isn't a persister itself."""
    return isinstance(given, type) or (callable(given) and not callable(getattr(given, "read_tasks", None)))


def given_persister(given: Any) -> Any:
    """What an environment was given, if it's a persister by itself; None for a URL, a factory and the default."""
    return None if given is None or isinstance(given, str) or _is_factory(given) else given


def anchored(url: str, folder: str) -> str:
    """A relative SQLite URL as an absolute one."""
    path = url.removeprefix(_SQLITE)
    if path in ("", url, ":memory:") or path.startswith("/"):
        return url
    for special, quoted in _QUOTED:
        folder = folder.replace(special, quoted)
    return _SQLITE + os.path.join(folder, path)
