"""A persister of four methods: tasks in a SQLAlchemy table, beside the application's own."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()
tasks = sa.Table(
    "tasks",
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
    sa.Index("tasks_open", "queue", "run_at"),
    sqlite_autoincrement=True,  # an id is never used twice
)


class TablePersister:
    """Make one in each process: give the environment ``lambda: TablePersister(url)``."""

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url)
        metadata.create_all(self.engine)

    def read_tasks(self, queue: str) -> list[Mapping[str, Any]]:
        wanted = sa.select(tasks).where(tasks.c.queue == queue, tasks.c.run_at.is_not(None))
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(wanted).mappings()]

    def create_task(self, data: dict[str, Any]) -> int:
        with self.engine.begin() as connection:
            return int(connection.execute(sa.insert(tasks).values(data)).inserted_primary_key[0])

    def update_task(self, attributes: dict[str, Any]) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.update(tasks).where(tasks.c.id == attributes["id"]).values(attributes))

    def delete_task(self, task_id: int) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.delete(tasks).where(tasks.c.id == task_id))

    def close(self) -> None:
        self.engine.dispose()
