"""Search over the weights of a union with fixed factors: OPT_M when the factors are identities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.plan.strategy import Noise
from dpsql.plan.templates.family import Family
from dpsql.plan.templates.joint import Found, Objective, Union, minimise_log
from dpsql.plan.templates.problem import Floats

STEPS = np.array([0.003, 0.01, 0.03, 0.1, 0.3])
"""Weights at which a set that is not measured yet is tried, relative to the sum of all."""

SHORTLIST = 40
"""How many of the most promising new sets are drawn from."""

NEGLIGIBLE = 1e-6
"""Weights below this part of the largest are dropped."""

Indices = NDArray[np.intp]


class WeightSearch:
    """Local descents over few active sets, and informed hops between them.

    ``rows`` has shape (sets, components): the precision that a unit squared weight of a set gives
    to each component. The work is counted in evaluations, so equal arguments give equal results.
    """

    def __init__(
        self, family: Family, R: Floats, totals: Floats, noise: Noise, allowed: Floats
    ) -> None:
        asked = np.flatnonzero(1e-13 * R.max(initial=0) < R)
        self.count = len(family.sets)
        self.usable = np.flatnonzero(allowed > 0)
        self.rows = family.rows(totals, self.usable, asked)
        self.R = R[asked]
        self.noise = noise
        self.spent = 0
        self.best = np.inf
        self.active: Indices = np.arange(len(self.usable))
        self.w: Floats = np.ones(len(self.usable))

    def value(self, w: Floats, rows: Floats) -> tuple[float, Floats]:
        """Return the error of weights over some rows, and its gradient."""
        self.spent += 1
        precision = (w * w) @ rows
        if not (precision > 0).all():
            return np.inf, np.zeros_like(w)
        parts = self.R / precision
        total = float(parts.sum())
        pull = rows @ (parts / precision)
        if self.noise == "laplace":
            norm = float(w.sum())
            return norm**2 * total, -2 * norm**2 * w * pull + 2 * norm * total
        norm2 = float(w @ w)
        return norm2 * total, -2 * norm2 * w * pull + 2 * w * total

    def descend(self, active: Indices, w: Floats, ftol: float = 1e-7) -> bool:
        """Descend from weights over some sets; keep the result and say so if it is the best."""
        rows = self.rows[active]
        w = minimise_log(lambda x: self.value(x, rows), w / w.max(), ftol, 500)
        kept = w > NEGLIGIBLE * w.max()
        value, _ = self.value(w[kept], rows[kept])
        if not np.isfinite(value):
            kept[:] = True
            value, _ = self.value(w, rows)
        if value >= self.best * (1 - 1e-9):
            return False
        self.best, self.active, self.w = value, active[kept], w[kept] / w[kept].sum()
        return True

    def shortlist(self) -> tuple[Indices, Floats]:
        """Return the sets whose addition alone helps most, best first, and with which weight."""
        precision = (self.w * self.w) @ self.rows[self.active]
        found = np.full((len(STEPS), len(self.rows)), np.inf)
        for k, step in enumerate(STEPS):
            for start in range(0, len(self.rows), 1024):
                part = self.rows[start : start + 1024]
                cost = (1 + step) ** 2 if self.noise == "laplace" else 1 + step**2
                added = (self.R / (precision + step**2 * part)).sum(axis=1)
                found[k, start : start + 1024] = cost * added
        self.spent += len(STEPS) * len(self.rows) // max(1, len(self.active))
        found[:, self.active] = np.inf
        best = found.min(axis=0)
        order = np.argsort(best, kind="stable")[:SHORTLIST]
        order = order[np.isfinite(best[order])]
        return order, STEPS[found[:, order].argmin(axis=0)]

    def hop(self, rng: np.random.Generator, order: Indices, steps: Floats) -> bool:
        """Add one to three sets, drop a few or none, shake the weights, and descend."""
        place = np.minimum(rng.geometric(0.1, size=rng.integers(1, 4)) - 1, len(order) - 1)
        place = np.unique(place) if len(order) else np.zeros(0, dtype=np.intp)
        w = self.w * np.exp(rng.choice([0.0, 0.1, 0.5]) * rng.normal(size=len(self.w)))
        dropped = rng.random(len(w)) < rng.choice([0.0, 0.02, 0.1])
        w = np.where(dropped, 1e-4 * w, w)
        active = np.concatenate([self.active, order[place]])
        return self.descend(active, np.concatenate([w, steps[place] * rng.choice([1.0, 2.0])]))

    def run(self, starts: Sequence[Floats], evaluations: int, seed: int) -> None:
        """Descend from the starts and a few random ones, then hop until the budget is spent."""
        rng = np.random.default_rng(seed)
        everything = np.arange(len(self.usable))
        for start in starts:
            w = start[self.usable]
            chosen = np.flatnonzero(w > 0)
            self.descend(everything[chosen], w[chosen])
        first = self.spent + evaluations // 4
        while self.spent < first:
            self.descend(everything, rng.random(len(everything)) ** rng.choice([1.0, 2.0]) + 1e-9)
        end = first + evaluations - evaluations // 4
        order, steps = self.shortlist()
        while self.spent < end and len(self.usable) > 1:
            if self.hop(rng, order, steps):
                order, steps = self.shortlist()
        self.descend(self.active, self.w, 1e-11)

    def weights(self) -> Floats:
        """Return the best weights over all sets of the family."""
        w = np.zeros(self.count)
        w[self.usable[self.active]] = self.w
        return w


def search_weights(
    objective: Objective,
    thetas: tuple[Floats | None, ...],
    *,
    evaluations: int,
    seed: int = 0,
    starts: Sequence[Floats] = (),
    allowed: Floats | None = None,
) -> Found:
    """Return the best weights found for fixed factors: many starts, then hops from the best.

    ``allowed`` marks with one the sets that may be measured.

    Source: HDMM, section 6.3 (OPT_M); many starts and hops because local minima dominate.
    """
    R, totals = objective.tables(thetas)
    family = objective.family
    mask = np.ones(len(family.sets)) if allowed is None else allowed
    search = WeightSearch(family, R, totals, objective.problem.noise, mask)
    search.run([*starts, _root_start(family, R), np.ones(len(mask))], evaluations, seed)
    return Found(search.best, Union(thetas, search.weights()))


def _root_start(family: Family, R: Floats) -> Floats:
    """Return weights proportional to the cube root of what each component is asked for."""
    place = {mask: m for m, mask in enumerate(family.sets)}
    w = np.full(len(family.sets), 1e-3)
    for mask, value in zip(family.components, R, strict=True):
        if mask in place:
            w[place[mask]] += value ** (1 / 3)
    return w
