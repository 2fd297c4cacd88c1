"""Few queries over many cells of one attribute: strategies within the span of the queries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass
from dpsql.search.meter import EIGEN, may_go_on, spend
from dpsql.search.opt0 import minimise
from dpsql.search.problem import Problem
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product import ProductStrategy, assemble

FEW_ROWS = 256
"""Most distinct queries: the fixed point has matrices of queries by queries."""

FEW_NUMBERS = 1 << 20
"""Most numbers in their matrix."""

THIN_FROM, THIN = 256, 4
"""From so many cells on, and so many per independent query, queries are thin."""

FULL = 1.5
"""Cells per independent query below which Laplace strategies are those of the cells."""

BINARY_PLACES = 16
"""Binary places of queries that count as whole, and of combinations of them."""

MOST_PLACES = 40
"""Binary places of the rows that are measured, where queries differ in size by more."""

APART = 1e-6
"""Part of the largest number of a query by which its others differ at least; its square, not."""

ROUNDS = 400
"""Most steps of the dual fixed point."""

GAP = 1e-4
"""Relative distance to the certified bound at which they end."""

SINGULAR = 1e-12
"""Relative size below which an eigenvalue counts as zero."""

STAGES = ((1e-2, 8), (1e-3, 32), (1e-4, 128), (1e-5, 512))
"""Rounding of the corners of |x|, and the power that stands for the maximum: ever sharper."""

WORK = 4e9
"""Multiplications that the descents of one workload may take, for effort 1."""

MOST_STEPS = 150
"""Most steps of one descent."""


@dataclass(frozen=True, slots=True)
class Few:
    """Distinct whole queries (m, n), and the sum of the squared weights of each.

    ``basis`` are independent ones among them, and ``queries = coefficients @ basis``.
    """

    queries: Floats
    weights2: Floats
    basis: Floats
    coefficients: Floats

    @property
    def is_thin(self) -> bool:
        """Whether cells are so many more than queries that no search over cells is worth it."""
        n = self.basis.shape[1]
        return bool(n > THIN_FROM and n > THIN * len(self.basis))

    @property
    def is_graded(self) -> bool:
        """Whether cells differ by values that are summed: conditions tell fewer of them apart."""
        return bool(self.basis.shape[1] > 2.0 ** len(self.basis))

    @property
    def is_full(self) -> bool:
        """Whether queries are so many that combinations of them are hardly fewer than cells."""
        return bool(FULL * len(self.basis) > self.basis.shape[1])

    @property
    def loss(self) -> Floats:
        """The Gram of the weighted coefficients: what the inverse of a combination costs."""
        weighted = self.coefficients * self.weights2[:, np.newaxis]
        return np.asarray(self.coefficients.T @ weighted)


def few_candidates(
    problem: Problem, found: Few, effort: float
) -> Iterator[tuple[ProductStrategy, float]]:
    """Yield strategies of combinations of few queries, each with a lower bound on any strategy.

    Gaussian: the optimum, by a dual fixed point. Laplace: local optima from several starts.
    """
    if found.is_full and law(problem.noise).norm == 1:
        return
    matrix, lower = gaussian_optimum(found)
    if law(problem.noise).norm == 2:
        yield from ((each, lower) for each in _realise(problem, found, matrix))
        return
    scales = np.cbrt(found.weights2 / np.abs(found.queries).max(axis=1))
    starts = [found.coefficients * scales[:, np.newaxis], matrix]
    for start in starts:
        yield from ((e, lower) for e in _realise(problem, found, descend(found, start, effort)))


def read_few(problem: Problem) -> Few | None:
    """Return the distinct queries of one attribute, None where they are many or not whole."""
    factors, components = problem.factors[0], problem.components
    if sum(op.rows for op in factors.operators) * factors.n > FEW_NUMBERS:
        return None
    rows, weights = [], []
    for (which,), weight2 in zip(components.index, components.weights2, strict=True):
        part = np.ones((1, factors.n)) if which < 0 else factors.operators[which].dense()
        whole, units = _in_units(np.asarray(part, dtype=np.float64))
        rows.append(whole)
        weights.append(weight2 * units**2)
    stacked = np.concatenate(rows)
    queries, inverse = np.unique(stacked, axis=0, return_inverse=True)
    weights2: Floats = np.bincount(inverse.reshape(-1), np.concatenate(weights)).astype(np.float64)
    asked = queries.any(axis=1)
    queries, weights2 = queries[asked], weights2[asked]
    whole = np.ldexp(queries, BINARY_PLACES)
    if not 0 < len(queries) <= FEW_ROWS or not np.array_equal(whole, np.rint(whole)):
        return None
    chosen = _independent(queries)
    basis = queries[chosen]
    coefficients = np.asarray(np.linalg.lstsq(basis.T, queries.T, rcond=None)[0].T)
    coefficients[np.abs(coefficients) < 1e-9] = 0
    return Few(queries, weights2, basis, coefficients)


def _in_units(rows: Floats) -> tuple[Floats, Floats]:
    """Return queries as whole numbers of a unit of their own, where that is what they are.

    Sums of decimals are: their values are hundredths, which no binary fraction is.
    """
    out, units = rows.copy(), np.ones(len(rows))
    for place, row in enumerate(rows):
        if np.array_equal(np.ldexp(row, BINARY_PLACES), np.rint(np.ldexp(row, BINARY_PLACES))):
            continue
        largest = float(np.abs(row).max())
        steps = np.diff(np.unique(np.append(row, 0.0)))
        counts = row / float(steps[steps > APART * largest].min())
        unit = largest / float(np.rint(np.abs(counts).max()))
        counts = np.rint(row / unit)
        if np.abs(counts * unit - row).max() <= APART**2 * largest:
            out[place], units[place] = counts, unit
    return out, units


def _independent(rows: Floats) -> list[int]:
    """Return the places of independent rows that span all, those of the fewest cells first."""
    chosen: list[int] = []
    left = rows / np.linalg.norm(rows, axis=1)[:, np.newaxis]
    for place in np.argsort(np.abs(rows).sum(axis=1), kind="stable"):
        size = float(np.linalg.norm(left[place]))
        if size > 1e-7:
            unit = left[place] / size
            chosen.append(int(place))
            left = left - np.outer(left @ unit, unit)
    return chosen


def gaussian_optimum(few: Few) -> tuple[Floats, float]:
    """Return the optimal combinations of the basis for Gaussian noise, and a bound on any error.

    The dual fixed point of ``convex.optimise``, on matrices of the size of the queries: for
    weights D of the cells, the strategy is Gamma^(-1/4) U' B with B the weighted basis and
    U Gamma U' = B D B'. Its columns converge to unit norm where their cells matter.
    """
    sizes = np.abs(few.basis).max(axis=1)  # sums of cubes are beside counts: their roots are lost
    basis = few.basis / sizes[:, np.newaxis]
    values, vectors = np.linalg.eigh(sizes * few.loss * sizes[:, np.newaxis])
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    rows = root @ basis
    n = rows.shape[1]
    D, power, lower, last = np.ones(n), 2.0, 0.0, 0.0
    best, least = np.eye(len(rows)), np.inf
    work = 3.0 * len(rows) * rows.size + EIGEN * len(rows) ** 3
    for step in range(ROUNDS):
        if step and not may_go_on():
            break
        spend(work)
        values, vectors = np.linalg.eigh((rows * D) @ rows.T)
        values = np.maximum(values, SINGULAR * values[-1])
        matrix = (vectors * values**-0.25) @ vectors.T @ root
        x = np.square(matrix @ basis).sum(axis=0)
        total = float(np.sqrt(values).sum())
        bound = total**2 / float(D.sum())
        lower = max(lower, bound)
        if total * x.max() < least:
            best, least = matrix, total * float(x.max())
        if least <= lower * (1 + GAP):
            break
        if bound < last:
            power = max(power / 2, 0.5)
        last = bound
        D = np.maximum(D * x**power, 1e-300)
        D *= n / D.sum()
    return np.asarray(best / sizes), lower * (1 - 1e-9)


def descend(few: Few, start: Floats, effort: float = 1.0) -> Floats:
    """Return combinations of the basis whose error under Laplace noise is a local minimum.

    Minimises the log of (largest L1 norm of a column)^2 times the cost of the inverse, with
    corners rounded ever less. Source: LRM (Yuan et al. 2012) asks for the same optimum.
    ``start`` and the result have shape (rows, rank).
    """
    cost = 4.0 * start.size * few.basis.shape[1]
    steps = int(np.clip(effort * WORK / (2 * len(STAGES) * cost), 5, MOST_STEPS))
    matrix: Floats = start / np.abs(start @ few.basis).sum(axis=0).max()
    for smooth, power in STAGES:
        loss = _Loss(few, matrix.shape, smooth, power)
        _, flat = minimise(loss, matrix.ravel(), ftol=1e-7, maxiter=steps, signed=True, cost=cost)
        found = flat.reshape(matrix.shape)
        matrix = found / np.abs(found @ few.basis).sum(axis=0).max()
    return matrix


class _Loss:
    """The log of the smoothed error of combinations of the basis, with its gradient."""

    def __init__(self, few: Few, shape: tuple[int, ...], smooth: float, power: int) -> None:
        self.basis, self.cost, self.shape = few.basis, few.loss, shape
        self.smooth, self.power = smooth, power

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        L = flat.reshape(self.shape)
        A = L @ self.basis
        size = np.sqrt(A * A + self.smooth**2)
        columns = size.sum(axis=0)
        largest = float(columns.max())
        powers = (columns / largest) ** (self.power - 1)
        sum_of = float((powers * columns).sum()) / largest
        try:
            inverse = np.linalg.inv(L.T @ L)
        except np.linalg.LinAlgError:
            return np.inf, np.zeros_like(flat)
        spread = self.cost @ inverse
        total = float(np.trace(spread))
        if not total > 0:
            return np.inf, np.zeros_like(flat)
        value = 2 * (np.log(largest) + np.log(sum_of) / self.power) + np.log(total)
        share = powers / (largest * sum_of)
        slope = 2 * ((A / size) * share) @ self.basis.T - (2 / total) * (L @ inverse @ spread)
        return float(value), np.asarray(slope).ravel()


def _realise(problem: Problem, few: Few, matrix: Floats) -> Iterator[ProductStrategy]:
    """Yield the strategy of whole combinations of the basis."""
    rows = whole_rows(few, matrix, problem.noise)
    if rows is not None:
        name = problem.names[0]
        domain = problem.workload.domain
        yield assemble(domain, {name: rows}, {problem.names: 1.0}, problem.noise, "few queries")


def _places(unit: Floats, largest: Floats) -> int:
    """Return the binary places of combinations, so that queries of large numbers keep theirs.

    ``unit`` has shape (rows, rank), ``largest`` (rank,) the largest number of each query.
    """
    sizes = np.abs(unit).max(axis=0)
    spread = float(np.log2(sizes.max() / max(float(sizes.min()), 2.0**-MOST_PLACES)))
    left = MOST_PLACES - float(np.log2((np.abs(unit) @ largest).max()))
    return max(BINARY_PLACES, int(min(BINARY_PLACES + spread, left)))


def whole_rows(few: Few, matrix: Floats, noise: Noise) -> Integers | None:
    """Return integer combinations of the basis, None where rounding loses one of them.

    ``matrix`` has shape (rows, rank), the result (rows, cells).
    """
    scale = float(2**BINARY_PLACES)
    if float(np.abs(few.basis).max()) * scale >= 2.0**53:
        return None
    basis = np.rint(few.basis * scale).astype(np.int64)
    basis //= max(1, int(np.gcd.reduce(basis, axis=None)))
    unit = matrix / np.abs(matrix).max()
    largest = np.abs(basis).max(axis=1).astype(np.float64)
    whole = np.rint(np.ldexp(unit, _places(unit, largest))).astype(np.int64)
    whole = whole[whole.any(axis=1)]
    sizes = np.abs(whole).max(axis=0)
    if not sizes.all() or np.linalg.matrix_rank(whole / sizes) < len(basis):
        return None
    if float((np.abs(whole) @ largest).max()) >= 2.0**53:
        return None
    rows: Integers = whole @ basis
    rows //= max(1, int(np.gcd.reduce(rows, axis=None)))
    return rows
