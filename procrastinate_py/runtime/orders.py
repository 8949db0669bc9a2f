"""What a queue process is told, and what it does when those whom it works for have gone."""

from __future__ import annotations

import math
import select
import threading
from collections.abc import Callable

from .forking import CRASHED, end_process
from .logs import QueueLog
from .pipes import LineReader, QueuePipes
from .stop import StopLevel, StopToken
from .supervisor import AT_ONCE, MARGIN

_LONGEST_WAIT = 3600.0


class Orders:
    """Heard in a thread of their own: a store that hangs must not make the process deaf.

    It's the last resort too. A process that doesn't end by itself is ended, though nobody may be left to kill it.
    """

    def __init__(
        self, pipes: QueuePipes, stop: StopToken, log: QueueLog, grace: float, monotonic: Callable[[], float]
    ) -> None:
        self._application = pipes.application
        self._orders = LineReader(pipes.orders)
        self._stop = stop
        self._log = log
        self._grace = grace
        self._monotonic = monotonic
        self._end_at = math.inf
        self._poll = select.poll()
        self._poll.register(self._application, select.POLLIN)
        self._poll.register(self._orders.fd, select.POLLIN)

    def listen(self) -> None:
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def _listen(self) -> None:
        while (left := self._end_at - self._monotonic()) > 0:
            for fd, _ in self._poll.poll(math.ceil(min(left, _LONGEST_WAIT) * 1000)):
                if fd == self._application:  # nobody ever writes to it, so this is its end
                    self._poll.unregister(fd)
                    self._lost("application_gone")
                else:
                    self._heed()
        self._log.error("process_failed", reason="it didn't end within its grace")
        end_process(CRASHED)

    def _heed(self) -> None:
        for line in self._orders.lines():
            order, _, value = line.partition(" ")
            if order == "drain":
                self._log.info("draining", grace=float(value))
                self._drain("told to stop", float(value))
            elif order == "now":
                self._stop.now("told to stop at once")
                self._end_within(AT_ONCE)
        if self._orders.at_end:
            self._poll.unregister(self._orders.fd)
            self._lost("supervisor_gone")

    def _lost(self, event: str) -> None:
        """Nobody is left who could ask for more: what runs may end, and then the process does."""
        if self._stop.level is StopLevel.NONE:
            self._log.error(event, next=f"claims nothing more, ends within {self._grace:g} s")
        self._drain(event.replace("_", " "), self._grace)

    def _drain(self, reason: str, grace: float) -> None:
        self._stop.drain(reason, grace)
        self._end_within(grace + MARGIN)

    def _end_within(self, seconds: float) -> None:
        self._end_at = min(self._end_at, self._monotonic() + seconds)
