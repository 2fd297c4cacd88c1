"""What was already published: an identical request is answered again, with the same numbers, free.

A release holds the noisy integers, the strategy that measured them and the noise scales: enough to
reconstruct every answer without data, budget or planning. It is stored before anything is returned.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import LedgerError
from dpsql.plan.plan import Part, Plan
from dpsql.plan.strategy import Block, Strategy

_SCHEMA = """
CREATE TABLE IF NOT EXISTS release (
    request TEXT PRIMARY KEY, body BLOB NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class Release:
    """A published plan with its noisy integers, and the ledger entry that paid for it."""

    plan: Plan
    values: tuple[tuple[NDArray[Any], ...], ...]
    ledger_id: str
    seq: int
    head: str


class Releases:
    """The releases of one catalog, in one SQLite file.

    Raises: LedgerError (E_LEDGER_TAMPERED) for a damaged file, (E_LEDGER_IO) when it cannot be
    written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, request: str) -> Release | None:
        """The release of an identical request, if there is one."""
        if not self.path.exists():
            return None
        try:
            with _Store(self.path) as connection:
                row = connection.execute(
                    "SELECT body, digest FROM release WHERE request = ?", (request,)
                ).fetchone()
            if row is None:
                return None
            body, digest = bytes(row[0]), row[1]
            if _digest(request, body) != digest:
                raise ValueError("digest")
            return _decode(body)
        except (sqlite3.Error, ValueError, KeyError, TypeError, OSError):
            raise LedgerError(
                "E_LEDGER_TAMPERED",
                f"the store of releases {self.path.name} is damaged",
                hint="restore it from a backup, or remove it: repeated requests are then charged",
            ) from None

    def add(self, request: str, release: Release) -> None:
        """Store a release durably; the newest release of a request replaces an older one."""
        body = _encode(release)
        try:
            with _Store(self.path) as connection:
                connection.execute(
                    "INSERT OR REPLACE INTO release VALUES (?, ?, ?)",
                    (request, body, _digest(request, body)),
                )
        except sqlite3.Error:
            raise LedgerError(
                "E_LEDGER_IO",
                f"the release cannot be stored in {self.path.name}; the charge stays",
                hint="check the disk and the permissions of the folder",
            ) from None


class _Store:
    """A connection that commits on success and always closes."""

    def __init__(self, path: Path) -> None:
        self._Storeion = sqlite3.connect(path, timeout=30.0)

    def __enter__(self) -> sqlite3.Connection:
        self._Storeion.execute("PRAGMA synchronous = FULL")
        self._Storeion.execute(_SCHEMA)
        return self._Storeion

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._Storeion.commit()
        finally:
            self._Storeion.close()


def _digest(request: str, body: bytes) -> str:
    return hashlib.sha256(request.encode() + body).hexdigest()


def _encode(release: Release) -> bytes:
    arrays: dict[str, NDArray[Any]] = {}

    def keep(array: NDArray[Any] | None) -> str | None:
        if array is None:
            return None
        name = f"x{len(arrays)}"
        arrays[name] = array.astype(np.str_) if array.dtype == object else array
        return name

    plan = release.plan
    parts = [
        {
            "table": part.table,
            "amount": str(part.amount),
            "rows_per_unit": part.rows_per_unit,
            "classes": {name: keep(cells) for name, cells in part.classes.items()},
            "strategy": {
                "domain": list(part.strategy.domain.items()),
                "full": {name: keep(rows) for name, rows in part.strategy.full.items()},
                "residual": {name: keep(rows) for name, rows in part.strategy.residual.items()},
                "blocks": [
                    [list(b.attributes), sorted(b.residual), str(b.share)]
                    for b in part.strategy.blocks
                ],
                "method": part.strategy.method,
            },
            "values": [keep(value) for value in values],
        }
        for part, values in zip(plan.parts, release.values, strict=True)
    ]
    facts = {
        "noise": plan.noise,
        "epsilon": str(plan.epsilon),
        "delta": str(plan.delta),
        "rho": None if plan.rho is None else str(plan.rho),
        "parts": parts,
        "receipt": [release.ledger_id, release.seq, release.head],
    }
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _decode(body: bytes) -> Release:
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    facts = json.loads(arrays["facts"].tobytes())

    parts, values = [], []
    for item in facts["parts"]:
        raw = item["strategy"]
        strategy = Strategy(
            dict(raw["domain"]),
            _matrices(raw["full"], arrays),
            _matrices(raw["residual"], arrays),
            tuple(Block(tuple(a), frozenset(r), Fraction(share)) for a, r, share in raw["blocks"]),
            facts["noise"],
            raw["method"],
        )
        classes = {name: arrays[key] for name, key in item["classes"].items()}
        parts.append(
            Part(item["table"], strategy, classes, Fraction(item["amount"]), item["rows_per_unit"])
        )
        values.append(tuple(_integers(arrays[key]) for key in item["values"]))
    rho = None if facts["rho"] is None else Fraction(facts["rho"])
    plan = Plan(
        tuple(parts), facts["noise"], Fraction(facts["epsilon"]), Fraction(facts["delta"]), rho
    )
    return Release(plan, tuple(values), *facts["receipt"])


def _matrices(
    names: Mapping[str, str | None], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[np.int64] | None]:
    return {name: None if key is None else arrays[key] for name, key in names.items()}


def _integers(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "U":
        return np.array([int(text) for text in array.tolist()], dtype=object)
    return array
