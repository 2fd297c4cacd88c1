"""Spectra of factor Grams, and orthonormal bases that suit several of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsql.algebra.blocks import AllRange, Columns, Identity, IdentityTotal, Prefix, Total
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Array, Floats, Operator

SPECTRUM_LIMIT = 1024
"""Largest matrix whose eigenvalues are computed."""
NEGLIGIBLE = 1e-13
"""Relative size below which an eigenvalue counts as zero."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An orthonormal basis of one attribute's cells, in groups that its Grams treat alike.

    With G_f the Gram of factor f divided by the number of cells, and e any vector of group g:
    ``values[f, g]`` is e'G_f e and ``sizes[g]`` the number of vectors. ``products[f, h, g]`` is
    e'G_f G_h e, None when every e is an eigenvector of every Gram. If one factor is Total, group
    0 is the direction of 1 alone.
    """

    values: Floats
    sizes: Floats
    products: Floats | None = None


def spectrum(op: Operator) -> Floats:
    """Return the eigenvalues of a Gram; of a large unknown one, its trace as a single value."""
    n, k = op.n, np.arange(1, op.n + 1)
    if isinstance(op, Columns) and op.permutes:
        return spectrum(op.op)
    if isinstance(op, Prefix):
        return np.asarray(1 / (4 * np.sin((2 * k - 1) * np.pi / (4 * n + 2)) ** 2))
    if isinstance(op, AllRange):
        return np.asarray((n + 1) / (4 * np.sin(k * np.pi / (2 * n + 2)) ** 2))
    points = points_and_total(op)
    if points is not None:
        a, b = points
        return np.array([a + b * n] + [a] * (n - 1), dtype=np.float64)
    if n > SPECTRUM_LIMIT:
        return np.array([op.frobenius2()])
    return clipped(np.linalg.eigvalsh(op.gram()))


def points_and_total(op: Operator) -> tuple[float, float] | None:
    """Return (a, b) when the Gram is a I + b J, else None.

    >>> points_and_total(IdentityTotal(4)), points_and_total(Prefix(4))
    ((1.0, 1.0), None)
    """
    if isinstance(op, (Identity, Total, IdentityTotal)):
        return float(not isinstance(op, Total)), float(not isinstance(op, Identity))
    if isinstance(op, Groups):
        return (1.0, 0.0) if op.alone else None
    if op.n > SPECTRUM_LIMIT or (isinstance(op, (Prefix, AllRange)) and op.n > 2):
        return None
    gram = op.gram()
    b = float(gram[0, -1]) if op.n > 1 else 0.0
    a = float(gram[0, 0]) - b
    close = np.allclose(gram, a * np.eye(op.n) + b, rtol=1e-12, atol=1e-12 * abs(gram[0, 0]))
    return (a, b) if close else None


def clipped(values: Array) -> Floats:
    """Return eigenvalues with the negligible ones, which may be negative, set to zero."""
    kept = values > NEGLIGIBLE * values.max()
    return np.asarray(np.where(kept, values, 0.0), dtype=np.float64)


def common_axis(operators: tuple[Operator, ...]) -> Axis | None:
    """Return a basis for the factors of one attribute, None when they are too large to analyse."""
    n = operators[0].n
    points = [points_and_total(op) for op in operators]
    if all(p is not None for p in points):
        pairs = np.array([p for p in points if p is not None])
        values = np.stack([pairs[:, 0] / n + pairs[:, 1], pairs[:, 0] / n], axis=1)
        sizes = np.array([1.0, n - 1.0])
        return Axis(values[:, : min(n, 2)], sizes[: min(n, 2)])
    if len(operators) == 1:
        values = spectrum(operators[0]) / n
        return Axis(values[None], np.ones(len(values))) if len(values) == n else None
    if n > SPECTRUM_LIMIT // 2 or len(operators) ** 2 * n > 2**24:
        return None
    return _mixed_axis(operators)


def _mixed_axis(operators: tuple[Operator, ...]) -> Axis:
    """Return the eigenvectors of the normalised sum of the Grams, beside 1 if one is Total."""
    n = operators[0].n
    grams = [op.gram() / n for op in operators]
    mixed = np.zeros((n, n))
    for k, gram in enumerate(grams):
        mixed += (1 + 1 / (k + 2)) * gram / max(1e-300, float(np.trace(gram)))
    if any(isinstance(op, Total) for op in operators):
        centre = np.eye(n) - 1 / n
        above = (1 + np.trace(mixed)) / n
        _, basis = np.linalg.eigh(centre @ mixed @ centre + above)
        basis = np.roll(basis, 1, axis=1)
    else:
        _, basis = np.linalg.eigh(mixed)
    images = np.array([gram @ basis for gram in grams])
    values = clipped(np.einsum("ne,fne->fe", basis, images))
    products = np.einsum("fne,hne->fhe", images, images, optimize=True)
    squares = np.einsum("fe,he->fhe", values, values)
    if np.allclose(products, squares, rtol=1e-9, atol=1e-12 * squares.max()):
        return Axis(values, np.ones(n))
    return Axis(values, np.ones(n), products)
