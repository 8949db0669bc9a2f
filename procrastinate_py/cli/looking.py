"""``list`` and ``show``: stored tasks, without their state, which may hold secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.codec import tag_of_text
from ..core.errors import TaskNotFoundError
from ..core.task import TaskRecord, TaskState
from .program import Command, Session
from .words import absolute, one_line, relative, safe_lines

if TYPE_CHECKING:
    from ..environment import Environment

_STATES = [state.value for state in TaskState]


def class_of(record: TaskRecord) -> str:
    return tag_of_text(record.task) or "?"


def as_fields(record: TaskRecord) -> dict[str, Any]:
    """For JSON: all but the state of the task."""
    return {
        "id": record.id,
        "queue": record.queue,
        "task": class_of(record),
        "state": record.state.value,
        "attempts": record.attempts,
        "run_at": record.run_at,
        "initial_run_at": record.initial_run_at,
        "expire_at": record.expire_at,
        "last_fail_at": record.last_fail_at,
        "last_error": record.last_error,
        "closed_at": record.closed_at,
    }


@click.command("list", cls=Command)
@click.option("--queue", help="Only this queue's.")
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@click.option("--task", help="Only those of this stored name (module:Class).")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.pass_obj
def list_command(session: Session, queue: str | None, state: str | None, task: str | None, limit: int) -> None:
    """List stored tasks, in order of id. Their state isn't shown: it may hold secrets."""
    env = session.environment()
    output = session.output
    wanted = TaskState(state) if state is not None else None
    records = list(env.tasks(queue, state=wanted, task=task, limit=limit + 1))
    if output.as_json:
        for record in records[:limit]:
            output.json(as_fields(record))
        return
    if not records:
        output.say("no such tasks" if queue or state or task else "no tasks")
        return
    now = env.now()
    output.table(
        ("id", "queue", "task", "state", "attempts", "due", "expires", "last error"),
        [
            (
                one_line(str(record.id), 60),
                one_line(record.queue, 40),
                one_line(class_of(record), 60),
                record.state.value,
                record.attempts,
                relative(record.run_at, now),
                relative(record.expire_at, now),
                one_line(record.last_error or "-", 60),
            )
            for record in records[:limit]
        ],
    )
    if len(records) > limit:
        output.say(f"and more: --limit {limit * 2} shows more of them")


@click.command("show", cls=Command)
@click.argument("id")
@click.option("--payload", is_flag=True, help="Also the task's state, which may hold secrets.")
@click.pass_obj
def show_command(session: Session, id: str, payload: bool) -> None:
    """Show all that is stored about the task ID."""
    env = session.environment()
    output = session.output
    record = find(env, id)
    if output.as_json:
        output.json({**as_fields(record), **({"payload": record.task} if payload else {})})
        return
    now = env.now()
    output.facts(
        [
            ("id", one_line(str(record.id))),
            ("queue", record.queue),
            ("task", class_of(record)),
            ("state", record.state.value),
            ("attempts", record.attempts),
            *(
                (name.replace("_", " "), f"{absolute(at)} ({relative(at, now)})" if at is not None else "-")
                for name in ("run_at", "initial_run_at", "expire_at", "last_fail_at", "closed_at")
                for at in (getattr(record, name),)
            ),
        ]
    )
    for title, text in (("last error", record.last_error), ("payload", record.task if payload else None)):
        if text is not None:
            output.say(f"{title}:", style="bold")
            for line in safe_lines(text):
                output.say(f"    {line}")


def find(env: Environment, text: str) -> TaskRecord:
    """Ids are ints in most stores, text in others."""
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        return env.find(text)
    try:
        return env.find(int(text))
    except TaskNotFoundError as error:
        try:
            return env.find(text)
        except TaskNotFoundError:
            raise error from None
