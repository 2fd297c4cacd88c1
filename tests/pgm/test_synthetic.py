"""Rows drawn from models: low variance, right expectations, never anything but cell numbers."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.pgm.fit import fit
from dpsql.pgm.linear import whole_marginal
from dpsql.pgm.measurements import Measured
from dpsql.pgm.sample import category_rows, round_counts

DOMAIN = {"a": 4, "b": 3, "c": 5, "d": 2}


def test_round_counts_has_the_right_floor_sum_and_mean() -> None:
    rng = np.random.default_rng(0)
    weights = np.array([0.05, 0.2, 0.5, 0.25])
    drawn = np.array([round_counts(weights, 10, rng) for _ in range(3000)])
    assert (drawn.sum(axis=1) == 10).all()
    assert (drawn >= np.floor(weights * 10)).all()
    assert (drawn <= np.floor(weights * 10) + 1).all()
    assert drawn.mean(axis=0) == pytest.approx(weights * 10, abs=0.06)
    assert round_counts(np.zeros(3), 7, rng).sum() == 7
    assert round_counts(np.ones(3), 0, rng).sum() == 0


def test_rows_of_a_tree_follow_its_marginals() -> None:
    rng = np.random.default_rng(1)
    ms = []
    for measured in ("ab", "bc", "d"):
        candidate = whole_marginal(DOMAIN, measured)
        p = rng.dirichlet(np.ones(candidate[0].rows))
        ms.append(Measured(candidate, 1000 * p, 5.0, "gaussian"))
    model = fit(DOMAIN, ms, 1000.0)
    rows = model.rows(20_000, rng)
    assert list(rows) == list(DOMAIN)
    for names in (("a", "b"), ("b", "c"), ("a", "c"), ("b", "d")):
        flat = np.ravel_multi_index([rows[a] for a in names], [DOMAIN[a] for a in names])
        counts = np.bincount(flat, minlength=model.marginal(names).size)
        worst = np.abs(counts / 20 - model.marginal(names).ravel()).max()
        assert worst < (0.5 if names == ("a", "b") else 8.0)
    assert all(len(column) == 0 for column in model.rows(0, rng).values())


def test_randomised_rounding_keeps_expectations() -> None:
    rng = np.random.default_rng(2)
    blocks = {a: rng.dirichlet(np.ones(n) * 0.3, size=50) for a, n in DOMAIN.items()}
    rows = category_rows(blocks, 100_000, rng)
    joint = np.einsum("ca,cb->ab", blocks["a"], blocks["c"]) / 50
    flat = np.ravel_multi_index([rows["a"], rows["c"]], (4, 5))
    counts = np.bincount(flat, minlength=20) / 100_000
    assert np.abs(counts - joint.ravel()).max() < 0.006
    sure = category_rows({"a": np.array([[0.0, 1.0, 0.0]])}, 9, rng)
    assert (sure["a"] == 1).all()
    assert category_rows({}, 3, rng) == {}
