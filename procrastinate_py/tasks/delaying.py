"""From what delay is given to what a store gets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.codec import Codec
from ..core.error_text import did_you_mean
from ..core.errors import MalformedTaskError, UntrustedTaskError
from ..core.instants import Instant, epoch_seconds, round_expire_at, round_run_at
from ..core.task import NewTask
from .strategy_check import StrategyCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """One of many, for ``delay_many``: the arguments of one ``delay``."""

    task: Any
    queue: str | None = None
    run_at: Instant | None = None
    expire_at: Instant | None = None


OPTIONS = ("run_at", "expire_at")


def refuse_unknown(options: Iterable[str]) -> None:
    for option in options:
        if option not in OPTIONS:
            raise TypeError(
                f"delay has no option {option!r}{did_you_mean(option, OPTIONS)}; known: {', '.join(OPTIONS)}"
            )


def as_delayed(item: Any) -> Delayed:
    """``(queue, task)``, ``(queue, task, {options})`` or a Delayed. Raises TypeError."""
    if isinstance(item, Delayed):
        return item
    if isinstance(item, tuple | list) and len(item) in (2, 3):
        queue, task, options = item if len(item) == 3 else (*item, {})
        if options is None or isinstance(options, Mapping):
            refuse_unknown(options or ())
            return Delayed(queue=queue, task=task, **(options or {}))
    raise TypeError(f"delay_many takes (queue, task, {{options}}) or Delayed(...), not {type(item).__name__}")


class Delaying:
    """Checks, serialises and reads back. Safe to use from any thread."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._check = StrategyCheck()
        self.workers_have_begun = False
        """Whether there are queue processes, which won't learn of classes that are only seen from now on."""

    def new_task(self, queue: str, delayed: Delayed, now: float) -> NewTask:
        """Raises MalformedTaskError, PayloadError, TypeError or ValueError, naming what is to be put right."""
        run_at, expire_at = instants(delayed.run_at, delayed.expire_at, now)
        self._check(delayed.task)
        cls = type(delayed.task)
        if self.workers_have_begun and not self._codec.registry.trusts(cls):
            raise UntrustedTaskError(
                f"{cls.__name__} is of {cls.__module__!r}, which the queue processes don't trust: list its package in "
                "Environment(trust=[...]), or register it with env.task before start()"
            )
        text = self._codec.checked_dump(delayed.task)
        return NewTask(queue=queue, run_at=run_at, initial_run_at=run_at, expire_at=expire_at, task=text)


def instants(run_at: Instant | None, expire_at: Instant | None, now: float) -> tuple[int, int | None]:
    """Whole seconds: ``run_at`` up (default: now, down), ``expire_at`` down, compared after that."""
    starts = math.floor(now) if run_at is None else round_run_at(epoch_seconds(run_at, now=now, argument="run_at"))
    if expire_at is None:
        return starts, None
    ends = round_expire_at(epoch_seconds(expire_at, now=now, argument="expire_at"))
    if ends < starts:
        raise ValueError(
            f"expire_at ({ends}) is before run_at ({starts}{', now' if run_at is None else ''}): it could never run"
        )
    return starts, ends


def strategy_and_queue(first: Any, queue: Any, task: Any, missing: object) -> tuple[Any, Any]:
    """``first`` is the queue, as in ``delay("email", task=t)``, or the task, as in ``delay(t)``."""
    if first is not None and not isinstance(first, str) and task is missing:
        return first, queue
    if first is not None and queue is not None:
        raise TypeError(f"delay got two queues, {first!r} and {queue!r}")
    if task is missing:
        raise MalformedTaskError("delay needs task=: an object with a method run")
    return task, queue if first is None else first
