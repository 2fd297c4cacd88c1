"""Parquet and Arrow files; pyarrow is optional and imported only here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

from dpsql.ui.grid import Grid


def arrow_table(grid: Grid) -> Any:
    """Return the grid as an Arrow table; integers beyond 64 bits become doubles.

    Lists are of what they hold.
    """
    types = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "text": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "boolean": pa.bool_(),
    }
    arrays = [
        _array([row[j] for row in grid.rows], types.get(kind)) for j, kind in enumerate(grid.types)
    ]
    return pa.Table.from_arrays(arrays, names=list(grid.columns))


def _array(values: list[object], kind: Any) -> Any:
    if kind == pa.int64() and not all(_fits(value) for value in values):
        kind = pa.float64()
    if kind == pa.float64():
        values = [None if value is None else float(str(value)) for value in values]
    return pa.array(values, type=kind)


def _fits(value: object) -> bool:
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**63)


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
