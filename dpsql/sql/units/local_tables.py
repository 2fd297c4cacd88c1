"""Relations of privacy units as tables in FROM."""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.errors import ProgrammingError, Span
from dpsql.relation.derive import derive
from dpsql.relation.unit_local import DerivedTable, Scan, UnitLocal


def relation_of(table: Table) -> UnitLocal:
    """The rows of a table before they are bounded."""
    return table.relation if isinstance(table, DerivedTable) else Scan(table.name.casefold())


def named_source(name: str, alias: str) -> exp.Table:
    """A table of the catalog in FROM, by the exact names of itself and its alias."""
    source = exp.Table(this=exp.to_identifier(name, quoted=True))
    source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return source


def table_of(
    catalog: Catalog, relation: UnitLocal, label: str, most: int | None, span: Span
) -> DerivedTable:
    """The table of a relation; what it is refused for is shown at ``span``.

    Raises: ProgrammingError (E_JOIN, E_TOO_LARGE).
    """
    try:
        return derive(catalog, relation, label, most)
    except ProgrammingError as error:
        error.span = error.span or span
        raise
