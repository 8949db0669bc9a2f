"""``stats``: how many tasks there are, by queue and state."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import click

from ..core.task import TaskState
from .output import Output, as_table
from .program import Command, Session
from .words import one_line

if TYPE_CHECKING:
    from ..environment import Environment

STATES = (TaskState.PENDING, TaskState.RUNNING, TaskState.FAILED, TaskState.EXPIRED)
TITLES = ("queue", *(state.value for state in STATES))
"""Completed tasks aren't kept, and cancelled ones are few: they have columns where there are any."""

_EVERY = 1.0


@click.command("stats", cls=Command)
@click.option("--watch", is_flag=True, help="Once a second, until Ctrl-C.")
@click.pass_obj
def stats_command(session: Session, watch: bool) -> None:
    """Count the tasks of each queue by state."""
    env = session.environment()
    if not watch:
        _show(session.output, env)
        return
    try:
        _watch(session.output, env)
    except KeyboardInterrupt:
        pass  # how a person ends it


def numbers(env: Environment) -> dict[str, dict[str, int]]:
    """By queue, then state; queues that the environment doesn't define come last."""
    found = {queue: dict.fromkeys((state.value for state in STATES), 0) for queue in env.queues}
    for (queue, state), number in env.counts().items():
        of_queue = found.setdefault(queue, dict.fromkeys((known.value for known in STATES), 0))
        of_queue[state.value] = number
    return found


def rows(env: Environment) -> tuple[list[str], list[list[str]]]:
    """Titles and cells, safe on a terminal."""
    found = numbers(env)
    more = sorted({state for of_queue in found.values() for state in of_queue} - set(TITLES))
    titles = [*TITLES, *more]
    cells = [
        [one_line(queue, 60), *(str(of_queue.get(state, 0)) for state in titles[1:])]
        for queue, of_queue in found.items()
    ]
    return titles, cells


def _show(output: Output, env: Environment) -> None:
    if output.as_json:
        output.json(numbers(env))
    else:
        output.table(*rows(env))


def _watch(output: Output, env: Environment) -> None:
    pause = Event()
    if not output.is_terminal:
        while True:
            _show(output, env)
            pause.wait(_EVERY)
    from rich.live import Live

    with Live(console=output.console, auto_refresh=False) as live:
        while True:
            live.update(as_table(*rows(env)), refresh=True)
            pause.wait(_EVERY)
