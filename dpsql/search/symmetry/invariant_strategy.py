"""Optimal invariant strategies under Gaussian noise, on components of a reduced workload.

The convex problem of one attribute, minimise tr(X^-1 V) subject to diag(X) <= 1, has an invariant
solution whenever V is invariant, so only one number per orbit tuple is constrained and X splits
into one small matrix per component. The weighted singular value bounds keep their form.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass
from dpsql.search.symmetry.reduction import Reduction
from dpsql.search.work_limit import EIGEN, may_go_on, spend

FLOOR = 1e-7
"""Least relative weight of an orbit tuple whose constraint is slack."""

FILL_EVERY = 3
"""Iterations between two evaluations of the feasible strategy."""

STEP_BACK = 1e-6
"""Relative loss of the lower bound at which a step is taken back."""

MEMORY = 5
"""Steps the acceleration looks back."""

RIDGE = 1e-9
"""Part of the sensitivity that keeps the filled strategy positive definite."""

SINGULAR = 1e-13
"""Relative size below which an eigenvalue counts as zero."""


@dataclass(frozen=True, slots=True)
class InvariantStrategy:
    """An invariant strategy of unit L2 norm: one Gram (K, K) per component, orthonormal basis.

    ``upper`` is its unit-noise total squared error; no strategy of unit L2 norm on the full
    domain has less than ``lower``. ``weights`` are the dual weights that prove it.
    """

    grams: tuple[Floats, ...]
    lower: float
    upper: float
    weights: Floats


@dataclass(frozen=True, slots=True)
class _EqualSizes:
    """Components of equal size K: Grams (b, K, K), positions (b, K), copies (b,).

    ``roots`` (b, K, K) are the symmetric roots of the Grams.
    """

    members: list[int]
    grams: Floats
    roots: Floats
    where: Integers
    copies: Floats


def optimise(
    reduction: Reduction, *, tol: float = 3e-5, maxiter: int = 60, start: Floats | None = None
) -> InvariantStrategy:
    """Return the optimal strategy, or the best in ``maxiter`` steps.

    Args:
        tol: relative gap to the bound.
        maxiter: most steps.
        start: (orbit tuples,) dual weights to begin with.

    Source: the convex problem of Yuan et al. (COA), section 3, by a dual fixed point
    D <- D x^2 in log D with Anderson's acceleration; invariance by averaging over the group.
    """
    batches, cells, room = _batches(reduction), reduction.cells, reduction.room()
    D = np.ones(len(cells)) if start is None else np.array(start, dtype=np.float64)
    steps, lower = _Acceleration(), 0.0
    best: InvariantStrategy | None = None
    work = sum(EIGEN * batch.roots.size * batch.roots.shape[-1] for batch in batches)
    for iteration in range(maxiter):
        if best is not None and not may_go_on():
            break
        spend(work)
        spectra = [_spectrum(batch, D) for batch in batches]
        total, x = _dual(batches, spectra, cells, D)
        bound = total**2 / float(cells @ D)
        if best is None or iteration % FILL_EVERY == 0 or iteration == maxiter - 1:
            grams, upper = _feasible(batches, spectra, room, D, x)
            if best is None or upper < best.upper:
                best = InvariantStrategy(_in_order(batches, grams), lower, upper, D)
        lower = max(lower, bound)
        if best.upper <= lower * (1 + tol):
            break
        D = steps.next(D, x, cells, bound)
    assert best is not None
    return InvariantStrategy(best.grams, min(lower, best.upper), best.upper, best.weights)


class _Acceleration:
    """Anderson's acceleration of u <- u + 2 log x, u = log D, over the last few steps.

    A step that loses is taken back: a plain step from the best point follows, half as long if
    that one had been plain already.
    """

    def __init__(self) -> None:
        self.points: list[Floats] = []
        self.residuals: list[Floats] = []
        self.best: tuple[Floats, Floats] = (np.empty(0), np.empty(0))
        self.bound = 0.0
        self.power = 2.0

    def next(self, D: Floats, x: Floats, cells: Floats, bound: float) -> Floats:
        """Return the next weights; their sum over all cells is the number of cells."""
        if bound < self.bound * (1 - STEP_BACK):
            if len(self.points) == 1:
                # Not below a quarter, where steps would no longer get anywhere within ``maxiter``.
                self.power = max(self.power / 2, 0.25)
            self.points, self.residuals = [self.best[0]], [self.best[1]]
            return _normal(self.best[0] + self.power * self.best[1], cells)
        scale = cells * D
        positive = np.maximum(x, FLOOR * x.max())
        residual = np.log(positive * scale.sum() / float(scale @ positive))
        self.points = [*self.points[-MEMORY:], np.log(D)]
        self.residuals = [*self.residuals[-MEMORY:], residual]
        if bound >= self.bound:
            self.bound, self.best = bound, (self.points[-1], residual)
        u = self.points[-1] + self.power * residual
        if len(self.points) > 1:
            du = self.points[-1] - np.array(self.points[:-1])
            df = residual - np.array(self.residuals[:-1])
            root = np.sqrt(scale)
            # Late residuals are nearly parallel: directions of less than 1e-8 are noise.
            mix = np.linalg.lstsq((df * root).T, root * residual, rcond=1e-8)[0]
            u = u - mix @ (du + self.power * df)
        return _normal(u, cells)


def _normal(u: Floats, cells: Floats) -> Floats:
    """Return exp(u), no entry negligible, scaled to sum to the number of cells."""
    D = np.exp(np.maximum(u - u.max(), np.log(FLOOR)))
    return np.asarray(D * (cells.sum() / float(cells @ D)))


def _dual(
    batches: Sequence[_EqualSizes],
    spectra: Sequence[tuple[Floats, Floats]],
    cells: Floats,
    D: Floats,
) -> tuple[float, Floats]:
    """Return the sum of singular values of W D^(1/2), and the diagonal x of its solution."""
    x = np.zeros(len(cells))
    total = 0.0
    for batch, (roots, vectors) in zip(batches, spectra, strict=True):
        total += float(batch.copies @ roots.sum(axis=1))
        diagonal = np.einsum("bij,bj->bi", vectors**2, roots) * batch.copies[:, np.newaxis]
        np.add.at(x, batch.where, diagonal)
    return total, x / (cells * D)


def _batches(reduction: Reduction) -> list[_EqualSizes]:
    sizes: dict[int, list[int]] = {}
    for position, component in enumerate(reduction.components):
        sizes.setdefault(len(component.gram), []).append(position)
    parts = reduction.components
    batches = []
    for members in sizes.values():
        grams = np.array([parts[m].gram for m in members])
        values, vectors = np.linalg.eigh(grams)
        kept = np.sqrt(np.where(values > SINGULAR * values[:, -1:], values, 0.0))
        roots = (vectors * kept[:, np.newaxis, :]) @ vectors.transpose(0, 2, 1)
        where = np.array([parts[m].where for m in members])
        copies = np.array([float(parts[m].copies) for m in members])
        batches.append(_EqualSizes(members, grams, roots, where, copies))
    return batches


def _spectrum(batch: _EqualSizes, D: Floats) -> tuple[Floats, Floats]:
    """Return the roots of the eigenvalues, and the eigenvectors, of D^(1/2) V D^(1/2)."""
    roots = np.sqrt(D[batch.where])
    scaled = batch.grams * roots[:, :, np.newaxis] * roots[:, np.newaxis, :]
    values, vectors = np.linalg.eigh(scaled)
    kept = np.where(values > SINGULAR * values[:, -1:], values, 0.0)
    return np.sqrt(kept), vectors


def _feasible(
    batches: Sequence[_EqualSizes],
    spectra: Sequence[tuple[Floats, Floats]],
    room: Floats,
    D: Floats,
    x: Floats,
) -> tuple[list[Floats], float]:
    """Return X / max(x) filled to unit columns, and its total error.

    The diagonal is raised evenly over the components that meet an orbit tuple; raising it never
    increases the error. Everything is computed as D^(1/2) X D^(1/2), which stays well scaled.
    """
    shrink = (1 - RIDGE) / x.max()
    fill = D * (1 - x * shrink) * room
    grams, error = [], 0.0
    for batch, (roots, vectors) in zip(batches, spectra, strict=True):
        scale = np.sqrt(D[batch.where])[:, :, np.newaxis]
        Y = (vectors * (roots * shrink)[:, np.newaxis, :]) @ vectors.transpose(0, 2, 1)
        diagonal = np.arange(Y.shape[1])
        Y[:, diagonal, diagonal] += fill[batch.where]
        solved = np.linalg.solve(np.linalg.cholesky(Y), batch.roots * scale)
        error += float(batch.copies @ np.square(solved).sum(axis=(1, 2)))
        grams.append(Y / scale / scale.transpose(0, 2, 1))
    return grams, error


def _in_order(batches: Sequence[_EqualSizes], grams: Sequence[Floats]) -> tuple[Floats, ...]:
    """Return the Grams of all batches in the order of the components."""
    found = {
        m: part
        for batch, stack in zip(batches, grams, strict=True)
        for m, part in zip(batch.members, stack, strict=True)
    }
    return tuple(found[m] for m in range(len(found)))
