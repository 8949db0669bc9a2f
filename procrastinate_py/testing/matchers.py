"""``have_task(...)``: equal to any record that is as described."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from ..core.errors import PayloadError
from ..core.instants import Instant, epoch_seconds, round_expire_at, round_run_at
from ..core.queue import normalise_name
from ..core.stored_text import tag_of_text
from ..core.task import TaskRecord, TaskState

ANYTHING: Any = type("Anything", (), {"__repr__": lambda self: "ANYTHING"})()


def have_task(
    *,
    queue: str = ANYTHING,
    task: Any = ANYTHING,
    run_at: Instant | None = ANYTHING,
    expire_at: Instant | None = ANYTHING,
    state: TaskState | str = ANYTHING,
    attempts: int = ANYTHING,
) -> TaskMatcher:
    """``assert have_task(queue="email", task=SendWelcome) in env.tasks()``; what isn't given may be anything.

    ``task`` is a class (exactly that one), an object (of its class, with the same attributes), or a stored name.
    Instants are as in ``delay``; a timedelta counts from the moment at which the record was read.
    """
    wanted = {
        "queue": queue if queue is ANYTHING else normalise_name(queue),
        "task": task,
        "run_at": _checked_instant(run_at, "run_at"),
        "expire_at": _checked_instant(expire_at, "expire_at"),
        "state": state if state is ANYTHING else TaskState(state),
        "attempts": attempts,
    }
    return TaskMatcher({name: value for name, value in wanted.items() if value is not ANYTHING})


class TaskMatcher:
    """Equality is all there is to it: ``in``, ``==`` and ``list.index`` work."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._wanted = wanted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskRecord) and not self.differences(other)

    def differences(self, record: TaskRecord) -> list[str]:
        """A line for each thing that isn't as wanted."""
        return [line for name, value in self._wanted.items() if (line := _difference(name, value, record)) is not None]

    def explanation(self, found: Any) -> list[str]:
        """Why none of these records matches: what the nearest one differs in."""
        records = [found] if isinstance(found, TaskRecord) else list(found) if isinstance(found, Iterable) else []
        records = [record for record in records if isinstance(record, TaskRecord)]
        if not records:
            return ["there is no task at all"]
        nearest = min(records, key=lambda record: len(self.differences(record)))
        lines = [f"none of {len(records)} task(s); the nearest is number {nearest.id!r} in queue {nearest.queue!r}:"]
        return lines + [f"  {line}" for line in self.differences(nearest)]

    def __repr__(self) -> str:
        told = (f"{name}={_shown(value)}" for name, value in self._wanted.items())
        return f"have_task({', '.join(told)})"


def _difference(name: str, wanted: Any, record: TaskRecord) -> str | None:
    if name == "task":
        return _task_difference(wanted, record)
    found = getattr(record, name)
    if name in ("run_at", "expire_at") and wanted is not None:
        wanted = _rounded(name, wanted, record.read_at)
        if found == wanted:
            return None
        apart = "" if found is None else f" ({found - wanted:+d} s)"
        return f"{name}: wanted {wanted}, it is {found}{apart}"
    return None if found == wanted else f"{name}: wanted {_shown(wanted)}, it is {_shown(found)}"


def _task_difference(wanted: Any, record: TaskRecord) -> str | None:
    tag = tag_of_text(record.task)
    if isinstance(wanted, str):
        return None if tag == wanted else f"task: wanted one stored as {wanted!r}, it is {tag!r}"
    cls = wanted if isinstance(wanted, type) else type(wanted)
    try:
        task = record.load()
    except PayloadError as error:
        return f"task: wanted {cls.__name__}, it can't be loaded: {error}"
    if type(task) is not cls:
        return f"task: wanted {cls.__name__}, it is {type(task).__name__}"
    if isinstance(wanted, type) or task == wanted:
        return None
    return _state_difference(wanted, task)


def _state_difference(wanted: Any, found: Any) -> str | None:
    """By attribute, since few strategies define ``__eq__``."""
    if _has_own_equality(type(wanted)):
        return f"task: wanted {wanted!r}, it is {found!r}"
    ours, theirs = _attributes(wanted), _attributes(found)
    differing = sorted(name for name in ours.keys() | theirs.keys() if not _same(name, ours, theirs))
    told = (f"{name}: wanted {_of(name, ours)}, it is {_of(name, theirs)}" for name in differing)
    return f"task: {type(wanted).__name__} with {'; '.join(told)}" if differing else None


def _has_own_equality(cls: Any) -> bool:
    return cls.__eq__ is not object.__eq__


def _attributes(task: Any) -> dict[str, Any]:
    slots = (name for cls in type(task).__mro__ for name in _names(cls.__dict__.get("__slots__", ())))
    return {name: getattr(task, name) for name in slots if hasattr(task, name)} | getattr(task, "__dict__", {})


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _same(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return name in ours and name in theirs and bool(ours[name] == theirs[name])


def _of(name: str, attributes: dict[str, Any]) -> str:
    return repr(attributes[name]) if name in attributes else "absent"


def _checked_instant(value: Any, argument: str) -> Any:
    if value is not ANYTHING and value is not None:
        epoch_seconds(value, now=0.0, argument=argument)
    return value


def _rounded(name: str, value: Any, now: float) -> int:
    seconds = epoch_seconds(value, now=now, argument=name)
    return round_run_at(seconds) if name == "run_at" else round_expire_at(seconds)


def _shown(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, TaskState):
        return repr(value.value)
    return str(value) if isinstance(value, datetime | timedelta) else repr(value)
