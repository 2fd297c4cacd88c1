"""Rows of few pieces against the rows written out: steps, runs, and variances of intervals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity, Prefix, Ranges
from dpsql.algebra.decayed_sums import Fading
from dpsql.algebra.groups import Groups
from dpsql.algebra.levels import Levels, Structured
from dpsql.algebra.operator import Floats, Operator
from dpsql.algebra.piecewise_rows import pieces_of, together
from dpsql.search.one_attribute.hierarchy import AxisWorkload
from dpsql.strategy.fading_axis import FadingAxis
from dpsql.strategy.structured import structured_axis
from dpsql.strategy.tree_axis import TreeAxis

N = 192
TREE = Levels(N, (1, 4, 24, N), (2, 3, 1, 5))
FADING = Fading(N, (0, 1, 2, 4, 8, 100), (64, 32, 24, 18, 12, 5))


def some_rows(seed: int, count: int, steps: int = 5) -> Floats:
    """Rows that change at a few cells, at the first and the last among them; one is empty."""
    random = np.random.default_rng(seed)
    out = np.zeros((count, N))
    for row in out[1:]:
        for at in random.choice([0, N, *range(1, N)], steps):
            row[at:] += random.integers(-2, 3)
    out[-1] = np.isin(np.arange(N), random.choice(N, 2))
    return out


@pytest.mark.parametrize("seed", range(4))
def test_steps_and_energies_are_those_of_the_rows(seed: int) -> None:
    one, two = some_rows(seed, 6), some_rows(seed + 9, 3)
    parts = [pieces_of(Dense(rows)) for rows in (one, two)]
    assert parts[0] is not None
    assert parts[1] is not None
    pieces, rows = together([parts[0], parts[1]]), np.concatenate([one, two])
    row, cell, height = pieces.changes()
    added = np.zeros_like(rows)
    for i, at, by in zip(row, cell, height, strict=True):
        added[i, :at] += by
    assert (added == rows).all()
    assert np.bincount(row, height, len(rows)).tolist() == [0.0] * len(rows)
    asked = AxisWorkload((Dense(one), Identity(N), Dense(two)), (2.0, 7.0, 3.0), 0.5)
    for count in (1, 2, 5, 37, N):
        edges = np.arange(count + 1) * N // count
        wanted = sum(
            np.square(rows[:, lo:hi].sum(axis=1)) / (hi - lo) for lo, hi in pairwise(edges)
        )
        assert pieces.energies(count) == pytest.approx(wanted)
        each = np.repeat([2.0, 3.0], [len(one), len(two)]) @ wanted + 7 * count + N / 2
        assert asked.energy(count) == pytest.approx(each)
        assert asked.sampled().energy(count) == pytest.approx(each)


def test_rows_of_many_pieces_are_none() -> None:
    assert pieces_of(Dense(np.tile([0, 1], (2, N // 2)))) is None


@pytest.mark.parametrize("rows", [TREE, FADING], ids=["tree", "fading"])
@pytest.mark.parametrize("steps", [1, 2, 3, 12])
def test_variances_of_few_steps_are_those_of_dense_algebra(rows: Structured, steps: int) -> None:
    A = rows.dense().astype(float)
    K = np.linalg.inv(A.T @ A)
    u = K.sum(axis=1) / K.sum()
    Q = some_rows(steps, 7, steps)
    means, spread, answerable = structured_axis(rows).parts(Dense(Q))
    assert answerable
    assert means == pytest.approx(Q @ u, abs=1e-9)
    of_total = K.sum() * np.outer(u, u)
    assert spread == pytest.approx(np.einsum("ij,jk,ik->i", Q, K - of_total, Q), abs=1e-9)


def some_factors(seed: int) -> list[Operator]:
    """Factors of every kind that are taken together, and of those that are not."""
    random = np.random.default_rng(seed)
    lo, hi = np.sort(random.integers(0, N + 1, (2, 9)), axis=0)
    runs = np.repeat(random.permutation(8) - 1, np.diff([0, *np.sort(random.choice(N, 7)), N]))
    found: list[Operator] = [Dense(some_rows(seed + i, i + 2, i + 1)) for i in range(4)]
    found += [Dense(some_rows(seed + i, 2)[1:]) for i in range(5, 9)]
    found += [Identity(N), Prefix(N), Ranges(N, lo, hi), Ranges(N, lo, lo + (lo < N))]
    found += [Groups(runs, 9), Groups(random.integers(-1, 3, N), 3), Groups(runs, 9, runs / 3)]
    found += [Dense(random.normal(size=(3, N))), found[0]]
    return [found[i] for i in random.permutation(len(found))]


@pytest.mark.parametrize("chunk", [4, 1 << 20])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [TREE, FADING], ids=["tree", "fading"])
def test_many_factors_at_once_are_those_of_dense_algebra(
    rows: Structured, seed: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.strategy.structured_axis.CHUNK", chunk)
    K = np.linalg.inv(rows.dense().T @ rows.dense().astype(float))
    u = K.sum(axis=1) / K.sum()
    Kt = K - K.sum() * np.outer(u, u)
    axis = TreeAxis(rows) if isinstance(rows, Levels) else FadingAxis(FADING)
    axis.prepare(some_factors(seed))
    assert axis._known
    for factor in some_factors(seed):
        Q = factor.dense()
        means, spread, _ = axis.parts(factor)
        assert means == pytest.approx(Q @ u, abs=1e-9)
        assert spread == pytest.approx(np.einsum("ij,jk,ik->i", Q, Kt, Q), abs=1e-9)
        assert axis.work(factor) > 0
