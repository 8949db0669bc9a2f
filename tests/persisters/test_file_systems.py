"""Telling network file systems from local ones."""

from __future__ import annotations

import pytest

from procrastinate_py.persisters._file_systems import mounts, network_file_system

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /home rw shared:2 - nfs4 server:/home rw
24 23 0:22 / /home/me/fast rw - xfs /dev/sdb1 rw
25 22 0:23 / /mnt/my\\040share rw - cifs //server/share rw
26 22 0:24 / /mnt/ssh rw - fuse.sshfs me@server: rw
27 22 0:25 / /mnt/hidden rw - nfs server:/x rw
28 22 8:2 / /mnt/hidden rw - ext4 /dev/sdc1 rw
a line that is no mount
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/tasks.db", None),
        ("/home/tasks.db", "nfs4"),
        ("/homes/tasks.db", None),
        ("/home/me/fast/tasks.db", None),
        ("/mnt/my share/a/tasks.db", "cifs"),
        ("/mnt/ssh/tasks.db", "fuse.sshfs"),
        ("/mnt/hidden/tasks.db", None),
    ],
)
def test_the_innermost_mount_decides(path: str, kind: str | None) -> None:
    assert network_file_system(path, MOUNTS) == kind


def test_without_a_list_of_mounts_nothing_is_suspected() -> None:
    assert network_file_system("/home/tasks.db", "") is None
    assert isinstance(mounts(), str)
