"""The bundled stores, and how one is named by a URL. A store's library is loaded when the store is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigurationError

if TYPE_CHECKING:
    from ..ports.clock import Clock
    from .memory import MemoryPersister
    from .postgres import PostgresPersister
    from .redis import RedisPersister
    from .s3 import S3Persister
    from .sqlite import SQLitePersister

__all__ = ["MemoryPersister", "PostgresPersister", "RedisPersister", "S3Persister", "SQLitePersister", "open_persister"]

_MODULES = {
    "MemoryPersister": "memory",
    "PostgresPersister": "postgres",
    "RedisPersister": "redis",
    "S3Persister": "s3",
    "SQLitePersister": "sqlite",
}
_CLASSES = {
    "postgres": "PostgresPersister",
    "postgresql": "PostgresPersister",
    "redis": "RedisPersister",
    "rediss": "RedisPersister",
    "valkey": "RedisPersister",
    "s3": "S3Persister",
}
_FORMS = (
    "sqlite:///relative.db, sqlite:////absolute.db, sqlite:// (in memory), postgresql://user@host/database, "
    "redis://host:6379/0, s3://bucket/prefix"
)


def open_persister(url: str, clock: Clock | None = None) -> Any:
    """The bundled store that the URL names: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``sqlite://``,
    ``postgresql://user@host/database``, ``redis://host:6379/0``, ``s3://bucket/prefix``.

    With ``clock`` the store goes by it, even one whose server has a clock. Nothing is opened before the store's first
    call. Raises ConfigurationError, which never shows what the URL holds besides its scheme, since that may be a
    password.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"a persister's URL must be a str, not {type(url).__name__}; known: {_FORMS}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ConfigurationError(f"not a persister's URL: it has no scheme; known: {_FORMS}")
    if scheme.lower() == "sqlite":
        from .sqlite import SQLitePersister

        return SQLitePersister(_sqlite_path(rest), clock)
    if scheme.lower() in _CLASSES:
        return __getattr__(_CLASSES[scheme.lower()])(url, clock=clock)
    raise ConfigurationError(f"no bundled persister for {_shown(scheme)} URLs; known: {_FORMS}")


def _sqlite_path(rest: str) -> str:
    if not rest:
        return ":memory:"
    if rest == "/":
        # As where the variable that was to hold the path is empty: tasks in memory would be lost without a word.
        raise ConfigurationError(f"an SQLite URL must name a file after its three slashes; known: {_FORMS}")
    if not rest.startswith("/"):
        raise ConfigurationError(
            f"an SQLite URL names no host, so three slashes come before a relative path; known: {_FORMS}"
        )
    if "?" in rest or "#" in rest:
        raise ConfigurationError(
            f"an SQLite URL takes no options; where ? or # belongs to the path, write %3F or %23; known: {_FORMS}"
        )
    if "%" not in rest:
        return rest[1:]
    from urllib.parse import unquote  # not light, and few paths need it

    return unquote(rest[1:])


def _shown(scheme: str) -> str:
    return f"{scheme[:20]!r}" if scheme.isalnum() and scheme.isascii() else "such"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
