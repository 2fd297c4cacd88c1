"""Parquet instants in milliseconds or 96 bits, and times of day: read by pyarrow, in microseconds.

Guarantee: every function of values is elementwise, and none raises for any of those that a column
can hold: 2^64, or 2^96.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpsql.privacy.vault.data_engine import Counts

INFINITE = (1 << 63) - 1
"""The microseconds that DuckDB takes for an infinite instant, which no column and no unit has."""
PER_UNIT = {"ms": 1000, "us": 1}
MIDNIGHT = 86_400_000_000
"""The microseconds that stand for a time of day that is none: where the day ends."""
ROWS = 1 << 16
"""Rows that are read at once."""


def read_instants(paths: Sequence[str], columns: Sequence[tuple[str, str]]) -> Any:
    """Return a reader of Arrow batches with all rows of some instants, in stored order.

    ``columns`` are their names and DuckDB types. Raises: ValueError for other than instants in
    milliseconds, microseconds or 96 bits and times of day.
    """
    import pyarrow as pa  # pyarrow is optional

    schema = pa.schema([(name, _wanted(stored)) for name, stored in columns])
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


def of_day(stored: Counts, unit: str) -> Counts:
    """Return microseconds since midnight (rows,) of stored times of day (rows,).

    What lies outside the day is where it ends, which no column and no unit has.

    >>> of_day(np.array([0, 86_399_999, 86_400_000, -1, 2**62]), "ms").tolist()
    [0, 86399999000, 86400000000, 86400000000, 86400000000]
    """
    of_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    fits = (stored >= 0) & (stored < 86_400 * of_second)
    micros = np.where(fits, stored, 0) * 10**6 // of_second if unit != "ns" else stored // 1000
    return np.where(fits, micros, MIDNIGHT)


def _wanted(stored: str) -> Any:
    """The Arrow type in which DuckDB is handed a column of one of its types."""
    import pyarrow as pa  # pyarrow is optional

    if stored.startswith("TIMESTAMP"):
        return pa.timestamp("us", "UTC" if stored != "TIMESTAMP" else None)
    return pa.time64("us")


def _batches(paths: Sequence[str], schema: Any) -> Iterator[Any]:
    import pyarrow as pa  # pyarrow is optional

    for path in paths:
        # Microseconds wrap around where an instant of 96 bits is far away; milliseconds do not.
        units = ("us", "ms") if _has_old(path, schema.names) else ("us",)
        for parts in zip(*(_parts(path, schema.names, each) for each in units), strict=True):
            columns = zip(*(part.columns for part in parts), strict=True)
            arrays = [
                _read(each.type, *stored) for each, stored in zip(schema, columns, strict=True)
            ]
            yield pa.record_batch(arrays, schema)


def _has_old(path: str, names: Sequence[str]) -> bool:
    """True if some of a file's columns are instants of 96 bits."""
    from pyarrow import parquet  # pyarrow is optional

    with parquet.ParquetFile(path) as file:
        columns = [file.schema.column(i) for i in range(len(file.schema))]
    return any(each.physical_type == "INT96" for each in columns if each.path in names)


def _parts(path: str, names: Sequence[str], unit: str) -> Iterator[Any]:
    """The rows of some columns in batches, those of 96 bits in a unit."""
    from pyarrow import parquet  # pyarrow is optional

    with parquet.ParquetFile(path, coerce_int96_timestamp_unit=unit) as file:
        for batch in file.iter_batches(ROWS, columns=names, use_threads=False):
            yield batch.select(names)


def _read(wanted: Any, stored: Any, again: Any = None) -> Any:
    """One column (rows,) in microseconds; ``again`` are the same instants in a unit that holds all.

    Raises: ValueError for what is neither an instant nor a time of day.
    """
    import pyarrow as pa  # pyarrow is optional

    missing = stored.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_time(stored.type) and pa.types.is_time(wanted):
        width = pa.int32() if pa.types.is_time32(stored.type) else pa.int64()
        numbers = stored.view(width).fill_null(0).to_numpy().astype(np.int64)
        micros = of_day(numbers, stored.type.unit)
    elif pa.types.is_timestamp(stored.type) and stored.type.unit in PER_UNIT:
        numbers = stored.view(pa.int64()).fill_null(0).to_numpy()
        micros = in_micros(numbers, PER_UNIT[stored.type.unit])
        if again is not None and again.type != stored.type:
            rough = again.view(pa.int64()).fill_null(0).to_numpy()
            micros = np.where(in_micros(rough, PER_UNIT["ms"]) == INFINITE, INFINITE, micros)
    else:
        raise ValueError("neither an instant in milliseconds nor a time of day")
    return pa.array(micros, pa.int64(), mask=missing).view(wanted)
