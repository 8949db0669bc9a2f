"""The public names, as a snapshot: one that comes or goes is told in the changelog and the docs by the same commit."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import procrastinate_py
from procrastinate_py import Environment
from procrastinate_py.core import errors

ROOT = Path(__file__).parent.parent

NAMES = {
    "procrastinate_py": """
        AlreadyStartedError ConfigurationError Delayed Environment Exponential LeaseLost MalformedPersisterError
        MalformedTaskError NoQueueError Outcome PayloadError PersisterError PersisterUnavailableError ProcrastinateError
        QueueSpec TaskError TaskExpiredError TaskNotFoundError TaskRecord TaskState TaskTimeoutError TestModeError
        UnknownQueueError UnknownTaskError UnstorableError UnsupportedByPersisterError UntrustedTaskError
        WorkerDiedError setup test_mode
    """,
    "procrastinate_py.persisters": """
        MemoryPersister PostgresPersister RedisPersister S3Persister SQLitePersister open_persister
    """,
    "procrastinate_py.testing": "FakeClock PersisterConformance have_task",
}

OF_AN_ENVIRONMENT = """
    act clock codec count counts define_queue delay delay_many drain enable_test_mode find grace log_dir log_format
    log_keep log_level log_rotate log_settings max_task_bytes name now persister process_prefix processes processes_of
    queues run_dir run_folder start start_method stop store task tasks test_mode trust
"""

SIGNATURES = {
    "act": "(*queues)",
    "count": "(queue=None, state=None)",
    "counts": "(queue=None, state=None)",
    "define_queue": "(name, **options)",
    "delay_many": "(tasks, *, connection=None)",
    "drain": "(*queues, until=None)",
    "enable_test_mode": "()",
    "find": "(task_id)",
    "processes_of": "(queue)",
    "start": "(*queues)",
    "stop": "(grace=None)",
    "tasks": "(queue=None, state=None, task=None, *, limit=None, after=None)",
}


@pytest.mark.parametrize("module", NAMES)
def test_these_are_the_names(module: str) -> None:
    found = import_module(module)
    assert sorted(found.__all__) == sorted(NAMES[module].split())
    for name in found.__all__:
        assert getattr(found, name) is not None
        assert name in dir(found) or module == "procrastinate_py.persisters"
    with pytest.raises(AttributeError, match="nonsense"):
        found.nonsense  # noqa: B018


def test_every_error_is_public() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined <= set(procrastinate_py.__all__)


def test_an_environment_has_these_members() -> None:
    members = {name for name in dir(Environment) if not name.startswith("_")}
    assert sorted(members) == sorted(OF_AN_ENVIRONMENT.split())


@pytest.mark.parametrize("name", SIGNATURES)
def test_its_methods_are_called_so(name: str) -> None:
    signature = inspect.signature(getattr(Environment, name))
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    assert str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)) == SIGNATURES[name]


def test_what_is_public_is_documented() -> None:
    for name in OF_AN_ENVIRONMENT.split():
        member = inspect.getattr_static(Environment, name)
        if inspect.isfunction(member) or isinstance(member, property):
            assert member.__doc__, name


LIGHT = """
import sys
before = set(sys.modules)
import procrastinate_py
heavy = {"yaml", "rich", "click", "sqlite3", "structlog", "setproctitle", "asyncio", "multiprocessing", "logging"}
print(*sorted(heavy & (set(sys.modules) - before)))
"""
MAKES_AND_DELAYS = """
class Nothing:
    def run(self): ...
env = procrastinate_py.Environment(test_mode=True)
env.define_queue("email")
env.delay(Nothing())
heavy -= {"logging"}
print(*sorted(heavy & (set(sys.modules) - before)))
"""


def test_the_import_loads_nothing_heavy_and_neither_does_delay() -> None:
    """P8"""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT + MAKES_AND_DELAYS], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "\n\n"
