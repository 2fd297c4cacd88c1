"""The same rows as other programs write them: the same counts, or a refusal that says why."""

from __future__ import annotations

import csv
import datetime as dt
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import raise_budget
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.vault import TableVault
from dpsql.relation.row_view import RowView
from tests.support.seam import zero_noise

NAMES = ["Ann", "O'Neil", "a,b", 'say "hi"', "é", "ß", "x y", "日本", "NA", "0"]
CATALOG = """[budget]
epsilon = 1000
[table.t]
source = "{}"
privacy_unit = {{ column = "pid", max_rows = 2 }}
[table.t.column]
name = {{ type = "text", domain = {}, other = true, null = true }}
age = {{ type = "integer", domain = [0, 99], null = true }}
flag = {{ type = "boolean", domain = [false, true], null = true }}
x = {{ type = "number", domain = [-10, 100], bins = [-10, 0, 0.3, 1, 100], null = true }}
d = {{ type = "date", domain = ["2024-01-01", "2024-12-31"], null = true, other = true }}
ts = {{ type = "timestamp", domain = ["2024-01-01", "2024-12-31T23:59"], by = "hour", null = true }}
"""
SCHEMA = pa.schema(
    [
        *(("pid", pa.int64()), ("name", pa.string()), ("age", pa.int64()), ("flag", pa.bool_())),
        *(("x", pa.float64()), ("d", pa.date32()), ("ts", pa.timestamp("us"))),
    ]
)


def rows() -> pa.Table:
    rng = random.Random(5)
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=k) for k in range(0, 360, 13)]
    times = [dt.datetime(2024, 1, 1, 0, 30) + dt.timedelta(hours=17 * k) for k in range(60)]
    values: dict[str, list[Any]] = {
        "name": NAMES,
        "age": [*range(0, 100, 7)],
        "flag": [True, False],
        "x": [0.5, 1.25, 1e-3, 99.99, -3.0, 0.1],
        "d": days,
        "ts": times,
    }
    drawn = {k: [rng.choice([*some, None]) for _ in range(300)] for k, some in values.items()}
    return pa.table({"pid": [i // 2 for i in range(300)], **drawn}, schema=SCHEMA)


ROWS = rows()
Write = Callable[[pa.Table, Path], object]


def cast(**kinds: pa.DataType) -> Write:
    """Parquet by pyarrow, with other types of some columns."""

    def write(table: pa.Table, path: Path) -> None:
        for name, kind in kinds.items():
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(kind))
        pq.write_table(table, path)

    return write


def parquet(**options: Any) -> Write:
    return lambda table, path: pq.write_table(table, path, **options)


def by_pandas(method: str = "to_csv", **options: Any) -> Write:
    return lambda table, path: getattr(table.to_pandas(), method)(path, **options)


def by_polars(method: str = "write_csv", **options: Any) -> Write:
    def write(table: pa.Table, path: Path) -> None:
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        getattr(frame, method)(path, **options)

    return write


def as_categories(table: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.with_columns(pl.col("name").cast(pl.Categorical)).write_parquet(path)


def as_words(value: Any, sep: str, missing: str) -> str:
    """A field as Excel and R write it: TRUE, FALSE, and quotes where they are needed."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = str(value).replace('"', '""')
    return f'"{text}"' if isinstance(value, str) and (sep in text or '"' in text) else text


def by_hand(start: str = "", sep: str = ",", end: str = "\r\n", encoding: str = "utf-8") -> Write:
    def write(table: pa.Table, path: Path) -> None:
        lines = [sep.join(table.column_names)]
        lines += [sep.join(as_words(v, sep, "") for v in row.values()) for row in table.to_pylist()]
        path.write_bytes((start + "".join(line + end for line in lines)).encode(encoding))

    return write


SAME: dict[str, tuple[str, Write]] = {
    "pyarrow 1.0": (".parquet", parquet(version="1.0")),
    "pyarrow, pages of version 2": (".parquet", parquet(data_page_version="2.0")),
    "pyarrow, zstd, many groups": (".parquet", parquet(compression="zstd", row_group_size=7)),
    "pyarrow, 96 bits": (".parquet", parquet(use_deprecated_int96_timestamps=True)),
    "small integers": (".parquet", cast(pid=pa.int32(), age=pa.uint8())),
    "floats": (".parquet", cast(age=pa.float64(), x=pa.float32())),
    "decimals": (".parquet", cast(x=pa.decimal128(20, 6))),
    "large texts": (".parquet", cast(name=pa.large_string())),
    "dictionaries": (".parquet", cast(name=pa.dictionary(pa.int32(), pa.string()))),
    "days as instants": (".parquet", cast(d=pa.timestamp("ms"))),
    "days of 64 bits": (".parquet", cast(d=pa.date64())),
    "seconds": (".parquet", cast(ts=pa.timestamp("s"))),
    "nanoseconds": (".parquet", cast(ts=pa.timestamp("ns"))),
    "instants": (".parquet", cast(ts=pa.timestamp("us", "UTC"))),
    "columns in another order": (
        ".parquet",
        lambda t, p: pq.write_table(t.select(t.column_names[::-1]), p),
    ),
    "names in capitals": (
        ".parquet",
        lambda t, p: pq.write_table(t.rename_columns([n.upper() for n in t.column_names]), p),
    ),
    "pandas": (".parquet", by_pandas("to_parquet")),
    "polars": (".parquet", by_polars("write_parquet")),
    "polars, categories": (".parquet", as_categories),
    "csv of pandas": (".csv", by_pandas(index=False)),
    "csv of pandas, its index": (".csv", by_pandas()),
    "csv of pandas, packed": (".csv.gz", by_pandas(index=False)),
    "csv of pandas, Windows": (
        ".csv",
        by_pandas(index=False, encoding="utf-8-sig", lineterminator="\r\n"),
    ),
    "csv of pandas, all quoted": (".csv", by_pandas(index=False, quoting=csv.QUOTE_ALL)),
    "tsv of pandas": (".tsv", by_pandas(index=False, sep="\t")),
    "csv of polars": (".csv", by_polars()),
    "csv of polars, quoted": (".csv", by_polars(quote_style="non_numeric", include_bom=True)),
    "csv of polars, exponents": (".csv", by_polars(float_scientific=True)),
    "csv of pyarrow": (".csv", lambda t, p: pa.csv.write_csv(t, p)),
    "csv of Excel": (".csv", by_hand("\ufeff")),
    "csv with blank lines at its end": (".csv", by_hand(end="\n\n")),
}
REFUSED: dict[str, tuple[str, Write, str]] = {
    "semicolons": (".csv", by_hand("\ufeff", sep=";"), "seems to be separated by ';'"),
    "bars": (".csv", by_hand(sep="|"), "seems to be separated by '|'"),
    "tabs in a .csv": (".csv", by_hand(sep="\t"), "seems to be separated by a tab"),
    "commas in a .tsv": (".tsv", by_hand(), "seems to be separated by a comma"),
    "carriage returns": (".csv", by_hand(end="\r"), "has a carriage return"),
    "UTF-16": (".csv", by_hand("\ufeff", encoding="utf-16-le"), "it is UTF-16"),
    "bytes": (".parquet", cast(name=pa.binary()), "declared text but stored as other"),
    "numbers as texts": (".parquet", cast(age=pa.string()), "declared integer but stored as text"),
}


def write(folder: Path, ending: str, how: Write) -> Path:
    """A catalog over the rows as one program writes them."""
    how(ROWS, folder / f"t{ending}")
    path = folder / "c.toml"
    path.write_text(CATALOG.format(f"t{ending}", NAMES), encoding="utf-8")
    return path


def counts(path: Path) -> dict[str, list[int]]:
    """The rows of each cell, column by column."""
    table = read_catalog(path).tables["t"]
    vault = TableVault(table, b"0123456789abcdef")
    return {
        name: vault.within(RowView((name,))).count([name], [np.arange(column.size or 0)]).tolist()
        for name, column in table.columns.items()
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    found = counts(write(tmp_path_factory.mktemp("plain"), ".parquet", parquet()))
    assert all(sum(each) == 300 for each in found.values())
    return found


@pytest.mark.parametrize("program", SAME)
def test_what_programs_write_is_counted_alike(
    program: str, tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    assert counts(write(tmp_path, *SAME[program])) == expected


@pytest.mark.parametrize("program", REFUSED)
def test_what_cannot_be_counted_is_refused(program: str, tmp_path: Path) -> None:
    ending, how, told = REFUSED[program]
    with pytest.raises(DataUnavailable) as caught:
        counts(write(tmp_path, ending, how))
    assert told in str(caught.value)


def test_a_catalog_written_on_windows_is_the_same(tmp_path: Path) -> None:
    """Its ledger knows it again, whichever of the two it was created for."""
    path, values = write(tmp_path, ".parquet", parquet()), tmp_path / "names.txt"
    text = path.read_text(encoding="utf-8").replace(
        f"domain = {NAMES}", 'domain_file = "names.txt"'
    )
    listed = "".join(f"{name}\n" for name in NAMES)
    found = []
    for mark, end in (("", "\n"), ("\ufeff", "\r\n"), ("", "\r\n"), ("\ufeff", "\n")):
        path.write_bytes((mark + text.replace("\n", end)).encode())
        values.write_bytes((mark + listed.replace("\n", end)).encode())
        found.append(counts(path))
        with dpsql.connect(path, epsilon=1) as connection:
            connection.execute("SELECT COUNT(*) FROM t").fetchall()
            assert len(connection.entries()) == 2
    assert all(each == found[0] for each in found)


def test_the_budget_of_a_catalog_written_on_windows_is_raised(tmp_path: Path) -> None:
    path = write(tmp_path, ".parquet", parquet())
    text = path.read_text(encoding="utf-8").replace("\n", "\r\n")
    path.write_bytes(("\ufeff" + text).encode())
    dpsql.connect(path, epsilon=1).close()
    raise_budget(path, Fraction(2000))
    assert (
        path.read_bytes() == ("\ufeff" + text.replace("epsilon = 1000", "epsilon = 2000")).encode()
    )
    with dpsql.connect(path, epsilon=1) as connection:
        assert connection.budget.total_epsilon == 2000


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_file_that_another_program_has_written_anew(ending: str, tmp_path: Path) -> None:
    """What is open is refused, what was answered is free; whoever connects again pays anew."""
    names = [name for name in SAME if SAME[name][0] == ending]
    picked = random.Random(3).sample(names, 5)
    path, sql = write(tmp_path, *SAME[picked[0]]), "SELECT age, COUNT(*) AS n FROM t GROUP BY age"
    found = []
    with zero_noise():
        for paid, program in enumerate(picked[1:], start=1):
            with dpsql.connect(path, epsilon=1) as connection:
                found.append(connection.execute(sql).fetchall())
                assert len(connection.entries()) == paid + 1
                write(tmp_path, *SAME[program])
                assert connection.execute(sql).fetchall() == found[-1]
                with pytest.raises(DataUnavailable, match="connect again"):
                    connection.execute("SELECT flag, COUNT(*) AS n FROM t GROUP BY flag")
                assert len(connection.entries()) == paid + 1
    assert all(each == found[0] for each in found)
