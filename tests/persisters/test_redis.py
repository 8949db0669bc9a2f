"""Redis as a store: what is its own beside what every store does. Servers are private ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from procrastinate_py.persisters import RedisPersister
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import ABILITIES, PersisterConformance
from tests.servers import redis_url


class TestRedis(PersisterConformance):
    """E3, G6: what it writes is there after it was opened anew."""

    expects = ABILITIES

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.url = redis_url()
        self.prefixes = (f"exam{number}" for number in itertools.count())
        yield

    def make_persister(self, clock: FakeClock) -> RedisPersister:
        self.clock = clock
        return RedisPersister(self.url, clock=clock, prefix=next(self.prefixes))

    def reopen(self, persister: RedisPersister) -> RedisPersister:
        persister.close()
        return RedisPersister(*persister.__reduce__()[1], clock=self.clock)
