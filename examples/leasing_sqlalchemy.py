"""The same table with leases: many workers of one queue, on any number of machines."""

import os
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from procrastinate_py.core.lease import Lease, LeaseToken
from procrastinate_py.core.lifecycle import Transition, apply
from procrastinate_py.core.task import ATTRIBUTES, Claim, TaskRecord

metadata = sa.MetaData()
tasks = sa.Table(
    "leased_tasks",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("run_at", sa.BigInteger),
    sa.Column("initial_run_at", sa.BigInteger),
    sa.Column("expire_at", sa.BigInteger),
    sa.Column("attempts", sa.BigInteger, nullable=False, default=0),
    sa.Column("last_fail_at", sa.BigInteger),
    sa.Column("last_error", sa.Text),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_token", sa.Text),
    sa.Column("lease_expires_at", sa.Double),
    sa.Index("leased_tasks_due", "queue", "run_at", "id"),
    sa.Index("leased_tasks_leased", "queue", "lease_expires_at"),
    sqlite_autoincrement=True,  # an id is never used twice
)
FREE = sa.and_(tasks.c.run_at.is_not(None), tasks.c.lease_token.is_(None))
LET_GO = {"lease_owner": None, "lease_token": None, "lease_expires_at": None}


def begin_by_writing(url: str) -> sa.Engine:
    """SQLite takes a write lock late, and finds out too late that it can't: so it's taken at once."""
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


class LeasingPersister:
    """``clock``: anything with ``now()``. Hosts whose clocks differ need the database's own instead."""

    def __init__(self, url: str, clock: Any = None) -> None:
        self.url = url
        self.now = time.time if clock is None else clock.now
        self._engine = begin_by_writing(url)
        self._pid = os.getpid()
        metadata.create_all(self.engine)

    # --- the four methods

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        columns = [tasks.c[name] for name in ATTRIBUTES]
        wanted = sa.select(*columns).where(tasks.c.queue == queue, tasks.c.run_at.is_not(None)).order_by(tasks.c.id)
        with self.engine.begin() as connection:
            return [dict(row) for row in connection.execute(wanted).mappings()]

    def create_task(self, data: dict[str, Any]) -> int:
        with self.engine.begin() as connection:
            return int(connection.execute(sa.insert(tasks).values(data)).inserted_primary_key[0])

    def update_task(self, attributes: dict[str, Any]) -> None:
        let_go = LET_GO if attributes["run_at"] is None else {}
        with self.engine.begin() as connection:
            connection.execute(sa.update(tasks).where(tasks.c.id == attributes["id"]).values({**attributes, **let_go}))

    def delete_task(self, task_id: int) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.delete(tasks).where(tasks.c.id == task_id))

    # --- leasing

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        now = self.now()
        return self._lease(sa.and_(FREE, tasks.c.run_at <= now), queue, owner, limit, now, lease_for)

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> list[Claim]:
        now = self.now()
        gone = tasks.c.lease_expires_at < now if dead_owner is None else tasks.c.lease_owner == dead_owner
        return self._lease(gone, queue, owner, limit, now, lease_for)

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        lost = []
        with self.engine.begin() as connection:
            for token in tokens:
                longer = sa.update(tasks).where(holds(token)).values(lease_expires_at=self.now() + lease_for)
                if connection.execute(longer).rowcount == 0:
                    lost.append(token)
        return lost

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        lost = []
        with self.engine.begin() as connection:  # all in one transaction
            for token, transition in settlements:
                row = connection.execute(sa.select(tasks).where(holds(token)).with_for_update()).mappings().first()
                if row is None:
                    lost.append(token)
                    continue
                after = apply(record_of(row), transition)
                if after is None:
                    connection.execute(sa.delete(tasks).where(holds(token)))
                else:
                    connection.execute(sa.update(tasks).where(holds(token)).values({**after.as_mapping(), **LET_GO}))
        return lost

    def next_look_at(self, queue: str) -> float | None:
        with self.engine.begin() as connection:
            due = connection.scalar(sa.select(sa.func.min(tasks.c.run_at)).where(tasks.c.queue == queue, FREE))
            end = connection.scalar(sa.select(sa.func.min(tasks.c.lease_expires_at)).where(tasks.c.queue == queue))
        return min((float(instant) for instant in (due, end) if instant is not None), default=None)

    # --- connections

    is_shareable = True

    @property
    def engine(self) -> sa.Engine:
        if self._pid != os.getpid():  # after a fork: the parent's connections are the parent's
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        return self._engine

    def __reduce__(self) -> Any:
        return type(self), (self.url,)

    def close(self) -> None:
        self.engine.dispose()

    def _lease(self, which: Any, queue: str, owner: str, limit: int, now: float, lease_for: float) -> list[Claim]:
        value, lease = os.urandom(8).hex(), Lease(owner, now + lease_for)
        wanted = (
            sa.select(tasks)
            .where(tasks.c.queue == queue, which)
            .order_by(tasks.c.run_at, tasks.c.id)
            .limit(max(limit, 0))
            .with_for_update(skip_locked=True)  # beside other workers, not behind them; SQLite has but one writer
        )
        with self.engine.begin() as connection:
            rows = connection.execute(wanted).mappings().all()
            connection.execute(
                sa.update(tasks)
                .where(tasks.c.id.in_([row["id"] for row in rows]))
                .values(lease_owner=owner, lease_token=value, lease_expires_at=lease.expires_at)
            )
        return [Claim(record_of(row, lease, now), LeaseToken(row["id"], value)) for row in rows]


def holds(token: LeaseToken) -> Any:
    return sa.and_(tasks.c.id == token.task_id, tasks.c.lease_token == token.value)


def record_of(row: Any, lease: Lease | None = None, now: float = 0.0) -> TaskRecord:
    return TaskRecord(**{name: row[name] for name in ATTRIBUTES}, lease=lease, read_at=now)
