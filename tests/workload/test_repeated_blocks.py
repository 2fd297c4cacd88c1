"""Attributes whose cells have the same problem each: against dense Gram matrices and strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.search.bounds.singular_values import cells_bound
from dpsql.search.select import choose
from dpsql.strategy.noise_law import LAWS, Noise
from dpsql.workload.repeated_blocks import is_resolved, resolved
from dpsql.workload.workload import Workload

MEAN = np.array([[1, 1]]), np.array([[-1, 1]])
"""A count and a sum less the middle of its bounds, over two nodes."""


def some_workload(random: np.random.Generator) -> Workload:
    """Products over groups, conditions and the nodes of means or sums, some alike, some not."""
    domain = {"g": 3, "h": 2, "x": 2}
    tripled = tuple(3 * row for row in MEAN)
    uneven = np.array([[1, 0]]), np.array([[0, 2]])
    of_x = [MEAN, MEAN, tripled, tripled, uneven, (np.array([[1, 1]]), np.array([[0, 1]]))]
    groups = [{"g": "identity"}, {"g": "identity", "h": "identity"}, {"h": [[1, 0]]}, {}]
    products = []
    for i in random.permutation(len(groups))[: random.integers(1, 4)]:
        weight = float(random.uniform(0.5, 2))
        rows = of_x[random.integers(len(of_x))]
        uneven_by = 1.2 if random.random() < 0.1 else 1.0
        for row, by in zip(rows, (1.0, uneven_by), strict=True):
            products.append(({**groups[i], "x": row}, weight * by))
    return Workload(domain, products)


def dense_gram(workload: Workload) -> Floats:
    """The Gram matrix of all weighted queries, with two axes per attribute."""
    total: Floats = np.zeros(())
    for product in workload.products:
        one: NDArray[Any] = np.ones((1, 1))
        for name, n in workload.domain.items():
            factor = product.factors.get(name)
            one = np.kron(one, np.ones((1, n)) if factor is None else factor.dense())
        total = total + product.weight**2 * one.T @ one
    sizes = tuple(workload.domain.values())
    return np.asarray(total).reshape(sizes + sizes)


def is_resolved_densely(workload: Workload, name: str) -> bool:
    gram, place = dense_gram(workload), list(workload.domain).index(name)
    d, n = len(workload.domain), workload.domain[name]
    gram = np.moveaxis(gram, (place, d + place), (0, 1))
    size = float(np.abs(gram).max())
    across = max(np.abs(gram[i, j]).max() for i in range(n) for j in range(n) if i != j)
    shares = [gram[i, i] / max(np.abs(gram[i, i]).max(), 1e-300) for i in range(n)]
    return bool(across < 1e-9 * size and all(np.allclose(each, shares[0]) for each in shares))


def test_what_is_resolved_is_so_in_the_gram_matrix() -> None:
    random = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(300):
        workload = some_workload(random)
        for name in workload.domain:
            found = is_resolved(workload, name)
            seen[found] += 1
            if found:
                assert is_resolved_densely(workload, name)
    assert min(seen.values()) > 100


@pytest.mark.parametrize("rows", [MEAN, ([[1, 1, 1]], [[-(2**0.5), 0, 2**0.5]], [[1, -1, 1]])])
def test_means_are_resolved_by_groups_and_nodes(rows: tuple[object, ...]) -> None:
    n = np.asarray(rows[0]).shape[1]
    cube = [{"g": "identity", "h": "identity"}, {"g": "identity"}, {"h": "identity"}, {}]
    asked = [{**each, "x": row} for each in cube for row in rows]
    assert resolved(Workload({"g": 5, "h": 3, "x": n}, asked)).pinned == {"x"}
    single = [{"g": "identity", "x": row} for row in rows]
    assert resolved(Workload({"g": 5, "x": n}, single)).pinned == {"g", "x"}
    heavier = [(each, 1.0 + (i == 0)) for i, each in enumerate(single)]
    assert resolved(Workload({"g": 5, "x": n}, heavier)).pinned == {"g"}


@pytest.mark.parametrize("noise", list(LAWS))
def test_nothing_is_lost(noise: Noise) -> None:
    """The rest, planned once, is never worse than everything planned together."""
    random = np.random.default_rng(1)
    pinned = 0
    for _ in range(25):
        workload = some_workload(random)
        found = resolved(workload)
        pinned += bool(found.pinned)
        apart, together = choose(found, noise), choose(workload, noise)
        error = apart.strategy.unit_error(workload)
        assert error == pytest.approx(apart.strategy.unit_error(found))
        assert error <= together.strategy.unit_error(workload) * 1.001
        assert apart.lower <= error * (1 + 1e-9)
        assert apart.lower <= together.strategy.unit_error(workload) * (1 + 1e-9)
    assert pinned > 5


def test_no_strategy_has_less_error_than_cells_of_a_diagonal_gram_matrix() -> None:
    workload = Workload({"g": 2, "x": 2}, [{"g": "identity", "x": row} for row in MEAN])
    bound = cells_bound(workload)
    assert bound == pytest.approx(np.trace(dense_gram(workload).reshape(4, 4)))
    assert choose(workload).strategy.unit_error(workload) == pytest.approx(bound)
    random, gram = np.random.default_rng(2), dense_gram(workload).reshape(4, 4)
    for _ in range(500):
        rows = random.normal(size=(random.integers(4, 9), 4))
        rows = np.concatenate([rows, random.random() * 5 * np.eye(4)])
        rows /= np.linalg.norm(rows, axis=0).max()
        assert np.trace(gram @ np.linalg.inv(rows.T @ rows)) >= bound * (1 - 1e-9)


def test_cells_of_a_range_are_mixtures_of_its_ends() -> None:
    """A strategy of the ends, spread over all cells, is as sensitive and has the same error."""
    random = np.random.default_rng(3)
    for _ in range(50):
        n = int(random.integers(3, 12))
        values = random.integers(-9, 9) + np.arange(n) * 1.0
        queries = np.stack([np.ones(n), values])
        spread = np.stack([np.linspace(1, 0, n), np.linspace(0, 1, n)])
        ends = random.normal(size=(3, 2))
        cells = ends @ spread
        for order in (1, 2):
            norms = np.linalg.norm(cells, ord=order, axis=0)
            assert norms.max() == pytest.approx(np.linalg.norm(ends, ord=order, axis=0).max())
        on_ends = queries[:, [0, -1]] @ np.linalg.pinv(ends)
        assert on_ends @ cells == pytest.approx(queries)
        on_cells = queries @ np.linalg.pinv(cells)
        assert np.square(on_cells).sum() == pytest.approx(np.square(on_ends).sum())


@pytest.mark.parametrize("noise", LAWS)
@pytest.mark.parametrize("seed", range(3))
def test_what_all_answers_are_grouped_by_adds_nothing_to_a_plan(noise: Noise, seed: int) -> None:
    """Every cell has the error that one alone has, and the search does the same work for all."""
    random = np.random.default_rng([seed, 328])
    n = int(random.integers(8, 16))
    ranges = np.arange(n) < random.integers(1, n, (3, 1))
    rows = [("prefix", 1.0), (ranges.astype(int), 2.0), (np.arange(n)[np.newaxis], 1 / n)]

    def planned(groups: int) -> tuple[float, float]:
        asked = [({"g": "identity", "x": row}, weight) for row, weight in rows]
        workload = resolved(Workload({"g": groups, "x": n}, asked))
        assert workload.pinned == {"g"}
        chosen = choose(workload, noise)
        return chosen.strategy.unit_error(workload) / groups, chosen.work

    (one_error, one_work), (error, work) = planned(2), planned(12)
    assert error == pytest.approx(one_error, rel=1e-9)
    assert work == pytest.approx(one_work, rel=0.05)
