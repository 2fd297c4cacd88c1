"""Files that survive a crash: an exclusive lock, an atomic replacement, network disks refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsql.files import OWNER, create, tighten
from dpsql.interrupts import Allowed

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "lustre"}
    | {"glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs"}
)
_GUARDED: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_held: set[int] = set()


@contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Hold the lock file at ``path`` and yield its descriptor; others, threads too, queue.

    The kernel gives it up when the process dies. Raises: OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | _GUARDED, OWNER)
    _held.add(fd)
    try:
        with suppress(FileNotFoundError):  # whoever had it may have removed it
            tighten(path)
        _lock(fd)
        try:
            yield fd
        finally:
            _unlock(fd)
    finally:
        _held.discard(fd)
        os.close(fd)


if sys.platform == "win32":

    def _lock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_LOCK, 1)

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    def sync_directory(path: Path) -> None:
        """Do nothing: Windows writes names with the file."""

    def _sync(fd: int) -> None:
        os.fsync(fd)
else:

    def _lock(fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with Allowed():  # how long another process takes is not known
                fcntl.flock(fd, fcntl.LOCK_EX)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

    def sync_directory(path: Path) -> None:
        """Make the names in a directory durable. Raises: OSError."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _sync(fd: int) -> None:
        full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync leaves data in the disk's cache
        if full is None:
            os.fsync(fd)
        else:
            fcntl.fcntl(fd, full)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file durably, so that a crash leaves the old content or the new. Raises: OSError."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)  # of a crash
    fd = create(fresh)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        _sync(fd)
    finally:
        os.close(fd)
    os.replace(fresh, path)
    sync_directory(path.parent)


def on_network_disk(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Say whether a path is known to lie on a network file system (Linux; elsewhere False)."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    target = os.path.realpath(path)
    best, kind = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, types = left.split(), right.split()
        if len(fields) < 5 or not types:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        if (target + "/").startswith(point + "/") and len(point) >= best:
            best, kind = len(point), types[0]
    return kind in _NETWORK


def _close_in_child() -> None:
    for fd in list(_held):
        os.close(fd)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
