"""Objects in stores: found by name, and copied whole into files that are read as any other.

A source in a store is a source of files whose opener is another: what a format is, which rows
count and what a value means is decided of the copy, by the code that reads files. So an object
cannot change while it is read, and everything that a network can do to a reader happens before.

Within :func:`one_listing`, all who ask what a store holds are told the same, and it is asked once.

Guarantee: an object is known by address, size and time of writing, and never by an ETag, which is
made of its bytes. No word of a store is passed on: it may hold a value or a credential.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from dpsql.files import ScratchFolder
from dpsql.forks import fresh, in_child
from dpsql.interrupts import check
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.records import dataclass

__all__ = [
    *("Copy", "StoredObject", "copy_objects", "find_objects", "is_stored", "list_folder"),
    "one_listing",
]

MOST = 100_000
"""Objects below a folder that are listed, at most."""
CHUNK = 1 << 20
"""Bytes that are copied at once, at least."""
SILENT = 60.0
"""Seconds for which a store may say nothing."""
LONGEST = "86400s"
"""The longest time that one object may take."""
TRIES = 3
"""Times that a request which has failed is made again."""
NEVER = dt.datetime.fromtimestamp(0, dt.UTC)
"""The time of writing of an object whose store tells none."""

NOTHING = (
    "no such object, or no such bucket, is in the store",
    "check the address, region and endpoint; a pattern has * within names and ** for folders",
)
REFUSED = (
    "the store refuses: credentials are missing, wrong or expired, or may not read this",
    "credentials are taken from the environment, as the command lines of the stores take them: "
    "AWS_..., GOOGLE_... or AZURE_STORAGE_...",
)
UNREACHED = (
    "the store cannot be reached, or has failed",
    "check the network and the endpoint in the environment, and ask again",
)
CUT_OFF = ("an object ended before all of it had come", "ask again; else write it again")
ALTERED = ("an object was written again while it was copied", "ask again")
UNDATED = (
    "the server does not say when the file was written, so that no version of it is known",
    'state one, as source = { file = "https://...", version = "2026-11" }',
)
MISSING = (
    "objects in stores are read by the package obstore, which is missing",
    "pip install 'dpsql[stores]'",
)
NO_ROOM = "let TMPDIR name a folder on a disk with room"
LOCAL = ("sqlite", "duckdb")
"""Kinds of files that are read where they can be locked."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a store: its address, its bytes, and when it was written, empty if unknown."""

    address: str
    size: int
    written: str


class Copy:
    """A file with the bytes of an object, there for as long as this is held."""

    def __init__(self, path: str) -> None:
        self.path = path
        weakref.finalize(self, _remove, path, os.getpid()).atexit = False


def _remove(path: str, process: int) -> None:
    if process == os.getpid():  # a child of a fork shares the files
        with suppress(OSError):
            os.unlink(path)


def find_objects(source: str) -> tuple[StoredObject, ...]:
    """Return the objects that an address or a pattern names, sorted by address.

    Raises: Unreadable.
    """
    root, key = _parts(source)
    if "*" not in key:
        found = _once((root, key), lambda: _asked(root, lambda store, api: api.head(store, key)))
        return (_object(root, found),)
    folder = key[: key.index("*")].rpartition("/")[0]
    pattern = re.compile(_pattern(key))
    named = [each for each in _listed(root, folder) if pattern.fullmatch(each["path"])]
    if not named:
        raise Unreadable(*NOTHING)
    return tuple(sorted((_object(root, each) for each in named), key=lambda each: each.address))


def list_folder(address: str) -> dict[str, StoredObject]:
    """Return all objects below a folder, by their names within it. Raises: Unreadable."""
    root, key = _parts(address)
    folder = key.strip("/")
    found = {each["path"]: _object(root, each) for each in _listed(root, folder)}
    skip = len(folder) + bool(folder)
    return {path[skip:]: each for path, each in sorted(found.items())}


def copy_objects(objects: Sequence[StoredObject], is_stated: bool = True) -> tuple[Copy, ...]:
    """Return copies of objects; those of objects that are as they were are there already.

    Args:
        objects: what is copied, as it was found.
        is_stated: the version of what is read is stated elsewhere.

    Raises: Unreadable; OSError where there is no room.
    """
    if not is_stated and any(not each.written for each in objects):
        raise Unreadable(*UNDATED)
    with _alone():
        lacking = [each for each in objects if _known(each) is None]
        _take_room(lacking)
        for each in lacking:
            _copies[each.address] = each, _copied(each)
        return tuple(_copies[each.address][1] for each in objects)


_copies: dict[str, tuple[StoredObject, Copy]] = {}
_copying = fresh(threading.Lock())
_root: list[ScratchFolder] = []


@contextmanager
def _alone() -> Iterator[None]:
    """Copy while nobody else does, so that each object is copied once."""
    while not _copying.acquire(timeout=WAIT):
        check()
    try:
        yield
    finally:
        _copying.release()


def _known(wanted: StoredObject) -> Copy | None:
    found, copy = _copies.get(wanted.address, (None, None))
    return copy if found == wanted and copy is not None and os.path.exists(copy.path) else None


def _take_room(objects: Sequence[StoredObject]) -> None:
    """Refuse before the first byte what a disk has no room for. Raises: Unreadable."""
    wanted, folder = sum(each.size for each in objects), tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise Unreadable(f"{folder} has no room for its objects", NO_ROOM)  # sizes follow the rows


def _copied(wanted: StoredObject) -> Copy:
    """Copy one object. Raises: Unreadable, OSError."""
    root, key = _parts(wanted.address)
    path = _new_path(key)
    copy = Copy(path)
    found = _asked(root, lambda store, api: api.get(store, key))
    if _object(root, found.meta) != wanted:
        raise Unreadable(*ALTERED)
    stream, size = iter(found.stream(min_chunk_size=CHUNK)), 0
    # New, for its owner alone: nothing that others have put there is followed.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while (piece := _waited(lambda: _next(stream, CUT_OFF))) is not None:
            size += len(piece)
            file.write(piece)
    if size != wanted.size:
        raise Unreadable(*CUT_OFF)
    return copy


def _next(stream: Iterator[Any], cut_off: tuple[str, str] = UNREACHED) -> Any:
    """The next piece of what a store tells, None at the end. Raises: Unreadable."""
    try:
        return next(stream, None)
    except Exception as error:
        told = _told(error)
    raise Unreadable(*(cut_off if told == UNREACHED else told))


def _new_path(key: str) -> str:
    """Return the path of a new file, which ends in the name of an object and its folders."""
    parts = key.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Unreadable(*NOTHING)
    path = os.path.join(tempfile.mkdtemp(dir=_folder()), *parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _folder() -> Path:
    """Return the folder of this process for copies, which nobody else may open."""
    if not (_root and _root[0].path.is_dir()):
        _root[:] = [ScratchFolder("dpsql-objects-")]
    return _root[0].path


def _forget() -> None:
    """Leave the copies to the process before: a child makes its own."""
    _copies.clear()
    _root.clear()


in_child(_forget)


def _parts(address: str) -> tuple[str, str]:
    """Return the address of a bucket or server, and the key of an object in it.

    >>> _parts("s3://bucket/a/b.csv"), _parts("https://data.example/a%20b.csv")
    (('s3://bucket', 'a/b.csv'), ('https://data.example', 'a b.csv'))
    """
    scheme, _, rest = address.partition("://")
    host, _, key = rest.partition("/")
    return f"{scheme}://{host}", unquote(key) if scheme == "https" else key


def _object(root: str, meta: Any) -> StoredObject:
    is_web = root.startswith("https://")
    written = meta["last_modified"]
    key = _quoted(meta["path"]) if is_web else meta["path"]
    is_told = written is not None and written > NEVER
    return StoredObject(f"{root}/{key}", meta["size"], written.isoformat() if is_told else "")


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def _pattern(key: str) -> str:
    """Return the regular expression of a pattern: * within a name, ** for any folders.

    >>> _pattern("a/**/b*.csv")
    'a/(?:[^/]+/)*b[^/]*\\\\.csv'
    """
    *folders, last = key.split("/")
    found = ["(?:[^/]+/)*" if each == "**" else f"{_of_name(each)}/" for each in folders]
    return "".join(found) + _of_name(last)


def _of_name(name: str) -> str:
    return re.sub(r"(?:\\\*)+", "[^/]*", re.escape(name))


def _listed(root: str, folder: str) -> list[Any]:
    """Return the descriptions of all objects below a folder. Raises: Unreadable."""
    return _once((root, folder, ""), lambda: _list(root, folder))


def _list(root: str, folder: str) -> list[Any]:
    if urlsplit(root).scheme == "https":
        raise Unreadable("a web server lists no files", "name one file")
    found: list[Any] = []
    stream = _asked(root, lambda store, api: iter(api.list(store, folder or None)))
    while (some := _waited(lambda: _next(stream))) is not None:
        found += some
        if len(found) > MOST:
            raise Unreadable(f"more than {MOST:,} objects are there", "name a folder with fewer")
    return found


_told_once: ContextVar[dict[Hashable, Any] | None] = ContextVar("told_once", default=None)


@contextmanager
def one_listing() -> Iterator[None]:
    """Ask no store twice for the same, until the end: objects are as they are when it is asked."""
    if _told_once.get() is not None:
        yield
        return
    token = _told_once.set({})
    try:
        yield
    finally:
        _told_once.reset(token)


def _once(key: Hashable, ask: Callable[[], T]) -> T:
    """Return what a store tells, from before where it was asked within :func:`one_listing`."""
    known = _told_once.get()
    if known is None:
        return ask()
    if key not in known:
        known[key] = ask()
    found: T = known[key]
    return found


def _asked(root: str, ask: Callable[[Any, Any], T]) -> T:
    """Ask a store, by credentials of the environment. Raises: Unreadable."""
    if find_spec("obstore") is None:  # asks without importing it
        raise Unreadable(*MISSING)

    def work() -> T:
        import obstore
        from obstore.store import HTTPStore, from_url

        client: Any = {"timeout": LONGEST, "connect_timeout": "10s", "allow_http": _is_plain(root)}
        again: Any = {"max_retries": TRIES, "retry_timeout": dt.timedelta(seconds=SILENT / 2)}
        try:
            opener: Any = HTTPStore.from_url if root.startswith("https://") else from_url
            return ask(opener(root, client_options=client, retry_config=again), obstore)
        except Exception as error:
            told = _told(error)
        raise Unreadable(*told)

    return _waited(work)


def _is_plain(root: str) -> bool:
    """True if the environment names an endpoint without encryption for a store."""
    scheme = urlsplit(root).scheme
    if scheme == "az" and os.environ.get("AZURE_STORAGE_USE_EMULATOR"):
        return True
    return any("http://" in os.environ.get(each, "") for each in ENDPOINTS.get(scheme, ()))


ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BASE_URL"),
}
"""Variables of the environment that hold the address of a store."""


def _told(error: Exception) -> tuple[str, str]:
    """Return what is told of an error of a store: one of few constant texts."""
    said = str(error)
    if isinstance(error, PermissionError) or REFUSALS.search(said):
        return REFUSED
    if isinstance(error, FileNotFoundError) or ABSENCES.search(said):
        return NOTHING
    return UNREACHED


ABSENCES = re.compile(r"status code: 404\b|NoSuchBucket|ContainerNotFound|configured region")
REFUSALS = re.compile(
    r"status code: (?:400|401|403)\b|/latest/api/token|/latest/meta-data|token request|"
    r"169\.254\.|must be specified|MissingAccount|ExpiredToken|credential"
)
"""Words of stores, and of their driver, where a bucket is missing, or credentials are."""


def _waited(work: Callable[[], T]) -> T:
    """Do in another thread what cannot be interrupted, and wait as long as stores may be silent.

    Raises: what ``work`` raises; Unreadable; an interrupt.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    for _ in range(int(SILENT / WAIT)):
        thread.join(WAIT)
        check()
        if not thread.is_alive():
            break
    if failed:
        raise failed[0]
    if not found:
        raise Unreadable(*UNREACHED)
    return found[0]


WAIT = 0.1
"""Seconds after which a wait looks whether it is interrupted."""
