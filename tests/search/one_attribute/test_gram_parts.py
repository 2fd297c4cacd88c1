"""Cells that no query brings together are planned part by part, all parts at once."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.algebra.connected_components import gram_of_parts, inverse_of_parts, parts_of
from dpsql.search.one_attribute import dual
from dpsql.search.one_attribute.gram_parts import learn_parts, losses_of
from dpsql.search.one_attribute.opt0 import loss_and_grad, matrix, optimise
from dpsql.search.select import select
from dpsql.workload.workload import Workload

GROUPS = 80


def sums_and_counts(rng: np.random.Generator, cells: int) -> Workload:
    """A sum and a count of each group, whose values lie on several cells."""
    n = GROUPS * cells
    counts = np.kron(np.eye(GROUPS, dtype=np.int64), np.ones((1, cells), dtype=np.int64))
    sums = counts * rng.integers(90, 101, n)
    return Workload({"x": n}, [({"x": counts}, 1.0), ({"x": sums}, 0.01)])


def test_losses_are_those_of_each_part() -> None:
    rng = np.random.default_rng(0)
    theta, rows = rng.random((5, 2, 4)), rng.random((5, 6, 4))
    V = rows.transpose(0, 2, 1) @ rows
    losses, slopes = losses_of(V, theta)
    for k in range(5):
        loss, slope = loss_and_grad(theta[k], V[k])
        assert losses[k] == pytest.approx(loss)
        assert slopes[k] == pytest.approx(slope)


@pytest.mark.parametrize("cells", [2, 3])
def test_parts_together_are_as_good_as_each_by_itself(cells: int) -> None:
    """Before: one count per cell, with up to twice the error."""
    workload = sums_and_counts(np.random.default_rng(1), cells)
    pairs = zip(workload.factors[0], workload.weights2, strict=True)
    gram = np.asarray(sum(w * op.gram() for op, w in pairs))
    labels = parts_of(gram)
    assert labels is not None
    assert labels.max() + 1 == GROUPS
    learned = learn_parts(gram)
    assert learned is not None
    assert matrix(learned).sum(axis=0) == pytest.approx(1)
    assert all(len(set(labels[row > 0])) == 1 for row in learned)
    total = loss_and_grad(learned, gram)[0]
    some = [np.flatnonzero(labels == k) for k in range(0, GROUPS, 20)]
    for part in some:
        block = gram[np.ix_(part, part)]
        rows = learned[learned[:, part].any(axis=1)][:, part]
        alone = loss_and_grad(optimise(block, p=1), block)[0]
        assert loss_and_grad(rows, block)[0] <= alone * 1.003
    assert total < 0.75 * np.trace(gram)
    assert select(workload).unit_error(workload) <= total * 1.003


def test_cells_alone_are_no_parts_to_learn() -> None:
    assert learn_parts(np.diag(np.arange(1.0, 200.0))) is None
    assert learn_parts(np.ones((200, 200))) is None


def test_algebra_of_parts_is_that_of_all() -> None:
    """Parts of several shapes, in any order of cells, with more rows than cells."""
    rng = np.random.default_rng(3)
    shapes = [(int(rng.integers(n, n + 3)), n) for n in [1, 2, 3, 4] * 20]
    blocks = [rng.integers(1, 9, shape) + 9 * np.eye(*shape) for shape in shapes]
    ends = np.cumsum([(0, 0), *(block.shape for block in blocks)], axis=0)
    Q = np.zeros(ends[-1])
    for block, (row, cell) in zip(blocks, ends, strict=False):
        Q[row : row + len(block), cell : cell + block.shape[1]] = block
    Q = Q[rng.permutation(len(Q))][:, rng.permutation(Q.shape[1])]
    labels, weights = parts_of(Q), rng.random(len(Q))
    assert labels is not None
    assert labels.max() + 1 == len(blocks)
    assert (labels == parts_of(Q.T @ Q)).all()
    gram = Q.T @ (weights[:, np.newaxis] * Q)
    assert gram_of_parts(Q, weights, labels) == pytest.approx(gram)
    found = inverse_of_parts(Q)
    assert found is not None
    assert found[0] == pytest.approx(np.linalg.inv(Q.T @ Q), abs=1e-9)
    assert found[1] == pytest.approx(np.linalg.pinv(Q), abs=1e-9)
    together = dual.optimise(gram)
    assert together.upper <= together.lower * (1 + 1e-6)
    X = together.matrix.T @ together.matrix
    assert X.diagonal() == pytest.approx(1)
    assert np.trace(np.linalg.solve(X, gram)) == pytest.approx(together.upper)
