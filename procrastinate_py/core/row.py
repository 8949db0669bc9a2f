"""Rows of floor persisters, which may be anything, as records."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from .error_text import shown
from .lifecycle import closed_state_of_row
from .task import TaskRecord

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1

_WHOLE = re.compile(r"\s*[-+]?[0-9]+\s*", re.ASCII)


class UnreadableRowError(Exception):
    """The row has no id, or its run_at can't be read: there's nothing that could safely be done with it."""


def record_from_row(queue: str, row: object, read_at: float) -> TaskRecord:
    """A record of ``queue``. Where attempts, expire_at or task can't be read, its ``defect`` says so.

    Ints may come as str, Decimal or whole floats; unknown keys are left out, missing optional ones are None.
    """
    if not isinstance(row, Mapping):
        raise UnreadableRowError(f"a row of queue {queue!r} isn't a mapping but a {type(row).__name__}")
    task_id = row.get("id")
    if task_id is None:
        raise UnreadableRowError(f"a row of queue {queue!r} has no id")
    try:
        run_at = _optional_int(row.get("run_at"))
        hash(task_id)
    except (ValueError, TypeError):
        raise UnreadableRowError(f"task {shown(task_id)} of queue {queue!r}: its id or run_at can't be read") from None
    reader = _Reader(row)
    last_error = row.get("last_error")
    return TaskRecord(
        id=task_id,
        queue=queue,
        task=reader.text("task"),
        run_at=run_at,
        initial_run_at=reader.harmless_int("initial_run_at"),
        expire_at=reader.whole("expire_at"),
        attempts=max(0, reader.whole("attempts") or 0),
        last_fail_at=reader.harmless_int("last_fail_at"),
        last_error=last_error if last_error is None or isinstance(last_error, str) else shown(last_error),
        closed_as=closed_state_of_row(run_at, last_error if isinstance(last_error, str) else None),
        closed_at=reader.harmless_int("last_fail_at") if run_at is None else None,
        read_at=read_at,
        defect=reader.defect,
    )


class _Reader:
    def __init__(self, row: Mapping[Any, Any]) -> None:
        self._row = row
        self.defect: str | None = None

    def whole(self, key: str) -> int | None:
        value = self._row.get(key)
        try:
            return _optional_int(value)
        except (ValueError, TypeError):
            self.defect = self.defect or f"its {key} can't be read: {shown(value)}"
            return None

    def harmless_int(self, key: str) -> int | None:
        try:
            return _optional_int(self._row.get(key))
        except (ValueError, TypeError):
            return None

    def text(self, key: str) -> str:
        value = self._row.get(key)
        if isinstance(value, str):
            return value
        self.defect = self.defect or f"its {key} isn't text but {type(value).__name__}"
        return ""


def _optional_int(value: object) -> int | None:
    number = _any_int(value)
    if number is not None and not _LOWEST <= number <= _HIGHEST:
        raise ValueError("more than 64 bits: no clock gets there, and arithmetic with it fails")
    return number


def _any_int(value: object) -> int | None:
    if value is None or type(value) is int:
        return value
    if isinstance(value, bool):
        raise ValueError("a bool is no number here")
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal | float):
        if not math.isfinite(value) or not _LOWEST <= value <= _HIGHEST or value != int(value):
            raise ValueError("not a whole number")
        return int(value)
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise ValueError("not a whole number")
        return int(value)
    raise TypeError(f"not a number but {type(value).__name__}")
