"""The declared view of some columns: which rows count, how far one unit moves it, additivity."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange, Values
from dpsql.errors import ProgrammingError
from dpsql.privacy.vault.data_engine import Counts, Flags
from dpsql.privacy.vault.unit.unit_numbers import Queue
from dpsql.privacy.vault.vault import TableVault, Vault
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import Nodes, cells_of
from tests.support.effort import effort
from tests.support.tables import insert, scribe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_reader")]

TABLES = effort(8)
SALT = b"0123456789abcdef"
GRID = 64
COLUMNS = {
    "x": Column("x", "integer", IntegerRange(0, 4)),
    "y": Column("y", "text", Values(("a", "b")), null=True),
    "z": Column("z", "text", Values(("p", "q")), null=True, other="rest"),
    "cost": Column("cost", "number", None, (0, 10)),  # type: ignore[arg-type]
}
Row = tuple[str | None, int | None, str | None, str | None, float | None]
CELLS: dict[str, list[object]] = {
    "x": [*range(5)],
    "y": ["a", "b", None],
    "z": ["p", "q", "s", None],
}
"""The values of the cells of each column; "s" is in the cell of all others."""
MASKS: list[dict[str, list[bool]]] = [
    {},
    {"x": [True, False, False, True, False]},
    {"x": [False, True, True, True, True], "y": [True, False, True]},
    {"z": [False, True, True, True]},
]
VIEWS = [
    RowView.of(columns, {name: np.array(each) for name, each in masks.items()})
    for masks in MASKS
    for size in range(5)
    for columns in itertools.combinations(COLUMNS, size)
]
INSIDE: dict[str, Callable[[Row], bool]] = {
    "x": lambda row: row[1] in range(5),
    "y": lambda row: row[2] in ("a", "b", None),
    "z": lambda row: True,
    "cost": lambda row: row[4] is not None and not math.isnan(row[4]),
}


def rows_at_random(rng: random.Random, count: int) -> list[Row]:
    return [
        (
            rng.choice(["ann", "bob", "eve", "dan", None]),
            rng.choice([0, 1, 2, 3, 4, 5, -1, None]),
            rng.choice(["a", "b", "c", None]),
            rng.choice(["p", "q", "s", None]),
            rng.choice([0.5, 3.0, 99.0, math.nan, math.inf, None]),
        )
        for _ in range(count)
    ]


def store(path: Path, rows: Iterable[Row], unit: Unit) -> Vault:
    with scribe() as database:
        database.execute(
            "CREATE TEMP TABLE t (who VARCHAR, x INT, y VARCHAR, z VARCHAR, cost DOUBLE)"
        )
        insert(database, "t", list(rows))
        database.execute(f"COPY t TO '{path}'")
    return TableVault(Table("t", str(path), unit, COLUMNS), SALT)


def vector(vault: Vault, view: RowView) -> Counts:
    """All that a view shows of its columns, one number after the other, and its size."""
    narrow, columns = vault.within(view), sorted(view.columns)
    cells = [cells_of(n, np.arange(COLUMNS[n].size)) for n in columns if COLUMNS[n].size]
    parts = [narrow.tally([]), narrow.tally(cells)]
    if "cost" in columns:
        parts.append(narrow.tally([*cells, Nodes("cost", 1, 1, GRID, ())]))
    return np.concatenate([np.atleast_1d(part).ravel() for part in parts])


def belongs(row: Row, view: RowView) -> bool:
    values = dict(zip(("who", *COLUMNS), row, strict=True))
    are_declared = all(INSIDE[name](row) for name in view.columns)
    return are_declared and all(
        INSIDE[name](row) and mask[CELLS[name].index(values[name])]
        for name, mask in view.masks.items()
    )


@pytest.mark.parametrize("seed", range(2))
def test_a_row_counts_where_the_columns_of_the_view_are_declared(seed: int, tmp_path: Path) -> None:
    rows = rows_at_random(random.Random(seed), 300)
    vault = store(tmp_path / "t.parquet", rows, Unit())
    for view in VIEWS:
        kept = [row for row in rows if belongs(row, view)]
        assert int(vault.within(view).tally([])) == len(kept), view
        if "x" in view.columns:
            found = vault.within(view).count(["x"], [np.arange(5)])
            assert found.tolist() == [sum(row[1] == k for row in kept) for k in range(5)]
    assert int(vault.tally([])) == int(vault.within(RowView(tuple(COLUMNS))).tally([]))


@pytest.mark.parametrize("most", [1, 3])
def test_every_view_keeps_as_many_rows_of_a_unit_as_it_may(most: int, tmp_path: Path) -> None:
    rows = rows_at_random(random.Random(most), 300)
    vault = store(tmp_path / "t.parquet", rows, Unit("who", most))
    for view in VIEWS:
        owned = Counter(row[0] for row in rows if row[0] is not None and belongs(row, view))
        found = vault.within(view)
        assert int(found.tally([])) == sum(min(most, count) for count in owned.values()), view
        assert int(found.tally([], units=True)) == len(owned), view


def test_views_in_any_order_do_not_disturb_each_other(tmp_path: Path) -> None:
    rows = rows_at_random(random.Random(7), 200)
    vault = store(tmp_path / "t.parquet", rows, Unit("who", 2))
    first = {view: vector(vault, view) for view in VIEWS}
    for view in reversed(VIEWS):
        np.testing.assert_array_equal(vector(vault, view), first[view])


def test_a_view_is_of_declared_columns(tmp_path: Path) -> None:
    vault = store(tmp_path / "t.parquet", [], Unit())
    with pytest.raises(ProgrammingError) as caught:
        vault.within(RowView(("nothing",)))
    assert caught.value.code == "E_WORKLOAD"
    for cells in (("x", 4, b"\x80"), ("cost", 1, b"\x80"), ("nothing", 1, b"\x80")):
        with pytest.raises(ProgrammingError):
            vault.within(RowView((), (cells,)))


@pytest.mark.parametrize("seed", range(TABLES))
def test_views_are_sums_over_units_and_one_unit_moves_them_by_its_rows(
    seed: int, tmp_path: Path
) -> None:
    """Additivity, and with it the sensitivity: whatever the others are, a unit adds the same."""
    rng = random.Random(seed)
    rows = rows_at_random(rng, rng.randrange(1, 60))
    unit = rng.choice([Unit(), Unit("who", rng.choice([1, 2, 5]))])
    check_additivity(tmp_path, rows, unit, rng.sample(VIEWS, 5))


def check_additivity(place: Path, rows: list[Row], unit: Unit, views: Iterable[RowView]) -> None:
    """Compare each view of a table with the sum of those of its units, one by one."""
    if unit.column is None:
        groups = [[row] for row in rows[:8]] + [rows[8:]]
    else:
        groups = [[row for row in rows if row[0] == who] for who in {row[0] for row in rows}]
    whole = store(place / "whole.parquet", rows, unit)
    alone = [store(place / f"{i}.parquet", part, unit) for i, part in enumerate(groups)]
    for view in views:
        parts = [vector(each, view) for each in alone]
        np.testing.assert_array_equal(vector(whole, view), sum(parts[1:], parts[0]))
        total, reach = 1 + 1, GRID if "cost" in view.columns else 0
        for part in parts if unit.column is not None else parts[:-1]:
            assert (part >= 0).all()
            assert part.sum() <= (total + reach) * unit.max_rows


def unbounded(queue: Queue, inside: Flags) -> Flags:
    """A fault: rows beyond what a unit may have are kept."""
    return inside


def one_crowd(queue: Queue, inside: Flags) -> Flags:
    """A fault: units take each other's places."""
    return Queue(queue.rows, np.zeros_like(queue.units), 4 * queue.max_rows).bound(inside)


def by_the_whole(queue: Queue, inside: Flags) -> Flags:
    """A fault: whether a row stays depends on how many rows there are."""
    kept = Queue(queue.rows, queue.units, queue.max_rows).bound(inside)
    return kept if len(inside) < 40 else inside & (np.cumsum(inside) % 2 == 0)


@pytest.mark.parametrize("fault", [unbounded, one_crowd, by_the_whole])
def test_faults_of_the_bound_are_found(
    fault: Callable[[Queue, Flags], Flags], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_at_random(random.Random(1), 60)
    check_additivity(tmp_path, rows, Unit("who", 2), VIEWS)
    with monkeypatch.context() as patch:
        real = Queue.bound

        def bound(queue: Queue, inside: Flags) -> Flags:
            patch.setattr(Queue, "bound", real)
            try:
                return fault(queue, inside)
            finally:
                patch.setattr(Queue, "bound", bound)

        patch.setattr(Queue, "bound", bound)
        with pytest.raises(AssertionError):
            check_additivity(tmp_path, rows, Unit("who", 2), VIEWS)
