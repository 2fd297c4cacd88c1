"""Synthetic tables: released models, kept for later processes; answers and rows drawn from them.

A model is a release: everything computed from it is free. Stored are its parameters, what was
measured and how precisely, what it cost; never seeds, scores or true answers.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.adaptive.factored import Factored
from dpsql.adaptive.handle import Model
from dpsql.adaptive.relaxed import ProductMixture
from dpsql.answer.pgm import GraphicalModel
from dpsql.answer.stored import zipped
from dpsql.catalog import Table
from dpsql.catalog.catalog import Unit
from dpsql.errors import LedgerError, ProgrammingError, printable

_KINDS: Mapping[str, Any] = {
    "factored": Factored,
    "graphical": GraphicalModel,
    "mixture": ProductMixture,
    "rap": ProductMixture,
}

_SCHEMA = """
CREATE TABLE IF NOT EXISTS synthetic (
    name TEXT PRIMARY KEY, body BLOB NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True, eq=False)
class Synthetic:
    """A released model of some columns of a private table, and the ledger entry that paid for it.

    ``rule`` says how the mechanism was chosen, ``transcript`` what was measured.
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

    @property
    def note(self) -> str:
        """What every answer from it says."""
        part = " of a run that was interrupted" if self.interrupted else ""
        return (
            f"from the synthetic table {self.name} (entry {self.receipt[1]} of the ledger{part}): "
            "biased, no standard errors"
        )

    def describe(self, table: Table) -> Table:
        """The columns of the private table that the model has, as a table of its own."""
        columns = {key: table.columns[key] for key in table.columns if key in self.model.domain}
        return replace(
            table, name=self.name, unit=Unit(), columns=columns, budget=None, synthetic=True
        )


class Synthetics:
    """The synthetic tables of one catalog, in one SQLite file.

    Raises: LedgerError (E_LEDGER_TAMPERED) for a damaged file, (E_LEDGER_IO) when it cannot be
    written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, Synthetic]:
        """All synthetic tables by case-folded name."""
        if not self.path.exists():
            return {}
        try:
            with sqlite3.connect(self.path, timeout=30.0) as db:
                db.execute(_SCHEMA)
                rows = db.execute("SELECT name, body, digest FROM synthetic").fetchall()
            db.close()
            return {name: _decode(name, bytes(body), digest) for name, body, digest in rows}
        except (sqlite3.Error, ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile):
            raise LedgerError(
                "E_LEDGER_TAMPERED",
                f"the store of synthetic tables {self.path.name} is damaged",
                hint="restore it from a backup, or remove it: the tables are lost then",
            ) from None

    def add(self, synthetic: Synthetic) -> None:
        """Store a synthetic table durably; all or nothing."""
        body = _encode(synthetic)
        key = synthetic.name.casefold()
        try:
            with sqlite3.connect(self.path, timeout=30.0) as db:
                db.execute("PRAGMA synchronous = FULL")
                db.execute(_SCHEMA)
                db.execute(
                    "INSERT INTO synthetic VALUES (?, ?, ?)", (key, body, _digest(key, body))
                )
            db.close()
        except sqlite3.Error:
            raise LedgerError(
                "E_LEDGER_IO",
                f"the synthetic table cannot be stored in {self.path.name}; the charge stays",
                hint="check the disk and the permissions of the folder",
            ) from None


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
    }
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    return zipped(arrays)


def _decode(key: str, body: bytes, digest: str) -> Synthetic:
    if _digest(key, body) != digest:
        raise ValueError("digest")
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    facts = json.loads(arrays["facts"].tobytes())
    model = _KINDS[facts["model"]["kind"]].decode(facts["model"], arrays)
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
    )


def _digest(key: str, body: bytes) -> str:
    return hashlib.sha256(key.encode() + body).hexdigest()
