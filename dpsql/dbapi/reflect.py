"""Reflection: tables, views and columns of a catalog, as tools list them; public facts alone."""

from __future__ import annotations

import re

from dpsql.answer.result import Result, listing
from dpsql.catalog import Catalog, Table
from dpsql.catalog.describe import describe_values
from dpsql.records import dataclass
from dpsql.sql.mentions import asked_for_no_rows, columns_named, tables_of
from dpsql.sql.qualified import find_key

_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
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


def asked_columns(known: Catalog, sql: str) -> Result | None:
    """The empty answer to ``SELECT * FROM t WHERE 1 = 0`` or ``LIMIT 0``, as tools ask for columns.

    None for any other statement. Guarantee: a function of public facts alone.
    """
    if _EXPLAIN.match(sql):
        asked = asked_columns(known, _EXPLAIN.sub("", sql))
        free = "free: names and types of columns are declared"
        return None if asked is None else listing(("explain",), [(free,)], sql)
    parts = asked_for_no_rows(sql)
    key = None if parts is None else find_key(parts, known)
    found = None if key is None else columns_of(known, key)
    if not found:
        return None
    types = tuple("number" if c.type in ("", "decimal") else c.type for c in found)
    names = tuple(each.name for each in found)
    return Result(names, types, (), (None,) * len(found), sql, kind="message")


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
    """The names that a view selects, with the types of columns of the same names below it."""
    below: dict[str, PublicColumn] = {}
    for parts in tables_of(sql) or ():
        found = columns_of(known, parts[-1])
        below |= {each.name.casefold(): each for each in found or ()}
    out: list[PublicColumn] = []
    for name in columns_named(sql):
        star = list(below.values())
        own = below.get(name.casefold(), PublicColumn(name, "", ""))
        out += star if name == "*" else [own]
    return out
