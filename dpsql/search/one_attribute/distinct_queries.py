"""Few distinct queries over the cells of one attribute, and independent ones among them."""

from __future__ import annotations

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass
from dpsql.search.problem import Problem
from dpsql.search.symmetry.symmetric_queries import SymmetricQueries

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

APART = 1e-6
"""Part of the largest number of a query by which its others differ at least; its square, not."""

SPARSE_FROM, SPARSE = 1 << 15, 1 / 8
"""Numbers of queries from which on only those that are not zero are multiplied, and the part that
these are at most."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """Distinct whole queries (m, n), and the sum of the squared weights of each.

    ``basis`` are independent ones among them, and ``queries = coefficients @ basis``. Of more than
    few, which are ``alike`` is known.
    """

    queries: Floats
    weights2: Floats
    basis: Floats
    coefficients: Floats
    alike: SymmetricQueries | None = None

    @property
    def is_thin(self) -> bool:
        """True if cells are so many more than queries that no search over cells is worth it."""
        n = self.basis.shape[1]
        return bool(n > THIN_FROM and n > THIN * len(self.basis))

    @property
    def is_graded(self) -> bool:
        """True if cells differ by values that are summed: conditions tell fewer of them apart."""
        return bool(self.basis.shape[1] > 2.0 ** len(self.basis))

    @property
    def is_full(self) -> bool:
        """True if queries are so many that combinations of them are hardly fewer than cells."""
        return bool(FULL * len(self.basis) > self.basis.shape[1])

    @property
    def is_sparse(self) -> bool:
        """True if the basis is large and most of its numbers are zero."""
        size = self.basis.size
        return bool(size >= SPARSE_FROM and np.count_nonzero(self.basis) < SPARSE * size)

    @property
    def loss(self) -> Floats:
        """The Gram of the weighted coefficients: what the inverse of a combination costs."""
        weighted = self.coefficients * self.weights2[:, np.newaxis]
        return np.asarray(self.coefficients.T @ weighted)


def read_few(problem: Problem) -> LowRank | None:
    """Return the distinct queries of one attribute, None where they are many or not whole."""
    found = distinct_queries(problem, FEW_ROWS, FEW_NUMBERS)
    return None if found is None else independent(*found)


def independent(queries: Floats, weights2: Floats) -> LowRank:
    """Return distinct queries (m, n) with independent ones among them.

    ``weights2`` (m,) are the sums of their squared weights.
    """
    basis = queries[_independent(queries)]
    coefficients = np.asarray(np.linalg.lstsq(basis.T, queries.T, rcond=None)[0].T)
    # Residue of least squares: true coefficients are ratios of small whole numbers.
    coefficients[np.abs(coefficients) < 1e-9] = 0
    return LowRank(queries, weights2, basis, coefficients)


def distinct_queries(
    problem: Problem, most: int, most_numbers: int
) -> tuple[Floats, Floats] | None:
    """Return the whole distinct queries (m, n) of one attribute, and their squared weights (m,).

    Args:
        most: of the queries; None where there are more.
        most_numbers: of all rows that are asked; None where there are more.
    """
    factors, components = problem.factors[0], problem.components
    if sum(op.rows for op in factors.operators) * factors.n > most_numbers:
        return None
    rows, weights = [], []
    for (which,), weight2 in zip(components.index, components.weights2, strict=True):
        part = np.ones((1, factors.n)) if which < 0 else factors.operators[which].dense()
        whole, units = in_units(np.asarray(part, dtype=np.float64))
        rows.append(whole)
        weights.append(weight2 * units**2)
    stacked = np.concatenate(rows)
    queries, inverse = np.unique(stacked, axis=0, return_inverse=True)
    weights2: Floats = np.bincount(inverse.reshape(-1), np.concatenate(weights)).astype(np.float64)
    asked = queries.any(axis=1)
    queries, weights2 = queries[asked], weights2[asked]
    whole = np.ldexp(queries, BINARY_PLACES)
    if not 0 < len(queries) <= most or not np.array_equal(whole, np.rint(whole)):
        return None
    return queries, weights2


def in_units(rows: Floats) -> tuple[Floats, Floats]:
    """Return queries (m, n) as whole numbers of a unit of their own, and the units (m,).

    Rows stay where that is not what they are. Sums of decimals are: their values are hundredths,
    which no binary fraction is.
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
        # Rows were of length one: what is left of a dependent one is rounding, far less than this.
        if size > 1e-7:
            unit = left[place] / size
            chosen.append(int(place))
            left = left - np.outer(left @ unit, unit)
    return chosen
