"""Cells that no query brings together: parts of a Gram matrix, each with a strategy of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.algebra.connected_components import are_small, by_size, parts_of
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.search.one_attribute.opt0 import minimise
from dpsql.search.work_limit import spend

STARTS = (0.05, 1.0, 8.0, 30.0)
"""Sizes of learned rows from which each part starts; sums beside counts end far out."""

STAGES = ((1e-6, False), (1e-9, True))
"""Relative decrease per step at which the descents end, over entries and over their roots."""

MOST_STEPS = 400
"""Most steps of one descent."""


def learn_parts(gram: Floats | Operator, seed: int = 0) -> Floats | None:
    """Return learned rows (p, n) of a p-Identity strategy, each of one part of a Gram (n, n).

    All parts of a size are searched over at once, from several starts each: their errors add up.
    None where there is one part, or a large one, or nothing to learn.
    """
    if isinstance(gram, Operator):
        if not isinstance(gram, Dense | Groups):
            return None
        gram = gram.gram()
    labels = parts_of(gram)
    if labels is None or not are_small(labels):
        return None
    rows = [
        row
        for cells in by_size(labels)
        if cells.shape[1] > 1
        for row in _learned(gram, cells, seed)
    ]
    return np.asarray(rows) if rows else None


def _learned(gram: Floats, cells: Integers, seed: int) -> Iterator[Floats]:
    V = gram[cells[:, :, np.newaxis], cells[:, np.newaxis]]
    asked = np.einsum("bii->bi", V).sum(axis=1) > 0
    for part, theta in zip(cells[asked], _descended(V[asked], seed), strict=True):
        for learned in theta[theta.any(axis=1)]:
            row = np.zeros(len(gram))
            row[part] = learned
            yield row


def _descended(V: Floats, seed: int) -> Floats:
    """Return the best learned rows of every part, (parts, p, cells), none where they do not help.

    ``V`` has shape (parts, cells, cells).
    """
    count, n, _ = V.shape
    # One learned row for four cells: parts are small, and rows that do not help become zero.
    shape = (count, math.ceil(n / 4), n)
    rng = np.random.default_rng(seed)
    starts = [scale * rng.uniform(0.5, 1.5, shape) for scale in STARTS]
    (tolerance, rooted), last = STAGES
    found = [_descend(V, start, tolerance, rooted) for start in starts]
    losses = np.array([losses_of(V, theta)[0] for theta in found])
    best = np.asarray(found)[losses.argmin(axis=0), np.arange(count)]
    best = _descend(V, best, *last)
    # The trace is the loss of the identity alone, which is kept where nothing was gained.
    helps = losses_of(V, best)[0] < np.einsum("bii->b", V)
    return np.asarray(best * helps[:, np.newaxis, np.newaxis])


def _descend(V: Floats, start: Floats, tolerance: float, rooted: bool) -> Floats:
    """Return learned rows where the sum of the logs of the losses of all parts is least."""

    def total(flat: Floats) -> tuple[float, Floats]:
        x = flat.reshape(start.shape)
        losses, slopes = losses_of(V, x * x if rooted else x)
        if not (losses > 0).all():
            return math.inf, np.zeros_like(flat)
        slopes = slopes / losses[:, np.newaxis, np.newaxis]
        return float(np.log(losses).sum()), (slopes * (2 * x) if rooted else slopes).ravel()

    # A root of zero has no slope: an entry that is zero could never grow again.
    first = np.sqrt(start + 1e-9) if rooted else start
    cost = float(start.size) * (V.shape[1] + 2 * start.shape[1])
    spend(cost)
    _, flat = minimise(
        total, first.ravel(), ftol=tolerance, maxiter=MOST_STEPS, signed=rooted, cost=cost
    )
    found = flat.reshape(start.shape)
    return found * found if rooted else found


def losses_of(V: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """Return tr(V K) of every part, and its gradient, as ``opt0.loss_and_grad`` of each.

    ``V`` has shape (parts, cells, cells), ``theta`` and the gradient (parts, p, cells).
    """
    s = 1 + theta.sum(axis=1)
    images = ((theta * s[:, np.newaxis]) @ V) * s[:, np.newaxis]
    turned = theta.transpose(0, 2, 1)
    inner = np.linalg.inv(np.eye(theta.shape[1]) + theta @ turned)
    first = inner @ images
    diagonal = np.einsum("bii->bi", V) * s * s - (theta * first).sum(axis=1)
    first -= (inner @ (theta @ images.transpose(0, 2, 1)) @ inner) @ theta
    return diagonal.sum(axis=1), 2 * ((diagonal / s)[:, np.newaxis] - first)
