"""``tail``: a queue's log, followed across its changes of file."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any, BinaryIO

import click

from ..core.errors import UnknownQueueError
from ..core.queue import normalise_name
from ..runtime.log_lines import printable
from ..runtime.log_settings import level_number
from ..runtime.logs import log_file_name
from .output import COLOURS, Output
from .program import Command, Session
from .refused import Refused

_LOOK_EVERY = 0.2
_START = re.compile(r"(?P<time>\S+) (?P<level>[A-Z]+) +(?P<rest>.*)", re.DOTALL)
_FIELD = re.compile(r' ([^\s="]+|"(?:[^"\\]|\\.)*")=("(?:[^"\\]|\\.)*"|\S*)')


@dataclass(slots=True)
class Entry:
    """One event of the log: its line and, where there's one, its traceback."""

    text: str
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> str:
        return str(self.fields.get("level", "")).upper()

    def is_about(self, task: str) -> bool:
        """``task``: an id, or a class, or a class without its module."""
        name = str(self.fields.get("task", ""))
        return task in (str(self.fields.get("task_id", "")), name, name.rpartition(":")[2])


@click.command("tail", cls=Command)
@click.argument("queue")
@click.option("--lines", "-n", type=click.IntRange(min=0), default=10, show_default=True, help="Begin with so many.")
@click.option("--follow/--no-follow", "-f", default=True, help="Wait for more (until Ctrl-C).")
@click.option("--level", help="Only this level and above.")
@click.option("--task", help="Only events of this task: its id or its class.")
@click.pass_obj
def tail_command(session: Session, queue: str, lines: int, follow: bool, level: str | None, task: str | None) -> None:
    """Show the last lines of QUEUE's log, and those that follow."""
    path = log_path(session, queue)
    least = _level(level)
    if not follow and not os.path.exists(path):
        raise Refused(f"there is no log yet: {path} (has the queue been worked on this machine?)")

    def is_wanted(entry: Entry) -> bool:
        return _passes(entry, least) and (task is None or entry.is_about(task))

    try:
        _show(session.output, path, lines, follow, is_wanted)
    except KeyboardInterrupt:
        pass  # how a person ends it


def log_path(session: Session, queue: str) -> str:
    env = session.environment()
    name = normalise_name(queue)
    if name not in env.queues:
        raise UnknownQueueError(f"there is no queue {name!r}: there are {', '.join(env.queues) or 'none'}")
    folder = env.log_settings.directory
    if folder is None:
        raise Refused("this environment writes no logs: set its log_dir")
    return os.path.join(folder, log_file_name(name))


def _level(text: str | None) -> int:
    if text is None:
        return 0
    try:
        return level_number(text, "--level")
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _passes(entry: Entry, least: int) -> bool:
    try:
        return level_number(entry.level or "NOTSET") >= least
    except ValueError:
        return True


def _show(output: Output, path: str, count: int, follow: bool, is_wanted: Callable[[Entry], bool]) -> None:
    pause = Event()
    with Followed(path) as log:
        for entry in deque(filter(is_wanted, entries(log.read())), maxlen=count):
            _print(output, entry)
        while follow:
            pause.wait(_LOOK_EVERY)
            for entry in filter(is_wanted, entries(log.read())):
                _print(output, entry)


def _print(output: Output, entry: Entry) -> None:
    if output.as_json:
        output.json(entry.fields)
        return
    first, *rest = entry.text.split("\n")
    output.say(first, COLOURS.get(entry.level))
    for line in rest:
        output.say(line, "bright_black")


class Followed:
    """A log file by its path: what was appended since the last look, whichever file the path stood for meanwhile."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._partial = b""

    def __enter__(self) -> Followed:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def read(self) -> list[str]:
        """The whole lines since the last call."""
        data = self._rest()
        while self._has_moved():
            data += self._rest()  # written between the two looks
            if self._file is not None:
                self._file.close()
            self._file = self._open()
            data += self._rest()
        whole, newline, rest = (self._partial + data).rpartition(b"\n")
        self._partial = rest
        return whole.decode("utf-8", "replace").split("\n") if newline else []

    def _rest(self) -> bytes:
        if self._file is None:
            return b""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # somebody emptied it
        return self._file.read()

    def _has_moved(self) -> bool:
        """Whether the path stands for another file than the one that's open."""
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        if self._file is None:
            return True
        ours = os.fstat(self._file.fileno())
        return (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino)

    def _open(self) -> BinaryIO | None:
        try:
            return open(self._path, "rb")
        except FileNotFoundError:
            return None


def entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Each event with its traceback. What isn't an event stands for itself."""
    entry: Entry | None = None
    for line in lines:
        if entry is not None and line.startswith("    "):
            entry.text += "\n" + printable(line)
            entry.fields["traceback"] = entry.fields.get("traceback", "") + line[4:] + "\n"
            continue
        if entry is not None:
            yield entry
        entry = Entry(printable(line), _fields(line))
    if entry is not None:
        yield entry


def _fields(line: str) -> dict[str, Any]:
    if line.startswith("{"):
        try:
            found = json.loads(line)
            return found if isinstance(found, dict) else {"event": line}
        except ValueError:
            return {"event": line}
    start = _START.fullmatch(line)
    if start is None:
        return {"event": line}
    rest = start["rest"]
    found = {"time": start["time"], "level": start["level"].lower()}
    event = re.match(r'"(?:[^"\\]|\\.)*"', rest) or re.match(r"[^=\"]*(?= [^\s=]+=)|.*", rest, re.DOTALL)
    assert event is not None
    found["event"] = _unquoted(event[0])
    for name, value in _FIELD.findall(rest[event.end() :]):
        found[_unquoted(name)] = _unquoted(value)
    return found


def _unquoted(text: str) -> str:
    if text[:1] != '"':
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return text[1:-1]
