"""Selections follow their laws, and their laws keep their promise on every neighbour."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsql.errors import InternalError
from dpsql.privacy.budget.accounting import Policy, bounded_range_cost, laplace_cost
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.selection import (
    above_threshold,
    exponential_mechanism,
    svt_scales,
    top_choices,
)
from tests.privacy.judge import agrees

pytestmark = pytest.mark.slow

Law = NDArray[np.float64]
SCORES = [7, 3, 6, 7, 0]
ONE = Fraction(1)
RUNS = 5000


def exponential_law(scores: Sequence[float], eta: float) -> Law:
    weights = np.exp(eta * (np.array(scores) - max(scores)))
    return np.asarray(weights / weights.sum())


def laplace_mass(z: NDArray[np.int64], scale: float) -> Law:
    return np.asarray(np.exp(-np.abs(z) / scale) * math.tanh(0.5 / scale))


def tail(z: NDArray[np.int64], scale: float) -> Law:
    """Return P(Z >= z): q^z / (1 + q) above 0, and by symmetry below."""
    q = math.exp(-1 / scale)
    high = q ** np.maximum(z, 1) / (1 + q)
    low = 1 - q ** np.maximum(1 - z, 1) / (1 + q)
    return np.asarray(np.where(z > 0, high, low))


def threshold_law(scores: list[int], level: int, scales: tuple[float, float]) -> Law:
    """Return the chances of each index, and of none as the last."""
    grid = np.arange(level - int(40 * scales[0]), level + int(40 * scales[0]))
    left = laplace_mass(grid - level, scales[0])
    law = []
    for score in scores:
        reach = tail(grid - score, scales[1])
        law.append((left * reach).sum())
        left = left * (1 - reach)
    return np.array([*law, left.sum()])


def follows(draw: Callable[[], int | None], law: Law) -> bool:
    """Say whether a selection follows a law; None counts as the last place."""

    def p_value() -> float:
        drawn = [draw() for _ in range(RUNS)]
        seen = np.bincount([law.size - 1 if i is None else i for i in drawn], minlength=law.size)
        likely = law * RUNS >= 5
        rest = [seen[~likely].sum()], [law[~likely].sum()]
        o = np.append(seen[likely], rest[0]).astype(float)
        e = np.append(law[likely], rest[1]) * RUNS
        o, e = (o[:-1], e[:-1]) if e[-1] < 1e-9 else (o, e)
        return float(stats.chisquare(o, e * o.sum() / e.sum()).pvalue)

    return agrees(p_value)


@pytest.mark.parametrize(("epsilon", "spread"), [(ONE, 1), (Fraction(7, 3), 3), (Fraction(5), 1)])
def test_exponential_mechanism(epsilon: Fraction, spread: int) -> None:
    law = exponential_law(SCORES, float(epsilon) / spread)
    assert follows(lambda: exponential_mechanism(Bits(), SCORES, epsilon, spread), law)


@pytest.mark.parametrize(
    ("scores", "eta"),
    [([4, 6, 4, 6, 0, 4], Fraction(3, 4)), ([0, 1, 300, 0, 10**25, 1], ONE), ([5] * 6, ONE)],
)
def test_choices_without_replacement(scores: list[int], eta: Fraction) -> None:
    """Equal scores, best ones that leave all others far behind, and scores that are too wide."""
    orders = list(itertools.permutations(range(len(scores)), 3))
    law = []
    for order in orders:
        chance, left = 1.0, list(range(len(scores)))
        for i in order:
            chance *= exponential_law([float(scores[j]) for j in left], float(eta))[left.index(i)]
            left.remove(i)
        law.append(chance)
    assert sum(law) == pytest.approx(1)
    places = {order: place for place, order in enumerate(orders)}
    draw = np.array(scores, dtype=object)
    assert follows(
        lambda: places[tuple(top_choices(Bits(), draw, eta * 7, 7, 3))],  # type: ignore[index]
        np.array(law),
    )


@pytest.mark.parametrize("moves", [(0, 1), (1, 1), (2, 1)])
def test_above_threshold(moves: tuple[int, int]) -> None:
    scales = svt_scales(ONE, *moves)
    law = threshold_law([0, 3, 1, 6], 4, (float(scales[0]), float(scales[1])))
    assert law.sum() == pytest.approx(1)
    assert follows(lambda: above_threshold(Bits(), [0, 3, 1, 6], 4, ONE, *moves), law)


# ---- the promise, on every neighbour of small inputs


def worst(
    law: Callable[[list[int]], Law], moves: list[int], values: tuple[int, ...] = (0, 1, 2)
) -> float:
    """Return the largest log-ratio of a law over neighbours of lists of three such scores."""
    found = 0.0
    for scores in itertools.product(values, repeat=3):
        one = law(list(scores))
        for move in itertools.product(moves, repeat=3):
            two = law([s + m for s, m in zip(scores, move, strict=True)])
            found = max(found, float(np.abs(np.log(one / two)).max()))
    return found


def test_promises_of_the_exponential_mechanism() -> None:
    assert 0.4 < worst(lambda q: exponential_law(q, 0.5), [-1, 0, 1]) <= 1 + 1e-9
    assert 0.4 < worst(lambda q: exponential_law(q, 1.0), [0, 1]) <= 1 + 1e-9
    assert worst(lambda q: exponential_law(q, 1.0), [-1, 0, 1]) > 1.05


@pytest.mark.parametrize(("down", "up"), [(0, 1), (1, 0), (1, 1)])
def test_promises_of_above_threshold(down: int, up: int) -> None:
    threshold, query = (float(s) for s in svt_scales(ONE, down, up))

    def at(cut: float) -> float:
        scales = cut * threshold, cut * query
        moves = list(range(-down, up + 1))
        return worst(lambda q: threshold_law(q, 0, scales), moves, (-6, 0, 6))

    assert 0.6 < at(1.0) <= 1 + 1e-9
    assert at(0.8) > 1.05


@pytest.mark.parametrize(("down", "up"), [(0, 1), (1, 1), (3, 2), (10**9, 1)])
def test_threshold_scales_spend_exactly_epsilon(down: int, up: int) -> None:
    epsilon = Fraction(3, 7)
    threshold, query = svt_scales(epsilon, down, up)
    assert max(down, up) / threshold + (down + up) / query == epsilon
    ratio = (max(down, up) / (down + up)) ** (1 / 3)
    assert float(threshold / query) == pytest.approx(ratio, rel=1e-5)


def test_costs() -> None:
    policy = Policy(ONE, Fraction(1, 10**9))
    small = Fraction(1, 100)
    ranged, plain = bounded_range_cost(policy, small), laplace_cost(policy, small)
    assert ranged.epsilon_units == plain.epsilon_units
    assert ranged.rho == small**2 / 8
    assert 3 < plain.renyi_units / ranged.renyi_units < 4.1


# ---- shapes and misuse


def test_wide_scores_and_many_candidates() -> None:
    huge = [10**30, 10**30 - 1, -(10**30)]
    assert exponential_mechanism(Bits(), huge, Fraction(100), 1) == 0
    many = [0] * 20_000
    many[123] = 500
    actions: list[Callable[[], object]] = [
        lambda: exponential_mechanism(Bits(), many, ONE, 1),
        lambda: above_threshold(Bits(), many, 250, ONE, 0, 1),
    ]
    for draw in actions:
        assert draw() == 123


def test_one_candidate_and_numpy_scores() -> None:
    assert exponential_mechanism(Bits(), [4], ONE, 1) == 0
    assert above_threshold(Bits(), [-1000], 0, ONE, 0, 1) is None
    assert above_threshold(Bits(), [], 0, ONE, 0, 1) is None
    scores = list(np.array([0, 900, 0], dtype=np.int64))
    assert exponential_mechanism(Bits(), scores, ONE, 1) == 1


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), 1.0, None])
def test_epsilons_that_are_no_positive_fraction(epsilon: Fraction) -> None:
    actions: list[Callable[[], object]] = [
        lambda: exponential_mechanism(Bits(), SCORES, epsilon, 1),
        lambda: above_threshold(Bits(), SCORES, 0, epsilon, 0, 1),
    ]
    for attempt in actions:
        with pytest.raises((InternalError, TypeError)):
            attempt()


def test_sensitivities_and_candidates_must_exist() -> None:
    actions: list[Callable[[], object]] = [
        lambda: exponential_mechanism(Bits(), SCORES, ONE, 0),
        lambda: exponential_mechanism(Bits(), [], ONE, 1),
        lambda: above_threshold(Bits(), SCORES, 0, ONE, 0, 0),
        lambda: above_threshold(Bits(), SCORES, 0, ONE, -1, 2),
    ]
    for attempt in actions:
        with pytest.raises(InternalError):
            attempt()
