"""Runs one server of the tests, and ends it with the tests, however those end (``kill -9`` too).

Started by tests/servers.py as a program of its own. It's no child of whoever runs the tests (which watch their
children), and it reaps the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

PATIENCE = 5.0
"""Seconds that a server gets to end by itself."""


def main(what: dict[str, Any]) -> None:
    owner = os.pidfd_open(what["owner"])
    with open(what["log"], "ab") as log:
        process = subprocess.Popen(
            what["command"],
            cwd=what["folder"],
            env=what["env"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **what["identity"],
        )
    print(process.pid, flush=True)
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(devnull, fd)
    server = os.pidfd_open(process.pid)
    ended, _, _ = select.select([owner, server], [], [])
    if owner in ended:
        _end(process, what["stop_signal"])
        for _ in range(50):  # other servers of the same tests may still be writing into it
            shutil.rmtree(what["session_folder"], ignore_errors=True)
            if not os.path.exists(what["session_folder"]):
                break
            time.sleep(0.1)
    process.wait()


def _end(process: subprocess.Popen[bytes], stop_signal: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
        process.send_signal(stop_signal)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()
    main(json.loads(sys.argv[1]))
