"""Local optima of block weights, many at once: fixed-point steps with extrapolation."""

from __future__ import annotations

import numpy as np

from dpsql.plan.noise_law import Noise, law
from dpsql.plan.templates.problem import Floats

FLOOR = 1e-12
"""Least weight relative to the largest: small weights fall to it and then count for nothing."""

LONGEST = 64.0
"""Longest extrapolation, in steps."""


def relax(
    w: Floats, rows: Floats, R: Floats, noise: Noise, *, cycles: int, tol: float
) -> tuple[Floats, Floats, int]:
    """Return (errors, weights, evaluations) of a batch of starts after a number of cycles.

    ``w`` has shape (batch, sets) and ``rows`` (batch, sets, components): the precision that a unit
    squared weight gives. At an optimum the shares p of the sensitivity are the shares q of the
    error, and w (q/p)^(1/3) (Laplace; 1/4 for Gaussian) is the exact optimum for disjoint
    supports. Two such steps in log w give the direction and length of an extrapolated third,
    which is taken where the error falls. Ends early when every predicted decrease is below tol.

    Source: HDMM, section 6.3 (the objective); Varadhan and Roland 2008 (the extrapolation).
    """
    w = np.maximum(w / w.max(axis=1, keepdims=True), FLOOR)
    errors, p, q = evaluate(w, rows, R, noise)
    count = 1
    for _ in range(cycles):
        gap = (p - q) * np.log(np.maximum(p, FLOOR) / np.maximum(q, FLOOR))
        if not (gap.sum(axis=1) > tol).any():
            break
        first = _step(w, p, q, noise)
        middle, p1, q1 = evaluate(first, rows, R, noise)
        second = _step(first, p1, q1, noise)
        tried = _extrapolated(w, first, second, p)
        errors, p, q = evaluate(tried, rows, R, noise)
        count += 2
        worse = ~(errors <= middle)
        w = tried
        if worse.any():
            w[worse] = second[worse]
            errors[worse], p[worse], q[worse] = evaluate(w[worse], rows[worse], R, noise)
            count += 1
    return errors, w, count


def evaluate(w: Floats, rows: Floats, R: Floats, noise: Noise) -> tuple[Floats, Floats, Floats]:
    """Return the errors, and per set its shares of the sensitivity and of the error."""
    squares = w * w
    precision = np.matmul(squares[:, np.newaxis, :], rows)[:, 0]
    parts = R / precision
    total = parts.sum(axis=1)
    pull = np.matmul(rows, (parts / precision)[:, :, np.newaxis])[:, :, 0]
    q = squares * pull / total[:, np.newaxis]
    is_l1 = law(noise).norm == 1
    norm = w.sum(axis=1) if is_l1 else squares.sum(axis=1)
    p = (w if is_l1 else squares) / norm[:, np.newaxis]
    return np.asarray((norm**2 if is_l1 else norm) * total), p, np.asarray(q)


def _step(w: Floats, p: Floats, q: Floats, noise: Noise) -> Floats:
    ratio = np.maximum(q, 1e-200) / np.maximum(p, 1e-200)
    return _scaled(w * (np.cbrt(ratio) if law(noise).norm == 1 else ratio**0.25))


def _scaled(w: Floats) -> Floats:
    return np.asarray(np.maximum(w / w.max(axis=1, keepdims=True), FLOOR))


def _extrapolated(w: Floats, first: Floats, second: Floats, p: Floats) -> Floats:
    z, z1 = np.log(w), np.log(first)
    change = z1 - z
    turn = np.log(second) - z1 - change
    lengths = (p * change * change).sum(axis=1) / np.maximum((p * turn * turn).sum(axis=1), 1e-300)
    a = np.clip(np.sqrt(lengths), 1.0, LONGEST)[:, np.newaxis]
    moved = z + 2 * a * change + a * a * turn
    moved -= moved.max(axis=1, keepdims=True)
    return np.asarray(np.exp(np.maximum(moved, np.log(FLOOR))))
