"""The graphical model against explicit distributions on small domains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.algebra.operator import Floats
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.learn.handle import Candidate, Measured
from dpsql.pgm.linear import adjoint, apply, clique_of, estimate_total, norm2, whole_marginal
from dpsql.pgm.model import GraphicalModel, fit, fit_apart
from dpsql.pgm.tree import ModelTooLarge, junction_tree, model_cells
from dpsql.workload.workload import Product

DOMAIN = {"a": 5, "b": 4, "c": 3, "d": 6, "e": 2}


def table(seed: int, domain: Mapping[str, int], total: float = 10_000.0) -> Floats:
    rng = np.random.default_rng(seed)
    return total * rng.dirichlet(np.full(math.prod(domain.values()), 0.3)).reshape(
        tuple(domain.values())
    )


def measured(
    x: Floats,
    domain: Mapping[str, int],
    candidate: Candidate,
    stddev: float = 1.0,
    rng: np.random.Generator | None = None,
) -> Measured:
    values = apply(candidate, x, tuple(domain))
    if rng is not None:
        values = values + rng.normal(0, stddev, values.size)
    return Measured(candidate, values, stddev, "gaussian")


def brute_force(
    domain: Mapping[str, int],
    measurements: Sequence[Measured],
    total: float,
    first: float,
    iterations: int,
) -> Floats:
    """Entropic mirror descent with the same line search on the explicit distribution."""
    names, shape = tuple(domain), tuple(domain.values())

    def evaluate(log: Floats) -> tuple[float, Floats, Floats]:
        p = np.exp(log - log.max())
        mu = total * p / p.sum()
        loss, gradient = 0.0, np.zeros(shape)
        for m in measurements:
            error = apply(m.candidate, mu, names) - m.values
            loss += 0.5 * float(error @ error) / m.stddev**2
            gradient = gradient + adjoint(m.candidate, error / m.stddev**2, names, shape)
        return loss, gradient, mu

    log, step = np.zeros(shape), first
    loss, gradient, mu = evaluate(log)
    for _ in range(iterations):
        trial = log - step * gradient
        new, new_gradient, new_mu = evaluate(trial)
        if loss - new >= 0.5 * step * float(np.vdot(gradient, mu - new_mu)):
            log, loss, gradient, mu, step = trial, new, new_gradient, new_mu, 1.01 * step
        else:
            step /= 2
    return mu


def first_step(domain: Mapping[str, int], ms: Sequence[Measured], total: float) -> float:
    tree = junction_tree(domain, [clique_of(m.candidate, domain) for m in ms])
    sizes = dict.fromkeys(range(len(tree.cliques)), 0.0)
    for m in ms:
        clique = clique_of(m.candidate, domain)
        home = tree.home(clique)
        assert home is not None
        sizes[home] += norm2(m.candidate, clique, tree.shape(clique)) / m.stddev**2
    return 2 / (total * max(sizes.values()))


QUERY: Candidate = (
    Product({"a": Dense(np.array([[1, 0, 1, 0, 1]])), "e": Dense(np.array([[0, 1]]))}),
    Product({"a": Dense(np.array([[0, 1, 0, 0, 0]])), "d": Dense(np.array([[1, 1, 0, 0, 0, 0]]))}),
)


@pytest.mark.parametrize(
    "cliques",
    ["ab bc cd de", "ab cd", "abc bcd e", "ab bc ac", "ab bc cd ad", "abc", "ae be ce de"],
)
def test_equals_brute_force(cliques: str) -> None:
    x, rng = table(1, DOMAIN), np.random.default_rng(2)
    ms = [measured(x, DOMAIN, whole_marginal(DOMAIN, c), 30.0, rng) for c in cliques.split()]
    ms.append(measured(x, DOMAIN, (Product({"a": Prefix(5)}),), 50.0, rng))
    ms.append(measured(x, DOMAIN, (Product({"b": Prefix(4)}),), 20.0, rng))
    if cliques == "abc":
        ms.append(measured(x, DOMAIN, QUERY, 20.0, rng))
    model = fit(DOMAIN, ms, 10_000.0, iterations=150, tolerance=0.0)
    explicit = brute_force(DOMAIN, ms, 10_000.0, first_step(DOMAIN, ms, 10_000.0), 150)
    for k in range(4):
        for names in combinations(DOMAIN, k):
            candidate = whole_marginal(DOMAIN, names)
            expected = apply(candidate, explicit, tuple(DOMAIN))
            assert np.abs(model.answer(candidate) - expected).max() < 1e-6 * 10_000
    assert np.abs(model.answer(QUERY) - apply(QUERY, explicit, tuple(DOMAIN))).max() < 1e-2
    several = (Product({"a": Prefix(5), "c": Identity(3), "d": Prefix(6)}),)
    expected = apply(several, explicit, tuple(DOMAIN))
    assert np.abs(model.answer(several) - expected).max() < 1e-2


def test_tables_apart_are_solved_at_once() -> None:
    x, rng = table(5, DOMAIN), np.random.default_rng(6)
    ms = [
        measured(x, DOMAIN, whole_marginal(DOMAIN, names), stddev, rng)
        for names, stddev in [("ab", 200.0), ("ab", 400.0), ("de", 900.0)]
    ]
    model = fit_apart(DOMAIN, ms, 10_000.0)
    assert model is not None
    slow = fit(DOMAIN, ms, 10_000.0, iterations=8_000, tolerance=0.0)
    assert model.loss <= slow.loss
    assert model.loss == pytest.approx(slow.loss, rel=1e-4)
    for names in ("ab", "de"):
        marginal = model.marginal(tuple(names))
        here = [m for m in ms if set(clique_of(m.candidate, DOMAIN)) == set(names)]
        slopes = [(marginal - m.values.reshape(marginal.shape)) / m.stddev**2 for m in here]
        slope = np.sum(slopes, axis=0)
        used = marginal > 1e-6
        assert 0 < used.sum() < used.size
        assert np.ptp(slope[used]) < 1e-9
        assert slope[~used].min() > slope[used].max() - 1e-9
        assert marginal.sum() == pytest.approx(10_000)
    assert model.marginal(("c",)) == pytest.approx(np.full(3, 10_000 / 3))
    linked = [*ms, measured(x, DOMAIN, whole_marginal(DOMAIN, "bc"))]
    assert fit_apart(DOMAIN, linked, 10_000.0) is None
    assert fit_apart(DOMAIN, [measured(x, DOMAIN, QUERY)], 10_000.0) is None


def test_marginals_agree_on_shared_attributes() -> None:
    x, rng = table(3, DOMAIN), np.random.default_rng(4)
    ms = [
        measured(x, DOMAIN, whole_marginal(DOMAIN, c), 25.0, rng)
        for c in ("ab", "bc", "cd", "ad", "e")
    ]
    model = fit(DOMAIN, ms, 10_000.0)
    for names in combinations(DOMAIN, 2):
        tensor = model.marginal(names)
        assert np.abs(tensor.sum() - 10_000) < 1e-4
        for axis, name in enumerate(names):
            gap = tensor.sum(axis=1 - axis) - model.marginal((name,))
            assert np.abs(gap).max() < 1e-8 * 10_000
    assert np.abs(model.marginal(("d", "a")) - model.marginal(("a", "d")).T).max() == 0


def test_a_chain_of_noiseless_edges_is_reproduced() -> None:
    x = table(5, DOMAIN)
    edges = ["ab", "bc", "cd", "de"]
    ms = [measured(x, DOMAIN, whole_marginal(DOMAIN, e)) for e in edges]
    model = fit(DOMAIN, ms, 10_000.0, tolerance=1e-12)
    for m in ms:
        assert np.abs(model.answer(m.candidate) - m.values).max() < 1e-6 * 10_000


def test_inverse_variance_mean_of_unequal_measurements() -> None:
    domain = {"a": 3}
    candidate = whole_marginal(domain, "a")
    first = Measured(candidate, np.array([500.0, 300.0, 200.0]), 10.0, "gaussian")
    # Laplace noise of scale 10 has a standard deviation of 10 sqrt(2)
    second = Measured(candidate, np.array([530.0, 270.0, 200.0]), 10 * math.sqrt(2), "laplace")
    model = fit(domain, [first, second], 1000.0, tolerance=1e-14)
    assert model.answer(candidate) == pytest.approx([510.0, 290.0, 200.0], abs=1e-4)
    assert estimate_total([first, second], domain) == pytest.approx(1000.0)


def test_total_of_unequal_measurements() -> None:
    domain = {"a": 3, "b": 2}
    prefix = Measured((Product({"a": Prefix(3)}),), np.array([5.0, 9.0, 90.0]), 1.0, "gaussian")
    cells = Measured(whole_marginal(domain, "b"), np.array([50.0, 60.0]), 2.0, "gaussian")
    part = Measured((Product({"a": Dense(np.array([[1, 0, 0]]))}),), np.ones(1), 1.0, "gaussian")
    halves = (
        Product({"a": Dense(np.array([[1, 0, 0]])), "b": Dense(np.array([[1, 0]]))}),
        Product({"a": Dense(np.array([[0, 1, 1]])), "b": Dense(np.array([[0, 1]]))}),
    )
    other = Measured(halves, np.ones(1), 1.0, "gaussian")
    expected = (90 / 1 + 110 / 8) / (1 + 1 / 8)
    assert estimate_total([prefix, cells, part, other], domain) == pytest.approx(expected)
    grand = Measured((Product({}),), np.array([-40.0]), 1.0, "laplace")
    assert estimate_total([grand], domain) == 1.0
    with pytest.raises(ProgrammingError, match="number of rows"):
        estimate_total([part, other], domain)


def test_warm_start_keeps_what_was_learnt() -> None:
    x, rng = table(6, DOMAIN), np.random.default_rng(7)
    old = [measured(x, DOMAIN, whole_marginal(DOMAIN, c), 20.0, rng) for c in ("ab", "bc")]
    new = measured(x, DOMAIN, whole_marginal(DOMAIN, "cd"), 20.0, rng)
    before = fit(DOMAIN, old, 10_000.0)
    same = fit(DOMAIN, old, 10_000.0, warm=before, iterations=0)
    assert same.answer(old[0].candidate) == pytest.approx(before.answer(old[0].candidate))
    after = fit(DOMAIN, [*old, new], 10_000.0, warm=before)
    cold = fit(DOMAIN, [*old, new], 10_000.0)
    assert after.loss == pytest.approx(cold.loss, rel=1e-3)
    raw = sum(float(np.sum((m.values - apply(m.candidate, x, tuple(DOMAIN))) ** 2)) for m in old)
    assert before.loss <= raw / (2 * 20.0**2)


def test_the_cap_holds_before_anything_is_allocated() -> None:
    domain = {f"a{i:02}": 50 for i in range(40)}
    pairs = list(combinations(domain, 2))
    assert model_cells(domain, pairs) == 50**40
    with pytest.raises(ModelTooLarge) as refused:
        model_cells(domain, pairs, 10**6)
    assert (refused.value.cells, refused.value.cap, refused.value.code) == (
        50**40,
        10**6,
        "E_TOO_LARGE",
    )
    ms = [Measured(whole_marginal(domain, p), np.zeros(2500), 1.0, "gaussian") for p in pairs[:300]]
    with pytest.raises(ModelTooLarge):
        fit(domain, ms, 100.0)
    chain = [
        Measured(whole_marginal(domain, p), np.full(2500, 0.4), 1.0, "gaussian")
        for p in zip(list(domain)[:-1], list(domain)[1:], strict=True)
    ]
    model = fit(domain, chain, 1000.0, iterations=5)
    far = whole_marginal(domain, ["a00", "a19", "a39"])
    assert model.answer(far) == pytest.approx(np.full(125_000, 1000 / 125_000))
    with pytest.raises(ModelTooLarge, match="outside the cliques"):
        model.answer(whole_marginal(domain, list(domain)[::8]))
    rows = {a: Dense(np.eye(50, dtype=np.int64)[:1]) for a in list(domain)[::8]}
    assert model.answer((Product(rows),)) == pytest.approx(1000 / 50**5)


def test_unmeasured_attributes_are_uniform_and_tiny_inputs_work() -> None:
    empty = fit(DOMAIN, [], 12.0)
    assert empty.marginal(("d",)) == pytest.approx(np.full(6, 2.0))
    one = fit({"a": 1}, [Measured(whole_marginal({"a": 1}, "a"), np.ones(1), 1.0, "laplace")], 1.0)
    assert one.marginal(("a",)) == pytest.approx([1.0])
    wild = Measured(whole_marginal(DOMAIN, "ab"), np.full(20, -1e9), 1e6, "laplace")
    assert np.isfinite(fit(DOMAIN, [wild], 1.0).marginal(("a", "b", "e"))).all()
    with pytest.raises(ProgrammingError, match="standard deviation"):
        fit(DOMAIN, [Measured(whole_marginal(DOMAIN, "a"), np.ones(5), 0.0, "laplace")], 5.0)
    with pytest.raises(ProgrammingError, match="not in the domain"):
        empty.answer((Product({"z": Identity(3)}),))


def test_encoding_round_trip_and_facts() -> None:
    x = table(8, DOMAIN)
    ms = [measured(x, DOMAIN, whole_marginal(DOMAIN, c)) for c in ("ab", "bd", "c")]
    model = fit(DOMAIN, ms, 10_000.0, iterations=50)
    stored: dict[str, NDArray[np.float64]] = {}

    def keep(array: NDArray[np.float64]) -> str:
        stored[f"x{len(stored)}"] = array
        return f"x{len(stored) - 1}"

    again = GraphicalModel.decode(model.encode(keep), stored)
    for names in (("a", "d"), ("e",), ()):
        assert (again.marginal(names) == model.marginal(names)).all()
    assert model.describe()["cells"] == 20 + 24 + 3 + 2


@st.composite
def clique_sets(draw: st.DrawFn) -> tuple[dict[str, int], list[tuple[str, ...]]]:
    names = "abcdef"[: draw(st.integers(1, 6))]
    domain = {a: draw(st.integers(1, 4)) for a in names}
    cliques = draw(st.lists(st.sets(st.sampled_from(names)), max_size=8))
    return domain, [tuple(sorted(c)) for c in cliques]


@settings(max_examples=80, deadline=None)
@given(clique_sets())
def test_junction_trees_are_junction_trees(
    case: tuple[dict[str, int], list[tuple[str, ...]]],
) -> None:
    domain, cliques = case
    tree = junction_tree(domain, cliques)
    assert {a for c in tree.cliques for a in c} == set(domain)
    for clique in cliques:
        assert tree.home(clique) is not None
    for a in domain:
        holders = [i for i, c in enumerate(tree.cliques) if a in c]
        roots = [i for i in holders if tree.parents[i] not in holders]
        assert len(roots) == 1
        assert all(a in tree.separators[i] for i in holders if i != roots[0])
    assert all(parent < i for i, parent in enumerate(tree.parents))


@settings(max_examples=40, deadline=None)
@given(clique_sets(), st.integers(0, 99))
def test_propagation_equals_the_product_of_potentials(
    case: tuple[dict[str, int], list[tuple[str, ...]]], seed: int
) -> None:
    from dpsql.pgm.tree import marginalise, propagate, spread

    domain, cliques = case
    rng = np.random.default_rng(seed)
    potentials = {c: rng.normal(0, 3, [domain[a] for a in c]) for c in cliques}
    tree, names = junction_tree(domain, cliques), tuple(domain)
    log = np.zeros(tuple(domain.values()))
    for clique, potential in potentials.items():
        log = log + spread(potential, clique, names)
    p = np.exp(log - log.max())
    p /= p.sum()
    for clique, found in zip(tree.cliques, propagate(tree, potentials).tables, strict=True):
        assert np.abs(found - marginalise(p, names, clique)).max() < 1e-12


def test_adjoint_is_the_transpose() -> None:
    rng = np.random.default_rng(9)
    shape = tuple(DOMAIN.values())
    for candidate in (QUERY, (Product({"a": Prefix(5), "c": Identity(3)}),), (Product({}),)):
        x = rng.normal(size=shape)
        y = rng.normal(size=candidate[0].rows)
        left = float(apply(candidate, x, tuple(DOMAIN)) @ y)
        assert left == pytest.approx(float(np.vdot(x, adjoint(candidate, y, tuple(DOMAIN), shape))))
        eye = np.eye(math.prod(shape)).reshape(-1, *shape)
        rows = np.stack([apply(candidate, row, tuple(DOMAIN)) for row in eye], axis=1)
        assert norm2(candidate, tuple(DOMAIN), shape) >= np.linalg.norm(rows, 2) ** 2 * (1 - 1e-9)


def test_large_operators_keep_a_bound() -> None:
    assert (
        norm2((Product({"a": Prefix(300)}),), ("a",), (300,)) >= np.linalg.norm(np.tri(300), 2) ** 2
    )


@pytest.mark.jax
def test_mbi_agrees_behind_the_same_interface() -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    pytest.importorskip("mbi")
    from dpsql.pgm.mbi_backend import fit_mbi

    x, rng = table(11, DOMAIN), np.random.default_rng(12)
    ms = [measured(x, DOMAIN, whole_marginal(DOMAIN, c), 30.0, rng) for c in ("ab", "bc", "b")]
    ms.append(measured(x, DOMAIN, (Product({"d": Prefix(6)}),), 30.0, rng))
    ms.append(measured(x, DOMAIN, QUERY, 40.0, rng))
    ours = fit(DOMAIN, ms, 10_000.0, iterations=1500, tolerance=1e-12)
    theirs = fit_mbi(DOMAIN, ms, 10_000.0, iterations=1000)
    assert theirs.loss == pytest.approx(ours.loss, rel=1e-4)
    for names in (("a", "b"), ("c",), ("d", "e"), ("a", "d")):
        assert np.abs(theirs.marginal(names) - ours.marginal(names)).max() < 2.0
    prefix_only = fit_mbi(DOMAIN, ms[3:4], 10_000.0, iterations=500)
    assert prefix_only.marginal(("d",)).sum() == pytest.approx(10_000)
    again = fit_mbi(DOMAIN, ms, 10_000.0, iterations=5, warm=theirs)
    assert again.loss == pytest.approx(theirs.loss, rel=1e-3)


def test_a_missing_mbi_is_named() -> None:
    from importlib.util import find_spec

    from dpsql.pgm.mbi_backend import fit_mbi

    assert fit_mbi(DOMAIN, [], 5.0).marginal(("e",)) == pytest.approx([2.5, 2.5])
    if find_spec("mbi") is not None:
        pytest.skip("mbi is installed")
    with pytest.raises(OperationalError, match="dpsql\\[pgm\\]"):
        fit_mbi(DOMAIN, [measured(table(1, DOMAIN), DOMAIN, whole_marginal(DOMAIN, "a"))], 5.0)


def test_a_time_limit_returns_what_was_reached() -> None:
    x = table(13, DOMAIN)
    ms = [measured(x, DOMAIN, whole_marginal(DOMAIN, "ab"))]
    steps: list[int] = []
    fit(DOMAIN, ms, 10_000.0, seconds=0.0, progress=lambda step, _: steps.append(step))
    assert steps == [1]
