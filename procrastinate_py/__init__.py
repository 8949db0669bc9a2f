"""Puts work off until later, kept in your own storage: ``Environment`` is where to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.errors import AlreadyStartedError as AlreadyStartedError
    from .core.errors import ConfigurationError as ConfigurationError
    from .core.errors import LeaseLost as LeaseLost
    from .core.errors import MalformedPersisterError as MalformedPersisterError
    from .core.errors import MalformedTaskError as MalformedTaskError
    from .core.errors import NoQueueError as NoQueueError
    from .core.errors import PayloadError as PayloadError
    from .core.errors import PersisterError as PersisterError
    from .core.errors import PersisterUnavailableError as PersisterUnavailableError
    from .core.errors import ProcrastinateError as ProcrastinateError
    from .core.errors import TaskError as TaskError
    from .core.errors import TaskExpiredError as TaskExpiredError
    from .core.errors import TaskNotFoundError as TaskNotFoundError
    from .core.errors import TaskTimeoutError as TaskTimeoutError
    from .core.errors import TestModeError as TestModeError
    from .core.errors import UnknownQueueError as UnknownQueueError
    from .core.errors import UnknownTaskError as UnknownTaskError
    from .core.errors import UnstorableError as UnstorableError
    from .core.errors import UnsupportedByPersisterError as UnsupportedByPersisterError
    from .core.errors import UntrustedTaskError as UntrustedTaskError
    from .core.errors import WorkerDiedError as WorkerDiedError
    from .core.outcome import Outcome as Outcome
    from .core.queue import QueueSpec as QueueSpec
    from .core.task import TaskRecord as TaskRecord
    from .core.task import TaskState as TaskState
    from .environment import Environment as Environment
    from .environment import setup as setup
    from .tasks.delaying import Delayed as Delayed
    from .tasks.exponential import Exponential as Exponential

test_mode: bool = False
"""Whether environments are made in test mode where they aren't told; read when each is made."""

_ERRORS = (
    "AlreadyStartedError ConfigurationError LeaseLost MalformedPersisterError MalformedTaskError NoQueueError "
    "PayloadError PersisterError PersisterUnavailableError ProcrastinateError TaskError TaskExpiredError "
    "TaskNotFoundError TaskTimeoutError TestModeError UnknownQueueError UnknownTaskError UnstorableError "
    "UnsupportedByPersisterError UntrustedTaskError WorkerDiedError"
).split()

_HOMES = {
    "Environment": "environment",
    "setup": "environment",
    "Delayed": "tasks.delaying",
    "Exponential": "tasks.exponential",
    "Outcome": "core.outcome",
    "QueueSpec": "core.queue",
    "TaskRecord": "core.task",
    "TaskState": "core.task",
    **dict.fromkeys(_ERRORS, "core.errors"),
}

__all__ = ["test_mode", *_HOMES]


def __getattr__(name: str) -> Any:
    """Imports a name's module when it's first asked for, so that importing the package costs next to nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
