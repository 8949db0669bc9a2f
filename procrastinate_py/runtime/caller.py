"""Whose module is making an environment: its package is trusted by default."""

from __future__ import annotations

import sys

from ..core.registry import stored_module

_PACKAGE = __name__.partition(".")[0]


def trust_of_the_caller() -> tuple[str, ...]:
    """``__main__``, and the top-level package of the innermost caller that isn't this package's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__")):
        frame = frame.f_back
    module = frame.f_globals.get("__name__")
    package = stored_module(module).partition(".")[0] if isinstance(module, str) else "__main__"
    if package != "__main__" and package.replace("-", "_").isidentifier():
        return ("__main__", package)
    return ("__main__",)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and (module == _PACKAGE or module.startswith(_PACKAGE + "."))
