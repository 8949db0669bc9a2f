"""Wake-ups by named pipes (E17)."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from procrastinate_py.persisters._wake import WakeDirectory


def is_readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


@pytest.fixture
def wake(tmp_path: Path) -> WakeDirectory:
    return WakeDirectory(tmp_path / "wake")


def test_a_wake_up_makes_the_listener_readable_until_it_drains(wake: WakeDirectory) -> None:
    """E17"""
    listener = wake.listen("email")
    assert not is_readable(listener.fileno())
    for _ in range(3):
        wake.notify("email")
    assert is_readable(listener.fileno())
    listener.drain()
    assert not is_readable(listener.fileno())
    listener.close()
    listener.close()


def test_every_listener_of_the_name_wakes_and_no_other(wake: WakeDirectory) -> None:
    """E17"""
    names = ("email", "email", "email.b", "e", "email@x", "../email")
    listeners = [wake.listen(name) for name in names]
    wake.notify("email")
    assert [is_readable(listener.fileno()) for listener in listeners] == [True, True, False, False, False, False]
    for listener in listeners:
        listener.close()


def test_nobody_listening_and_no_folder_is_fine(wake: WakeDirectory) -> None:
    wake.notify("email")
    assert not os.path.exists(wake.path)
    WakeDirectory("no\0such").notify("email")


def test_a_hostile_name_stays_within_the_folder(wake: WakeDirectory, tmp_path: Path) -> None:
    """E10"""
    for name in ("../../x", "/abs", "a\0b", "\U0001f600" * 64, "."):
        listener = wake.listen(name)
        wake.notify(name)
        assert is_readable(listener.fileno())
        assert Path(listener.path).parent == tmp_path / "wake"
        listener.close()
    assert os.listdir(tmp_path) == ["wake"]
    assert os.listdir(wake.path) == []


def test_a_full_pipe_neither_blocks_nor_raises(wake: WakeDirectory) -> None:
    listener = wake.listen("email")
    filler = os.open(listener.path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(filler, b"x" * 65536)
    except BlockingIOError:
        pass
    os.close(filler)
    wake.notify("email")
    listener.drain()
    assert not is_readable(listener.fileno())
    listener.close()


def test_only_the_owner_can_wake(wake: WakeDirectory) -> None:
    listener = wake.listen("email")
    assert stat.S_IMODE(os.stat(wake.path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(listener.path).st_mode) == 0o600
    listener.close()


def test_the_pipe_of_a_killed_worker_is_swept(wake: WakeDirectory) -> None:
    program = (
        "import sys, time\n"
        "from procrastinate_py.persisters._wake import WakeDirectory\n"
        "listener = WakeDirectory(sys.argv[1]).listen('email')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, wake.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert len(os.listdir(wake.path)) == 1
    wake.notify("email")
    assert os.listdir(wake.path) == []


def test_links_and_plain_files_are_left_alone(wake: WakeDirectory, tmp_path: Path) -> None:
    wake.listen("email").close()
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    os.symlink(victim, os.path.join(wake.path, "email@1.link"))
    Path(wake.path, "email@1.file").write_text("as it was")
    wake.notify("email")
    assert victim.read_text() == Path(wake.path, "email@1.file").read_text() == "as it was"
    assert len(os.listdir(wake.path)) == 2


def test_a_forked_child_leaves_the_pipe_to_its_parent(wake: WakeDirectory) -> None:
    """U31"""
    listener = wake.listen("email")
    child = os.fork()
    if child == 0:
        listener.close()
        os._exit(0)
    os.waitpid(child, 0)
    wake.notify("email")
    assert is_readable(listener.fileno())
    listener.close()
