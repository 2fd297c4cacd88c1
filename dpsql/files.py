"""Files of dpsql's own: for their owner alone, never through a link, whole after a crash."""

from __future__ import annotations

import atexit
import errno
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from shutil import rmtree
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from dpsql.forks import fresh
from dpsql.interrupts import AllowInterrupts, check, is_cancellable, retry_until

if TYPE_CHECKING:
    from sqlite3 import Connection

    from numpy.typing import NDArray

OWNER = 0o600
"""Rights of every file that dpsql keeps for itself, whatever the umask."""

MANY = 16
"""Files that are written side by side: a disk ends the waits of all of them together."""

_SAFE: int = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_BINARY"))
"""A file is not handed to children, is no link to somewhere else, and has the bytes it is given."""


LONGEST_WAIT = 20.0
"""Seconds that a database is waited for which another process has locked."""
MOMENT = 0.001
"""Seconds between two questions, for what SQLite refuses at once."""

_LOADING = fresh(Lock())


@cache
def patient_connections() -> type[Connection]:
    """A class of SQLite's connections that may be asked to end while they wait for others.

    SQLite itself waits in C, where nothing ends it, not even Ctrl-C. Made for ``timeout=AGAIN``: it
    is asked again and again then, for ``LONGEST_WAIT`` seconds in all.
    """
    import sqlite3

    class PatientConnection(sqlite3.Connection):
        """Waits for other processes in Python."""

        def execute(self, *given: Any) -> sqlite3.Cursor:
            """As SQLite's. Raises: also KeyboardInterrupt, for who waits and is asked to end."""
            end = None
            while True:
                try:
                    return super().execute(*given)
                except sqlite3.OperationalError as error:
                    now = time.monotonic()
                    end = now + LONGEST_WAIT if end is None else end
                    is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                    if not is_busy or now > end:
                        raise
                check()
                time.sleep(MOMENT)

        def __exit__(self, kind: Any, *rest: Any) -> Any:
            if kind is None and self.in_transaction:  # SQLite's own would undo what has to wait
                self.execute("COMMIT")
            return super().__exit__(kind, *rest)

    return PatientConnection


class FileTrouble(NamedTuple):
    """The trouble with a file that cannot be read or written now, and what would work."""

    what: str
    hint: str


FULL = FileTrouble("the disk is full", "make room on its disk")
HELD = FileTrouble("another process has held it for too long", "ask again when that one has ended")
_YOURS = "the file and its folder have to be there, and yours to read and write"
DENIED = FileTrouble("permission is denied", _YOURS)
READ_ONLY = FileTrouble("it may only be read", _YOURS)
GONE = FileTrouble("it, or its folder, is not there", _YOURS)
UNOPENED = FileTrouble("it cannot be opened", f"{_YOURS}, and not too many files be open")
MANY_OPEN = FileTrouble("this process has too many files open", "close some, or raise its limit")
FAILING = FileTrouble("the disk fails, or has no room", "check the disk and its free space")
_BY_NUMBER = {
    FULL: (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG),
    DENIED: (errno.EACCES, errno.EPERM),
    READ_ONLY: (errno.EROFS,),
    GONE: (errno.ENOENT, errno.ENOTDIR),
    MANY_OPEN: (errno.EMFILE, errno.ENFILE),
}
_BY_NAME = {
    FULL: ("FULL",),
    HELD: ("BUSY", "LOCKED", "PROTOCOL"),
    DENIED: ("PERM", "AUTH"),
    READ_ONLY: ("READONLY",),
    UNOPENED: ("CANTOPEN",),
    FAILING: ("IOERR",),
}


def file_trouble(error: Exception) -> FileTrouble | None:
    """Return the trouble of the operating system or SQLite; None where it is what is in a file.

    >>> file_trouble(OSError(errno.ENOSPC, "")).what, file_trouble(ValueError())
    ('the disk is full', None)
    """
    if isinstance(error, OSError):
        known = (each for each, numbers in _BY_NUMBER.items() if error.errno in numbers)
        return next(known, FAILING if error.errno == errno.EIO else UNOPENED)
    name = getattr(error, "sqlite_errorname", "").split("_")[1:2]
    return next((each for each, names in _BY_NAME.items() if name and name[0] in names), None)


def create(path: Path) -> int:
    """Create a file where there is none, and return its descriptor. Raises: OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, OWNER)


def is_read_only(path: Path, *beside: Path) -> bool:
    """Say whether a file cannot be changed here, or what is written beside it cannot be made.

    Nothing is opened: closing a file would end the locks that another thread has on it.
    """
    missing = not all(each.exists() for each in beside)
    closed = missing and not _may_write(path.parent)
    return path.exists() and (closed or not _may_write(path))


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def keep_private(path: Path) -> None:
    """Make an empty file for SQLite unless there is one; then others lose their rights to it.

    A new file has its name when it is closed: its closing would end the locks that another thread
    has on it by then. Raises: OSError.
    """
    if not path.exists():
        with suppress(FileExistsError), new_file(path):
            pass
    tighten_database(path)


def journal_of(path: Path) -> Path:
    """Return the path of SQLite's journal of a file; it stays there between changes."""
    return Path(f"{path}-journal")


def copy_database(path: Path, copy: Path) -> None:
    """Copy a file of SQLite to a new one as it stands between two changes, whoever writes to it.

    Raises: OSError, FileExistsError, sqlite3.Error.
    """
    import sqlite3

    os.close(create(copy))
    with (
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    sync_directory(copy.parent)


def tighten_database(path: Path) -> None:
    """Take the rights of others from a file of SQLite and its journal. Raises: OSError.

    A new journal gets the rights of the file.
    """
    tighten(path)
    journal = journal_of(path)
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.lstat(journal).st_mode):
            tighten(journal)


def tighten(path: Path) -> None:
    """Take the rights of others from a file, where it is one's own to do so. Raises: OSError."""
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) and mode & 0o077:
        try:
            os.chmod(path, stat.S_IMODE(mode) & 0o700)
        except PermissionError:  # another user's: theirs to tighten
            return


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name at the end if the name is free then; else nothing stays.

    Raises: FileExistsError; OSError.
    """
    handle, name = tempfile.mkstemp(".part", f".{path.name[:64]}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.link(name, path)
    finally:
        os.unlink(name)


def open_output(path: Path, force: bool) -> BinaryIO:
    """Open what a user wants written: a new file; with ``force`` one that is there; a device.

    Raises: FileExistsError; OSError.
    """
    if not force and (path.is_char_device() or path.is_fifo()):
        return path.open("wb")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL) | _SAFE
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def make_folder(path: Path) -> None:
    """Make a folder and all that it lies in, each for its owner alone where it is new.

    Raises: OSError.
    """
    if path.is_dir():
        return
    for folder in (*reversed(path.parents), path):
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:  # said of a file: whoever makes a file would take it for that one
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None


def read_regular(path: Path, most: int | None = None, *, through_links: bool = False) -> bytes:
    """Read a regular file, never waiting for a writer, and through a link only where it may be.

    Args:
        path: a FIFO or device is refused, and never waited for.
        most: bytes of the largest file that is read, None for any.
        through_links: True where whoever made the link may name the file.

    Raises: OSError; ValueError for anything but a file of at most ``most`` bytes, if given.
    """
    how = os.O_RDONLY | _SAFE | getattr(os, "O_NONBLOCK", 0)
    if through_links:
        how &= ~getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, how)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a file")
        if most is not None and found.st_size > most:
            raise ValueError("it is too large")
        return file.read(-1 if most is None else most)


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "lustre"}
    | {"glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs"}
)
_held: set[int] = set()


def _remove_all(folder: Path) -> None:
    rmtree(folder, ignore_errors=True)


class ScratchFolder:
    """A folder for its owner alone that goes with the process, however that ends.

    A file beside it is locked for as long as it is there. Nobody holds that of a process that was
    killed, so whoever makes a folder of the same name and place next removes what is left of it.

    Args:
        prefix: how its name begins.
        within: the folder that it is made in; that for temporary files by default.
        remove: removes a folder and all that uses it.

    Raises: OSError.
    """

    __slots__ = ("_lock", "_process", "_remove", "path")

    def __init__(
        self,
        prefix: str,
        within: str | None = None,
        remove: Callable[[Path], object] = _remove_all,
    ) -> None:
        place, self._process, self._remove = within or tempfile.gettempdir(), os.getpid(), remove
        for old in Path(place).glob(f"{prefix}*{_LOCK}"):
            _remove_left(old, remove)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place)).resolve()
        new = self.path.with_name(self.path.name + ".new")
        self._lock = create(new)
        _held.add(self._lock)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(self.path.with_name(self.path.name + _LOCK))  # now others may look at it
        atexit.register(self.remove)

    def remove(self) -> None:
        """Remove it; a child of a fork leaves it to its parent."""
        atexit.unregister(self.remove)
        if self._process != os.getpid() or self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        self._remove(self.path)
        with suppress(OSError):
            self.path.with_name(self.path.name + _LOCK).unlink()
        _held.discard(lock)
        os.close(lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


_LOCK = ".lock"


def _remove_left(lock: Path, remove: Callable[[Path], object]) -> None:
    """Remove a folder whose process has ended."""
    with suppress(OSError):
        held = os.open(lock, os.O_RDWR | _SAFE)
        try:
            if os.fstat(held).st_uid == os.getuid():
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(lock.with_name(lock.name.removesuffix(_LOCK)))
                lock.unlink()
        finally:
            os.close(held)


@contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Hold the lock file at ``path`` and yield its descriptor; others, threads too, queue.

    The kernel gives it up when the process dies. Raises: OSError.
    """
    fd, holder = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, OWNER), os.getpid()
    _held.add(fd)
    try:
        with suppress(FileNotFoundError):  # whoever had it may have removed it
            tighten(path)
        if not _try_lock(fd):
            with AllowInterrupts():  # how long another process or thread takes is not known
                _wait_for_lock(fd)
        try:
            yield fd
        finally:
            if os.getpid() == holder:
                _unlock(fd)
    finally:
        if os.getpid() == holder:  # a child does not have it, but may have another of that number
            _held.discard(fd)
            os.close(fd)


if sys.platform == "win32":

    def _try_lock(fd: int) -> bool:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _wait_for_lock(fd: int) -> None:
        """Ask again and again: Windows gives up by itself after ten seconds."""
        retry_until(lambda: _try_lock(fd))

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    def sync_directory(path: Path) -> None:
        """Do nothing: Windows writes names with the file."""

    def _sync(fd: int) -> None:
        os.fsync(fd)
else:

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait_for_lock(fd: int) -> None:
        """Queue in the kernel where a signal ends that; a thread that is asked to end looks."""
        if is_cancellable():
            retry_until(lambda: _try_lock(fd))
        else:
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
            os.fdatasync(fd)  # the times of a file may be of before
        else:
            fcntl.fcntl(fd, full)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file durably, so that a crash leaves the old content or the new. Raises: OSError."""
    replace_files({path: content})


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Write files as ``replace_file`` does, where many are in one folder. Raises: OSError."""
    if len(contents) < MANY:
        for path, content in contents.items():
            _replace(path, content)
    else:
        from concurrent.futures import ThreadPoolExecutor  # 3 ms, and rarely of use

        with ThreadPoolExecutor(MANY) as pool:
            list(pool.map(_replace, contents.keys(), contents.values()))
    for folder in {path.parent for path in contents}:
        sync_directory(folder)


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)  # of a crash
    _write(create(fresh), content)
    os.replace(fresh, path)


def overwrite(path: Path, at: int, content: bytes) -> None:
    """Write bytes durably where a file has others; a crash leaves any of both. Raises: OSError.

    Args:
        path: a file that exists; its length changes only if it is written beyond its end.
        at: bytes from the beginning of the file.
        content: becomes durable as one write; the rest stays.
    """
    fd = os.open(path, os.O_RDWR | _SAFE)
    os.lseek(fd, at, os.SEEK_SET)
    _write(fd, content)


def _write(fd: int, content: bytes) -> None:
    """Write to a file that is open, durably, and close it."""
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        _sync(fd)
    finally:
        os.close(fd)


def load_arrays(file: BinaryIO) -> dict[str, NDArray[Any]]:
    """Return the arrays that numpy stored in a file, of any shape, by name; one thread at a time.

    numpy reads their headers with ``ast``, of which Python 3.11 counts the depth for all threads
    together: of two at once one fails with SystemError. Raises: as ``numpy.load``.
    """
    import numpy as np

    with _LOADING, np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def real_paths(paths: Iterable[str]) -> list[str]:
    """Return ``os.path.realpath`` of each path; folders that many are in are looked up once."""
    folders: dict[str, str] = {}
    found = []
    for path in paths:
        folder, name = os.path.split(path)
        if name in ("", ".", "..") or os.name == "nt" or os.path.islink(path):
            found.append(os.path.realpath(path))
            continue
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        found.append(os.path.join(folders[folder], name))
    return found


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
