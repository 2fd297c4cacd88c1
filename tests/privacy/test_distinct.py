"""What a privacy unit adds to the keys of a column follows from its own rows, and is bounded."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.discovery import Sought
from dpsql.errors import InternalError, ProgrammingError
from dpsql.privacy.doors import find_keys
from dpsql.privacy.doors.discovery import Discovery
from dpsql.privacy.doors.find_keys import _choose, _weights
from dpsql.privacy.vault.unit import key_counts
from dpsql.privacy.vault.unit.key_counts import NO_VALUE, Pairs, _bounded
from dpsql.privacy.vault.unit.unit_numbers import Digest, Units
from dpsql.privacy.vault.vault import TableVault
from tests.support.tables import insert, scribe

pytestmark = pytest.mark.usefixtures("one_reader")

SALT = b"0123456789abcdef"
HOSTILE = [
    *("tea", "Tea", "tea ", " tea", "", "a\nb", "a\tb", "\x7f", "x" * 1000, "x" * 1001),
    *("\u00e9", "e\u0301", "\u2028", "\u202e", "?", "other", "NULL", "'", '"', "\\", "\U0001f600"),
    *("\u00e9" * 500, "\u00e9" * 501, None),
]
PRINTABLE = [
    each
    for each in HOSTILE
    if each is not None and len(each.encode()) <= 1000 and not set(each) & set("\n\t\x7f\u2028")
]
Row = tuple[Any, Any]


def write(path: Path, rows: Sequence[Row], kind: str = "VARCHAR", unit: str = "VARCHAR") -> Path:
    connection = scribe()
    connection.execute(f"CREATE TEMP TABLE t (who {unit}, k {kind})")
    insert(connection, "t", rows)
    connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    connection.close()
    return path


def pairs_of(path: Path, most: int, by_unit: bool = True, kind: str = "text") -> Pairs:
    sought = Sought("keys", most, "month")
    column = Column("k", kind, sought=sought)
    unit = Unit("who", 50) if by_unit else Unit()
    vault = TableVault(Table("t", str(path), unit, {"k": column}), SALT)
    return vault.pairs("k", sought)


def units_of(found: Pairs) -> Counter[Any]:
    """How many units have each key."""
    return Counter(found.keys[place] for place in found.places.tolist())


def random_rows(seed: int, count: int) -> list[Row]:
    draw = random.Random(seed)
    who = ["ann", "bob", "Ann", "", None, *(f"u{i}" for i in range(3))]
    return [(draw.choice(who), draw.choice(HOSTILE)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_every_unit_counts_once_for_each_key_it_has(tmp_path: Path, seed: int) -> None:
    rows = random_rows(seed, 200)
    found = units_of(pairs_of(write(tmp_path / "t.parquet", rows), 50))
    plain = {(who, k) for who, k in rows if who is not None and k in PRINTABLE}
    assert found == Counter(k for _, k in plain)


def test_rows_count_one_by_one_where_they_are_the_units(tmp_path: Path) -> None:
    rows = random_rows(9, 300)
    found = units_of(pairs_of(write(tmp_path / "t.parquet", rows), 1, by_unit=False))
    assert found == Counter(k for _, k in rows if k in PRINTABLE)


def test_lines_of_text_give_the_same_keys(tmp_path: Path) -> None:
    lines = ["who,k", "a,tea", "b,tea", "c,", 'd,"x,y"', "broken", "e,tea"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    assert units_of(pairs_of(tmp_path / "t.csv", 3)) == {"tea": 3, "x,y": 1}


def test_numbers_and_days_are_keys_as_well(tmp_path: Path) -> None:
    numbers = [("a", 1), ("b", 1), ("c", 2**53), ("d", 2**53 + 1), ("e", None), ("f", -7)]
    found = units_of(pairs_of(write(tmp_path / "n.parquet", numbers, "BIGINT"), 1, kind="integer"))
    assert found == {1: 2, 2**53: 1, -7: 1}
    days = [("a", dt.date(2024, 1, 31)), ("b", dt.date(2024, 1, 1)), ("c", dt.date(9999, 12, 31))]
    found = units_of(pairs_of(write(tmp_path / "d.parquet", days, "DATE"), 1, kind="date"))
    assert found == {dt.date(2024, 1, 1): 2}


def contributions(found: Pairs, rows: Sequence[Row]) -> Counter[Any]:
    """The exact integer weight of every key, in units of 2^-20."""
    total: Counter[Any] = Counter()
    for place, each in zip(found.places.tolist(), _weights(found).tolist(), strict=True):
        total[found.keys[place]] += each
    return total


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_unit_moves_weights_by_a_norm_of_at_most_one(tmp_path: Path, most: int) -> None:
    """Every unit is removed in turn; what others add stays the same to the last bit."""
    rows = random_rows(3, 160)
    before = contributions(pairs_of(write(tmp_path / "t.parquet", rows), most), rows)
    for who in {who for who, _ in rows if who is not None}:
        fewer = [row for row in rows if row[0] != who]
        after = contributions(
            pairs_of(write(tmp_path / f"{hash(who)}.parquet", fewer), most), fewer
        )
        moved = [before[key] - after[key] for key in {*before, *after}]
        assert sum(each * each for each in moved) <= 4**20
        assert all(each >= 0 for each in moved)
        assert sum(map(bool, moved)) <= most


def test_keys_that_count_for_nobody_do_not_leave_the_vault(tmp_path: Path) -> None:
    """That they are there would be told by noise on nothing, a little for each of any number."""
    rows = [("a", f"k{i}") for i in range(50)] + [(None, "lost"), ("b", "k7"), ("b", None)]
    found = pairs_of(write(tmp_path / "t.parquet", rows), 1)
    assert set(found.keys) == {found.keys[place] for place in found.places.tolist()}
    assert len(found.keys) <= 2
    every = {*zip(*(each.tolist() for each in found.every), strict=True)}
    assert len(every) in (4, 5)  # a key, all others and k7 of one unit; k7 and NULL of the other
    assert NO_VALUE in found.every[1]


def test_which_keys_of_a_unit_count_is_even_over_salts() -> None:
    pairs, keys = np.array([[0, place] for place in range(4)]), ("a", "b", "c", "d")
    owners = Units(np.zeros(4, dtype=np.uint32), np.ones(4, dtype=np.bool_), np.array(["ann"]))
    chosen: Counter[str] = Counter()
    for i in range(200):
        kept = _bounded(pairs, keys, owners, 1, Digest(i.to_bytes(16).hex()))
        chosen[keys[int(kept[0, 1])]] += 1
    assert all(20 <= chosen[key] <= 80 for key in keys), chosen


def test_keys_come_in_an_order_that_says_nothing_of_rows(tmp_path: Path) -> None:
    keys = [f"k{i}" for i in range(30)]
    shuffled = random.Random(1).sample(keys, len(keys))
    found = pairs_of(write(tmp_path / "t.parquet", [(k, k) for k in shuffled]), 1)
    assert found.keys == tuple(sorted(keys))


def test_other_keys_than_the_catalog_declares_are_not_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [("a", "x")])
    column = Column("k", "text", sought=Sought("keys", 1))
    vault = TableVault(Table("t", str(path), Unit("who", 9), {"k": column}), SALT)
    for wrong in (Sought("keys", 2), Sought("bounds")):
        with pytest.raises(ProgrammingError):
            vault.pairs("k", wrong)


ASKED = Discovery("t", "k", Sought("keys", 2), "laplace", Fraction(1), Fraction(1, 100))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_unit_with_more_keys_than_may_count_stops_the_release(noise: str) -> None:
    """Planted: ``max_keys`` is ignored where pairs are formed."""
    crowded = Pairs(("a", "b", "c"), np.array([0, 0, 0]), np.array([0, 1, 2]))
    asked = Discovery("t", "k", Sought("keys", 2), noise, Fraction(1), Fraction(1, 100))
    with pytest.raises(ValueError, match="more keys"):
        _choose(asked, crowded)


def _first_come(pairs: Any, keys: Any, owners: Any, most: int, digest: Any) -> Any:
    return pairs[np.sort(np.unique(pairs[:, 1], return_index=True)[1])]


PLANTED: dict[str, Callable[[], Any]] = {
    "a key counts for the first unit alone": lambda: mock.patch.object(
        key_counts, "_bounded", _first_come
    ),
    "max_keys ignored": lambda: mock.patch.object(
        key_counts, "_bounded", lambda pairs, keys, owners, most, digest: pairs
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_in_the_pairs_is_found(tmp_path: Path, name: str) -> None:
    with PLANTED[name](), pytest.raises(AssertionError):
        test_a_unit_moves_weights_by_a_norm_of_at_most_one(tmp_path, 2)


def test_released_keys_are_sorted_and_frequent_ones(tmp_path: Path) -> None:
    rows = [(f"u{i}", "often") for i in range(90)] + [("u1", "rare"), ("u2", "seldom")]
    found = pairs_of(write(tmp_path / "t.parquet", rows), 2)
    for noise, amount in (("laplace", Fraction(1)), ("gaussian", Fraction(1, 4))):
        asked = Discovery("t", "k", Sought("keys", 2), noise, amount, Fraction(1, 10**9))
        assert _choose(asked, found) == ("often",)


def test_whatever_goes_wrong_is_told_by_one_constant_text(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [("a", "secret")])
    column = Column("k", "text", sought=Sought("keys", 1))
    vault = TableVault(Table("t", str(path), Unit("who", 9), {"k": column}), SALT)
    with (
        mock.patch.object(key_counts, "is_key", side_effect=ValueError("secret")),
        pytest.raises(InternalError) as caught,
    ):
        vault.pairs("k", Sought("keys", 1))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert find_keys._choose is _choose
