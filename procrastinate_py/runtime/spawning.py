"""Supervisor and queue processes without a fork: new interpreters, which get the plan pickled.

The pickle is the application's own, handed from it to its queue processes by a file that has no name. The supervisor
passes it on and never reads it, so no code of the user's runs there.
"""

from __future__ import annotations

import copy
import fcntl
import importlib.abc
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import types
import weakref
from dataclasses import asdict, replace
from typing import Any

from ..core.error_text import type_and_message
from ..core.errors import ConfigurationError
from .forking import CRASHED, GROUP_SIGNALS, end_process, outlive_group_signals
from .pipes import EventPipe, QueuePipes, SupervisorPipes
from .plan import Plan
from .quiet import ScriptHeld, holds_script, start_nothing_ever
from .supervisor import Supervisor, SupervisorPlan

_PROGRAM = (
    "import json, sys; what = json.loads(sys.argv[1]); sys.path[:] = what['path']; "
    "from procrastinate_py.runtime.spawning import main; main(what)"
)


class SpawnLauncher:
    """Raises ConfigurationError where the plan can't be pickled."""

    def __init__(self, plan: Plan, supervisor: SupervisorPlan) -> None:
        data = pickled(plan)
        script = _main_script()
        if script is None and _names_main(plan):
            raise ConfigurationError(
                "start_method='spawn' needs what it names in a module that can be imported: this __main__ has no file "
                "(move the persister's factory and the tasks into a module, or use start_method='fork')"
            )
        self._plan = _nameless_file(data)
        weakref.finalize(self, os.close, self._plan)
        self._what: dict[str, Any] = {
            "path": [os.path.abspath(entry) for entry in sys.path],
            "cwd": os.getcwd(),
            "argv": list(sys.argv),
            "script": script,
            "supervisor": asdict(supervisor),
        }

    def start_supervisor(self, pipes: SupervisorPipes, ours: tuple[int, ...]) -> int:
        return _spawn({**self._what, "role": "supervisor", "pipes": asdict(pipes), "plan": self._plan})


def _nameless_file(data: bytes) -> int:
    fd, path = tempfile.mkstemp()
    os.unlink(path)
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    with open(high, "wb", closefd=False) as file:
        file.write(data)
    return high


def pickled(plan: Plan) -> bytes:
    try:
        return pickle.dumps(plan)
    except Exception as error:
        what, fix = _culprit(plan)
        raise ConfigurationError(
            f"start_method='spawn' needs {what} that can be pickled ({error}): {fix}, or use start_method='fork'"
        ) from error


def _culprit(plan: Plan) -> tuple[str, str]:
    if not _can_be_pickled(plan.source):
        return "a persister", "give a URL, or a factory that is a function at the top level of a module"
    for queue in plan.queues:
        if not _can_be_pickled(queue):
            return f"options of queue {queue.name!r}", "give as backoff= a function at the top level of a module"
    return "task classes", "define them at the top level of a module"


def _names_main(plan: Plan) -> bool:
    """Whether it refers to something in ``__main__``; that this is trusted doesn't count."""
    untrusting = copy.copy(plan.registry)
    untrusting.trust = frozenset()
    return b"__main__" in pickle.dumps(replace(plan, registry=untrusting))


def _can_be_pickled(value: object) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def _main_script() -> dict[str, str] | None:
    """How a new interpreter finds the application's main module; None where it can't, or needn't."""
    module = sys.modules["__main__"]
    name = getattr(getattr(module, "__spec__", None), "name", None)
    if name is not None:
        # A package's __main__ is a command, not a place where tasks are defined: it would run the command again.
        return None if name == "__main__" or name.endswith(".__main__") else {"module": name}
    path = getattr(module, "__file__", None)
    return {"file": os.path.abspath(path)} if path is not None and os.path.isfile(path) else None


def _spawn(what: dict[str, Any]) -> int:
    """The group's signals stay blocked until the new process can deal with them."""
    fds = [fd for fd in (what["plan"], *what["pipes"].values()) if fd >= 0]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(what)],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            cwd=what["cwd"] if os.path.isdir(what["cwd"]) else None,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    process.returncode = 0  # whoever started it waits for the pid: to subprocess, it's done
    return process.pid


def main(what: dict[str, Any]) -> None:
    """In the new interpreter."""
    code = CRASHED
    start_nothing_ever()
    try:
        for fd in (what["plan"], *what["pipes"].values()):
            os.set_inheritable(fd, False)
        outlive_group_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
        if what["role"] == "supervisor":
            _supervise(what)
        else:
            _work(what)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else CRASHED
    finally:
        end_process(code)


def _supervise(what: dict[str, Any]) -> None:
    from setproctitle import setproctitle

    plan = SupervisorPlan(**{**what["supervisor"], "processes": tuple(what["supervisor"]["processes"])})

    def launch(index: int, pipes: QueuePipes, cause: str | None, _ours: tuple[int, ...]) -> int:
        return _spawn({**what, "role": "queue", "pipes": asdict(pipes), "index": index, "cause": cause})

    setproctitle(plan.title)
    Supervisor(plan, SupervisorPipes(**what["pipes"]), launch).run()


def _work(what: dict[str, Any]) -> None:
    pipes = QueuePipes(**what["pipes"])
    try:
        plan = _read_plan(what)
        from .child import run_queue_process
    except BaseException as error:
        EventPipe(pipes.events).failed(f"its spawned process can't begin: {type_and_message(error)}")
        raise SystemExit(CRASHED) from error
    run_queue_process(plan, what["index"], pipes, what["cause"])


def _read_plan(what: dict[str, Any]) -> Plan:
    if what["script"] is not None:
        _run_script(what["script"], what["argv"])
    data = os.pread(what["plan"], os.fstat(what["plan"]).st_size, 0)
    os.close(what["plan"])
    plan = pickle.loads(data)
    assert isinstance(plan, Plan)
    return plan


def _run_script(script: dict[str, str], argv: list[str]) -> None:
    """Makes the application's main module this one's, as far as it stands above the start of its environment."""
    module = types.ModuleType("__mp_main__")
    code: types.CodeType | None
    if "module" in script:
        spec = importlib.util.find_spec(script["module"])
        assert spec is not None and isinstance(spec.loader, importlib.abc.InspectLoader)
        module.__spec__, module.__file__ = spec, spec.origin
        code = spec.loader.get_code(script["module"])
    else:
        module.__file__ = script["file"]
        with open(script["file"], "rb") as file:
            code = compile(file.read(), script["file"], "exec")
    assert code is not None
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    sys.argv[:] = argv
    try:
        with holds_script():
            exec(code, module.__dict__)
    except (ScriptHeld, SystemExit):
        return  # all that a fork would have is there
