"""What a PostgreSQL URL says to this package, and what it says to the driver."""

from __future__ import annotations

import re
from urllib.parse import unquote

from ..core.errors import ConfigurationError

DEFAULT_PREFIX = "procrastinate_py_"
_LONGEST_NAME = 63
_LONGEST_SUFFIX = len("tasks_leased")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]*")


def split_options(url: str) -> tuple[str, dict[str, str]]:
    """The URL as libpq takes it, and our own options, ``schema`` and ``prefix``, which it doesn't know."""
    head, question, query = url.partition("?")
    scheme, separator, address = head.partition("://")
    head = scheme.lower() + separator + address
    ours: dict[str, str] = {}
    theirs = []
    for option in query.split("&") if question else ():
        name, _, value = option.partition("=")
        if name in ("schema", "prefix"):
            ours[name] = unquote(value)
        elif option:
            theirs.append(option)
    return head + (f"?{'&'.join(theirs)}" if theirs else ""), ours


def checked_schema(name: str | None) -> str | None:
    """Raises ConfigurationError for what is no name of a schema. None: where the role's search_path leads."""
    if name is not None and not (_is_name(name) and len(name) <= _LONGEST_NAME and not name.startswith("pg_")):
        raise ConfigurationError(
            f"schema must be a name of up to {_LONGEST_NAME} ASCII letters, digits, _, $ and -, that begins with a "
            f"letter or _ and not with pg_, not {name!r:.100}"
        )
    return name


def checked_prefix(name: str) -> str:
    """Raises ConfigurationError for what can't begin the names of tables."""
    longest = _LONGEST_NAME - _LONGEST_SUFFIX
    if not (_is_name(name) and len(name) <= longest) and name != "":
        raise ConfigurationError(
            f"prefix must be up to {longest} ASCII letters, digits, _, $ and -, that begin with a letter or _, "
            f"not {name!r:.100}"
        )
    return name


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
