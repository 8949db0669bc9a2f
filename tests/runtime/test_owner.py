"""Who holds a task, by name; and whether the process of that name is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from procrastinate_py.runtime import owner
from procrastinate_py.runtime.owner import lives, new_owner

TELLS_ITS_NAME = (
    "import sys\nfrom procrastinate_py.runtime.owner import new_owner\nprint(new_owner(), flush=True)\nsys.stdin.read()"
)


@pytest.fixture
def other() -> Iterator[str]:
    """The owner's name of a process that lives."""
    with subprocess.Popen(
        [sys.executable, "-c", TELLS_ITS_NAME], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def test_an_owner_tells_host_pid_and_start_and_no_two_are_alike() -> None:
    host, pid, start, _ = new_owner().rsplit(":", 3)
    assert (host, int(pid)) == (os.uname().nodename, os.getpid())
    assert start.isdigit() or not os.path.exists("/proc/self/stat")
    assert len({new_owner() for _ in range(100)}) == 100
    assert not set(new_owner()) & set(" \n\t\0")


def test_another_process_that_is_there_lives(other: str) -> None:
    """E40"""
    assert lives(other)


def test_a_process_that_has_gone_does_not_live() -> None:
    """E40"""
    gone = subprocess.Popen([sys.executable, "-c", TELLS_ITS_NAME], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    told, _ = gone.communicate()
    assert not lives(told.decode().strip())


def test_a_pid_that_was_used_again_is_not_taken_for_the_dead_one(other: str) -> None:
    """E40 U23"""
    host, pid, start, random = other.rsplit(":", 3)
    assert not lives(f"{host}:{pid}:{int(start) - 1}:{random}")


def test_where_the_system_does_not_tell_when_a_process_began_its_pid_is_all_there_is(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, pid, _, random = other.rsplit(":", 3)
    assert lives(f"{host}:{pid}:-:{random}")
    monkeypatch.setattr(owner, "_started", lambda pid: None)
    assert lives(f"{host}:{pid}:12345:{random}")
    assert new_owner().rsplit(":", 3)[2] == "-"


def test_another_hosts_process_and_ones_own_pid_do_not_live(other: str) -> None:
    """E40: of another host nothing can be seen, and whoever asks has what the owner had."""
    assert not lives(f"elsewhere:{other.split(':', 1)[1]}")
    assert not lives(new_owner())


@pytest.mark.parametrize("name", ["", "x", "a:b", "a:b:c:d", "host:1:2", f"{os.uname().nodename}:{10**30}:1:x"])
def test_what_is_no_owners_name_does_not_live(name: str) -> None:
    """G8"""
    assert not lives(name)
