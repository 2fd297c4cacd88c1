"""Whole-marginal selection over both model families: convergence, budgets, edges, statements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.errors import ProgrammingError
from dpsql.learn.relaxed import ProductMixture, fit_mixture, softmax_blocks, softmax_pull
from dpsql.learn.task import make_task, run_task
from dpsql.learn.transcript import error_statements
from dpsql.learn.whole_marginals import Backend, Graphical, Mixture, closure, run_marginals
from dpsql.pgm.linear import whole_marginal
from dpsql.pgm.measurements import Candidate, Measured, Query
from dpsql.pgm.model import GraphicalModel
from dpsql.privacy.budget.accounting import rho_for
from tests.learn.fake import FakeHandle

DOMAIN = {"a": 3, "b": 4, "c": 2, "one": 1}
COUNTS = np.random.default_rng(0).multinomial(4000, np.random.default_rng(1).dirichlet([0.4] * 24))
WORKLOAD = [("a", "b"), ("b", "c", "one"), ("a", "c")]


def handle(
    budget: str = "1",
    noise: Literal["laplace", "gaussian"] = "gaussian",
    rng: np.random.Generator | None = None,
    counts: NDArray[np.int64] = COUNTS,
) -> FakeHandle:
    return FakeHandle.of_histogram(DOMAIN, counts, budget, noise=noise, rng=rng)


def backend(name: str) -> Backend:
    if name == "graphical":
        return Graphical(DOMAIN)
    return Mixture(DOMAIN, np.random.default_rng(2), components=60, steps=60)


@pytest.mark.parametrize("name", ["graphical", "mixture"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("rounds", [None, 6])
def test_converges_and_spends_everything(
    name: str, noise: Literal["laplace", "gaussian"], rounds: int | None
) -> None:
    h = handle("4" if noise == "laplace" else "1", noise)
    run = run_marginals(h, WORKLOAD, backend(name), rounds=rounds)
    assert h.remaining() == 0
    assert [what for what, _ in h.spent] == ["measure"] + ["select", "measure"] * len(run.rounds)
    assert rounds is None or len(run.rounds) == rounds
    assert len(run.measurements) == 4 + len(run.rounds)
    assert run.model.total == pytest.approx(4000)
    for names in WORKLOAD:
        candidate = whole_marginal(DOMAIN, names)
        assert np.abs(run.model.answer(candidate) - h.true(candidate)).max() < 0.01 * 4000


def test_closure_weighs_overlap() -> None:
    weights = closure({("b", "a"): Fraction(1), ("c", "a"): Fraction(3)}, DOMAIN)
    assert weights[("a",)] == 4
    assert weights[("a", "c")] == 1 + 2 * 3
    assert list(weights) == [("a",), ("b",), ("c",), ("a", "b"), ("a", "c")]


def test_penalties_follow_the_noise_that_was_measured() -> None:
    seen: list[Sequence[float] | None] = []

    class Doubled(FakeHandle):
        """Two rows per unit: everything is twice as noisy."""

        def measure(self, candidates: Sequence[Query], amount: Fraction) -> list[Measured]:
            found = super().measure(candidates, amount)
            return [Measured(m.candidate, m.values, 2 * m.stddev, m.noise) for m in found]

        def select(self, candidates, answers, **rest):  # type: ignore[no-untyped-def]
            seen.append(rest["penalties"])
            return super().select(candidates, answers, **rest)

    h = Doubled.of_histogram(DOMAIN, COUNTS, "1", noise="gaussian")
    run = run_marginals(h, [("a",)], Graphical(DOMAIN), rounds=1)
    sigma = run.rounds[0].stddev
    assert seen[0] == pytest.approx([3 * sigma * math.sqrt(2 / math.pi)])


def test_an_interrupt_returns_a_usable_model() -> None:
    class Impatient(FakeHandle):
        def measure(self, candidates: Sequence[Query], amount: Fraction) -> list[Measured]:
            if len(self.spent) > 4:
                raise KeyboardInterrupt
            return super().measure(candidates, amount)

    h = Impatient.of_histogram(DOMAIN, COUNTS, "1", noise="gaussian")
    run = run_marginals(h, WORKLOAD, Graphical(DOMAIN))
    assert run.interrupted
    assert len(run.rounds) == 2
    assert run.model.marginal(("a", "b")).sum() == pytest.approx(4000)
    assert h.remaining() > 0


def test_empty_tables_and_tiny_budgets_give_numbers() -> None:
    for name in ("graphical", "mixture"):
        h = handle("1/1000000000000", rng=np.random.default_rng(4), counts=np.zeros(24, np.int64))
        run = run_marginals(h, WORKLOAD, backend(name), rounds=2)
        assert run.model.total >= 1
        assert np.isfinite(run.model.marginal(("a", "c"))).all()


def test_bad_settings_spend_nothing() -> None:
    h = handle()
    for workload, rounds, cap in (((), None, 100), ([()], None, 100), (WORKLOAD, 0, 100)):
        with pytest.raises(ProgrammingError):
            run_marginals(h, workload, Graphical(DOMAIN), rounds=rounds, cap=cap)
    with pytest.raises(ProgrammingError, match="cap excludes"):
        run_marginals(h, [("a", "b")], Graphical(DOMAIN), cap=1)
    with pytest.raises(ProgrammingError, match="not in the domain"):
        run_marginals(h, [("zzz",)], Graphical(DOMAIN))
    assert h.spent == []


def test_the_cap_bounds_the_model() -> None:
    h = handle(rng=np.random.default_rng(5))
    run = run_marginals(h, WORKLOAD, Graphical(DOMAIN, cap=15), rounds=4)
    assert run.model.describe()["cells"] <= 15
    assert h.remaining() == 0


def test_error_statements_hold_and_average_repeated_measurements() -> None:
    rng = np.random.default_rng(6)
    candidate = whole_marginal(DOMAIN, ("a", "b"))
    h = handle()
    true = h.true(candidate)
    broken = 0
    model = Graphical(DOMAIN).fit(
        [Measured(candidate, true, 5.0, "gaussian")], 4000.0, None, last=True
    )
    for _ in range(200):
        noisy = [
            Measured(candidate, true + rng.normal(0, s, 12), s, "gaussian") for s in (20.0, 40.0)
        ]
        [said] = error_statements(model, noisy)
        gap = float(np.abs(model.answer(candidate) - true).sum())
        broken += gap > said.bound
        assert said.bound > said.distance
    assert broken <= 10
    combined = (20.0**-2 + 40.0**-2) ** -0.5
    extra = math.sqrt(2 * math.log(2)) * 12 + math.sqrt(math.log(20)) * math.sqrt(24)
    assert said.bound - said.distance == pytest.approx(combined * extra)
    assert error_statements(model, [Measured(candidate, true, 5.0, "laplace")]) == ()


def test_the_softmax_gradient_against_finite_differences() -> None:
    rng = np.random.default_rng(7)
    theta, pull = rng.normal(size=(4, 10)), rng.normal(size=(4, 10))
    gradient = softmax_pull(softmax_blocks(theta, DOMAIN), pull, DOMAIN)
    direction = rng.normal(size=theta.shape)
    ahead, behind = (softmax_blocks(theta + s * 1e-6 * direction, DOMAIN) for s in (1, -1))
    slope = float(np.vdot(pull, ahead - behind)) / 2e-6
    assert float(np.vdot(gradient, direction)) == pytest.approx(slope, rel=1e-6)


def test_a_mixture_is_stored_and_drawn_from() -> None:
    rng = np.random.default_rng(8)
    h = handle()
    ms = [Measured(c, h.true(c), 3.0, "gaussian") for c in map(_pair, WORKLOAD)]
    model = fit_mixture(DOMAIN, ms, 4000.0, components=40, steps=80, rng=rng)
    stored: dict[str, NDArray[np.float64]] = {}

    def keep(array: Floats) -> str:
        stored["table"] = array
        return "table"

    again = ProductMixture.decode(model.encode(keep), stored)
    assert (again.marginal(("c", "a")) == model.marginal(("c", "a"))).all()
    assert again.describe() == model.describe()
    rows = model.rows(8000, rng)
    flat = np.ravel_multi_index([rows["a"], rows["b"]], (3, 4))
    drawn = np.bincount(flat, minlength=12) / 2
    assert np.abs(drawn - model.marginal(("a", "b")).ravel()).max() < 120


def _pair(names: tuple[str, ...]) -> Candidate:
    return whole_marginal(DOMAIN, names)


def test_what_the_model_cannot_answer_is_not_a_candidate() -> None:
    domain = {"a": 30, "b": 30, "c": 30}
    rng = np.random.default_rng(9)
    columns = {name: rng.integers(0, 30, 500) for name in domain}
    h = FakeHandle(domain, columns, 1, noise="gaussian", rng=rng)
    run = run_marginals(h, [("a", "b"), ("b", "c")], Graphical(domain, cap=500), rounds=3)
    assert {r.attributes for r in run.rounds} <= {("a",), ("b",), ("c",)}
    assert h.remaining() == 0


SIZES = {"a": 6, "b": 7, "c": 5, "d": 4, "e": 2}


@pytest.mark.parametrize(("order", "noise"), [(2, "laplace"), (2, "gaussian"), (3, "gaussian")])
def test_a_larger_budget_never_makes_a_table_worse(
    order: int, noise: Literal["laplace", "gaussian"]
) -> None:
    """Ten tables that overlap, sparse as surveys are; at the largest budget noise is all but gone.

    Fits that end before they are done are off by more the more precise the measurements are.
    """
    rng = np.random.default_rng(10)
    rows = 30_000
    # one row in three copies its neighbour's cell, so that tables hang together
    columns = {name: rng.integers(0, size, rows) ** 2 // size for name, size in SIZES.items()}
    for one, next_ in combinations(SIZES, 2):
        copied = rng.random(rows) < 1 / 3
        columns[next_] = np.where(copied, columns[one] % SIZES[next_], columns[next_])
    cliques = list(combinations(SIZES, order))
    candidates = [whole_marginal(SIZES, clique) for clique in cliques]
    errors = []
    for epsilon in (Fraction(1), Fraction(10), Fraction(100)):
        amount = epsilon if noise == "laplace" else rho_for(epsilon, Fraction(1, 10**9))
        h = FakeHandle(SIZES, columns, amount, noise=noise, rng=np.random.default_rng(1))
        task = make_task(SIZES, candidates, noise, amount, model="pgm")
        model = run_task(task, h).model
        assert isinstance(model, GraphicalModel)
        assert not model.is_far
        gaps = [np.abs(model.answer(c) - h.true(c)).sum() / (2 * rows) for c in candidates]
        errors.append(float(np.mean(gaps)))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 4
