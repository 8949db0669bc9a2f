"""What PostgreSQL, libpq and the driver say when something fails, in this package's words."""

from __future__ import annotations

from ..core.errors import PersisterError, PersisterUnavailableError
from ._urls import scrubbed

_VALUES = ("22", "23", "54")
"""Classes of SQLSTATE that tell of a value, not of the server: bad data, a broken constraint, too much of something."""
_GONE = ("42P01", "42703", "3F000", "0A000")
"""The tables, or the schema, aren't as they were: dropped, or changed by a newer version."""
_ANOTHERS_SESSION = ("26000", "42P05")

_NOT_OURS = (
    "there are tables of these names that aren't as they were made, or only one of the two: restore them from a "
    "backup, or choose other names by schema= or prefix="
)
_WORDS = {
    "25P02": "the caller's transaction has failed: nothing can be stored in it before it's rolled back",
    "25P03": "the connection was idle in a transaction for too long",
    "25006": "it is read-only, as a standby is",
    "40001": "the call ran into another one",
    "40P01": "the call ran into another one",
    "42703": _NOT_OURS,
    "42P07": _NOT_OURS,
    "42501": "this role lacks a right that it needs",
    "53100": "its disk is full",
    "57014": "the call took too long",
    "57P01": "it is being shut down",
}


def code_of(error: BaseException) -> str:
    """The SQLSTATE, or "" where the server told none. psycopg2 names it in its own way."""
    return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def is_about_a_value(error: BaseException) -> bool:
    """Whether the server is well, and refused what it was given."""
    return isinstance(error, UnicodeError | OverflowError) or code_of(error)[:2] in _VALUES or _is_unsendable(error)


def is_about_tables(error: BaseException) -> bool:
    return code_of(error) in _GONE


def is_about_sessions(error: BaseException) -> bool:
    """Whether what was prepared in a session isn't there, or is there before it was: a pooler must be between."""
    return code_of(error) in _ANOTHERS_SESSION


def translated(error: BaseException, where: str, secrets: tuple[str, ...]) -> PersisterError:
    """Tells what failed, and never a secret. To be raised ``from None``: the driver's own error may quote one."""
    said = scrubbed(" ".join(str(error).split()), secrets) or type(error).__name__
    words = _WORDS.get(code_of(error))
    if words is not None:
        said = f"{words} ({said})"
    if is_about_a_value(error) or code_of(error) == "25P02":
        return PersisterError(f"PostgreSQL {where}: {said}")
    return PersisterUnavailableError(f"PostgreSQL {where}: {said}")


def _is_unsendable(error: BaseException) -> bool:
    """The driver itself refused a value, before anything was sent."""
    return type(error).__name__ == "DataError" and not code_of(error)
