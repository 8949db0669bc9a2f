"""Every error that this package raises on purpose.

ProcrastinateError
├── ConfigurationError   MalformedPersisterError  NoQueueError  UnknownQueueError  AlreadyStartedError
│                        TestModeError  UnsupportedByPersisterError
├── MalformedTaskError   (also a TypeError)
├── PayloadError         UnknownTaskError  UntrustedTaskError  UnstorableError (also a TypeError)
├── TaskError            TaskExpiredError  TaskTimeoutError  WorkerDiedError
├── TaskNotFoundError    (also a LookupError)
└── PersisterError       PersisterUnavailableError  LeaseLost
"""

from __future__ import annotations


class ProcrastinateError(Exception):
    """The root: catching it catches everything that this package raises on purpose."""


class ConfigurationError(ProcrastinateError):
    """An environment, a queue or a persister was set up in a way that can't work."""


class MalformedPersisterError(ConfigurationError):
    """A persister lacks one of the four methods."""


class NoQueueError(ConfigurationError):
    """An environment was started without a queue."""


class UnknownQueueError(ConfigurationError):
    """A queue was named that the environment doesn't define."""


class AlreadyStartedError(ConfigurationError):
    """A setting was changed, or start() called, after start()."""


class TestModeError(ConfigurationError):
    """A verb of test mode was used outside it, or the other way round."""

    __test__ = False  # keeps pytest from collecting a class whose name starts with Test


class UnsupportedByPersisterError(ConfigurationError):
    """A feature needs an ability that the persister lacks."""


class MalformedTaskError(ProcrastinateError, TypeError):
    """What was given as a task isn't an object that can be run."""


class PayloadError(ProcrastinateError):
    """A stored task can't be turned into an object, or an object into a stored task."""


class UnknownTaskError(PayloadError):
    """The stored text isn't a task, or names a class that can't be found."""


class UntrustedTaskError(PayloadError):
    """The stored text names a class from outside the trusted packages."""


class UnstorableError(PayloadError, TypeError):
    """The object's state holds a value that can't be stored."""


class TaskError(ProcrastinateError):
    """What became of a task, as its hooks see it."""


class TaskExpiredError(TaskError):
    """The task's expire_at passed before it could run."""


class TaskTimeoutError(TaskError):
    """The task's run took longer than its timeout."""


class WorkerDiedError(TaskError):
    """The process that ran the task died while its run had begun."""


class TaskNotFoundError(ProcrastinateError, LookupError):
    """No stored task has this id."""


class PersisterError(ProcrastinateError):
    """A store failed."""


class PersisterUnavailableError(PersisterError):
    """A store can't be reached or can't be used from here."""


class LeaseLost(PersisterError):
    """A lease ended while its task was in hand: another worker may have the task now."""
