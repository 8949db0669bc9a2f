"""``delay``: a task from the command line, under the same rules of trust as a stored one."""

from __future__ import annotations

from typing import Any

import click

from ..core.codec import tag_of_text
from .program import Command, Refused, Session
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
    strategy = env.codec.load(stored_text(task, state))
    task_id = env.delay(queue, task=strategy, run_at=run_at, expire_at=expires_at)
    record = env.find(task_id)
    name = tag_of_text(record.task)
    if session.output.as_json:
        session.output.json(
            {"id": task_id, "queue": record.queue, "task": name, "run_at": record.run_at, "expire_at": record.expire_at}
        )
        return
    when = relative(record.run_at, env.now())
    session.output.say(f"task {task_id}: {name} on {record.queue}, due {when}", style="green")


def stored_text(task: str, state: str) -> str:
    """What a store would hold. The name may not bring along anything but a name."""
    if not task or not task.isprintable() or set(task) & set(" {}[],!&*#|>'\"%@`"):
        raise Refused(f"{task!r} is no task: give its stored name, or module:Class")
    return f"!{task} {state}" if state.lstrip()[:1] == "{" else f"!{task}\n{state}"
