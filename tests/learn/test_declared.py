"""What is declared of a run: in the text that it is paid for by, and in what it does."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense
from dpsql.errors import DataError, ProgrammingError
from dpsql.learn import fixed, rap, schedule
from dpsql.learn.task import Task, make_task, run_task
from dpsql.pgm.linear import whole_marginal
from dpsql.pgm.measurements import Candidate
from dpsql.settings.rounds import AUTO, Rounds
from dpsql.settings.table import SETTINGS
from dpsql.workload.workload import Product
from tests.learn.fake import FakeHandle

DOMAIN = {"a": 3, "b": 4, "c": 2}
PAIRS = [whole_marginal(DOMAIN, names) for names in (("a", "b"), ("b", "c"), ("a",))]
ONE: list[Candidate] = [(Product({"a": Dense(np.array([[1, 0, 1]]))}),)]


def task(model: str, queries: list[Candidate] = PAIRS, **more: Any) -> Task:
    return make_task(DOMAIN, queries, "laplace", Fraction(1), model=model, hint=100.0, **more)


@pytest.mark.parametrize(
    ("model", "module", "name"),
    [("rap", rap, "COMPONENTS"), ("rap", rap, "STEPS"), ("mwem", schedule, "START_ROUNDS")],
)
def test_constants_are_paid_for(
    monkeypatch: pytest.MonkeyPatch, model: str, module: Any, name: str
) -> None:
    before, again = task(model).settings(), task(model).settings()
    monkeypatch.setattr(module, name, 7)
    assert before == again != task(model).settings()


def test_rounds_and_weights_are_paid_for() -> None:
    wanted = [AUTO, Rounds(2), Rounds(3), Rounds("annealing")]
    assert len({task("mwem", rounds=each).settings() for each in wanted}) == 4
    assert task("rap", rounds=Rounds(2, 3)).settings() != task("rap", rounds=Rounds(2)).settings()
    assert task("marginals").settings() != task("marginals", metric="max").settings()


def test_the_largest_error_makes_small_tables_count_more() -> None:
    plain, largest = task("pgm").weights, task("pgm", metric="max").weights
    assert set(plain.values()) == {Fraction(1)}
    sizes = {("a", "b"): 12, ("b", "c"): 8, ("a",): 3}
    power = task("pgm", metric="max").choice.power
    assert power > 0
    assert {c: float(w) for c, w in largest.items()} == {
        c: pytest.approx(n**-power) for c, n in sizes.items()
    }


@pytest.mark.parametrize("model", ["mwem", "rap", "marginals"])
@pytest.mark.parametrize("queries", [ONE, PAIRS])
def test_more_rounds_than_candidates_are_cut(model: str, queries: list[Candidate]) -> None:
    rounds = Rounds(10_000, 10_000) if model == "rap" else Rounds(10_000)
    found = task(model, queries, rounds=rounds)
    assert isinstance(found.rounds.count, int)
    assert found.rounds.count <= found.choices <= 23
    handle = FakeHandle.of_histogram(DOMAIN, np.full(24, 50), "1", noise="laplace")
    learned = run_task(found, handle)
    assert handle.remaining() == 0
    assert np.isfinite(learned.model.answer(queries[0])).all()


@pytest.mark.parametrize(
    "text", ["0", "-1", "1.5", "1e3", "10001", "1" * 40, "", "many", "٣", "1 "]
)
@pytest.mark.parametrize("name", ["rounds", "per_round"])
def test_what_is_no_number_of_rounds(name: str, text: str) -> None:
    with pytest.raises(DataError) as caught:
        SETTINGS[name].read(text)
    assert caught.value.code == "E_SETTING"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("mechanism", "rounds"),
    [
        ("matrix", Rounds(3)),
        ("matrix+projection", Rounds("auto", 3)),
        ("mwem", Rounds(3, 2)),
        ("marginals", Rounds("doubling")),
        ("marginals", Rounds("auto", 2)),
        ("rap", Rounds("annealing")),
        ("rap", Rounds(1, 2)),
    ],
)
def test_settings_that_a_mechanism_does_not_have(mechanism: str, rounds: Rounds) -> None:
    with pytest.raises(ProgrammingError) as caught:
        rounds.check(mechanism)
    assert caught.value.code == "E_SETTING"
    assert caught.value.hint
    AUTO.check(mechanism)


def test_blocks_of_a_fixed_strategy_share_noise_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = {"a": 85, "b": 100, "c": 16}
    queries = [whole_marginal(domain, names) for names in (("a", "b"), ("b", "c"), ("a", "c"))]

    def total_stddev(steps: int) -> float:
        monkeypatch.setattr(fixed, "STEPS", steps)
        nobody = {name: np.zeros(0, dtype=np.int64) for name in domain}
        handle = FakeHandle(domain, nobody, "0.01", noise="gaussian")
        found = fixed.measure_strategy(handle, queries, 0.375)
        (whole,) = (m for m in found if m.values.size == 1)
        (operator,) = whole.candidate[0].factors.values()
        return whole.stddev / float(operator.dense().max())

    assert total_stddev(fixed.STEPS) < 1.05 * total_stddev(1 << 30)
