"""Tasks delayed in a transaction of the application's own are worked once that is committed, and at once then."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from .jobs import Noted
from .shops import Shop
from .support import eventually, no_process_left

ONCE_AN_HOUR = {"email": {"update_period": 3600}}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with no_process_left():
        shop = Shop(tmp_path, "sqlite")
        yield shop
        shop.close()


def test_a_workers_sleep_ends_with_the_callers_transaction(shop: Shop) -> None:
    """E17 E35"""
    env = shop.started(ONCE_AN_HOUR)
    env.delay("email", task=Noted(shop.notes, "first"))
    shop.await_note("first success")  # from here on the worker sleeps for an hour, unless it's woken
    connection = sqlite3.connect(shop.folder / "store.db")
    connection.execute("CREATE TABLE users (name TEXT)")
    env.delay("email", task=Noted(shop.notes, "gone"), connection=connection)
    connection.rollback()
    connection.execute("INSERT INTO users VALUES ('ada')")
    env.delay("email", task=Noted(shop.notes, "one"), connection=connection)
    env.delay_many([("email", Noted(shop.notes, "two")), ("email", Noted(shop.notes, "three"))], connection=connection)
    assert shop.noted("begins") == shop.noted("first begins")
    connection.commit()
    for name in ("one", "two", "three"):
        shop.await_note(f"{name} success")
    connection.close()
    assert shop.noted("gone") == []


def test_a_process_that_died_with_its_transaction_open_leaves_no_task(shop: Shop) -> None:
    """G1: neither half of what belongs together is there."""
    env = shop.started(ONCE_AN_HOUR)
    connection = sqlite3.connect(shop.folder / "store.db")
    env.delay("email", task=Noted(shop.notes, "gone"), connection=connection)
    connection.close()  # as the end of a process does
    env.delay("email", task=Noted(shop.notes, "one"))
    shop.await_note("one success")
    eventually(lambda: not env.tasks())
    assert shop.noted("gone") == []
