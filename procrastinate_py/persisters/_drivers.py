"""Libraries that only one store needs: an extra of the package each, loaded when the store is first used."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from ..core.errors import ConfigurationError

_PACKAGE = __name__.partition(".")[0]


def need_driver(module: str, extra: str) -> None:
    """Raises ConfigurationError, telling what to install, where the library isn't there. Loads nothing."""
    if importlib.util.find_spec(module) is None:
        raise _missing(module, extra)


def load_driver(module: str, extra: str) -> ModuleType:
    """The library. Raises ConfigurationError, telling what to install, where it isn't there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module, extra) from error


def _missing(module: str, extra: str) -> ConfigurationError:
    return ConfigurationError(f"this store needs the library {module!r}: pip install '{_PACKAGE}[{extra}]'")
