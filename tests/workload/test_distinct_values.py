"""Different values: which unions have a row, what they add up to, and how far a unit moves that."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense
from dpsql.plan.plan import Part
from dpsql.privacy.doors.exact_products import MANY_ROWS, apply_rows, checked
from dpsql.privacy.doors.measure import _sensitivity
from dpsql.privacy.vault.unit.rows import Rows, mark
from dpsql.strategy.product import assemble
from dpsql.workload.layout import WeightedAnswer
from dpsql.workload.term import Term
from dpsql.workload.unions import lay_out_units, sum_coefficients
from tests.workload.test_unions import SIZES, answer, exact, random_terms, rows, table, without

VALUES = 3
UNITS = 12


def many_valued(draw: np.random.Generator) -> tuple[tuple[Term, ...], str]:
    """Random terms of which one column has a row for every value of every group."""
    while True:
        terms = random_terms(draw)
        if terms[0].factors:
            break
    name = str(draw.choice(list(terms[0].factors)))
    rows_of = [each.factors[name].dense() for each in terms]
    parts = draw.integers(0, 2, (VALUES, SIZES[name]))
    longer = [Dense(np.concatenate([row * parts for row in each])) for each in rows_of]
    pairs = zip(terms, longer, strict=True)
    return tuple(Term({**t.factors, name: f}, scale=t.scale) for t, f in pairs), name


def marked(found: Rows, most: int, parts: list[Any]) -> Any:
    return mark(found, np.ones(found.count, dtype=bool), table(most), parts)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_values_are_counted_once_and_one_unit_moves_no_more_than_is_paid_for(noise: Any) -> None:
    summed = 0
    for seed in range(150):
        draw = np.random.default_rng(seed)
        most = int(draw.integers(1, 4))
        found, (terms, name) = rows(draw, UNITS, most), many_valued(draw)
        counts = (1,) * VALUES if seed % 2 else tuple(draw.integers(-4, 5, VALUES).tolist())
        wanted = WeightedAnswer(terms, distinct=(name, counts))
        layout = lay_out_units(table(most), {(0, 0): wanted})
        parts = list(layout.resolutions.values())
        numbers = marked(found, most, parts)
        assert set(np.unique(numbers)) <= {0, 1}
        has_row = exact(found, terms) > 0
        names = [each for each in SIZES if each in terms[0].factors]
        shape = [terms[0].factors[each].rows // (VALUES if each == name else 1) for each in names]
        axis = names.index(name)
        by_value = has_row.reshape([*shape[: axis + 1], VALUES, *shape[axis + 1 :]])
        expected = np.moveaxis(by_value, axis + 1, -1) @ np.array(counts)
        asked = tuple(
            Term({**t.factors, name: Dense(t.factors[name].dense()[::VALUES])}) for t in terms
        )
        np.testing.assert_array_equal(answer(layout, asked, numbers), expected.ravel(), str(seed))
        for sums in ({}, sum_coefficients(layout.workload)):
            strategy = assemble(
                layout.workload.domain, sums, {layout.workload.attributes: 1.0}, noise, "x"
            )
            part = Part(
                "t", strategy, layout.resolutions, Fraction(1), most, units=True, occupied=True
            )
            (block,) = strategy.blocks
            rows_of = block.integer_rows
            for unit in range(UNITS):
                change = numbers - marked(without(found, unit), most, parts)
                moved = apply_rows(checked(rows_of), change, MANY_ROWS).astype(np.int64)
                size = np.abs(moved).sum() if noise == "laplace" else (moved**2).sum()
                assert size <= _sensitivity(part, block)
        summed += bool(sums)
    assert summed > 30


def test_what_has_a_row_is_measured_as_a_sum_or_cell_by_cell_whichever_errs_less() -> None:
    plain = {name: Dense(np.eye(size, dtype=np.int64)) for name, size in SIZES.items()}
    wanted = WeightedAnswer((Term(plain),), distinct=("a", (1,) * SIZES["a"]))
    layout = lay_out_units(table(2), {(0, 0): wanted})
    assert {name: each.tolist() for name, each in sum_coefficients(layout.workload).items()} == {
        "a": [[1] * SIZES["a"]]
    }
