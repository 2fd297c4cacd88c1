"""The store of what was published, for later processes, which answer from there again, free.

Releases and clipped sums are in one SQLite file beside the catalog, models in another. There is one
way to write them, to read them and to tell damage. All is stored before anything is returned.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from dpsql.answer.change_counter import ChangeCounter, change_counter
from dpsql.answer.clipped import UNKNOWN, ClippedSums, decode_clipped, encode_clipped
from dpsql.answer.codec import Release, decode, encode
from dpsql.answer.discovered import Discovered, decode_found, encode_found
from dpsql.errors import DataError, LedgerError, OperationalError
from dpsql.files import (
    FAILING,
    copy_database,
    file_trouble,
    is_read_only,
    journal_of,
    keep_private,
    patient_connections,
)
from dpsql.forks import awaited, fresh
from dpsql.interrupts import AGAIN, InterruptibleLock
from dpsql.records import dataclass, replace

if TYPE_CHECKING:
    from dpsql.answer.synthetic_tables import Synthetic
    from dpsql.plan.plan import PartFacts

JOURNAL = 1 << 16
"""Bytes that a journal keeps when nothing is written."""

TABLE, TEMPORARY = "CREATE TABLE", "CREATE TEMP TABLE"
"""Tables of a file begin so, and those that a reader makes where a file lacks them."""

LATEST = 64
"""Releases that are looked through, newest first, for one that determines a request."""

DECODED = 1 << 24
"""Bytes of releases that are kept as what they hold too, which takes some eight times as many:
thousands of small ones, so that those of several tables all are, and a few of the largest."""

INDEXED = 10_000
"""Releases of which it is kept what they are about."""

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class File:
    """One SQLite file of a store: its tables, what they hold, and what is lost without it.

    ``tables`` are statements that create them and their indexes, by their names; ``lock`` is held
    while SQLite has the file open, and a fork waits for it.

    Raises: LedgerError (E_LEDGER_TAMPERED) for a damaged file, (E_LEDGER_IO) when it cannot be
    written.
    """

    path: Path
    tables: Mapping[str, str]
    content: str
    lost: str
    counter: ChangeCounter
    lock: Lock

    @contextmanager
    def opened(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """A connection and one transaction, which an error undoes; both always end.

        With ``BEGIN`` nothing is written: tables that an older file lacks are empty.
        """
        reads = begin == "BEGIN"
        closed = reads and is_read_only(self.path, journal_of(self.path))
        if not closed:
            keep_private(self.path)
        name = self.path.absolute().as_uri()
        with (
            InterruptibleLock(self.lock),
            closing(
                sqlite3.connect(name, uri=True, timeout=AGAIN, factory=patient_connections())
            ) as db,
            db,
        ):
            if not closed:
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA journal_mode = PERSIST")  # no name changes with what is written
                db.execute(f"PRAGMA journal_size_limit = {JOURNAL}")
            found = db.execute("SELECT name FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
            missing = self.tables.keys() - {name for (name,) in found}
            if missing:
                made = (self.tables[name] for name in sorted(missing))
                here = (e.replace(TABLE, TEMPORARY, 1) for e in made if e.startswith(TABLE))
                for statement in here if reads else self.tables.values():
                    db.execute(statement)
            db.execute(begin)
            yield db

    def read(self, load: Callable[[sqlite3.Connection], S]) -> S | None:
        """Return the result of ``load``; None where there is no file."""
        try:
            if not self.path.exists():
                return None
            with self.opened() as db:
                return load(db)
        except (
            *(sqlite3.Error, OSError),
            *(ValueError, KeyError, TypeError, zipfile.BadZipFile),
        ) as error:
            trouble = file_trouble(error)
            if trouble is not None:
                what = f"the store of {self.content} {self.path.name} cannot be read"
                raise LedgerError(
                    "E_LEDGER_IO", f"{what}: {trouble.what}", hint=trouble.hint
                ) from None
            raise LedgerError(
                "E_LEDGER_TAMPERED",
                f"the store of {self.content} {self.path.name} is damaged",
                hint=f"restore it from a backup, or remove it: {self.lost}",
            ) from None

    def read_with_count(self, load: Callable[[sqlite3.Connection], S]) -> tuple[S | None, bytes]:
        """Return the result of ``load``, and the count of changes at which it was found.

        Outside of a transaction the count may be that of a change which is undone: the next one
        would have the same.
        """

        def both(db: sqlite3.Connection) -> tuple[S, bytes]:
            return load(db), self.counter.read()

        return self.read(both) or (None, b"")

    def write(self, store: Callable[[sqlite3.Connection], object], problem: str) -> None:
        """Let ``store`` write durably, all or nothing; ``problem`` is told where it cannot.

        Raises: also IntegrityError of SQLite, for a key that is taken and may not be replaced.
        """
        try:
            with self.opened("BEGIN IMMEDIATE") as db:
                store(db)
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, OSError) as error:
            trouble = file_trouble(error) or FAILING
            raise LedgerError(
                "E_LEDGER_IO",
                f"{problem.format(self.path.name)}: {trouble.what}",
                hint=trouble.hint,
            ) from None


class StoreTable(Generic[T]):
    """The published objects of one kind, by key: a table of a file, each body with a digest."""

    what = "release"
    key = "request"
    remembered = 0
    """Bytes of bodies that are kept decoded."""

    def __init__(
        self, file: File, table: str, encode: Callable[[T], bytes], decode: Callable[[bytes], T]
    ) -> None:
        self.file = file
        self.table = table
        self._encode, self._decode = encode, decode
        self._decoded: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._bytes = 0
        self._lock = fresh(Lock())

    def find(self, key: str) -> T | None:
        """Return the object stored under a key; None where there is none."""
        return self.file.read(lambda db: self._load(db, key))

    def all(self) -> dict[str, T]:
        """Return the stored objects, by key."""
        return self.all_with_count()[0]

    def all_with_count(self) -> tuple[dict[str, T], bytes]:
        """Return the stored objects, by key, and the file's count of changes."""

        def load(db: sqlite3.Connection) -> dict[str, T]:
            rows = db.execute(f"SELECT {self.key}, body, digest FROM {self.table}").fetchall()
            return {key: self._opened(key, bytes(body), digest) for key, body, digest in rows}

        found, count = self.file.read_with_count(load)
        return found or {}, count

    def add(self, key: str, thing: T) -> T:
        """Store durably what was paid for, and return it; the newest of a key replaces others."""
        return self._add(key, thing, "INSERT OR REPLACE")

    def _add(self, key: str, thing: T, insert: str) -> T:
        body = self._encode(thing)
        digest = _digest(key, body)
        row = (key, body, digest)

        def store(db: sqlite3.Connection) -> None:
            db.execute(f"{insert} INTO {self.table} VALUES (?, ?, ?)", row)
            self._note(db, key, thing)

        self.file.write(store, f"the {self.what} cannot be stored in {{}}; the charge stays")
        with self._lock:
            self._remember(digest, thing, len(body))
        return thing

    def _note(self, db: sqlite3.Connection, key: str, thing: T) -> None:
        """Write what else has to be known of it."""

    def _load(self, db: sqlite3.Connection, key: str) -> T | None:
        sql = f"SELECT body, digest FROM {self.table} WHERE {self.key} = ?"
        row = db.execute(sql, (key,)).fetchone()
        return None if row is None else self._opened(key, bytes(row[0]), row[1])

    def _opened(self, key: str, body: bytes, digest: str) -> T:
        if _digest(key, body) != digest:
            raise ValueError("digest")
        with InterruptibleLock(
            self._lock
        ):  # the sessions of a site share what is decoded, and do it once
            known = self._decoded.get(digest)
            if known is None:
                thing = self._decode(body)
                self._remember(digest, thing, len(body))
                return thing
            self._decoded.move_to_end(digest)
            return known[0]

    def _remember(self, digest: str, thing: T, size: int) -> None:
        """Keep what a body of some bytes holds; what was not asked for the longest goes."""
        if self.remembered and digest not in self._decoded:
            self._decoded[digest] = thing, size
            self._bytes += size
            while self._bytes > self.remembered and len(self._decoded) > 1:
                self._bytes -= self._decoded.popitem(last=False)[1][1]


Named: TypeAlias = "dict[str, Release]"
"""Releases by their names."""


class StoredReleases(NamedTuple):
    """The release of an identical request; else that which answered one last, and the newest.

    ``answered`` are the newest that have answered other requests; ``changes`` is how often the file
    was changed by then.
    """

    own: Release | None
    linked: Named
    latest: Named
    changes: bytes = b""
    answered: frozenset[str] = frozenset()


class Releases(StoreTable[Release]):
    """Releases, by what they measured and what they have answered too; the last are kept decoded.

    A release holds the noisy integers, the strategy that measured them and the noise scales: enough
    to reconstruct every answer without data, budget or planning.
    """

    remembered = DECODED
    indexed = INDEXED

    def __init__(
        self,
        file: File,
        table: str,
        encode: Callable[[Release], bytes],
        decode: Callable[[bytes], Release],
    ) -> None:
        super().__init__(file, table, encode, decode)
        self._kinds: OrderedDict[tuple[str, int], tuple[PartFacts, ...]] = OrderedDict()
        self._seen: dict[str, tuple[str, str]] = {}
        self._noted: dict[str, tuple[str, str]] = {}

    def see(self, name: str, versions: tuple[str, str]) -> None:
        """Know the digests of the version of some tables, which the next release is stored with.

        ``name`` is that of the tables together, as they are declared.
        """
        self._seen[name] = versions

    def last_seen(self, name: str) -> tuple[str, str] | None:
        """The digests of the last version that was seen of some tables, None where none is known.

        It tells which releases are of rows that cannot be read at present.
        """
        sql = "SELECT now, earlier FROM versions WHERE tables = ?"

        def load(db: sqlite3.Connection) -> tuple[str, str] | None:
            row = db.execute(sql, (name,)).fetchone()
            return None if row is None else (str(row[0]), str(row[1]))

        return self._seen.get(name) or self.file.read(load)

    def candidates(
        self,
        names: Sequence[str],
        scopes: Sequence[Sequence[str]],
        may: Callable[[Sequence[PartFacts]], bool] = bool,
        *,
        own: bool = True,
    ) -> StoredReleases:
        """Find releases that may answer a request, the newest first.

        The newest measured all of the scopes of a kind. Those that are known by now to be about
        something else are neither read nor decoded.

        Args:
            names: those that the request has.
            scopes: those of its tables, of each kind that was ever stored.
            may: says of the kinds of all parts of a release whether it may answer.
            own: without it releases of others alone.
        """

        def load(db: sqlite3.Connection) -> StoredReleases:
            for name in names if own else ():
                same = self._load(db, name)
                if same is not None:
                    return StoredReleases(same, {}, {})
            linked = db.execute(
                f"SELECT release FROM implied WHERE request IN ({_marks(names)})", names
            )
            newest = itertools.chain.from_iterable(
                db.execute(
                    "SELECT request, seq FROM measured WHERE scope = ? "
                    "ORDER BY seq DESC, request LIMIT ?",
                    (each[0], LATEST),
                )
                for each in scopes
            )
            some = itertools.islice(newest, LATEST)  # those of a kind are newer than the next
            known = [(name, self._kinds.get((name, seq))) for name, seq in some]
            others_may = [(name,) for name, kinds in known if kinds is None or may(kinds)]
            found = [self._named(db, rows) for rows in (linked.fetchall(), others_may)]
            latest = {
                name: each
                for name, each in found[1].items()
                if any({*wanted} <= {*each.scopes} for wanted in scopes)
            }
            asked = f"SELECT DISTINCT release FROM implied WHERE release IN ({_marks([*latest])})"
            others = db.execute(asked, [*latest]) if latest else ()
            answered = frozenset(name for (name,) in others)
            return StoredReleases(None, found[0], latest, answered=answered)

        stored, count = self.file.read_with_count(load)
        return (stored or StoredReleases(None, {}, {}))._replace(changes=count)

    def _named(self, db: sqlite3.Connection, rows: Iterable[tuple[str]]) -> Named:
        found = {name: self._load(db, name) for (name,) in rows}
        return {name: release for name, release in found.items() if release is not None}

    def paid_over(self, scope: str) -> tuple[int, ...]:
        """The ledger entries that paid for what was measured in a scope."""

        def load(db: sqlite3.Connection) -> list[tuple[int]]:
            return db.execute("SELECT seq FROM measured WHERE scope = ?", (scope,)).fetchall()

        return tuple(seq for (seq,) in self.file.read(load) or ())

    def link(self, request: str, release: str) -> None:
        """Note which release answered a request: it is the first to be asked again."""
        row = (request, release)
        if is_read_only(self.file.path, journal_of(self.file.path)):
            return  # it is found again, by looking
        self.file.write(
            lambda db: db.execute("INSERT OR REPLACE INTO implied VALUES (?, ?)", row),
            "nothing can be stored in {}; nothing was charged",
        )

    def _load(self, db: sqlite3.Connection, key: str) -> Release | None:
        try:
            found = super()._load(db, key)
        except (DataError, OperationalError):
            return None  # while its noise law is not installed it answers nothing
        if found is not None:
            self._index(key, found)
        return found

    def _index(self, key: str, release: Release) -> None:
        """Keep what a release is about; one that takes its name has another entry."""
        with self._lock:
            if (key, release.seq) not in self._kinds:
                self._kinds[key, release.seq] = tuple(part.kind for part in release.plan.parts)
                while len(self._kinds) > self.indexed:
                    self._kinds.popitem(last=False)

    def _note(self, db: sqlite3.Connection, key: str, thing: Release) -> None:
        db.execute("DELETE FROM implied WHERE request = ? OR release = ?", (key, key))
        for scope in thing.scopes:
            place = (scope, key, thing.seq)
            db.execute("INSERT OR REPLACE INTO measured VALUES (?, ?, ?)", place)
        for tables, seen in [*self._seen.items()]:
            if self._noted.get(tables) != seen:
                db.execute("INSERT OR REPLACE INTO versions VALUES (?, ?, ?)", (tables, *seen))
                self._noted[tables] = seen
        self._index(key, thing)

    def add(self, key: str, thing: Release) -> Release:
        """Store durably what was paid for, and return it; the newest of a key replaces others."""
        try:
            return super().add(key, thing)
        except BaseException:
            self._noted.clear()  # nothing was written
            raise


class LearnedModels(StoreTable["Synthetic"]):
    """Models, each under the name of the request that it was learned for."""

    what = "model"


class SyntheticTables(LearnedModels):
    """Models that have a name of their own."""

    key = "name"

    def add(self, key: str, thing: Synthetic) -> Synthetic:
        """Store a synthetic table durably, and return it as stored; its key ends in its name.

        Both get a number where another process took them during the run, which is paid for.
        """
        named, free = thing, key
        for number in itertools.count(2):
            try:
                return self._add(free, named, "INSERT")
            except sqlite3.IntegrityError:
                named, free = replace(thing, name=f"{thing.name}_{number}"), f"{key}_{number}"
        raise AssertionError


class Domains(StoreTable[Discovered]):
    """Domains and bounds that were found, by the head of the entry that paid for each."""

    what = "domain"


class Store:
    """The published results of one catalog, in two files beside it.

    A request has a name, the hash of everything that makes it the same request; what comes of it is
    stored under that. Raises: as ``File``.
    """

    def __init__(self, catalog: Path) -> None:
        answers = _file(
            catalog.with_suffix(".releases"),
            _tables("release", "clipped") | _NOTED,
            "releases",
            "repeated requests are then charged",
        )
        models = _file(
            catalog.with_suffix(".synthetic"),
            _tables("learned", "domain") | _tables("synthetic", key="name"),
            "synthetic tables",
            "the tables, and the domains that were found, are lost then",
        )
        self._files = answers, models
        self.releases = Releases(answers, "release", encode, decode)
        self.clipped = StoreTable[ClippedSums](answers, "clipped", encode_clipped, decode_clipped)
        self.learned = LearnedModels(models, "learned", _encode_model, _decode_model)
        self.tables = SyntheticTables(models, "synthetic", _encode_model, _decode_model)
        self.domains = Domains(models, "domain", encode_found, decode_found)

    def copy(self, folder: Path) -> None:
        """Copy both files to a folder, each as it stands at one moment. Raises: as ``File``."""
        for each in self._files:
            each.read(partial(_copy, each.path, folder))

    def built_on(self, found: Discovered, scope: str) -> tuple[int, ...]:
        """The ledger entries of answers that cannot be given without a domain or bounds.

        ``scope`` names it to releases. Of clipped sums that an earlier version stored it is not
        known; those count that were paid for later. Tables with a name do not need it any more.
        """
        clipped = (
            each.receipt[1]
            for each in self.clipped.all().values()
            if found.told in each.released
            or (each.released == UNKNOWN and each.receipt[1] > found.receipt[1])
        )
        learned = (
            each.receipt[1] for each in self.learned.all().values() if found.head in each.released
        )
        return (*self.releases.paid_over(scope), *clipped, *learned)

    @property
    def paths(self) -> tuple[Path, Path]:
        """The two files."""
        return self.releases.file.path, self.tables.file.path

    def state(self) -> bytes:
        """Return a token that changes when anything is stored."""
        return self.releases.file.counter.read() + b"|" + self.tables.file.counter.read()


def _encode_model(model: Synthetic) -> bytes:
    from dpsql.answer.synthetic_tables import encode_synthetic  # few catalogs have models

    return encode_synthetic(model)


def _decode_model(body: bytes) -> Synthetic:
    from dpsql.answer.synthetic_tables import decode_synthetic  # few catalogs have models

    return decode_synthetic(body)


_NOTED = {
    "measured": """CREATE TABLE IF NOT EXISTS measured (
    scope TEXT, request TEXT, seq INTEGER NOT NULL, PRIMARY KEY (scope, request)
) WITHOUT ROWID""",
    "implied": """CREATE TABLE IF NOT EXISTS implied (
    request TEXT PRIMARY KEY, release TEXT NOT NULL
) WITHOUT ROWID""",
    "versions": """CREATE TABLE IF NOT EXISTS versions (
    tables TEXT PRIMARY KEY, now TEXT NOT NULL, earlier TEXT NOT NULL
) WITHOUT ROWID""",
    "newest": "CREATE INDEX IF NOT EXISTS newest ON measured (scope, seq DESC, request)",
    "answered": "CREATE INDEX IF NOT EXISTS answered ON implied (release)",
}


def _copy(path: Path, folder: Path, db: sqlite3.Connection) -> None:
    """Copy a file whose lock is held, and which SQLite can read."""
    copy_database(path, folder / path.name)


def _file(path: Path, tables: Mapping[str, str], content: str, lost: str) -> File:
    return File(path, tables, content, lost, change_counter(path), awaited(Lock()))


def _tables(*names: str, key: str = "request") -> dict[str, str]:
    columns = f"{key} TEXT PRIMARY KEY, body BLOB NOT NULL, digest TEXT NOT NULL"
    return {
        name: f"CREATE TABLE IF NOT EXISTS {name} (\n    {columns}\n) WITHOUT ROWID"
        for name in names
    }


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _digest(key: str, body: bytes) -> str:
    return hashlib.sha256(key.encode() + body).hexdigest()
