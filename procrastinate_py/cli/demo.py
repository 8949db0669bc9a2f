"""``demo``: the main promises, shown with real processes. Each is checked as it's shown."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import click

from ..core.errors import TaskNotFoundError
from ..core.task import TaskRecord, TaskState
from ..environment import Environment
from ..ports.clock import SystemClock
from .demo_tasks import BuildReport, FetchPage, Greet, soon
from .looking import as_fields, class_of
from .output import Output
from .program import Command, Session
from .refused import Refused
from .words import one_line, relative, safe_lines

_PATIENCE = 30.0
_LOOK_EVERY = 0.02
_LAST_LINES = 4

_Fact = TypeVar("_Fact")


@click.command("demo", cls=Command)
@click.pass_obj
def demo_command(session: Session) -> None:
    """A tour of a few seconds: real processes on SQLite in a temporary folder.

    A success, a failure, a dead letter, an expiry, a delay and a crash. Ends with 1 if any of it didn't come true.
    """
    folder = Path(tempfile.mkdtemp(prefix="procrastinate-demo-"))
    tour = Tour(session.output, folder)
    seen: set[int] = set()
    tour.env.start()
    try:
        seen |= set(tour.env.processes.values())
        tour.walk()
        seen |= tour.pids_noted() | set(tour.env.processes.values())
    finally:
        tour.env.stop()
    tour.nothing_left(seen)


class Tour:
    def __init__(self, output: Output, folder: Path) -> None:
        self._output = output
        self._folder = folder
        self._clock = SystemClock()
        self._step = 0
        self.env = Environment(
            f"sqlite:///{folder}/tasks.db",
            log_dir=folder / "log",
            log_level="DEBUG",
            process_prefix="demo",
            trust=[Greet.__module__],
        )
        self.env.define_queue("email")
        self.env.define_queue("sync", max_attempts=2, backoff=soon)
        self.env.define_queue("reports", backoff=soon)

    def walk(self) -> None:
        pids = self.env.processes
        self._say(f"Folder: {self._folder}", "bold")
        self._say("Queues, each with a process of its own: " + ", ".join(f"{q} (pid {p})" for q, p in pids.items()))
        self._success()
        self._failure()
        self._exhaustion()
        self._expiry()
        self._delay()
        self._crash()
        self._logs()

    # --- the steps

    def _success(self) -> None:
        self._title("A task that succeeds")
        note = self._note("greet")
        began = self._clock.now()
        task_id = self._delay_task("email", Greet(note=note))
        self._await("the task succeeds", lambda: self._find(task_id) is None)
        run = self._runs(note)[0]
        late = (run["at"] - began) * 1000
        self._say(f"It ran in process {run['pid']}, {late:.1f} ms after delay was called. Its row is gone.", "green")
        self._tell("success", id=task_id, pickup_ms=round(late, 1))

    def _failure(self) -> None:
        self._title("A task that fails, and will be tried again")
        task_id = self._delay_task("email", FetchPage(note=self._note("fetch")))
        record = self._await_record(task_id, "the task fails once", lambda found: found.attempts == 1)
        assert record.run_at is not None and record.last_fail_at is not None
        wait = record.run_at - record.last_fail_at
        self._row(record)
        self._check(wait == 31 and record.state is TaskState.PENDING, f"it was rescheduled at +{wait} s, not +31 s")
        self._say("Rescheduled at +31 s (30 + attempts**4). We don't wait for that here.", "green")
        self._tell("failure", **as_fields(record))

    def _exhaustion(self) -> None:
        self._title("A task that exhausts its attempts: this queue gives it two, a second apart")
        task_id = self._delay_task("sync", FetchPage(note=self._note("exhaust")))
        record = self._await_record(task_id, "the task is given up", lambda found: found.state.is_closed)
        self._row(record)
        self._check(
            record.state is TaskState.FAILED and record.attempts == 2, f"it's {record.state}, not failed after 2"
        )
        self._say("It's a dead letter now: kept with its error, and never run again.", "green")
        self._tell("exhaustion", **as_fields(record))

    def _expiry(self) -> None:
        self._title("A task that expires: it was of use until 5 s ago")
        now = self._clock.now()
        note = self._note("expire")
        task_id = self._delay_task("email", Greet(note=note), run_at=now - 10, expire_at=now - 5)
        record = self._await_record(task_id, "the task expires", lambda found: found.state.is_closed)
        self._row(record)
        self._check(
            record.state is TaskState.EXPIRED and not self._runs(note), f"it's {record.state}, not expired unrun"
        )
        self._say("It was closed without being run.", "green")
        self._tell("expiry", **as_fields(record))

    def _delay(self) -> None:
        self._title("A task delayed for later")
        note = self._note("later")
        task_id = self._delay_task("email", Greet(note=note), run_at=self._clock.now() + 2)
        record = self.env.find(task_id)
        self._row(record)
        self._await("the delayed task runs", lambda: self._find(task_id) is None)
        assert record.run_at is not None
        late = (self._runs(note)[0]["at"] - record.run_at) * 1000
        self._check(late >= 0, f"it started {-late:.1f} ms early")
        self._say(f"It started {late:.1f} ms after the second it was due in began.", "green")
        self._tell("delay", id=task_id, late_ms=round(late, 1))

    def _crash(self) -> None:
        self._title("A queue process killed with a task in hand")
        note = self._note("report")
        task_id = self._delay_task("reports", BuildReport(note=note))
        self._await("the task begins", lambda: len(self._runs(note)) == 1)
        killed = self._runs(note)[0]["pid"]
        os.kill(killed, signal.SIGKILL)
        self._say(f"kill -9 {killed}, while it runs task {task_id}.")
        record = self._await_record(task_id, "the death is noted", lambda found: found.attempts == 1)
        self._row(record)
        self._await("the task is run again", lambda: self._find(task_id) is None)
        run = self._runs(note)[-1]
        self._check(run["pid"] != killed and len(self._runs(note)) == 2, "it wasn't run again in another process")
        self._say(f"Its new process, {run['pid']}, ran it again, and it succeeded.", "green")
        self._tell("crash", id=task_id, killed=killed, run_again_by=run["pid"], last_error=record.last_error)

    def _logs(self) -> None:
        self._title("The logs")
        for path in sorted((self._folder / "log").glob("*.log")):
            lines = [line for line in path.read_text().splitlines() if not line.startswith(" ")]
            self._check(bool(lines), f"{path} is empty")
            self._say(str(path), "bold")
            for line in safe_lines("\n".join(lines[-_LAST_LINES:])):
                self._say(f"  {one_line(line, 160)}", "bright_black")
            self._tell("log", path=str(path), lines=lines[-_LAST_LINES:])

    def nothing_left(self, pids: set[int]) -> None:
        left = [pid for pid in sorted(pids) if _is_alive(pid)]
        self._check(not left, f"still running: {left}")
        self._say()
        self._say("All processes have ended. The folder is kept for you to look at.", "bold")
        self._tell("end", processes_left=left, folder=str(self._folder))

    # --- how they are shown and checked

    def _title(self, text: str) -> None:
        self._step += 1
        self._say()
        self._say(f"{self._step}. {text}", "bold cyan")

    def _say(self, text: str = "", style: str | None = None) -> None:
        if not self._output.as_json:
            self._output.say(text, style)

    def _tell(self, step: str, **facts: Any) -> None:
        if self._output.as_json:
            self._output.json({"step": step, **facts})

    def _row(self, record: TaskRecord) -> None:
        if self._output.as_json:
            return
        now = self._clock.now()
        self._output.table(
            ("id", "queue", "task", "state", "attempts", "due", "last error"),
            [
                (
                    record.id,
                    record.queue,
                    class_of(record).rpartition(":")[2],
                    record.state.value,
                    record.attempts,
                    relative(record.run_at, now),
                    one_line(record.last_error or "-", 60),
                )
            ],
        )

    def _delay_task(self, queue: str, task: Any, **options: Any) -> Any:
        said = "".join(f", {name}=now{value - self._clock.now():+.0f}" for name, value in options.items())
        self._say(f'env.delay("{queue}", task={type(task).__name__}(...){said})')
        return self.env.delay(queue, task=task, **options)

    def _note(self, name: str) -> str:
        return str(self._folder / f"{name}.runs")

    def _runs(self, note: str) -> list[Mapping[str, Any]]:
        path = Path(note)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def pids_noted(self) -> set[int]:
        """Of the queue processes in which tasks ran, and of their supervisor."""
        runs = [run for path in self._folder.glob("*.runs") for run in self._runs(str(path))]
        return {run[whose] for run in runs for whose in ("pid", "parent")}

    def _find(self, task_id: Any) -> TaskRecord | None:
        try:
            return self.env.find(task_id)
        except TaskNotFoundError:
            return None

    def _await_record(self, task_id: Any, fact: str, is_so: Callable[[TaskRecord], bool]) -> TaskRecord:
        def look() -> TaskRecord | None:
            record = self._find(task_id)
            return record if record is not None and is_so(record) else None

        return self._await(fact, look)

    def _await(self, fact: str, look: Callable[[], _Fact | None]) -> _Fact:
        """What ``look`` answers, once that is something."""
        until = self._clock.monotonic() + _PATIENCE
        pause = Event()
        while not (found := look()):
            if self._clock.monotonic() > until:
                raise Refused(f"this didn't come true in {_PATIENCE:.0f} s: {fact} (see {self._folder})")
            pause.wait(_LOOK_EVERY)
        return found

    def _check(self, so: bool, otherwise: str) -> None:
        if not so:
            raise Refused(f"{otherwise} (see {self._folder})")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number is another's by now
    return True
