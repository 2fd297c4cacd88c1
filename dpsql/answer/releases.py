"""What was already published: what releases determine is answered again, from them, free.

A release holds the noisy integers, the strategy that measured them and the noise scales: enough to
reconstruct every answer without data, budget or planning. It is stored before anything is returned.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dpsql.answer.clipped import ClippedSums, decode_clipped
from dpsql.answer.codec import Release, decode, encode
from dpsql.errors import DataError, LedgerError, OperationalError
from dpsql.files import keep_private

__all__ = ["Release", "Releases"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS release (
    request TEXT PRIMARY KEY, body BLOB NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS measured (
    scope TEXT, request TEXT, seq INTEGER NOT NULL, PRIMARY KEY (scope, request)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS implied (
    request TEXT PRIMARY KEY, release TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clipped (
    request TEXT PRIMARY KEY, body BLOB NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID;
"""

LATEST = 64
"""Releases that are looked through, newest first, for one that determines a request."""

T = TypeVar("T")


class Releases:
    """The releases of one catalog, in one SQLite file.

    A request has a name, the hash of everything that makes it the same request; a release is
    stored under the name of the request it was made for.
    Raises: LedgerError (E_LEDGER_TAMPERED) for a damaged file, (E_LEDGER_IO) when it cannot be
    written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._decoded: dict[str, Release] = {}

    def find(self, request: str) -> Release | None:
        """The release that was made for an identical request."""
        return self._read(lambda db: self._load(db, request))

    def linked(self, request: str) -> tuple[str, Release] | None:
        """The release that an identical request was answered from last, with its name."""

        def load(db: sqlite3.Connection) -> tuple[str, Release] | None:
            sql = "SELECT release FROM implied WHERE request = ?"
            row = db.execute(sql, (request,)).fetchone()
            release = None if row is None else self._load(db, row[0])
            return None if release is None else (row[0], release)

        return self._read(load)

    def latest(self, scopes: Sequence[str]) -> list[tuple[str, Release]]:
        """The newest releases that measured all of these scopes, with their names, newest first."""

        def load(db: sqlite3.Connection) -> list[tuple[str, Release]]:
            rows = db.execute(
                "SELECT request FROM measured WHERE scope = ? ORDER BY seq DESC, request LIMIT ?",
                (scopes[0], LATEST),
            ).fetchall()
            found = [(name, self._load(db, name)) for (name,) in rows]
            return [
                (name, release)
                for name, release in found
                if release is not None and set(scopes) <= set(release.scopes)
            ]

        return self._read(load) or []

    def add(self, request: str, release: Release) -> None:
        """Store a release durably; the newest release of a request replaces an older one."""
        body = encode(release)

        def store(db: sqlite3.Connection) -> None:
            row = (request, body, _digest(request, body))
            db.execute("INSERT OR REPLACE INTO release VALUES (?, ?, ?)", row)
            db.execute("DELETE FROM implied WHERE request = ? OR release = ?", (request, request))
            for scope in release.scopes:
                place = (scope, request, release.seq)
                db.execute("INSERT OR REPLACE INTO measured VALUES (?, ?, ?)", place)

        self._write(store, "the release cannot be stored in {}; the charge stays")

    def link(self, request: str, release: str) -> None:
        """Note which release answered a request: it is the first to be asked again."""
        row = (request, release)
        self._write(
            lambda db: db.execute("INSERT OR REPLACE INTO implied VALUES (?, ?)", row),
            "nothing can be stored in {}; nothing was charged",
        )

    def find_clipped(self, request: str) -> ClippedSums | None:
        """The clipped sums that an identical request was answered with."""

        def load(db: sqlite3.Connection) -> ClippedSums | None:
            sql = "SELECT body, digest FROM clipped WHERE request = ?"
            row = db.execute(sql, (request,)).fetchone()
            if row is not None and _digest(request, bytes(row[0])) != row[1]:
                raise ValueError("digest")
            return None if row is None else decode_clipped(bytes(row[0]))

        return self._read(load)

    def add_clipped(self, request: str, sums: ClippedSums) -> None:
        """Store clipped sums durably; the newest of a request replace older ones."""
        body = sums.encode()
        row = (request, body, _digest(request, body))
        self._write(
            lambda db: db.execute("INSERT OR REPLACE INTO clipped VALUES (?, ?, ?)", row),
            "the release cannot be stored in {}; the charge stays",
        )

    def _load(self, db: sqlite3.Connection, request: str) -> Release | None:
        sql = "SELECT body, digest FROM release WHERE request = ?"
        row = db.execute(sql, (request,)).fetchone()
        if row is None:
            return None
        body, digest = bytes(row[0]), row[1]
        if _digest(request, body) != digest:
            raise ValueError("digest")
        if digest not in self._decoded:
            while len(self._decoded) >= LATEST:
                del self._decoded[next(iter(self._decoded))]
            try:
                self._decoded[digest] = decode(body)
            except (DataError, OperationalError):
                return None  # while its noise law is not installed it answers nothing
        return self._decoded[digest]

    def _read(self, load: Callable[[sqlite3.Connection], T]) -> T | None:
        if not self.path.exists():
            return None
        try:
            with _Store(self.path) as db:
                return load(db)
        except (sqlite3.Error, ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile):
            raise LedgerError(
                "E_LEDGER_TAMPERED",
                f"the store of releases {self.path.name} is damaged",
                hint="restore it from a backup, or remove it: repeated requests are then charged",
            ) from None

    def _write(self, store: Callable[[sqlite3.Connection], object], problem: str) -> None:
        try:
            with _Store(self.path) as db:
                store(db)
        except (sqlite3.Error, OSError):
            raise LedgerError(
                "E_LEDGER_IO",
                problem.format(self.path.name),
                hint="check the disk and the permissions of the folder",
            ) from None


class _Store:
    """A connection that commits on success and always closes."""

    def __init__(self, path: Path) -> None:
        keep_private(path)
        self._db = sqlite3.connect(path, timeout=30.0)

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
            self._db.execute("BEGIN")
        except BaseException:
            self._db.close()
            raise
        return self._db

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._db.commit()
        finally:
            self._db.close()


def _digest(request: str, body: bytes) -> str:
    return hashlib.sha256(request.encode() + body).hexdigest()
