"""How many keys are found of those that nobody listed: 200,000 units, Zipf's law, by mechanism.

Then what each key costs that is hidden: CPU of a release over 200,000 units with as many keys,
less that of one key.
Run: python -m benchmarks.keys
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.discovery import Sought
from dpsql.engine.key_counts import OTHERS
from dpsql.privacy.budget.accounting import rho_for
from dpsql.privacy.doors.discovery import CountedDiscovery, Discovery
from dpsql.privacy.doors.find_keys import _choose, _count, choose_counted, choose_weighed
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.partition_selection import WEIGHT_BITS, count_threshold, weight
from dpsql.privacy.noise.samplers import discrete_laplace
from dpsql.privacy.vault.unit import key_counts
from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE, Noise

UNITS, KEYS, EXPONENT, SEED = 200_000, 100_000, 1.25, 5
AMOUNTS = [
    (Fraction(1), Fraction(1, 10**9)),
    (Fraction(1, 2), Fraction(1, 10**6)),
]
MOST = (1, 3, 10)

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
Found = Callable[[Pairs, Fraction, Fraction, int], int]


def world(most: int) -> Pairs:
    """Units and keys: every unit has 1 to ``most`` different keys, as many for each number."""
    rng = np.random.default_rng(SEED)
    chances = np.arange(1, KEYS + 1, dtype=np.float64) ** -EXPONENT
    wanted = rng.integers(1, most + 1, UNITS)
    units = np.repeat(np.arange(UNITS), wanted)
    keys = rng.choice(KEYS, units.size, p=chances / chances.sum())
    pairs = np.unique(np.stack([units, keys], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def laplace(pairs: Pairs, epsilon: Fraction, delta: Fraction, most: int) -> int:
    """Keys whose count, with Laplace noise, is above a threshold."""
    counts = np.bincount(pairs[1], minlength=KEYS)
    scale, each = most / epsilon, float(delta) / most
    level = 1 + float(scale) * np.log(1 / (2 * each))
    noise = discrete_laplace(Bits(), scale, KEYS)
    return int(((counts + noise > level) & (counts > 0)).sum())


def geometric(pairs: Pairs, epsilon: Fraction, delta: Fraction, most: int) -> int:
    """Keys by the largest chances that epsilon and delta allow, shared by the keys of a unit."""
    counts = np.bincount(pairs[1], minlength=KEYS)
    return len(choose_counted(Bits(), counts.tolist(), epsilon / most, delta / most))


def even(pairs: Pairs, epsilon: Fraction, delta: Fraction, most: int) -> int:
    """Keys by weights 1 / sqrt(most), whatever a unit has, under Gaussian noise."""
    return _weighed(pairs, np.full(pairs[0].size, weight(most)), epsilon, delta, most)


def by_degree(pairs: Pairs, epsilon: Fraction, delta: Fraction, most: int) -> int:
    """Keys by weights 1 / sqrt(number of keys of the unit), under Gaussian noise."""
    degrees = np.bincount(pairs[0])[pairs[0]]
    table = np.array([0, *(weight(each) for each in range(1, most + 1))])
    return _weighed(pairs, table[degrees], epsilon, delta, most)


def counted(pairs: Pairs, epsilon: Fraction, delta: Fraction, most: int) -> int:
    """Keys that are shown with their counts by one release, a tenth of it for all others."""
    counts = np.bincount(pairs[1], minlength=KEYS)
    scale = most / (epsilon * (1 - OTHERS))
    noise = discrete_laplace(Bits(), scale, KEYS)
    level = count_threshold("laplace", scale, delta, most)
    return int(((counts + noise >= level) & (counts > 0)).sum())


def halved(pairs: Pairs, epsilon: Fraction, delta: Fraction, most: int) -> int:
    """Keys that are found with half of epsilon, so that the other half can count them."""
    return geometric(pairs, epsilon / 2, delta, most)


def _weighed(
    pairs: Pairs, each: NDArray[np.int64], epsilon: Fraction, delta: Fraction, most: int
) -> int:
    weights = np.zeros(KEYS, dtype=np.int64)
    np.add.at(weights, pairs[1], each)
    present = weights[weights > 0]
    return len(choose_weighed(Bits(), present, rho_for(epsilon, delta), delta, most))


MECHANISMS: dict[str, Found] = {
    "Laplace": laplace,
    "geometric": geometric,
    "Gaussian, even": even,
    "Gaussian, degree": by_degree,
    "with counts": counted,
    "half, then counts": halved,
}


def released(keys: int, noise: Noise, is_counted: bool) -> float:
    """Return CPU seconds of a release of one key of each unit, the least of some."""
    units = np.arange(UNITS)
    names = tuple(f"key {i:06}" for i in range(keys))
    pairs, found = key_counts.Pairs(names, units, units % keys, (units, units % keys)), []
    what = ("t", "c", Sought("keys", 1), noise, Fraction(1), Fraction(1, 10**6))
    for _ in range(5):
        start = time.process_time()
        if is_counted:
            _count(CountedDiscovery(*what, Fraction(1), 1, True, "other", 10), pairs)
        else:
            _choose(Discovery(*what), pairs)
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    """Print the keys found, the mean of three runs, and what hidden ones cost."""
    print(f"{UNITS:,} units, keys by rank^-{EXPONENT}, weights in 2^-{WEIGHT_BITS}")
    print(f"{'epsilon, delta':16} {'keys':>4}" + "".join(f"{name:>18}" for name in MECHANISMS))
    for epsilon, delta in AMOUNTS:
        for most in MOST:
            pairs = world(most)
            runs = [
                np.mean([find(pairs, epsilon, delta, most) for _ in range(3)])
                for find in MECHANISMS.values()
            ]
            told = f"{float(epsilon):g}, {float(delta):g}"
            print(f"{told:16} {most:>4}" + "".join(f"{each:>18.0f}" for each in runs))
    print("us a hidden key" + "".join(f"{name:>12}" for name in ("found", "counted")))
    for noise in (GAUSSIAN.name, LAPLACE.name):
        more = [released(UNITS, noise, way) - released(1, noise, way) for way in (False, True)]
        print(f"{noise:<15}" + "".join(f"{each / UNITS * 1e6:>12.2f}" for each in more))


if __name__ == "__main__":
    main()
