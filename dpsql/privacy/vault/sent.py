"""What a server will be sent for a plan: public, since it is written from the catalog alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.group_sql import group_sql
from dpsql.privacy.vault.rows import declared
from dpsql.privacy.vault.servers import find_dialect
from dpsql.workload.cells import AnyResolution

LONGEST = 600
"""Characters of a statement that are shown."""


def said_of(
    table: Table, sets: Sequence[Sequence[AnyResolution]] | None, units: bool
) -> Iterator[tuple[str, str]]:
    """Yield what a forecast says of where the rows of a table are, and of what is run there.

    ``sets`` are what is counted of the table itself, None where a relation is made of its rows.
    """
    name = table.source.partition("://")[2]
    if sets is None or not table.is_pushed:
        yield "rows", f"{table.name}: read from {table.engine}, {name}"
        return
    yield "rows", f"{table.name}: counted in {table.engine}, {name}; codes of its rows are kept"
    dialect = find_dialect(str(table.engine))
    columns = {key: (i, each) for i, (key, each) in enumerate(declared(table).items())}
    by_unit = units and table.unit.column is not None
    for resolutions in sets:
        found = group_sql(dialect, resolutions, columns, by_unit).select(dialect, "codes")
        yield "", found if len(found) <= LONGEST else f"{found[:LONGEST]} ..."
