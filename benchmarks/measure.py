"""What is read off from outside: processes' memory and CPU, and the lines that the no-ops wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
PATIENCE = 120.0


def process_tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                found += map(int, Path(f"/proc/{parent}/task/{thread}/children").read_text().split())
        except OSError:
            continue
    return list(dict.fromkeys(found))


def pss_mib(pid: int) -> float:
    """Proportional set size: memory that several processes share is split among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"no PSS is told for {pid}")


def cpu_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Lines:
    """The file that the no-ops write: one line a run, with its number and when it began (CLOCK_MONOTONIC)."""

    def __init__(self, folder: Path) -> None:
        path = folder / "lines"
        path.touch()
        self._file: IO[bytes] = path.open("rb")
        self._rest = b""
        self.runs: list[tuple[int, float]] = []

    def read(self) -> int:
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in whole:
            _, number, at = line.split()
            self.runs.append((int(number), float(at)))
        return len(self.runs)

    def wait_for(self, count: int, pause: float = 0.02) -> None:
        until = time.monotonic() + PATIENCE
        while self.read() < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{len(self.runs)} of {count} tasks ran in {PATIENCE:.0f} s")
            time.sleep(pause)

    def close(self) -> None:
        self._file.close()


@contextmanager
def application(folder: Path, store: str, queues: int = 1) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that works the queues, and the pids of its queue processes."""
    environ = os.environ | {"BENCH_FOLDER": str(folder), "BENCH_STORE": store, "BENCH_QUEUES": str(queues)}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "app.py")],
        env=environ,
        cwd=folder,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process, [int(pid) for pid in process.stdout.readline().split()]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)
