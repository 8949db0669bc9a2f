"""Body threads, fed from one queue. Threads begin when they're first needed and are never killed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from .attempt import Attempt


class BodyThread(threading.Thread):
    """Overrides ``run``, which keeps frames of ``threading`` away from the body: freezegun shows real time there."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work

    def run(self) -> None:
        self._work()


class Executor:
    """``perform`` is called in a body thread and must not raise."""

    def __init__(self, perform: Callable[[Attempt], None], size: int, name: str) -> None:
        self._perform = perform
        self._size = size
        self._name = name
        self._waiting: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads = 0
        self._is_short = False
        self._untold: RuntimeError | None = None

    def submit(self, attempt: Attempt, unfinished: int) -> None:
        """Queues it. ``unfinished`` is how many attempts are queued or running, this one counted.

        Where the machine has no thread to give, it just waits; the next ``submit`` asks for one again.
        """
        self._waiting.put(attempt)
        if self._threads < self._size and self._threads < unfinished:
            try:
                BodyThread(self._work, f"{self._name}-{self._threads + 1}").start()
            except RuntimeError as error:
                self._untold = self._untold if self._is_short else error
                self._is_short = True
            else:
                self._threads += 1
                self._is_short = False

    def take_shortage(self) -> RuntimeError | None:
        """Why a thread couldn't be started, once in each spell in which none can."""
        error, self._untold = self._untold, None
        return error

    def submit_apart(self, attempt: Attempt) -> None:
        """In a thread of its own, however many others are stuck: for hooks on behalf of a body that won't end."""
        BodyThread(lambda: self._perform_one(attempt), f"{self._name}-hook").start()

    def take_back(self) -> list[Attempt]:
        """Those that no thread has begun, which now none will."""
        taken: list[Attempt] = []
        while True:
            try:
                attempt = self._waiting.get_nowait()
            except Empty:
                return taken
            if attempt is not None:
                taken.append(attempt)

    @property
    def waiting(self) -> int:
        return self._waiting.qsize()

    def close(self) -> None:
        """Threads end when they're done with what they have."""
        for _ in range(self._threads):
            self._waiting.put(None)
        self._threads = 0

    def _work(self) -> None:
        get = self._waiting.get
        while (attempt := get()) is not None:
            self._perform_one(attempt)

    def _perform_one(self, attempt: Attempt) -> None:
        self._perform(attempt)
