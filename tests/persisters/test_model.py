"""Every store and the in-memory reference agree, step by step, whatever they're asked (G5).

MODEL_EXAMPLES=20 runs that many times more of each.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import tempfile
from contextlib import AbstractContextManager, closing
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings

from procrastinate_py.persisters import SQLitePersister, open_persister
from procrastinate_py.testing.clock import FakeClock
from tests import servers

from .model import QUEUES, Agreement


def examples(number: int, steps: int = 30) -> settings:
    times = int(os.environ.get("MODEL_EXAMPLES", "1"))
    return settings(
        max_examples=number * times,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


class SQLiteAgrees(Agreement):
    queues: ClassVar[Any] = (*QUEUES, "nul\0")
    forks = True

    def make_store(self, clock: FakeClock) -> Any:
        self.folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.path = str(Path(self.folder) / "tasks.db")
        return SQLitePersister(self.path, clock)

    def reopened(self, store: Any) -> Any:
        return SQLitePersister(self.path, self.clock)

    def connection(self) -> AbstractContextManager[Any] | None:
        return closing(sqlite3.connect(self.path))

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


class SQLiteInMemoryAgrees(Agreement):
    outlives_close = False

    def make_store(self, clock: FakeClock) -> Any:
        return SQLitePersister(":memory:", clock)


class OnServer(Agreement):
    """Each example begins in a namespace of its own."""

    forks = True
    numbers_of_examples: ClassVar[Any] = itertools.count()

    def fresh_url(self) -> str:
        raise NotImplementedError

    def make_store(self, clock: FakeClock) -> Any:
        self.url = self.fresh_url()
        return open_persister(self.url, clock)

    def reopened(self, store: Any) -> Any:
        return open_persister(self.url, self.clock)


@cache
def postgres_database() -> str:
    return servers.postgres_url()


@cache
def redis_database() -> str:
    return servers.redis_url()


@cache
def bucket() -> str:
    return servers.s3().new_bucket()


class PostgresAgrees(OnServer):
    def fresh_url(self) -> str:
        return f"{postgres_database()}?schema=example{next(self.numbers_of_examples)}"

    def connection(self) -> AbstractContextManager[Any] | None:
        import psycopg

        return closing(psycopg.connect(postgres_database()))


class RedisAgrees(OnServer):
    moves_between_queues = False

    def fresh_url(self) -> str:
        return f"{redis_database()}?prefix=example{next(self.numbers_of_examples)}"


class S3Agrees(OnServer):
    def fresh_url(self) -> str:
        return servers.s3().url(bucket(), f"example{next(self.numbers_of_examples)}")


@pytest.fixture(autouse=True, scope="class")
def _server(request: pytest.FixtureRequest) -> None:
    """Skips where it isn't installed."""
    needed = {"TestPostgres": servers.postgres, "TestRedis": servers.redis, "TestS3": servers.s3}
    if request.cls is not None and request.node.name in needed:
        needed[request.node.name]()


TestSQLite = SQLiteAgrees.TestCase
TestSQLite.settings = examples(50)
TestSQLiteInMemory = SQLiteInMemoryAgrees.TestCase
TestSQLiteInMemory.settings = examples(60)
TestPostgres = PostgresAgrees.TestCase
TestPostgres.settings = examples(30)
TestRedis = RedisAgrees.TestCase
TestRedis.settings = examples(40)
TestS3 = S3Agrees.TestCase
TestS3.settings = examples(5, 20)
