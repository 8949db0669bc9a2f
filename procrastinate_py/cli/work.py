"""``work``: the queues' processes, run from a terminal or by a service manager."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from ..core.error_text import type_and_message
from ..ports.clock import SystemClock
from ..runtime.inbox import Inbox
from .output import Output, as_table
from .program import DONE, REFUSED, Command, Session
from .refused import Refused
from .stats import rows
from .words import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..environment import Environment

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_EVERY = 1.0
_SAME_SIGNAL = 0.2
"""Seconds. A Ctrl-C reaches the whole group, and whatever started this process may forward its own: that's one."""


class StopAtOnce(BaseException):
    """A second signal, raised out of whatever is going on."""


@click.command("work", cls=Command)
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@click.pass_obj
def work_command(session: Session, queues: tuple[str, ...]) -> int:
    """Run the processes of these queues (default: all) in the foreground.

    The first SIGTERM or Ctrl-C drains: nothing more is begun, what runs may end within the grace. A second one stops at
    once (exit code 1): what runs is interrupted, handed back, and run again another time.
    """
    env = session.environment()
    output = session.output
    inbox = Inbox()
    try:
        with heeding_signals(inbox) as signals:
            _work(env, output, queues, inbox, signals)
    except StopAtOnce:
        env.stop(0)
        _tell(output, "stopped at once", "yellow")
        return REFUSED
    finally:
        inbox.close()
    _tell(output, "stopped", "green")
    return DONE


class Signals:
    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._clock = SystemClock()
        self._first_at: float | None = None
        self._raised = False

    @property
    def came(self) -> bool:
        return self._first_at is not None

    def heard(self, _number: int, _frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        if self._first_at is None:
            self._first_at = now
            self._inbox.poke()
        elif now - self._first_at > _SAME_SIGNAL and not self._raised:
            self._raised = True
            raise StopAtOnce


@contextmanager
def heeding_signals(inbox: Inbox) -> Iterator[Signals]:
    signals = Signals(inbox)
    before = {number: signal.signal(number, signals.heard) for number in _SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _work(env: Environment, output: Output, queues: tuple[str, ...], inbox: Inbox, signals: Signals) -> None:
    env.start(*queues)
    processes = env.processes
    if not processes:
        raise Refused("no process was started, since PROCRASTINATE_STOP is set: unset it to work")
    if output.as_json:
        output.json({"event": "started", "processes": processes, "all_processes": _all_processes(env, processes)})
    else:
        told = (f"{queue} (pid {_listed(pids)})" for queue, pids in _all_processes(env, processes).items())
        output.say(f"working {', '.join(told)}", "green")
        output.say("Ctrl-C or SIGTERM drains, a second one stops at once")
    if output.is_terminal:
        _show_queues(env, output, inbox, signals)
    while not signals.came:
        inbox.wait(None)
    _tell(output, "stopping", "yellow")
    env.stop()


def _show_queues(env: Environment, output: Output, inbox: Inbox, signals: Signals) -> None:
    """A live table, until a signal comes."""
    from rich.live import Live

    with Live(console=output.console, auto_refresh=False, transient=True) as live:
        while not signals.came:
            live.update(_queues_now(env), refresh=True)
            inbox.wait(_LOOK_EVERY)


def _queues_now(env: Environment) -> RenderableType:
    try:
        titles, cells = rows(env)
    except Exception as error:  # the processes deal with a store that's away; this is only a view of it
        return as_table(["the queues can't be counted now"], [[one_line(type_and_message(error))]])
    pids = _all_processes(env, env.processes)
    return as_table([*titles, "pid"], [[*row, _listed(pids.get(row[0], []))] for row in cells])


def _all_processes(env: Environment, worked: Iterable[str]) -> dict[str, list[int]]:
    return {queue: env.processes_of(queue) for queue in worked}


def _listed(pids: list[int]) -> str:
    return " ".join(map(str, pids)) or "-"


def _tell(output: Output, event: str, style: str) -> None:
    if output.as_json:
        output.json({"event": event})
    else:
        output.say(event, style)
