"""What can be said about the error of a biased model, instead of an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.adaptive.handle import Measured, Model
from dpsql.answer.linear import clique_of, is_whole
from dpsql.plan.noise_law import GAUSSIAN, law

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Statement:
    """With probability ``CONFIDENCE`` the L1 distance of one marginal is at most ``bound``.

    ``distance`` is that of the model to the noisy marginal, both in counts.
    """

    attributes: tuple[str, ...]
    cells: int
    distance: float
    bound: float


def error_statements(model: Model, measurements: Sequence[Measured]) -> tuple[Statement, ...]:
    """Return one statement per whole marginal measured with Gaussian noise; none for others.

    Nothing follows for marginals that were not measured. Source: AIM (McKenna et al. 2022),
    theorem 3 (triangle inequality and a Chernoff bound).
    """
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for m in measurements:
        if law(m.noise) is GAUSSIAN and is_whole(m.candidate):
            groups.setdefault(clique_of(m.candidate, model.domain), []).append(m)
    level = math.sqrt(-math.log(1 - CONFIDENCE))
    out = []
    for attributes, group in groups.items():
        weights = np.array([m.stddev**-2 for m in group])
        mean = np.average([m.values for m in group], axis=0, weights=weights)
        distance = float(np.abs(model.answer(group[0].candidate) - mean).sum())
        n = mean.size
        noise = math.sqrt(2 * math.log(2)) * n + level * math.sqrt(2 * n)
        out.append(Statement(attributes, n, distance, distance + weights.sum() ** -0.5 * noise))
    return tuple(out)
