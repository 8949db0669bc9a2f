"""What a persister can do, asked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import MalformedPersisterError, UnsupportedByPersisterError
from .persister import FLOOR_METHODS, Creating, Editing, Inspecting, Joining, Leasing, Timekeeping, Waking


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Each ability as the persister itself, typed by it, or None."""

    leasing: Leasing | None
    creating: Creating | None
    joining: Joining | None
    editing: Editing | None
    waking: Waking | None
    inspecting: Inspecting | None
    timekeeping: Timekeeping | None

    @classmethod
    def of(cls, persister: Any) -> Capabilities:
        return cls(
            leasing=persister if isinstance(persister, Leasing) else None,
            creating=persister if isinstance(persister, Creating) else None,
            joining=persister if isinstance(persister, Joining) else None,
            editing=persister if isinstance(persister, Editing) else None,
            waking=persister if isinstance(persister, Waking) else None,
            inspecting=persister if isinstance(persister, Inspecting) else None,
            timekeeping=persister if isinstance(persister, Timekeeping) else None,
        )

    def require(self, ability: str, feature: str) -> None:
        """Raises UnsupportedByPersisterError where the ability is missing."""
        if getattr(self, ability) is None:
            raise lacking(ability, feature)


_SQLITE = "SQLite (sqlite:///tasks.db)"
_POSTGRES = "PostgreSQL (postgresql://user@host/database)"
_REDIS = "Redis (redis://host:6379/0)"
_S3 = "S3 (s3://bucket/prefix)"
_NOT_ALL_HAVE = {"joining": (_SQLITE, _POSTGRES), "waking": (_SQLITE, _POSTGRES, _REDIS)}
"""The bundled stores with an ability, where some lack it."""


def lacking(ability: str, feature: str) -> UnsupportedByPersisterError:
    """Names the feature, the ability, and the bundled stores that have it."""
    *most, last = _NOT_ALL_HAVE.get(ability, (_SQLITE, _POSTGRES, _REDIS, _S3))
    return UnsupportedByPersisterError(
        f"{feature} needs a persister with the ability {ability!r}: {', '.join(most)} and {last} have it"
    )


def check_floor(persister: Any) -> None:
    """Raises ValueError for None, MalformedPersisterError naming every method that is missing."""
    if persister is None:
        raise ValueError("the persister is None: a factory must return an object with the four methods")
    missing = [name for name in FLOOR_METHODS if not callable(getattr(persister, name, None))]
    if missing:
        raise MalformedPersisterError(
            f"persister {type(persister).__name__} lacks {', '.join(missing)}: "
            f"it needs all of {', '.join(FLOOR_METHODS)}"
        )
