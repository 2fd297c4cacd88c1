"""Public facts about declared columns, in a few words each."""

from __future__ import annotations

from dpsql.catalog.catalog import Catalog, Column, Table
from dpsql.catalog.composite_keys import describe_joint, parts_of
from dpsql.catalog.domain import (
    Bins,
    BoundedBins,
    DecimalRange,
    IntegerRange,
    Periods,
    Spans,
    Times,
)
from dpsql.errors import ProgrammingError, decimal_text, nearest, printable


def describe_table(table: Table) -> list[tuple[str, str, str, int | None]]:
    """One row per declared column: name, type, values, number of cells."""
    return [describe_column(column) for column in table.columns.values()]


def describe_column(column: Column, most: int = 6) -> tuple[str, str, str, int | None]:
    """A declared column: name, type, at most so many of its values, number of cells."""
    return column.name, column.type, describe_values(column, most), column.size or None


def find_column(catalog: Catalog, name: str) -> Column:
    """A declared column by its name, also with that of its table: age, people.age.

    Raises: ProgrammingError (E_UNKNOWN_TABLE, E_UNKNOWN_COLUMN).
    """
    owner, dot, key = (part.strip('"').casefold() for part in name.rpartition("."))
    tables = [catalog.tables[owner]] if owner in catalog.tables else list(catalog.tables.values())
    if dot and owner not in catalog.tables:
        names = [table.name for table in tables]
        what = f"there is no table {printable(owner)!r} in the catalog"
        raise ProgrammingError("E_UNKNOWN_TABLE", what, hint=_nearest(owner, names, "tables"))
    for table in tables:
        if key in table.columns:
            return table.columns[key]
    names = list(dict.fromkeys(each.name for table in tables for each in table.columns.values()))
    where = f"table {tables[0].name}" if dot else "any table"
    what = f"there is no column {printable(name.rpartition('.')[2])!r} in {where}"
    raise ProgrammingError("E_UNKNOWN_COLUMN", what, hint=_nearest(key, names, "columns"))


def _nearest(name: str, known: list[str], what: str) -> str:
    near = nearest(name, known)
    return f"did you mean {near}?" if near else f"{what}: {', '.join(known)}"


def _shown(periods: Periods) -> object:
    """Return the start of periods, as it is written."""
    return periods.representatives[0] if isinstance(periods, Times) else periods.start


def describe_values(column: Column, most: int = 6) -> str:
    """The declared domain or bounds of a column.

    >>> describe_values(Column("age", "integer", IntegerRange(17, 90), null=True))
    '17 to 90, or NULL'
    """
    if parts_of(column):
        return describe_joint(column)
    match column.domain:
        case IntegerRange(lo, hi):
            text = f"{lo} to {hi}"
        case DecimalRange(lo, step, count):
            text = f"{lo} to {lo + (count - 1) * step} by {step}"
        case Bins(edges):
            text = f"{decimal_text(edges[0])} to {decimal_text(edges[-1])} in {len(edges) - 1} bins"
            text += ", clipped to them" if isinstance(column.domain, BoundedBins) else ""
        case Periods(_, unit, count) as periods:
            long = f" of {periods.length} {unit}s" if periods.length > 1 else ""
            text = f"{count} {'periods' if long else f'{unit}s'}{long} from {_shown(periods)}"
            if column.type == "timestamp" and isinstance(periods, Spans):
                text += f" ({periods.zone})"
        case None if column.bounds is not None:
            text = f"measure, clipped to {' to '.join(map(decimal_text, column.bounds))}"
        case None if column.sought is not None:
            return f"not found yet: {column.sought.statement}"
        case None:
            return "not declared: cannot be queried"
        case values:
            shown = [str(value) for value in values.representatives]
            shown = shown if len(shown) <= most else [*shown[: most - 1], "...", shown[-1]]
            text = ", ".join(shown)
    text += f", else {column.other}" if column.other is not None else ""
    return text + (", or NULL" if column.null else "")
