"""``delay``: a task from the command line, under the same rules of trust as a stored one."""

from __future__ import annotations

import math
from typing import Any

import click

from ..core.instants import epoch_seconds, round_expire_at, round_run_at
from ..core.queue import normalise_name
from ..core.stored_text import written_tag
from .program import Command, Session
from .refused import Refused
from .words import instant, relative


def _instant(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    try:
        return None if value is None else instant(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@click.command("delay", cls=Command)
@click.argument("task")
@click.argument("state", metavar="[YAML]", required=False, default="{}")
@click.option("--queue", help="The queue (default: the only one).")
@click.option(
    "--run-at", callback=_instant, metavar="WHEN", help="Not before: 2h 30m (from now), 2030-12-24T18:00, epoch."
)
@click.option("--expires-at", callback=_instant, metavar="WHEN", help="Not after.")
@click.pass_obj
def delay_command(
    session: Session, task: str, state: str, queue: str | None, run_at: Any = None, expires_at: Any = None
) -> None:
    """Delay TASK, a stored name or module:Class, whose state is YAML (or JSON).

    \b
    procrastinate-py delay myapp.mail:SendWelcome '{to: a@example.com}' --run-at 2h
    """
    env = session.environment()
    now = env.now()
    # Instants are fixed here, not looked up afterwards: by then the task may have run, and be gone.
    starts = None if run_at is None else round_run_at(epoch_seconds(run_at, now=now, argument="run_at"))
    ends = None if expires_at is None else round_expire_at(epoch_seconds(expires_at, now=now, argument="expire_at"))
    strategy = env.codec.load(stored_text(task, state))
    task_id = env.delay(queue, task=strategy, run_at=starts, expire_at=ends)
    name = env.codec.registry.tag_of(type(strategy))
    told_queue = next(iter(env.queues)) if queue is None else normalise_name(queue)
    if session.output.as_json:
        told = {
            "id": task_id,
            "queue": told_queue,
            "task": name,
            "run_at": math.floor(now) if starts is None else starts,
            "expire_at": ends,
        }
        session.output.json(told)
        return
    when = "now" if starts is None else relative(starts, now)
    session.output.say(f"task {task_id}: {name} on {told_queue}, due {when}", style="green")


def stored_text(task: str, state: str) -> str:
    """What a store would hold. The name can't bring along anything but a name."""
    if not task or not task.isprintable() or " " in task:
        raise Refused(f"{task!r} is no task: give its stored name, or module:Class")
    tag = written_tag(task)
    return f"{tag} {state}" if state.lstrip()[:1] == "{" else f"{tag}\n{state}"
