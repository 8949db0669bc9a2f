"""Values that YAML has no word for, as short texts that a person can read and edit.

Every ``read_*`` raises some Exception (most often ValueError) for a text that isn't one of its kind.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_TO_ESCAPE = re.compile("[\\\\\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(?:(\\)|u([0-9a-fA-F]{4}))")
_MOMENT = re.compile(
    r"(?P<iso>\S+(?: \d\d:\S+)?)(?: (?P<zone>(?!fold=|tzname=)\S+))?(?: fold=(?P<fold>[01]))?(?: tzname=(?P<name>.*))?",
    re.S,
)

# Bound while this module is loaded: freezegun replaces the names datetime and date in every module, and what it
# puts there makes instances of its own classes.
_read_iso_datetime = datetime.fromisoformat
_read_iso_date = date.fromisoformat
_read_iso_time = time.fromisoformat
_FROZEN = {"FakeDatetime": datetime, "FakeDate": date}


class Unwritable(Exception):
    """This very value of a storable type can't be stored; the text says why."""


def has_surrogates(text: str) -> bool:
    return _SURROGATE.search(text) is not None


def escaped(text: str) -> str:
    """Lone surrogates and backslashes as escapes, since YAML can't hold the former."""
    return _TO_ESCAPE.sub(lambda found: "\\\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}", text)


def read_escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: found[1] or chr(int(found[2], 16)), text)


def write_datetime(value: datetime | time) -> str:
    """ISO 8601, and where that can't tell it all: `` Europe/Berlin``, `` fold=1``, `` tzname=NAME``."""
    zone, name = _zone_of(value.tzinfo)
    iso = value.replace(tzinfo=None).isoformat() if zone else value.isoformat()
    zone_part = f" {zone}" if zone else ""
    fold_part = " fold=1" if value.fold else ""
    name_part = "" if name is None else f" tzname={name}"
    return iso + zone_part + fold_part + name_part


def _zone_of(zone: tzinfo | None) -> tuple[str | None, str | None]:
    """The key of a named zone, or the name of a fixed offset that was given one."""
    if zone is None:
        return None, None
    if type(zone) is timezone:
        if timedelta(0) < abs(zone.utcoffset(None)) < timedelta(seconds=1):  # fromisoformat takes it for UTC
            raise Unwritable("a time zone that is less than a second off UTC")
        name = zone.tzname(None)
        own = name != timezone(zone.utcoffset(None)).tzname(None)
        if own and has_surrogates(name):
            raise Unwritable("a time zone whose name isn't text")
        return None, name if own else None
    from zoneinfo import ZoneInfo  # reads the disk when first imported, and most tasks hold no zone

    if type(zone) is ZoneInfo and zone.key and " " not in zone.key and ZoneInfo(zone.key) is zone:
        return zone.key, None
    raise Unwritable(f"a time of zone {type(zone).__name__}: use zoneinfo.ZoneInfo(name) or datetime.timezone")


def read_datetime(text: str) -> datetime:
    moment: datetime = _read_moment(text, _read_iso_datetime)
    return moment


def read_time(text: str) -> time:
    moment: time = _read_moment(text, _read_iso_time)
    return moment


def _read_moment(text: str, read: Callable[[str], Any]) -> Any:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError("not a moment")
    value = read(found["iso"])
    if found["zone"]:
        from zoneinfo import ZoneInfo

        value = value.replace(tzinfo=ZoneInfo(found["zone"]))
    if found["name"] is not None:
        value = value.replace(tzinfo=timezone(value.utcoffset(), found["name"]))
    return value.replace(fold=1) if found["fold"] == "1" else value


def read_date(text: str) -> date:
    return _read_iso_date(text)


def timedelta_parts(value: timedelta) -> dict[str, int]:
    parts = {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    return {unit: number for unit, number in parts.items() if number} or {"seconds": 0}


def read_timedelta(parts: dict[str, Any]) -> timedelta:
    """Any of timedelta's own units, weeks to microseconds."""
    if not all(type(number) in (int, float) for number in parts.values()):
        raise ValueError("not a number of units")
    return timedelta(**parts)


def write_bytes(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def read_bytes(text: str) -> bytes:
    """Base64; white space is ignored."""
    return binascii.a2b_base64("".join(text.split()), strict_mode=True)


def read_decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


def read_uuid(text: str) -> Any:
    from uuid import UUID

    return UUID(text)


def real_type(cls: type) -> type:
    """What a test's stand-in for datetime or date stands for; any other class itself."""
    if cls.__module__ == "freezegun.api":
        return _FROZEN.get(cls.__name__, cls)
    return cls


READERS: dict[str, Callable[[str], Any]] = {
    "!escaped": read_escaped,
    "!datetime": read_datetime,
    "!date": read_date,
    "!time": read_time,
    "!decimal": read_decimal,
    "!uuid": read_uuid,
    "!bytes": read_bytes,
}
