"""What a server is looked at for before it's used."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from ..core.errors import ConfigurationError
from ._redis_url import RedisAddress
from ._redis_wire import Argument, Refused

OLDEST = (6, 2)
_log = logging.getLogger(__name__.partition(".")[0])


class Server(Protocol):
    def execute(self, *words: Argument) -> Any: ...


def check_server(server: Server, address: RedisAddress, *, silently: bool) -> bool:
    """Whether it's part of a cluster. Raises ConfigurationError for a server that can't be used; warns of settings
    by which tasks may get lost. What a user isn't allowed to ask isn't told."""
    told = _info(server)
    version = told.get("redis_version", "")
    if version and _numbers(version) < OLDEST:
        raise ConfigurationError(f"{address.shown} is Redis {version}: 6.2 or later is needed, or Valkey")
    is_cluster = told.get("cluster_enabled") == "1"
    if address.cluster and told and not is_cluster:
        raise ConfigurationError(f"{address.shown} has cluster=true, and isn't part of a cluster")
    if not silently:
        for concern in concerns_of(told, _save_points(server, told)):
            _log.warning("%s %s", address.shown, concern)
    return is_cluster if address.cluster is None else address.cluster


def concerns_of(told: dict[str, str], save_points: str | None) -> list[str]:
    """What an operator should change. ``save_points`` None: not known."""
    concerns = []
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        concerns.append(f"has maxmemory-policy {policy}, so it may throw tasks away: set it to noeviction")
    if told.get("aof_enabled") == "0" and save_points == "":
        concerns.append("keeps nothing on disk, so a restart loses all tasks: set appendonly yes")
    return concerns


def _info(server: Server) -> dict[str, str]:
    try:
        text = server.execute("INFO")
    except Refused as refused:
        if not _is_forbidden(refused):
            raise
        return {}
    lines = text.decode("utf-8", "replace").splitlines() if isinstance(text, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _save_points(server: Server, told: dict[str, str]) -> str | None:
    if told.get("aof_enabled") != "0":
        return None
    try:
        found = server.execute("CONFIG", "GET", "save")
    except Refused as refused:
        if not _is_forbidden(refused):
            raise
        _log.debug("CONFIG GET isn't allowed: whether the server keeps tasks on disk isn't known")
        return None
    return found[1].decode() if len(found) == 2 else None


def _is_forbidden(refused: Refused) -> bool:
    """A managed service takes it for an unknown command; the rest is trouble."""
    return refused.code in ("ERR", "NOPERM")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
