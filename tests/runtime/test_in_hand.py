"""E38, U26: what a dead process had begun is known to the next one."""

from __future__ import annotations

import errno
import multiprocessing
import os
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procrastinate_py.runtime.in_hand import BODY, RECOVERY, InHandFile, key_of, shared_path, sole_path


def acquired(path: Path) -> InHandFile:
    file = InHandFile.try_acquire(path)
    assert file is not None
    return file


def dies_with_tasks_in_hand(path: Path, owner: str, *ids: object) -> None:
    """A process that begins tasks and dies without a word."""
    pid = os.fork()
    if pid == 0:
        file = InHandFile.try_acquire(path)
        if file is None:
            os._exit(1)
        file.take(owner)
        for task_id in ids:
            file.begin(key_of(task_id), 12.5, BODY)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_no_two_queues_share_a_file_whatever_their_names() -> None:
    """E10"""
    names = ("a", "a.1", "a@1", "a%401")
    paths = {sole_path("run", queue) for queue in names}
    paths |= {shared_path("run", queue, number) for queue in names for number in (1, 11)}
    assert len(paths) == 12


def test_a_new_file_has_nothing_left(tmp_path: Path) -> None:
    file = acquired(tmp_path / "deep" / "q.in-hand")
    assert file.left is None
    assert (tmp_path / "deep" / "q.in-hand").stat().st_mode & 0o777 == 0o600
    file.close(clean=True)


def test_what_a_dead_process_had_begun_is_left(tmp_path: Path) -> None:
    """E38"""
    path = tmp_path / "q.in-hand"
    dies_with_tasks_in_hand(path, "first", 1, "1", "x" * 500)
    file = acquired(path)
    assert file.left is not None
    assert file.left.owners == ("first",)
    assert {note.key for note in file.left.begun} == {key_of(1), key_of("1"), key_of("x" * 500)}
    assert all(note.deadline == 12.5 and note.phase == BODY for note in file.left.begun)
    file.close(clean=True)


def test_what_is_settled_is_not_left(tmp_path: Path) -> None:
    path = tmp_path / "q.in-hand"
    file = acquired(path)
    file.take("first")
    kept, gone = (file.begin(key_of(task_id), 0.0, BODY) for task_id in (1, 2))
    file.end(gone)
    file.close(clean=False)
    again = acquired(path)
    assert again.left is not None
    assert [note.key for note in again.left.begun] == [key_of(1)]
    again.close(clean=True)
    assert kept != gone


def test_a_death_during_recovery_leaves_both_owners_and_their_tasks(tmp_path: Path) -> None:
    """E38"""
    path = tmp_path / "q.in-hand"
    dies_with_tasks_in_hand(path, "first", 1)
    dies_with_tasks_in_hand(path, "second", 2)
    file = acquired(path)
    assert file.left is not None
    assert file.left.owners == ("second", "first")
    assert {note.key for note in file.left.begun} == {key_of(1), key_of(2)}
    file.take("third")
    file.recovered()
    file.close(clean=False)
    after = acquired(path)
    assert after.left is not None
    assert after.left.owners == ("third",)
    assert not after.left.begun
    after.close(clean=True)


def test_a_clean_end_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "q.in-hand"
    file = acquired(path)
    file.take("first")
    file.close(clean=True)
    again = acquired(path)
    assert again.left is None
    again.close(clean=True)


def test_one_process_at_a_time_holds_it(tmp_path: Path) -> None:
    """E40"""
    path = tmp_path / "q.in-hand"
    file = acquired(path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(is_free, (path,)) is False
        file.close(clean=True)
        assert pool.apply(is_free, (path,)) is True


def is_free(path: Path) -> bool:
    file = InHandFile.try_acquire(path)
    if file is None:
        return False
    file.close(clean=True)
    return True


def test_a_child_of_a_body_does_not_keep_the_lock(tmp_path: Path) -> None:
    """E40: a task may fork, and what it forked may outlive the worker."""
    path = tmp_path / "q.in-hand"
    ready, go = os.pipe(), os.pipe()
    worker = os.fork()
    if worker == 0:
        InHandFile.try_acquire(path)
        if os.fork() == 0:
            os.write(ready[1], b"r")
            os.read(go[0], 1)
            os._exit(0)
        os._exit(0)
    os.waitpid(worker, 0)
    assert os.read(ready[0], 1) == b"r"
    acquired(path).close(clean=True)
    os.write(go[1], b"g")
    for fd in (*ready, *go):
        os.close(fd)


def test_a_file_full_of_nonsense_is_begun_anew(tmp_path: Path) -> None:
    """G8"""
    path = tmp_path / "q.in-hand"
    path.write_bytes(os.urandom(2_000_000))
    file = acquired(path)
    assert file.left is None
    file.take("me")
    file.begin(key_of(7), 0.0, RECOVERY)
    file.close(clean=False)
    again = acquired(path)
    assert again.left is not None
    assert [(note.key, note.phase) for note in again.left.begun] == [(key_of(7), RECOVERY)]
    again.close(clean=True)


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """G8"""
    target = tmp_path / "precious"
    target.write_text("keep me")
    (tmp_path / "q.in-hand").symlink_to(target)
    with pytest.raises(OSError):
        InHandFile.try_acquire(tmp_path / "q.in-hand")
    assert target.read_text() == "keep me"


def test_more_tasks_than_there_is_room_for_do_no_harm(tmp_path: Path) -> None:
    file = acquired(tmp_path / "q.in-hand")
    file.take("me")
    slots = [file.begin(key_of(n), 0.0, BODY) for n in range(9000)]
    assert slots[-1] == -1
    for slot in slots:
        file.end(slot)
    assert file.begin(key_of(1), 0.0, BODY) >= 0
    file.close(clean=True)


ids = st.one_of(st.integers(), st.text(), st.uuids(), st.binary(), st.tuples(st.integers(), st.text()))


@given(ids, ids)
def test_different_ids_have_different_keys(one: object, other: object) -> None:
    assert len(key_of(one)) <= 112
    if type(one) is not type(other) or one != other:
        assert key_of(one) != key_of(other)


def test_ids_that_look_alike_are_told_apart() -> None:
    number = uuid.UUID(int=1)
    assert key_of(1) != key_of("1")
    assert key_of(1) != key_of(1, 1)
    assert key_of(number) != key_of(str(number))


def test_a_disk_without_room_is_an_error_and_kills_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E37: a page that the disk has no block for would be a SIGBUS for whoever writes it."""
    file = acquired(tmp_path / "roomy.in-hand")
    assert (tmp_path / "roomy.in-hand").stat().st_blocks * 512 >= 2**20
    file.close(clean=True)

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space left"):
            InHandFile.try_acquire(tmp_path / "q.in-hand")
    assert len(os.listdir("/proc/self/fd")) == before
    acquired(tmp_path / "q.in-hand").close(clean=True)


def test_a_file_that_was_removed_keeps_nobody_away(tmp_path: Path) -> None:
    """E40"""
    path = tmp_path / "q.in-hand"
    file = acquired(path)
    assert file.is_held()
    path.unlink()
    assert not file.is_held()
    acquired(path).close(clean=True)
    assert not file.is_held()
    file.close(clean=True)


def test_a_lock_that_was_dropped_is_taken_back_unless_another_has_it(tmp_path: Path) -> None:
    """E40: the system drops it when its process closes the file, however it came to have it open once more."""
    path = tmp_path / "q.in-hand"
    file = acquired(path)
    path.read_bytes()
    assert file.is_held()
    assert another_process_cannot_acquire(path)
    path.read_bytes()
    ready, others = os.pipe()
    goes, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        held = InHandFile.try_acquire(path)
        os.write(others, b"1" if held else b"0")
        os.read(goes, 1)
        os._exit(0)
    assert os.read(ready, 1) == b"1"
    assert not file.is_held()
    os.write(ours, b"1")
    os.waitpid(pid, 0)
    for fd in (ready, others, goes, ours):
        os.close(fd)
    file.close(clean=True)


def another_process_cannot_acquire(path: Path) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if InHandFile.try_acquire(path) is None else 1)
    return os.waitpid(pid, 0)[1] == 0
