"""A privacy unit never moves the counts by more than its declared number of rows."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange, Values
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.data_engine import Counts, Floats
from dpsql.privacy.vault.files import source
from dpsql.privacy.vault.unit import unit_numbers
from dpsql.privacy.vault.unit.unit_numbers import edges_of, in_order, share_units
from dpsql.privacy.vault.vault import TableVault
from tests.privacy.evenness import even_choice
from tests.support.tables import insert, scribe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_reader")]

SALT = b"0123456789abcdef"
COLUMNS = {
    "x": Column("x", "integer", IntegerRange(0, 4)),
    "y": Column("y", "text", Values(("a", "b")), null=True),
    "cost": Column("cost", "number", None, (0, 10)),  # type: ignore[arg-type]
}
Row = tuple[Any, int | None, str | None, float | None]


def write(path: Path, rows: list[Row], unit_type: str = "VARCHAR") -> Path:
    connection = scribe()
    connection.execute(f"CREATE TEMP TABLE t (who {unit_type}, x INTEGER, y VARCHAR, cost DOUBLE)")
    insert(connection, "t", rows)
    connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    return path


def count(path: Path, c: int, salt: bytes = SALT, threads: int | None = None) -> Counts:
    table = Table("t", str(path), Unit("who", c), COLUMNS)
    with mock.patch.dict(source.CONFIG, {} if threads is None else {"threads": threads}):
        return TableVault(table, salt).count(["x", "y"], [np.arange(5), np.arange(3)])


def people(seed: int, n: int) -> list[Row]:
    draw = random.Random(seed)
    return [
        (
            draw.choice(["ann", "bob", "eve", "dan", "Ann", "", None]),
            draw.choice([0, 1, 2, 3, 4, 5, None]),
            draw.choice(["a", "b", "c", None]),
            draw.choice([0.5, float("nan"), float("inf"), None]),
        )
        for _ in range(n)
    ]


def in_view(row: Row) -> bool:
    who, x, y, cost = row
    known = cost is not None and not math.isnan(cost)
    return who is not None and x in range(5) and y in ("a", "b", None) and known


@pytest.mark.parametrize("c", [1, 2, 7])
@pytest.mark.parametrize("seed", range(2))
def test_removing_a_unit_takes_its_rows_and_no_others(c: int, seed: int, tmp_path: Path) -> None:
    rows = people(seed, 120)
    whole = count(write(tmp_path / "all.parquet", rows), c)
    for who in ("ann", "Ann", "bob", "", "nobody"):
        rest = [row for row in rows if row[0] != who]
        change = whole - count(write(tmp_path / "rest.parquet", rest), c)
        assert (change >= 0).all()
        assert change.sum() == min(c, sum(row[0] == who and in_view(row) for row in rows))


def test_every_unit_keeps_as_many_view_rows_as_it_may(tmp_path: Path) -> None:
    rows = people(3, 200)
    names = {row[0] for row in rows} - {None}
    for c in (1, 3, 1000):
        owned = [sum(row[0] == who and in_view(row) for row in rows) for who in names]
        path = write(tmp_path / f"{c}.parquet", rows)
        assert count(path, c).sum() == sum(min(c, n) for n in owned)


def test_rows_outside_the_view_do_not_use_up_a_units_allowance(tmp_path: Path) -> None:
    rows: list[Row] = []
    rows += [("ann", 99, "a", 1.0)] * 50 + [("ann", 1, "a", 1.0), ("ann", 2, "b", 1.0)]
    assert count(write(tmp_path / "t.parquet", rows), 2).sum() == 2


def test_one_unit_with_very_many_rows_and_one_without_owner(tmp_path: Path) -> None:
    rows: list[Row] = [("ann", i % 5, "ab"[i % 2], 0.0) for i in range(3000)]
    rows += [(None, 1, "a", 0.0)] * 500
    assert count(write(tmp_path / "t.parquet", rows), 5).sum() == 5


def test_nan_owners_are_no_owners(tmp_path: Path) -> None:
    rows: list[Row] = []
    rows += [(float("nan"), 1, "a", 0.0)] * 4 + [(7.0, 1, "a", 0.0)] * 4
    assert count(write(tmp_path / "t.parquet", rows, "DOUBLE"), 2).sum() == 2


def test_the_choice_depends_on_the_salt_and_on_nothing_else(tmp_path: Path) -> None:
    rows: list[Row] = [(f"p{i % 41}", i % 5, "ab"[i % 2], float(i)) for i in range(800)]
    path = write(tmp_path / "t.parquet", rows)
    first = count(path, 3, threads=1)
    random.Random(5).shuffle(rows)
    np.testing.assert_array_equal(first, count(write(tmp_path / "u.parquet", rows), 3, threads=4))
    assert (first != count(path, 3, salt=b"another salt 123")).any()


def test_neighbouring_tables_differ_by_at_most_c_rows_when_a_unit_changes(tmp_path: Path) -> None:
    rows = people(9, 150)
    base = count(write(tmp_path / "a.parquet", rows), 2)
    for extra in range(1, 8):
        more: list[Row] = [*rows, *[("zoe", i % 5, "a", float(i)) for i in range(extra)]]
        change = count(write(tmp_path / "b.parquet", more), 2) - base
        assert (change >= 0).all()
        assert change.sum() == min(extra, 2)


def test_rows_of_a_unit_are_kept_evenly_over_salts() -> None:
    even_choice()


@pytest.mark.parametrize(("units", "digests", "columns"), [(1, 1, 2), (7, 5, 1), (300, 2**63, 1)])
def test_rows_are_lined_up_as_all_numbers_together_say(
    units: int, digests: int, columns: int
) -> None:
    rng = np.random.default_rng(units)
    whose = rng.integers(9, 9 + units, 2000).astype(np.uint32)
    drawn = rng.integers(0, digests, 2000).astype(np.uint64)
    values = [np.where(rng.random(2000) < 0.2, np.nan, rng.integers(0, 3, 2000) / 1)] * columns

    def ties(some: Counts) -> list[Floats]:
        return [each[some] for each in values]

    expected = np.lexsort((*reversed(values), drawn, whose))
    np.testing.assert_array_equal(in_order(np.arange(2000), whose, drawn, ties), expected)
    low = drawn & np.uint64(1)  # digests that differ in their last bit alone are still in order
    expected = np.lexsort((*reversed(values), low, whose))
    np.testing.assert_array_equal(in_order(np.arange(2000), whose, low, ties), expected)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("spilled", [False, True])
def test_shares_have_all_chosen_rows_of_whole_units(
    seed: int, spilled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = np.random.default_rng(seed)
    monkeypatch.setattr(unit_numbers, "STRIDE", int(drawn.integers(1, 20)))
    monkeypatch.setattr(unit_numbers, "GATHERED", int(drawn.integers(1, 30)))
    size, rows = int(drawn.integers(1, 40)), int(drawn.integers(0, 200))
    units = (size * drawn.random(rows) ** 3).astype(np.uint32)
    chosen = drawn.random(rows) < 0.8
    counts = np.bincount(units[chosen], minlength=size)
    shares = share_units(
        units, chosen, edges_of(counts), SpillRoom(str(tmp_path) if spilled else None)
    )
    found = [shares.rows(share) for share in range(len(shares))]
    for each in found:
        assert each.tolist() == sorted(each.tolist())
        assert len(each) <= unit_numbers.GATHERED or len(set(units[each].tolist())) == 1
    of_units = [unit for each in found for unit in dict.fromkeys(np.sort(units[each]).tolist())]
    assert of_units == sorted(set(units[chosen].tolist()))
    assert sorted(np.concatenate(found).tolist()) == np.flatnonzero(chosen).tolist()
