"""Unions of cells: what is measured of privacy units, and how far one unit moves it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Total
from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import ProgrammingError
from dpsql.plan.plan import Part
from dpsql.privacy.doors.measure import _sensitivity
from dpsql.privacy.vault.unit.rows import Rows, fits, tally
from dpsql.privacy.vault.unit.unit_numbers import Units
from dpsql.strategy.product import assemble
from dpsql.workload import unions
from dpsql.workload.cells import (
    AnyResolution,
    Cells,
    Nodes,
    Resolution,
    Unions,
    cells_of,
    decode_resolution,
    encode_resolution,
    unit_reach,
)
from dpsql.workload.layout import Layout, WeightedAnswer
from dpsql.workload.term import Term
from dpsql.workload.unions import lay_out_units

SIZES = {"a": 5, "b": 3, "c": 4}
COLUMNS = {name: Column(name, "integer", IntegerRange(0, n - 1)) for name, n in SIZES.items()}


def table(rows_per_unit: int) -> Table:
    return Table("t", "t.parquet", Unit("who", rows_per_unit), COLUMNS)


def rows(draw: np.random.Generator, units: int, most: int) -> Rows:
    """Random rows of units with at most so many each, in no order."""
    owners = np.concatenate([np.full(draw.integers(1, most + 1), i) for i in range(units)])
    owners = draw.permutation(owners).astype(np.uint32)
    codes = {n: draw.integers(0, size, len(owners)).astype(np.uint8) for n, size in SIZES.items()}
    return Rows(len(owners), codes, owners=owned_by(owners))


def owned_by(units: NDArray[np.int64]) -> Units:
    """Rows that all have an owner, each known by its number."""
    return Units(units.astype(np.uint32), np.ones(len(units), dtype=bool), np.arange(99))


def counted(found: Rows, table: Table, parts: Sequence[AnyResolution]) -> NDArray[np.int64]:
    """Count the units of all rows."""
    return tally(found, np.ones(found.count, dtype=bool), table, parts, True)


def without(found: Rows, unit: int) -> Rows:
    assert found.owners is not None
    kept = found.owners.units != unit
    codes = {name: code[kept] for name, code in found.codes.items()}
    return Rows(int(kept.sum()), codes, owners=owned_by(found.owners.units[kept]))


def random_terms(draw: np.random.Generator) -> tuple[Term, ...]:
    """One product of 0/1/2 rows, or a signed sum of products that is never negative."""
    groups = {name: int(draw.integers(1, 4)) for name in SIZES}
    used = [name for name in SIZES if draw.random() < 0.7]
    plain = {n: Dense(draw.choice([0, 0, 1, 1, 2], (groups[n], SIZES[n]))) for n in used}
    if draw.random() < 0.4 or len(used) < 2:
        return (Term(plain),)
    # everything less the rows in both of two masks: NOT (x AND y)
    x, y = used[:2]
    inside = {n: Dense(plain[n].matrix * draw.integers(0, 2, SIZES[n])) for n in (x, y)}
    return (Term(plain), Term({**plain, **inside}, scale=-1.0))


def exact(found: Rows, terms: tuple[Term, ...]) -> NDArray[np.int64]:
    """Distinct units of every group, by going over all rows one by one."""
    names = [name for name in SIZES if name in terms[0].factors]
    shape = [terms[0].factors[name].rows for name in names]
    seen: list[set[int]] = [set() for _ in range(int(np.prod(shape)))]
    assert found.owners is not None
    for i, unit in enumerate(found.owners.units.tolist()):
        total: Any = np.zeros(shape)
        for term in terms:
            weight: Any = np.ones(())
            for name in names:
                column = term.factors[name].dense()[:, found.codes[name][i]]
                weight = np.multiply.outer(weight, column)
            total = total + term.scale * weight
        for place in np.flatnonzero(total):
            seen[place].add(unit)
    return np.array([len(each) for each in seen])


def answer(
    layout: Layout, terms: tuple[Term, ...], numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The groups of the only answer in declared order of columns, read off measured numbers."""
    ((_, product),) = layout.products[0, 0]
    tensor = numbers
    for axis, name in enumerate(layout.workload.attributes):
        factor = product.factors.get(name, Total(tensor.shape[axis]))
        tensor = factor.apply(tensor, axis)
    factors = terms[0].factors
    shape = [factors[name].rows if name in factors else 1 for name in layout.order]
    declared = sorted(range(len(shape)), key=lambda axis: list(SIZES).index(layout.order[axis]))
    return tensor.reshape(shape).transpose(declared).ravel()


def test_every_group_counts_its_units_once_and_one_unit_moves_no_more_than_is_paid_for() -> None:
    shared = 0
    for seed in range(150):
        draw = np.random.default_rng(seed)
        most = int(draw.integers(1, 4))
        found, terms = rows(draw, 12, most), random_terms(draw)
        layout = lay_out_units(table(most), {(0, 0): WeightedAnswer(terms)})
        parts = list(layout.resolutions.values())
        assert fits(parts, table(most), True)
        measured = counted(found, table(most), parts)
        expected = exact(found, terms)
        np.testing.assert_array_equal(answer(layout, terms, measured), expected, str(seed))
        reach = unit_reach(parts, most)
        shared += any(isinstance(each, Unions) for each in parts)
        for unit in range(12):
            change = measured - counted(without(found, unit), table(most), parts)
            assert set(np.unique(change)) <= {0, 1}
            assert change.sum() <= reach
    assert shared > 40


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_membrane_finds_the_largest_change_from_the_members(most: int, noise: Any) -> None:
    for seed in range(40):
        draw = np.random.default_rng(seed)
        members = draw.random((int(draw.integers(1, 9)), 5)) < 0.4
        parts: dict[str, Resolution] = {
            "a": Unions(cells_of("a", np.arange(5)), members),
            "b": cells_of("b", np.arange(3)),
        }
        domain = {name: each.size for name, each in parts.items()}
        strategy = assemble(domain, {}, {("a", "b"): 1.0}, noise, "one count per group")
        part = Part("t", strategy, parts, Fraction(1), most, units=True)
        reached = [
            {(j, b) for a, b in cells for j in np.flatnonzero(members[:, a]).tolist()}
            for cells in itertools.combinations(itertools.product(range(5), range(3)), most)
        ]
        paid = _sensitivity(part, strategy.blocks[0])
        assert max(map(len, reached)) <= paid
        assert paid == unit_reach(list(parts.values()), most)
        cost = paid / part.scales[0] / (1 if noise == "laplace" else 2)
        assert Fraction(99, 100) < cost <= 1


def test_unions_that_share_no_cell_are_cells_and_equal_ones_are_measured_once() -> None:
    groups = [[1, 1, 0, 0, 0], [0, 0, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]
    rows_of_a = Dense(np.array(groups))
    layout = lay_out_units(table(2), {(0, 0): WeightedAnswer((Term({"a": rows_of_a}),))})
    (found,) = layout.resolutions.values()
    assert isinstance(found, Cells)
    assert found.classes[0].tolist() == [0, 0, 1, -1, 1]
    ((_, product),) = layout.products[0, 0]
    assert product.factors["a"].dense().tolist() == [[1, 0], [0, 1], [1, 0], [0, 0]]


def test_unions_come_back_from_their_stored_form_and_differ_by_members() -> None:
    joint = Cells(("a", "b"), (np.arange(5), np.arange(3)), np.arange(15).reshape(5, 3))
    for cells in (cells_of("a", np.array([0, 1, -1, 1, 2])), joint):
        members = np.arange(2 * cells.size).reshape(2, -1) % 3 > 0
        found = Unions(cells, members)
        kept: dict[str, Any] = {}

        def keep(array: Any, kept: dict[str, Any] = kept) -> str:
            kept[f"x{len(kept)}"] = array
            return f"x{len(kept) - 1}"

        again = decode_resolution(encode_resolution(found, keep), kept)
        assert again == found
        assert hash(again) == hash(found)
        assert Unions(cells, ~members) != found
        assert cells != found


def test_only_units_are_counted_in_unions_and_only_in_those_that_fit() -> None:
    cells = cells_of("a", np.arange(5))
    fine = Unions(cells, np.ones((2, 5), dtype=np.bool_))
    assert fits([fine], table(2), True)
    assert not fits([fine], table(2), False)
    assert not fits([Unions(cells, np.ones((2, 4), dtype=np.bool_))], table(2), True)
    assert not fits([Unions(cells, np.full((2, 5), 2))], table(2), True)
    assert not fits([Unions(cells_of("z", np.arange(5)), fine.members)], table(2), True)
    assert not fits([Nodes("a", 1, 1, 4)], table(2), True)


def test_too_many_groups_of_too_many_cells_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unions, "MAX_MEMBERS", 30)
    ranges = Dense(np.tril(np.ones((7, 5), dtype=np.int64)))
    with pytest.raises(ProgrammingError) as error:
        lay_out_units(table(2), {(0, 0): WeightedAnswer((Term({"a": ranges}),))})
    assert error.value.code == "E_TOO_LARGE"
    assert "a, which share cells" in error.value.message
