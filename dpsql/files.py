"""Files of dpsql's own: made new, never through a link, for the eyes of their owner alone."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

OWNER = 0o600
"""Rights of every file that dpsql keeps for itself, whatever the umask."""

_SAFE: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def create(path: Path) -> int:
    """Create a file where there is none, and return its descriptor. Raises: OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, OWNER)


def keep_private(path: Path) -> None:
    """Make an empty file unless there is one; then others lose their rights to it.

    SQLite gives its journals the rights of the file. Raises: OSError.
    """
    try:
        os.close(create(path))
    except FileExistsError:
        tighten(path)


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
    for folder in (*reversed(path.parents), path):
        folder.mkdir(mode=0o700, exist_ok=True)


def read_regular(path: Path, most: int) -> bytes:
    """Read a regular file, never through a link, and never waiting for a writer.

    Raises: OSError; ValueError for anything but a file of at most ``most`` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | _SAFE | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            raise ValueError
        return file.read(most)
