"""One process's connections to a Redis server or cluster, and the scripts that are run there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

from ..core.errors import ConfigurationError, PersisterError, PersisterUnavailableError
from ..ports.clock import SystemClock
from ._drivers import load_driver
from ._redis_checks import check_server
from ._redis_url import RedisAddress
from ._redis_wire import Argument, Refused, Wire, packed
from ._urls import scrubbed

CONNECT_WITHIN = 5.0
ANSWER_WITHIN = 10.0
_FRESH_FOR = 1.0
"""Seconds after its last use in which a connection isn't looked at before it's used again."""
_FOLDER = Path(__file__).with_name("lua")

_abandoned: list[object] = []
"""What a fork's child inherited: neither used nor closed, but kept, since the garbage collector would close it."""


class Script:
    """One of the scripts in lua/, and the name that a server which has seen it knows it by."""

    def __init__(self, name: str) -> None:
        from hashlib import sha1  # not light; redis-py has loaded it

        self.text = b"%b\n%b" % ((_FOLDER / "_prelude.lua").read_bytes(), (_FOLDER / f"{name}.lua").read_bytes())
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest().encode()


@cache
def script(name: str) -> Script:
    return Script(name)


class Transport(Protocol):
    def execute(self, *words: Argument) -> Any: ...
    def evaluate(self, wanted: Script, keys: Sequence[bytes], arguments: Iterable[Argument]) -> Any: ...
    def close(self) -> None: ...


class Node:
    """Connections to one server, each used by one thread at a time. Nothing is ever sent twice."""

    def __init__(self, connect: Callable[[], Wire], monotonic: Callable[[], float]) -> None:
        self._connect = connect
        self._monotonic = monotonic
        self._idle: list[tuple[Wire, float]] = []

    def execute(self, *words: Argument) -> Any:
        return self._answer_to(b"*%d\r\n%b" % (len(words), packed(words)))

    def evaluate(self, wanted: Script, keys: Sequence[bytes], arguments: Iterable[Argument]) -> Any:
        words = tuple(arguments)
        number = 3 + len(keys) + len(words)
        tail = packed(words)
        try:
            return self._answer_to(b"*%d\r\n%b%b" % (number, _head(wanted.sha, tuple(keys)), tail))
        except Refused as refused:
            if refused.code != "NOSCRIPT":
                raise
            return self._answer_to(b"*%d\r\n%b%b" % (number, packed(("EVAL", wanted.text, len(keys), *keys)), tail))

    def close(self) -> None:
        while self._idle:
            try:
                self._idle.pop()[0].close()
            except IndexError:
                return

    def _answer_to(self, command: bytes) -> Any:
        wire = self._taken()
        try:
            reply = wire.ask(command)
        except Refused as refused:
            # Another server took over: the name may lead to it by now. Before Redis 7, a script's error hides the code.
            if "READONLY" in str(refused):
                wire.close()
                self.close()
            else:
                self._idle.append((wire, self._monotonic()))
            raise
        except BaseException:
            wire.close()
            raise
        self._idle.append((wire, self._monotonic()))
        return reply

    def _taken(self) -> Wire:
        """An open one. What the server closed while it was idle is left."""
        while self._idle:
            try:
                wire, used_at = self._idle.pop()
            except IndexError:
                break
            if self._monotonic() - used_at < _FRESH_FOR or not wire.is_stale():
                return wire
            wire.close()
        return self._connect()


class Cluster:
    """The library's own client of a cluster, told never to send anything twice."""

    def __init__(self, redis: Any, url: str, settings: dict[str, Any]) -> None:
        self._client = redis.cluster.RedisCluster.from_url(url, **settings)
        self._unknown = redis.exceptions.NoScriptError

    def execute(self, *words: Argument) -> Any:
        return self._client.execute_command(*words)

    def evaluate(self, wanted: Script, keys: Sequence[bytes], arguments: Iterable[Argument]) -> Any:
        words = (len(keys), *keys, *arguments)
        try:
            return self._client.execute_command("EVALSHA", wanted.sha, *words)
        except self._unknown:
            return self._client.execute_command("EVAL", wanted.text, *words)

    def close(self) -> None:
        self._client.close()


@lru_cache(maxsize=4096)
def _head(sha: bytes, keys: tuple[bytes, ...]) -> bytes:
    """What a call of a script begins with, the same for each call on a queue."""
    return packed(("EVALSHA", sha, len(keys), *keys))


class Session:
    """Opens nothing before its first call. Usable again after ``close``."""

    def __init__(self, address: RedisAddress) -> None:
        self.pid = os.getpid()
        self.address = address
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._has_warned = False

    @property
    def is_cluster(self) -> bool:
        """Opens it, to see. Raises PersisterUnavailableError."""
        try:
            return isinstance(self._transport or self._opened(), Cluster)
        except Exception as error:
            raise self.translated(error) from None

    def run(self, name: str, keys: Sequence[bytes], arguments: Iterable[Argument] = ()) -> list[Any]:
        """The script's reply, which begins with the time. Raises PersisterUnavailableError."""
        try:
            reply: list[Any] = (self._transport or self._opened()).evaluate(script(name), keys, arguments)
        except Exception as error:
            raise self.translated(error) from None
        return reply

    def execute(self, *words: Argument) -> Any:
        """A plain command's reply. Raises PersisterUnavailableError."""
        try:
            return (self._transport or self._opened()).execute(*words)
        except Exception as error:
            raise self.translated(error) from None

    def connection(self, protocol: int) -> Any:
        """A new one, open, outside of those that are shared."""
        try:
            redis = load_driver("redis", "redis")
            pool = redis.ConnectionPool.from_url(self.address.driver_url, **_settings(redis, protocol))
            made = pool.connection_class(**pool.connection_kwargs)
            made.connect()
        except Exception as error:
            raise self.translated(error) from None
        return made

    def translated(self, error: BaseException) -> PersisterError | ConfigurationError:
        """Without its cause, which may quote what must not be shown."""
        if isinstance(error, PersisterError | ConfigurationError):
            return error
        told = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        return PersisterUnavailableError(f"{self.address.shown}: {scrubbed(told, self.address.secrets)}")

    def close(self) -> None:
        """In a fork's child it abandons them instead: they're the parent's."""
        if self.pid != os.getpid():
            self.abandon()
            return
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def abandon(self) -> None:
        _abandoned.append(self)

    def _opened(self) -> Transport:
        with self._lock:
            if self._transport is None:
                self._transport = self._open(load_driver("redis", "redis"))
            return self._transport

    def _open(self, redis: Any) -> Transport:
        pool = redis.ConnectionPool.from_url(self.address.driver_url, **_settings(redis, self.address.protocol))

        def connect() -> Wire:
            connection = pool.connection_class(**pool.connection_kwargs)
            connection.connect()
            return Wire(connection)

        node = Node(connect, SystemClock().monotonic)
        try:
            is_cluster = check_server(node, self.address, silently=self._has_warned)
        except BaseException:
            node.close()
            raise
        self._has_warned = True
        if not is_cluster:
            return node
        node.close()
        never = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        major = int(redis.__version__.partition(".")[0])
        retries = {"retry": never} if major >= 6 else {"cluster_error_retry_attempts": 0}
        settings = {name: value for name, value in _settings(redis, self.address.protocol).items() if name != "retry"}
        return Cluster(redis, self.address.driver_url, settings | retries)


def _settings(redis: Any, protocol: int) -> dict[str, Any]:
    """What the URL may overrule. By keepalive a dead peer is noticed within half a minute where nothing is sent."""
    import socket

    names = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
    return {
        "socket_connect_timeout": CONNECT_WITHIN,
        "socket_timeout": ANSWER_WITHIN,
        "socket_keepalive": True,
        "socket_keepalive_options": {
            getattr(socket, name): value for name, value in names.items() if hasattr(socket, name)
        },
        "retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0),
        "protocol": protocol,
    }
