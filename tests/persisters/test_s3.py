"""The S3 store passes the public exam, on a bucket in memory and on a server (G6)."""

from __future__ import annotations

from procrastinate_py.persisters.s3 import S3Persister
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import ABILITIES, PersisterConformance
from tests.persisters.s3_memory import MemoryS3Persister

MOST = [ability for ability in ABILITIES if ability != "waking"]


class TestS3InMemory(PersisterConformance):
    """G6"""

    expects = MOST

    def make_persister(self, clock: FakeClock) -> MemoryS3Persister:
        return MemoryS3Persister(clock=clock)

    def reopen(self, persister: MemoryS3Persister) -> MemoryS3Persister:
        persister.close()
        return persister.open()
