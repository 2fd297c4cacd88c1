"""Descents over the weights of a union whose factors are fixed, many starts at a time."""

from __future__ import annotations

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.search.marginals.set_rows import SetRows
from dpsql.strategy.noise_law import Noise, law

FLOOR = 1e-12
"""Least weight relative to the largest: small weights fall to it and then count for nothing."""

LEAST = float(np.log(FLOOR))
LONGEST = 64.0
"""Longest extrapolation, in steps; and the logarithm of FLOOR."""


def relax(
    w: Floats, rows: Floats | SetRows, R: Floats, noise: Noise, *, cycles: int, tol: float
) -> tuple[Floats, Floats, int]:
    """Return (errors, weights, evaluations) of a batch of starts after a number of cycles.

    At an optimum the shares p of the sensitivity are the shares q of the error, and w (q/p)^(1/3)
    (Laplace; 1/4 for Gaussian) is the exact optimum for disjoint supports. Two such steps in log w
    give the direction and length of an extrapolated third, which is taken where the error falls.

    Args:
        w: (batch, sets) weights.
        rows: (batch, sets, components) the precision that a unit squared weight gives; those of one
            start may be ``SetRows``.
        R: (components,) what is asked of each.
        cycles: most of them.
        tol: predicted decrease of every start below which it ends early.

    Source: HDMM, section 6.3 (the objective); Varadhan and Roland 2008 (the extrapolation).
    """
    w = _scaled(w)
    errors, p, q = evaluate(w, rows, R, noise)
    count = 1
    for _ in range(cycles):
        gap = (p - q) * np.log(np.maximum(p, FLOOR) / np.maximum(q, FLOOR))
        if not (np.add.reduce(gap, axis=1) > tol).any():
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
            again = rows if isinstance(rows, SetRows) else rows[worse]
            errors[worse], p[worse], q[worse] = evaluate(w[worse], again, R, noise)
            count += 1
    return errors, w, count


def evaluate(
    w: Floats, rows: Floats | SetRows, R: Floats, noise: Noise
) -> tuple[Floats, Floats, Floats]:
    """Return the errors (starts,), and per set its shares (starts, sets) of sensitivity and error.

    Args:
        w: (starts, sets) weights.
        rows: (starts, sets, components) what the square of each adds to the precision there.
        R: (components,) what is asked of each.
    """
    squares = w * w
    if isinstance(rows, SetRows):
        precision = rows.precision(squares[0])[np.newaxis]
    else:
        precision = np.matmul(squares[:, np.newaxis, :], rows)[:, 0]
    parts = R / precision
    total = np.add.reduce(parts, axis=1)  # without what .sum() asks first: arrays are small
    parts /= precision
    if isinstance(rows, SetRows):
        q = rows.within(parts[0])[np.newaxis]
    else:
        q = np.matmul(rows, parts[:, :, np.newaxis])[:, :, 0]
    q *= squares
    q /= total[:, np.newaxis]
    is_l1 = law(noise).norm == 1
    shared = w if is_l1 else squares
    norm = np.add.reduce(shared, axis=1)
    p = shared / norm[:, np.newaxis]
    return np.asarray((norm**2 if is_l1 else norm) * total), p, q


def _step(w: Floats, p: Floats, q: Floats, noise: Noise) -> Floats:
    ratio = np.maximum(q, 1e-200) / np.maximum(p, 1e-200)
    return _scaled(w * (np.cbrt(ratio) if law(noise).norm == 1 else ratio**0.25))


def _scaled(w: Floats) -> Floats:
    scaled = w / np.maximum.reduce(w, axis=1, keepdims=True)
    return np.asarray(np.maximum(scaled, FLOOR, out=scaled))


def _extrapolated(w: Floats, first: Floats, second: Floats, p: Floats) -> Floats:
    z, z1 = np.log(w), np.log(first)
    change = z1 - z
    turn = np.log(second) - z1 - change
    steps, turns = (
        np.add.reduce(p * change * change, axis=1),
        np.add.reduce(p * turn * turn, axis=1),
    )
    lengths = np.sqrt(steps / np.maximum(turns, 1e-300))
    a = np.minimum(np.maximum(lengths, 1.0), LONGEST)[:, np.newaxis]
    moved = z + 2 * a * change + a * a * turn
    moved -= np.maximum.reduce(moved, axis=1, keepdims=True)
    return np.asarray(np.exp(np.maximum(moved, LEAST, out=moved)))
