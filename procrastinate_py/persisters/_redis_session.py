"""One process's connections to a Redis server or cluster, and the scripts that are run there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ..core.errors import ConfigurationError, PersisterError, PersisterUnavailableError
from ._drivers import load_driver
from ._redis_checks import check_server
from ._redis_url import RedisAddress
from ._urls import scrubbed

CONNECT_WITHIN = 5.0
ANSWER_WITHIN = 10.0
_FOLDER = Path(__file__).with_name("lua")

_abandoned: list[object] = []
"""What a fork's child inherited: neither used nor closed, but kept, since the garbage collector would close it."""

Argument = bytes | str | int


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
    def close(self) -> None: ...


class Node:
    """Connections to one server, each used by one thread at a time. Nothing is ever sent twice."""

    def __init__(self, redis: Any, make: Callable[[], Any]) -> None:
        self._make = make
        self._idle: list[Any] = []
        self._answers = redis.exceptions.ResponseError
        self._moved_away = redis.exceptions.ReadOnlyError

    def execute(self, *words: Argument) -> Any:
        connection = self._taken()
        try:
            connection.send_packed_command([packed(words)], check_health=False)
            reply = connection.read_response()
        except self._moved_away:
            connection.disconnect()
            self.close()
            raise
        except self._answers:
            self._idle.append(connection)
            raise
        except BaseException:
            connection.disconnect()
            raise
        self._idle.append(connection)
        return reply

    def close(self) -> None:
        while self._idle:
            try:
                self._idle.pop().disconnect()
            except IndexError:
                return

    def _taken(self) -> Any:
        """An open one. What was closed by the server while it was idle is opened anew."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._make()
            connection.connect()
            return connection
        try:
            is_stale = connection.can_read(0)
        except Exception:
            is_stale = True
        if is_stale:
            connection.disconnect()
            connection.connect()
        return connection


class Cluster:
    """The library's own client of a cluster, told never to send anything twice."""

    def __init__(self, redis: Any, url: str, settings: dict[str, Any]) -> None:
        self._client = redis.cluster.RedisCluster.from_url(url, **settings)

    def execute(self, *words: Argument) -> Any:
        return self._client.execute_command(*words)

    def close(self) -> None:
        self._client.close()


def packed(words: Sequence[Argument]) -> bytes:
    """A command as it's sent."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, int):
            word = b"%d" % word
        elif isinstance(word, str):
            word = word.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)


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
        wanted = script(name)
        words = (len(keys), *keys, *arguments)
        try:
            transport = self._transport or self._opened()
            try:
                reply = transport.execute("EVALSHA", wanted.sha, *words)
            except Exception as error:
                if type(error).__name__ != "NoScriptError":
                    raise
                reply = transport.execute("EVAL", wanted.text, *words)
        except Exception as error:
            raise self.translated(error) from None
        return list(reply)

    def execute(self, *words: Argument) -> Any:
        """A plain command's reply. Raises PersisterUnavailableError."""
        try:
            return (self._transport or self._opened()).execute(*words)
        except Exception as error:
            raise self.translated(error) from None

    def connection(self, **settings: Any) -> Any:
        """A new one, open, outside of those that are shared."""
        try:
            made = self._maker(load_driver("redis", "redis"), **settings)()
            made.connect()
        except Exception as error:
            raise self.translated(error) from None
        return made

    def translated(self, error: BaseException) -> PersisterError | ConfigurationError:
        """Without its cause, which may quote what must not be shown."""
        if isinstance(error, PersisterError | ConfigurationError):
            return error
        told = scrubbed(f"{type(error).__name__}: {error}", self.address.secrets)
        return PersisterUnavailableError(f"{self.address.shown}: {told}")

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
        node = Node(redis, self._maker(redis))
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
        retries = {"retry": never} if major >= 6 else {"cluster_error_retry_attempts": 1}
        settings = {name: value for name, value in _settings(redis).items() if name != "retry"}
        return Cluster(redis, self.address.driver_url, settings | retries)

    def _maker(self, redis: Any, **settings: Any) -> Callable[[], Any]:
        pool = redis.ConnectionPool.from_url(self.address.driver_url, **_settings(redis))
        pool.connection_kwargs.update(settings)
        make: Callable[[], Any] = pool.make_connection
        return make


def _settings(redis: Any) -> dict[str, Any]:
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
        "protocol": 2,
    }
