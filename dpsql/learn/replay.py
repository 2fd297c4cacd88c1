"""Multiplicative weights over all measurements so far, blind to differences within the noise.

Repeating the update for old measurements is free post-processing, and fits them far better than
one pass. Answers of small noisy tables are not feasible, though, and would drive weights to zero:
an answer only pulls as far as it is more than ``slack`` noise scales away.

Source: MWEM (Hardt, Ligett, McSherry 2012), section 3.3, with the dead zone, the clamped answers
and the floor of our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.learn.candidates import attributes_of, spans
from dpsql.learn.factored import FLOOR, TINY, Factored, PullTarget, Step, TablePart, pull_of
from dpsql.learn.handle import Measured
from dpsql.strategy.noise_law import law

__all__ = ["PullTarget", "Step", "replay", "target_of"]

SWEEPS = ((1 << 12, 100), (1 << 62, 20))
"""Most cells of a part, and how many sweeps over the measurements it gets at most."""
EVERY = 4
"""Every so many sweeps all measurements are looked at; between, those that moved in the last."""


def target_of(measured: Sequence[Measured], total: float) -> PullTarget:
    """Return the inverse-variance mean of measurements of one candidate, clamped to its range."""
    precision = [1 / m.stddev**2 for m in measured]
    mean = sum(p * m.values for p, m in zip(precision, measured, strict=True)) / sum(precision)
    stddev = 1 / math.sqrt(sum(precision))
    scale = law(measured[0].noise).spread_of(stddev)
    low, high = spans(measured[0].candidate)
    return PullTarget(measured[0].candidate, np.clip(mean, low * total, high * total), scale)


def replay(
    model: Factored,
    targets: Sequence[PullTarget],
    *,
    slack: float = 1.0,
    sweeps: int | None = None,
    step: Step = "multiplicative",
) -> Factored:
    """Return the model after repeated updates towards all targets.

    Every target's attributes must lie in one part. It stops when a sweep over all moves
    nothing.
    """
    parts = []
    for part in model.parts:
        own = [t for t in targets if set(attributes_of(t.candidate)) & set(part.attributes)]
        parts.append(_fit(part, own, model.total, slack, sweeps, step) if own else part)
    return Factored(model.domain, model.total, tuple(parts))


def _fit(
    part: TablePart,
    targets: Sequence[PullTarget],
    total: float,
    slack: float,
    sweeps: int | None,
    step: Step,
) -> TablePart:
    weights = part.weights.copy()
    pulls = [pull_of(part, target, total, slack, step) for target in targets]
    mass = float(weights.sum())
    most = sweeps or next(count for cells, count in SWEEPS if weights.size <= cells)
    active = pulls
    for sweep in range(1, most + 1):
        moved = []
        for pull in active:
            change = pull.move(weights, mass)
            if change is not None:
                moved.append(pull)
                mass += change
        np.maximum(weights, TINY, out=weights)
        mass = float(weights.sum())
        weights /= mass
        mass = 1.0
        if active is pulls and not moved:
            break
        active = moved if moved and sweep % EVERY else pulls
    return TablePart(part.attributes, (1 - FLOOR) * weights + FLOOR / weights.size)
