"""An application that a test starts, asks by lines, and may kill."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from .shops import Shop


def main(what: dict[str, Any]) -> None:
    shop = Shop(Path(what.pop("folder")), what.pop("kind"))
    env = shop.started(what.pop("queues", None), **what)
    print(json.dumps(env.processes), flush=True)
    for line in sys.stdin:
        command, _, value = line.strip().partition(" ")
        print(answer(env, command, value), flush=True)


def answer(env: Any, command: str, value: str) -> object:
    if command == "supervisor":
        return env._supervision.supervisor_pid
    if command == "processes":
        return json.dumps(env.processes)
    if command == "processes_of":
        return json.dumps(env.processes_of(value))
    if command == "stop":
        env.stop(float(value))
        return "stopped"
    if command == "exec":
        os.execv("/bin/sleep", ["sleep", "1000"])
    if command == "fork":
        return fork()
    raise ValueError(command)


def fork() -> int:
    """A child of the application's own, which outlives it and knows nothing of queues."""
    pid = os.fork()
    if pid == 0:
        os.read(0, 1)
        os._exit(0)
    return pid


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
