"""The handle on bins with public values: choices of thresholds, their sensitivities and costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import BudgetExceeded, InternalError, LedgerError
from dpsql.pgm.measurements import SumHandle
from dpsql.privacy.doors import look
from dpsql.privacy.doors.look import BinSumHandle, open_sums
from dpsql.strategy.noise_law import Noise
from tests.audit.lower_bound import epsilon_lower_bound
from tests.privacy.looks import World

VALUES = [0, 1, 3, 3, 8, 20]
COUNTS = [4, 9, 0, 2, 5, 1]
LEVELS = [0, 2, 3, 8, 9, 20, 50]
DOMAIN = {"v": len(VALUES)}
SURE = Fraction(10**4)
NOISES: list[Noise] = ["laplace", "gaussian"]


def above(counts: Any, upto: int | None = None) -> list[int]:
    pairs = list(zip(VALUES, counts, strict=True))[:upto]
    return [sum(int(n) for v, n in pairs if v > level) for level in LEVELS]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("upto", [None, 0, 4, 6])
def test_without_noise_to_speak_of(noise: Noise, upto: int | None) -> None:
    amount = SURE if noise == "laplace" else SURE**2
    world = World(DOMAIN, COUNTS)
    handle: SumHandle = world.sums(VALUES, 10 * amount, noise)
    assert handle.values.tolist() == VALUES
    true, n = above(COUNTS, upto), sum(COUNTS[:upto])
    for count in (0, 3, 20):
        expected = next((i for i, a in enumerate(true) if a <= count), None)
        assert handle.first_below(LEVELS, count, amount, upto) == expected
    for ratio in (Fraction(1, 3), Fraction(19, 20)):
        expected = next((i for i, a in enumerate(true) if n - a >= ratio * n), None)
        assert handle.first_covering(LEVELS, ratio, amount, upto) == expected
    least = next((i for i, a in enumerate(true) if a <= i), len(true))
    assert handle.recursive(LEVELS, amount, upto) == min(least, len(true) - 1)
    best = min(abs(a - 6) for a in true)
    assert abs(true[handle.quantile(LEVELS, 6, amount, upto)] - 6) == best
    rows = np.array([[1, 1, 1, 1, 1, 1], VALUES])
    found = handle.measure(rows, amount)
    assert found.values == pytest.approx(rows @ COUNTS, abs=1)
    assert world.cells.asked == [("v",)]


def neighbours(counts: list[int], c: int) -> list[np.ndarray[Any, Any]]:
    found = []
    for places in itertools.combinations_with_replacement(range(len(counts)), c):
        more = np.array(counts)
        np.add.at(more, list(places), 1)
        found.append(more)
    return found


@pytest.mark.parametrize("c", [1, 2])
def test_scores_move_as_far_as_is_said(c: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(look, "above_threshold", lambda *given: seen.append(given[1:]))

    def exponential(*given: Any) -> int:
        seen.append((given[1], 0, given[2], given[3] // 2, given[3] // 2))
        return 0

    monkeypatch.setattr(look, "exponential_mechanism", exponential)
    asks: list[Callable[[BinSumHandle], object]] = [
        lambda h: h.first_below(LEVELS, 5, Fraction(1)),
        lambda h: h.first_covering(LEVELS, Fraction(2, 7), Fraction(1)),
        lambda h: h.first_covering(LEVELS, Fraction(1), Fraction(1)),
        lambda h: h.first_covering(LEVELS, Fraction(0), Fraction(1), 4),
        lambda h: h.quantile(LEVELS, 5, Fraction(1)),
        lambda h: h.quantile(LEVELS[1:], 5, Fraction(1), falling=3),
    ]
    for ask in asks:
        seen.clear()
        for counts in [np.array(COUNTS), *neighbours(COUNTS, c)]:
            ask(World(DOMAIN, counts).sums(VALUES, 1, c=c))
        (first, threshold, epsilon, down, up), *others = seen
        assert (threshold, epsilon) == (0, 1)
        moves = [b - a for other in others for a, b in zip(first, other[0], strict=True)]
        assert -down <= min(moves) <= max(moves) <= up
        assert {other[1:] for other in others} == {(0, 1, down, up)}


@pytest.mark.parametrize("c", [1, 3])
def test_the_recursive_index_moves_by_the_rows_of_a_unit(
    c: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales = []

    def silent(_: object, scale: Fraction, size: int) -> list[int]:
        scales.append(scale)
        return [0] * size

    monkeypatch.setattr(look, "discrete_laplace", silent)
    rng = np.random.default_rng(2)
    for _ in range(20):
        counts = rng.integers(0, 3, 6).tolist()
        least = World(DOMAIN, counts).sums(VALUES, 1, c=c).recursive(LEVELS, Fraction(1))
        for more in neighbours(counts, c):
            moved = World(DOMAIN, more).sums(VALUES, 1, c=c).recursive(LEVELS, Fraction(1))
            assert 0 <= moved - least <= c
    assert set(scales) == {Fraction(c)}


def test_the_epsilon_of_a_choice_under_zcdp(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Fraction] = []
    monkeypatch.setattr(look, "above_threshold", lambda *given: seen.append(given[3]))

    def exponential(*given: Any) -> int:
        seen.append(given[2])
        return 0

    monkeypatch.setattr(look, "exponential_mechanism", exponential)
    rho = Fraction(1, 10)
    handle = World(DOMAIN, COUNTS).sums(VALUES, 1, "gaussian")
    handle.first_below(LEVELS, 5, rho)
    handle.first_covering(LEVELS, Fraction(1, 2), rho)
    handle.quantile(LEVELS, 5, rho)
    for epsilon, rate in zip(seen, (2, 2, 8), strict=True):
        assert rho * Fraction(999_999, 10**6) < epsilon**2 / rate <= rho
    assert handle.remaining() == 1 - 3 * rho


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("c", [1, 3])
def test_chances_of_a_quantile_fall_with_the_threshold(
    c: int, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(look, "exponential_mechanism", lambda *given: seen.append(given[1:]))
    amount, none = Fraction(1, 1000), World(DOMAIN, [0] * len(COUNTS))
    none.sums(VALUES, 1, noise, c=c).quantile(LEVELS[1:], 5, amount, falling=3)
    scores, epsilon, spread = seen[0]
    chances = [float(epsilon * (each - scores[0]) / spread) for each in scores]
    expected = [-3 * np.log(each / LEVELS[1]) for each in LEVELS[1:]]
    assert chances == pytest.approx(expected, abs=0.1)


def test_measured_noise_covers_the_heaviest_column() -> None:
    rows = np.array([VALUES, [1] * 6])
    handle = World(DOMAIN, COUNTS).sums(VALUES, 2, c=3)
    assert handle.measure(rows, Fraction(1)).stddev == pytest.approx(2**0.5 * 3 * 21)
    handle = World(DOMAIN, COUNTS).sums(VALUES, 2, "gaussian", c=3)
    assert handle.measure(rows, Fraction(1)).stddev == pytest.approx((9 * 401 / 2) ** 0.5)


def test_refusals_above_what_is_left() -> None:
    world = World(DOMAIN, COUNTS)
    handle = world.sums(VALUES, 1)
    half, more = Fraction(1, 2), Fraction(2, 3)
    handle.first_below(LEVELS, 5, half)
    before = len(world.cells.asked)
    asks: list[Callable[[], object]] = [
        lambda: handle.first_below(LEVELS, 5, more),
        lambda: handle.first_covering(LEVELS, half, more),
        lambda: handle.recursive(LEVELS, more),
        lambda: handle.quantile(LEVELS, 5, more),
        lambda: handle.measure(np.eye(6, dtype=int), more),
    ]
    for ask in asks:
        with pytest.raises(BudgetExceeded):
            ask()
    assert handle.remaining() == half
    handle.recursive(LEVELS, half)
    assert [what for what, _ in handle.spent] == ["first_below", "recursive"]
    assert len(world.cells.asked) == before


ONE = Fraction(1)
BAD: list[Callable[[BinSumHandle], object]] = [
    lambda h: h.first_below([], 5, ONE),
    lambda h: h.first_below([0.5], 5, ONE),  # type: ignore[list-item]
    lambda h: h.first_below(LEVELS, 0.5, ONE),  # type: ignore[arg-type]
    lambda h: h.first_below(LEVELS, 2**70, ONE),
    lambda h: h.first_below(LEVELS, 5, ONE, 7),
    lambda h: h.first_below(LEVELS, 5, ONE, -1),
    lambda h: h.first_covering(LEVELS, Fraction(3, 2), ONE),
    lambda h: h.first_covering(LEVELS, 0.5, ONE),  # type: ignore[arg-type]
    lambda h: h.recursive([3, 2], ONE),
    lambda h: h.quantile(LEVELS, True, ONE),
    lambda h: h.quantile(LEVELS, 5, ONE, falling=1),
    lambda h: h.quantile(LEVELS[1:], 5, ONE, falling=0.5),  # type: ignore[arg-type]
    lambda h: h.measure(np.eye(6), ONE),  # type: ignore[arg-type]
    lambda h: h.measure(np.eye(5, dtype=int), ONE),
    lambda h: h.measure(np.ones(6, dtype=int), ONE),
    lambda h: h.measure(np.eye(6, dtype=int), Fraction(0)),
]


@pytest.mark.parametrize("ask", BAD)
def test_looks_that_make_no_sense_are_free_and_see_nothing(
    ask: Callable[[BinSumHandle], object],
) -> None:
    world = World(DOMAIN, COUNTS)
    handle = world.sums(VALUES, 1)
    with pytest.raises(InternalError, match="E_INTERNAL"):
        ask(handle)
    assert handle.remaining() == 1
    assert world.cells.asked == []


@pytest.mark.parametrize("values", [[], [0, 1], [5, 4, 3, 2, 1, 0], [-1, 0, 1, 2, 3, 4]])
def test_values_belong_to_the_bins(values: list[int]) -> None:
    with pytest.raises(InternalError, match="E_INTERNAL"):
        World(DOMAIN, COUNTS).sums(values, 1)
    with pytest.raises(InternalError, match="E_INTERNAL"):
        World({"v": 2, "w": 3}).sums(VALUES, 1)


def test_a_receipt_is_for_these_values() -> None:
    world = World(DOMAIN, COUNTS)
    run = replace(world.run(ONE), values=tuple(VALUES))
    receipt = world.receipt(run)
    with pytest.raises(LedgerError, match="E_RECEIPT"):
        open_sums(replace(run, values=(0, 1, 3, 3, 8, 21)), receipt, world)


def audit(c: int, runs: int = 1200) -> float:
    rows = []
    for counts in (COUNTS, [*COUNTS[:5], COUNTS[5] + c]):
        world = World(DOMAIN, counts)
        found = []
        for _ in range(runs):
            handle = world.sums(VALUES, 2, c=c)
            chosen = handle.first_below(LEVELS, 1, ONE)
            total = handle.measure(np.ones((1, 6), dtype=int), ONE).values
            found.append([7 if chosen is None else chosen, *total])
        rows.append(np.array(found, dtype=float))
    return epsilon_lower_bound(rows[0], rows[1])


@pytest.mark.slow
def test_epsilon_of_a_threshold_and_a_count_from_below(monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit(2) <= 2
    monkeypatch.setattr(look, "joint_norm", lambda *_: Fraction(1, 6))
    assert audit(2) > 2
