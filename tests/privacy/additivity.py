"""Random tables of hostile values, and the check that their rows are counted one by one.

The vector of a table must be the sum of the vectors of its parts: of its halves, of its single
rows, and, where the privacy unit is a column, of the rows of each group of units.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.delimited import PLAIN, Delimited
from dpsql.catalog.domain import (
    Bins,
    BoundedBins,
    DecimalRange,
    IntegerRange,
    Labels,
    Periods,
    Spans,
    Times,
    Values,
)
from dpsql.privacy.vault.data_engine import Counts
from dpsql.privacy.vault.files import source as source_module
from dpsql.privacy.vault.files.database import find_relation
from dpsql.privacy.vault.files.duckdb import FileTable, fetch_rows
from dpsql.privacy.vault.files.source import connect
from dpsql.privacy.vault.stored_rows import ask_all
from dpsql.privacy.vault.unit.rows import Rows, line_up, load_rows, tally, view
from dpsql.privacy.vault.unit.unit_numbers import Digest
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution, Nodes, cells_of

SALT = "00112233445566778899aabbccddeeff"
DAY = 86_400 * 10**6
NEW_YEAR = 19_723
"""2024-01-01, in days since 1970."""

FLOATS: list[Any] = [
    *[None, math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324, -5e-324, -0.0, 0.0, 0.5, 2.5],
    *[3.0, 7.0, 10.0, 10.000000000000002, 9007199254740994.0, 1e19, -1e19, 2.0**63],
]
INTEGERS: list[Any] = [
    *[None, 0, 1, -1, 2, 3, 7, 10, 11, -128, 127, 255, 2**31 - 1, -(2**31), 2**53 + 1],
    *[2**63 - 1, -(2**63), -(2**63) + 1, 2**64 - 1, 2**100, -(2**100)],
]
DAYS: list[Any] = [
    *[None, 0, -1, NEW_YEAR - 1, NEW_YEAR, NEW_YEAR + 59, NEW_YEAR + 365, NEW_YEAR + 366],
    *[2**31 - 1, -(2**31), -(2**31) + 1, 2**31 - 2, 2_932_896, 2_932_897, -719_529],
]
TEXTS: list[Any] = [
    *[None, b"", b"A", b"B", b"a", b"A ", b" A", b"A\x00", b"?", b"\xff", b"A\xff", b"\xc3"],
    *["\u00e9".encode(), "e\u0301".encode(), b"\xed\xa0\x80", b"nan", b"1", b"A" * 300, b"'"],
]
LINES: list[Any] = [
    *[b"A,1", b"B,2.5", b"A,", b",1", b",", b"", b"A", b"A,1,2", b'"A",1', b'"A,1', b'A,"1'],
    *[b'"A","3"', b'""', b'"', b'"A"x,1', b'A,"', b"A\x00,1", b"\x00", b"\xff,1", b"A,\xff"],
    *[b"A,1\r", b"A\r,1", b"\r", b'"A\r",1', b"A,nan", b"A,inf", b"A,1e999", b"A,x", b"B, 2 "],
    *[b"A,1_0", b"A,0x1", b"\xef\xbb\xbfA,1", b'"A"",1', b'A,"1""', b"\\A,1", b"A\\,1", b'\\",1'],
    *[b"A," + b"9" * 400, b"A" * 3000 + b",1", b"A;1", b"#A,1", b"NULL,NULL", b"A,-0.0"],
]
SPELLED: list[Any] = [
    *[b"1.234,5;A", b"1,234.5;A", b"-99;B", b"NA;NA", b"5 %;A", b"\x80 5;B", b"-1;?", b"1e1;A"],
    *[b"1.2.2024;A", b"31.12.24;A", b"30.2.2024;B", b"01.03.2024 12:30;A", b"\x02;A", b";"],
    *[b'"1.000";B', b"1.00;A", b",5;A", b"2024-01-01;A", b"\x811;A", b"\xe9;\xe9", b"inf;A"],
]
WRITTEN = (
    *(PLAIN, PLAIN, Delimited(delimiter=";", missing=("NA", "-99"))),
    Delimited(";", "cp1252", ",", ".", ("%d.%m.%Y", "%d.%m.%Y %H:%M"), currency=("\u20ac",)),
    Delimited(";", "utf-16", ",", percent=True, dates=("%d.%m.%y",), skip=1),
    Delimited("|", "iso8859-1", header=("c", "w"), thousands=",", missing=("NA",)),
)
NUMBERS = {
    "bins": Column("c", "number", Bins((Fraction(-1), Fraction(0), Fraction(5, 2), Fraction(10)))),
    "bins null": Column("c", "number", Bins((Fraction(0), Fraction(10**19))), null=True),
    "bins bounded": Column("c", "number", BoundedBins((Fraction(-1), Fraction(2), Fraction(10)))),
    "bins wide": Column("c", "number", Bins((Fraction(0), Fraction(10) ** 300))),
    "range": Column("c", "integer", IntegerRange(-2, 3)),
    "range other null": Column("c", "integer", IntegerRange(0, 10), None, True, 99),
    "listed": Column("c", "integer", Values((7, 0, 2**53 - 1)), None, True),
    "labels": Column("c", "text", Labels(("seven", "none"), (7, 0)), None, True),
    "decimals": Column("c", "decimal", DecimalRange(Decimal(-1), Decimal("0.5"), 23), None, True),
    "decimal list": Column("c", "decimal", Values((Decimal("2.5"), Decimal(0), Decimal(10)))),
    "bounds": Column("c", "number", None, (Fraction(0), Fraction(10))),
    "bounds null": Column("c", "number", None, (Fraction(-3), Fraction(10**15)), True),
}
DATES = {
    unit: Column("c", "date", Periods(dt.date(2024, 1, 1), unit, count), None, unit == "week")
    for unit, count in (("day", 60), ("week", 9), ("month", 12), ("quarter", 4), ("year", 2))
}
DATES |= {
    "two weeks": Column(
        "c", "date", Spans(dt.date(2024, 1, 1), "week", 5, 2), None, True, dt.date.max
    )
}
CLOCKS = {
    f"{every} {unit}": Column(
        "c", "timestamp", Spans(dt.datetime(2024, 1, 1), unit, count, every, zone), None, every == 1
    )
    for unit, count, every, zone in (
        *(("hour", 30, 1, "UTC"), ("minute", 99, 15, "Europe/Berlin"), ("day", 60, 1, "UTC")),
        *(("week", 2, 2, "America/New_York"), ("month", 3, 5, "Asia/Kathmandu")),
    )
}
TIMES = {
    f"{every} {unit}s": Column(
        "c", "time", Times(dt.datetime(1970, 1, 1, hour), unit, count, every), None, every == 1
    )
    for hour, unit, count, every in ((0, "hour", 24, 1), (8, "minute", 40, 15))
}
WORDS = {
    "text": Column("c", "text", Values(("A", "\u00e9", "?"))),
    "labels of texts": Column("c", "text", Labels(("one", "two"), ("A", "\u00e9")), None, True),
    "text other": Column("c", "text", Values(("B", "", "A")), other="Z"),
    "text null": Column("c", "text", Values(("a", "A ")), None, True, "Z"),
}
FLAGS = {"boolean": Column("c", "boolean", Values((True, False)), None, True)}


@dataclass(frozen=True, slots=True)
class Kind:
    """A stored type: how Arrow and DuckDB call it, its values and the columns it may serve."""

    arrow: Any
    sql: str
    values: Sequence[Any]
    columns: dict[str, Column]


def _within(low: int, high: int) -> list[Any]:
    return [None, *(each for each in INTEGERS if each is not None and low <= each <= high)]


def _instants(per_day: int) -> list[Any]:
    days = [each for each in DAYS if each is not None]
    near = [day * per_day + more for day in days for more in (-1, 0, 1, per_day // 2)]
    extreme = [2**63 - 1, -(2**63), -(2**63) + 1, 2**62]
    return [None, *(each for each in [*near, *extreme] if abs(each) <= 2**63 - 1)]


def _times(of_second: int) -> list[Any]:
    day, end = 86_400 * of_second, 2**31 if of_second == 1000 else 2**63
    ordinary = [hour * 3600 * of_second for hour in (0, 8, 9, 18)]
    return [None, *ordinary, ordinary[1] - 1, day - 1, day, day + 1, -1, end - 1, -end]


KINDS = {
    "double": Kind(pa.float64(), "DOUBLE", FLOATS, NUMBERS),
    "float": Kind(pa.float32(), "FLOAT", FLOATS, NUMBERS),
    "tiny": Kind(pa.int8(), "TINYINT", _within(-128, 127), NUMBERS | FLAGS),
    "int": Kind(pa.int32(), "INTEGER", _within(-(2**31), 2**31 - 1), NUMBERS),
    "big": Kind(pa.int64(), "BIGINT", _within(-(2**63), 2**63 - 1), NUMBERS | FLAGS),
    "unsigned": Kind(pa.uint64(), "UBIGINT", _within(0, 2**64 - 1), NUMBERS),
    "huge": Kind(None, "HUGEINT", INTEGERS, NUMBERS | FLAGS),
    "decimal": Kind(pa.decimal128(38, 0), "DECIMAL(38,0)", INTEGERS, NUMBERS),
    "cents": Kind(pa.decimal128(38, 2), "DECIMAL(38,2)", _within(-(10**34), 10**34), NUMBERS),
    "boolean": Kind(pa.bool_(), "BOOLEAN", [None, True, False], FLAGS),
    "text": Kind(pa.string(), "VARCHAR", TEXTS, WORDS),
    "large text": Kind(pa.large_string(), "VARCHAR", TEXTS, WORDS),
    "dictionary": Kind(pa.dictionary(pa.int32(), pa.string()), "ENUM", TEXTS, WORDS),
    "date": Kind(pa.date32(), "DATE", DAYS, DATES | CLOCKS),
    "micros": Kind(pa.timestamp("us"), "TIMESTAMP", _instants(DAY), DATES | CLOCKS),
    "zoned": Kind(pa.timestamp("us", "UTC"), "TIMESTAMPTZ", _instants(DAY), DATES | CLOCKS),
    "millis": Kind(pa.timestamp("ms"), "TIMESTAMP_MS", _instants(DAY // 1000), DATES | CLOCKS),
    "zoned millis": Kind(pa.timestamp("ms", "UTC"), "", _instants(DAY // 1000), DATES | CLOCKS),
    "nanos": Kind(pa.timestamp("ns"), "TIMESTAMP_NS", _instants(DAY * 1000), DATES | CLOCKS),
    "zoned nanos": Kind(
        pa.timestamp("ns", "UTC"), "TIMESTAMPTZ_NS", _instants(DAY * 1000), DATES | CLOCKS
    ),
    "times": Kind(pa.time64("us"), "TIME", _times(10**6), TIMES),
    "times in millis": Kind(pa.time32("ms"), "TIME", _times(10**3), TIMES),
    "times in nanos": Kind(pa.time64("ns"), "TIME_NS", _times(10**9), TIMES),
    "seconds": Kind(pa.timestamp("s"), "TIMESTAMP_S", _instants(86_400), DATES | CLOCKS),
}
UNITS = (
    "text",
    "dictionary",
    "big",
    "double",
    "date",
    "micros",
    "millis",
    "decimal",
    "boolean",
    "huge",
)


TAME = [0.5, 2.5, 3.0, 7.0, 1, 2, 10, NEW_YEAR, NEW_YEAR + 59, b"A", b"B", True, False]
PARQUET = ("duckdb", "pyarrow", "polars", "spark")
WRITERS = (*PARQUET, "database", "csv")
ONLY = {
    "huge": ("duckdb", "database"),
    "seconds": ("database",),
    "millis": ("pyarrow", "polars", "spark", "database"),
    "zoned millis": ("pyarrow", "polars", "spark"),
    "times": ("pyarrow", "spark", "database"),
    "times in millis": ("pyarrow", "spark"),
    "times in nanos": ("pyarrow", "spark"),
}
"""Kinds that not everybody can write."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A random table: declared columns, their stored kinds, and rows of values.

    ``group`` numbers the units of the rows, so that rows of one unit have one number.
    """

    table: Table
    kinds: dict[str, str]
    rows: list[dict[str, Any]]
    writer: str
    seed: int
    written: Delimited = PLAIN

    def group(self, row: dict[str, Any]) -> Any:
        """Return what tells units apart, at least as coarsely as the vault does."""
        if "line" in row:
            return row["line"].replace(b'"', b"").split(self.cut)[0]
        return str(0.0 if row["who"] == 0 else row["who"])

    @property
    def cut(self) -> bytes:
        """The delimiter of lines."""
        return self.written.cut(self.table.source).encode()


def draw(seed: int, folder: Path, by_unit: bool, writers: Sequence[str] = WRITERS) -> Sample:
    """Draw a table of a few rows, whose columns have few different values."""
    random_ = random.Random(seed)
    writer = random_.choice(writers)
    unit = Unit("who", random_.randint(1, 3)) if by_unit else Unit()
    source = folder / {"database": "t.duckdb", "csv": "*.csv"}.get(writer, "*.parquet")
    size = random_.choice([2, 3, 4, 6, 9])
    if writer == "csv":
        written, dated = random_.choice(WRITTEN), [*DATES.values(), *CLOCKS.values()]
        kept = [*NUMBERS.values(), *WORDS.values(), *(dated if written.dates else [])]
        columns = {"c": random_.choice(kept), "w": WORDS["text"]}
        lines = random_.sample([*LINES, *(SPELLED if written != PLAIN else [])], 6)
        cut = written.cut(str(source)).encode()
        rows = [{"line": random_.choice(lines).replace(b";", cut)} for _ in range(size)]
        owner = Unit("c", unit.max_rows) if by_unit else unit
        table = Table("t", str(source), owner, _named(columns), options=written.options())
        return Sample(table, {}, rows, writer, seed, written)
    possible = [kind for kind in KINDS if writer in ONLY.get(kind, WRITERS)]
    often = [*possible, "double", "double", "float"]  # what statistics are most often wrong about
    kinds = {f"c{i}": random_.choice(often) for i in range(4)}
    columns = {
        name: random_.choice(list(KINDS[kind].columns.values())) for name, kind in kinds.items()
    }
    if by_unit:
        kinds["who"] = random_.choice([kind for kind in UNITS if kind in possible])
    pools = {name: _pool(random_, KINDS[kind]) for name, kind in kinds.items()}
    rows = [
        {name: random_.choice(pool) for name, pool in pools.items()}
        for _ in range(size * (3 if by_unit else 1))
    ]
    return Sample(Table("t", str(source), unit, _named(columns)), kinds, rows, writer, seed)


def _pool(random_: random.Random, kind: Kind) -> list[Any]:
    """Return a few values: mostly ordinary ones, for statistics to be of use, and some odd ones."""
    tame = [value for value in kind.values if value in TAME]
    ordinary = random_.choices(tame, k=random_.randint(0, 3)) if tame else []
    odd = random_.choices(kind.values, k=random_.randint(0, 2) if ordinary else 2)
    if kind.values is FLOATS and random_.random() < 0.5:  # what writers leave out of statistics
        odd = [math.nan, *random_.choices([math.inf, -math.inf, 1e300], k=random_.randint(0, 1))]
    return ordinary + odd


def _named(columns: dict[str, Column]) -> dict[str, Column]:
    return {name: replace(column, name=name) for name, column in columns.items()}


def arrow(kind: Kind, values: Sequence[Any], is_utf8: bool) -> pa.Array:
    """Return values as an Arrow array, bit for bit; text that is not UTF-8 only where allowed."""
    stored = kind.arrow
    if stored is None:
        return pa.array([None if v is None else str(v) for v in values], pa.string())
    if pa.types.is_floating(stored):
        with np.errstate(over="ignore"):
            numbers = np.array([0.0 if v is None else v for v in values], dtype=np.float64)
            numbers = numbers.astype(stored.to_pandas_dtype())
        return pa.array(numbers, stored, np.array([v is None for v in values], dtype=bool))
    if pa.types.is_date(stored):
        return pa.array(values, pa.int32()).view(stored)
    if pa.types.is_timestamp(stored) or pa.types.is_time64(stored):
        return pa.array(values, pa.int64()).view(stored)
    if pa.types.is_time32(stored):
        return pa.array(values, pa.int32()).view(stored)
    if pa.types.is_decimal(stored):
        return pa.array([None if v is None else Decimal(v) for v in values], stored)
    if not pa.types.is_boolean(stored) and not pa.types.is_integer(stored):
        return _text(stored, values, is_utf8)
    return pa.array(values, stored)


def _text(stored: Any, values: Sequence[Any], is_utf8: bool) -> pa.Array:
    if is_utf8:
        values = [None if v is None or not _is_utf8(v) else v for v in values]
    if pa.types.is_dictionary(stored):
        return pa.array(values, pa.binary()).view(pa.string()).dictionary_encode()
    if pa.types.is_large_string(stored):
        return pa.array(values, pa.large_binary()).view(stored)
    return pa.array(values, pa.binary()).view(stored)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def write(
    scribe: duckdb.DuckDBPyConnection,
    sample: Sample,
    rows: Sequence[dict[str, Any]],
    folder: Path,
    name: str,
) -> None:
    """Write some rows as a file of the sample's kind."""
    random_ = random.Random(sample.seed)
    if sample.writer == "csv":
        text = b"".join(row["line"] + b"\n" for row in rows)
        text = text if sample.written.header else b"c" + sample.cut + b"w\n" + text
        text = b"skipped\n" * sample.written.skip + text
        if sample.written.encoding == "utf-16":
            text = text.decode("latin-1").encode("utf-16")
        (folder / f"{name}.csv").write_bytes(text)
        return
    is_utf8 = sample.writer in ("duckdb", "database", "polars")
    frame = pa.table(
        {
            key: arrow(KINDS[kind], [row[key] for row in rows], is_utf8)
            for key, kind in sample.kinds.items()
        }
    )
    path, group = folder / f"{name}.parquet", random_.choice([1, 2, 1000])
    match sample.writer:
        case "pyarrow":
            pq.write_table(
                frame,
                path,
                row_group_size=group,
                use_dictionary=random_.random() < 0.5,
                write_statistics=random_.random() < 0.8,
                data_page_version=random_.choice(["1.0", "2.0"]),
                write_page_index=random_.random() < 0.5,
            )
        case "spark":
            int96 = random_.random() < 0.5
            pq.write_table(frame, path, flavor="spark", use_deprecated_int96_timestamps=int96)
        case "polars":
            kept = pl.from_arrow(frame)
            assert isinstance(kept, pl.DataFrame)
            kept.write_parquet(path, statistics=random_.random() < 0.9, row_group_size=group)
        case _:
            _write_duckdb(scribe, sample, frame, folder, name)


def _write_duckdb(
    scribe: duckdb.DuckDBPyConnection, sample: Sample, frame: pa.Table, folder: Path, name: str
) -> None:
    listed = ", ".join(
        f"CAST({key} AS {_sql(KINDS[kind], frame[key])}) AS {key}"
        for key, kind in sample.kinds.items()
    )
    scribe.register("frame", frame)
    if sample.writer == "database":
        scribe.execute(f"ATTACH '{folder}/t.duckdb' AS written")
        scribe.execute(f"CREATE TABLE written.t AS SELECT {listed} FROM frame")
        scribe.execute("DETACH written")
    else:
        target = f"'{folder / name}.parquet' (FORMAT parquet)"
        scribe.execute(f"COPY (SELECT {listed} FROM frame) TO {target}")
    scribe.unregister("frame")


def _sql(kind: Kind, values: pa.Array) -> str:
    if kind.sql != "ENUM":
        return kind.sql
    texts = sorted({str(v) for v in values.to_pylist() if v is not None} | {"A", "Z"})
    return f"ENUM({', '.join(source_module.literal(text) for text in texts)})"


class Reader:
    """Reads tables in one process with one DuckDB, which is set up as the vault's are."""

    def __init__(self) -> None:
        self._base = connect(threads=1)
        self.scribe = duckdb.connect(config={"threads": 1})
        self.scribe.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        """Close the connections."""
        self._base.close()
        self.scribe.close()

    def vector(self, sample: Sample, folder: Path) -> list[Counts]:
        """Return every tally of a table that the vault answers, column by column."""
        table = replace(sample.table, source=str(folder / Path(sample.table.source).name))
        paths = tuple(sorted(map(str, folder.glob(Path(table.source).name))))
        kind = {"database": "duckdb", "csv": "csv"}.get(sample.writer, "parquet")
        with self._base.cursor() as cursor:
            if kind == "duckdb":
                cursor.execute(f"ATTACH '{paths[0]}' AS source (READ_ONLY)")
                relation = find_relation(cursor, paths[0], table.name, "", False)
                source = source_module.read_relation(cursor, table.source, paths, relation)
            else:
                named = table.source, kind, paths, table.name
                source = source_module.read_schema(cursor, *named, sample.written)
            batches = fetch_rows(cursor, source, *ask_all(FileTable(source, table.name), table))
            rows = load_rows(batches, table)
            rows = replace(rows, queue=line_up(rows, table, Digest(SALT)))
            if kind == "duckdb":
                cursor.execute("DETACH source")
        return _tallies(rows, table)


def _tallies(rows: Rows, table: Table) -> list[Counts]:
    everything = view(rows, table, RowView(tuple(table.columns)))
    found = [tally(rows, everything, table, [], False)]
    for key, column in table.columns.items():
        kept = view(rows, table, RowView((key,)))
        for resolution in resolutions_of(key, column):
            found.append(tally(rows, kept, table, [resolution], False))
        if table.unit.column is not None and column.size:
            cells = [cells_of(key, np.arange(column.size))]
            found.append(tally(rows, kept, table, cells, True))
    return found


def resolutions_of(key: str, column: Column) -> Iterator[AnyResolution]:
    others = tuple(range((column.other is not None) + column.null))
    if column.domain is not None:
        yield cells_of(key, np.arange(column.size))
    if isinstance(column.domain, Bins):
        yield Nodes(key, 2, column.domain.size, 16, others)
        yield Nodes(key, 1, 1, 1000, others, starts=(0,))
    if column.bounds is not None:
        yield Nodes(key, 1, 1, 1000, others)


def check_some(folder: Path, seeds: Sequence[int], writers: Sequence[str] = WRITERS) -> None:
    """Check a few random tables, every third with a privacy unit that is a column."""
    with closing(Reader()) as reader:
        for seed in seeds:
            place = folder / str(seed)
            check(reader, draw(seed, place, seed % 3 == 0, writers), place)
            shutil.rmtree(place)


def check(reader: Reader, sample: Sample, folder: Path) -> None:
    """Assert that the vector of a sample is the sum of the vectors of its parts.

    Parts are random halves of the rows and the single rows, each a file of its own; where rows
    have owners, random halves of the units.
    """
    whole = _read(reader, sample, [sample.rows], folder / "whole")
    random_ = random.Random(sample.seed + 1)
    if sample.table.unit.column is None:
        first = [random_.random() < 0.5 for _ in sample.rows]
    else:
        chosen = {sample.group(row): random_.random() < 0.5 for row in sample.rows}
        first = [chosen[sample.group(row)] for row in sample.rows]
    halves = [
        [row for row, is_first in zip(sample.rows, first, strict=True) if is_first is half]
        for half in (True, False)
    ]
    parts = [_read(reader, sample, [half], folder / f"half{i}") for i, half in enumerate(halves)]
    _agree(whole, [sum(each) for each in zip(*parts, strict=True)], sample)
    if sample.table.unit.column is None and sample.writer != "database":
        singles = _read(reader, sample, [[row] for row in sample.rows], folder / "singles")
        _agree(whole, singles, sample)


def _read(
    reader: Reader, sample: Sample, files: Sequence[Sequence[dict[str, Any]]], folder: Path
) -> list[Counts]:
    folder.mkdir(parents=True)
    for i, rows in enumerate(files):
        write(reader.scribe, sample, rows, folder, f"{i:03}")
    return reader.vector(sample, folder)


def _agree(whole: list[Counts], parts: list[Any], sample: Sample) -> None:
    for one, other in zip(whole, parts, strict=True):
        assert np.array_equal(one, other), (sample, one, other)
