"""Tasks delayed in a transaction of the application's own are worked once that is committed, and at once then."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers

from .jobs import Noted
from .shops import Shop
from .support import eventually, no_process_left

ONCE_AN_HOUR = {"email": {"update_period": 3600}}


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = servers.postgres_url() if request.param == "postgres" else "sqlite"
    with no_process_left():
        shop = Shop(tmp_path, url)
        yield shop
        shop.close()


@pytest.fixture
def connection(shop: Shop) -> Iterator[Any]:
    """The application's own, to the database that the tasks are in."""
    shop.environment().count()  # makes the tables: a file that has others would be somebody else's
    connection: Any
    if shop.kind == "sqlite":
        connection = sqlite3.connect(shop.folder / "store.db")
    else:
        import psycopg

        connection = psycopg.connect(shop.kind)
    connection.execute("CREATE TABLE users (name TEXT)")
    connection.commit()
    yield connection
    connection.close()


def test_a_workers_sleep_ends_with_the_callers_transaction(shop: Shop, connection: Any) -> None:
    """E17 E35"""
    env = shop.started(ONCE_AN_HOUR)
    env.delay("email", task=Noted(shop.notes, "first"))
    shop.await_note("first success")  # from here on the worker sleeps for an hour, unless it's woken
    env.delay("email", task=Noted(shop.notes, "gone"), connection=connection)
    connection.rollback()
    connection.execute("INSERT INTO users VALUES ('ada')")
    env.delay("email", task=Noted(shop.notes, "one"), connection=connection)
    env.delay_many([("email", Noted(shop.notes, "two")), ("email", Noted(shop.notes, "three"))], connection=connection)
    assert shop.noted("begins") == shop.noted("first begins")
    connection.commit()
    for name in ("one", "two", "three"):
        shop.await_note(f"{name} success")
    assert shop.noted("gone") == []


def test_a_connection_that_ends_with_its_transaction_open_leaves_no_task(shop: Shop, connection: Any) -> None:
    """G1: neither half of what belongs together is there."""
    env = shop.started(ONCE_AN_HOUR)
    env.delay("email", task=Noted(shop.notes, "gone"), connection=connection)
    connection.close()  # as the end of a process does
    env.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note("one success")
    eventually(lambda: not env.tasks())
    assert shop.noted("gone") == []
