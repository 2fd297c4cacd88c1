"""Exact figures of a private table for the curator, who has the data: what its views leave out.

Nothing here is noisy, and nothing of it is for release. Only ``dpsql check`` asks for it: no SQL,
no connection and no function of the package that analysts are given leads here.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Values
from dpsql.privacy.vault.data_engine import Flags, StoredTable
from dpsql.privacy.vault.encode import OUTSIDE
from dpsql.privacy.vault.failures import sealed
from dpsql.privacy.vault.held import one_snapshot
from dpsql.privacy.vault.lines import REMEDIES, find_unread
from dpsql.privacy.vault.rows import Rows
from dpsql.privacy.vault.stored_rows import find_engine, open_table, position, read_rows
from dpsql.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class ColumnFigures:
    """The rows that one column leaves out: for NULL, and for values that are not declared.

    ``values`` are the undeclared values, the most frequent first, with their numbers of rows,
    ``remedy`` says how they would be counted.
    """

    name: str
    stored: str
    nulls: int
    undeclared: int
    values: tuple[tuple[str, int], ...]
    remedy: str

    @property
    def outside(self) -> int:
        """The rows left out of all answers that use the column."""
        return self.nulls + self.undeclared


@dataclass(frozen=True, slots=True)
class LostLines:
    """Lines of files that are no rows for one reason: how many, the first, and what to do."""

    why: str
    count: int
    file: str
    first: int
    remedy: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What the declared views of a table leave out, exactly.

    ``unowned`` are rows without a privacy unit. ``crowded`` units have more than ``max_rows`` rows;
    ``dropped`` are the rows beyond. ``most`` rows count where no column is mentioned, ``least``
    where all are. ``unread`` are the lines of CSV files that are no rows, by reason.
    """

    table: str
    unit: str | None
    max_rows: int
    kind: str
    files: int
    rows: int
    unowned: int
    units: int
    crowded: int
    dropped: int
    most: int
    least: int
    columns: tuple[ColumnFigures, ...]
    unread: tuple[LostLines, ...]


def inspect_source(table: Table) -> tuple[str, int, dict[str, str]]:
    """The kind of a source, its number of files, and the type family of every column.

    Raises: DataUnavailable where it does not open, or where types do not fit the catalog.
    """
    stored = find_engine(table).open(table) if table.public else open_table(_plain(table))
    return stored.kind, _files(stored), dict(stored.columns)


def inspect_rows(table: Table) -> Figures:
    """Read a private table and count what its views leave out.

    Raises: DataUnavailable; InternalError, with one constant text, when the rows cannot be read.
    """
    table = _plain(table)
    with one_snapshot():
        stored = open_table(table)
        return sealed(lambda: _count(table, stored))


def _files(stored: StoredTable) -> int:
    """The number of files, or of tables of a server: not of the folders that are charged."""
    return sum(not os.path.isdir(path) for path in stored.paths)


def _plain(table: Table) -> Table:
    """The table as it is stored: who a row belongs to by reference is not in it."""
    return table if table.unit.through is None else replace(table, unit=Unit())


def _count(table: Table, stored: StoredTable) -> Figures:
    rows = read_rows(stored, _opened(table), "")
    missing = {key: _missing(rows, key, each) for key, each in table.columns.items()}
    wrong = {key: _undeclared(rows, key, each) for key, each in table.columns.items()}
    places = {key: position(table, stored, each.name) for key, each in table.columns.items()}
    columns = tuple(
        ColumnFigures(
            column.name,
            stored.columns[places[key]][1],
            int(missing[key].sum()),
            int(wrong[key].sum()),
            _values(stored, stored.columns[places[key]][0], wrong[key]),
            _remedy(column),
        )
        for key, column in table.columns.items()
    )
    outside = [missing[key] | wrong[key] for key in table.columns]
    owned = np.ones(rows.count, dtype=bool) if rows.owners is None else rows.owners.owned
    of_units, limit = _per_unit(rows, owned), table.unit.max_rows
    inside = _per_unit(rows, owned & ~np.logical_or.reduce(outside))
    return Figures(
        table=table.name,
        unit=table.unit.column,
        max_rows=limit,
        kind=stored.kind,
        files=_files(stored),
        rows=rows.count,
        unowned=int((~owned).sum()),
        units=int((of_units > 0).sum()),
        crowded=int((of_units > limit).sum()),
        dropped=int(np.maximum(of_units - limit, 0).sum()),
        most=int(np.minimum(of_units, limit).sum()),
        least=int(np.minimum(inside, limit).sum()),
        columns=columns,
        unread=_unread(stored) if stored.kind == "csv" else (),
    )


def _unread(stored: StoredTable) -> tuple[LostLines, ...]:
    """The lines of files that are no rows, by reason, the most frequent first."""
    first: dict[str, tuple[str, int]] = {}
    count = Counter[str]()
    for path in stored.paths:
        for number, why in find_unread(path):
            first.setdefault(why, (os.path.basename(path), number))
            count[why] += 1
    return tuple(LostLines(why, n, *first[why], REMEDIES[why]) for why, n in count.most_common())


def _opened(table: Table) -> Table:
    """The table with NULL declared for every column, so that NULL is told from other values."""
    columns = {key: replace(column, null=True) for key, column in table.columns.items()}
    return replace(table, columns=columns)


def _missing(rows: Rows, key: str, column: Column) -> Flags:
    """The rows that a column leaves out for NULL; ``column`` is as the catalog declares it."""
    if column.null:
        return np.zeros(rows.count, dtype=bool)
    if column.bounds is not None:
        return np.isnan(rows.numbers[key])
    return _has_code(rows, key, column.size)


def _undeclared(rows: Rows, key: str, column: Column) -> Flags:
    """The rows that a column leaves out for values that are not declared."""
    if column.bounds is not None:
        return np.asarray(rows.numbers[key] == OUTSIDE)
    return _has_code(rows, key, column.size + (not column.null))


def _has_code(rows: Rows, key: str, code: int) -> Flags:
    if key not in rows.codes:
        return np.zeros(rows.count, dtype=bool)
    return np.asarray(rows.codes[key] == code)


def _remedy(column: Column) -> str:
    if column.bounds is not None:
        return "only numbers can be summed"
    if isinstance(column.domain, Values) and column.type != "boolean":
        return "other = true would count them"
    return "a wider domain would count them"


def _values(stored: StoredTable, name: str, rows: Flags) -> tuple[tuple[str, int], ...]:
    """The values of a column in some rows, as text, with the number of rows of each."""
    if not rows.any():
        return ()
    found: Counter[str] = Counter()
    start = 0
    for texts in stored.texts(name):
        found.update(map(str, texts[rows[start : start + len(texts)]]))
        start += len(texts)
    return tuple(found.most_common())


def _per_unit(rows: Rows, chosen: Flags) -> NDArray[np.int64]:
    """The chosen rows of every unit; of every row where rows are the units."""
    if rows.owners is None:
        return chosen.astype(np.int64)
    units = rows.owners.units[chosen].astype(np.int64)
    return np.bincount(units, minlength=len(rows.owners.names))
