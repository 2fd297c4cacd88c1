"""Expressions on all combinations of values: as if every row of them were written out."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from dpsql.errors import ProgrammingError, Span
from dpsql.sealed import Sealed
from dpsql.sql.combinations import Combinations, Given
from dpsql.sql.grids import grid_of
from dpsql.sql.query import Expression

SPAN = Span("x", 0, 1)


@pytest.mark.parametrize("seed", range(6))
def test_grids_have_all_combinations_in_order(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcde"[: rng.randint(2, 5)]
    cells = {name: [rng.randint(0, 3) for _ in range(rng.randint(1, 6))] for name in names}
    parts = {Expression(name, "v", SPAN): ("BIGINT", tuple(each)) for name, each in cells.items()}
    grid = grid_of(parts, names, SPAN)
    axes = grid.axes((f"x{k}", part) for k, part in enumerate(parts))
    written = "100 * x0" + "".join(f" + {10**k} * x{k}" for k in range(1, len(names)))
    combined = Combinations(Sealed())
    found = combined.values(written, axes, {}, SPAN)
    different = [list(dict.fromkeys(each)) for each in cells.values()]
    want = [
        100 * row[0] + sum(10**k * v for k, v in enumerate(row) if k)
        for row in itertools.product(*different)
    ]
    assert found == want
    assert grid.shape == tuple(map(len, different))
    truth = combined.truth(f"{written} > y", axes, {"y": ("BIGINT", [150])}, SPAN)
    assert truth.tolist() == [each > 150 for each in want]
    count, values = combined.different(written, axes, 10_000, SPAN)
    assert values == list(dict.fromkeys(want))
    assert count == len(values)


def test_different_values_are_the_first_of_each_and_no_list_of_many() -> None:
    combined = Combinations(Sealed())
    axes: list[Given] = [
        {"x0": ("DOUBLE", [-0.0, 0.0, 1.0])},
        {"x1": ("DOUBLE", [1.0, -1.0]), "x2": ("VARCHAR", ["p", None])},
    ]
    count, values = combined.different("x0 * x1", axes, 10, SPAN)
    assert (count, values) == (3, [0.0, 1.0, -1.0])
    assert math.copysign(1, values[0]) == -1
    assert combined.different("x2", axes, 10, SPAN) == (2, ["p", None])
    assert combined.different("x1", [{"x1": ("BIGINT", range(100))}], 10, SPAN) == (100, [])


def test_what_fails_on_some_combination_says_where_it_was_written() -> None:
    axes = [{"x0": ("VARCHAR", ["1", "2"])}, {"x1": ("VARCHAR", ["3", "p"])}]
    with pytest.raises(ProgrammingError) as refused:
        Combinations(Sealed()).values("(x0 || x1)::INT", axes, {}, SPAN)
    assert refused.value.code == "E_DOMAIN_EVAL"
    assert refused.value.span == SPAN
