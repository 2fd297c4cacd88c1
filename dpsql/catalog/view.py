"""What the declared view of a table leaves out: a public fact, from the catalog alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

from dpsql.catalog.catalog import SERVERS, Column, Table
from dpsql.catalog.domain import BoundedBins
from dpsql.catalog.unit_local import DerivedTable, JoinRows, MeetRows, children
from dpsql.errors import printable

if TYPE_CHECKING:
    from dpsql.catalog.unit_local import UnitLocal

MOST_NAMED = 4
"""Columns that are named one by one."""
TEXTS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
"""Sources whose columns are text, which may be no number."""


def leaves_out(table: Table, column: Column) -> bool:
    """Whether some value of a column puts its row outside the declared view.

    A column with cells takes every row if it has one for all other values and one for NULL, one
    with bounds if it has NULL and its source holds nothing but numbers. One of several columns has
    one cell for all that is not listed.
    """
    if column.sought is not None and column.sought.parts:
        return False
    if column.bounds is not None or isinstance(column.domain, BoundedBins):
        is_numbers = bool(table.source) and table.engine in (None, *SERVERS)
        is_numbers = is_numbers and not table.source.lower().endswith(TEXTS)
        return not column.null or not is_numbers
    return column.domain is not None and (column.other is None or not column.null)


def view_of(table: Table, columns: Iterable[str] | None = None) -> tuple[str, ...]:
    """The columns, out of some or of all, that leave out rows: views of the same ones are the same.

    Those of a table that is complete decide whatever is asked. Names are case-folded and sorted.
    """
    names = set(table.columns if columns is None or table.complete else columns)
    return tuple(sorted(name for name in names if leaves_out(table, table.columns[name])))


def left_out(table: Table, columns: Iterable[str] | None = None) -> str | None:
    """One sentence on the rows that do not count where these columns are used; None if all do.

    Without columns it is about all that a request may mention.

    >>> from dpsql.catalog.catalog import Unit
    >>> from dpsql.catalog.domain import IntegerRange
    >>> severity = Column("severity", "integer", IntegerRange(1, 5))
    >>> visits = Table("visits", "v.csv", Unit("patient_id", 20), {"severity": severity})
    >>> print(left_out(visits, ["severity"]))
    visits: at most 20 rows of each patient_id count, none without one; rows with undeclared \
severity are left out
    """
    if table.public or table.synthetic:
        return None
    view = table.told(view_of(table, columns))
    where = " where these columns are mentioned" if columns is None else ""
    said = [_of_units(table)] if table.unit.column is not None else []
    met = _met_within(table) if isinstance(table, DerivedTable) else []
    if met:
        said.append(f"rows of different units never meet by {_names(met)}")
    if table.complete and view:
        said.append("by declaration no row has undeclared values, and any that has is left out")
    elif view:
        found = [table.columns[name] for name in table.columns if name in view]
        said.append(_of_columns(found) + where)
    return f"{printable(table.title)}: {'; '.join(said)}" if said else None


def _of_columns(found: Sequence[Column]) -> str:
    listed = [each for each in found if each.domain is not None and each.other is None]
    listed = [each for each in listed if not isinstance(each.domain, BoundedBins)]
    undeclared = [printable(each.name) for each in listed]
    missing = [printable(each.name) for each in found if each not in listed]
    rows = [f"with undeclared {_names(undeclared)}"] if undeclared else []
    rows += [f"without {_names(missing)}"] if missing else []
    return f"rows {', or '.join(rows)} are left out"


def _of_units(table: Table) -> str:
    most = table.unit.max_rows
    rows = "1 row of each" if most == 1 else f"{most:,} rows of each"
    count = "counts" if most == 1 else "count"
    return f"at most {rows} {printable(str(table.unit.column))} {count}, none without one"


def _met_within(table: DerivedTable) -> list[str]:
    """The columns with ids of other units by which rows are matched, as their tables call them."""
    named = {name.casefold() for base in table.bases for name in base.unit_columns}
    return list(dict.fromkeys(_matched(table.relation, named))) if named else []


def _matched(relation: UnitLocal, named: Set[str]) -> Iterator[str]:
    if isinstance(relation, JoinRows | MeetRows):
        keys = (key.rsplit(".", 1)[-1] for pair in relation.on for key in pair)
        yield from (key for key in keys if key in named)
    for each in children(relation):
        yield from _matched(each, named)


def _names(names: Sequence[str]) -> str:
    """Write names as a list that ends in "or".

    >>> _names(["a", "b", "c"]), _names(list("abcdef"))
    ('a, b or c', 'a, b, c, d or 2 more columns')
    """
    if len(names) > MOST_NAMED + 1:
        names = [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more columns"]
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
