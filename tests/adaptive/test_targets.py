"""Gradients written by hand against finite differences, answers against explicit tables."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product as cells_of

import numpy as np
import pytest

from dpsql.adaptive.at_least import AtLeast
from dpsql.adaptive.handle import Candidate, Floats
from dpsql.adaptive.predicates import leave_one_out
from dpsql.adaptive.relaxed import ProductMixture
from dpsql.adaptive.targets import Query, Targets
from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.answer.linear import apply, whole_marginal
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.plan.workload import Product

DOMAIN = {"a": 3, "b": 4, "c": 2, "d": 1, "e": 5}


def blocks(seed: int, components: int = 6) -> Floats:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.dirichlet(np.ones(n), components) for n in DOMAIN.values()], axis=1)


def row(*entries: float) -> Dense:
    return Dense(np.array([entries]))


THRESHOLDS = [
    AtLeast({"a": np.array([1, 0, 1]), "b": np.array([0, 1, 1, 0]), "c": np.array([1, 0])}, t)
    for t in (1, 2, 3)
]
SEVERAL = AtLeast(
    {"a": np.array([[1, 0, 1], [1, 1, 0]]), "e": np.array([[0, 1, 1, 0, 0], [1, 1, 1, 0, 1]])}, 2
)
QUERIES: list[Query] = [
    whole_marginal(DOMAIN, "abe"),
    whole_marginal(DOMAIN, "c"),
    whole_marginal(DOMAIN, "abce"),
    (Product({"a": Prefix(3), "b": Identity(4)}), Product({"a": Identity(3), "b": Prefix(4)})),
    (Product({"a": row(1, 0, 1), "b": row(0, 1, 0, 0), "e": row(0, 0, 1, 1, 0)}),),
    (Product({"a": row(0.5, -1, 1), "e": row(0, 0, 1, 1, 0)}), Product({"b": row(1, 0, 0, 1)})),
    (Product({"d": row(1)}),),
    (Product({}),),
    *THRESHOLDS,
    SEVERAL,
]


def candidate_of(query: Query) -> Candidate:
    return query.candidate(DOMAIN) if isinstance(query, AtLeast) else query


def targets(seed: int) -> Targets:
    rng = np.random.default_rng(seed)
    sizes = [candidate_of(q)[0].rows for q in QUERIES]
    values = [rng.random(n) * 100 for n in sizes]
    return Targets.read(DOMAIN, QUERIES, values, list(rng.uniform(1, 9, len(QUERIES))), 100.0)


def test_answers_equal_the_explicit_table() -> None:
    x = blocks(1)
    model = ProductMixture(DOMAIN, 1.0, x)
    joint = np.zeros(tuple(DOMAIN.values()))
    for line in x:
        pieces = np.split(line, np.cumsum(list(DOMAIN.values()))[:-1])
        joint += np.einsum("a,b,c,d,e->abcde", *pieces) / len(x)
    expected = np.concatenate([apply(candidate_of(q), joint, tuple(DOMAIN)) for q in QUERIES])
    assert targets(2).shares(x) == pytest.approx(expected, abs=1e-12)
    direct = np.concatenate([model.answer(candidate_of(q)) for q in QUERIES])
    assert direct == pytest.approx(expected, abs=1e-12)
    assert model.marginal(("e", "a")) == pytest.approx(joint.sum(axis=(1, 2, 3)).T)


def test_gradient_against_finite_differences() -> None:
    t, x = targets(3), blocks(4)
    loss, gradient = t.value_and_gradient(x)
    error = t.shares(x) - t.values
    assert loss == pytest.approx(float(t.weights @ error**2))
    rng = np.random.default_rng(5)
    for _ in range(20):
        direction = rng.normal(size=x.shape)
        step = 1e-5
        ahead = t.value_and_gradient(x + step * direction)[0]
        behind = t.value_and_gradient(x - step * direction)[0]
        slope = (ahead - behind) / (2 * step)
        assert float(np.vdot(gradient, direction)) == pytest.approx(slope, rel=1e-5, abs=1e-7)


def holds(query: AtLeast, cell: Mapping[str, int]) -> bool:
    rows = (v[:, cell[a]].sum() for a, v in query.predicates.items())
    return int(sum(rows)) >= query.t


@pytest.mark.parametrize("query", [*THRESHOLDS, SEVERAL])
def test_a_threshold_is_a_sum_of_disjoint_products(query: AtLeast) -> None:
    indicator = np.zeros(tuple(DOMAIN.values()))
    for product in query.candidate(DOMAIN):
        part = np.ones(())
        for name, n in DOMAIN.items():
            factor = product.factors.get(name)
            vector = np.ones(n) if factor is None else factor.dense()[0]
            part = np.multiply.outer(part, vector)
        indicator += part
    for cell in cells_of(*(range(n) for n in DOMAIN.values())):
        assert indicator[cell] == holds(query, dict(zip(DOMAIN, cell, strict=True)))


def test_bad_thresholds_are_refused() -> None:
    ones = {f"a{i}": np.array([1, 0]) for i in range(12)}
    with pytest.raises(ProgrammingError, match="products"):
        AtLeast(ones, 6).candidate(dict.fromkeys(ones, 2))
    for t in (0, 13):
        with pytest.raises(ProgrammingError, match="no threshold"):
            AtLeast(ones, t)
    with pytest.raises(ProgrammingError):
        AtLeast({"a": np.array([2, 0])}, 1)
    never = AtLeast({"a": np.zeros((1, 3), dtype=np.int64)}, 1).candidate(DOMAIN)
    assert ProductMixture(DOMAIN, 1.0, blocks(6)).answer(never) == 0


def test_leave_one_out_survives_zeros() -> None:
    parts = leave_one_out([np.array([0.0, 2.0]), np.array([0.0, 3.0]), np.array([4.0, 0.0])])
    assert [p.tolist() for p in parts] == [[0.0, 0.0], [0.0, 0.0], [0.0, 6.0]]


@pytest.mark.jax
def test_jax_gives_the_same_gradient() -> None:
    pytest.importorskip("jax")
    from dpsql.adaptive.jax_gradient import jax_gradient

    t, x = targets(7), blocks(8)
    loss, gradient = t.value_and_gradient(x)
    other, by_jax = jax_gradient(t, x)
    assert other == pytest.approx(loss, rel=1e-5)
    assert np.abs(by_jax - gradient).max() < 1e-5 * np.abs(gradient).max()


def test_a_missing_jax_is_named() -> None:
    from importlib.util import find_spec

    from dpsql.adaptive.jax_gradient import jax_gradient

    if find_spec("jax") is not None:
        pytest.skip("JAX is installed")
    with pytest.raises(OperationalError, match="JAX is not installed"):
        jax_gradient(targets(7), blocks(8))


def test_columns_are_those_that_matter() -> None:
    query = (Product({"b": row(0, 1, 0, 1), "e": row(1, 0, 0, 0, 0)}),)
    t = Targets.read(DOMAIN, [query], [np.zeros(1)], [1.0], 1.0)
    assert t.columns().tolist() == [4, 6, 10]
    assert targets(9).columns().tolist() == list(range(15))
