"""Stores named by URL (E3, U29)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from procrastinate_py import persisters
from procrastinate_py.core.errors import ConfigurationError
from procrastinate_py.persisters import MemoryPersister, SQLitePersister, open_persister
from procrastinate_py.testing.clock import FakeClock


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///tasks.db", "{cwd}/tasks.db"),
        ("sqlite:///data/my%20tasks.db", "{cwd}/data/my tasks.db"),
        ("sqlite:////var/lib/tasks.db", "/var/lib/tasks.db"),
        ("SQLite:///tasks.db", "{cwd}/tasks.db"),
        ("sqlite://", ":memory:"),
        ("sqlite:///:memory:", ":memory:"),
    ],
)
def test_a_url_names_a_file_or_memory(url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U29"""
    monkeypatch.chdir(tmp_path)
    assert open_persister(url).path == path.format(cwd=os.getcwd())


def test_the_store_goes_by_the_clock_that_is_given() -> None:
    clock = FakeClock()
    assert open_persister("sqlite://", clock).now() == clock.now()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://scott:hunter2@db/tasks",
        "amqp://:hunter2@cache",
        "sqlite://hunter2/tasks.db",
        "sqlite:///tasks.db?key=hunter2",
        "sqlite:///",
        "hunter2",
        "hunter2://x",
        "sqlite:hunter2",
        "",
    ],
)
def test_a_wrong_url_tells_the_right_ones_and_shows_no_password(url: str) -> None:
    """U29, G8"""
    with pytest.raises(ConfigurationError, match=r"known: sqlite:///relative\.db") as caught:
        open_persister(url)
    if not url.startswith("hunter2:"):
        assert "hunter2" not in str(caught.value)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be a str, not int"):
        open_persister(5)  # type: ignore[arg-type]


def test_a_store_is_loaded_when_it_is_asked_for() -> None:
    """P8"""
    program = (
        "import sys, procrastinate_py.persisters as persisters\n"
        "assert 'sqlite3' not in sys.modules\n"
        "persisters.MemoryPersister()\n"
        "assert 'sqlite3' not in sys.modules\n"
        "persisters.SQLitePersister\n"
        "assert 'sqlite3' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="Nonsense"):
        persisters.Nonsense  # noqa: B018


def test_only_a_file_can_be_shared_by_processes() -> None:
    assert not MemoryPersister().is_shareable
    assert not open_persister("sqlite://").is_shareable
    assert SQLitePersister("tasks.db").is_shareable
