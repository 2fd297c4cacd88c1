"""OPT_kron: traces, block-cyclic descent, single products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.search.laplace import laplace_candidates
from dpsql.search.one_attribute import opt0
from dpsql.search.problem import Problem
from dpsql.search.unions.joint import Objective, Union, initial_thetas
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.opt_kron import cycle, kron_family, search_kron
from dpsql.workload.workload import Workload

WORKLOAD = Workload(
    {"a": 4, "b": 6, "c": 3},
    [
        {"a": "identity", "b": "prefix"},
        ({"b": "allrange"}, 2.0),
        {"a": [[1, 1, 0, 0]], "c": "identity"},
        {"b": [[1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1]], "c": "identity"},
    ],
)


def dense(workload: Workload) -> Floats:
    """Return W with weights, densely."""
    blocks = []
    for product in workload.products:
        block: NDArray[Any] = np.ones((1, 1))
        for name, n in workload.domain.items():
            Q = product.factors[name].dense() if name in product.factors else np.ones((1, n))
            block = np.kron(block, Q)
        blocks.append(product.weight * block)
    return np.concatenate(blocks)


def test_error_is_the_dense_trace() -> None:
    rng = np.random.default_rng(0)
    problem = Problem(WORKLOAD, "laplace")
    thetas: tuple[Floats | None, ...] = (rng.random((1, 4)), rng.random((2, 6)), None)
    objective = Objective(problem, kron_family(problem))
    A: NDArray[Any] = np.ones((1, 1))
    for theta, n in zip(thetas, problem.sizes, strict=True):
        A = np.kron(A, np.eye(n) if theta is None else opt0.matrix(theta))
    W = dense(WORKLOAD)
    want = np.trace(W @ np.linalg.inv(A.T @ A) @ W.T)
    assert objective.error(Union(thetas, np.ones(1))) == pytest.approx(want, rel=1e-10)


def test_cycles_never_get_worse() -> None:
    problem = Problem(WORKLOAD, "laplace")
    family = kron_family(problem)
    objective = Objective(problem, family)
    start = initial_thetas(problem, trivial=True)
    before = objective.error(Union(start, np.ones(1)))
    after = objective.error(Union(cycle(problem, start), np.ones(1)))
    assert after <= before * (1 + 1e-9)
    _, found = search_kron(problem, restarts=3)
    assert found.error <= after * (1 + 1e-6)


def test_single_products_decouple() -> None:
    """Each attribute of a single product gets its own OPT_0; points keep the identity."""
    problem = Problem(Workload({"a": 8, "b": 5}, [{"a": "prefix", "b": "identity"}]), "laplace")
    _, found = search_kron(problem, restarts=0)
    assert found.union.thetas[1] is None
    alone = opt0.optimise(problem.factors[0].operators[0])
    loss, _ = opt0.loss_and_grad(alone, problem.factors[0].operators[0])
    assert found.error == pytest.approx(loss * 5, rel=1e-9)


def test_family_of_one_set() -> None:
    family = Family(2, [3], [0, 1, 2, 3])
    assert family.sup(np.array([2.0])).tolist() == [2.0] * 4
    assert family.sub(np.arange(4.0)).tolist() == [6.0]


def test_one_product_of_many_cells_is_one_block_and_searched_once() -> None:
    sizes = {"a": 3, "b": 160}
    one = Workload(sizes, [{"a": "identity", "b": "prefix"}])
    problem = Problem(one, "laplace")
    methods = [found.method for found in laplace_candidates(problem, "auto", 1 << 20, 0.1)]
    assert methods[-1] == "kron"
    assert "joint" not in methods
    assert list(problem.fitted) == [1]
    assert problem.fitted[1].any()
    two = Problem(Workload(sizes, [*one.products, {"a": "identity"}]), "laplace")
    assert initial_thetas(two, trivial=True)[0] is None  # cells alone, in every product
