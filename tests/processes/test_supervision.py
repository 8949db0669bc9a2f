"""The supervisor and the application's end of it, with stand-ins for the queue processes."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from procrastinate_py.core.errors import ConfigurationError
from procrastinate_py.core.queue import queue_spec
from procrastinate_py.runtime import supervisor
from procrastinate_py.runtime.deaths import HUNG, REPLACE
from procrastinate_py.runtime.forking import fork_process
from procrastinate_py.runtime.pipes import EventPipe, QueuePipes, SupervisorPipes, make_pipe
from procrastinate_py.runtime.supervision import Supervision

from .support import (
    append,
    children_of,
    descriptors_of,
    eventually,
    is_running,
    lines_of,
    no_process_left,
    obedient,
    parent_of,
    state_of_process,
    stubborn,
    title_of,
)

Make = Callable[..., Supervision]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def make(tmp_path: Path, notes: Path) -> Iterator[Make]:
    made: list[Supervision] = []

    def make(run_queue: Any = obedient, *queues: str, prefix: str | None = None, **more: Any) -> Supervision:
        plan: Any = SimpleNamespace(
            queues=tuple(queue_spec(name, {}) for name in queues or ("email",)),
            grace=1.0,
            process_prefix=prefix,
            run_dir=str(tmp_path),
            notes=str(notes),
            **more,
        )
        made.append(Supervision(plan, start_method="fork", run_queue=run_queue))
        return made[-1]

    with no_process_left():
        yield make
        for supervision in made:
            supervision.kill()


def ends(notes: Path) -> list[str]:
    return [line for line in lines_of(notes) if " ends " in line]


def begins(notes: Path) -> list[str]:
    return [line for line in lines_of(notes) if " begins " in line]


def successor(supervision: Supervision, queue: str, pid: int) -> int:
    return eventually(lambda: (found := supervision.pids().get(queue, pid)) != pid and found)


def test_each_queue_gets_a_process_in_order_of_definition(make: Make) -> None:
    """E35"""
    supervision = make(obedient, "zeta", "alpha", "mid")
    supervision.start()
    pids = supervision.pids()
    assert list(pids) == ["zeta", "alpha", "mid"]
    assert list(pids.values()) == sorted(pids.values())
    assert {parent_of(pid) for pid in pids.values()} == {supervision.supervisor_pid}
    assert parent_of(supervision.supervisor_pid) == os.getpid()


def test_the_supervisor_says_what_it_is_in_ps(make: Make) -> None:
    """E35"""
    supervision = make(obedient, prefix="shop")
    supervision.start()
    assert title_of(supervision.supervisor_pid) == "shop-procrastinate-supervisor"


def test_a_drain_is_passed_on_and_waits_for_all(make: Make, notes: Path) -> None:
    """E39"""
    supervision = make(obedient, "a", "b")
    supervision.start()
    pids = supervision.pids()
    supervision.stop(7.5)
    assert sorted(ends(notes)) == [f"{index} ends {pids[name]} ['drain 7.5'] False" for index, name in enumerate("ab")]
    assert not any(map(is_running, pids.values()))


def test_a_stop_leaves_no_zombie_and_no_descriptor(make: Make) -> None:
    """E39"""
    before = descriptors_of(os.getpid())
    threads = threading.active_count()
    supervision = make(obedient, "a", "b")
    supervision.start()
    supervision.stop(1)
    assert supervision.pids() == {}
    assert descriptors_of(os.getpid()).items() <= before.items()
    assert threading.active_count() == threads


def test_stopping_twice_does_nothing(make: Make) -> None:
    """E39"""
    supervision = make()
    supervision.start()
    supervision.stop(1)
    supervision.stop(1)
    supervision.kill()


def test_who_heeds_nothing_is_killed_after_the_grace(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """E39"""
    monkeypatch.setattr(supervisor, "MARGIN", 0.05)
    supervision = make(stubborn)
    supervision.start()
    pid = supervision.pids()["email"]
    supervision.stop(0.05)
    assert not is_running(pid)


def test_a_second_command_stops_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """E39"""
    monkeypatch.setattr(supervisor, "AT_ONCE", 0.05)
    supervision = make(stubborn)
    supervision.start()
    stopping = threading.Thread(target=supervision.stop, args=(1_000_000,))
    stopping.start()
    supervision.hurry()
    stopping.join()
    assert supervision.pids() == {}


def test_ctrl_c_while_it_drains_stops_at_once_and_is_passed_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """E39"""
    monkeypatch.setattr(supervisor, "AT_ONCE", 0.05)
    supervision = make(stubborn)
    supervision.start()
    pid = supervision.pids()["email"]
    monkeypatch.setattr(supervision._ended, "wait", interrupted_once(supervision._ended.wait))
    with pytest.raises(KeyboardInterrupt):
        supervision.stop(1_000_000)
    assert not is_running(pid)


def test_an_interrupt_while_orphans_end_writes_into_nobodys_descriptor(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E39"""
    supervision = make()
    supervision.start()
    wait, close = supervision._ended.wait, supervision.close_descriptors
    read, write = os.pipe2(os.O_NONBLOCK)
    taken = [write]

    def kills_the_supervisor(timeout: float) -> bool:
        if supervision.supervisor_pid:
            os.kill(supervision.supervisor_pid, signal.SIGKILL)
        return wait(timeout)

    def interrupted() -> None:
        close()
        monkeypatch.undo()
        taken.extend(os.dup(write) for _ in range(20))  # the application opens files meanwhile
        raise KeyboardInterrupt

    monkeypatch.setattr(supervision._ended, "wait", kills_the_supervisor)
    monkeypatch.setattr(supervision, "close_descriptors", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            supervision.stop(30)
        with pytest.raises(BlockingIOError):
            os.read(read, 100)
    finally:
        for fd in (read, *taken):
            os.close(fd)


def interrupted_once(wait: Callable[[float], bool]) -> Callable[[float], bool]:
    calls: list[float] = []

    def instead(timeout: float) -> bool:
        calls.append(timeout)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return wait(timeout)

    return instead


def test_signals_to_the_group_stop_nothing(make: Make, notes: Path) -> None:
    """U21"""
    supervision = make()
    supervision.start()
    pid = supervision.pids()["email"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(supervision.supervisor_pid, number)
        os.kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    supervision.stop(1)
    assert begins(notes) == [f"0 begins {pid} None"]
    assert ends(notes) == [f"0 ends {pid} ['drain 1'] False"]


def test_the_applications_handlers_run_in_no_other_process(make: Make, notes: Path) -> None:
    """U21"""
    before = signal.signal(signal.SIGUSR1, lambda *_: append(notes, f"handled in {os.getpid()}"))
    try:
        supervision = make()
        supervision.start()
        for pid in (supervision.supervisor_pid, supervision.pids()["email"]):
            os.kill(pid, signal.SIGUSR1)
        supervision.stop(1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [line for line in lines_of(notes) if "handled" in line] == []
    assert len(ends(notes)) == 1


def test_a_process_that_dies_is_replaced_and_its_successor_told_how(make: Make, notes: Path) -> None:
    """E38"""
    supervision = make(obedient, "a", "b")
    supervision.start()
    first, other = supervision.pids().values()
    os.kill(first, signal.SIGKILL)
    second = successor(supervision, "a", first)
    assert f"0 begins {second} killed by SIGKILL" in eventually(lambda: begins(notes)[2:])
    assert supervision.pids()["b"] == other


@pytest.mark.parametrize(("code", "cause"), [(3, "exit code 3"), (0, "exit code 0"), (REPLACE, "None")])
def test_a_process_that_ends_by_itself_is_replaced(make: Make, notes: Path, code: int, cause: str) -> None:
    """E38"""

    def ends_once(plan: Any, index: int, pipes: QueuePipes, cause: str | None) -> None:
        if begins(notes):
            obedient(plan, index, pipes, cause)
        else:
            EventPipe(pipes.events).begun()
            append(notes, f"0 begins {os.getpid()} first")
            os._exit(code)

    supervision = make(ends_once)
    supervision.start()
    assert eventually(lambda: begins(notes)[1:])[0].endswith(f" {cause}")


def test_pauses_grow_while_a_process_keeps_dying_and_start_anew_once_it_lived() -> None:
    """E38"""
    queue = supervisor.QueueProcess(0)
    now = 1000.0
    pauses = []
    for _ in range(9):
        queue.could_not_live(now)
        pauses.append(queue.restart_at - now)
    assert pauses == [0, 1, 2, 4, 8, 16, 30, 30, 30]
    queue.could_not_live(now, lived=supervisor.HEALTHY_AFTER)
    assert queue.restart_at == now


def test_who_asks_to_be_replaced_never_waits() -> None:
    """E32"""
    queue = supervisor.QueueProcess(0)
    for now in range(20):
        queue.started(1 << 30, *os.pipe(), float(now))
        queue.ended(REPLACE << 8, float(now))
        assert queue.restart_at == now
        assert queue.cause is None


def silent(plan: Any, index: int, pipes: QueuePipes, cause: str | None) -> None:
    """Told by when it would be heard of again, and then holds still, as a body does that holds the interpreter."""
    events = EventPipe(pipes.events)
    events.begun()
    append(plan.notes, f"{index} begins {os.getpid()} {cause}")
    if cause is None:
        events.alive(0.0)
        while True:
            signal.pause()
    obedient(plan, index, pipes, cause)


def test_a_process_silent_beyond_its_deadline_is_killed_and_replaced(
    make: Make, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U24"""
    monkeypatch.setattr(supervisor, "SILENCE", 0.05)
    supervision = make(silent)
    supervision.start()
    assert eventually(lambda: begins(notes)[1:])[0].endswith(HUNG)


def test_only_silence_beyond_the_deadline_counts_as_hanging() -> None:
    """U24"""
    queue = supervisor.QueueProcess(0)
    queue.started(1 << 30, *os.pipe(), 100.0)
    assert queue.hangs_at(30.0) == float("inf")
    queue.heard("alive 120.5", 101.0)
    assert queue.hangs_at(30.0) == 150.5
    queue.heard("settled 3", 140.0)
    assert queue.hangs_at(30.0) == 170.0
    queue.heard("alive nonsense", 141.0)
    assert queue.hangs_at(30.0) == 171.0
    queue.heard("alive -", 142.0)
    assert queue.hangs_at(30.0) == float("inf")


def test_a_supervisor_that_dies_is_replaced_and_its_processes_end_themselves(make: Make, notes: Path) -> None:
    """U23"""
    supervision = make(obedient, "a", "b")
    supervision.start()
    first = supervision.supervisor_pid
    old = supervision.pids()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(supervision.pids()) == 2 and not set(supervision.pids().values()) & set(old.values()))
    assert supervision.supervisor_pid != first
    assert sorted(eventually(lambda: len(ends(notes)) == 2 and ends(notes))) == [
        f"{index} ends {old[name]} [] True" for index, name in enumerate("ab")
    ]
    supervision.stop(1)


def test_where_the_platform_has_no_process_descriptors_the_supervisor_is_watched_too(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U23"""

    def none_here(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", none_here)
    supervision = make()
    supervision.start()
    first = supervision.supervisor_pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: supervision.supervisor_pid not in (0, first) and supervision.pids())
    supervision.stop(1)


def test_it_can_be_started_from_any_thread(make: Make, notes: Path) -> None:
    """E35"""
    supervision = make()
    thread = threading.Thread(target=supervision.start)
    thread.start()
    thread.join()
    os.kill(supervision.pids()["email"], signal.SIGTERM)
    supervision.stop(1)
    assert len(ends(notes)) == 1


def test_a_stop_waits_for_processes_that_have_lost_their_supervisor(make: Make, notes: Path) -> None:
    """U23"""
    gate, opener = os.pipe()

    def slow_to_end(plan: Any, index: int, pipes: QueuePipes, cause: str | None) -> None:
        os.close(opener)
        EventPipe(pipes.events).begun()
        poll = select.poll()
        poll.register(pipes.orders, select.POLLIN)
        poll.poll()
        os.read(gate, 1)
        append(plan.notes, f"{index} ends late")

    supervision = make(slow_to_end)
    supervision.start()
    supervision._stopping.set()  # as if it died in the middle of a stop
    os.kill(supervision.supervisor_pid, signal.SIGKILL)
    stopping = threading.Thread(target=supervision.stop, args=(30,))
    stopping.start()
    eventually(supervision._ended.is_set)
    os.close(opener)
    stopping.join()
    os.close(gate)
    assert ends(notes) == ["0 ends late"]


def test_only_the_application_holds_the_end_by_which_its_loss_is_seen(make: Make) -> None:
    """U34"""
    supervision = make(obedient, "a", "b")
    supervision.start()
    ours = descriptors_of(os.getpid())[supervision._application]
    held = [fd for fd, what in descriptors_of(os.getpid()).items() if what == ours]
    assert len(held) == 2  # its own end, and the one that replacements inherit
    for pid in (supervision.supervisor_pid, *supervision.pids().values()):
        assert list(descriptors_of(pid).values()).count(ours) == 1


def test_nothing_is_started_for_an_application_that_has_gone(notes: Path) -> None:
    """E36"""
    application, writer = make_pipe()
    control, status = make_pipe()
    os.close(writer)
    plan = supervisor.SupervisorPlan(processes=("email",), title="supervisor", grace=0)

    def launch(*_: Any) -> int:
        append(notes, "started")
        return fork_process(lambda: None)

    def run() -> None:
        pipes = SupervisorPipes(application=application, control=control, status=status)
        supervisor.Supervisor(plan, pipes, launch).run()

    assert os.waitpid(fork_process(run), 0)[1] == 0
    assert lines_of(notes) == []
    for fd in (application, control, status):
        os.close(fd)


def test_a_queue_process_holds_no_pipe_of_another(make: Make) -> None:
    """U34"""
    supervision = make(obedient, "a", "b", "c")
    supervision.start()
    supervisors = set(descriptors_of(supervision.supervisor_pid).values())
    pipes = [
        {what for what in descriptors_of(pid).values() if what.startswith("pipe:")} & supervisors
        for pid in supervision.pids().values()
    ]
    common = set.intersection(*pipes)
    assert all(len(mine - common) == 2 for mine in pipes)  # orders and events


def test_in_a_fork_of_the_application_it_is_inert(make: Make) -> None:
    """E36"""
    supervision = make()
    supervision.start()
    application = descriptors_of(os.getpid())[supervision._application]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        inert = supervision.pids() == {} and application not in descriptors_of(os.getpid()).values()
        supervision.stop(1)
        supervision.kill()
        supervision.hurry()
        os.write(write, b"inert" if inert else b"not inert")
        os._exit(0)
    assert os.read(read, 100) == b"inert"
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    assert is_running(supervision.pids()["email"])


def test_a_start_that_fails_says_why_and_leaves_nothing(make: Make) -> None:
    """E35"""

    def cannot(plan: Any, index: int, pipes: QueuePipes, cause: str | None) -> None:
        EventPipe(pipes.events).failed("no such planet")

    before = descriptors_of(os.getpid())
    supervision = make(cannot)
    with pytest.raises(ConfigurationError, match="queue 'email': no such planet"):
        supervision.start()
    assert descriptors_of(os.getpid()).items() <= before.items()


def test_a_process_that_dies_before_it_began_fails_the_start(make: Make) -> None:
    """E35"""
    supervision = make(lambda *_: os._exit(9))
    with pytest.raises(ConfigurationError, match="ended before it began .exit code 9"):
        supervision.start()


def test_a_fork_that_fails_is_told_clearly(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """E35"""

    def no_fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    supervision = make()
    monkeypatch.setattr(os, "fork", no_fork)
    with pytest.raises(ConfigurationError, match="can't be started: .*temporarily unavailable"):
        supervision.start()


def test_an_application_that_reaps_every_child_takes_nothing_from_the_supervision(make: Make) -> None:
    """E39"""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        supervision = make()
        supervision.start()
        first = supervision.supervisor_pid
        os.kill(first, signal.SIGKILL)
        eventually(lambda: supervision.supervisor_pid not in (0, first) and supervision.pids())
        supervision.stop(1)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_application_with_an_empty_stdin_keeps_its_pipes_apart(make: Make) -> None:
    """U34"""
    saved = os.dup(0)
    os.close(0)
    try:
        supervision = make()
        supervision.start()
        assert not {0, 1, 2} & {supervision._application, supervision._control, supervision._status}
        supervision.stop(1)
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def test_an_unknown_start_method_is_refused(make: Make) -> None:
    """E42"""
    with pytest.raises(ConfigurationError, match="fork, spawn"):
        Supervision(make()._plan, start_method="teleport")


def test_no_process_is_left_when_the_supervision_ends(make: Make) -> None:
    """E39"""
    supervision = make(obedient, "a", "b")
    supervision.start()
    supervisor_pid = supervision.supervisor_pid
    assert len(children_of(supervisor_pid)) == 2
    supervision.stop(1)
    assert state_of_process(supervisor_pid) is None
