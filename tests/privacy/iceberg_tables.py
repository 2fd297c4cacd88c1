"""Iceberg tables as pyiceberg leaves them: appended to, overwritten, deleted from, partitioned."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.privacy.delta_tables import Row, arrow, rows_of


def create(here: Path, schema: pa.Schema | None = None, name: str = "t") -> Any:
    """Create a table without rows in the folder db/NAME."""
    from pyiceberg.catalog.sql import SqlCatalog  # an extra

    catalog = SqlCatalog("c", uri=f"sqlite:///{here}/catalog.db", warehouse=str(here))
    catalog.create_namespace_if_not_exists("db")
    return catalog.create_table(f"db.{name}", schema=schema or arrow([]).schema)


SCHEMA = pa.schema([("who", pa.string()), ("ward", pa.string()), ("age", pa.int64())])


def rows_in(rows: list[Row]) -> pa.Table:
    """Return rows with the types of a table, whatever they are."""
    return arrow(rows).cast(SCHEMA) if rows else SCHEMA.empty_table()


def written(here: Path, seed: int, changes: int) -> dict[int, list[Row]]:
    """Write a table, and return the rows of every snapshot."""
    chosen = random.Random(seed)
    table = create(here, SCHEMA)
    found: dict[int, list[Row]] = {}
    rows: list[Row] = []
    for i in range(changes):
        what = "append" if i == 0 else chosen.choice(["append", "append", "overwrite", "delete"])
        more = rows_of(chosen, chosen.randint(5, 9))
        if what == "append":
            table.append(rows_in(more))
            rows = [*rows, *more]
        elif what == "overwrite":
            table.overwrite(rows_in(more))
            rows = more
        else:
            gone = rows[0][2]
            table.delete(f"age = {gone}")
            rows = [row for row in rows if row[2] != gone]
        found[table.current_snapshot().snapshot_id] = rows
    return found
