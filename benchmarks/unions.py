"""Random mixed unions: automatic strategies against a strategy for every group of products.

A workload is a union of two to seven products over two to five attributes of 2 to 64 cells; a
factor is the identity, prefixes, all ranges, ranges of one width, cells with their total, some
cells, or random rows. The alternative is OPT_+ as HDMM has it (Definition 19): products in groups,
each with a Kronecker strategy of its own that answers it alone, and the budget split by the
cube-root law (square-root under Gaussian noise). Groups are the products themselves, or those over
the same attributes. Its formulas are written out here, apart from those that plan.

Printed are roots of ratios of expected errors, ours over the best of the two: none may be above
``EQUAL``. Run: ``python -m benchmarks.unions [how many] [first seed]``.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.search.one_attribute.dual import optimise as convex
from dpsql.search.one_attribute.opt0 import matrix
from dpsql.search.one_attribute.opt0 import optimise as p_identity
from dpsql.search.select import select
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Product, Workload

COUNT = 20
EQUAL = 1.01
"""How much larger than the best alternative's the error may be."""

SIZES = (2, 3, 4, 6, 8, 10, 16, 20, 32, 50, 64)
MOST_CELLS = 1 << 16
SWEEPS = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """The roots of the expected errors at a unit budget: ours, and OPT_+ by either grouping."""

    seed: int
    noise: Noise
    ours: float
    by_product: float
    by_support: float
    method: str
    seconds: float

    @property
    def ratio(self) -> float:
        """Ours over the best."""
        return float(self.ours / min(self.by_product, self.by_support))


def main() -> int:
    """Print every ratio; return 1 if one is above what it may be."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    noises: tuple[Noise, ...] = ("laplace", "gaussian")
    found = []
    for seed in range(first, first + count):
        found += [measure(make_workload(seed), noise, seed) for noise in noises]
        print("\n".join(line(outcome) for outcome in found[-2:]), flush=True)
    for noise in noises:
        ratios = [o.ratio for o in found if o.noise == noise]
        held = sum(ratio <= EQUAL for ratio in ratios)
        mean = math.exp(np.log(ratios).mean())
        print(f"{noise}: {held} of {count} hold; mean {mean:.3f}, worst {max(ratios):.3f}")
    return int(any(outcome.ratio > EQUAL for outcome in found))


def line(outcome: Outcome) -> str:
    """One outcome as text."""
    return (
        f"seed {outcome.seed:<4} {outcome.noise:<9} ratio {outcome.ratio:6.3f}  ours"
        f" {outcome.ours:10.2f}  by product {outcome.by_product:10.2f}  by support"
        f" {outcome.by_support:10.2f}  {outcome.seconds:6.2f} s  {outcome.method}"
    )


def measure(workload: Workload, noise: Noise, seed: int) -> Outcome:
    """Plan a workload and work out what a strategy per group would give."""
    start = time.perf_counter()
    strategy = select(workload, noise)
    seconds = time.perf_counter() - start
    ours = math.sqrt(strategy.unit_error(workload))
    products = list(workload.products)
    by_product = opt_plus(workload, [[each] for each in products], noise)
    by_support = opt_plus(workload, list(_by_support(products)), noise)
    return Outcome(seed, noise, ours, by_product, by_support, strategy.method, seconds)


def _by_support(products: Iterable[Product]) -> Iterable[list[Product]]:
    groups: dict[tuple[str, ...], list[Product]] = {}
    for product in products:
        groups.setdefault(tuple(product.factors), []).append(product)
    return groups.values()


def opt_plus(workload: Workload, groups: Sequence[Sequence[Product]], noise: Noise) -> float:
    """Return the root of the error of a Kronecker strategy per group, each answering its own."""
    errors = [kron_error(workload.domain, group, noise) for group in groups]
    if noise == "laplace":
        return math.sqrt(float(np.cbrt(errors).sum()) ** 3)
    return float(np.sqrt(errors).sum())


def kron_error(domain: Mapping[str, int], group: Sequence[Product], noise: Noise) -> float:
    """Return the error of OPT_kron for some products, by block-cyclic descent."""
    names = [name for name in domain if any(name in product.factors for product in group)]
    grams = {
        name: [
            product.factors[name].gram() if name in product.factors else np.ones((n, n))
            for product in group
        ]
        for name, n in domain.items()
        if name in names
    }
    traces = {name: np.array([np.trace(g) for g in each]) for name, each in grams.items()}
    weights = np.array([product.weight**2 for product in group])
    last = math.inf
    for _ in range(SWEEPS):
        for name in names:
            others = weights * np.prod([traces[o] for o in names if o != name], axis=0)
            shared = np.tensordot(others / others.sum(), np.array(grams[name]), axes=1)
            K = inverse(shared, noise)
            traces[name] = np.array([float(np.vdot(g, K)) for g in grams[name]])
        error = float((weights * np.prod([traces[name] for name in names], axis=0)).sum())
        if error > last * (1 - 1e-4):
            break
        last = error
    return min(error, last)


def inverse(gram: Floats, noise: Noise) -> Floats:
    """Return the inverse Gram of the strategy of unit sensitivity for one attribute."""
    if noise == "laplace":
        theta = p_identity(gram)
        rows = np.eye(len(gram)) if theta is None else matrix(theta)
    else:
        rows = convex(gram).matrix
    return np.asarray(np.linalg.pinv(rows.T @ rows, hermitian=True), dtype=np.float64)


def make_workload(seed: int) -> Workload:
    """A random mixed union; the same for the same seed."""
    rng = np.random.default_rng(seed)
    while True:
        sizes = rng.choice(SIZES, size=int(rng.integers(2, 6)))
        if math.prod(int(n) for n in sizes) <= MOST_CELLS:
            break
    domain = {f"x{i}": int(n) for i, n in enumerate(sizes)}
    products = []
    for _ in range(int(rng.integers(2, 8))):
        chosen = rng.choice(len(sizes), size=int(rng.integers(1, len(sizes) + 1)), replace=False)
        factors = {f"x{i}": factor(rng, int(sizes[i])) for i in sorted(chosen.tolist())}
        products.append((factors, float(rng.choice([1, 1, 1, 2, 5]))))
    return Workload(domain, products)


def factor(rng: np.random.Generator, n: int) -> Floats:
    """Random query rows over the cells of an attribute."""
    kinds: tuple[Callable[[], Floats], ...] = (
        lambda: np.eye(n),
        lambda: np.tril(np.ones((n, n))),
        lambda: np.array([_range(n, i, j) for i in range(n) for j in range(i, n)]),
        lambda: np.array([_range(n, i, i + n // 4) for i in range(n - n // 4)]),
        lambda: np.concatenate([np.eye(n), np.ones((1, n))]),
        lambda: np.tril(np.ones((n, n)))[:, rng.permutation(n)],
        lambda: rng.integers(0, 2, size=(max(1, n // 4), n)).astype(np.float64),
        lambda: rng.integers(0, 2, size=(1, n)).astype(np.float64),
        lambda: np.eye(n)[rng.permutation(n)[: max(1, n // 4)]],
        lambda: rng.integers(0, 2, size=(int(rng.integers(1, n + 1)), n)).astype(np.float64),
    )
    found = kinds[int(rng.integers(len(kinds)))]()
    return found if found.any() else np.eye(n)


def _range(n: int, low: int, high: int) -> Floats:
    cells = np.arange(n)
    return ((low <= cells) & (cells <= high)).astype(np.float64)


if __name__ == "__main__":
    sys.exit(main())
