"""MWEM: convergence, budgets, edges, and the defects of published algorithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Prefix
from dpsql.errors import BudgetExceeded, ProgrammingError
from dpsql.learn.candidates import CompiledCandidates, attributes_of, marginal, norm, rows, spans
from dpsql.learn.factored import FactoredModel, PullTarget, TablePart, replay, target_of
from dpsql.learn.mwem import Settings, first_tables, mwem
from dpsql.learn.schedule import AnnealingSchedule, DoublingSchedule, Outcome, default_rounds
from dpsql.pgm.measurements import Candidate, Measured, Model
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Product
from tests.learn.fake import FakeHandle

DOMAIN = {"a": 4, "b": 3, "c": 5}
CZECH = {f"b{i}": 2 for i in range(6)}


def table(total: int = 2000) -> NDArray[np.float64]:
    """Return public toy counts with dependence between all attributes."""
    rng = np.random.default_rng(7)
    weights = rng.gamma(0.4, size=tuple(DOMAIN.values()))
    return np.asarray(rng.multinomial(total, (weights / weights.sum()).ravel()), dtype=np.float64)


def ranges(count: int = 60) -> list[Candidate]:
    """Return random boxes over all attributes of the toy domain."""
    rng = np.random.default_rng(5)
    out: list[Candidate] = []
    for _ in range(count):
        factors = {}
        for name, size in DOMAIN.items():
            low, high = np.sort(rng.integers(0, size, 2))
            row = np.zeros((1, size), dtype=np.int64)
            row[0, low : high + 1] = 1
            factors[name] = Dense(row)
        out.append((Product(factors),))
    return out


def cuboids(domain: dict[str, int] = DOMAIN) -> list[Candidate]:
    """Return all marginals of up to two attributes."""
    return [marginal(domain, c) for k in (1, 2) for c in combinations(domain, k)]


def parities(domain: dict[str, int]) -> list[Candidate]:
    """Return all parities of one to three attributes."""
    row = Dense(np.array([[1, -1]]))
    return [(Product(dict.fromkeys(c, row)),) for k in (1, 2, 3) for c in combinations(domain, k)]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("candidates", [ranges(16), cuboids()], ids=["ranges", "cuboids"])
def test_without_noise_it_converges(candidates: list[Candidate], noise: Noise) -> None:
    handle = FakeHandle.of_histogram(DOMAIN, table(), 50_000, noise=noise)
    settings = Settings(rounds=len(candidates), sweeps=200, slack=0.0)
    model = mwem(handle, candidates, settings).model
    worst = max(float(np.abs(handle.true(c) - model.answer(c)).max()) for c in candidates)
    assert worst < 0.01 * 2000


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(rounds=3),
        Settings(rounds="doubling"),
        Settings(rounds="annealing"),
        Settings(total=2000.0, histogram=True, rounds=2),
        Settings(average=True, rounds=4),
    ],
    ids=lambda s: str(s.rounds) + "-histogram" * bool(s.histogram) + "-average" * s.average,
)
@pytest.mark.parametrize("candidates", [ranges(20), cuboids()], ids=["ranges", "cuboids"])
def test_the_budget_is_spent_exactly(
    candidates: list[Candidate], settings: Settings, noise: Noise
) -> None:
    rng = np.random.default_rng(1)
    budget = Fraction(1, 3)
    handle = FakeHandle.of_histogram(DOMAIN, table(), budget, noise=noise, rng=rng)
    run = mwem(handle, candidates, settings)
    assert handle.remaining() == 0
    assert sum(amount for _, amount in handle.spent) == budget
    paid = sum(r.spend.all for r in run.rounds)
    others = [a for what, a in handle.spent[: 2 if settings.histogram else 1] if what != "select"]
    assert paid <= budget
    assert (settings.total is not None) == all(what != "total" for what, _ in handle.spent)
    assert others
    for part in run.model.parts:
        assert np.isfinite(part.weights).all()
        assert part.weights.sum() == pytest.approx(1)
        assert (part.weights > 0).all()


def test_the_number_of_rows_is_charged_and_noisy() -> None:
    totals = set()
    for seed in range(4):
        handle = FakeHandle.of_histogram(DOMAIN, table(), 1, rng=np.random.default_rng(seed))
        run = mwem(handle, ranges(10), Settings(hint=2000.0))
        assert handle.spent[0] == ("total", Fraction(1, 20))
        totals.add(run.model.total)
    assert len(totals) > 1
    small = FakeHandle.of_histogram(DOMAIN, table(), 1, rng=np.random.default_rng(0))
    mwem(small, ranges(10))
    assert small.spent[0] == ("total", Fraction(1, 10))


def test_every_round_selects_once_and_something_new() -> None:
    handle = FakeHandle.of_histogram(DOMAIN, table(), 1, rng=np.random.default_rng(0))
    run = mwem(handle, ranges(6), Settings(rounds=10))
    chosen = [r.index for r in run.rounds]
    assert sorted(chosen) == list(range(6))
    assert sum(what == "select" for what, _ in handle.spent) == 5  # the last one left is free


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_single_marginal_is_measured_once(noise: Noise) -> None:
    handle = FakeHandle.of_histogram(DOMAIN, table(), 1, noise=noise, rng=np.random.default_rng(0))
    run = mwem(handle, [marginal(DOMAIN, ("a", "b"))])
    assert [what for what, _ in handle.spent] == ["total", "measure"]
    assert run.rounds[0].spend.measure == Fraction(9, 10)


def kl(counts: NDArray[np.float64], model: FactoredModel) -> float:
    p, q = counts / counts.sum(), model.marginal(tuple(model.domain)).ravel() / model.total
    used = p > 0
    return float((p[used] * np.log(p[used] / q[used])).sum())


MILDEW_LIKE = np.bincount(
    np.random.default_rng(2).choice(64, 70, p=np.random.default_rng(9).dirichlet([0.15] * 64)),
    minlength=64,
).astype(np.float64)


def test_replay_of_small_noisy_tables_does_not_diverge() -> None:
    uniform = kl(MILDEW_LIKE, FactoredModel.uniform(CZECH, 70.0))
    found: dict[float | None, float] = {}
    for slack in (None, 0.0):
        runs = []
        for seed in range(4):
            handle = FakeHandle.of_histogram(
                CZECH, MILDEW_LIKE, "0.1", rng=np.random.default_rng(seed)
            )
            settings = Settings(rounds=16, slack=slack, share=Fraction(1, 20))
            runs.append(kl(MILDEW_LIKE, mwem(handle, parities(CZECH), settings).model))
        found[slack] = float(np.mean(runs))
    assert found[None] < 1.05 * uniform
    assert found[0.0] > 2 * uniform


def test_a_dense_table_is_learnt_at_epsilon_one() -> None:
    rng = np.random.default_rng(3)
    counts = rng.multinomial(1841, rng.dirichlet([2.0] * 64)).astype(np.float64)
    found = []
    for seed in range(5):
        handle = FakeHandle.of_histogram(CZECH, counts, 1, rng=np.random.default_rng(seed))
        found.append(kl(counts, mwem(handle, parities(CZECH)).model))
    assert np.mean(found) < 0.5 * kl(counts, FactoredModel.uniform(CZECH, 1.0))


def test_factored_and_explicit_tables_agree() -> None:
    handle = FakeHandle.of_histogram(DOMAIN, table(), 1)
    targets = []
    pairs = [marginal(DOMAIN, ("a", "b")), marginal(DOMAIN, ("c",)), ranges(1)[0]]
    for candidate in pairs[:2]:
        targets.append(PullTarget(candidate, handle.true(candidate) + 3, 1.0))
    start = FactoredModel.uniform(DOMAIN, 2000.0)
    factored = replay(start.merge(("a", "b")), targets)
    explicit = replay(start.merge(("a", "b", "c")), targets)
    for candidate in pairs:
        assert factored.answer(candidate) == pytest.approx(explicit.answer(candidate), abs=0.02)


@pytest.mark.parametrize("step", ["multiplicative", "proportional"])
def test_replay_reaches_consistent_targets(step: str) -> None:
    handle = FakeHandle.of_histogram(DOMAIN, table(), 1)
    prefix = (Product({"a": Prefix(4), "c": Dense(np.eye(5, dtype=np.int64)[:2])}),)
    halves = (
        Product({"a": Dense(np.array([[1, 0, 0, 0]]))}),
        Product({"a": Dense(np.array([[0, 1, 0, 0]]))}),
    )
    candidates: list[Candidate] = [marginal(DOMAIN, ("b", "c")), prefix, halves]
    targets = [PullTarget(c, handle.true(c), 0.0) for c in candidates]
    start = FactoredModel.uniform(DOMAIN, 2000.0).merge(("a", "b", "c"))
    model = replay(start, targets, sweeps=1500, step=step)  # type: ignore[arg-type]
    for candidate in candidates:
        assert model.answer(candidate) == pytest.approx(handle.true(candidate), abs=10)


def test_repeated_measurements_are_weighted_by_precision() -> None:
    query = marginal({"a": 2}, ("a",))
    first = Measured(query, np.array([10.0, 40.0]), 1.0, "laplace")
    second = Measured(query, np.array([20.0, 40.0]), 2.0, "laplace")
    target = target_of([first, second], 100.0)
    assert target.values.tolist() == [12.0, 40.0]
    assert target.scale == pytest.approx(math.sqrt(0.8 / 2))
    assert target_of([first], 30.0).values.tolist() == [10.0, 30.0]


@pytest.mark.parametrize("rows", [[0b0110, 0b0000, 0b1111, 0b1000], [0b0110, 0b1010, 0b1, 0b0]])
def test_single_rows_are_answered_together(rows: list[int]) -> None:
    bits = [Dense(np.array([[row >> i & 1 for i in range(4)]])) for row in rows]
    candidates: list[Candidate] = [(Product({"a": one, "c": two}),) for one in bits for two in bits]
    weights = np.random.default_rng(1).dirichlet(np.ones(16)).reshape(4, 4)
    model = FactoredModel({"a": 4, "c": 4}, 7.0, (TablePart(("a", "c"), weights),))
    for got, candidate in zip(
        CompiledCandidates(candidates).answers(model), candidates, strict=True
    ):
        assert got == pytest.approx(model.answer(candidate), abs=1e-12)


def test_a_model_answers_like_its_table() -> None:
    rng = np.random.default_rng(0)
    model: Model = replay(
        FactoredModel.uniform(DOMAIN, 50.0).merge(("c", "a")),
        [PullTarget(marginal(DOMAIN, ("a", "c")), rng.gamma(1, 3, 20), 0.1)],
    )
    full = model.marginal(("b", "a", "c"))
    assert full.sum() == pytest.approx(50)
    assert model.marginal(("c", "b")) == pytest.approx(full.sum(axis=1).T)
    candidates = [*ranges(9), *cuboids()]
    handle = FakeHandle.of_histogram(DOMAIN, full.transpose(1, 0, 2), 1)
    for got, candidate in zip(
        CompiledCandidates(candidates).answers(model), candidates, strict=True
    ):
        assert got == pytest.approx(handle.true(candidate))
    kept: dict[str, NDArray[np.float64]] = {}

    def keep(array: NDArray[np.float64]) -> str:
        kept[str(len(kept))] = array
        return str(len(kept) - 1)

    again = FactoredModel.decode(model.encode(keep), kept)
    assert np.array_equal(again.marginal(("b", "a", "c")), full)
    drawn = model.rows(20_000, rng)
    found = np.bincount(np.ravel_multi_index((drawn["a"], drawn["c"]), (4, 5)), minlength=20)
    assert np.abs(found / 400 - model.marginal(("a", "c")).ravel()).max() < 1 / 400 + 1e-9
    assert model.describe()["parts"] == [["a", "c"]]


def test_public_facts_of_candidates() -> None:
    whole, parity = marginal(DOMAIN, ("c", "a")), parities({"x": 2, "y": 2})[-1]
    assert (attributes_of(whole), rows(whole), norm(whole, "laplace")) == (("a", "c"), 20, 1)
    assert spans(parity) == (-1, 1)
    prefix: Candidate = (Product({"a": Prefix(4)}),)
    assert (norm(prefix, "laplace"), norm(prefix, "gaussian"), spans(prefix)) == (4, 4, (0, 1))


def neighbours() -> Sequence[tuple[int, ...]]:
    return [(1, 0, 2, 0), (1, 1, 2, 0), (0, 0, 0, 1), (0, 0, 0, 0)]


def test_scores_move_by_at_most_one() -> None:
    domain = {"x": 2, "y": 2}
    candidates = [*parities(domain), *cuboids(domain)]
    rng = np.random.default_rng(1)
    for counts in neighbours():
        answers = [np.rint(rng.normal(1, 2, rows(c))) for c in candidates]
        base = FakeHandle.of_histogram(domain, np.array(counts), 1)
        for cell in range(4):
            more = np.array(counts) + (np.arange(4) == cell)
            next_to = FakeHandle.of_histogram(domain, more, 1)
            for candidate, answer in zip(candidates, answers, strict=True):
                before = np.abs(base.true(candidate) - answer).sum()
                after = np.abs(next_to.true(candidate) - answer).sum()
                assert abs(after - before) <= norm(candidate, "laplace") == 1


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("domain", "counts", "budget"),
    [
        ({"a": 3, "b": 2}, np.zeros(6), 1),
        ({"a": 3, "b": 2}, np.eye(1, 6)[0], 1),
        ({"a": 1, "b": 4}, np.arange(4), 1),
        ({"a": 3, "b": 2}, np.arange(6), "0.000001"),
    ],
    ids=["empty", "one row", "one value", "tiny epsilon"],
)
def test_edges_stay_finite(
    domain: dict[str, int], counts: NDArray[np.float64], budget: int | str, noise: Noise
) -> None:
    for candidates in (cuboids(domain), cuboids(domain)[:1]):
        rng = np.random.default_rng(4)
        handle = FakeHandle.of_histogram(domain, counts, budget, noise=noise, rng=rng)
        run = mwem(handle, candidates)
        assert handle.remaining() == 0
        assert run.model.total >= 1
        assert all(np.isfinite(run.model.answer(c)).all() for c in candidates)


def test_what_cannot_run_is_refused_before_spending() -> None:
    handle = FakeHandle.of_histogram(DOMAIN, table(), 1)
    for candidates, settings in (
        ([], Settings()),
        (cuboids(), Settings(rounds=0)),
        (cuboids()[3:], Settings(cap=5)),
        (ranges(3), Settings(cap=30, average=True)),
    ):
        with pytest.raises(ProgrammingError):
            mwem(handle, candidates, settings)
    assert handle.spent == []
    with pytest.raises(BudgetExceeded):
        handle.total(Fraction(2))


def test_the_cap_removes_candidates_before_selection() -> None:
    handle = FakeHandle.of_histogram(DOMAIN, table(), 1, rng=np.random.default_rng(0))
    run = mwem(handle, cuboids(), Settings(cap=12))
    assert max(part.weights.size for part in run.model.parts) <= 12
    assert handle.remaining() == 0


def test_an_interrupt_leaves_a_usable_model() -> None:
    handle = FakeHandle.of_histogram(DOMAIN, table(), 1, rng=np.random.default_rng(0))
    seen: list[float] = []

    def stop(part: float, _: str) -> None:
        seen.append(part)
        if len(seen) == 2:
            raise KeyboardInterrupt

    run = mwem(handle, cuboids(), progress=stop)
    assert run.interrupted
    assert len(run.rounds) == 2
    assert 0 < seen[0] < seen[1] < 1
    assert np.isfinite(run.model.marginal(("a", "b", "c"))).all()


def test_default_rounds_follow_the_bound() -> None:
    assert default_rounds("laplace", Fraction(1), 1e4, [100], 1) == 1
    assert default_rounds("laplace", Fraction(1), 1e9, [100], 7) == 7
    assert default_rounds("laplace", Fraction(1, 10**6), 1.0, [100], 7) == 1
    assert default_rounds("gaussian", Fraction(1, 10**9), 1e3, [100], 50) == 8
    assert default_rounds("gaussian", Fraction(1), 1e9, [100], 5000) == 128


def test_schedules_end_with_all_that_is_left() -> None:
    quiet = Outcome(0.0, 0.0, 1.0, 1)
    for noise in ("laplace", "gaussian"):
        for schedule in (
            DoublingSchedule(Fraction(1), noise),
            AnnealingSchedule(Fraction(1), noise, Fraction(9, 10)),
        ):
            left, costs = Fraction(1), []
            while (spend := schedule.next(left)) is not None:
                left -= spend.all
                costs.append(spend.all)
                schedule.after(quiet)
            assert left == 0
            assert costs[1] > costs[0]


def test_default_rounds_are_never_fewer_than_tables() -> None:
    """Tables that share nothing are all measured: none stays as it was in the uniform table."""
    rng = np.random.default_rng(62)
    domain = {f"q{i}": 2 for i in range(62)}
    columns = {name: (rng.random(100_000) < (k + 1) / 63).astype(int)
               for k, name in enumerate(domain)}  # fmt: skip
    tables = [marginal(domain, (name,)) for name in domain]
    handle = FakeHandle(domain, columns, Fraction(118, 10_000), noise="gaussian", rng=rng)
    run = mwem(handle, tables, Settings(hint=1e5))
    errors = [np.abs(run.model.answer(t) - handle.true(t)).mean() for t in tables]
    assert np.mean(errors) < 45  # 29.7 expected: sigma 52.6, by two cells of a known sum
    assert max(errors) < 52.6 * 6
    assert len(run.rounds) == len(tables)
    assert handle.remaining() == 0


def test_tables_that_share_something_are_chosen_as_before() -> None:
    domain = dict.fromkeys("abcde", 3)
    pairs = [marginal(domain, names) for names in combinations("abcde", 2)]
    ones = [marginal(domain, (name,)) for name in "abcde"]
    assert first_tables(pairs) == first_tables([*ones, *pairs]) == first_tables(ones[:1]) == ()
    assert first_tables(ones) == (0, 1, 2, 3, 4)
    many = {f"q{i}": 2 for i in range(20)}
    listed = [marginal(many, names) for names in zip(list(many)[:-1], list(many)[1:], strict=True)]
    assert first_tables(listed) == tuple(range(0, 19, 2))
    assert first_tables(listed, cap=3) == ()
