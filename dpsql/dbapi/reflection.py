"""Reflection: tables, views and columns of a catalog, as tools list them; public facts alone."""

from __future__ import annotations

from dpsql.answer.result import Result, listing
from dpsql.catalog import Catalog, Table
from dpsql.catalog.describe import describe_values
from dpsql.dialect.columns import columns_of_view
from dpsql.dialect.types import kind_of
from dpsql.records import dataclass
from dpsql.sql.rewrites.qualified import find_key
from dpsql.sql.text.parse import Statement
from dpsql.sql.text.table_mentions import tables_of

UNIT = "the privacy unit: COUNT(DISTINCT it), joins along it"


@dataclass(frozen=True, slots=True)
class PublicColumn:
    """A column: its name, its type as a catalog writes it ("" if unknown), its declared values."""

    name: str
    type: str
    comment: str
    null: bool = True


def columns_of(known: Catalog, name: str) -> tuple[PublicColumn, ...] | None:
    """The columns of a table or view; None where there is none of that name."""
    key = find_key([name], known) or ""
    if key in known.tables:
        return tuple(_columns_of_table(known.tables[key]))
    if key in known.views:
        return tuple(_columns_of_view(known, known.views[key].sql))
    return None


def empty_answer(statement: Statement) -> Result:
    """The answer to a SELECT of which no row can come: its columns, as tools ask for them.

    Guarantee: a function of public facts alone.
    """
    sql, columns = statement.fragment.body, statement.columns or ()
    if statement.explain:
        free = "free: names and types of columns are declared"
        return listing(("explain",), [(free,)], sql)
    types = tuple(kind_of(each.type) for each in columns)
    typed = () if statement.fragment.reader is None else tuple(each.type for each in columns)
    names = tuple(each.name for each in columns)
    none = (None,) * len(columns)
    return Result.of_rows(names, types, (), none, sql, kind="message", typed=typed)


def comment_of(known: Catalog, name: str) -> str | None:
    """Return the comment on a table as a whole: its privacy unit."""
    table = known.tables.get(find_key([name], known) or "")
    if table is None:
        return None
    if table.public:
        return "public"
    column, most = table.unit.column, table.unit.max_rows
    return "privacy unit: " + ("row" if column is None else f"{column}, at most {most} rows")


def view_text(known: Catalog, name: str) -> str | None:
    """The SQL of a view."""
    view = known.views.get(find_key([name], known) or "")
    return None if view is None else view.sql


def _columns_of_table(table: Table) -> list[PublicColumn]:
    found = [
        PublicColumn(each.name, each.type, describe_values(each), each.null)
        for each in table.columns.values()
    ]
    unit = table.unit.column
    if unit and unit.casefold() not in table.columns:
        found.insert(0, PublicColumn(unit, "text", UNIT))
    return found


def _columns_of_view(known: Catalog, sql: str) -> list[PublicColumn]:
    """The columns that a view selects, described where they are those of a table by their names."""
    below: dict[str, PublicColumn] = {}
    for parts in tables_of(sql) or ():
        found = columns_of(known, parts[-1])
        below |= {each.name.casefold(): each for each in found or ()}
    return [
        below.get(each.name.casefold())
        or PublicColumn(each.name, "" if each.type is None else kind_of(each.type), "")
        for each in columns_of_view(known, sql) or ()
    ]
