"""A host: an application with a queue, whose clock is wrong. It ends with its standard input."""

from __future__ import annotations

import json
import sys
from typing import Any

from procrastinate_py import Environment
from procrastinate_py.ports.clock import SystemClock


class SkewedClock(SystemClock):
    def __init__(self, skew: float) -> None:
        self._skew = skew

    def now(self) -> float:
        return super().now() + self._skew


def at_once(attempts: int) -> float:
    return 0.0


def environment(url: str, *, folder: str, skew: float, lease_for: float) -> Environment:
    env = Environment(
        url, log_dir=folder, run_dir=folder, log_level="DEBUG", trust=["tests"], clock=SkewedClock(skew), grace=0
    )
    env._lease_for = lease_for
    env.define_queue("email", processes=2, max_tasks=2, update_period=0.5, backoff=at_once, timeout=600, max_attempts=9)
    return env


def main(what: dict[str, Any]) -> None:
    env = environment(**what)
    with env:
        print("started", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
