"""Gradients written by hand against finite differences, answers against explicit tables."""

from __future__ import annotations

import math
from itertools import product as cells_of

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.algebra.operator import Floats
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.learn.predicates import leave_one_out
from dpsql.learn.relaxed import ProductMixture
from dpsql.learn.targets import Targets, products_of
from dpsql.pgm.linear import apply, whole_marginal
from dpsql.pgm.measurements import Candidate, Query
from dpsql.workload.term import Pattern, at_least
from dpsql.workload.workload import Product

DOMAIN = {"a": 3, "b": 4, "c": 2, "d": 1, "e": 5}


def blocks(seed: int, components: int = 6) -> Floats:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.dirichlet(np.ones(n), components) for n in DOMAIN.values()], axis=1)


def row(*entries: float) -> Dense:
    return Dense(np.array([entries]))


PREDICATES = {"a": np.array([1, 0, 1]), "b": np.array([0, 1, 1, 0]), "c": np.array([1, 0])}
TWICE = {"a": np.array([[1, 0, 1], [1, 1, 0]]), "e": np.array([[0, 1, 1, 0, 0], [1, 1, 1, 0, 1]])}
THRESHOLDS = [at_least(PREDICATES, t) for t in (1, 2, 3)]
SEVERAL = at_least(TWICE, 2)
RANDOM = Pattern(
    {"b": np.array([1, 0, 1, 2]), "d": np.array([0]), "e": np.array([0, 1, 2, 1, 1])},
    np.random.default_rng(0).random((3, 1, 3)) < 0.5,
)
NEVER = Pattern({"a": np.array([0, 1, 1])}, np.zeros(2, dtype=np.bool_))
ALWAYS = Pattern({"c": np.array([0, 1])}, np.ones(2, dtype=np.bool_))
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
    RANDOM,
    NEVER,
    ALWAYS,
    RANDOM.within({"b": np.array([1, 1, 0, 1], dtype=bool), "a": np.array([0, 1, 1], dtype=bool)}),
]


def candidate_of(query: Query) -> Candidate:
    return products_of(query) if isinstance(query, Pattern) else query


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


def indicator(query: Pattern) -> Floats:
    """What the products of a pattern add up to on every cell."""
    total = np.zeros(tuple(DOMAIN.values()))
    for product in products_of(query):
        part = np.ones(())
        for name, n in DOMAIN.items():
            factor = product.factors.get(name)
            vector = np.ones(n) if factor is None else factor.dense()[0]
            part = np.multiply.outer(part, vector)
        total += part
    return np.asarray(total)


@pytest.mark.parametrize(("predicates", "t"), [(PREDICATES, t) for t in (1, 2, 3)] + [(TWICE, 2)])
def test_a_threshold_is_a_sum_of_disjoint_products(
    predicates: dict[str, np.ndarray], t: int
) -> None:
    found = indicator(at_least(predicates, t))
    for cell in cells_of(*(range(n) for n in DOMAIN.values())):
        at = dict(zip(DOMAIN, cell, strict=True))
        held = sum(int(np.atleast_2d(v)[:, at[a]].sum()) for a, v in predicates.items())
        assert found[cell] == (held >= t)


def test_a_pattern_is_a_sum_of_disjoint_products() -> None:
    masks = {"b": np.array([1, 1, 0, 1], dtype=bool), "a": np.array([0, 1, 1], dtype=bool)}
    for query, inside in ((RANDOM, {}), (RANDOM.within(masks), masks), (NEVER, {}), (ALWAYS, {})):
        found = indicator(query)
        whole = {**NEVER.labels, **ALWAYS.labels, **RANDOM.labels}
        for cell in cells_of(*(range(n) for n in DOMAIN.values())):
            at = dict(zip(DOMAIN, cell, strict=True))
            base = RANDOM if query not in (NEVER, ALWAYS) else query
            classes = tuple(int(whole[a][at[a]]) for a in base.labels)
            expected = base.truth[classes] and all(m[at[a]] for a, m in inside.items())
            assert found[cell] == expected


def test_half_of_twelve_predicates_is_no_explosion() -> None:
    names = [f"a{i}" for i in range(12)]
    pattern = at_least({name: np.array([1, 0]) for name in names}, 6)
    domain = dict.fromkeys(names, 2)
    with pytest.raises(ProgrammingError, match="products"):
        products_of(pattern)
    x = np.tile([0.25, 0.75], (3, 12))
    t = Targets.read(domain, [pattern], [np.zeros(1)], [1.0], 1.0)
    exact = sum(math.comb(12, k) * 0.25**k * 0.75 ** (12 - k) for k in range(6, 13))
    assert t.shares(x)[0] == pytest.approx(exact, rel=1e-12)


def test_bad_thresholds_are_refused() -> None:
    ones = {f"a{i}": np.array([1, 0]) for i in range(12)}
    for t in (0, 13):
        with pytest.raises(ProgrammingError, match="no threshold"):
            at_least(ones, t)
    with pytest.raises(ProgrammingError):
        at_least({"a": np.array([2, 0])}, 1)
    with pytest.raises(ProgrammingError, match="combinations"):
        at_least({f"a{i}": np.array([1, 0]) for i in range(21)}, 6)


def test_leave_one_out_survives_zeros() -> None:
    parts = leave_one_out([np.array([0.0, 2.0]), np.array([0.0, 3.0]), np.array([4.0, 0.0])])
    assert [p.tolist() for p in parts] == [[0.0, 0.0], [0.0, 0.0], [0.0, 6.0]]


@pytest.mark.jax
def test_jax_gives_the_same_gradient() -> None:
    pytest.importorskip("jax")
    from benchmarks.jax_gradient import jax_gradient

    t, x = targets(7), blocks(8)
    loss, gradient = t.value_and_gradient(x)
    other, by_jax = jax_gradient(t, x)
    assert other == pytest.approx(loss, rel=1e-5)
    assert np.abs(by_jax - gradient).max() < 1e-5 * np.abs(gradient).max()


def test_a_missing_jax_is_named() -> None:
    from importlib.util import find_spec

    from benchmarks.jax_gradient import jax_gradient

    if find_spec("jax") is not None:
        pytest.skip("JAX is installed")
    with pytest.raises(OperationalError, match="JAX is not installed"):
        jax_gradient(targets(7), blocks(8))
