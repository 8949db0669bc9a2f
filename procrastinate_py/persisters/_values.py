"""What a database can keep of a task's values."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.errors import PersisterError
from ..core.task import NewTask

_TEXTS = ("queue", "task")


def check_kinds(task: NewTask) -> None:
    """Raises PersisterError for a value of another type than its column's."""
    for name, value in task.as_mapping().items():
        if not isinstance(value, str if name in _TEXTS else int | None):
            wanted = "text" if name in _TEXTS else "an int"
            raise PersisterError(f"{name} of a new task must be {wanted}, not a {type(value).__name__}")


def check_values(values: Iterable[object], *, may_hold_nul: bool = True) -> None:
    """Raises PersisterError for an int beyond 64 bits, for text that has no UTF-8, and for a NUL where none may be."""
    for value in values:
        if isinstance(value, str):
            if not may_hold_nul and "\0" in value:
                raise PersisterError("a text with a NUL character can't be written: escape it")
            if not value.isascii():
                _check_text(value)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise PersisterError("a number is too large for this store, which keeps whole numbers of 64 bits")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PersisterError(f"a text can't be stored as UTF-8: {error.reason} at {error.start}") from None
