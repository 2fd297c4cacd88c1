"""Counts agree with a plain Python account of the declared view, whatever the rows hold."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Bins, IntegerRange, Periods, Values
from dpsql.errors import ProgrammingError
from dpsql.privacy.vault.data_engine import Classes, Counts
from dpsql.privacy.vault.files import source as source_module
from dpsql.privacy.vault.vault import TableVault
from tests.support.one_reader import one_reader
from tests.support.tables import scribe

SALT = b"0123456789abcdef"
DAY = dt.date(2024, 1, 1)
TENTHS = Bins((Fraction(0), Fraction(1, 10), Fraction(3, 10), Fraction(1)))
FIFTIES = Bins(tuple(Fraction(50 * j) for j in range(101)))

# name -> (column, stored type, [(stored value as SQL, its cell or None for "dropped")])
Case = tuple[Column, str, list[tuple[str, int | None]]]
LISTED: list[Case] = [
    (
        Column("age", "integer", IntegerRange(17, 90), null=True),
        "BIGINT",
        [
            *[("17", 0), ("18", 1), ("90", 73), ("16", None), ("91", None), ("NULL", 74)],
            *[("-9223372036854775808", None), ("9223372036854775807", None), ("-5", None)],
        ],
    ),
    (
        Column("huge", "integer", IntegerRange(-2, 2), other=99),
        "HUGEINT",
        [
            *[("-2", 0), ("2", 4), ("3", 5), ("1000000000000000000000000000000", 5)],
            *[("-170141183460469231731687303715884105728", 5), ("NULL", None)],
        ],
    ),
    (
        Column("unsigned", "integer", IntegerRange(-1, 3), null=True),
        "UHUGEINT",
        [
            *[("0", 1), ("3", 4), ("4", None), ("NULL", 5)],
            ("'340282366920938463463374607431768211455'", None),
        ],
    ),
    (
        Column("floating", "integer", IntegerRange(0, 3), null=True),
        "DOUBLE",
        [
            *[("2.0", 2), ("-0.0", 0), ("1.5", None), ("5e-324", None), ("1e300", None)],
            *[("'nan'", 4), ("'inf'", None), ("'-inf'", None), ("NULL", 4)],
        ],
    ),
    (
        Column("decimals", "integer", IntegerRange(0, 2)),
        "DECIMAL(38,10)",
        [
            *[("1", 1), ("1.0000000001", None), ("2.0", 2), ("NULL", None)],
            ("9999999999999999999999999999.9999999999", None),
        ],
    ),
    (
        Column("listed", "integer", Values((100, 0, 25)), other=-1, null=True),
        "SMALLINT",
        [("100", 0), ("0", 1), ("25", 2), ("26", 3), ("-32768", 3), ("NULL", 4)],
    ),
    (
        Column("uneven", "number", TENTHS, null=True),
        "DOUBLE",
        [
            *[("0", 0), ("-0.0", 0), ("0.1", 1), ("0.09999999999999999", 0), ("0.3", 2)],
            *[("0.30000000000000004", 2), ("1", 2), ("1.0000000000000002", None)],
            *[("-5e-324", None), ("'nan'", 3), ("'inf'", None), ("'-inf'", None), ("NULL", 3)],
        ],
    ),
    (
        Column("even", "integer", FIFTIES),
        "INTEGER",
        [
            *[("0", 0), ("49", 0), ("50", 1), ("4999", 99), ("5000", 99), ("5001", None)],
            *[("-1", None), ("2147483647", None), ("NULL", None)],
        ],
    ),
    (
        Column("word", "text", Values(("A", "B", "it's", "\u00e9", "")), null=True, other="?"),
        "VARCHAR",
        [
            *[("'A'", 0), ("'B'", 1), ("'it''s'", 2), ("'\u00e9'", 3), ("''", 4), ("'a'", 5)],
            *[("'A '", 5), ("' A'", 5), ("'e\u0301'", 5), ("'?'", 5), ("NULL", 6)],
            *[("'A' || chr(0)", 5), ("repeat('A', 100000)", 5), ("'\U0001f600'", 5)],
        ],
    ),
    (
        Column("label", "text", Values(tuple(f"value {i}" for i in range(300)))),
        "ENUM('value 7', 'stranger', 'value 299')",
        [("'value 7'", 7), ("'value 299'", 299), ("'stranger'", None), ("NULL", None)],
    ),
    (
        Column("flag", "boolean", Values((True, False)), null=True),
        "BOOLEAN",
        [("true", 0), ("false", 1), ("NULL", 2)],
    ),
    (
        Column("bit", "boolean", Values((False, True))),
        "TINYINT",
        [("0", 0), ("1", 1), ("2", None), ("-1", None), ("NULL", None)],
    ),
    (
        Column("hired", "date", Periods(DAY, "month", 12), null=True),
        "DATE",
        [
            *[("'2024-01-01'", 0), ("'2024-02-29'", 1), ("'2024-12-31'", 11), ("NULL", 12)],
            *[("'2023-12-31'", None), ("'2025-01-01'", None), ("'infinity'", None)],
            *[("'-infinity'", None), ("'0044-03-15 (BC)'", None), ("'9999-12-31'", None)],
            *[("'5881580-07-10'", None), ("'5877642-06-25 (BC)'", None)],
        ],
    ),
    (
        Column("seen", "date", Periods(DAY, "week", 3)),
        "TIMESTAMP",
        [
            *[("'2024-01-01 00:00:00'", 0), ("'2024-01-07 23:59:59.999999'", 0)],
            *[("'2024-01-08'", 1), ("'2024-01-21'", 2), ("'2024-01-22'", None)],
            *[("'infinity'", None), ("'-infinity'", None), ("NULL", None)],
        ],
    ),
    (
        Column("zoned", "date", Periods(DAY, "quarter", 4)),
        "TIMESTAMP WITH TIME ZONE",
        [
            *[("'2023-12-31 19:00:00-05'", 0), ("'2024-04-01 00:30:00+01'", 0)],
            *[("'2024-10-01 00:00:00+00'", 3), ("'infinity'", None), ("NULL", None)],
        ],
    ),
    (
        Column("nanos", "date", Periods(DAY, "day", 3)),
        "TIMESTAMP_NS",
        [("'2024-01-03 01:00:00.000000001'", 2), ("'2024-01-04'", None), ("NULL", None)],
    ),
    (
        Column("year", "date", Periods(dt.date(9990, 1, 1), "year", 9)),
        "DATE",
        [
            ("'9990-01-01'", 0),
            ("'9998-12-31'", 8),
            ("'9999-01-01'", None),
            ("'2024-01-01'", None),
        ],
    ),
]
CASES = {case[0].name: case for case in LISTED}
HUGE = ("huge", "unsigned")  # types that a Parquet file cannot hold
Row = tuple[tuple[str, int | None], ...]


def table_of(names: list[str], source: Path, unit: Unit | None = None) -> Table:
    columns = {name: CASES[name][0] for name in names}
    return Table("t", str(source), unit or Unit(), columns)


def write(path: Path, names: list[str], rows: list[Row], owners: list[str] | None = None) -> Path:
    """Write rows of (SQL value, cell) pairs, with a row of NULLs per column to fix the types."""
    types = {name: CASES[name][1] for name in names} | ({"owner": "VARCHAR"} if owners else {})
    stored = path.suffix == ".duckdb"
    connection = duckdb.connect(str(path)) if stored else scribe()
    connection.execute("SET TimeZone = 'UTC'")
    listed = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    connection.execute(f"CREATE {'' if stored else 'TEMP'} TABLE t ({listed})")
    for start in range(0, len(rows), 500):
        part = rows[start : start + 500]
        values = [[value for value, _ in row] for row in part]
        if owners:
            values = [[*row, owner] for row, owner in zip(values, owners[start:], strict=False)]
        kinds = list(types.values())
        casts = [
            [f"CAST({value} AS {kind})" for value, kind in zip(row, kinds, strict=True)]
            for row in values
        ]
        text = ", ".join(f"({', '.join(row)})" for row in casts)
        connection.execute(f"INSERT INTO t VALUES {text}")
    if path.suffix == ".parquet":
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    connection.close()
    return path


@pytest.fixture(name="shared")
def _shared() -> Iterator[None]:
    """One reader for the many files of a test about values, not about how files are read."""
    with one_reader():
        yield


def full(table: Table, names: list[str]) -> list[Classes]:
    return [np.arange(table.columns[name].size) for name in names]


def count(table: Table, names: list[str], threads: int | None = None, salt: bytes = SALT) -> Counts:
    with mock.patch.dict(source_module.CONFIG, {} if threads is None else {"threads": threads}):
        return TableVault(table, salt).count(names, full(table, names))


def expected(table: Table, names: list[str], rows: list[Row]) -> Counts:
    """Count with a dictionary: rows with a dropped value anywhere are not in the view."""
    cells = Counter(tuple(cell for _, cell in row) for row in rows)
    order = [list(table.columns).index(name) for name in names]
    result = np.zeros([table.columns[name].size for name in names], dtype=np.int64)
    for row, n in cells.items():
        if None not in row:
            result[tuple(row[i] for i in order)] += n
    return result


def random_rows(names: list[str], n: int, seed: int, keep: float = 0.7) -> list[Row]:
    draw = random.Random(seed)
    kept = {name: [v for v in CASES[name][2] if v[1] is not None] for name in names}
    return [
        tuple(draw.choice(kept[name] if draw.random() < keep else CASES[name][2]) for name in names)
        for _ in range(n)
    ]


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("suffix", ["parquet", "duckdb"])
@pytest.mark.usefixtures("shared")
def test_every_value_of_every_type_falls_in_its_cell(
    name: str, suffix: str, tmp_path: Path
) -> None:
    if suffix == "parquet" and name in HUGE:
        pytest.skip("DuckDB stores this type as DOUBLE in Parquet")
    values = CASES[name][2]
    rows: list[Row] = [(v,) for i, v in enumerate(values) for _ in range(i + 1)]
    table = table_of([name], write(tmp_path / f"t.{suffix}", [name], rows))
    np.testing.assert_array_equal(count(table, [name]), expected(table, [name], rows))


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", ["age", "floating", "uneven", "word", "hired"])
def test_one_more_row_changes_one_cell_by_one_or_none(name: str, tmp_path: Path) -> None:
    base: list[Row] = [(CASES[name][2][0],)] * 3
    before = count(table_of([name], write(tmp_path / "a.parquet", [name], base)), [name])
    for i, value in enumerate(CASES[name][2]):
        path = write(tmp_path / f"b{i}.parquet", [name], [*base, (value,)])
        change = count(table_of([name], path), [name]) - before
        assert change.sum() == (value[1] is not None)
        assert np.abs(change).sum() <= 1


@pytest.mark.parametrize("seed", range(4))
def test_joint_counts_agree_with_a_dictionary(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    names = draw.sample(sorted(set(CASES) - {"label", "even"}), 5)
    rows = random_rows(names, 600, seed, keep=0.9)
    table = table_of(names, write(tmp_path / "t.duckdb", names, rows))
    vault = TableVault(table, SALT)
    for size in range(4):
        for chosen in itertools.islice(itertools.permutations(names, size), 6):
            got = vault.count(list(chosen), full(table, list(chosen)))
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, expected(table, list(chosen), rows))


def test_classes_merge_cells_and_drop_minus_one(tmp_path: Path) -> None:
    names = ["age", "word", "flag"]
    rows = random_rows(names, 500, 7)
    table = table_of(names, write(tmp_path / "t.parquet", names, rows))
    draw = np.random.default_rng(1)
    exact = expected(table, names, rows)
    for _ in range(5):
        sizes = (4, 3, 2)
        classes = []
        for name, k in zip(names, sizes, strict=True):
            each = draw.integers(-1, k, table.columns[name].size)
            each[0] = k - 1
            classes.append(each)
        tensor: Counts = exact
        for axis, (each, k) in enumerate(zip(classes, sizes, strict=True)):
            merge = (np.arange(k)[:, None] == each[None, :]).astype(np.int64)
            tensor = np.moveaxis(np.tensordot(merge, tensor, axes=(1, axis)), 0, axis)
        np.testing.assert_array_equal(TableVault(table, SALT).count(names, classes), tensor)


def test_all_classes_dropped_gives_no_cells(tmp_path: Path) -> None:
    table = table_of(["flag"], write(tmp_path / "t.parquet", ["flag"], [(("true", 0),)]))
    assert TableVault(table, SALT).count(["flag"], [np.full(3, -1)]).shape == (0,)


def test_many_rows_in_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.privacy.vault.codes.tally.CHUNK", 7)
    rows = random_rows(["flag", "bit"], 300, 5)
    table = table_of(["flag", "bit"], write(tmp_path / "t.parquet", ["flag", "bit"], rows))
    got = count(table, ["bit", "flag"])
    np.testing.assert_array_equal(got, expected(table, ["bit", "flag"], rows))


@pytest.mark.parametrize("unit", [Unit(), Unit("owner", 2)])
def test_row_order_and_threads_do_not_matter(unit: Unit, tmp_path: Path) -> None:
    names = ["age", "uneven", "word", "hired"]
    rows = random_rows(names, 800, 11, keep=0.95)
    owners = [f"'p{random.Random(i).randrange(150)}'" for i in range(len(rows))]
    order = list(range(len(rows)))
    answers = []
    for i, threads in enumerate((1, 2, 8)):
        path = write(
            tmp_path / f"t{i}.parquet", names, [rows[j] for j in order], [owners[j] for j in order]
        )
        answers.append(count(table_of(names, path, unit), ["age", "word"], threads))
        random.Random(i).shuffle(order)
    assert answers[0].sum() > 100
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_an_empty_table_counts_zero(tmp_path: Path) -> None:
    table = table_of(["age", "uneven"], write(tmp_path / "t.parquet", ["age", "uneven"], []))
    assert count(table, ["age", "uneven"]).sum() == 0
    assert count(table, []).shape == ()


def test_a_table_of_measures_only_has_a_grand_total(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", ["age"], [(("17", 0),), (("NULL", 74),)])
    bounds = (Fraction(0), Fraction(9))
    for null in (False, True):
        column = Column("age", "integer", None, bounds, null)
        assert int(count(Table("t", str(path), Unit(), {"age": column}), [])) == 1 + null


def test_names_are_quoted_and_found_without_case(tmp_path: Path) -> None:
    path = tmp_path / "it's [1] ; DROP.parquet"
    odd = 'Odd "name"; --'
    connection = duckdb.connect()
    quoted = odd.replace('"', '""')
    target = str(path).replace("'", "''")
    connection.execute(f"COPY (SELECT range AS \"{quoted}\" FROM range(5)) TO '{target}'")
    column = Column(odd.upper(), "integer", IntegerRange(0, 9))
    table = Table("t", str(path), Unit(), {odd.casefold(): column})
    assert count(table, [odd.casefold()]).tolist() == [1] * 5 + [0] * 5


def test_values_that_look_like_sql_stay_values(tmp_path: Path) -> None:
    hostile = ("'); DROP TABLE t; --", '"', "\\", "$1", "?", "{}")
    path = tmp_path / "t.parquet"
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT unnest(?) AS c", [list(hostile)])
    connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    table = Table("t", str(path), Unit(), {"c": Column("c", "text", Values(hostile))})
    assert count(table, ["c"]).tolist() == [1] * len(hostile)


def test_counting_something_else_is_a_programming_error(tmp_path: Path) -> None:
    table = table_of(["flag"], write(tmp_path / "t.parquet", ["flag"], []))
    vault = TableVault(table, SALT)
    for names, classes in [
        (["nope"], [np.arange(3)]),
        (["flag"], [np.arange(2)]),
        (["flag", "flag"], [np.arange(3), np.arange(3)]),
    ]:
        with pytest.raises(ProgrammingError):
            vault.count(names, classes)
