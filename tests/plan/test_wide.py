"""Constants and classes of attributes with many cells, against what is written out for few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity, Prefix, Ranges
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Operator
from dpsql.plan import Workload, select
from dpsql.search.problem import PLANNED
from dpsql.strategy import axis
from dpsql.strategy.axis import _full_axis, _thin_axis, full_axis
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product_forecast import ProductForecast
from dpsql.workload import coarsen
from dpsql.workload.coarsen import tell_apart

CELLS = 12


def operators(random: np.random.Generator) -> list[Operator]:
    labels = random.integers(-1, 4, CELLS)
    ends = np.sort(random.integers(0, CELLS + 1, (2, 5)), axis=0)
    return [
        Identity(CELLS),
        Prefix(CELLS),
        Groups(labels, 4),
        Groups(labels, 4, random.integers(-3, 4, CELLS)),
        Groups(random.integers(0, 4, CELLS), 4, random.random(CELLS)),
        Ranges(CELLS, ends[0], ends[1]),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_thin_rows_have_the_constants_of_full_matrices(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(-3, 4, (int(random.integers(1, 9)), CELLS))
    if seed % 2:
        rows = np.concatenate([rows, np.ones((1, CELLS), dtype=np.int64)])
    full, thin = _full_axis(CELLS, rows, False), _thin_axis(CELLS, rows, rows.astype(np.float64))
    assert thin.u == pytest.approx(full.u, abs=1e-9)
    assert thin.total == pytest.approx(full.total)
    assert thin.inverse == pytest.approx(full.inverse, abs=1e-9)
    asked: list[Operator] = [Dense(rows), Dense(rows[:1] * 2), *operators(random)]
    for operator in asked:
        means, spread, answerable = thin.parts(operator)
        known = full.parts(operator)
        assert answerable == known[2]
        assert means == pytest.approx(known[0], abs=1e-9)
        if answerable:
            assert spread == pytest.approx(known[1], abs=1e-9)
    spans = Ranges(CELLS, np.arange(CELLS), np.arange(1, CELLS + 1))
    for one, two in ((asked[0], asked[0]), (asked[-1], asked[-1]), (spans, spans)):
        if not all(each.parts(op)[2] for each in (thin, full) for op in (one, two)):
            continue
        monkeypatch.setattr(axis, "WRITTEN", 1 << 26)
        crossed = full.cross(one, two)
        monkeypatch.setattr(axis, "WRITTEN", 8 * 9 * 2)  # some rows at a time
        for pair in zip(thin.cross(one, two), crossed, strict=True):
            assert pair[0] == pytest.approx(pair[1], abs=1e-9)


@pytest.mark.parametrize("rows", [None, np.eye(CELLS, dtype=np.int64) * 3 + 1])
@pytest.mark.parametrize("seed", range(10))
def test_groups_are_asked_as_their_rows_are(
    seed: int, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None
) -> None:
    own = full_axis(CELLS, rows, False)
    found = operators(np.random.default_rng(seed))
    for operator in found:
        for mine, known in zip(
            own.parts(operator), own.parts(Dense(operator.dense())), strict=True
        ):
            assert mine == pytest.approx(known, abs=1e-9)
    spans = Ranges(CELLS, np.array([0, 2, 5, 1]), np.array([9, 2, 12, 4]))
    other = Ranges(CELLS, np.array([3, 0, 7, 8]), np.array([5, 12, 9, 12]))
    pairs = [(found[0], found[0]), (found[2], found[3]), (found[3], found[4])]
    pairs += [(found[1], found[0]), (spans, found[3]), (found[2], spans), (spans, other)]
    for left, right in pairs:
        dense = own.cross(Dense(left.dense()), Dense(right.dense()))
        for mine, known in zip(own.cross(left, right), dense, strict=True):
            assert mine == pytest.approx(known, abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_codes_tell_columns_apart_and_no_more_than_ranges_need(seed: int) -> None:
    for operator in operators(np.random.default_rng(seed)):
        if not isinstance(operator, (Groups, Ranges)):
            continue
        columns, codes = operator.dense().T, tell_apart(operator).T
        for i in range(CELLS):
            assert codes[i].any() == columns[i].any()
            for j in range(i):
                same = bool((columns[i] == columns[j]).all())
                if (codes[i] == codes[j]).all():
                    assert same
                elif isinstance(operator, Groups):
                    assert not same


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_no_matrix_of_cells_by_cells_is_formed(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wide attribute alone, with its total, with classes of it, and beside a small one."""
    n, cells = PLANNED + 700, np.arange(PLANNED + 700)

    def plant(kind: type[Operator], name: str) -> None:
        real = getattr(kind, name)

        def checked(self: Operator) -> object:
            assert self.n < PLANNED, f"{name} of {self.n} cells"
            return real(self)

        monkeypatch.setattr(kind, name, checked)

    for kind in (Groups, Ranges, Prefix, Identity):
        plant(kind, "gram")
    plant(Identity, "dense")
    plant(Prefix, "dense")
    halves: Operator = Groups(cells // 2, (n + 1) // 2)
    asked: list[list[dict[str, Any]]] = [
        [{"a": "identity"}],
        [{"a": "identity"}, {}],
        [{"a": "identity"}, {"a": halves}, {"a": Groups(cells % 3000, 3000)}],
        [{"a": "identity", "b": "identity"}, {"a": halves}, {"b": "prefix"}],
        [{"a": "prefix"}, {"a": Ranges(n, cells // 2, cells // 2 + 9)}],
        [{"a": [cells]}],
    ]
    for products in asked:
        workload = coarsen.coarsen(Workload({"a": n, "b": 3}, products)).workload
        strategy = select(workload, noise)
        forecast = strategy.forecast([1.0] * len(strategy.blocks))
        assert isinstance(forecast, ProductForecast)
        for product in workload.products:
            assert np.isfinite(forecast.variance(product)).all()
    assert axis.LARGE == PLANNED
