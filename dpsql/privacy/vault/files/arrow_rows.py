"""Rows as batches of Arrow, and the one conversion of their values to what DuckDB fetches.

Whoever can hand over batches of Arrow, a format of files or the engine of another package, is read
by :class:`dpsql.privacy.vault.files.source.Source` as Parquet is.

Guarantee: every conversion is elementwise and total: no value that a type can hold fails, nor does
any take other steps than others of its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpsql.catalog.delimited import Delimited
from dpsql.interrupts import check
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files.timestamps import in_micros, of_day
from dpsql.records import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1 << 16
"""Rows that are handed over at once, at most, by the formats here."""
NO_DAY = (1 << 31) - 1
"""The day that DuckDB takes for infinite, which no column and no unit has."""
REPLACED = "\ufffd"
"""The character that stands for bytes that are not UTF-8; a text with it tells no unit."""
DIGITS = 38
"""The most digits of a decimal."""


class ArrowRows(Protocol):
    """The rows of a file, or of a table of another package, as batches of Arrow."""

    @property
    def schema(self) -> pa.Schema:
        """The names and types of all columns: from what describes the rows, and from no row."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of these names, in this order, of all rows in stored order.

        Guarantee: what is yielded of a row is a function of that row alone. Raises: anything where
        rows cannot be read; an OSError for a file that is damaged.
        """


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of files: the module that reads it, the package that this needs, and its extra.

    ``untyped`` says that its columns are text whatever they hold.
    """

    module: str
    package: str
    extra: str
    untyped: bool = False


FORMATS = {
    "arrow": FileFormat("arrow_files", "pyarrow", "arrow"),
    "orc": FileFormat("arrow_files", "pyarrow", "arrow"),
    "spss": FileFormat("stat_files", "pyreadstat", "stats"),
    "stata": FileFormat("stat_files", "pyreadstat", "stats"),
    "sas": FileFormat("stat_files", "pyreadstat", "stats"),
    "sheet": FileFormat("sheets", "python_calamine", "sheets", untyped=True),
    "sqlite": FileFormat("sqlite_files", "pyarrow", "arrow", untyped=True),
    "json": FileFormat("json_lines", "pyarrow", "arrow", untyped=True),
}
"""Formats that are read as Arrow, by the kind of a file."""


def open_rows(kind: str, path: str, named: str, written: Delimited) -> ArrowRows:
    """Open a file of a format.

    Args:
        kind: the name of the format, one of ``FORMATS``.
        path: where it is.
        named: the table or sheet that is meant; empty where the file has one alone.
        written: its declared encoding, header and words for what is missing.

    Raises: Unreadable, OSError.
    """
    found: ArrowRows = _module(kind).open_file(path, named, written)
    names = found.schema.names
    for i, name in enumerate(names):
        if name in names[:i]:
            raise Unreadable(f"two columns are called {name!r}", "rename one of them")
    return found


def list_tables(kind: str, path: str) -> list[str]:
    """Return the tables or sheets that a file of a format holds; one without name for most.

    Raises: Unreadable, OSError.
    """
    found = getattr(_module(kind), "list_tables", None)
    return [""] if found is None else list(found(path))


def _module(kind: str) -> Any:
    """Import what reads files of a kind. Raises: Unreadable where a package is missing."""
    form = FORMATS[kind]
    for package in ("pyarrow", form.package):
        if find_spec(package) is None:  # asks without importing it
            problem = f"{kind} files are read by the package {package}, which is missing"
            raise Unreadable(problem, f"pip install 'dpsql[{form.extra}]'")
    return import_module(f"dpsql.privacy.vault.formats.{form.module}")


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types in which DuckDB is handed columns, which are called f0, f1, ...

    Columns of types that are not read have the type of NULL.
    """
    import pyarrow as pa  # pyarrow is optional

    return pa.schema([(f"f{i}", plain_type(each.type)) for i, each in enumerate(schema)])


def plain_type(stored: pa.DataType) -> pa.DataType:
    """Return the plain type of a column; that of NULL where it is not read."""
    import pyarrow as pa  # pyarrow is optional

    kinds = pa.types
    if kinds.is_dictionary(stored) or kinds.is_run_end_encoded(stored):
        return plain_type(stored.value_type)
    if kinds.is_integer(stored) or kinds.is_boolean(stored) or kinds.is_float64(stored):
        return stored
    if kinds.is_floating(stored):
        return pa.float32()
    if kinds.is_decimal(stored) and stored.precision <= DIGITS and 0 <= stored.scale <= DIGITS:
        return pa.decimal128(DIGITS, stored.scale)
    if kinds.is_string(stored) or kinds.is_large_string(stored) or kinds.is_string_view(stored):
        return pa.large_string()
    if kinds.is_binary(stored) or kinds.is_large_binary(stored) or kinds.is_binary_view(stored):
        return pa.large_binary()
    if kinds.is_fixed_size_binary(stored):
        return pa.large_binary()
    if kinds.is_date(stored):
        return pa.date32()
    if kinds.is_time(stored):
        return pa.time64("us")
    if kinds.is_timestamp(stored):
        return pa.timestamp("ns") if _is_kept(stored) else pa.timestamp("us", stored.tz and "UTC")
    return pa.null()


def plain_batches(
    rows: ArrowRows, names: Sequence[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield columns of all rows in the plain types of ``schema``.

    Args:
        rows: the file or table.
        names: the columns that are yielded, in this order.
        schema: the stored types of all columns.

    Raises: ValueError for batches whose types are not those that were told; what ``rows`` raises.
    """
    import pyarrow as pa  # pyarrow is optional

    for batch in rows.batches(names):
        check()
        if [plain_type(each.type) for each in batch.schema] != schema.types:
            raise ValueError("a batch has other types than its table")
        yield pa.record_batch([plain_values(each) for each in batch.columns], schema)


def plain_values(stored: pa.Array) -> pa.Array:
    """Return the values of a column (rows,) in its plain type.

    Days, instants and times of day beyond what DuckDB holds become values that no column has. Bytes
    of texts that are not UTF-8 become REPLACED.
    """
    import pyarrow as pa  # pyarrow is optional

    kinds, wanted = pa.types, plain_type(stored.type)
    if kinds.is_dictionary(stored.type):
        return plain_values(stored.dictionary.take(stored.indices))  # checks them
    if kinds.is_run_end_encoded(stored.type):
        return plain_values(pa.compute.run_end_decode(stored))
    if wanted == pa.null():
        return pa.nulls(len(stored))
    if kinds.is_large_string(wanted) or kinds.is_large_binary(wanted):
        return _plain_texts(stored, wanted)
    if kinds.is_decimal(wanted):
        return _plain_decimals(stored, wanted)
    if stored.type == wanted and not kinds.is_time(wanted):
        return stored
    if kinds.is_floating(wanted):
        return stored.cast(wanted)
    width = pa.int32() if stored.type.bit_width == 32 else pa.int64()
    numbers = stored.view(width).fill_null(0).to_numpy().astype(np.int64)
    missing = stored.is_null().to_numpy(zero_copy_only=False)
    if kinds.is_date(wanted):
        # Arrow's date64 counts milliseconds.
        days = numbers // 86_400_000
        days = np.where((days > -NO_DAY) & (days < NO_DAY), days, NO_DAY).astype(np.int32)
        return pa.array(days, pa.int32(), mask=missing).view(wanted)
    if kinds.is_time(wanted):
        numbers = of_day(numbers, stored.type.unit)
    elif stored.type.unit == "ns":
        numbers = numbers // 1000
    else:
        numbers = in_micros(numbers, {"s": 10**6, "ms": 10**3, "us": 1}[stored.type.unit])
    return pa.array(numbers, pa.int64(), mask=missing).view(wanted)


def _is_kept(stored: Any) -> bool:
    """True for instants in nanoseconds on a clock, which DuckDB has; on others it has none."""
    return stored.unit == "ns" and stored.tz is None


def _plain_decimals(stored: Any, wanted: Any) -> Any:
    """Decimals of most digits, whatever bits a writer left in those of fewer."""
    import pyarrow as pa  # pyarrow is optional

    if stored.type.bit_width < wanted.bit_width:
        return stored.cast(wanted)
    return pa.Array.from_buffers(wanted, len(stored), stored.buffers(), offset=stored.offset)


def _plain_texts(stored: Any, wanted: Any) -> Any:
    """Texts each of which is decoded by itself, or bytes."""
    import pyarrow as pa  # pyarrow is optional

    kind = pa.binary() if pa.types.is_string(stored.type) else None
    kind = pa.large_binary() if pa.types.is_large_string(stored.type) else kind
    kind = pa.binary_view() if pa.types.is_string_view(stored.type) else kind
    raw = stored if kind is None else stored.view(kind)
    raw.validate(full=True)  # lengths and ends alone: of bytes all are valid
    if pa.types.is_large_binary(wanted):
        return raw.cast(wanted)
    return pa.array(list(map(decoded, raw.to_pylist())), wanted)


def decoded(raw: bytes | None) -> str | None:
    """Return bytes as a text, with REPLACED for those that are not UTF-8."""
    return None if raw is None else raw.decode("utf-8", "replace")
