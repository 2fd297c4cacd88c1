"""Parquet and Arrow files; pyarrow is optional and imported only here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

from dpsql.answer.dataframes import FrameColumn
from dpsql.answer.dataframes import arrow_table as table_of
from dpsql.ui.grid import Grid


def arrow_table(grid: Grid) -> Any:
    """Return the grid as an Arrow table."""
    names = zip(grid.columns, grid.types, strict=True)
    return table_of(
        FrameColumn(name, kind, values)
        for (name, kind), values in zip(names, grid.vectors, strict=True)
    )


def encode_parquet(grid: Grid) -> bytes:
    """Return a zstd Parquet file."""
    sink = pa.BufferOutputStream()
    parquet.write_table(arrow_table(grid), sink, compression="zstd")
    return bytes(sink.getvalue())


def encode_arrow(grid: Grid) -> bytes:
    """Return an Arrow IPC file (Feather version 2)."""
    table, sink = arrow_table(grid), pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
