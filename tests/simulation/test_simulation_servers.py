"""Seeded worlds over the stores on servers: the package's own workers, and all that goes wrong (G4).

SIMULATION_SEEDS=5000 runs that many more of each store, beginning with SIMULATION_FIRST_SEED.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from procrastinate_py.testing.simulation import Report, simulate
from tests import servers
from tests.simulation import on_servers

ROOT = Path(__file__).parent.parent.parent
FIRST_SEED = int(os.environ.get("SIMULATION_FIRST_SEED", "0"))
MORE_SEEDS = int(os.environ.get("SIMULATION_SEEDS", "0"))
SEEDS = {"postgres": 25, "redis": 25, "s3": 3}
STEPS = {"postgres": 400, "redis": 400, "s3": 60}
"""An S3 call costs so much that few are made."""


def run(store: str, seed: int) -> Report:
    make_store = getattr(on_servers, store)
    return simulate(make_store, seed=seed, steps=STEPS[store], store=f"tests.simulation.on_servers:{store}")


@pytest.mark.parametrize("store", SEEDS)
def test_nothing_is_lost_on_any_server(store: str) -> None:
    """G1, G2, G4: each invariant at every step; a failure prints its replay command."""
    counts: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + max(SEEDS[store], MORE_SEEDS)):
        report = run(store, seed)
        assert report.ok, str(report)
        counts.update(report.counts)
    for kind in ("crashes", "lost replies", "stalls", "failed calls") if store != "s3" else ():
        assert counts[kind] > 5, f"too few {kind} to prove anything"


def test_a_server_s_run_can_be_replayed() -> None:
    """G4: by a server of the replay's own."""
    servers.need("redis-server")
    report = run("redis", 5)
    command = [sys.executable, *shlex.split(report.replay)[1:]]
    replayed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert replayed.stdout.splitlines()[-1] == str(report), replayed.stderr
    assert replayed.returncode == 0


def test_a_store_is_named_by_its_url_and_may_be_used_for_many_worlds(capsys: pytest.CaptureFixture[str]) -> None:
    """G4"""
    from procrastinate_py.testing.simulation import main

    url = servers.redis_url()
    for _ in range(2):
        assert main(["--store", url, "--seed", "3", "--steps", "60"]) == 0
    assert capsys.readouterr().out.splitlines() == ["seed 3: holds"] * 2


def test_a_password_is_not_part_of_what_is_printed() -> None:
    """G8"""
    report = Report(seed=1, steps=1, workers=1, store="redis://me:hush@host/0", violations=(), counts={}, trace=())
    assert "hush" not in report.replay
