"""The task that simulations delay: what it does is written in its state, and told to the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime.guard import Interruption
from .simulation_actors import HERE

if TYPE_CHECKING:
    from .simulation_process import Body

STORED_AS = "simulated"
BEHAVIOURS = ("succeeds", "fails", "fails once", "kills", "kills in hook", "ignores its limit", "exits")


class BodyFailedError(Exception):
    """Raised by simulated tasks that fail."""


class SimulatedTask:
    """``seconds``: how long ``run`` takes. ``changes`` counts what it changed on itself."""

    def __init__(self, behaviour: str, seconds: float) -> None:
        self.behaviour = behaviour
        self.seconds = seconds
        self.changes = 0

    def run(self) -> None:
        body: Body = HERE.get()
        body.began(self.changes)
        self.changes += 1
        succeeded = False
        try:
            self._work(body)
            succeeded = True
        finally:
            body.over(succeeded=succeeded)

    def _work(self, body: Body) -> None:
        body.sleep(self.seconds)
        match self.behaviour:
            case "fails":
                raise BodyFailedError("it always does")
            case "fails once" if self.changes == 1:
                raise BodyFailedError("it does at first")
            case "kills":
                body.die()
            case "exits":
                raise SystemExit(3)
            case "ignores its limit":
                self._ignore_limit(body)

    def _ignore_limit(self, body: Body) -> None:
        body.heeds = False
        while True:
            try:
                body.sleep(1_000.0)
                raise BodyFailedError("it took its time")
            except Interruption:
                continue

    def success(self, logger: Any) -> None:
        self._hook("success")

    def fail(self, logger: Any, error: BaseException) -> None:
        self._hook("fail")

    def final_fail(self, logger: Any, error: BaseException) -> None:
        self._hook("final_fail")

    def _hook(self, name: str) -> None:
        body: Body = HERE.get()
        self.changes += 1
        body.hook_began(name)
        if self.behaviour == "kills in hook":
            body.die()
        try:
            body.sleep(self.seconds / 10)
        finally:
            body.hook_over(self.changes)
