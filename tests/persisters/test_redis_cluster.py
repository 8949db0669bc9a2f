"""Redis as a cluster: every call stays in one hash slot (a cluster refuses a script that leaves its keys' slot)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import ClassVar

import pytest

from procrastinate_py.core.errors import ConfigurationError
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import RedisPersister
from procrastinate_py.persisters._redis_session import Session
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import ABILITIES, PersisterConformance
from tests.servers import RedisServer, own_redis, redis_url

_PREFIXES = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisServer]:
    """Of one node, which has all the slots."""
    with own_redis(cluster_enabled="yes", appendonly="no") as server:
        assert server.run("CLUSTER", "ADDSLOTS", *map(str, range(16384))) == b"+OK\r\n"
        while b"cluster_state:ok" not in server.run("CLUSTER", "INFO"):
            pass
        yield server
        for session in Connected.sessions.values():
            session.close()


class Connected(RedisPersister):
    """Each case has a persister of its own, and getting to know a cluster takes a tenth of a second."""

    sessions: ClassVar[dict[tuple[str, int], Session]] = {}

    def _session(self) -> Session:
        return self.sessions.setdefault((self._address.driver_url, os.getpid()), Session(self._address))

    def close(self) -> None:
        """The session goes on."""


class TestRedisCluster(PersisterConformance):
    """E3, G6"""

    expects = ABILITIES

    @pytest.fixture(autouse=True)
    def _server(self, cluster: RedisServer) -> None:
        self.url = cluster.url

    def make_persister(self, clock: FakeClock) -> RedisPersister:
        self.clock = clock
        return Connected(self.url, f"exam{next(_PREFIXES)}", clock=clock)

    def reopen(self, persister: RedisPersister) -> RedisPersister:
        return Connected(*persister.__reduce__()[1], clock=self.clock)


def test_a_cluster_is_found_out_and_may_be_told(cluster: RedisServer) -> None:
    """E3"""
    for url in (cluster.url, f"{cluster.url}?cluster=true"):
        store = RedisPersister(url, f"told{next(_PREFIXES)}")
        assert len(store.create_many([_new("a"), _new("b"), _new("a")])) == 3
        assert store._session().is_cluster
        store.close()


def test_what_is_told_to_be_a_cluster_must_be_one() -> None:
    """E3"""
    store = RedisPersister(f"{redis_url()}?cluster=true")
    with pytest.raises(ConfigurationError, match="isn't part of a cluster"):
        store.create_task(_new("a").as_mapping())
    store.close()


def _new(queue: str) -> NewTask:
    return NewTask(queue=queue, run_at=0, initial_run_at=0, expire_at=None, task="!a:B {}")
