"""The papers' algorithms by name: what they come to, against formulas of their own."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from benchmarks import unions
from dpsql.algebra.operator import Floats
from dpsql.errors import ProgrammingError
from dpsql.search.one_attribute import dual
from dpsql.search.one_attribute.opt0 import matrix, optimise
from dpsql.search.select import choose, select
from dpsql.settings.table import PUBLISHED
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy
from dpsql.workload.workload import Workload
from tests.support.effort import effort

NOISES: tuple[Noise, ...] = ("laplace", "gaussian")
CLOSE = 1e-3
"""Relative difference that rounding to whole rows may make."""


def small(seed: int, attributes: int) -> Workload:
    """Products of random factors over small attributes."""
    rng = np.random.default_rng((7, seed))
    domain = {f"x{i}": int(rng.integers(2, 7)) for i in range(attributes)}
    products = []
    for _ in range(int(rng.integers(1, 4))):
        names = [name for name in domain if rng.random() < 0.7] or ["x0"]
        products.append({name: unions.factor(rng, domain[name]) for name in names})
    return Workload(domain, products)


def rows_of(workload: Workload) -> Floats:
    """The queries over all cells, written out: (queries, cells)."""
    out = []
    for product in workload.products:
        rows: Floats = np.ones((1, 1))
        for name, n in workload.domain.items():
            factor = product.factors.get(name)
            rows = np.asarray(np.kron(rows, np.ones((1, n)) if factor is None else factor.dense()))
        out.append(product.weight * rows)
    return np.concatenate(out)


def dense_error(queries: Floats, strategy: Floats, norm: int) -> float:
    """The total squared error of queries under a strategy scaled to unit sensitivity."""
    reach = np.linalg.norm(strategy, ord=norm, axis=0).max()
    return float(np.square(queries @ np.linalg.pinv(strategy)).sum() * reach**2)


@pytest.mark.parametrize("seed", range(effort(3)))
def test_opt_0_is_the_identity_and_learned_rows(seed: int) -> None:
    workload = small(seed, 1)
    queries = rows_of(workload)
    wanted = dense_error(queries, matrix(optimise(queries.T @ queries)), 1)
    found = select(workload, "laplace", "opt_0")
    assert found.method == "opt_0"
    assert found.unit_error(workload) == pytest.approx(wanted, rel=CLOSE)


@pytest.mark.parametrize("seed", range(effort(3)))
def test_coa_is_the_convex_optimum(seed: int) -> None:
    workload = small(seed, 1)
    queries = rows_of(workload)
    best = dual.optimise(queries.T @ queries)
    found = choose(workload, "gaussian", "coa")
    assert found.strategy.method == "coa"
    error = found.strategy.unit_error(workload)
    assert best.lower * (1 - 1e-9) <= error <= best.upper * 1.01
    assert found.lower <= error


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", range(effort(3)))
def test_opt_kron_is_one_product(seed: int, noise: Noise) -> None:
    """Against the block-cyclic descent of ``benchmarks.unions``, written out for itself."""
    workload = small(seed, 2)
    found = select(workload, noise, "opt_kron")
    assert isinstance(found, ProductStrategy)
    assert found.method == "opt_kron"
    (block,) = found.blocks
    error = found.unit_error(workload)
    assert error <= 1.02 * unions.kron_error(workload.domain, workload.products, noise)
    rows: Floats = np.ones((1, 1))
    for name in workload.domain:
        full, n = found.full.get(name), workload.domain[name]
        asked = np.eye(n) if full is None else np.asarray(full, dtype=np.float64)
        rows = np.asarray(np.kron(rows, asked if name in block.attributes else np.ones((1, n))))
    norm = 1 if noise == "laplace" else 2
    assert dense_error(rows_of(workload), rows, norm) == pytest.approx(error, rel=CLOSE)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", range(effort(3)))
def test_opt_plus_is_no_worse_than_groups_that_answer_alone(seed: int, noise: Noise) -> None:
    """By the formulas of ``benchmarks.unions``; least squares over all groups only gains."""
    rng = np.random.default_rng((8, seed))
    domain = {"a": 4, "b": 5}
    products = [{"a": unions.factor(rng, 4)}, {"b": unions.factor(rng, 5)}]
    workload = Workload(domain, products)
    found = select(workload, noise, "opt_plus")
    assert found.kind == "separate"
    alone = unions.opt_plus(workload, [[each] for each in workload.products], noise)
    assert math.sqrt(found.unit_error(workload)) <= 1.01 * alone


@pytest.mark.parametrize("noise", NOISES)
def test_opt_m_weighs_marginals(noise: Noise) -> None:
    """All marginals of three attributes: no weights of a coarse grid are better."""
    sizes = {"a": 2, "b": 3, "c": 2}
    sets = [s for k in (1, 2) for s in itertools.combinations(sizes, k)]
    workload = Workload(sizes, [dict.fromkeys(s, "identity") for s in sets])
    found = select(workload, noise, "opt_m")
    assert found.method == "opt_m"
    error = found.unit_error(workload)
    queries = rows_of(workload)
    norm = 1 if noise == "laplace" else 2
    marginals = [
        rows_of(Workload(sizes, [dict.fromkeys(s, "identity")])) for s in [*sets, ("a", "b", "c")]
    ]
    rng = np.random.default_rng(9)
    for _ in range(200):
        weights = rng.dirichlet(np.full(len(marginals), 0.4)) ** (1 / norm)
        rows = np.concatenate([w * m for w, m in zip(weights, marginals, strict=True)])
        assert error <= dense_error(queries, rows, norm) * (1 + CLOSE)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("attributes", [1, 2, 3])
@pytest.mark.parametrize("name", PUBLISHED)
def test_what_does_not_fit_says_why_and_what_does(name: str, attributes: int, noise: Noise) -> None:
    for seed in range(effort(2)):
        workload = small(seed, attributes)
        found, refusal = planned(workload, noise, name)
        if refusal is None:
            assert found in (name, "separate")
            continue
        assert refusal.code == "E_SETTING"
        assert f"mechanism = '{name}' does not fit" in str(refusal)
        named = [each for each in (*PUBLISHED, "auto") if f"'{each}'" in (refusal.hint or "")]
        assert "auto" in named
        assert [other for other in named if planned(workload, noise, other)[1]] == []


def planned(workload: Workload, noise: Noise, name: str) -> tuple[str, ProgrammingError | None]:
    """The method that is planned, or the refusal."""
    try:
        return select(workload, noise, name, 0.25).method, None
    except ProgrammingError as refusal:
        return "", refusal
