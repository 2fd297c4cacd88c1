"""Best strategy under Gaussian noise for one attribute, with a certificate of optimality.

The problem is: minimise tr(X^-1 V) over X > 0 with diag(X) = 1, where X = A'A. It is convex. For
any weights D > 0 the weighted singular value bound S^2 / sum(D), S the sum of the singular values
of W D^(1/2), is a lower bound, and the best of these bounds is the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dpsql.algebra.blocks import AllRange, Columns, Prefix
from dpsql.algebra.connected_components import MOST_OF_PART, by_size, parts_of
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.records import dataclass
from dpsql.search.problem import FAST
from dpsql.search.work_limit import EIGEN, may_go_on, spend, threads_for

TRIDIAGONAL_FROM = 512
"""From this size on, the tridiagonal inverse Gram of Prefix and AllRange is used."""
FAST_WORK = 0.3, 1.0
"""Work of the eigenvectors there, and of a feasible strategy, in cubes of the cells: as measured.

Counted as those of any matrix, 4096 cells had one step, and a sixth more error than with ten.
"""
STRETCHED_TOL = 1e-4
"""Gap of the smaller problem from whose weights a large one starts."""
LARGE_ABOVE = 2048
"""Above this size the gap to reach is wider and is tested less often."""
SINGULAR = 1e-13
"""Relative size below which an eigenvalue counts as zero."""
FLOOR = 1e-9
"""Least relative weight of a cell whose constraint is slack."""
FILL_EVERY = 3
"""Iterations between two evaluations of the feasible strategy."""

Spectrum: TypeAlias = Callable[[Floats], tuple[Floats, Floats]]
"""From weights D to eigenvalues and eigenvectors of D^(1/2) V D^(1/2)."""


@dataclass(frozen=True, slots=True)
class ConvexResult:
    """Rows A (rows, n) whose columns have L2 norm at most 1, and bounds on the optimum.

    ``upper`` is the unit-noise total squared error tr(V (A'A)^+) of ``matrix``; no strategy of
    unit L2 sensitivity has less than ``lower``.
    """

    matrix: Floats
    lower: float
    upper: float


def optimise(
    gram: Floats | Operator, *, tol: float | None = None, maxiter: int = 100
) -> ConvexResult:
    """Return the optimal strategy, or the best in ``maxiter`` steps.

    For large domains the feasible strategy, the costliest part of a step, is only formed where the
    bound has settled.

    Fixed point on the dual weights: D <- D x^2, x the diagonal of D^(-1/2) M^(1/2) D^(-1/2). Its
    scaled solution with the diagonal filled up to 1 is feasible, also for singular V.

    Args:
        gram: V, (n, n).
        tol: relative gap to the bound; 1e-6 unless given, for large domains 1e-5, or 1e-3 without
            a tridiagonal inverse.
        maxiter: most steps.

    Source: the convex problem of Yuan et al. (COA), section 3, by a dual fixed point of our own;
    weighted bounds extend Li and Miklau's singular value bound.
    """
    if isinstance(gram, Columns) and gram.permutes:
        found = optimise(gram.op, tol=tol, maxiter=maxiter)
        return ConvexResult(found.matrix[:, gram.index], found.lower, found.upper)
    if not (isinstance(gram, Operator) and gram.n >= TRIDIAGONAL_FROM and isinstance(gram, FAST)):
        gram = gram.gram() if isinstance(gram, Operator) else gram
        labels = parts_of(gram)
        if labels is not None:
            return _apart(gram, labels, tol, maxiter)
    with threads_for(gram.n if isinstance(gram, Operator) else len(gram)):
        return _fixed_point(gram, tol, maxiter)[0]


def _fixed_point(
    gram: Floats | Operator, tol: float | None, maxiter: int
) -> tuple[ConvexResult, Floats]:
    """Return what ``optimise`` does, and the dual weights where it ended."""
    n, spectrum = _spectrum(gram)
    if tol is None:
        tol = 1e-6 if n <= LARGE_ABOVE else 1e-5 if isinstance(gram, FAST) else 1e-3
    eigen, filling = FAST_WORK if isinstance(gram, FAST) else (EIGEN, EIGEN)
    settled = tol
    power, lower, last = 2.0, 0.0, 0.0
    D = _stretched(gram, maxiter) if isinstance(gram, FAST) and n > LARGE_ABOVE else np.ones(n)
    best = ConvexResult(np.ones((1, n)), 0.0, np.inf)
    for iteration in range(maxiter):
        values, vectors = spectrum(D)
        roots = np.sqrt(values)
        total = float(roots.sum())
        if total == 0:
            return ConvexResult(np.ones((1, n)), 0.0, 0.0), D
        x = (vectors**2) @ roots / D
        bound = total**2 / float(D.sum())
        lower = max(lower, bound)
        moved = abs(bound - last) / bound
        due = iteration % FILL_EVERY == 0 if n <= LARGE_ABOVE else moved < settled
        spend(float(n) ** 3 * (eigen + filling if due else eigen))
        is_last = iteration == maxiter - 1 or not may_go_on()
        if due or is_last:
            rows, upper = _filled(values, vectors, D, x)
            if upper < best.upper:
                best = ConvexResult(rows, lower, upper)
            if best.upper <= lower * (1 + tol) or is_last:
                break
            # The gap shrinks with the steps of the bound: wait until they are small enough.
            settled = min(settled / 2, moved * tol / (best.upper / lower - 1))
        if bound < last:
            # The bound fell, so that steps swing beyond the fixed point: half as far from now on.
            power = max(power / 2, 0.5)
        last = bound
        D *= x**power
        # A weight of zero would stay zero in all later steps.
        D = np.maximum(D, FLOOR * D.max())
        # Only ratios matter; the sum is held so that powers neither vanish nor overflow.
        D *= n / D.sum()
    return ConvexResult(best.matrix, min(lower, best.upper), best.upper), D


def _stretched(gram: Prefix | AllRange, maxiter: int) -> Floats:
    """Return the weights of a quarter of the cells, stretched: one step from there is near."""
    n, quarter = gram.n, type(gram)(gram.n // 4)
    _, D = _fixed_point(quarter, STRETCHED_TOL, maxiter)
    # Centres of cells on the scale of the quarter's.
    places = (np.arange(n) + 0.5) * len(D) / n - 0.5
    return np.asarray(np.interp(places, np.arange(len(D)), D))


def _apart(gram: Floats, labels: Integers, tol: float | None, maxiter: int) -> ConvexResult:
    """Return the optimum of every part by itself: together they are that of all.

    Signs of all cells of a part change neither the Gram nor the constraints, and the problem is
    convex, so that some optimum has no entry between two parts. Parts of a size are taken together.
    """
    rows: list[Floats] = []
    lower = upper = 0.0
    for cells in by_size(labels):
        V = gram[cells[:, :, np.newaxis], cells[:, np.newaxis]]
        found = _together(V, tol or 1e-6, maxiter) if cells.shape[1] <= MOST_OF_PART else None
        if found is None:
            found = [optimise(each, tol=tol, maxiter=maxiter) for each in V]
        for own, each in zip(cells, found, strict=True):
            part = np.zeros((len(each.matrix), len(gram)))
            part[:, own] = each.matrix
            rows.append(part)
            lower, upper = lower + each.lower, upper + each.upper
    return ConvexResult(np.concatenate(rows), lower, upper)


def _together(V: Floats, tol: float, maxiter: int) -> list[ConvexResult] | None:
    """Return what ``optimise`` does of many small Grams (parts, n, n); None if one is singular."""
    count, n, _ = V.shape
    D, power, last = np.ones((count, n)), np.full(count, 2.0), np.zeros(count)
    lower, upper, rows = np.zeros(count), np.full(count, np.inf), np.zeros_like(V)
    for iteration in range(maxiter):
        sides = np.sqrt(D)
        values, vectors = np.linalg.eigh(V * sides[:, np.newaxis] * sides[:, :, np.newaxis])
        if not (values[:, 0] > SINGULAR * values[:, -1]).all():
            return None
        roots = np.sqrt(values)
        total = roots.sum(axis=1)
        x = np.einsum("pij,pj->pi", vectors**2, roots) / D
        bound = total**2 / D.sum(axis=1)
        lower = np.maximum(lower, bound)
        spend(2 * EIGEN * count * float(n) ** 3)
        is_last = iteration == maxiter - 1 or not may_go_on()
        if iteration % FILL_EVERY == 0 or is_last:
            tried, errors = _all_filled(values, vectors, D, x)
            better = errors < upper
            rows[better], upper[better] = tried[better], errors[better]
            if (upper <= lower * (1 + tol)).all() or is_last:
                break
        power = np.where(bound < last, np.maximum(power / 2, 0.5), power)
        last = bound
        D *= x ** power[:, np.newaxis]
        D = np.maximum(D, FLOOR * D.max(axis=1, keepdims=True))
        D *= n / D.sum(axis=1, keepdims=True)
    ends = zip(rows, np.minimum(lower, upper).tolist(), upper.tolist(), strict=True)
    return [ConvexResult(*each) for each in ends]


def _all_filled(values: Floats, vectors: Floats, D: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Return ``_filled`` of many Grams of full rank: rows (parts, n, n), and total errors."""
    largest = x.max(axis=1)[:, np.newaxis]
    scaled = vectors * (np.sqrt(values) / largest)[:, np.newaxis]
    Y = scaled @ vectors.transpose(0, 2, 1)
    places = np.arange(D.shape[1])
    Y[:, places, places] += D * (1 - x / largest)
    factor = np.linalg.cholesky(Y)
    solved = np.linalg.solve(factor, vectors * np.sqrt(values)[:, np.newaxis])
    rows = factor.transpose(0, 2, 1) / np.sqrt(D)[:, np.newaxis]
    return rows, np.square(solved).sum(axis=(1, 2))


def weighted_bound(gram: Floats, D: Floats) -> float:
    """Return the weighted singular value bound S^2 / sum(D) on the unit-noise total error.

    Args:
        gram: V, (n, n).
        D: (n,) weights of cells, positive.

    >>> round(weighted_bound(np.ones((3, 3)), np.ones(3)), 9)
    1.0
    """
    _, spectrum = _spectrum(gram)
    return float(np.sqrt(spectrum(D)[0]).sum() ** 2 / D.sum())


def certify(gram: Floats, X: Floats) -> ConvexResult:
    """Return the strategy of a positive definite X with unit diagonal, and its certificate.

    The weights D = diag(X^-1 V X^-1) are the multipliers of the constraints; their bound is tight
    at the optimum.
    ``gram`` (V) and ``X`` have shape (n, n).
    """
    Z = np.linalg.inv(X)
    ZV = Z @ gram
    D = np.maximum(np.einsum("ij,ji->i", ZV, Z), 0)
    upper = float(np.trace(ZV))
    rows = np.asarray(np.linalg.cholesky(X).T, dtype=np.float64)
    return ConvexResult(rows, min(weighted_bound(gram, D), upper), upper)


def _spectrum(gram: Floats | Operator) -> tuple[int, Spectrum]:
    if isinstance(gram, Operator):
        if gram.n >= TRIDIAGONAL_FROM and isinstance(gram, FAST):
            return gram.n, _tridiagonal(gram)
        gram = gram.gram()
    V = np.asarray(gram, dtype=np.float64)

    def dense(D: Floats) -> tuple[Floats, Floats]:
        roots = np.sqrt(D)
        values, vectors = np.linalg.eigh(V * roots * roots[:, None])
        kept = np.where(values > SINGULAR * values[-1], values, 0.0)
        return kept.astype(np.float64), vectors.astype(np.float64, copy=False)

    return len(V), dense


def _tridiagonal(workload: Prefix | AllRange) -> Spectrum:
    from scipy.linalg import eigh_tridiagonal  # scipy: up to .3 s

    n = workload.n
    diagonal, beside = np.full(n, 2.0), np.full(n - 1, -1.0)
    if isinstance(workload, Prefix):
        diagonal[0] = 1
    else:
        diagonal, beside = diagonal / (n + 1), beside / (n + 1)

    def inverse(D: Floats) -> tuple[Floats, Floats]:
        values, vectors = eigh_tridiagonal(diagonal / D, beside / np.sqrt(D[1:] * D[:-1]))
        return 1 / values, np.asarray(vectors, dtype=np.float64)

    return inverse


def _filled(values: Floats, vectors: Floats, D: Floats, x: Floats) -> tuple[Floats, float]:
    """Return rows A with A'A = X / max(x), its diagonal raised to 1, and their total error.

    Everything is computed as D^(1/2) X D^(1/2), which stays well scaled where D is tiny.
    """
    Y = (vectors * (np.sqrt(values) / x.max())) @ vectors.T
    Y[np.diag_indices_from(Y)] += D * (1 - x / x.max())
    root = vectors * np.sqrt(values)
    if values.min() > SINGULAR * values.max():
        factor = np.linalg.cholesky(Y)
        return factor.T / np.sqrt(D), float(np.square(_solve_lower(factor, root)).sum())
    scale, basis = np.linalg.eigh(Y)
    kept = scale > SINGULAR * scale[-1]
    scale, basis = scale[kept], basis[:, kept]
    error = float((np.square(basis.T @ root).sum(axis=1) / scale).sum())
    rows = (basis * np.sqrt(scale)).T / np.sqrt(D)
    norm2 = float(np.square(rows).sum(axis=0).max())
    return rows / np.sqrt(norm2), error * norm2


def _solve_lower(factor: Floats, right: Floats) -> Floats:
    if len(factor) < TRIDIAGONAL_FROM:
        return np.asarray(np.linalg.solve(factor, right), dtype=np.float64)
    from scipy.linalg import solve_triangular  # scipy: up to .3 s

    with threads_for(len(factor)):  # scipy's libraries may be here since now alone
        return np.asarray(solve_triangular(factor, right, lower=True, check_finite=False))
