"""Rows of a table that count, and what is left out: public facts, of SQL and catalog alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.catalog import SERVERS, Column, Table
from dpsql.catalog.delimited import Delimited
from dpsql.catalog.domain import BoundedBins
from dpsql.errors import printable
from dpsql.records import dataclass
from dpsql.relation.lineage import named, trace
from dpsql.relation.unit_local import DerivedTable, JoinRows, MeetRows, children, scanned

if TYPE_CHECKING:
    from dpsql.relation.unit_local import UnitLocal

Flags: TypeAlias = NDArray[np.bool_]

MOST_NAMED = 4
"""Columns that are named one by one."""
TYPED = (
    *("parquet", "duckdb", "delta", "iceberg", "arrow", "orc", "spss", "stata", "sas"),
    *SERVERS,
)
"""Sources whose columns have types, so that a number is a number."""
NO_LINES = "lines that are CSV in UTF-8 with as many fields as the header count, others do not"
"""A line that is no row in no way depends on what is asked, nor do others on it."""
NO_OBJECTS = "lines that are one object of JSON in UTF-8 count, others do not"
LEFT_OUT = {"csv": NO_LINES, "json": NO_OBJECTS, None: NO_LINES}
"""Sentences on lines that are no rows, by the kind of a source; None where its name says none."""


@dataclass(frozen=True, slots=True)
class RowView:
    """The rows of a table of which each privacy unit keeps its first ``max_rows``.

    A row is among them if its values in ``columns`` are declared and it is in one of the ``cells``
    of each column there: (name, number of cells, their flags as packed bits). Names are
    case-folded and sorted, and no column of which all cells count has cells here, so that views of
    the same rows are the same.

    Guarantee: a function of SQL and catalog that decides row by row, so that a unit has at most
    ``max_rows`` rows in any view, and which ones follows from its own rows.
    """

    columns: tuple[str, ...]
    cells: tuple[tuple[str, int, bytes], ...] = ()

    @classmethod
    def of(cls, columns: Iterable[str], masks: Mapping[str, Flags]) -> RowView:
        """Return the view of rows in the marked cells; a mask has shape (cells of its column,)."""
        some = sorted((name, mask) for name, mask in masks.items() if not mask.all())
        cells = ((name, len(mask), np.packbits(mask).tobytes()) for name, mask in some)
        return cls(tuple(columns), tuple(cells))

    @property
    def masks(self) -> dict[str, Flags]:
        """The cells that count, by column, (cells of the column,) each."""
        return {
            name: np.unpackbits(np.frombuffer(packed, np.uint8), count=size).astype(np.bool_)
            for name, size, packed in self.cells
        }

    @property
    def names(self) -> frozenset[str]:
        """The columns that decide which rows count."""
        return frozenset((*self.columns, *(name for name, _, _ in self.cells)))

    @property
    def facts(self) -> tuple[object, ...]:
        """The view as it stands in digests: its columns alone where no cells are left out."""
        return (self.columns, self.cells) if self.cells else self.columns

    def holds(self, other: RowView) -> bool:
        """True if all rows of another view, of the same columns, are in this one."""
        theirs = other.masks
        return all(
            name in theirs and len(theirs[name]) == len(mask) and not (theirs[name] & ~mask).any()
            for name, mask in self.masks.items()
        )

    def chosen_before(self, asked: RowView, table: Table) -> str | None:
        """One sentence on a view that is read in place of a narrower one; None for the same."""
        own, found = dict.fromkeys(self.cells), dict.fromkeys(asked.cells)
        names = dict.fromkeys(name for name, _, _ in found.keys() - own.keys())
        told = [printable(each.name) for key, each in table.columns.items() if key in names]
        if not told:
            return None
        before = f"their rows were chosen before the conditions on {_names(told, 'and')}"
        return f"{printable(table.title)}: {before}, for an earlier request"


def leaves_out(table: Table, column: Column) -> bool:
    """True if some value of a column puts its row outside the declared view.

    A column with cells takes every row if it has one for all other values and one for NULL, one
    with bounds if it has NULL and its source holds nothing but numbers. One of several columns has
    one cell for all that is not listed.
    """
    if column.sought is not None and column.sought.parts:
        return False
    if column.bounds is not None or isinstance(column.domain, BoundedBins):
        return not column.null or not _has_types(table)
    return column.domain is not None and (column.other is None or not column.null)


def _has_types(table: Table) -> bool:
    return bool(table.source) and table.kind in TYPED


def view_of(table: Table, columns: Iterable[str] | None = None) -> tuple[str, ...]:
    """The columns, out of some or of all, that leave out rows: views of the same ones are the same.

    Those of a table that is complete decide whatever is asked. Names are case-folded and sorted.
    """
    names = set(table.columns if columns is None or table.complete else columns)
    return tuple(sorted(name for name in names if leaves_out(table, table.columns[name])))


def left_out(
    table: Table, rows: RowView | None = None, keys: tuple[int, str] | None = None
) -> str | None:
    """One sentence on the rows that do not count in a view; None if all do.

    Without a view it is about all that a request may mention.

    Args:
        table: its declarations alone decide what is said, never its rows.
        rows: columns and conditions of the request; None for all columns.
        keys: how many different ones of a unit count, in place of its rows, and of which columns,
            as they are shown; None where rows count.

    >>> from dpsql.catalog.catalog import Unit
    >>> from dpsql.catalog.domain import IntegerRange
    >>> severity = Column("severity", "integer", IntegerRange(1, 5))
    >>> visits = Table("visits", "v.parquet", Unit("patient_id", 20), {"severity": severity})
    >>> print(left_out(visits, RowView(("severity",))))
    visits: at most 20 rows of each patient_id count, none without one; rows with undeclared \
severity are left out
    >>> print(left_out(visits, RowView((), (("severity", 5, b"P"),))))
    visits: at most 20 rows of each patient_id count, among those that conditions on severity \
admit, none without one
    """
    if table.public or table.synthetic:
        return None
    view = table.told(view_of(table, None if rows is None else rows.columns))
    where = " where these columns are mentioned" if rows is None else ""
    said = [*no_lines(table), *(_of_units(table, rows) if keys is None else _of_keys(table, *keys))]
    said += _within(table) if isinstance(table, DerivedTable) else []
    if table.complete and view:
        said.append("by declaration no row has undeclared values, and any that has is left out")
    elif view:
        said.append(f"rows {_of_columns(table, view)} are left out{where}")
    return f"{printable(table.title)}: {'; '.join(said)}" if said else None


def no_lines(table: Table) -> list[str]:
    """Sentences on lines that a source leaves out before they are rows, whatever is asked."""
    bases = table.bases if isinstance(table, DerivedTable) else (table,)
    found: dict[str, None] = {}
    for base in bases:
        if base.kind in LEFT_OUT:
            where = "where files are CSV, " if base.kind is None else ""
            of = "" if base.name == table.name else f" of {printable(base.name)}"
            said = LEFT_OUT[base.kind].replace("lines", f"lines{of}", 1)
            encoding = Delimited.of(base.options).encoding.upper()
            found[f"{where}{said.replace('UTF-8', encoding)}"] = None
    return list(found)


def of_sources(tables: Iterable[Table]) -> list[str]:
    """Sentences on lines that sources of private tables leave out, for the curator."""
    private = [table for table in tables if not table.public and not table.synthetic]
    return [f"{printable(each.title)}: {said}" for each in private for said in no_lines(each)]


ROOM = "room for {:,} rows in memory: row_count_hint states how many there may be"


def of_rooms(tables: Iterable[Table]) -> list[str]:
    """Sentences on the rows that there is room for by default, for the curator."""
    within = [each for each in tables if each.room and not each.is_pushed]
    found = [each for each in within if each.row_count_hint is None]
    return [f"{printable(each.title)}: {ROOM.format(each.room)}" for each in found]


def _within(table: DerivedTable) -> Iterator[str]:
    """Yield the rows that take no part in what a relation makes of them."""
    origins = trace(table.relation, named(table.bases)).read
    for base in table.bases:
        view = view_of(base, [key for name, key in origins if name == base.name.casefold()])
        if view:
            rows = f"rows of {printable(base.name)} {_of_columns(base, view)}"
            yield f"{rows} meet no condition and add to no sum"


def _of_columns(table: Table, keys: Sequence[str]) -> str:
    """Tell the rows that some columns leave out: all kinds of them, and none besides."""
    found: dict[str, list[str]] = {}
    for column in (each for key, each in table.columns.items() if key in keys):
        for kind in _kinds_left_out(table, column):
            found.setdefault(kind, []).append(printable(column.name))
    rows = [f"with undeclared {_names(found['undeclared'])}"] if "undeclared" in found else []
    rows += [f"whose {_names(found['unfound'])} was not found"] if "unfound" in found else []
    rows += [f"without {_names(found['missing'])}"] if "missing" in found else []
    rows += [f"whose {_names(found['unread'])} is no number"] if "unread" in found else []
    return ", or ".join(rows)


def _kinds_left_out(table: Table, column: Column) -> Iterator[str]:
    """The kinds of values that put a row outside the view; NULL is undeclared if it has no cell."""
    if column.domain is not None and not isinstance(column.domain, BoundedBins):
        if column.other is not None:
            yield "missing"
        else:
            yield "unfound" if column.released else "undeclared"
        return
    if not column.null:
        yield "missing"
    if not table.source:  # of other columns, where an undeclared value has no result
        yield "undeclared"
    elif not _has_types(table):
        yield "unread"


def _of_units(table: Table, view: RowView | None) -> Iterator[str]:
    """Yield the rows that do not count for what their units are, and those that never meet."""
    if table.unit.column is None:
        return
    most = table.unit.max_rows
    rows = "1 row of each" if most == 1 else f"{most:,} rows of each"
    count = "counts" if most == 1 else "count"
    names = [] if view is None else table.told(tuple(name for name, _, _ in view.cells))
    found = [printable(each.name) for key, each in table.columns.items() if key in names]
    among = f", among those that conditions on {_names(found, 'and')} admit" if found else ""
    said = f"at most {rows} {printable(table.unit.column)} {count}{among}, none without one"
    bases = table.bases if isinstance(table, DerivedTable) else ()
    for base in bases:
        if base.unit.through is not None:
            keys = [printable(own) for own, _ in base.unit.through.on]
            said += f", none whose {_names(keys)} is in no row of {base.unit.through.table}"
    yield said
    met = _met_within(table) if isinstance(table, DerivedTable) else []
    if met:
        yield f"rows of different units never meet by {_names(met)}"


def _of_keys(table: Table, most: int, column: str) -> Iterator[str]:
    """Yield the keys that do not count for what their units are."""
    if table.unit.column is not None:
        keys, count = ("1 key", "counts") if most == 1 else (f"{most:,} keys", "count")
        whose = printable(table.unit.column)
        yield f"at most {keys} of {column} {count} of each {whose}, none of rows without one"


def _met_within(table: DerivedTable) -> list[str]:
    """The keys by which rows of other tables, or ids of other units, are matched within a unit."""
    others = {name.casefold() for base in table.bases for name in base.unit_columns}
    units = {str(base.unit.column).casefold() for base in table.bases} - others
    keys = dict.fromkeys(_matched(table.relation, others))
    return [printable(key) for key in keys if key.casefold() not in units]


def _matched(relation: UnitLocal, others: Set[str]) -> Iterator[str]:
    if isinstance(relation, JoinRows | MeetRows):
        keys = [key.rsplit(".", 1)[-1] for pair in relation.on for key in pair]
        is_other = scanned(relation.left) != scanned(relation.right)
        yield from (key for key in keys if is_other or key in others)
    for each in children(relation):
        yield from _matched(each, others)


def _names(names: Sequence[str], last: str = "or") -> str:
    """Write names as a list that ends in "or", or in another word.

    >>> _names(["a", "b", "c"]), _names(list("abcdef"))
    ('a, b or c', 'a, b, c, d or 2 more columns')
    """
    if len(names) > MOST_NAMED + 1:
        names = [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more columns"]
    return f" {last} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
