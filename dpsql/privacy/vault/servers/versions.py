"""The version of a table that lives on a server: stated by the curator, or the clock's alone.

Guarantee: it is no function of the data. Whether a repetition is free says nothing of them.
"""

from __future__ import annotations

import datetime as dt

from dpsql.catalog.catalog import SERVERS, Table
from dpsql.catalog.domain import floor_period
from dpsql.relation.unit_local import DerivedTable

REFRESH = "day"
"""Period after which a table of a server counts as a new version, where none is declared."""


def stated_version(table: Table) -> str | None:
    """Return what the catalog or the clock says of the version of a table, None for others.

    >>> from dpsql.catalog.catalog import Unit
    >>> options = (("engine", "postgresql"), ("table", "visits"), ("version", "2026-11"))
    >>> stated_version(Table("visits", "postgresql://visits", Unit(), {}, options=options))
    'version 2026-11'
    """
    options = dict(table.options)
    stated, refresh = options.get("version"), options.get("refresh")
    if stated is not None:
        return f"version {stated}"
    if refresh is None and table.engine not in SERVERS:
        return None
    when = now().replace(tzinfo=None)
    return f"{floor_period(when, refresh or REFRESH).isoformat()} {refresh or REFRESH}"


def now() -> dt.datetime:
    """Return the time of the clock, in UTC."""
    return dt.datetime.now(dt.UTC)


def stated_versions(table: Table) -> list[str | None]:
    """Return what is stated of a table's version, or of those that its relation is over."""
    bases = table.bases if isinstance(table, DerivedTable) else (table,)
    return [stated_version(base) for base in bases]
