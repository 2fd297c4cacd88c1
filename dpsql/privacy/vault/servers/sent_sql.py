"""SQL that a server will be sent for a plan: public, from the catalog and a schema alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.servers.code_sql import CodeSql
from dpsql.privacy.vault.servers.group_sql import group_sql
from dpsql.privacy.vault.servers.registry import find_dialect
from dpsql.privacy.vault.unit.rows import ask, declared
from dpsql.workload.cells import AnyResolution

LONGEST = 600
"""Characters of a line that are shown."""
KEY = "..."
"""The text that is shown for the key that decides which rows of a unit are kept."""
Types = Mapping[str, str]
"""The native types of columns by name, where somebody has looked."""


def describe_placement(
    table: Table,
    sets: Sequence[Sequence[AnyResolution]] | None,
    units: bool,
    types: Types,
) -> Iterator[tuple[str, str]]:
    """Yield what a forecast says of where the rows of a table are, and of what is run there.

    ``sets`` are what is counted of the table itself, None where a relation is made of its rows.
    """
    name = table.source.partition("://")[2]
    codes = _codes(table, name, types)
    if codes is None:
        return
    is_counted = sets is not None and table.is_pushed
    counted = [] if sets is None or not is_counted else sets
    shown = dict.fromkeys(key for each in counted for one in each for key in one.columns)
    how = "counted in" if is_counted else "read from"
    kept = "; codes of its rows are kept" if is_counted else ""
    yield "rows", f"{table.name}: {how} {table.engine}, {name}{kept}"
    for key in shown if is_counted else codes.columns:
        yield "", _short(codes.said_of(key, is_counted))
    if table.unit.column is not None:
        yield "", _short(codes.said_of_owner(is_counted))
    by_unit = units and table.unit.column is not None
    for resolutions in counted:
        group = group_sql(codes.dialect, resolutions, codes.columns, by_unit)
        yield "", _short(group.select(codes.dialect, "codes"))


def _codes(table: Table, relation: str, types: Types) -> CodeSql | None:
    """The codes of a table, whose columns have the usual types where nobody has looked.

    None where the dialect is not known.
    """
    known = find_dialect(table)
    if known is None:
        return None
    dialect, family_of = known
    found = {
        each.name: dialect.usual.get(each.type, each.type) for each in declared(table).values()
    }
    found |= {name: types.get(name.casefold(), stored) for name, stored in found.items()}
    asked = [
        (ask(each, each.name, family_of(found[each.name])), found[each.name])
        for each in declared(table).values()
    ]
    unit, owner = table.unit.column, None
    if unit is not None:
        stored = types.get(unit.casefold(), dialect.usual.get("text", "text"))
        owner = dialect.owner(f"t.{dialect.identifier(unit)}", stored)
    return CodeSql(table, dialect, relation, asked, owner, KEY)


def _short(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
