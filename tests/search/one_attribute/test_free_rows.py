"""Descents over orbits of cells against those over all cells: values, derivatives, results."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity, IdentityTotal
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.algebra.orbits import find_orbits
from dpsql.search.marginals.residual import bounded_rows, optimise_rows
from dpsql.search.one_attribute import free_rows as free_rows_module
from dpsql.search.one_attribute.free_rows import CellRows, OrbitCells, free_rows
from dpsql.search.problem import FactorSet, Problem
from dpsql.search.rounding import realise_residual
from dpsql.workload.workload import Workload

STEP = 1e-6


def some_operators(random: np.random.Generator, n: int) -> list[Operator]:
    """Cells and a few conditions and sums, some of them of many rows: most cells are alike."""
    lo, hi = np.sort(random.choice(n, 2, replace=False))
    cells = np.arange(n)
    part = np.eye(n)[:lo] * random.integers(1, 4) if lo else np.ones((1, n))
    found: list[Operator] = [
        Identity(n),
        Dense(((lo <= cells) & (cells < hi))[np.newaxis] * 1.0),
        Dense(np.stack([cells == hi, cells <= lo]) * random.random((2, 1))),
        Dense(part),
        IdentityTotal(n),
    ]
    return [found[i] for i in random.permutation(len(found))[: random.integers(1, 6)]]


def some_start(random: np.random.Generator, labels: Integers) -> Floats:
    """Rows of unit columns whose Gram is the same for all cells of an orbit."""
    k = int(labels.max()) + 1
    between = random.normal(size=(k, k + 2))
    even = between @ between.T / (k + 2)
    gram = even[labels[:, np.newaxis], labels] + np.diag((0.2 + random.random(k))[labels])
    scale = 1 / np.sqrt(gram.diagonal())
    return np.asarray(np.linalg.cholesky(gram * scale * scale[:, np.newaxis]).T)


@pytest.mark.parametrize("seed", range(24))
def test_orbits_have_the_tables_and_derivatives_of_cells(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(3, 14))
    factors = FactorSet("a", some_operators(random, n))
    orbits = find_orbits((op.gram() for op in factors.operators), n)
    start = some_start(random, orbits.labels)
    of_orbits, of_cells = OrbitCells([factors], start, orbits), CellRows([factors], start)
    assert of_orbits.cells(of_orbits.start).T @ of_orbits.cells(of_orbits.start) == pytest.approx(
        start.T @ start
    )
    x = of_orbits.start * np.exp(0.1 * random.normal(size=len(of_orbits.start)))
    rows = of_orbits.cells(x)
    assert np.square(rows).sum(axis=0) == pytest.approx(np.ones(n))
    found = of_orbits.tables(of_orbits.look(x), 0)
    wanted = of_cells.tables(of_cells.look(rows.ravel()), 0)
    assert found[0] == pytest.approx(wanted[0])
    assert found[1] == pytest.approx(wanted[1], abs=1e-9)
    assert found[2] == pytest.approx(wanted[2])
    gt, gr = random.normal(size=(2, len(factors.operators)))
    gtau = float(random.normal())

    def value(at: Floats) -> float:
        t, r, tau = of_orbits.tables(of_orbits.look(at), 0)
        return float(gt @ t[:-1] + gr @ r[:-1] + gtau * tau)

    gradient = of_orbits.gradient(of_orbits.look(x), [(0, gt, gr, gtau)])
    for i in range(len(x)):
        step = STEP * np.eye(1, len(x), i)[0]
        slope = (value(x + step) - value(x - step)) / (2 * STEP)
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-4 * np.abs(gradient).max())


@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_over_orbits_is_as_good(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng([seed, 1])
    sizes = {"a": 30, "b": 20, "c": 3}
    operators = {name: [None, *some_operators(random, n)] for name, n in sizes.items()}
    products = [
        {
            name: op
            for name, given in operators.items()
            if (op := given[random.integers(len(given))]) is not None
        }
        for _ in range(8)
    ]
    workload = Workload(sizes, [({**p, "b": Identity(20)}, 1 + random.random()) for p in products])
    problem = Problem(workload, "gaussian")
    start = bounded_rows(problem, 1e-3)[0]
    errors = []
    for least in (16, 1000):
        monkeypatch.setattr(free_rows_module, "FROM", least)
        rows = optimise_rows(problem, start)
        errors.append(realise_residual(problem, rows, "joint").unit_error(workload))
    assert errors[0] <= errors[1] * 1.002
    assert errors[1] <= errors[0] * 1.01


def test_only_few_orbits_are_descended_over() -> None:
    start = np.eye(30)
    few = FactorSet("a", [Identity(30), Dense((np.arange(30) < 7)[np.newaxis] * 1.0)])
    many = FactorSet("a", [Identity(30), Dense(np.arange(30.0)[np.newaxis])])
    assert isinstance(free_rows([few], start), OrbitCells)
    assert isinstance(free_rows([many], start), CellRows)
