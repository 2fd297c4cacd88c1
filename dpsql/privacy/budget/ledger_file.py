"""The ledger's SQLite file: one exact schema, durable settings, nothing else accepted."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from dpsql import files
from dpsql.errors import LedgerError
from dpsql.files import journal_of, sync_directory
from dpsql.interrupts import AGAIN
from dpsql.privacy.budget.budget_sums import BudgetSums
from dpsql.privacy.budget.hash_chain import COLUMNS, Entry
from dpsql.privacy.budget.refusals import tampered, unwritable

HEADER = 28
"""Bytes at the beginning of a journal that say what it is of."""
APPLICATION = 0x6470736C
"""SQLite's application id: "dpsl" in ASCII."""
VERSION = 1
"""Of the schema; another one is refused, never guessed at."""

_SCHEMA = {
    "entry": """CREATE TABLE entry (
  seq INTEGER PRIMARY KEY CHECK (typeof(seq) = 'integer' AND seq >= 0),
  kind TEXT NOT NULL CHECK (kind IN ('created', 'debit', 'policy', 'adopted')),
  id TEXT NOT NULL UNIQUE,
  at TEXT NOT NULL,
  epsilon_units INTEGER CHECK (epsilon_units IS NULL
    OR (kind = 'debit' AND typeof(epsilon_units) = 'integer' AND epsilon_units > 0)),
  renyi_units INTEGER CHECK ((kind = 'debit') = (renyi_units IS NOT NULL)
    AND (renyi_units IS NULL OR (typeof(renyi_units) = 'integer' AND renyi_units > 0))),
  noise TEXT NOT NULL,
  epsilon TEXT NOT NULL,
  rho TEXT NOT NULL,
  plan_hash TEXT NOT NULL,
  data_version TEXT NOT NULL,
  within TEXT NOT NULL,
  detail TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('reserved', 'released', 'failed')),
  hash TEXT NOT NULL
) STRICT""",
    "budget": """CREATE TABLE budget (
  name TEXT PRIMARY KEY,
  spent_epsilon INTEGER NOT NULL CHECK (typeof(spent_epsilon) = 'integer' AND spent_epsilon >= 0),
  spent_renyi INTEGER NOT NULL CHECK (typeof(spent_renyi) = 'integer' AND spent_renyi >= 0),
  gaussian INTEGER NOT NULL CHECK (gaussian IN (0, 1))
) STRICT""",
    "head": """CREATE TABLE head (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  seq INTEGER NOT NULL CHECK (typeof(seq) = 'integer' AND seq >= 0),
  hash TEXT NOT NULL,
  salt BLOB NOT NULL
) STRICT""",
}
_SETTINGS = {
    "synchronous": 3,
    "fullfsync": 1,
    "trusted_schema": 0,
    "cell_size_check": 1,
    "journal_mode": "persist",
}
"""Settings of SQLite: write through to the disk, run nothing that a file says, check pages.

The journal stays beside the ledger, with a header of zeros when nothing is to be undone: no name
changes with a commit, so that of five waits for the disk none is for a folder that has changed.
"""
_FORMAT = "SELECT * FROM pragma_application_id, pragma_user_version"
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM entry"


@contextmanager
def connect(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """Open the file for one transaction; close it whatever happens.

    Raises: LedgerError E_LEDGER_IO, E_LEDGER_TAMPERED for SQLite's own failures.
    """
    quoted = path.absolute().as_uri() + f"?mode={mode}"
    if mode != "ro":
        files.tighten_database(path)
    try:
        kind = files.patient_connections()
        with closing(
            sqlite3.connect(quoted, uri=True, isolation_level=None, timeout=AGAIN, factory=kind)
        ) as db:
            _settle_settings(db)
            yield db
    except sqlite3.OperationalError as error:
        if is_damage(path, error, mode):
            raise tampered("the file is damaged") from None
        raise unwritable(error) from None
    except sqlite3.IntegrityError:
        raise tampered("it holds a value that cannot be there") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # the latter where a message quotes it
        raise tampered("the file is damaged") from None


def is_damage(path: Path, error: sqlite3.Error, mode: str = "rw") -> bool:
    """Say whether SQLite fails by what is in a file, though it says that it may not, or cannot.

    A flipped bit of the header makes a file that may be written one of a format that is only read.

    Args:
        path: file of the ledger.
        error: raised by SQLite, or by Python's module for a text that is none.
        mode: in which the file was opened, "ro" or "rw": only a file that may be written is damaged
            when it says that it may not.
    """
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_READONLY"):
        return mode != "ro" and not files.is_read_only(path)
    is_no_text = not name and "decode" in str(error)  # said by Python's module, not by SQLite
    return is_no_text or name in ("SQLITE_ERROR", "SQLITE_SCHEMA", "SQLITE_TOOBIG")


def _settle_settings(db: sqlite3.Connection) -> None:
    """Make commits durable, and read back that they are."""
    for name, value in _SETTINGS.items():
        db.execute(f"PRAGMA {name}={value}")
    # SQLite ignores a setting that it does not know, or cannot keep, without an error.
    if any(db.execute(f"PRAGMA {name}").fetchone() != (_SETTINGS[name],) for name in _SETTINGS):
        raise unwritable()


def create(path: Path, first: Entry, budgets: Mapping[str, BudgetSums], salt: bytes) -> None:
    """Write a new file at once and whole.

    Args:
        path: where no file is yet.
        first: entry of creation.
        budgets: sums after it, by name.
        salt: random bytes by which rows of this ledger's tables are put in order.

    Raises: OSError, FileExistsError, LedgerError.
    """
    fresh = path.with_name(path.name + ".new")
    for leftover in (fresh, journal_of(fresh), journal_of(path)):
        leftover.unlink(missing_ok=True)
    os.close(files.create(fresh))
    with connect(fresh) as db:
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.values():
            db.execute(statement)
        db.execute(f"PRAGMA application_id={APPLICATION}")
        db.execute(f"PRAGMA user_version={VERSION}")
        db.execute("INSERT INTO head VALUES (1, 0, ?, ?)", (first.hash, salt))
        append(db, first, budgets)
        db.execute("COMMIT")
    journal_of(fresh).unlink()
    os.link(fresh, path)  # it fails where there is a file by now, which a rename would replace
    fresh.unlink()
    sync_directory(path.parent)


def is_hot(journal: Path) -> bool:
    """Say whether a journal, or a link in its place, may tell of a change that was not committed.

    One of a change that was begins with zeros. Source: SQLite, "Database File Format", section 3.
    """
    if not journal.is_file():
        return os.path.lexists(journal)
    with journal.open("rb") as file:
        return any(file.read(HEADER))


def check_format(db: sqlite3.Connection) -> None:
    """Refuse a file of another kind, version or schema. Raises: LedgerError."""
    application, version = db.execute(_FORMAT).fetchone()
    if application != APPLICATION:
        raise LedgerError(
            "E_LEDGER_VERSION",
            "the file is not a dpsql ledger",
            hint="restore it from a copy that verifies, together with its anchor",
        )
    if version != VERSION:
        raise LedgerError(
            "E_LEDGER_VERSION",
            "the ledger was written by another version of dpsql, or its number of one is damaged",
            hint="use the version that wrote it, or restore it from a copy that verifies",
        )
    found = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if dict(found) != _SCHEMA:
        raise tampered("its tables are not the ones dpsql made")


def append(db: sqlite3.Connection, entry: Entry, budgets: Mapping[str, BudgetSums]) -> None:
    """Add an entry and write the sums and the head that follow from it.

    Args:
        db: connection within a transaction, which whoever calls commits.
        entry: linked to the one before by its hash.
        budgets: sums after it, by name; they replace those that are written.
    """
    marks = ", ".join("?" * len(COLUMNS))
    db.execute(f"INSERT INTO entry VALUES ({marks})", [getattr(entry, c) for c in COLUMNS])
    db.execute("DELETE FROM budget")
    db.executemany(
        "INSERT INTO budget VALUES (?, ?, ?, ?)",
        [(n, s.epsilon_units, s.renyi_units, int(s.gaussian)) for n, s in budgets.items()],
    )
    db.execute("UPDATE head SET seq = ?, hash = ?", (entry.seq, entry.hash))


def entries_after(db: sqlite3.Connection, seq: int) -> Iterator[Entry]:
    """Yield the entries past ``seq`` in order."""
    for row in db.execute(f"{_SELECT} WHERE seq > ? ORDER BY seq", (seq,)):
        yield Entry(*row)


def entry_at(db: sqlite3.Connection, seq: int) -> Entry | None:
    """Return one entry, None when there is none."""
    row = db.execute(f"{_SELECT} WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else Entry(*row)


def hash_at(db: sqlite3.Connection, seq: int) -> str | None:
    """Return the hash of one entry, None when there is none."""
    row = db.execute("SELECT hash FROM entry WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else str(row[0])


def totals(db: sqlite3.Connection) -> tuple[dict[str, BudgetSums], tuple[int, str, bytes]]:
    """Return the stored sums, and the stored last seq and hash with the salt."""
    budgets = {
        name: BudgetSums(epsilon, renyi, bool(gaussian))
        for name, epsilon, renyi, gaussian in db.execute("SELECT * FROM budget")
    }
    heads = db.execute("SELECT seq, hash, salt FROM head").fetchall()
    if len(heads) != 1:
        raise tampered("it has no head")
    return budgets, heads[0]


def set_state(db: sqlite3.Connection, seq: int, entry_hash: str, state: str) -> bool:
    """Record what became of a reserved debit; say whether there was one.

    Args:
        db: connection that may write.
        seq, entry_hash: both have to be those of the debit, so that another ledger's is never
            meant.
        state: "released" or "failed".
    """
    done = db.execute(
        "UPDATE entry SET state = ? WHERE seq = ? AND hash = ? AND state = 'reserved'",
        (state, seq, entry_hash),
    )
    return done.rowcount == 1
