"""Keys of several columns: which combinations units have, and in which cell every row is."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.composite_keys import join_key, joint_column
from dpsql.catalog.discovery import Sought
from dpsql.catalog.domain import Values
from dpsql.errors import InternalError, ProgrammingError
from dpsql.privacy.doors.find_keys import _weights
from dpsql.privacy.vault.codes import combinations
from dpsql.privacy.vault.codes.combinations import encode_joint, join_codes, split_codes
from dpsql.privacy.vault.unit import key_counts
from dpsql.privacy.vault.unit.key_counts import Pairs
from dpsql.privacy.vault.vault import TableVault
from tests.privacy.test_distinct import HOSTILE, PRINTABLE, SALT
from tests.support.tables import insert, scribe

pytestmark = pytest.mark.usefixtures("one_reader")

Row = tuple[Any, Any, Any]
CODES = (7, -1, 2**40, None)


def random_rows(seed: int, count: int, units: int = 6) -> list[Row]:
    draw = random.Random(seed)
    who = [None, *(f"u{i}" for i in range(units))]
    texts = draw.sample(HOSTILE, 6)
    return [(draw.choice(who), draw.choice(texts), draw.choice(CODES)) for _ in range(count)]


def write(path: Path, rows: Sequence[Row]) -> Path:
    with scribe() as connection:
        connection.execute("CREATE TEMP TABLE t (who VARCHAR, k VARCHAR, c BIGINT)")
        insert(connection, "t", rows)
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    return path


def table_of(path: Path, most: int, unit: Unit) -> Table:
    sought = Sought("keys", most)
    columns = [
        Column("k", "text", other="other", sought=sought),
        Column("c", "integer", sought=sought),
    ]
    return Table("t", str(path), unit, {column.name: column for column in columns})


def pairs_of(path: Path, most: int, by_unit: bool = True) -> Pairs:
    table = table_of(path, most, Unit("who", 50) if by_unit else Unit())
    sought = joint_column(list(table.columns.values())).sought
    assert sought is not None
    return TableVault(table, SALT).pairs("k, c", sought)


def plain(rows: Sequence[Row]) -> set[tuple[Any, str]]:
    return {(who, join_key((k, c))) for who, k, c in rows if k in PRINTABLE and c is not None}


@pytest.mark.parametrize("seed", range(3))
def test_a_unit_counts_once_for_each_combination_of_a_row(tmp_path: Path, seed: int) -> None:
    rows = random_rows(seed, 120)
    found = pairs_of(write(tmp_path / "t.parquet", rows), 50)
    counted = Counter(found.keys[place] for place in found.places.tolist())
    assert counted == Counter(key for who, key in plain(rows) if who is not None)
    alone = pairs_of(tmp_path / "t.parquet", 1, by_unit=False)
    every = [(i, k, c) for i, (_, k, c) in enumerate(rows)]
    assert len(alone.places) == len(plain(every))


def contributions(found: Pairs) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for place, each in zip(found.places.tolist(), _weights(found).tolist(), strict=True):
        total[found.keys[place]] += each
    return total


@pytest.mark.parametrize("most", [1, 3])
def test_a_unit_moves_weights_by_a_norm_of_at_most_one(tmp_path: Path, most: int) -> None:
    """Every unit is removed in turn; what others add stays the same to the last bit."""
    rows = random_rows(5, 90, units=4)
    before = contributions(pairs_of(write(tmp_path / "t.parquet", rows), most))
    for who in {who for who, *_ in rows if who is not None}:
        fewer = [row for row in rows if row[0] != who]
        after = contributions(pairs_of(write(tmp_path / f"{who}.parquet", fewer), most))
        moved = [before[key] - after[key] for key in {*before, *after}]
        assert sum(each * each for each in moved) <= 4**20
        assert all(each >= 0 for each in moved)
        assert sum(map(bool, moved)) <= most


def found_column(keys: Sequence[tuple[Any, Any]]) -> Column:
    table = table_of(Path("t"), 1, Unit())
    column = joint_column(list(table.columns.values()))
    texts = tuple(map(join_key, keys))
    return Column(column.name, "text", Values(texts), other=column.other, sought=column.sought)


@pytest.mark.parametrize("seed", range(4))
def test_every_row_is_in_the_cell_of_its_combination_or_with_all_others(
    tmp_path: Path, seed: int
) -> None:
    rows = random_rows(seed, 150)
    draw = random.Random(seed)
    known = sorted(plain(rows), key=lambda each: str(each[1]))
    keys = draw.sample(sorted({key for _, key in known}), draw.choice([0, 1, 5]))
    column = found_column([tuple(key.split("\x1f")) for key in keys])  # type: ignore[misc]
    table = table_of(write(tmp_path / "t.parquet", rows), 1, Unit())
    vault: TableVault = TableVault(
        Table("t", table.source, Unit(), {**table.columns, "k, c": column}), SALT
    )
    expected = [
        keys.index(join_key((k, c))) if join_key((k, c)) in keys else len(keys) for _, k, c in rows
    ]
    assert vault.rows().codes["k, c"].tolist() == expected


def test_parts_that_are_crossed_are_other_combinations(tmp_path: Path) -> None:
    keys = [("tea", 7), ("milk", 7), ("tea", -1)]
    rows = [("a", "tea", -1), ("a", "milk", 7), ("a", "milk", -1), ("a", "tea", 7), ("a", "x", 7)]
    table = table_of(write(tmp_path / "t.parquet", rows), 1, Unit())
    columns = {**table.columns, "k, c": found_column(keys)}
    vault = TableVault(Table("t", table.source, Unit(), columns), SALT)
    assert vault.rows().codes["k, c"].tolist() == [2, 1, 3, 0, 3]


def test_codes_are_joined_and_split_again() -> None:
    sizes = (3, 1, 5)
    every = np.array(list(itertools.product(*map(range, sizes))))
    numbers, known = join_codes(list(every.T), sizes)
    assert known.all()
    assert len(np.unique(numbers)) == 15
    assert np.array_equal(np.stack(split_codes(numbers, sizes), axis=1), every)
    assert not join_codes([np.array([3]), np.array([0]), np.array([0])], sizes)[1].any()
    assert not join_codes([np.array([0]), np.array([-1]), np.array([0])], sizes)[1].any()


def test_no_other_combination_than_of_columns_whose_keys_are_sought(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [("a", "x", 7)])
    table = table_of(path, 2, Unit("who", 9))
    vault = TableVault(table, SALT)
    parts = (("text", "k"), ("integer", "c"))
    for wrong in (
        Sought("keys", 3, parts=parts),
        Sought("keys", 2, parts=(*parts, ("text", "who"))),
        Sought("bounds", 2, parts=parts),
    ):
        with pytest.raises(ProgrammingError):
            vault.pairs("k, c", wrong)


def _cut_before(real: Callable[..., Any]) -> Callable[..., Any]:
    def bounded(pairs: Any, keys: Any, owners: Any, most: int, digest: Any) -> Any:
        return real(pairs, keys, owners, most + 1, digest)

    return bounded


def _wild(codes: Any, sizes: Any) -> Any:
    places = sum(np.asarray(part, dtype=np.int64) for part in codes)
    return places, np.ones(len(codes[0]), dtype=np.bool_)


PLANTED: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[Path], None]]] = {
    "one combination more counts": (
        lambda: mock.patch.object(key_counts, "_bounded", _cut_before(key_counts._bounded)),
        lambda path: test_a_unit_moves_weights_by_a_norm_of_at_most_one(path, 1),
    ),
    "different combinations have one number": (
        lambda: mock.patch.object(combinations, "join_codes", _wild),
        test_parts_that_are_crossed_are_other_combinations,
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    plant, check = PLANTED[name]
    with plant(), pytest.raises((AssertionError, InternalError)):
        check(tmp_path)


def test_a_column_without_combinations_has_one_cell() -> None:
    column = found_column([])
    assert encode_joint(column, [np.array([0, 1]), np.array([0, 0])]).tolist() == [0, 0]
