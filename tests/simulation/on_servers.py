"""Stores on servers: a replay with ``--store tests.simulation.on_servers:redis`` starts one of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

from procrastinate_py.persisters import open_persister
from procrastinate_py.testing.clock import FakeClock
from tests import servers

_url_of_postgres = cache(servers.postgres_url)
_url_of_redis = cache(servers.redis_url)
_url_of_s3 = cache(servers.s3_url)


def postgres(clock: FakeClock) -> Any:
    return open_persister(_url_of_postgres(), clock)


def redis(clock: FakeClock) -> Any:
    return open_persister(_url_of_redis(), clock)


def s3(clock: FakeClock) -> Any:
    return open_persister(_url_of_s3(), clock)
