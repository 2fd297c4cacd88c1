"""RAP: fits, adaptive rounds, budgets and edge cases."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense
from dpsql.errors import ProgrammingError
from dpsql.learn.candidates import rows
from dpsql.learn.predicates import CellClasses
from dpsql.learn.rap import fit_queries, random_mixture, run_rap, single_rows
from dpsql.learn.targets import Targets
from dpsql.pgm.linear import apply, whole_marginal
from dpsql.pgm.measurements import Measured, Query
from dpsql.workload.term import at_least
from dpsql.workload.workload import Product
from tests.learn.fake import FakeHandle

DOMAIN = {"a": 3, "b": 4, "c": 2}
COUNTS = np.random.default_rng(0).multinomial(2000, np.random.default_rng(1).dirichlet([0.4] * 24))


def handle(budget: str = "1", rng: np.random.Generator | None = None) -> FakeHandle:
    return FakeHandle.of_histogram(DOMAIN, COUNTS, budget, noise="gaussian", rng=rng)


def cells() -> list[Query]:
    found: list[Query] = []
    for names in ("ab", "bc", "ac"):
        for i in range(DOMAIN[names[0]]):
            for j in range(DOMAIN[names[1]]):
                rows = {
                    names[0]: Dense(np.eye(DOMAIN[names[0]], dtype=np.int64)[[i]]),
                    names[1]: Dense(np.eye(DOMAIN[names[1]], dtype=np.int64)[[j]]),
                }
                found.append((Product(rows),))
    found.append(at_least({"a": np.array([1, 0, 0]), "b": np.array([1, 1, 0, 0])}, 1))
    return found


def worst(model: object, h: FakeHandle) -> float:
    answer = model.answer  # type: ignore[attr-defined]
    pairs = [whole_marginal(DOMAIN, names) for names in ("ab", "bc", "ac")]
    return max(float(np.abs(answer(c) - h.true(c)).max()) for c in pairs)


def boxes() -> list[Query]:
    rows = {name: Dense(row[np.newaxis]) for name, row in (("a", A), ("b", B), ("c", C))}
    pairs: list[Query] = [(Product({x: rows[x], y: rows[y]}),) for x, y in ("ab", "bc", "ac")]
    always = Dense(np.ones((1, 5), dtype=np.int64))
    last: Query = (Product({"b": rows["b"], "d": always}),)
    return [*pairs, at_least({"a": A, "b": 1 - B}, 2), last]


WIDE = {"a": 9, "b": 6, "c": 2, "d": 5}
A, B, C = np.array([0, 1] * 4 + [0]), np.array([0, 0, 1, 1, 1, 0]), np.array([0, 1])


def test_cells_that_no_query_tells_apart_are_fitted_as_one() -> None:
    rng = np.random.default_rng(15)
    start = random_mixture(WIDE, [whole_marginal(WIDE, "abcd")], 900, 30, rng)
    classes = CellClasses.read(WIDE, boxes())
    assert classes.domain == {"a": 2, "b": 2, "c": 2, "d": 1}
    asked = [Measured.of(q, rng.uniform(0, 900, 1), 5.0, "gaussian") for q in boxes()]
    found = fit_queries(WIDE, asked, 900, warm=start, steps=40, rate=0.1, rng=rng)
    values = [each.values for each in asked]
    again = Targets.read(WIDE, boxes(), values, [5.0] * 5, 900)
    assert found.loss == pytest.approx(again.value_and_gradient(found.table)[0], rel=1e-3)
    assert found.loss < again.value_and_gradient(start.table)[0] / 2
    assert classes.spread(classes.masses(found.table), start.table) == pytest.approx(found.table)
    even = fit_queries(WIDE, asked, 900, components=30, steps=40, rate=0.1, rng=rng).table
    assert classes.spread(classes.masses(even), np.ones_like(even)) == pytest.approx(even)


def test_classes_of_columns_that_share_their_factors() -> None:
    """Operators are interned, so columns of equally many values hold the very same ones."""
    rng = np.random.default_rng(18)
    domain = {"a": 6, "b": 6, "c": 6}
    for _ in range(200):
        pool = [Dense(row[np.newaxis]) for row in rng.integers(0, 2, (3, 6))]
        queries: list[Query] = [
            (Product({name: pool[rng.integers(3)] for name in rng.permutation(list(domain))[:2]}),)
            for _ in range(3)
        ]
        classes = CellClasses.read(domain, queries)
        start = random_mixture(domain, [whole_marginal(domain, "abc")], 1, 4, rng)
        zeros = [np.zeros(1)] * 3
        fine = Targets.read(domain, queries, zeros, [1.0] * 3, 1.0)
        merged = Targets.read(classes.domain, classes.merged(queries), zeros, [1.0] * 3, 1.0)
        assert merged.shares(classes.masses(start.table)) == pytest.approx(fine.shares(start.table))


def test_classes_answer_as_cells_do() -> None:
    rng = np.random.default_rng(16)
    swapped: list[Query] = [
        (Product({"a": Dense(np.eye(9)[::-1][:1]), "c": Dense(np.eye(2)[[1]])}),)
    ]
    for queries in (boxes(), swapped, [*boxes(), whole_marginal(WIDE, "bd")]):
        classes = CellClasses.read(WIDE, queries)
        start, like = (
            random_mixture(WIDE, [whole_marginal(WIDE, "abcd")], 1, 8, rng) for _ in "ab"
        )
        zeros = [np.zeros(rows(q)) for q in queries]
        fine = Targets.read(WIDE, queries, zeros, [1.0] * len(zeros), 1.0)
        coarse = Targets.read(
            classes.domain, classes.merged(queries), zeros, [1.0] * len(zeros), 1.0
        )
        masses = classes.masses(start.table)
        assert coarse.shares(masses) == pytest.approx(fine.shares(start.table))
        assert classes.masses(classes.spread(masses, like.table)) == pytest.approx(masses)
        assert classes.spread(masses, start.table) == pytest.approx(start.table)


def test_converges_without_noise_and_spends_everything() -> None:
    h = handle()
    run = run_rap(
        h, cells(), count=6, rounds=5, components=100, steps=300, rng=np.random.default_rng(3)
    )
    assert h.remaining() == 0
    # the last round needs no choice: what is left is measured
    assert [what for what, _ in h.spent] == ["total", *["select", "measure"] * 4, "measure"]
    assert len(set(run.chosen)) == len(run.chosen) == len(run.measurements) == 27
    assert worst(run.model, h) < 0.01 * 2000
    assert not run.interrupted


def test_projection_mode_measures_once() -> None:
    h = handle()
    marginals: list[Query] = [whole_marginal(DOMAIN, s) for s in ("ab", "bc", "ac")]
    run = run_rap(h, marginals, rounds=1, components=100, steps=300, rng=np.random.default_rng(4))
    assert [what for what, _ in h.spent] == ["total", "measure"]
    assert h.remaining() == 0
    assert worst(run.model, h) < 0.01 * 2000


def test_a_public_total_is_free_and_one_query_is_measured_directly() -> None:
    h = handle("1/2")
    run = run_rap(
        h,
        [whole_marginal(DOMAIN, "b")],
        total=2000,
        steps=50,
        components=20,
        rng=np.random.default_rng(5),
    )
    assert h.spent == [("measure", Fraction(1, 2))]
    assert run.model.total == 2000


def test_an_interrupt_returns_the_last_model() -> None:
    class Impatient(FakeHandle):
        def measure(self, candidates, amount):  # type: ignore[no-untyped-def]
            if len(self.spent) > 4:
                raise KeyboardInterrupt
            return super().measure(candidates, amount)

    h = Impatient.of_histogram(DOMAIN, COUNTS, "1", noise="gaussian")
    run = run_rap(
        h, cells(), count=4, rounds=5, components=30, steps=20, rng=np.random.default_rng(6)
    )
    assert run.interrupted
    assert len(run.measurements) == 8
    assert np.isfinite(run.model.marginal(("a", "c"))).all()


@pytest.mark.parametrize("settings", [{"count": 0}, {"rounds": 0}, {"components": 0}])
def test_bad_settings_spend_nothing(settings: dict[str, int]) -> None:
    h = handle()
    with pytest.raises(ProgrammingError):
        run_rap(h, cells(), rng=np.random.default_rng(7), **settings)  # type: ignore[arg-type]
    with pytest.raises(ProgrammingError):
        run_rap(h, [], rng=np.random.default_rng(7))
    assert h.spent == []


def test_tiny_budgets_and_empty_tables_give_numbers() -> None:
    empty = FakeHandle.of_histogram(
        DOMAIN, np.zeros(24), Fraction(1, 10**6), rng=np.random.default_rng(8)
    )
    run = run_rap(empty, cells(), components=10, steps=10, rng=np.random.default_rng(9))
    assert np.isfinite(run.model.marginal(("a", "b", "c"))).all()
    assert run.model.total >= 1


def test_the_best_iterate_is_returned() -> None:
    rng = np.random.default_rng(10)
    x = rng.dirichlet(np.ones(24)).reshape(3, 4, 2) * 500
    query = whole_marginal(DOMAIN, "abc")
    values = apply(query, x, tuple(DOMAIN))
    losses: list[float] = []
    asked = [Measured.of(query, values, 3.0, "gaussian")]
    model = fit_queries(
        DOMAIN,
        asked,
        500.0,
        components=40,
        steps=200,
        rng=rng,
        progress=lambda _, loss: losses.append(loss),
    )
    assert model.loss == pytest.approx(min(losses))
    again = Targets.read(DOMAIN, [query], [values], [3.0], 500.0)
    assert model.loss == pytest.approx(again.value_and_gradient(model.table)[0], rel=1e-3)


def test_what_is_much_is_chosen_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    marginals: list[Query] = [whole_marginal(DOMAIN, s) for s in ("ab", "bc", "ac")]
    marginals.append(at_least({"a": np.array([1, 0, 0]), "b": np.array([1, 1, 0, 0])}, 1))
    h = handle()
    run_rap(h, marginals, components=50, steps=100, rng=np.random.default_rng(12))
    assert [what for what, _ in h.spent] == ["total", "measure"]
    monkeypatch.setattr("dpsql.learn.rap.MOST_FITTED", 10)
    monkeypatch.setattr("dpsql.learn.rap.default_rounds", lambda *_: (5, 4))
    h = handle()
    run = run_rap(h, marginals, components=100, steps=300, rng=np.random.default_rng(13))
    assert [what for what, _ in h.spent] == ["total"] + ["select", "measure"] * 4
    assert h.remaining() == 0
    assert [m.values.size for m in run.measurements] == [1] * 20
    split = single_rows(marginals)
    assert len(split) == 12 + 8 + 6 + 1
    flat = np.concatenate([run.model.answer(m) for m in marginals[:3]])  # type: ignore[arg-type]
    each = [run.model.answer(s)[0] for s in split[:26]]  # type: ignore[arg-type]
    assert flat == pytest.approx(each)
    assert worst(run.model, h) < 0.02 * 2000


@pytest.mark.parametrize("seed", range(3))
def test_many_conditions_are_known_better_than_by_their_noise(seed: int) -> None:
    """As many noisy answers as there are conditions: what they have in common is more exact."""
    rng = np.random.default_rng(seed)
    sizes = {f"x{i}": int(size) for i, size in enumerate(rng.integers(2, 9, 8))}
    shared = rng.random(5000)
    columns = {
        name: np.minimum(
            (size * (0.6 * shared + 0.4 * rng.random(5000)) ** 2).astype(int), size - 1
        )
        for name, size in sizes.items()
    }
    asked: list[Query] = []
    for _ in range(150):
        names = rng.choice(list(sizes), 3, replace=False)
        lists = {str(x): rng.integers(0, 2, (1, sizes[x])) for x in names}
        asked.append((Product({x: Dense(row) for x, row in lists.items()}),))
    h = FakeHandle(sizes, columns, Fraction(1, 2000), noise="gaussian", rng=rng)
    run = run_rap(h, asked, total=5000, rng=rng, steps=200)
    true = np.concatenate([h.true(query) for query in asked])
    noisy = np.concatenate([each.values for each in run.measurements])
    told = np.concatenate([run.model.answer(query) for query in asked])  # type: ignore[arg-type]
    assert np.square(told - true).mean() < 0.8 * np.square(noisy - true).mean()
