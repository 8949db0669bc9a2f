"""``check``: what would go wrong, told before it does."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.error_text import message_of, type_and_message
from ..runtime.in_hand import MOST_PROCESSES, shared_path, sole_path
from .looking import class_of
from .program import DONE, REFUSED, Command, Session
from .words import one_line

if TYPE_CHECKING:
    from ..core.task import TaskRecord
    from ..environment import Environment
    from ..runtime.persister_source import Store

OK, WARNING, PROBLEM = "ok", "warning", "problem"

_MOST_TASKS, _PAGE = 10_000, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    level: str
    about: str
    told: str


@click.command("check", cls=Command)
@click.pass_obj
def check_command(session: Session) -> int:
    """Tell what would go wrong. Exit code 1 if there's a problem; a warning is none."""
    env = session.environment()
    findings = list(examine(env))
    if session.output.as_json:
        for finding in findings:
            session.output.json({"level": finding.level, "about": finding.about, "told": finding.told})
    else:
        session.output.table(
            ("", "about", "found"), [(finding.level, finding.about, finding.told) for finding in findings]
        )
    return REFUSED if any(finding.level == PROBLEM for finding in findings) else DONE


def examine(env: Environment) -> Iterator[Finding]:
    if env.queues:
        yield Finding(level=OK, about="environment", told=f"queues: {', '.join(env.queues)}")
    else:
        yield Finding(level=PROBLEM, about="environment", told="it has no queue: call env.define_queue")
    yield _log_dir(env.log_settings.directory)
    try:
        store = env.store()
        env.counts()
    except Exception as error:
        told = f"it can't be used: {one_line(type_and_message(error), 300)}"
        yield Finding(level=PROBLEM, about="persister", told=told)
        return
    yield Finding(level=OK, about="persister", told=f"reachable; abilities: {', '.join(_abilities(store))}")
    yield from _consumers(env)
    yield from _strays(env)
    yield from _classes(env)


def _abilities(store: Store) -> list[str]:
    found = [field.name for field in fields(store.capabilities) if getattr(store.capabilities, field.name) is not None]
    return found or ["none but the four methods"]


def _log_dir(path: str | None) -> Finding:
    if path is None:
        return Finding(level=WARNING, about="log_dir", told="none is set: nothing is logged")
    nearest = Path(path)
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return Finding(level=PROBLEM, about="log_dir", told=f"{path}: {nearest} is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(level=PROBLEM, about="log_dir", told=f"{path}: {nearest} isn't writable for this user")
    return Finding(
        level=OK, about="log_dir", told=f"{path} is writable" if nearest == Path(path) else f"{path} can be made"
    )


def _consumers(env: Environment) -> Iterator[Finding]:
    """A queue process of this machine holds the lock of its in-hand file."""
    for queue in env.queues:
        if _is_worked(env.run_folder(), queue):
            yield Finding(level=OK, about=f"queue {queue}", told="a process of this machine works it")
        else:
            told = "no process of this machine works it: start the application, or procrastinate-py work"
            yield Finding(level=WARNING, about=f"queue {queue}", told=told)


def _is_worked(run_dir: str, queue: str) -> bool:
    shared = (shared_path(run_dir, queue, number) for number in range(MOST_PROCESSES))
    return any(_is_locked(path) for path in (sole_path(run_dir, queue), *shared) if path.exists())


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _strays(env: Environment) -> Iterator[Finding]:
    """Tasks in queues that the environment doesn't define: nobody would ever work them."""
    strays: dict[str, int] = {}
    for (queue, state), number in env.counts().items():
        if queue not in env.queues and not state.is_closed:
            strays[queue] = strays.get(queue, 0) + number
    for queue, number in strays.items():
        told = f"{number} task(s) wait in it, but it isn't defined: define it where its tasks are to be run"
        yield Finding(level=PROBLEM, about=f"queue {one_line(queue)}", told=told)


def _classes(env: Environment) -> Iterator[Finding]:
    """Loads every stored task that is still to be run."""
    failures: dict[str, tuple[int, str]] = {}
    looked_at = 0
    for record in _waiting(env):
        looked_at += 1
        try:
            record.load()
        except Exception as error:
            number, told = failures.get(class_of(record), (0, message_of(error)))
            failures[class_of(record)] = (number + 1, told)
    for name, (number, told) in failures.items():
        yield Finding(level=PROBLEM, about=f"class {one_line(name)}", told=f"{number} task(s): {one_line(told, 300)}")
    if not failures:
        yield Finding(level=OK, about="classes", told=f"all of {looked_at} waiting task(s) load")


def _waiting(env: Environment) -> Iterator[TaskRecord]:
    after = None
    for _ in range(_MOST_TASKS // _PAGE):
        page = env.tasks(limit=_PAGE, after=after)
        yield from (record for record in page if not record.state.is_closed)
        if len(page) < _PAGE:
            return
        after = page[-1].id
