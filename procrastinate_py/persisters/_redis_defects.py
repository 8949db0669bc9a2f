"""Texts in Redis that somebody edited, or cut: as much of the task as can be read, so that it alone fails."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ..core.row import record_from_row
from ..core.task import TaskRecord

_CHANGING = ("run_at", "attempts", "last_fail_at", "last_error")
_FIXED = ("initial_run_at", "expire_at")


def check_numbers(*numbers: object) -> None:
    """Raises TypeError where one is neither an int nor None."""
    for number in numbers:
        if number is not None and type(number) is not int:
            raise TypeError("it isn't a whole number")


def defective(task_id: int, queue: str, text: bytes, read_at: float) -> TaskRecord:
    """In nobody's hand, and not closed: it's to be attempted, and to fail."""
    lines = text.decode("utf-8", "replace").split("\n", 2)
    changing, fixed, task = lines if len(lines) == 3 else ("", "", lines[0])
    row: dict[str, Any] = {"id": task_id, "task": task, **_values(_CHANGING, changing), **_values(_FIXED, fixed)}
    if type(row.get("run_at")) is not int:
        row["run_at"] = None  # its score led to it
    record = record_from_row(queue, row, read_at)
    return replace(
        record, closed_as=None, closed_at=None, defect=record.defect or "what is kept of it in Redis can't be read"
    )


def _values(names: tuple[str, ...], line: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return dict(zip(names, values, strict=False)) if isinstance(values, list) else {}
