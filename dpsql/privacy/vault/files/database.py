"""The tables and views of a DuckDB file, which is attached as ``source``."""

from __future__ import annotations

import duckdb

from dpsql.privacy.vault.data_engine import unavailable
from dpsql.records import dataclass

RELATIONS = """
SELECT schema_name, table_name, FALSE FROM duckdb_tables() WHERE database_name = 'source'
UNION ALL SELECT schema_name, view_name, TRUE FROM duckdb_views()
WHERE database_name = 'source' AND NOT internal ORDER BY ALL
"""


def quote(name: str) -> str:
    """Quote an identifier.

    >>> quote('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a view of a schema."""

    schema: str
    name: str
    is_view: bool

    @property
    def shown(self) -> str:
        """The name in a catalog, with the schema only where it is not main."""
        return self.name if self.schema == "main" else f"{self.schema}.{self.name}"

    @property
    def sql(self) -> str:
        """The name in SQL."""
        return f"source.{quote(self.schema)}.{quote(self.name)}"


def list_relations(connection: duckdb.DuckDBPyConnection) -> list[Relation]:
    """Return the tables and views of the attached file, by schema and name."""
    return [Relation(*row) for row in connection.execute(RELATIONS).fetchall()]


def find_relation(
    connection: duckdb.DuckDBPyConnection, source: str, table: str, named: str, is_vouched: bool
) -> Relation:
    """Return what a catalog means: what it names, else the table of this name, else the only one.

    A view counts only where the curator vouches for it.
    Raises: DataUnavailable (E_DATA), naming table and source.
    """
    found = list_relations(connection)
    tables = [each for each in found if each.schema == "main" and not each.is_view]
    if named:
        for each in found:
            if named.casefold() in (f"{each.schema}.{each.name}".casefold(), each.shown.casefold()):
                return _vouched(each, source, table, is_vouched)
        unavailable(table, source, f"the DuckDB file holds no table or view {named!r}")
    for each in tables:
        if each.name.casefold() == table.casefold():
            return each
    if len(tables) == 1:
        return tables[0]
    hint = 'name it: source = { file = "shop.duckdb", table = "sales.orders" }'
    unavailable(table, source, "the DuckDB file holds no table of that name", hint)


def _vouched(relation: Relation, source: str, table: str, is_vouched: bool) -> Relation:
    if relation.is_view and not is_vouched:
        hint = "view = true vouches that each of its rows follows from rows of its own privacy unit"
        unavailable(table, source, f"{relation.shown!r} is a view", hint)
    return relation
