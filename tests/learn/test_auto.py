"""The choice of a mechanism: published calibration, and public facts only."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense
from dpsql.learn.candidates import marginal
from dpsql.learn.mechanism_choice import THRESHOLDS, Facts, Fork, MechanismChoice, Metric, decide
from dpsql.learn.task import make_task, run_task
from dpsql.pgm.linear import whole_marginal
from dpsql.pgm.measurements import Candidate
from dpsql.settings.rounds import Rounds
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Product
from tests.learn.fake import FakeHandle
from tests.pgm.test_project import ADULT, RHO, ROWS, adult_cliques


def adult(rho: float) -> Facts:
    candidates = [marginal(ADULT, c) for c in adult_cliques()]
    return Facts(ADULT, candidates, "gaussian", Fraction(rho), float(ROWS))


@pytest.mark.parametrize(
    ("rho", "ratio", "share"), list(zip(RHO, (44, 8.9, 4.5), (0.05, 0.01, 0.005), strict=True))
)
def test_the_adult_marginals(rho: float, ratio: float, share: float) -> None:
    facts = adult(rho)
    mean = decide(facts)
    assert mean.mechanism == "marginals"
    assert mean.inputs["error_per_cell"] == pytest.approx(ratio, rel=0.05)
    assert "> 0.2" in mean.rule
    largest = decide(replace(facts, metric="max"))
    assert largest.mechanism == "matrix+projection"
    assert largest.inputs["max_error_per_row"] == pytest.approx(share, rel=0.15)
    assert largest.power == 0.375
    assert not largest.useless


def test_the_model_follows_the_cap() -> None:
    facts = adult(RHO[2])
    assert decide(replace(facts, admitted=64)).model == "graphical"
    assert decide(replace(facts, admitted=31)).model == "mixture"


def test_intervals_get_the_matrix_mechanism() -> None:
    facts = adult(RHO[2])
    assert decide(replace(facts, unbiased=True)).mechanism == "matrix"


def test_a_budget_too_small_says_so() -> None:
    choice = decide(replace(adult(RHO[2]), budget=Fraction(1, 10**9), metric="max"))
    assert choice.useless
    assert choice.describe()["warning"] == "budget too small to be useful"


def ranges(domain: dict[str, int]) -> list[tuple[Product, ...]]:
    rng = np.random.default_rng(0)
    return [
        (
            Product(
                {a: Dense((rng.random((1, n)) < 0.5).astype(np.int64)) for a, n in domain.items()}
            ),
        )
        for _ in range(30)
    ]


@pytest.mark.parametrize("metric", ["mean", "max"])
def test_a_fork_tells_the_rule_before_the_rows_are_known(metric: Metric) -> None:
    facts = replace(adult(RHO[2]), metric=metric)
    fork = decide(replace(facts, total=None))
    assert isinstance(fork, Fork)
    assert f"up to {fork.rows:,.0f} rows: select marginals" in fork.rule
    assert f"useful below {fork.needed:,.0f} rows" in fork.describe()["warning"]
    for total in (fork.needed * 0.99, fork.needed * 1.01, fork.rows * 0.99, fork.rows * 1.01, 1e9):
        known = decide(replace(facts, total=total))
        assert fork.at(total) == known
        assert known.mechanism == ("marginals" if total < fork.rows else "matrix+projection")
        assert known.useless == (total < fork.needed)


def test_a_fork_over_an_explicit_table() -> None:
    domain = {"loss": 4357}
    facts = Facts(domain, ranges(domain), "laplace", Fraction(1, 10**5), None, matrix_rmse=1e7)
    fork = decide(facts)
    assert isinstance(fork, Fork)
    assert fork.rows == pytest.approx(1e7 / THRESHOLDS["range_error_per_row"])
    assert 100 < fork.needed < fork.rows
    for total in (fork.needed * 0.99, fork.needed * 1.01, fork.rows * 0.99, fork.rows * 1.01):
        known = decide(replace(facts, total=total))
        assert fork.at(total) == known
        assert known.mechanism == ("mwem" if total < fork.rows else "matrix")
        assert known.useless == (total < fork.needed)
    (one,) = ranges(domain)[:1]
    sure = decide(replace(facts, candidates=[one], matrix_rmse=0.01))
    assert isinstance(sure, MechanismChoice)
    assert sure.rule.startswith("any number of rows")


PAIRED = {"a": 3, "b": 4, "c": 2}
PAIRS = [marginal(PAIRED, names) for names in combinations(PAIRED, 2)]
ROWS_OF = [(Product({"a": Dense(np.array([[1, 1, k]])), "b": Dense(row)}),)
           for k in (0, 1) for row in np.eye(4, dtype=np.int64)[:, None]]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("rows", [5, 1_000_000])
@pytest.mark.parametrize(
    ("model", "queries", "error", "made"),
    [
        ("auto", PAIRS, None, ("marginals", "matrix+projection")),
        ("marginals", PAIRS, None, ("marginals", "matrix+projection")),
        ("mixture", PAIRS, None, ("marginals", "matrix+projection")),
        ("pgm", PAIRS[:1], None, ("marginals", "matrix+projection")),
        ("auto", ROWS_OF, 100.0, ("mwem", "matrix")),
    ],
)
def test_the_rows_are_counted_once_and_settle_the_fork(
    noise: Noise,
    rows: int,
    model: str,
    queries: list[Candidate],
    error: float | None,
    made: tuple[str, str],
) -> None:
    task = make_task(PAIRED, queries, noise, Fraction(1, 7), model=model, matrix_rmse=error)
    assert isinstance(task.choice, Fork)
    assert task.choice.mechanism == " or ".join(made)
    counts = np.zeros(24)
    counts[:2] = rows - rows // 2, rows // 2
    handle = FakeHandle.of_histogram(PAIRED, counts, Fraction(1, 7), noise=noise)
    found = run_task(task, handle)
    assert handle.remaining() == 0
    assert sum(look.amount for look in found.looks) == Fraction(1, 7)
    assert handle.spent[0] == ("total", Fraction(1, 7) / 50)
    assert [what for what, _ in handle.spent].count("total") == 1
    counted = float(found.looks[0].measured[0].values[0])
    assert found.choice == task.choice.at(counted, "by a noisy count")
    assert found.choice.mechanism == (made[1] if rows > 5 else made[0])
    assert f"{max(1.0, counted):,.0f} rows (by a noisy count)" in found.choice.rule
    assert found.choice.useless == (max(1.0, counted) < task.choice.needed)
    told = found.transcript(noise)
    assert any("too small to be useful" in line for line in told) == found.choice.useless
    assert found.choice.rule not in task.settings()
    again = make_task(PAIRED, queries, noise, Fraction(1, 7), model=model, matrix_rmse=error)
    assert again.settings() == task.settings()


def test_declared_rounds_and_hints_leave_no_fork() -> None:
    few = make_task(PAIRED, PAIRS, "laplace", Fraction(1), rounds=Rounds(3))
    assert (few.choice.mechanism, "rounds are declared" in few.choice.rule) == ("marginals", True)
    for hint, mechanism in ((5.0, "marginals"), (1e6, "matrix+projection")):
        task = make_task(PAIRED, PAIRS, "laplace", Fraction(1), model="marginals", hint=hint)
        assert task.choice.mechanism == mechanism


def test_ranges_over_an_explicit_table() -> None:
    domain = {"loss": 4357}
    limit = THRESHOLDS["range_error_per_row"]
    for part, mechanism in ((2 * limit, "mwem"), (limit / 2, "matrix")):
        facts = Facts(
            domain, ranges(domain), "laplace", Fraction(1, 10), 32561.0, matrix_rmse=part * 32561
        )
        assert decide(facts).mechanism == mechanism
        assert not decide(facts).useless
    tiny = Facts(domain, ranges(domain), "laplace", Fraction(1, 10**5), 100.0, matrix_rmse=1e7)
    assert decide(tiny).useless
    assert decide(replace(tiny, matrix_rmse=None)).mechanism == "mwem"


def test_predicates_over_large_domains_are_for_relaxed_tables() -> None:
    domain = {f"a{i}": 30 for i in range(6)}
    facts = Facts(domain, ranges(domain), "gaussian", Fraction(1, 100), 1e5)
    assert math.prod(domain.values()) > THRESHOLDS["explicit_cells"]
    assert decide(facts).mechanism == "rap"
    pairs = [marginal(domain, c) for c in combinations(domain, 2)]
    assert decide(replace(facts, candidates=pairs, budget=Fraction(100))).mechanism == (
        "matrix+projection"
    )


def test_cells_chosen_one_by_one_say_where_tables_are_better() -> None:
    """A table of 8,000 cells and a condition: the first is told, by the option it was asked by."""
    domain = {"a": 20, "b": 20, "c": 20}
    table = whole_marginal(domain, ("a", "b", "c"))
    few = whole_marginal(domain, ("a", "b"))
    condition = (Product({"a": Dense(np.eye(20, dtype=np.int64)[:1])}),)
    for candidates, is_told in (([table], True), ([few], False), ([table, condition], False)):
        one = Fraction(1)
        task = make_task(domain, candidates, "laplace", one, model="rap", option="mechanism")
        assert ("known better by mechanism = 'auto'" in task.choice.rule) == is_told
    task = make_task(domain, [table], "laplace", Fraction(1), model="mixture")
    assert "is for those" not in task.choice.rule
