"""Sources: what can be opened, what is refused and how, and what a locked connection can do."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import random
from fractions import Fraction
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Bins, IntegerRange, Periods, Values, count_periods
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import DataUnavailable, InternalError
from dpsql.privacy.vault.data_engine import Counts
from dpsql.privacy.vault.files.descriptions import describe_data
from dpsql.privacy.vault.files.refused_types import refuse_unreadable
from dpsql.privacy.vault.files.source import connect, is_switched_off, open_source
from dpsql.privacy.vault.sealed_errors import seal_errors
from dpsql.privacy.vault.vault import TableVault
from dpsql.sealed import disable_progress_bar
from tests.support.one_reader import one_reader
from tests.support.tables import scribe

SALT = b"0123456789abcdef"
AGE = Column("age", "integer", IntegerRange(17, 19), null=True)
SEX = Column("sex", "text", Values(("F", "M")), other="?")


def table_of(source: Path | str, *columns: Column, unit: Unit | None = None) -> Table:
    return Table("people", str(source), unit or Unit(), {each.name: each for each in columns})


def count(table: Table) -> Counts:
    names = [each.name for each in table.columns.values()]
    return TableVault(table, SALT).count(
        names, [np.arange(table.columns[name].size) for name in names]
    )


def parquet(path: Path, sql: str) -> Path:
    target = str(path).replace("'", "''")
    scribe().execute(f"COPY ({sql}) TO '{target}' (FORMAT parquet)")
    return path


def described(path: Path) -> list[tuple[str, str]]:
    (found,) = describe_data(str(path))
    return list(found.columns)


def refused(table: Table) -> DataUnavailable:
    with pytest.raises(DataUnavailable) as caught:
        TableVault(table, SALT)
    assert "'people'" in caught.value.message
    return caught.value


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("gone.parquet", "gone*.parquet"):
        error = refused(table_of(tmp_path / name, AGE))
        assert error.code == "E_DATA"
        assert name in error.message


@pytest.mark.parametrize("name", ["t.parquet", "t.duckdb", "t.csv.gz"])
def test_a_file_that_is_not_what_its_name_says(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"certainly not this format\n" * 300)
    assert refused(table_of(path, AGE)).code == "E_DATA"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n", b"age,age\n1,2\n", b'"age\n'])
def test_a_csv_file_without_usable_header(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert refused(table_of(path, AGE)).code == "E_DATA"


def test_unknown_kinds_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.pdf").write_bytes(b"x")
    assert "Parquet" in refused(table_of(tmp_path / "t.pdf", AGE)).message
    assert "not a file" in refused(table_of(tmp_path, AGE)).message


def test_declared_columns_must_exist(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", "SELECT 17 AS age")
    assert "'sex'" in refused(table_of(path, AGE, SEX)).message
    assert "'who'" in refused(table_of(path, AGE, unit=Unit("who", 2))).message


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        (AGE, "'17' AS age"),
        (AGE, "[17] AS age"),
        (AGE, "DATE '2020-01-01' AS age"),
        (SEX, "1 AS sex"),
        (SEX, "{'a': 'F'} AS sex"),
        (Column("flag", "boolean", Values((False, True))), "'true' AS flag"),
    ],
)
def test_stored_types_must_fit_the_declared_ones(
    column: Column, stored: str, tmp_path: Path
) -> None:
    path = parquet(tmp_path / "t.parquet", f"SELECT {stored}")
    error = refused(table_of(path, column))
    assert error.code == "E_POLICY"
    assert repr(column.name) in error.message


def test_a_nested_privacy_unit_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", "SELECT 17 AS age, [1] AS who")
    assert "nested" in refused(table_of(path, AGE, unit=Unit("who", 2))).message


def test_globs_read_all_files_and_demand_one_schema(tmp_path: Path) -> None:
    for i in range(3):
        parquet(tmp_path / f"part{i}.parquet", f"SELECT {17 + i} AS age")
    table = table_of(tmp_path / "part*.parquet", AGE)
    assert count(table).tolist() == [1, 1, 1, 0]
    parquet(tmp_path / "part9.parquet", "SELECT CAST(17 AS BIGINT) AS age")
    assert "differ" in refused(table).message


def test_a_duckdb_file_may_hold_several_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE wrong AS SELECT 17 AS age")
        connection.execute("CREATE TABLE People AS SELECT 18 AS age FROM range(3)")
    assert count(table_of(path, AGE)).tolist() == [0, 3, 0, 0]
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE People")
        connection.execute("CREATE TABLE another AS SELECT 18 AS age")
    assert "no table" in refused(table_of(path, AGE)).message


HOSTILE_CSV = (
    b"\xef\xbb\xbfage,sex,paid,born,ok\n"
    b"17,F,0.5,2024-01-31,true\n"
    b' 18 ,"M",2,2024-02-01,FALSE\n'
    b"19.0,M,1e0,2024-02-29 13:00:00,t\n"  # 3 good rows
    b"20,F,1,2024-01-01,true\n"
    b"17.5,F,1,2024-01-01,true\n"
    b"99999999999999999999999999999999,F,1,2024-01-01,true\n"
    b"seventeen,F,1,2024-01-01,true\n"
    b"17,F,inf,2024-01-01,true\n"
    b"17,F,1e999,2024-01-01,true\n"
    b"17,F,nan,2024-01-01,true\n"
    b"17,F,1,infinity,true\n"
    b"17,F,1,2024-02-30,true\n"
    b"17,F,1,2024-01-01,perhaps\n"
    b"17,F\n"
    b"\n"
    b"17,\xff\xfe,1,2024-01-01,true\n"
    b"17,F," + b"1" * 5000 + b",2024-01-01,true\n"
    b",f\x00,0,2024-01-01,1\n"  # a good row: NULL age, other sex
)


def test_hostile_csv_rows_are_left_out_silently(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(HOSTILE_CSV)
    months = Periods(dt.date(2024, 1, 1), "month", 2)
    assert count_periods(dt.date(2024, 1, 1), dt.date(2024, 2, 29), "month") == 2
    table = table_of(
        path,
        AGE,
        SEX,
        Column("paid", "number", Bins((0, 1, 2))),  # type: ignore[arg-type]
        Column("born", "date", months),
        Column("ok", "boolean", Values((False, True))),
    )
    counts = count(table)
    cells = {tuple(int(i) for i in cell) for cell in np.argwhere(counts)}
    assert cells == {(0, 0, 0, 0, 1), (1, 1, 1, 1, 0), (2, 1, 1, 1, 1), (3, 2, 0, 0, 1)}
    assert counts.max() == 1


@pytest.mark.slow
def test_no_bytes_in_a_csv_file_can_raise(tmp_path: Path) -> None:
    draw = random.Random(3)
    bits = [b'"', b",", b"\n", b"\r", b"\r\n", b"17", b"F", b"\xff", b"\x00", b'""', b" ", b"\\"]
    with one_reader():  # what is asked is how lines are split
        for i in range(40):
            path = tmp_path / f"{i}.csv"
            drawn = b"".join(draw.choices(bits, k=draw.randrange(60)))
            path.write_bytes(b"age,sex\n17,F\n" + drawn)
            assert count(table_of(path, AGE, SEX)).min() >= 0


def test_lines_are_rows_and_quotes_end_with_them(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(
        b"sex\tage\tnote\r\n"
        b'"M"\t18\t"a ""tab""\tin quotes"\r\n'
        b'M\t18\t"open\r\n'
        b'F\t17\t"closed"\n'
        b"F\t17\tcarriage\rreturn\n"
        b"F\t17\n"
        b"F\t17\tx\ty\n"
        b"F\t17\t\xff\n"
        b"\n"
        b'F\t19\t"last'
    )
    assert count(table_of(path, AGE, SEX)).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_compressed_csv_and_parquet_give_the_same_counts(tmp_path: Path) -> None:
    rows = [(17 + i % 4, "FMX"[i % 3]) for i in range(50)]
    text = "sex,age\n" + "".join(f"{sex},{age}\n" for age, sex in rows)
    with gzip.open(tmp_path / "t.csv.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    values = ", ".join(f"({age}, '{sex}')" for age, sex in rows)
    parquet(tmp_path / "t.parquet", f"SELECT * FROM (VALUES {values}) t(age, sex)")
    answers = [
        count(table_of(tmp_path / name, AGE, SEX)) for name in ("t.csv.gz", "t.csv", "t.parquet")
    ]
    assert answers[0].sum() == 38
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_the_version_follows_files_and_schema_and_not_values(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", "SELECT 17 AS age")
    table = table_of(tmp_path / "*.parquet", AGE)
    first = TableVault(table, SALT)
    assert TableVault(table, b"other salt").data_version == first.data_version
    first.check()
    stamp = path.stat()
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    with pytest.raises(DataUnavailable, match="changed"):
        first.check()
    second = TableVault(table, SALT)
    assert second.data_version != first.data_version
    parquet(tmp_path / "u.parquet", "SELECT 18 AS age")
    with pytest.raises(DataUnavailable, match="changed"):
        second.check()
    path.unlink()
    (tmp_path / "u.parquet").unlink()
    with pytest.raises(DataUnavailable):
        second.check()


def test_counts_are_of_the_version_opened(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", "SELECT 17 AS age")
    vault = TableVault(table_of(path, AGE), SALT)
    parquet(path, "SELECT 18 AS age FROM range(10)")
    with pytest.raises(DataUnavailable, match="have changed"):
        vault.count(["age"], [np.arange(4)])
    vault = TableVault(table_of(path, AGE), SALT)
    vault.load()
    path.unlink()
    assert vault.count(["age"], [np.arange(4)]).tolist() == [0, 10, 0, 0]


def test_failures_while_reading_have_one_text_and_no_trace(tmp_path: Path) -> None:
    sql = "SELECT CAST(17 + hash(range) % 3 AS INTEGER) AS age FROM range(100000)"
    path = parquet(tmp_path / "t.parquet", sql)
    whole, stamp = path.read_bytes(), path.stat()
    texts = set()
    for start, stop in ((4, 2000), (4, 90), (300, 900)):
        data = bytearray(whole)
        data[start:stop] = b"\xee" * (stop - start)
        path.write_bytes(bytes(data))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        with pytest.raises(DataUnavailable) as caught:
            TableVault(table_of(path, AGE), SALT).load()
        texts.add(str(caught.value))
        assert caught.value.code == "E_DATA"
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    assert len(texts) == 1
    with pytest.raises(InternalError) as other:
        seal_errors(lambda: int("a private value"))
    assert other.value.code == "E_INTERNAL"
    assert other.value.__cause__ is None
    assert other.value.__context__ is None


@pytest.mark.parametrize(
    "attempt",
    [
        "SELECT * FROM read_text('{other}')",
        "SELECT * FROM read_parquet('{other}')",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '{new}'",
        "ATTACH '{new}'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET allowed_paths = ['{other}']",
        "SET lock_configuration = false",
    ],
)
def test_a_locked_connection_reaches_nothing_else(attempt: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", "SELECT 17 AS age")
    other = parquet(tmp_path / "other.parquet", "SELECT 18 AS age")
    with connect() as connection:
        source = open_source(connection, str(path), "people")
        (found,) = source.select(connection, ["age"], [0])
        assert found.run().fetchall() == [(17,)]
        with pytest.raises(duckdb.Error):
            connection.execute(attempt.format(other=other, new=tmp_path / "new")).fetchall()
    assert not (tmp_path / "new").exists()


def test_describing_a_file_gives_names_and_types_only(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", "SELECT 17 AS age, 'F' AS sex, 1.5::DOUBLE AS paid")
    assert described(path) == [
        ("age", "integer"),
        ("sex", "text"),
        ("paid", "float"),
    ]
    (tmp_path / "t.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert described(tmp_path / "t.csv") == [("a", "integer"), ("b", "integer")]
    (blind,) = describe_data(str(tmp_path / "t.csv"), True)
    assert blind.columns == [("a", "text"), ("b", "text")]
    with pytest.raises(DataUnavailable):
        described(tmp_path / "gone.csv")


def test_types_never_quote_values(tmp_path: Path) -> None:
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TYPE who AS ENUM ('Alice Example', 'Bob Example')")
        database.execute(
            "CREATE TABLE people (who who, many who[], deep STRUCT(w who), age HUGEINT)"
        )
    assert described(path) == [
        ("who", "text"),
        ("many", "nested"),
        ("deep", "nested"),
        ("age", "integer"),
    ]
    assert "Example" not in draft_catalog(path)
    for name in ("who", "many", "deep"):
        error = refused(table_of(path, Column(name, "integer", IntegerRange(0, 9))))
        assert error.code == "E_POLICY"
        assert "Example" not in f"{error} {error.hint}"
    whole = TableVault(table_of(path, AGE), SALT)
    assert isinstance(whole, TableVault)
    assert "Example" not in repr(whole.stored)


@pytest.mark.parametrize("dictionary", [True, False])
def test_text_that_is_not_utf8_is_no_declared_value(dictionary: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    texts = pa.array([b"F", b"\xff", b"F\xff", b"?", None], pa.binary()).view(pa.string())
    frame = pa.table({"sex": texts, "who": texts})
    pq.write_table(frame, path, use_dictionary=dictionary)
    assert count(table_of(path, SEX)).tolist() == [1, 0, 3]
    others = Column("sex", "text", Values(("F",)), other="?", null=True)
    assert count(table_of(path, others)).tolist() == [1, 3, 1]
    # A unit that cannot be told from others is nobody: "F" and "?" are two persons.
    assert count(table_of(path, others, unit=Unit("who", 1))).tolist() == [1, 1, 0]


UNREADABLE = {
    "time": pa.array([1, 2], pa.time64("us")),
    "time in milliseconds": pa.array([1, 2], pa.time32("ms")),
}
DAY = Column("day", "date", Periods(dt.date(1970, 1, 1), "day", 9))


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_type_of_which_some_values_cannot_be_read_is_refused_before_anyone_can_ask(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"DAY": UNREADABLE[kind], "age": [17, 18]}), path)
    table = table_of(path, AGE, unit=Unit("day", 1))
    with pytest.raises(DataUnavailable) as error:
        refuse_unreadable([table])
    (text,) = {f"{error.value}", f"{refused(table)}"}
    assert "some values cannot be read" in text
    assert "DAY" not in text
    refuse_unreadable([table_of(path, AGE)])
    assert count(table_of(path, AGE)).sum() == 2


def test_what_can_be_read_or_does_not_open_is_not_refused_before(tmp_path: Path) -> None:
    path, bad = tmp_path / "t.parquet", tmp_path / "bad.parquet"
    moment = dt.datetime(1970, 1, 1)
    nested = pa.array([{"day": moment}], pa.struct([("day", pa.timestamp("ms"))]))
    days = pa.array([moment], pa.timestamp("us"))
    pq.write_table(pa.table({"visit": nested, "day": days, "age": [17]}), path)
    bad.write_bytes(b"PAR1")
    missing = tmp_path / "none.parquet"
    refuse_unreadable([table_of(each, DAY, AGE) for each in (path, bad, missing, tmp_path)])
    assert count(table_of(path, DAY)).sum() == 1


def test_nothing_reads_statistics(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    numbers = [float(i % 10) for i in range(1000)] + [float("nan")] * 1000
    pl.DataFrame({"x": numbers}).write_parquet(path, statistics=True)
    bins = Column("x", "number", Bins((Fraction(0), Fraction(10))))
    assert count(table_of(path, bins)).tolist() == [1000]
    with connect() as connection:
        open_source(connection, str(path), "people")
        asked = "SELECT count(*) FILTER (isnan(x)), count(*) FILTER (x BETWEEN 0 AND 10)"
        sql = f"{asked} FROM read_parquet(?)"
        assert connection.execute(sql, [str(path)]).fetchall() == [(1000, 1000)]
        assert is_switched_off(connection)


def test_a_bar_that_stays_is_refused() -> None:
    """Where it cannot be switched off, as in a kernel without ipywidgets, it must be off."""
    for shown in (False, True):
        connection = mock.Mock()
        found = mock.Mock(**{"fetchall.return_value": [(shown,)]})
        connection.execute.side_effect = [duckdb.InvalidInputException("no ipywidgets"), found]
        if shown:
            with pytest.raises(InternalError, match="progress bar"):
                disable_progress_bar(connection)
        else:
            disable_progress_bar(connection)


def test_nobody_is_told_how_far_a_reading_is() -> None:
    with connect() as connection:
        shown = "SELECT current_setting('enable_progress_bar')"
        assert connection.execute(shown).fetchall() == [(False,)]
