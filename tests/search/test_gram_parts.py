"""Cells that no query brings together are planned part by part, all parts at once."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.search.gram_parts import learn_parts, losses_of, parts_of
from dpsql.search.opt0 import loss_and_grad, matrix, optimise
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
