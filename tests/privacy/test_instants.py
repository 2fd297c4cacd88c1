"""Parquet timestamps in milliseconds and 96 bits: the same instants in microseconds, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import Counts
from dpsql.privacy.vault.files import refused_types, timestamps
from dpsql.privacy.vault.files import source as source_module
from dpsql.privacy.vault.files.descriptions import describe_data
from dpsql.privacy.vault.files.duckdb import FILES
from dpsql.privacy.vault.files.refused_types import refuse_unreadable
from dpsql.privacy.vault.sealed_errors import UnreadableRows
from dpsql.privacy.vault.stored_rows import ask_all
from dpsql.privacy.vault.vault import TableVault
from tests.privacy.additivity import CLOCKS, DATES

SALT = b"0123456789abcdef"
LAST = 2**63 - 1
FITS = LAST // 1000
YEAR = 1_704_067_200_000
ORDINARY = [YEAR + each * 3_599_999 for each in range(-2, 60)]
EXTREME = [
    *[0, 1, -1, None, FITS, -FITS, FITS + 1, -FITS - 1, 2**53, 2**62, -(2**62), 2**61 // 125],
    *[LAST, -LAST, -LAST - 1, 253_402_300_800_000, -62_135_596_800_001, LAST // 1001],
]
COLUMNS = {f"c{i}": each for i, each in enumerate((DATES | CLOCKS).values())}
TABLE = {name: replace(each, name=name) for name, each in COLUMNS.items()}


def in_micros(value: int | None) -> int | None:
    """What a writer of microseconds stores of an instant; DuckDB writes what is later as this."""
    return value if value is None else value * 1000 if abs(value) <= FITS else LAST


def frame(values: Sequence[int | None], unit: str, zone: str | None) -> pa.Table:
    """The same instants in every declared column and as the privacy unit, and a row's number."""
    timestamps = pa.array(values, pa.int64()).view(pa.timestamp(unit, zone))
    named = dict.fromkeys([*COLUMNS, "who"], timestamps)
    return pa.table(
        {"n": pa.array(range(len(values)), pa.int64()), **named, "sex": ["F"] * len(values)}
    )


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "pyarrow 1.0": lambda rows, path: pq.write_table(rows, path, version="1.0"),
    "pyarrow 2.4": lambda rows, path: pq.write_table(rows, path, version="2.4", row_group_size=50),
    "pyarrow 2.6": lambda rows, path: pq.write_table(
        rows, path, use_dictionary=False, data_page_version="2.0", compression="zstd"
    ),
    "spark": lambda rows, path: pq.write_table(
        rows, path, flavor="spark", use_deprecated_int96_timestamps=False
    ),
    "polars": lambda rows, path: pl.DataFrame(pl.from_arrow(rows)).write_parquet(
        path, row_group_size=40
    ),
}


def write_old(rows: pa.Table, path: Path) -> None:
    """Write instants in 96 bits: a day since 4713 BC, of which there are 2^32, and nanoseconds."""
    pq.write_table(rows, path, row_group_size=50, use_deprecated_int96_timestamps=True)


FAR = [FITS, FITS + 1, 3 * 10**17, 2**58, 253_402_300_800_000, -62_135_596_800_001, None]
"""Milliseconds that 96 bits hold, and microseconds in part."""

ZONED = [("pyarrow 1.0", "UTC"), ("polars", "Europe/Berlin")]


def read(source: Path | str) -> list[Any]:
    """All that the engine says of every row: values and flags of columns, units and owners."""
    table = Table("t", str(source), Unit("who", 1), TABLE)
    opened = FILES.open(table)
    rows = []
    for batch in opened.read(*ask_all(opened, table)):
        values = [(each.numbers, each.missing, each.unknown) for each in batch.columns]
        rows.append([*(array for each in values for array in each), batch.units, batch.owned])
    return [np.concatenate(parts) for parts in zip(*rows, strict=True)]


def same(one: Sequence[Any], other: Sequence[Any]) -> None:
    for found, wanted in zip(one, other, strict=True):
        assert np.array_equal(found, wanted)


def agree(folder: Path, values: Sequence[int | None], writer: str, zone: str | None) -> None:
    """Assert that a file in milliseconds is, bit for bit, that of the instants in microseconds."""
    folder.mkdir()
    WRITERS[writer](frame(values, "ms", zone), folder / "ms.parquet")
    micros = frame([in_micros(each) for each in values], "us", zone)
    pq.write_table(micros, folder / "us.parquet", version="2.6")
    same(read(folder / "ms.parquet"), read(folder / "us.parquet"))


@pytest.mark.parametrize(
    ("writer", "zone"),
    [*((each, (None, "UTC")[i % 2]) for i, each in enumerate(WRITERS)), *ZONED],
)
def test_milliseconds_are_the_same_instants_in_microseconds(
    writer: str, zone: str | None, tmp_path: Path
) -> None:
    agree(tmp_path / "all", [*ORDINARY, *EXTREME, *ORDINARY], writer, zone)


def test_instants_of_96_bits_are_the_same_in_microseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        refused_types, "OLD", "no such way"
    )  # columns with a zone are compared, too
    monkeypatch.setitem(WRITERS, "old", write_old)
    agree(tmp_path / "far", [*ORDINARY, *FAR, *ORDINARY], "old", None)
    micros = frame([YEAR * 1000 + each for each in range(-9, 99)] + [None, 9 * 10**18], "us", None)
    write_old(micros, tmp_path / "old.parquet")
    pq.write_table(micros, tmp_path / "us.parquet")
    same(read(tmp_path / "old.parquet"), read(tmp_path / "us.parquet"))


def test_a_planted_reading_in_one_unit_wraps_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WRITERS, "old", write_old)
    monkeypatch.setattr(refused_types, "OLD", "no such way")
    monkeypatch.setattr(timestamps, "_has_old", lambda path, names: False)
    with pytest.raises(AssertionError):
        agree(tmp_path / "far", [*ORDINARY, *FAR], "old", None)


@pytest.mark.parametrize("values", [[], [None, None], [FITS + 1]], ids=len)
def test_few_instants_are_read_as_many(values: list[int | None], tmp_path: Path) -> None:
    agree(tmp_path / "few", values, "pyarrow 1.0", None)


@pytest.mark.parametrize(
    ("unit", "version"), [("s", "1.0"), ("ms", "2.6"), ("ns", "1.0"), ("ns", "2.4")]
)
def test_instants_of_every_unit_are_the_same_days(unit: str, version: str, tmp_path: Path) -> None:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moments = [YEAR // 1000 + 3601 * each for each in range(60)]
    pq.write_table(
        frame([each * per for each in moments], unit, None), tmp_path / "t.parquet", version=version
    )
    whole = frame([each * 10**6 for each in moments], "us", None)
    pq.write_table(whole, tmp_path / "us.parquet")
    one, other = (counts(tmp_path / f"{name}.parquet") for name in ("t", "us"))
    assert one == other
    assert sum(map(sum, one)) > 100


def counts(source: Path | str) -> list[list[int]]:
    """The counts of every column, whose rows are their own units."""
    vault = TableVault(Table("t", str(source), Unit(), TABLE), SALT)
    return [vault.count([name], [np.arange(each.size)]).tolist() for name, each in TABLE.items()]


def test_a_value_out_of_range_is_one_row_and_changes_no_other(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(frame(ORDINARY, "ms", None), path)
    alone = read(path)
    for value in (FITS + 1, 2**62, -LAST - 1):
        pq.write_table(frame([*ORDINARY[:9], value, *ORDINARY[9:]], "ms", None), path)
        same([np.delete(each, 9) for each in read(path)], alone)


def wrapping(stored: Counts, per_unit: int) -> Counts:
    return stored * per_unit


def clamping(stored: Counts, per_unit: int) -> Counts:
    return np.clip(stored, -(LAST // per_unit), LAST // per_unit) * per_unit


def raising(stored: Counts, per_unit: int) -> Counts:
    if stored.max(initial=0) > LAST // per_unit:
        raise OverflowError
    return stored * per_unit


@pytest.mark.parametrize("fault", [wrapping, clamping, raising])
def test_a_planted_conversion_is_found(
    fault: Callable[[Counts, int], Counts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timestamps, "in_micros", fault)
    with pytest.raises((AssertionError, UnreadableRows)):
        agree(tmp_path / "t", [*ORDINARY, *EXTREME], "pyarrow 1.0", None)


def test_a_planted_reading_by_duckdb_stops_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "BESIDES", ())
    agree(tmp_path / "ordinary", ORDINARY, "pyarrow 1.0", None)
    with pytest.raises(UnreadableRows):
        agree(tmp_path / "extreme", [*ORDINARY, FITS + 1], "pyarrow 1.0", None)


LOGICAL = bytes.fromhex("4c8c12 1c1c00 000000")
"""What pyarrow says of milliseconds without a zone beside the older "converted" type."""


def test_what_only_has_the_older_type_is_read_alike(tmp_path: Path) -> None:
    """As parquet-mr wrote before 1.11, and so Hive and older Spark."""
    path = tmp_path / "new.parquet"
    pq.write_table(frame([*ORDINARY, *EXTREME], "ms", None), path, version="1.0")
    whole = path.read_bytes()
    size = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - size : -8]
    assert footer.count(LOGICAL) == len(TABLE) + 1
    older = footer.replace(LOGICAL, b"")
    body = [whole[: -8 - size], older, len(older).to_bytes(4, "little"), b"PAR1"]
    (tmp_path / "old.parquet").write_bytes(b"".join(body))
    sql = "SELECT DISTINCT converted_type, logical_type FROM parquet_schema(?) WHERE name = 'who'"
    with duckdb.connect() as connection:
        said = connection.execute(sql, [str(tmp_path / "old.parquet")]).fetchall()
    assert said == [("TIMESTAMP_MILLIS", None)]
    same(read(tmp_path / "old.parquet"), read(path))
    assert dict(describe_data(str(path))[0].columns)["who"] == "timestamp"


def test_instants_of_96_bits_are_refused_where_a_zone_is_declared(tmp_path: Path) -> None:
    """Spark means instants, Hive a clock: the file does not say."""
    path = tmp_path / "t.parquet"
    write_old(frame([in_micros(each) for each in ORDINARY], "us", None), path)
    zoned = [each for each in TABLE.values() if getattr(each.domain, "zone", "UTC") != "UTC"]
    table = Table("t", str(path), Unit("who", 1), {})
    for column in zoned:
        for refuse in (FILES.open, lambda each: refuse_unreadable([each])):
            with pytest.raises(DataUnavailable, match="96 bits") as caught:
                refuse(replace(table, columns={column.name: column}))
            assert caught.value.code == "E_DATA"
            assert "zone" in str(caught.value.hint)
    assert zoned
    plain = {name: each for name, each in TABLE.items() if each not in zoned}
    FILES.open(replace(table, columns=plain))


def test_files_may_differ_in_their_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_types, "OLD", "no such way")
    pq.write_table(frame(ORDINARY[:30], "ms", None), tmp_path / "a.parquet", version="1.0")
    micros = [in_micros(each) for each in [*ORDINARY[30:], *EXTREME]]
    pq.write_table(frame(micros, "us", None), tmp_path / "b.parquet")
    whole = frame([*ORDINARY, *EXTREME], "ms", None)
    pq.write_table(whole, tmp_path / "whole.parquet")
    same(read(tmp_path / "[ab].parquet"), read(tmp_path / "whole.parquet"))
    write_old(frame([in_micros(each) for each in ORDINARY], "us", None), tmp_path / "b.parquet")
    pq.write_table(frame([*ORDINARY[:30], *ORDINARY], "ms", None), tmp_path / "whole.parquet")
    same(read(tmp_path / "[ab].parquet"), read(tmp_path / "whole.parquet"))


def test_rows_of_many_groups_stay_beside_their_own(tmp_path: Path) -> None:
    """More rows than are read at once, by several threads, beside texts that are not UTF-8."""
    path, rows = tmp_path / "t.parquet", 150_000
    names = pa.array([b"%d" % (i % 7) if i % 5 else b"\xff" for i in range(rows)], pa.binary())
    days = pa.array(np.arange(rows) * 10**6, pa.int64()).view(pa.timestamp("ms"))
    number = pa.array(np.arange(rows) % 11)
    wide = {"c0": days, "who": names.view(pa.string()), "n": number, "more": days}
    pq.write_table(pa.table(wide), path, row_group_size=20_000)
    listed = {"c0": TABLE["c0"], "n": Column("n", "integer", IntegerRange(0, 10))}
    table = Table("t", str(path), Unit("who", 1), listed)
    opened = FILES.open(table)
    batches = list(opened.read(*ask_all(opened, table)))
    found, numbers = (
        np.concatenate([batch.columns[i].numbers for batch in batches]) for i in (0, 1)
    )
    same([found, numbers], [np.arange(rows) * 10**6 // 86_400_000, np.arange(rows) % 11])
    owned = np.concatenate([batch.owned for batch in batches if batch.owned is not None])
    same([owned], [np.arange(rows) % 5 != 0])


def test_names_that_could_be_those_of_others_are_refused(tmp_path: Path) -> None:
    path, days = tmp_path / "t.parquet", pa.array([1], pa.timestamp("ms"))
    day = replace(TABLE["c0"], name="v.day")
    table = Table("t", str(path), Unit(), {"v.day": day})
    pq.write_table(pa.table({"v.day": days, "v": [1], "w": [2]}), path)
    with pytest.raises(DataUnavailable, match="some values cannot be read"):
        FILES.open(table)
    pq.write_table(pa.table({"v.day": days, "w": [2]}), path)
    FILES.open(table)
    times = pa.array([1], pa.time64("us"))
    pq.write_table(pa.table({"x": [1], "X": times}), path)  # DuckDB calls the second X_1
    assert list(describe_data(str(path))[0].columns) == [("x", "integer"), ("X_1", "unreadable")]


def test_without_the_package_that_reads_them_they_are_refused_by_their_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = set()
    for values in (ORDINARY, [FITS + 1]):
        pq.write_table(frame(values, "ms", None), tmp_path / "t.parquet")
        whole = Table("t", str(tmp_path / "t.parquet"), Unit(), TABLE)
        other = replace(whole, columns={"n": Column("n", "integer", IntegerRange(0, 9))})
        refuse_unreadable([whole])
        with monkeypatch.context() as patch:
            patch.setattr(refused_types, "find_spec", lambda name: None)
            with pytest.raises(DataUnavailable) as at_connect:
                refuse_unreadable([whole])
            with pytest.raises(DataUnavailable) as when_opened:
                FILES.open(whole)
            texts |= {f"{each.value} {each.value.hint}" for each in (at_connect, when_opened)}
            refuse_unreadable([other])
            TableVault(other, SALT).load()
    (text,) = texts
    assert "dpsql[arrow]" in text
