"""A handle over public toy data, with ordinary floating-point noise: for tests and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.errors import BudgetExceeded
from dpsql.learn.candidates import norm
from dpsql.learn.targets import products_of
from dpsql.pgm.measurements import Candidate, Measured, Query
from dpsql.privacy.doors.sensitivity import Reader, joint_norm
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product

CAP = 1 << 24


class FakeHandle:
    """Rows as cell numbers per attribute, each with a weight; ``rng`` None draws no noise."""

    def __init__(
        self,
        domain: Mapping[str, int],
        columns: Mapping[str, NDArray[np.integer]],
        budget: Fraction | int | str,
        *,
        weights: Floats | None = None,
        noise: Noise = "laplace",
        rng: np.random.Generator | None = None,
    ) -> None:
        self.domain: Mapping[str, int] = dict(domain)
        self.noise: Noise = noise
        self.columns = {name: np.asarray(columns[name]) for name in domain}
        size = len(next(iter(self.columns.values()))) if domain else 0
        self.weights = np.ones(size) if weights is None else np.asarray(weights, dtype=np.float64)
        self.budget = Fraction(budget)
        self.spent: list[tuple[str, Fraction]] = []
        self.rng = rng
        self._tensors: dict[tuple[str, ...], Floats] = {}
        self._norms: dict[int, tuple[Query, float]] = {}
        self._true: dict[int, tuple[Query, Floats]] = {}

    @classmethod
    def of_histogram(
        cls,
        domain: Mapping[str, int],
        counts: Floats | NDArray[np.integer],
        budget: Fraction | int | str,
        *,
        noise: Noise = "laplace",
        rng: np.random.Generator | None = None,
    ) -> FakeHandle:
        """Return a handle over explicit counts, one per cell, of any shape."""
        flat = np.asarray(counts, dtype=np.float64).ravel()
        used = np.flatnonzero(flat)
        places = np.unravel_index(used, tuple(domain.values()))
        columns = dict(zip(domain, places, strict=True))
        return cls(domain, columns, budget, weights=flat[used], noise=noise, rng=rng)

    def remaining(self) -> Fraction:
        return self.budget - sum((amount for _, amount in self.spent), Fraction(0))

    def total(self, amount: Fraction) -> Measured:
        self._spend("total", amount)
        return self._release([(Product({}),)], amount)[0]

    def select(
        self,
        candidates: Sequence[Query],
        answers: Sequence[Floats],
        *,
        penalties: Sequence[float] | None = None,
        weights: Sequence[Fraction] | None = None,
        count: int = 1,
        amount: Fraction,
    ) -> list[int]:
        self._spend("select", amount)
        scores = np.empty(len(candidates))
        spread = np.empty(len(candidates))
        for i, candidate in enumerate(candidates):
            gap = np.abs(self.true(candidate) - np.rint(answers[i])).sum()
            weight = 1.0 if weights is None else float(weights[i])
            scores[i] = weight * (gap - (0 if penalties is None else round(penalties[i])))
            spread[i] = weight * self._norm(candidate)
        if self.rng is None:
            return [int(i) for i in np.argsort(-scores, kind="stable")[:count]]
        part = float(amount) / count
        epsilon = part if self.noise == "laplace" else math.sqrt(8 * part)
        noisy = scores + self.rng.gumbel(size=len(scores)) * 2 * spread.max() / epsilon
        return [int(i) for i in np.argsort(-noisy, kind="stable")[:count]]

    def measure(self, candidates: Sequence[Query], amount: Fraction) -> list[Measured]:
        self._spend("measure", amount)
        return self._release(candidates, amount)

    def true(self, candidate: Query) -> Floats:
        """Return the exact answers, for the checks of tests and benchmarks."""
        if id(candidate) not in self._true:
            parts = [self._apply(product) for product in plain(candidate)]
            self._true[id(candidate)] = candidate, np.asarray(sum(parts), dtype=np.float64)
        return self._true[id(candidate)][1]

    def _norm(self, candidate: Query) -> float:
        if id(candidate) not in self._norms:
            self._norms[id(candidate)] = candidate, norm(candidate, "laplace")
        return self._norms[id(candidate)][1]

    def marginal(self, attributes: tuple[str, ...]) -> Floats:
        """Return the exact counts over attributes as a tensor."""
        if attributes not in self._tensors:
            sizes = tuple(self.domain[a] for a in attributes)
            if attributes:
                flat = np.ravel_multi_index([self.columns[a] for a in attributes], sizes)
                tensor = np.bincount(flat, self.weights, math.prod(sizes)).reshape(sizes)
            else:
                tensor = np.asarray(self.weights.sum())
            self._tensors[attributes] = np.asarray(tensor, dtype=np.float64)
        return self._tensors[attributes]

    def _apply(self, product: Product) -> Floats:
        names = tuple(product.factors)
        factors = [None if isinstance(f, Identity) else f for f in product.factors.values()]
        return np.asarray(kron_apply(factors, self.marginal(names))).ravel()

    def _release(self, candidates: Sequence[Query], amount: Fraction) -> list[Measured]:
        joint = joint_sensitivity(self.domain, [plain(c) for c in candidates], self.noise)
        if self.noise == "laplace":
            scale = joint / float(amount)
            stddev = math.sqrt(2) * scale
        else:
            scale = stddev = math.sqrt(joint / (2 * float(amount)))
        out = []
        for candidate in candidates:
            values = self.true(candidate)
            if self.rng is not None:
                values = values + integer_noise(self.rng, self.noise, scale, values.size)
            out.append(Measured.of(candidate, values, stddev, self.noise))
        return out

    def _spend(self, what: str, amount: Fraction) -> None:
        if not isinstance(amount, Fraction) or amount <= 0:
            raise ValueError(f"{amount!r} is not a positive fraction")
        if amount > self.remaining():
            raise BudgetExceeded(amount, self.remaining())
        self.spent.append((what, amount))


def plain(query: Query) -> Candidate:
    """Return a query as a sum of products."""
    return products_of(query) if isinstance(query, Pattern) else query


def integer_noise(rng: np.random.Generator, noise: Noise, scale: float, size: int) -> Floats:
    """Return discrete Laplace noise, or rounded Gaussian noise of standard deviation ``scale``."""
    if noise == "gaussian":
        return np.asarray(np.rint(rng.normal(0, scale, size)))
    p = -math.expm1(-1 / scale)
    return np.asarray(rng.geometric(p, size) - rng.geometric(p, size), dtype=np.float64)


def joint_sensitivity(
    domain: Mapping[str, int], candidates: Sequence[Candidate], noise: Noise
) -> float:
    """Return the L1 or squared L2 sensitivity of all candidates together, exact where small."""
    names = tuple(a for a in domain if any(a in p.factors for c in candidates for p in c))
    bounds = [norm(candidate, noise) for candidate in candidates]
    if len(candidates) == 1:
        return sum(bounds)
    if math.prod(domain[a] for a in names) > CAP:
        reader = Reader(domain)
        return min(sum(bounds), joint_norm(map(reader.read, candidates), domain, law(noise).norm))
    if all(isinstance(op, Identity) for c in candidates for op in _operators(c)):
        return float(len(candidates))
    columns = np.zeros([domain[a] for a in names])
    for candidate in candidates:
        for product in candidate:
            part = np.ones([1] * len(names))
            for axis, name in enumerate(names):
                if name in product.factors:
                    op = product.factors[name]
                    norms = op.column_l1() if noise == "laplace" else op.column_l2sq()
                    shape = [1] * len(names)
                    shape[axis] = -1
                    part = part * np.reshape(norms, shape)
            columns = columns + part
    return float(columns.max())


def _operators(candidate: Candidate) -> list[Operator]:
    ops = [op for product in candidate for op in product.factors.values()]
    return ops or [Identity(1)]


class FakeSums:
    """Counts over bins with public values; ``rng`` None draws no noise."""

    def __init__(
        self,
        values: Integers,
        counts: Integers,
        budget: Fraction | int | str,
        *,
        noise: Noise = "laplace",
        rng: np.random.Generator | None = None,
    ) -> None:
        self.values = np.asarray(values, dtype=np.int64)
        self.counts = np.asarray(counts, dtype=np.int64)
        self.noise: Noise = noise
        self.budget = Fraction(budget)
        self.spent: list[tuple[str, Fraction]] = []
        self.rng = rng

    def remaining(self) -> Fraction:
        return self.budget - sum((amount for _, amount in self.spent), Fraction(0))

    def first_below(
        self, thresholds: Sequence[int], count: int, amount: Fraction, upto: int | None = None
    ) -> int | None:
        scores = count - self._above(thresholds, upto)
        return self._svt(scores.astype(np.float64), 2.0, 2.0, amount)

    def first_covering(
        self, thresholds: Sequence[int], ratio: Fraction, amount: Fraction, upto: int | None = None
    ) -> int | None:
        n = self.counts[:upto].sum()
        scores = n - self._above(thresholds, upto) - float(ratio) * n
        # max(r, 1 - r) / threshold scale + 1 / query scale = epsilon, as cube roots
        shift = float(max(ratio, 1 - ratio))
        factor = shift ** (2 / 3) + 1
        return self._svt(scores, factor * shift ** (1 / 3), factor, amount)

    def recursive(
        self, thresholds: Sequence[int], amount: Fraction, upto: int | None = None
    ) -> int:
        epsilon = self._spend("recursive", amount)
        above = self._above(thresholds, upto)
        hits = np.flatnonzero(above <= np.arange(len(above)))
        least = int(hits[0]) if hits.size else len(above)
        if self.rng is not None:
            least += int(integer_noise(self.rng, "laplace", 1 / epsilon, 1)[0])
        return min(max(least, 0), len(above) - 1)

    def quantile(
        self,
        thresholds: Sequence[int],
        count: int,
        amount: Fraction,
        upto: int | None = None,
        falling: int = 0,
    ) -> int:
        epsilon = self._spend("quantile", amount, 8)
        scores = -np.abs(self._above(thresholds, upto) - count).astype(np.float64)
        scores -= falling * np.log(np.maximum(thresholds, 1)) * 2 / epsilon
        if self.rng is not None:
            scores = scores + self.rng.gumbel(size=scores.size) * 2 / epsilon
        return int(np.argmax(scores))

    def measure(self, rows: Integers, amount: Fraction) -> Measured:
        self._spend("measure", amount)
        rows = np.asarray(rows)
        if rows.dtype != np.int64:
            raise ValueError("measured rows are integers")
        values = (rows @ self.counts).astype(np.float64)
        if self.noise == "laplace":
            scale = float(np.abs(rows).sum(axis=0).max()) / float(amount)
            stddev = math.sqrt(2) * scale
        else:
            norm2 = float(np.square(rows.astype(np.float64)).sum(axis=0).max())
            scale = stddev = math.sqrt(norm2 / (2 * float(amount)))
        if self.rng is not None:
            values = values + integer_noise(self.rng, self.noise, scale, values.size)
        return Measured((), values, stddev, self.noise)

    def _above(self, thresholds: Sequence[int], upto: int | None) -> Integers:
        values, counts = self.values[:upto], self.counts[:upto]
        tail = np.append(np.cumsum(counts[::-1])[::-1], 0)
        return np.asarray(tail[np.searchsorted(values, thresholds, side="right")])

    def _svt(self, scores: Floats, threshold: float, query: float, amount: Fraction) -> int | None:
        epsilon = self._spend("svt", amount)
        level = 0.0
        if self.rng is not None:
            level = float(integer_noise(self.rng, "laplace", threshold / epsilon, 1)[0])
            scores = scores + integer_noise(self.rng, "laplace", query / epsilon, scores.size)
        hits = np.flatnonzero(scores >= level)
        return int(hits[0]) if hits.size else None

    def _spend(self, what: str, amount: Fraction, rate: int = 2) -> float:
        if not isinstance(amount, Fraction) or amount <= 0:
            raise ValueError(f"{amount!r} is not a positive fraction")
        if amount > self.remaining():
            raise BudgetExceeded(amount, self.remaining())
        self.spent.append((what, amount))
        return float(amount) if self.noise == "laplace" else math.sqrt(rate * float(amount))
