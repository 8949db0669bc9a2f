"""The servers of the tests: killed they keep what they were told, paused they stall, and none outlives its tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests import servers

ROOT = Path(__file__).parent.parent

KILLED = """
import os, sys
from tests import servers
servers.redis_url()
print(servers.redis().pid, servers.session_folder(), flush=True)
sys.stdin.read()
"""


def test_no_server_outlives_tests_that_were_killed() -> None:
    servers.need("redis-server")
    owner = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert owner.stdin is not None and owner.stdout is not None
    pid, folder = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until = time.monotonic() + 60
    while (psutil.pid_exists(int(pid)) or os.path.exists(folder)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not psutil.pid_exists(int(pid))
    assert not os.path.exists(folder)
    owner.stdin.close()
    owner.stdout.close()


def test_servers_are_no_children_of_the_tests() -> None:
    """Tests of processes count their children."""
    with servers.own_redis() as server:
        assert server.pid not in [child.pid for child in psutil.Process().children(recursive=True)]


def test_a_server_that_was_killed_keeps_what_it_was_told() -> None:
    with servers.own_redis() as server:
        server.run("SET", "kept", "yes")
        server.restart()
        assert server.run("GET", "kept") == b"$3\r\nyes\r\n"


def test_what_is_not_installed_skips_but_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "false")
    with pytest.raises(pytest.skip.Exception, match="no-such-server isn't installed"):
        servers.need("no-such-server")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-server is needed"):
        servers.need("no-such-server")
