"""Hosts on this machine: network namespaces on one bridge, on which the servers listen. Only root can make them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.jobs import NAME
from tests.processes.support import SAFETY, eventually, in_session, kill_session

ROOT = Path(__file__).parent.parent.parent
_numbers = itertools.count(1)


def need_network() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make network namespaces")
    if shutil.which("ip") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("iproute2 is needed where CI=true; .ci/servers installs it")
        pytest.skip("iproute2 isn't installed")


def ip(command: str) -> None:
    done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False, timeout=SAFETY)
    assert done.returncode == 0, f"ip {command}: {done.stderr}"


class Network:
    """A bridge with this machine's own address on it. Names are short: the system allows 15 characters."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        pid = os.getpid()
        self.bridge = f"b{pid}-{self.number}"
        self.subnet = f"10.{200 + pid % 50}.{(pid // 50) % 250}"
        self.address = f"{self.subnet}.1"
        self.hosts: list[Host] = []
        self.namespaces: list[str] = []

    def host(self, folder: Path, name: str, **what: object) -> Host:
        self.hosts.append(Host(self, len(self.hosts) + 2, folder, name, what))
        return self.hosts[-1]


class Host:
    """An application in a namespace of its own. ``cut`` takes it off the network, ``heal`` brings it back."""

    def __init__(self, network: Network, number: int, folder: Path, name: str, what: dict[str, object]) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self._namespace = f"{network.bridge}-{number}"
        self._link = f"v{network.bridge[1:]}-{number}"
        ip(f"netns add {self._namespace}")
        network.namespaces.append(self._namespace)
        ip(f"link add {self._link} type veth peer name eth netns {self._namespace}")
        ip(f"link set {self._link} master {network.bridge} up")
        for command in ("link set lo up", f"addr add {network.subnet}.{number}/24 dev eth", "link set eth up"):
            ip(f"-n {self._namespace} {command}")
        python = [sys.executable, "-m", "tests.hosts.host", json.dumps({"folder": str(self.folder), **what})]
        with (self.folder / "stderr").open("a") as stderr:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self._namespace, *python],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                cwd=ROOT,
                env={**os.environ, NAME: name, "PYTHONPATH": str(ROOT)},
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"started\n", (self.folder / "stderr").read_text()

    def cut(self) -> None:
        ip(f"link set {self._link} down")

    def heal(self) -> None:
        ip(f"link set {self._link} up")

    def logged(self, fragment: str) -> list[str]:
        log = self.folder / "email-queue-worker.log"
        return [line for line in log.read_text().splitlines() if fragment in line] if log.exists() else []

    def end(self) -> None:
        self.process.kill()
        kill_session(self.process.pid)
        self.process.wait(SAFETY)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        eventually(lambda: not in_session(self.process.pid))


@contextmanager
def network() -> Iterator[Network]:
    need_network()
    made = Network()
    ip(f"link add {made.bridge} type bridge")
    try:
        ip(f"addr add {made.address}/24 dev {made.bridge}")
        ip(f"link set {made.bridge} up")
        yield made
    finally:
        for host in made.hosts:
            host.end()
        for namespace in made.namespaces:
            ip(f"netns del {namespace}")
        ip(f"link del {made.bridge}")
