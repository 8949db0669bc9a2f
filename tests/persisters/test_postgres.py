"""What is PostgreSQL's own: its tables, its statements, its errors, its time (issue 3)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from procrastinate_py.persisters import PostgresPersister
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import ABILITIES, PersisterConformance
from tests.servers import postgres_url


class TestPostgres(PersisterConformance):
    """G6: what it writes is there after it was opened anew."""

    expects = ABILITIES

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.url = postgres_url()
        self.prefixes = (f"exam{number}_" for number in itertools.count())
        yield

    def make_persister(self, clock: FakeClock) -> PostgresPersister:
        self.clock = clock
        return PostgresPersister(self.url, clock=clock, prefix=next(self.prefixes))

    def reopen(self, persister: PostgresPersister) -> PostgresPersister:
        persister.close()
        make, arguments = persister.__reduce__()
        reopened = make(*arguments)
        assert isinstance(reopened, PostgresPersister)
        reopened._clock = self.clock
        return reopened
