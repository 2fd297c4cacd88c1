"""The graphical model against explicit distributions on small domains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.algebra.operator import Floats
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.pgm.fit import check, fit, make_consistent
from dpsql.pgm.linear import adjoint, apply, estimate_total, norm2, whole_marginal
from dpsql.pgm.measurements import Candidate, Measured
from dpsql.pgm.model import GraphicalModel
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


QUERY: Candidate = (
    Product({"a": Dense(np.array([[1, 0, 1, 0, 1]])), "e": Dense(np.array([[0, 1]]))}),
    Product({"a": Dense(np.array([[0, 1, 0, 0, 0]])), "d": Dense(np.array([[1, 1, 0, 0, 0, 0]]))}),
)


@pytest.mark.parametrize(
    "cliques",
    ["ab bc cd de", "ab cd", "abc bcd e", "ab bc ac", "ab bc cd ad", "abc", "ae be ce de"],
)
@pytest.mark.parametrize("stddev", [30.0, 300.0])
def test_every_count_is_missed_by_its_softness_times_its_potential(
    cliques: str, stddev: float
) -> None:
    """The conditions of the optimum, which is one: the entropy is concave, the misses convex."""
    x, rng = table(1, DOMAIN), np.random.default_rng(2)
    ms = [measured(x, DOMAIN, whole_marginal(DOMAIN, c), stddev, rng) for c in cliques.split()]
    ms.append(measured(x, DOMAIN, (Product({"a": Prefix(5)}),), 5 * stddev, rng))
    ms.append(measured(x, DOMAIN, (Product({"b": Prefix(4)}),), 2 * stddev, rng))
    model = fit(DOMAIN, ms, 10_000.0, tolerance=1e-9, work=2e8)
    targets = make_consistent(DOMAIN, check(DOMAIN, ms, 10**6), 10_000.0)
    inside = {"".join(s) for c in cliques.split() for k in (1, 2, 3) for s in combinations(c, k)}
    assert {"".join(c) for c in targets} == inside
    for clique, target in targets.items():
        missed = target.counts - model.marginal(clique)
        told = target.softness * model.potentials[clique]
        assert np.abs(missed - told).max() < 0.1 * target.stddev
        for k in range(len(clique)):
            for part in combinations(clique, k):
                axes = tuple(i for i, a in enumerate(clique) if a not in part)
                known = targets[part].counts if part else 10_000.0
                assert np.abs(target.counts.sum(axis=axes) - known).max() < 1e-6 * 10_000


def test_consistent_tables_are_least_squares() -> None:
    """Tables measured together, weighted by their noise, against a dense solution."""
    domain = {"a": 3, "b": 4, "c": 2, "one": 1}
    x, rng = table(14, domain), np.random.default_rng(15)
    cliques = [("a", "b"), ("b", "c", "one"), ("a",), ("a", "b")]
    stddevs = [10.0, 30.0, 5.0, 20.0]
    ms = [
        measured(x, domain, whole_marginal(domain, c), s, rng)
        for c, s in zip(cliques, stddevs, strict=True)
    ]
    total = 10_000.0
    found = make_consistent(domain, check(domain, ms, 10**6), total)
    names, shape = tuple(domain), tuple(domain.values())
    units = np.eye(x.size).reshape(-1, *shape)
    rows = [np.stack([apply(m.candidate, u, names) for u in units], axis=1) for m in ms]
    stacked = np.vstack([r / m.stddev for r, m in zip(rows, ms, strict=True)])
    values = np.concatenate([m.values / m.stddev for m in ms])
    pin = np.ones((1, x.size)) * 1e6  # the total is known
    solution = np.linalg.lstsq(np.vstack([stacked, pin]), np.append(values, total * 1e6))[0]
    assert set(found) == {("a",), ("b",), ("c",), ("a", "b"), ("b", "c")}
    for clique, target in found.items():
        [asked] = whole_marginal(domain, clique)
        told = apply((asked,), solution.reshape(shape), names)
        assert target.counts.ravel() == pytest.approx(told, abs=0.01)
    draws = [
        make_consistent(
            domain,
            check(
                domain,
                [
                    measured(x, domain, whole_marginal(domain, c), s, rng)
                    for c, s in zip(cliques, stddevs, strict=True)
                ],
                10**6,
            ),
            total,
        )[("b", "c")].counts
        for _ in range(400)
    ]
    spread = float(np.std(draws, axis=0).mean())
    assert found[("b", "c")].stddev == pytest.approx(spread, rel=0.1)


def test_single_queries_are_fitted_to_within_their_noise() -> None:
    x, rng = table(1, DOMAIN), np.random.default_rng(2)
    ms = [measured(x, DOMAIN, whole_marginal(DOMAIN, "abc"), 30.0, rng)]
    ms.append(measured(x, DOMAIN, QUERY, 20.0, rng))
    ms.append(measured(x, DOMAIN, (Product({"d": Dense(np.array([[1, 0, 0, 1, 0, 0]]))}),), 5.0))
    model = fit(DOMAIN, ms, 10_000.0)
    assert model.loss <= model.explained
    assert not model.is_far
    for m in ms[1:]:
        assert np.abs(model.answer(m.candidate) - m.values).max() <= m.stddev


@pytest.mark.parametrize("seed", range(3))
def test_steps_of_a_descent_grow_as_they_are_accepted(seed: int) -> None:
    """With steps of one size it takes 500 to 1,700 of them."""
    x, rng = table(1, DOMAIN), np.random.default_rng(seed)
    ms = []
    for _ in range(12):
        of = rng.choice(list(DOMAIN), 2, replace=False)
        rows = {a: Dense((rng.random((1, DOMAIN[a])) < 0.5).astype(float)) for a in of}
        ms.append(measured(x, DOMAIN, (Product(rows),), 20.0, rng))
    losses: list[float] = []
    model = fit(DOMAIN, ms, 10_000.0, progress=lambda _, loss: losses.append(loss))
    assert model.loss <= model.explained
    assert len(losses) <= 120


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
    ms = [measured(x, DOMAIN, whole_marginal(DOMAIN, e), 1e-4) for e in edges]
    model = fit(DOMAIN, ms, 10_000.0, tolerance=1e-6)
    for m in ms:
        assert np.abs(model.answer(m.candidate) - m.values).max() < 1e-6 * 10_000


def test_inverse_variance_mean_of_unequal_measurements() -> None:
    domain = {"a": 3}
    candidate = whole_marginal(domain, "a")
    first = Measured(candidate, np.array([500.0, 300.0, 200.0]), 0.1, "gaussian")
    # Laplace noise of scale .1 has a standard deviation of .1 sqrt(2)
    second = Measured(candidate, np.array([530.0, 270.0, 200.0]), 0.1 * math.sqrt(2), "laplace")
    model = fit(domain, [first, second], 1000.0, tolerance=1e-6)
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
    before = fit(DOMAIN, old, 10_000.0, tolerance=1e-4)
    same = fit(DOMAIN, old, 10_000.0, warm=before, work=0)
    assert same.answer(old[0].candidate) == pytest.approx(before.answer(old[0].candidate), abs=0.5)
    after = fit(DOMAIN, [*old, new], 10_000.0, warm=before)
    cold = fit(DOMAIN, [*old, new], 10_000.0)
    assert after.loss == pytest.approx(cold.loss, rel=0.02)
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
    model = fit(domain, chain, 1000.0)
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
    model = fit(DOMAIN, ms, 10_000.0)
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
    ours = fit(DOMAIN, ms, 10_000.0)
    theirs = fit_mbi(DOMAIN, ms, 10_000.0, iterations=1000)
    # Ours lets noise pull less: it may miss what was measured by what noise explains.
    assert theirs.loss <= ours.loss * (1 + 1e-4) <= 2 * theirs.loss
    for names in (("a", "b"), ("c",), ("d", "e"), ("a", "d")):
        assert np.abs(theirs.marginal(names) - ours.marginal(names)).max() < 60.0
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


def test_the_work_bounds_a_fit_and_what_it_did_not_do_is_told() -> None:
    """A loop of tables with little noise: one sweep does not settle it, and all of them do."""
    x = table(13, DOMAIN)
    ms = [
        measured(x, DOMAIN, whole_marginal(DOMAIN, c), 0.01)
        for c in ("ab", "bc", "cd", "de", "ae", "ac", "bd")
    ]
    steps: list[int] = []
    short = fit(DOMAIN, ms, 10_000.0, work=0, progress=lambda step, _: steps.append(step))
    assert steps == [1]
    assert short.is_far
    assert "further fit is free" in short.describe()["warning"]
    long = fit(DOMAIN, ms, 10_000.0, warm=short, work=1e9, tolerance=1e-3)
    assert not long.is_far
    assert "warning" not in long.describe()
    assert long.loss < short.loss / 100
    again = fit(DOMAIN, ms, 10_000.0, warm=short, work=1e9, tolerance=1e-3)
    assert all((again.potentials[c] == p).all() for c, p in long.potentials.items())
