"""Keys are released with exactly the chances that their counts have, and these keep the promise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsql.errors import InternalError
from dpsql.privacy.doors import find_keys
from dpsql.privacy.doors.find_keys import choose_counted, choose_weighed
from dpsql.privacy.noise import partition_selection
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.partition_selection import (
    CHANCE_BITS,
    WEIGHT_BITS,
    chances,
    threshold,
    variance,
    weight,
)
from dpsql.privacy.noise.tail_bounds import exp_below, gaussian_tail
from tests.privacy.seam import Paths, ScriptedBits, SeededBits

WHOLE = 1 << CHANCE_BITS
AMOUNTS = [
    (Fraction(1), Fraction(1, 100)),
    (Fraction(1), Fraction(1, 10**9)),
    (Fraction(1, 10), Fraction(1, 10**6)),
    (Fraction(5), Fraction(1, 10**12)),
    (Fraction(1, 3), Fraction(1, 7)),
]


def holds(table: tuple[int, ...], epsilon: Fraction, delta: Fraction) -> bool:
    """Whether chances of neighbouring counts satisfy both inequalities, in exact arithmetic."""
    e = exp_below(epsilon)
    p = [Fraction(each, WHOLE) for each in (*table, WHOLE)]
    return all(
        a <= b and b <= e * a + delta and 1 - a <= e * (1 - b) + delta
        for a, b in itertools.pairwise(p)
    )


@pytest.mark.parametrize(("epsilon", "delta"), AMOUNTS)
def test_chances_of_neighbouring_counts_keep_the_promise_exactly(
    epsilon: Fraction, delta: Fraction
) -> None:
    table = chances(epsilon, delta)
    assert table[0] == 0
    assert table[-1] == WHOLE
    assert Fraction(table[1], WHOLE) <= delta
    assert holds(table, epsilon, delta)


@pytest.mark.parametrize(("epsilon", "delta"), AMOUNTS[:3])
def test_no_larger_chances_would(epsilon: Fraction, delta: Fraction) -> None:
    """The chances are the largest: any that is raised by a hair breaks the promise."""
    table = chances(epsilon, delta)
    hair = WHOLE >> 100
    for place in range(1, len(table) - 1):
        raised = (*table[:place], table[place] + hair, *table[place + 1 :])
        assert not holds(raised, epsilon, delta)


def test_they_are_a_truncated_geometric_variable_above_a_threshold() -> None:
    """Where the number of steps is whole; Desfontaines and others 2020, section 3.3."""
    epsilon, k = 1.0, 8
    delta = (math.e - 1) / (math.exp(k + 1) + math.exp(k) - 2)
    table = chances(Fraction(1), Fraction(delta))
    mass = np.exp(-epsilon * np.abs(np.arange(-k, k + 1)))
    mass /= mass.sum()
    for count in range(2 * k + 2):
        above = mass[np.arange(-k, k + 1) + count > k].sum()
        assert table[min(count, len(table) - 1)] / WHOLE == pytest.approx(above, rel=1e-9)


def geometric_paths(count: int, epsilon: Fraction, delta: Fraction) -> float:
    """The chance that a key of a count is released, over all values of its one uniform draw."""
    table = chances(epsilon, delta)
    steps = sorted({0, *table, WHOLE})
    paths, total = Paths(0.0), 0.0

    def draw(bits: Bits, n: int, size: int) -> NDArray[np.object_]:
        assert n == WHOLE
        assert size == 1
        widths = [(b - a) / WHOLE for a, b in itertools.pairwise(steps)]
        return np.array([steps[paths.choose(widths)]], dtype=object)

    with mock.patch.object(find_keys, "uniform_below", draw):
        for chance, kept in paths.walk(lambda: choose_counted(Bits(), [count], epsilon, delta)):
            total += chance * len(kept)
    return total


def test_every_count_is_released_with_its_chance() -> None:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    table = chances(epsilon, delta)
    for count in range(len(table) + 3):
        exact = table[min(count, len(table) - 1)] / WHOLE
        assert geometric_paths(count, epsilon, delta) == pytest.approx(exact, abs=1e-12)


def gaussian_mass(sigma2: Fraction, reach: int) -> NDArray[np.float64]:
    """P(Z = z) for z of -reach..reach."""
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    mass = np.exp(-(z**2) / (2 * float(sigma2)))
    return np.asarray(mass / mass.sum())


@pytest.mark.parametrize("sigma2", [Fraction(1), Fraction(7, 3), Fraction(400), Fraction(10**4)])
def test_tails_of_the_discrete_gaussian_are_below_their_bounds(sigma2: Fraction) -> None:
    reach = 12 * math.isqrt(int(sigma2) + 1) + 12
    tails = gaussian_mass(sigma2, reach)[::-1].cumsum()[::-1]
    for t in range(1, reach // 2):
        assert tails[reach + t] <= float(gaussian_tail(sigma2, t)) * (1 + 1e-9)


def test_the_bound_of_a_tail_is_close() -> None:
    sigma2 = Fraction(10**12)
    for sigmas in (3, 5, 6, 7):
        bound = float(gaussian_tail(sigma2, sigmas * 10**6))
        assert 1 <= bound / stats.norm.sf(sigmas) < 1.1


def small_weights() -> Iterator[None]:
    """Weights in parts of 2^3, so that every value of the noise can be walked."""
    with mock.patch.object(partition_selection, "WEIGHT_BITS", 3):
        threshold.cache_clear()
        yield
    threshold.cache_clear()


@pytest.fixture
def coarse() -> Iterator[None]:
    yield from small_weights()


RHO, DELTA = Fraction(1, 2), Fraction(1, 100)


def newly_released(degree: int, most: int, level: int | None = None) -> float:
    """The exact chance that a key is released of a unit whose keys nobody else has."""
    sigma2 = variance(RHO)
    reach = 14 * math.isqrt(int(sigma2) + 1)
    level = threshold(RHO, DELTA, most) if level is None else level
    once = gaussian_mass(sigma2, reach)[reach + level - partition_selection.weight(degree) :].sum()
    return float(1 - (1 - once) ** degree)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8])
def test_new_keys_of_one_unit_appear_with_a_chance_of_at_most_delta(
    coarse: None, most: int
) -> None:
    found = [newly_released(degree, most) for degree in range(1, most + 1)]
    assert max(found) <= float(DELTA)
    assert max(found) > float(DELTA) / 3, "the threshold is higher than it need be"


def test_weighed_keys_are_released_with_their_chance(coarse: None) -> None:
    """Every value of the noise is walked; the chances are those of the tail, to the last digit."""
    sigma2, most = variance(RHO), 2
    reach = 14 * math.isqrt(int(sigma2) + 1)
    mass = gaussian_mass(sigma2, reach)
    level = threshold(RHO, DELTA, most)
    for count in range(6):
        true = count * partition_selection.weight(2)
        paths, total = Paths(0.0), 0.0

        def draw(bits: Bits, scale: Fraction, size: int, paths: Paths = paths) -> NDArray[np.int64]:
            assert scale == sigma2
            assert size == 1
            return np.array([paths.choose(mass.tolist()) - reach])

        def program(true: int = true) -> int:
            return len(choose_weighed(Bits(), np.array([true]), RHO, DELTA, most))

        with mock.patch.object(find_keys, "discrete_gaussian", draw):
            total = sum(chance * kept for chance, kept in paths.walk(program))
        # A key that counts for nobody is never released, whatever the noise is.
        expected = float(mass[reach + level - true :].sum()) if count else 0.0
        assert total == pytest.approx(expected, abs=1e-12)


def test_squares_of_weights_sum_to_at_most_one_unit() -> None:
    for degree in [*range(1, 3000), 10**6]:
        assert degree * weight(degree) ** 2 <= 1 << 2 * WEIGHT_BITS
    assert variance(RHO) >= Fraction(1 << 2 * WEIGHT_BITS) / (2 * RHO)


@pytest.mark.parametrize("most", [1, 3])
def test_one_unit_more_brings_new_keys_rarely(most: int) -> None:
    """Simulated a hundred thousand times through the function that draws."""
    runs, delta = 100_000, Fraction(1, 100)
    weights = np.full(runs, weight(most))
    kept = choose_weighed(SeededBits(7), weights, RHO, delta / 1, most)
    spread = math.sqrt(runs * float(delta))
    assert len(kept) * most <= runs * float(delta) + 6 * spread
    counted = choose_counted(SeededBits(8), [1] * runs, Fraction(1), delta)
    assert abs(len(counted) - runs * float(delta)) <= 6 * spread


FAULTS: dict[str, tuple[object, str, object]] = {
    "threshold off by one": (
        find_keys,
        "chances",
        lambda epsilon, delta: (*chances(epsilon, delta)[1:], WHOLE),
    ),
    "strictly below": (
        find_keys,
        "chances",
        lambda epsilon, delta: tuple(each + 1 + WHOLE // 50 for each in chances(epsilon, delta)),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_in_the_chances_is_found(name: str) -> None:
    where, what, fault = FAULTS[name]
    with mock.patch.object(where, what, fault):
        released = len(choose_counted(ScriptedBits([0, 0, 0] * 4), [0], Fraction(1), DELTA))
        drawn = choose_counted(SeededBits(3), [1] * 20_000, Fraction(1), DELTA)
    assert released or len(drawn) > 20_000 * float(DELTA) * 2


def _rounded_up(degree: int) -> int:
    exact = (1 << 2 * partition_selection.WEIGHT_BITS) / degree
    return math.isqrt(math.ceil(exact)) + 1


WEIGHT_FAULTS: dict[str, Callable[[], bool]] = {
    "weights rounded up": lambda: any(
        m * _rounded_up(m) ** 2 > 1 << 2 * partition_selection.WEIGHT_BITS for m in range(1, 9)
    ),
    "max_keys ignored": lambda: 1 - (1 - newly_released(1, 1)) ** 8 > DELTA,
    "threshold too low by one unit of weight": lambda: any(
        newly_released(m, 8, threshold(RHO, DELTA, 8) - partition_selection.weight(1)) > DELTA
        for m in range(1, 9)
    ),
}


@pytest.mark.parametrize("name", WEIGHT_FAULTS)
def test_a_planted_fault_in_the_weights_is_found(coarse: None, name: str) -> None:
    assert WEIGHT_FAULTS[name]()


def test_an_epsilon_that_is_too_small_is_refused() -> None:
    with pytest.raises(InternalError):
        chances(Fraction(1, 10**6), Fraction(1, 10**9))
