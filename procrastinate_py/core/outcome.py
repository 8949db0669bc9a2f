"""What a person sees of one attempt."""

from __future__ import annotations

from dataclasses import dataclass

from .lease import TaskId
from .task import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``state`` is what the attempt left the task in; ``error`` the very exception that its hooks got, or None."""

    task_id: TaskId
    state: TaskState
    error: BaseException | None = None
