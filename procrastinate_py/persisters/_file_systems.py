"""Whether a file lies on a network file system, whose locks SQLite can't rely on."""

from __future__ import annotations

import os
import re

NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs coda fuse.cephfs fuse.glusterfs fuse.rclone fuse.s3fs fuse.sshfs glusterfs gpfs lustre"
    " ncpfs nfs nfs4 smb smb3 smbfs virtiofs".split()
)

_ESCAPE = re.compile(r"\\([0-7]{3})")


def mounts() -> str:
    """The kernel's list of mounts; empty where there is none."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def network_file_system(path: str, mountinfo: str) -> str | None:
    """The type of the network file system that holds this absolute path, or None where it's a local one."""
    longest, found = "", None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        mount_point = _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        # Later mounts hide earlier ones at the same place.
        if _is_within(path, mount_point) and len(mount_point) >= len(longest):
            longest, found = mount_point, after.split(" ")[0]
    return found if found in NETWORK_FILE_SYSTEMS else None


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
