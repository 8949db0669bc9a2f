"""A queue's log, and the loggers that its tasks' hooks get. The application's own logging isn't touched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.queue import file_stem
from ..ports.clock import Clock, SystemClock
from .lean_import import lean_imports
from .log_file import LogFile
from .log_lines import as_json, as_line, timestamp
from .log_settings import DEBUG, ERROR, INFO, NEVER, WARNING, LogSettings

if TYPE_CHECKING:
    from .task_logger import TaskLogger

__all__ = ["LogSettings", "QueueLog", "log_file_name"]


def log_file_name(queue: str) -> str:
    """Of the queue's log within its folder, whatever the queue's name."""
    return f"{file_stem(queue)}-queue-worker.log"


class QueueLog:
    """Safe to use from any thread and after a fork. No method raises, ever; the file is opened at the first event.

    ``error=`` takes an exception, whose traceback is written too.
    """

    def __init__(self, settings: LogSettings, queue: str, clock: Clock | None = None) -> None:
        self.queue = queue
        self._settings = settings
        self._clock = clock or SystemClock()
        self._file = None if settings.directory is None else LogFile(settings, log_file_name(queue))
        self._level = NEVER if self._file is None else settings.level
        self._logger: TaskLogger | None = None

    @property
    def path(self) -> str | None:
        return None if self._file is None else self._file.path

    def enabled(self, level: int) -> bool:
        """Whether an event of this level would be written."""
        return level >= self._level

    def debug(self, event: str, **fields: object) -> None:
        if self._level <= DEBUG:
            self._root().debug(event, **fields)

    def info(self, event: str, **fields: object) -> None:
        if self._level <= INFO:
            self._root().info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        if self._level <= WARNING:
            self._root().warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        if self._level <= ERROR:
            self._root().error(event, **fields)

    def bind(self, **fields: object) -> TaskLogger:
        """A logger of its own, that says these fields with every event. Without a file, it goes nowhere."""
        return self._root().bind(**fields)

    def close(self) -> None:
        """Lets the file go; a later event opens it again."""
        if self._file is not None:
            self._file.close()

    def _root(self) -> TaskLogger:
        logger = self._logger
        if logger is None:
            logger = self._logger = self._make_logger()
        return logger

    def _make_logger(self) -> TaskLogger:
        if self._file is None:  # in the application's own process, whose imports are its own matter
            from .task_logger import TaskLogger, stamped
        else:
            with lean_imports():
                from .task_logger import TaskLogger, stamped
        render = as_json if self._settings.format == "json" else as_line
        processors: list[Any] = [stamped(partial(_time, self._clock)), partial(_rendered, render)]
        return TaskLogger(_Sink(self._file, self._level), processors, {"queue": self.queue})


class _Sink:
    """What the structlog loggers wrap."""

    __slots__ = ("_file", "level")

    def __init__(self, file: LogFile | None, level: int) -> None:
        self._file = file
        self.level = level

    def write(self, line: bytes) -> None:
        if self._file is not None:
            self._file.write(line)

    def note(self, error: BaseException) -> None:
        if self._file is not None:
            self._file.note(error)


def _time(clock: Clock) -> str:
    return timestamp(clock.now())


def _rendered(render: Callable[[Any], bytes], _logger: Any, _method: str, event: Any) -> bytes:
    return render(event)
