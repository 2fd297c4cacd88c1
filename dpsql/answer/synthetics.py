"""Synthetic tables: released models, kept for later processes; answers and rows drawn from them.

A model is a release: everything computed from it is free. Stored are its parameters, what was
measured, how precisely and at what cost; never seeds, scores or true answers.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import itertools
import json
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.answer.codec import decode_looks, encode_looks, zipped
from dpsql.catalog import Table
from dpsql.catalog.catalog import Unit
from dpsql.errors import LedgerError, ProgrammingError, printable
from dpsql.files import keep_private
from dpsql.learn.handle import Model
from dpsql.learn.transcript import Look

_KINDS = {
    "factored": "dpsql.learn.factored:Factored",
    "graphical": "dpsql.pgm.model:GraphicalModel",
    "mixture": "dpsql.learn.relaxed:ProductMixture",
    "rap": "dpsql.learn.relaxed:ProductMixture",
}
"""Where the models of each kind are decoded; imported on use."""

VERSION = 2
"""Of what is stored of a model; the first has no looks, neighbours and forecast."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS synthetic (
    name TEXT PRIMARY KEY, body BLOB NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS learned (
    request TEXT PRIMARY KEY, body BLOB NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID;
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Synthetic:
    """A released model of some columns of a private table, and the ledger entry that paid for it.

    It has no name when it was learned to answer one workload. ``rule`` says how the mechanism was
    chosen, ``transcript`` tells what was measured in words, and ``looks`` in numbers.
    ``neighbours`` are the tables that are not told apart, ``forecast`` what EXPLAIN said.
    """

    name: str
    table: str
    model: Model
    epsilon: Fraction
    delta: Fraction
    noise: str
    rule: str
    transcript: tuple[str, ...]
    receipt: tuple[str, int, str]
    interrupted: bool = False
    looks: tuple[Look, ...] = ()
    neighbours: str = ""
    forecast: tuple[tuple[str, str], ...] = ()

    @property
    def note(self) -> str:
        """What every answer from it says."""
        part = " of a run that was interrupted" if self.interrupted else ""
        if not self.name:
            return (
                f"from a model ({self.rule}; entry {self.receipt[1]} of the ledger{part}): "
                "biased, no standard errors"
            )
        return (
            f"from the synthetic table {self.name} (entry {self.receipt[1]} of the ledger{part}): "
            "biased, no standard errors"
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """Which rows of the private table it is not about, in words."""
        return tuple(text for name, text in self.forecast if name == "left out")

    def describe(self, table: Table) -> Table:
        """The columns of the private table that the model has, as a table of its own."""
        columns = {key: table.columns[key] for key in table.columns if key in self.model.domain}
        return replace(
            table, name=self.name, unit=Unit(), columns=columns, budget=None, synthetic=True
        )


class _Taken(Exception):
    """A name that is stored already."""


class Synthetics:
    """The synthetic tables of one catalog, and models of workloads, in one SQLite file.

    Raises: LedgerError (E_LEDGER_TAMPERED) for a damaged file, (E_LEDGER_IO) when it cannot be
    written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, Synthetic]:
        """All synthetic tables by case-folded name."""

        def load(db: sqlite3.Connection) -> dict[str, Synthetic]:
            rows = db.execute("SELECT name, body, digest FROM synthetic").fetchall()
            return {name: _decode(name, bytes(body), digest) for name, body, digest in rows}

        return self._read(load) or {}

    def find(self, request: str) -> Synthetic | None:
        """The model that was learned for an identical request."""

        def load(db: sqlite3.Connection) -> Synthetic | None:
            sql = "SELECT body, digest FROM learned WHERE request = ?"
            row = db.execute(sql, (request,)).fetchone()
            return None if row is None else _decode(request, bytes(row[0]), row[1])

        return self._read(load)

    def add(self, synthetic: Synthetic) -> Synthetic:
        """Store a synthetic table durably, all or nothing, and return it as stored.

        Its name gets a number where another process took it during the run, which is paid for.
        """
        sql, named = "INSERT INTO synthetic VALUES (?, ?, ?)", synthetic
        for number in itertools.count(2):
            try:
                self._write(sql, named.name.casefold(), named)
                break
            except _Taken:
                named = replace(synthetic, name=f"{synthetic.name}_{number}")
        return named

    def keep(self, request: str, synthetic: Synthetic) -> Synthetic:
        """Store the model of a request durably; the newest replaces an older one."""
        self._write("INSERT OR REPLACE INTO learned VALUES (?, ?, ?)", request, synthetic)
        return synthetic

    def _read(self, load: Callable[[sqlite3.Connection], T]) -> T | None:
        if not self.path.exists():
            return None
        try:
            keep_private(self.path)
            with closing(sqlite3.connect(self.path, timeout=30.0)) as db:
                db.executescript(_SCHEMA)
                return load(db)
        except (sqlite3.Error, ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile):
            raise LedgerError(
                "E_LEDGER_TAMPERED",
                f"the store of synthetic tables {self.path.name} is damaged",
                hint="restore it from a backup, or remove it: the tables are lost then",
            ) from None

    def _write(self, sql: str, key: str, synthetic: Synthetic) -> None:
        body = _encode(synthetic)
        try:
            keep_private(self.path)
            with closing(sqlite3.connect(self.path, timeout=30.0)) as db, db:
                db.execute("PRAGMA synchronous = FULL")
                db.executescript(_SCHEMA)
                db.execute(sql, (key, body, _digest(key, body)))
        except sqlite3.IntegrityError:
            raise _Taken from None
        except (sqlite3.Error, OSError):
            raise LedgerError(
                "E_LEDGER_IO",
                f"the model cannot be stored in {self.path.name}; the charge stays",
                hint="check the disk and the permissions of the folder",
            ) from None


def find_synthetic(models: Mapping[str, Synthetic], name: str) -> Synthetic:
    """The synthetic table of a name. Raises: ProgrammingError (E_UNKNOWN_TABLE)."""
    synthetic = models.get(name.casefold())
    if synthetic is None:
        known = ", ".join(each.name for each in models.values()) or "there are none"
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no synthetic table {printable(name)!r}",
            hint=f"synthetic tables: {known}",
        )
    return synthetic


def check_name(name: str, taken: Mapping[str, object]) -> None:
    """Refuse a name that is taken or is no name.

    Raises: ProgrammingError (E_STATEMENT).
    """
    if name.casefold() in taken:
        raise ProgrammingError(
            "E_STATEMENT",
            f"there is a table {printable(name)!r} already",
            hint="a synthetic table needs a name of its own",
        )
    if not name.isidentifier() or len(name) > 64:
        raise ProgrammingError(
            "E_STATEMENT", f"{printable(name)!r} is no name for a table", hint="letters and digits"
        )


def _encode(synthetic: Synthetic) -> bytes:
    arrays: dict[str, NDArray[Any]] = {}

    def keep(array: NDArray[Any]) -> str:
        name = f"x{len(arrays)}"
        arrays[name] = array
        return name

    model: Any = synthetic.model
    facts = {
        "name": synthetic.name,
        "table": synthetic.table,
        "model": model.encode(keep),
        "epsilon": str(synthetic.epsilon),
        "delta": str(synthetic.delta),
        "noise": synthetic.noise,
        "rule": synthetic.rule,
        "transcript": list(synthetic.transcript),
        "receipt": list(synthetic.receipt),
        "interrupted": synthetic.interrupted,
        "version": VERSION,
        "looks": encode_looks(synthetic.looks, keep),
        "neighbours": synthetic.neighbours,
        "forecast": synthetic.forecast,
    }
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    return zipped(arrays)


def _decode(key: str, body: bytes, digest: str) -> Synthetic:
    if _digest(key, body) != digest:
        raise ValueError("digest")
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    facts = json.loads(arrays["facts"].tobytes())
    version = facts.get("version", 1)
    if version > VERSION:
        raise LedgerError(
            "E_LEDGER_VERSION",
            "a synthetic table was stored by a later version of dpsql",
            hint="use the version that made it",
        )
    known = facts if version > 1 else {"looks": None, "neighbours": "", "forecast": []}
    model = _class_of(facts["model"]["kind"]).decode(facts["model"], arrays)
    ledger_id, seq, head = facts["receipt"]
    return Synthetic(
        facts["name"],
        facts["table"],
        model,
        Fraction(facts["epsilon"]),
        Fraction(facts["delta"]),
        facts["noise"],
        facts["rule"],
        tuple(facts["transcript"]),
        (ledger_id, seq, head),
        facts["interrupted"],
        decode_looks(known["looks"], arrays, facts["noise"]) if known["looks"] else (),
        known["neighbours"],
        tuple((name, text) for name, text in known["forecast"]),
    )


def _class_of(kind: str) -> Any:
    module, name = _KINDS[kind].split(":")
    return getattr(importlib.import_module(module), name)


def _digest(key: str, body: bytes) -> str:
    return hashlib.sha256(key.encode() + body).hexdigest()
