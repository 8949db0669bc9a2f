"""An SQLite file that several processes make at once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from procrastinate_py.persisters import SQLitePersister, _sqlite_file


def test_whose_file_it_is_is_read_from_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E3: or a file that another process puts its tables into between two reads looks like somebody else's."""
    in_transaction: list[bool] = []
    check = _sqlite_file._checked_version

    def noting(connection: sqlite3.Connection, path: str) -> int:
        in_transaction.append(connection.in_transaction)
        return check(connection, path)

    monkeypatch.setattr(_sqlite_file, "_checked_version", noting)
    store = SQLitePersister(tmp_path / "tasks.db")
    assert store.count() == {}
    store.close()
    assert in_transaction and all(in_transaction)
