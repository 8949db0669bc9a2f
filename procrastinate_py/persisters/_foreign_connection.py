"""A connection that the caller's own code opened, through whatever library, as the driver's own connection.

Libraries are known by the modules of their classes: none is imported here that the caller hasn't.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.errors import ConfigurationError, PersisterError


def driver_connection(given: Any, *, drivers: Iterable[str], takes: str) -> Any:
    """The connection of one of these drivers (their top modules) that is in ``given``: the driver's own, an SQLAlchemy
    Connection or Session, or a Django connection. Its transaction is begun where the library has to know of it.

    Raises ConfigurationError for anything else, naming its type and what the store ``takes``, and PersisterError where
    the caller's transaction has failed already.
    """
    _refuse_async(given, takes)
    found = given
    if _is_from(given, "django"):
        found = _below_django(given)
    elif _is_from(given, "sqlalchemy"):
        found = _below_sqlalchemy(given)
    _refuse_async(found, takes)
    if not any(_is_from(found, driver) for driver in drivers) or not callable(getattr(found, "cursor", None)):
        below = "" if found is given or found is None else f", which is on a {_kind(found)}"
        raise ConfigurationError(f"connection= takes {takes}, not a {_kind(given)}{below}")
    return found


def _is_from(value: Any, library: str) -> bool:
    return any(cls.__module__.partition(".")[0] == library for cls in type(value).__mro__)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _refuse_async(value: Any, takes: str) -> None:
    kinds = type(value).__mro__
    if any(cls.__name__.startswith("Async") or cls.__module__.startswith(("asyncpg", "aio")) for cls in kinds):
        raise ConfigurationError(
            f"connection= takes {takes}, none that is used with await, as a {_kind(value)} is: within SQLAlchemy's "
            "run_sync too the driver's connection stays an asynchronous one"
        )


def _below_django(wrapper: Any) -> Any:
    if not callable(getattr(wrapper, "ensure_connection", None)):
        return wrapper
    if wrapper.in_atomic_block and wrapper.needs_rollback:
        raise PersisterError("the caller's transaction has failed: nothing can be stored in it before it's rolled back")
    wrapper.ensure_connection()
    return wrapper.connection


def _below_sqlalchemy(given: Any) -> Any:
    # A Session has a method by this name, which begins its transaction; a Connection an attribute.
    connection = given.connection() if callable(getattr(given, "connection", None)) else given
    if not hasattr(connection, "in_transaction") or not hasattr(connection, "connection"):
        return given
    if not connection.in_transaction():
        connection.begin()  # or commit() would have nothing to commit, as far as SQLAlchemy knows
    return connection.connection.dbapi_connection
