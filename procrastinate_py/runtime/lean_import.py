"""Imports structlog without what it only needs on a developer's terminal.

``import structlog`` imports rich where it's installed (10 MiB), and asyncio with ssl (7 MiB) for its asynchronous
methods. A queue process writes lines to a file, and there is one of it per queue, so these wait until they're used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_NOT_NEEDED = ("rich", "twisted", "better_exceptions")
_NEEDED_LATER = ("asyncio",)


class _Deferred(ModuleType):
    """Stands in for a module in those that import it meanwhile; imports it when something is taken from it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def lean_imports() -> Iterator[None]:
    """What is loaded already stays as it is, and what is left out can be imported as usual afterwards.

    For a process that is still single-threaded: another thread's ``import rich`` would fail meanwhile.
    """
    names = [name for name in (*_NOT_NEEDED, *_NEEDED_LATER) if name not in sys.modules]
    stand_ins: dict[str, Any] = {name: _Deferred(name) if name in _NEEDED_LATER else None for name in names}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
