"""What processes tell each other by, and what a fork sheds."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from procrastinate_py.runtime.deaths import REPLACE, cause_of_death
from procrastinate_py.runtime.forking import CRASHED, fork_process
from procrastinate_py.runtime.pipes import EventPipe, LineReader, close_all, make_pipe, write_line

from .conftest import PYTHONPATH

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = make_pipe()
    yield ends
    close_all(*ends)


def test_a_full_pipe_drops_lines_and_blocks_nobody(pipe: Pipe) -> None:
    """U24"""
    read, write = pipe
    while write_line(write, "alive -"):
        pass
    reader = LineReader(read)
    assert set(reader.lines()) == {"alive -"}
    assert write_line(write, "ready")
    assert reader.lines() == ["ready"]
    assert not reader.at_end


def test_a_pipe_without_a_reader_hurts_nobody() -> None:
    """U34"""
    read, write = make_pipe()
    os.close(read)
    EventPipe(write).alive(1.5)
    assert not write_line(write, "ready")
    os.close(write)
    assert not write_line(write, "ready")


def test_lines_come_whole_however_they_are_cut(pipe: Pipe) -> None:
    """U34"""
    read, write = pipe
    reader = LineReader(read)
    os.write(write, b"cla")
    assert reader.lines() == []
    os.write(write, b"imed 3\nset")
    assert reader.lines() == ["claimed 3"]
    os.write(write, b"tled 3\n")
    assert reader.lines() == ["settled 3"]


def test_a_line_stays_one_line_and_short(pipe: Pipe) -> None:
    """U34"""
    read, write = pipe
    write_line(write, "failed two\nlines " + "x" * 10_000)
    (line,) = LineReader(read).lines()
    assert line.startswith("failed two lines xxx")
    assert len(line) < 512


def test_a_writer_that_never_pauses_keeps_its_reader_only_so_long(pipe: Pipe) -> None:
    """U24"""
    read, write = pipe
    gone = threading.Event()

    def chatter() -> None:
        while not gone.is_set():
            write_line(write, "claimed 1")

    thread = threading.Thread(target=chatter)
    thread.start()
    LineReader(read).lines()
    gone.set()
    thread.join()


def test_events_are_lines_that_a_person_can_read(pipe: Pipe) -> None:
    """U24"""
    read, write = pipe
    events = EventPipe(write)
    events.begun()
    events.ready()
    events.alive(None)
    events.alive(12.25)
    events.claimed(5)
    events.settled(4)
    events.stopping()
    expected = ["begun", "ready", "alive -", "alive 12.25", "claimed 5", "settled 4", "stopping"]
    assert LineReader(read).lines() == expected


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit code 0"),
        (REPLACE << 8, None),
        (3 << 8, "exit code 3"),
        (signal.SIGKILL, "killed by SIGKILL"),
        (signal.SIGSEGV | 0x80, "killed by SIGSEGV"),
        (40, "killed by signal 40"),
    ],
)
def test_a_death_is_told_in_words(status: int, words: str | None) -> None:
    """E38"""
    assert cause_of_death(status) == words


def exit_code_of(body: object) -> int:
    pid = fork_process(body)  # type: ignore[arg-type]
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_fork_ends_with_its_body_and_shows_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """E39"""
    assert exit_code_of(lambda: None) == 0
    assert exit_code_of(lambda: sys.exit(5)) == 5
    assert exit_code_of(lambda: 1 / 0) == CRASHED
    assert exit_code_of(lambda: os.kill(os.getpid(), signal.SIGINT)) == 0
    assert capfd.readouterr() == ("", "")


def test_a_fork_freezes_what_it_inherits() -> None:
    """E35"""
    before = gc.get_freeze_count()
    assert exit_code_of(lambda: sys.exit(7 if gc.get_freeze_count() > 1000 else 1)) == 7
    assert gc.get_freeze_count() == before


def test_a_fork_inherits_no_blocked_signal_and_leaves_none_blocked() -> None:
    """U21"""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        assert exit_code_of(lambda: sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))) == 0
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {*blocked, signal.SIGUSR2}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def test_what_was_printed_before_a_fork_is_printed_once() -> None:
    """E39"""
    program = (
        "import os; from procrastinate_py.runtime.forking import end_process, fork_process\n"
        "print('before')\n"
        "os.waitpid(fork_process(lambda: (print('in the fork'), end_process(0))), 0)\n"
        "print('after')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONUNBUFFERED": ""},
    )
    assert done.stdout.splitlines() == ["before", "in the fork", "after"]
