"""A connection to PostgreSQL whose calls end. Importing this loads the driver."""

from __future__ import annotations

import select
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.waiting import Ready, Wait

CONNECT_TIMEOUT = 5
QUICK = 10.0
"""Seconds without a word from the server after which a worker's call is given up."""
PATIENT = 60.0
"""The same for what may take the server long: a large batch, a count of everything, a change of the schema."""

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT,
    "client_encoding": "UTF8",
    "fallback_application_name": "procrastinate_py",
    # A peer that is gone without a word is noticed within about ten seconds, by an idle listener too.
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_EVENTS = {Wait.R: select.POLLIN, Wait.W: select.POLLOUT, Wait.RW: select.POLLIN | select.POLLOUT}
_WRITABLE = select.POLLOUT

T = TypeVar("T")


class Connection(psycopg.Connection[TupleRow]):
    """In autocommit: each statement is a transaction by itself, unless one is begun."""

    patience = QUICK
    idle_since = 0.0

    def wait(self, gen: PQGen[T], interval: float = 0.0, timeout: float | None = None) -> T:
        """As psycopg's own, but it gives up where the server says nothing for too long. Raises OperationalError."""
        poll = select.poll()
        fd = self.pgconn.socket
        patience = self.patience if timeout is None else timeout
        try:
            wanted = next(gen)
            while True:
                poll.register(fd, _EVENTS[wanted])
                events = poll.poll(patience * 1000)
                if not events:
                    gen.close()
                    raise psycopg.OperationalError(f"no answer within {patience:.0f} s")
                wanted = gen.send(_ready(events[0][1]))
        except StopIteration as stop:
            value: T = stop.value
            return value

    @property
    def is_stale(self) -> bool:
        """Whether it was lost while nobody used it."""
        poll = select.poll()
        try:
            poll.register(self.pgconn.socket, select.POLLIN)
            if not poll.poll(0):
                return False
            self.pgconn.consume_input()  # a notice, or the end
        except (psycopg.Error, OSError, ValueError):
            return True
        return self.pgconn.status != psycopg.pq.ConnStatus.OK or bool(poll.poll(0))


def _ready(events: int) -> Ready:
    if events & _WRITABLE:
        return Ready.RW if events & ~_WRITABLE else Ready.W
    return Ready.R  # an error or the end too: reading tells of it


def connect(url: str) -> Connection:
    """Raises psycopg.Error, which may quote the URL."""
    given = conninfo_to_dict(url)
    return Connection.connect("", autocommit=True, **_DEFAULTS | given)
