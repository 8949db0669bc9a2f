"""Requests side by side: a round trip to S3 takes long, and many of them take no longer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..core.errors import PersisterError
from ._s3_bucket import Hung

AT_ONCE = 16

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Pool:
    """Its threads begin with the first work of more than one item."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def each(self, work: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer | PersisterError]:
        """What each item's work returned or, where that was a PersisterError, raised; in order, done side by side.

        Once the server hung, what wasn't begun isn't any more, and answers with that: a thousand items would keep the
        caller waiting for minutes, who has leases to extend and limits to watch.
        """
        hung: list[Hung] = []

        def answer(item: Item) -> Answer | PersisterError:
            if hung:
                return hung[0]
            try:
                return work(item)
            except Hung as error:
                hung.append(error)
                return error
            except PersisterError as error:
                return error

        if len(items) < 2:
            return [answer(item) for item in items]
        with self._lock:
            threads = self._threads = self._threads or ThreadPoolExecutor(AT_ONCE, "procrastinate-s3")
        return list(threads.map(answer, items))

    def close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True)
