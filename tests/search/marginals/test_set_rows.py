"""What sets add to components without a matrix is what the matrix says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsql.search.marginals.set_rows import SetRows
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.opt_m import STEPS
from dpsql.search.unions.relaxation import evaluate
from dpsql.strategy.noise_law import Noise


def drawn(d: int, listed: bool, seed: int) -> tuple[SetRows, np.random.Generator]:
    """Rows of some sets over some components, of which several have no set at all."""
    rng = np.random.default_rng(seed)
    masks = rng.permutation(1 << d)[: max(2, 1 << (d - 1))].tolist()
    sets = sorted({*rng.permutation(1 << d)[:9].tolist(), 0, (1 << d) - 1}) if listed else None
    family = Family(d, sets, sorted({0, *masks}))
    usable = np.flatnonzero(rng.random(len(family.sets)) < 0.7)
    asked = np.flatnonzero(rng.random(len(family.components)) < 0.8)
    usable = usable if len(usable) else np.arange(1)
    asked = asked if len(asked) else np.arange(1)
    return SetRows(family, rng.uniform(0.5, 4, d), usable, asked), rng


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.booleans(), st.integers(0, 2**32 - 1))
def test_sums_are_those_of_the_matrix(d: int, listed: bool, seed: int) -> None:
    rows, rng = drawn(d, listed, seed)
    matrix = rows.dense()
    squares, parts = rng.random(len(matrix)), rng.random(matrix[0].shape)
    assert rows.precision(squares) == pytest.approx(squares @ matrix)
    assert rows.within(parts) == pytest.approx(matrix @ parts)
    assert rows.pairs == np.count_nonzero(matrix)
    some_of_them = np.flatnonzero(rng.random(len(matrix)) < 0.5)
    for places in (some_of_them, rng.permutation(some_of_them), rng.permutation(len(matrix))):
        some = rows.take(places)
        assert some.precision(squares[places]) == pytest.approx(squares[places] @ matrix[places])
        assert some.within(parts) == pytest.approx(matrix[places] @ parts)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.booleans(), st.integers(0, 2**32 - 1))
@example(3, True, 652)  # the last sets have no component: the one before them has its last one
def test_one_set_more(d: int, listed: bool, seed: int) -> None:
    rows, rng = drawn(d, listed, seed)
    matrix = rows.dense()
    weights = rng.random(len(matrix)) * (rng.random(len(matrix)) < 0.4)
    precision, R = weights**2 @ matrix, rng.random(matrix[0].shape)
    found = rows.added(precision, R, STEPS)
    for step, errors in zip(STEPS, found, strict=True):
        with np.errstate(divide="ignore"):
            assert errors == pytest.approx((R / (precision + step**2 * matrix)).sum(axis=1))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_one_start_is_rated_as_in_a_batch(noise: Noise) -> None:
    rows, rng = drawn(5, False, 3)
    matrix = rows.dense()
    w, R = rng.random((1, len(matrix))) + 0.1, rng.random(matrix[0].shape)
    for one, other in zip(
        evaluate(w, rows, R, noise), evaluate(w, matrix[np.newaxis], R, noise), strict=True
    ):
        assert one == pytest.approx(other)
