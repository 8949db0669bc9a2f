"""Modules that were being imported when a process was forked.

In the fork nobody will ever finish them: names that come below the line where the application started its environment
are missing, and whoever imports them waits for a lock that nobody lets go. So a fork imports them anew when it needs
them; its own start() starts nothing then.
"""

from __future__ import annotations

import sys


def forget_unfinished_imports() -> None:
    """In a fork, before any code of the user's runs in it."""
    for name, module in list(sys.modules.items()):
        if name != "__main__" and getattr(getattr(module, "__spec__", None), "_initializing", False):
            del sys.modules[name]
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", None)
    if isinstance(locks, dict):
        locks.clear()
