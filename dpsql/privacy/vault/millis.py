"""Parquet timestamps in milliseconds, read by pyarrow as they are stored, given in microseconds.

Guarantee: every function of values is elementwise, and none raises for any of the 2^64 that a
column can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpsql.privacy.vault.data_engine import Counts

INFINITE = (1 << 63) - 1
"""The microseconds that DuckDB takes for an infinite instant, which no column and no unit has."""
PER_UNIT = {"ms": 1000, "us": 1}
ROWS = 1 << 16
"""Rows that are read at once."""


def read_millis(paths: Sequence[str], columns: Sequence[tuple[str, str]]) -> Any:
    """Return a reader of Arrow batches with all rows of some instants, in stored order.

    ``columns`` are their names and DuckDB types. Raises: ValueError for other than instants in
    milliseconds or microseconds.
    """
    import pyarrow as pa  # pyarrow is optional

    types = [pa.timestamp("us", "UTC" if stored != "TIMESTAMP" else None) for _, stored in columns]
    schema = pa.schema([(name, each) for (name, _), each in zip(columns, types, strict=True)])
    return pa.RecordBatchReader.from_batches(schema, _batches(paths, schema))


def in_micros(stored: Counts, per_unit: int) -> Counts:
    """Return microseconds (rows,) of stored instants (rows,), INFINITE where they do not fit.

    >>> in_micros(np.array([-1, 2**62, -(2**63), 9_223_372_036_854_775]), 1000).tolist()[:2]
    [-1000, 9223372036854775807]
    """
    if per_unit == 1:
        return stored
    limit = INFINITE // per_unit
    fits = (stored >= -limit) & (stored <= limit)
    return np.where(fits, np.where(fits, stored, 0) * per_unit, INFINITE)


def _batches(paths: Sequence[str], schema: Any) -> Iterator[Any]:
    import pyarrow as pa  # pyarrow is optional
    from pyarrow import parquet

    for path in paths:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS, columns=schema.names, use_threads=False):
                arrays = [_read(batch.column(each.name), each.type) for each in schema]
                yield pa.record_batch(arrays, schema)


def _read(stored: Any, wanted: Any) -> Any:
    import pyarrow as pa  # pyarrow is optional

    if not pa.types.is_timestamp(stored.type) or stored.type.unit not in PER_UNIT:
        raise ValueError("not an instant in milliseconds")
    missing = stored.is_null().to_numpy(zero_copy_only=False)
    numbers = stored.view(pa.int64()).fill_null(0).to_numpy()
    micros = in_micros(numbers, PER_UNIT[stored.type.unit])
    return pa.array(micros, pa.int64(), mask=missing).view(wanted)
