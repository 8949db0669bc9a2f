"""Threads and processes that do something at the same time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ..runtime.forking import fork_process
from .conformance_exam import Unfulfilled

THREADS = 20
PROCESSES = 8

_PATIENCE = 120.0
"""Seconds after which a runner is taken for stuck."""


def race(runners: int, run: Callable[[], Any]) -> list[Any]:
    """What each of the threads got that did the same at the same time. Raises the first exception of theirs."""
    return race_all([run] * runners)


def race_all(runs: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each thread got, in the order of ``runs``, begun at the same time. Raises the first exception of theirs."""
    barrier = threading.Barrier(len(runs))
    results: dict[int, Any] = {}
    errors: list[BaseException] = []

    def runner(index: int) -> None:
        try:
            barrier.wait(timeout=_PATIENCE)
            results[index] = runs[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=runner, args=(index,), daemon=True) for index in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
    if errors:
        raise errors[0]
    if len(results) < len(runs):
        raise Unfulfilled(f"{len(runs) - len(results)} of {len(runs)} threads that called at the same time got stuck")
    return [results[index] for index in range(len(runs))]


def race_processes(runners: int, run: Callable[[], Sequence[object]]) -> list[list[str]]:
    """What each of the forked processes got that did the same at the same time; each thing as its ``repr``."""
    with _forked(runners, run) as outs:
        return [_answer_of(out) for out in outs]


@contextlib.contextmanager
def _forked(runners: int, run: Callable[[], Sequence[object]]) -> Iterator[list[int]]:
    """The read ends of the processes' answers. They begin together: once nobody holds the gate's write end."""
    gate, gate_write = os.pipe()
    outs: list[int] = []
    pids: list[int] = []
    try:
        for _ in range(runners):
            out, out_write = os.pipe()
            outs.append(out)
            pids.append(fork_process(partial(_run_after, gate, gate_write, out_write, run)))
            os.close(out_write)
        os.close(gate_write)
        gate_write = -1
        yield outs
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # it has answered, or never will
            os.waitpid(pid, 0)
        for fd in (gate, gate_write, *outs):
            if fd >= 0:
                os.close(fd)


def _run_after(gate: int, gate_write: int, out: int, run: Callable[[], Sequence[object]]) -> None:
    os.close(gate_write)
    os.read(gate, 1)
    try:
        answer = json.dumps([repr(thing) for thing in run()])
    except BaseException as error:
        answer = json.dumps(f"{type(error).__name__}: {error}")
    with open(out, "w") as file:
        file.write(answer)


def _answer_of(out: int) -> list[str]:
    poll = select.poll()
    poll.register(out, select.POLLIN)
    text = b""
    while poll.poll(_PATIENCE * 1000):
        some = os.read(out, 65536)
        if not some:
            break
        text += some
    else:
        raise Unfulfilled("a process that called at the same time as others got stuck")
    answer = json.loads(text) if text else "it ended without an answer"
    if isinstance(answer, str):
        raise Unfulfilled(f"a process that called at the same time as others failed: {answer}")
    return list(answer)
