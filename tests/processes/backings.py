"""A store's server of one's own, behind a proxy: both may be broken by a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests import servers
from tests.tcp_proxy import Proxy, proxied

from .shops import Shop
from .support import no_process_left


@dataclass
class Backing:
    kind: str
    server: Any
    direct: str
    """The store's URL, which holds a secret."""
    proxy: Proxy

    @property
    def url(self) -> str:
        """The same store's, through the proxy."""
        return self.proxy.url


def shows_secrets(folder: Path) -> list[Path]:
    """Of all files in there those that tell what only a store's URL may."""
    secrets = [secret.encode() for secret in (servers.GUARDED, quote(servers.GUARDED, safe=""), servers.S3_SECRET)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(secret in path.read_bytes() for secret in secrets)]


@contextmanager
def opened(store: Backing, folder: Path) -> Iterator[Shop]:
    """A shop on it. Nothing that its processes write tells a secret."""
    shop = Shop(folder, store.url)
    yield shop
    shop.close()
    assert not shows_secrets(folder)


@contextmanager
def working(store: Backing, folder: Path) -> Iterator[Shop]:
    """As ``opened``; afterwards all its processes are gone."""
    with no_process_left(), opened(store, folder) as shop:
        yield shop


@contextmanager
def backing(kind: str, **settings: str) -> Iterator[Backing]:
    """postgres, redis or s3; ``settings`` are the server's own."""
    own = {"postgres": servers.own_postgres, "redis": servers.own_redis, "s3": servers.own_s3}[kind]
    with own(**settings) as server:
        url = {
            "postgres": lambda: server.url(server.new_database().rpartition("/")[2], user="guarded"),
            "redis": lambda: server.url_of(0, user="guarded"),
            "s3": lambda: server.url(server.new_bucket()),
        }[kind]()
        with proxied(url) as proxy:
            yield Backing(kind, server, url, proxy)
