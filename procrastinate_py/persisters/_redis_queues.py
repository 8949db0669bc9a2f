"""Which number each queue has. An id holds its queue's number, so that a task is found by its id alone."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from ..core.errors import PersisterError, PersisterUnavailableError
from ._redis_rows import STRIDE, QueueKeys, keys_of
from ._redis_session import Session


class Queues:
    """A queue's number is kept beside its tasks, and in a registry of all: ``{prefix}:queues`` and ``:numbers``.

    The queue's own rules. What is remembered here may be wrong once the server was emptied; whoever uses it checks.
    """

    def __init__(self, prefix: str, session: Callable[[], Session]) -> None:
        self.registry = (f"{{{prefix}}}:queues".encode(), f"{{{prefix}}}:numbers".encode())
        self._prefix = prefix
        self._session = session
        self._keys: dict[str, QueueKeys] = {}
        self._names: dict[int, str] = {}

    def keys(self, queue: str) -> QueueKeys:
        found = self._keys.get(queue)
        if found is None:
            found = self._keys[queue] = keys_of(self._prefix, queue)
        return found

    def names(self) -> list[str]:
        """All that ever had a task."""
        return sorted(name.decode() for name in self._session().execute("HKEYS", self.registry[0]))

    def name_of(self, task_id: int, *, anew: bool = False) -> str | None:
        """The queue that the id belongs to. ``anew``: as the registry tells it now."""
        number = task_id % STRIDE
        if anew or number not in self._names:
            found = self._session().execute("HGET", self.registry[1], number)
            if found is None:
                self._names.pop(number, None)
                return None
            self._names[number] = found.decode()
        return self._names[number]

    def learn(self, queue: str, task_id: int) -> None:
        """A task of the queue has this id."""
        self._names[task_id % STRIDE] = queue

    def knows(self, queue: str, task_id: int) -> bool:
        return self._names.get(task_id % STRIDE) == queue

    def register(self, queue: str, own: int | None = None) -> int:
        """The queue's number in the registry: ``own``, the one that it has already, or a new one."""
        name = queue.encode()
        # By its name, so that it mostly gets the same one again where the registry alone is lost.
        words = (name, b"" if own is None else own, STRIDE, crc32(name) % STRIDE)
        number = int(self._session().run("register", self.registry, words)[1])
        if number == -1:
            raise PersisterError(f"there are {STRIDE:,} queues under this prefix already: no more can be told apart")
        if number == -2:
            # Emptied between the registration and the first task, and another queue was quicker since.
            self._session().execute("HDEL", self.keys(queue).meta, "number")
            raise PersisterUnavailableError(f"the server was emptied while queue {queue[:100]!r} was being set up")
        self._names[number] = queue
        return number
