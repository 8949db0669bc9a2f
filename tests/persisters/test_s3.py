"""The S3 store passes the public exam (G6), agrees with the reference (G5), and keeps its promises on a real server."""

from __future__ import annotations

import functools
import itertools

from hypothesis import settings

from procrastinate_py.persisters import S3Persister
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import ABILITIES, PersisterConformance
from tests import servers
from tests.persisters.model import Agreement
from tests.persisters.s3_memory import MemoryS3Persister

MOST = [ability for ability in ABILITIES if ability != "waking"]


class TestS3InMemory(PersisterConformance):
    """G6"""

    expects = MOST
    abilities = MOST

    def make_persister(self, clock: FakeClock) -> MemoryS3Persister:
        return MemoryS3Persister(clock=clock)

    def reopen(self, persister: MemoryS3Persister) -> MemoryS3Persister:
        persister.close()
        return persister.open()


@functools.cache
def bucket() -> str:
    return servers.s3().new_bucket()


prefixes = itertools.count()


class TestS3(PersisterConformance):
    """G6, G2: by a server, which 20 threads and 8 processes ask at the same time."""

    expects = MOST
    abilities = MOST
    scale = 0.02

    def make_persister(self, clock: FakeClock) -> S3Persister:
        self.clock = clock
        persister = S3Persister(servers.s3().url(bucket(), f"exam{next(prefixes)}"), clock=clock)
        persister._is_tried_out = True  # it has tests of its own
        return persister

    def reopen(self, persister: S3Persister) -> S3Persister:
        persister.close()
        return S3Persister(persister._url, clock=self.clock)


class S3Agreement(Agreement):
    moves_between_queues = False

    def make_store(self, clock: FakeClock) -> MemoryS3Persister:
        return MemoryS3Persister(clock=clock)

    def reopened(self, store: MemoryS3Persister) -> MemoryS3Persister:
        return store.open()


TestS3Agrees = S3Agreement.TestCase
TestS3Agrees.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
