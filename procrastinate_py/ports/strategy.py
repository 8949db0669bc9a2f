"""The user's object."""

from __future__ import annotations

from typing import Any, Protocol


class Strategy(Protocol):
    """Anything with ``run``.

    Optional hooks, looked up by name: ``success(logger)``, ``fail(logger, error)`` after a failure that will be
    retried, ``final_fail(logger, error)`` after the last one or an expiry.
    """

    def run(self) -> Any: ...


HOOKS: dict[str, int] = {"success": 1, "fail": 2, "final_fail": 2}
"""Each hook and how many arguments it is called with."""
