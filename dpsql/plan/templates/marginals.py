"""Search over the weights of a union with fixed factors: OPT_M when the factors are identities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.plan.strategy import Noise
from dpsql.plan.templates.family import Family
from dpsql.plan.templates.joint import Found, Objective, Union, minimise_log
from dpsql.plan.templates.problem import Floats

STEPS = np.array([0.003, 0.01, 0.03, 0.1, 0.3])
"""Weights at which a set that is not measured yet is tried, relative to the sum of all."""

SHORTLIST = 200
"""How many of the most promising new sets are drawn from."""

RANDOM_STARTS = 3
"""Random starts of one search; four times as many where each covers all sets."""

RANDOM_SETS = 512
"""Most sets that a random start spreads over."""

OVERHEAD, TOUCH = 6e-5, 1e-9
"""Nominal seconds of one evaluation, and of one number it touches."""

NEGLIGIBLE = 1e-6
"""Weights below this part of the largest are dropped."""

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class State:
    """A local optimum: its error, the sets it measures and their weights, which sum to one."""

    error: float
    active: Indices
    w: Floats


class WeightSearch:
    """Local descents over few active sets, and informed hops between them.

    ``rows`` has shape (sets, components): the precision that a unit squared weight of a set gives
    to each component. Work is counted in nominal seconds, so equal arguments give equal results.
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
        self.spent = 0.0
        self.state = State(np.inf, np.arange(len(self.usable)), np.ones(len(self.usable)))

    def value(self, w: Floats, rows: Floats) -> tuple[float, Floats]:
        """Return the error of weights over some rows, and its gradient."""
        self.spent += OVERHEAD + 2 * TOUCH * rows.size
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

    def descend(self, active: Indices, w: Floats, ftol: float = 1e-7) -> State:
        """Return the local optimum reached from weights over some sets, without idle sets."""
        rows = self.rows[active]
        w = minimise_log(lambda x: self.value(x, rows), w / w.max(), ftol, 500)
        kept = w > NEGLIGIBLE * w.max()
        error, _ = self.value(w[kept], rows[kept])
        if not np.isfinite(error):
            kept[:] = True
            error, _ = self.value(w, rows)
        return State(error, active[kept], w[kept] / w[kept].sum())

    def shortlist(self, state: State) -> tuple[Indices, Floats]:
        """Return the sets whose addition alone helps most, best first, and with which weight."""
        precision = (state.w * state.w) @ self.rows[state.active]
        found = np.full((len(STEPS), len(self.rows)), np.inf)
        for k, step in enumerate(STEPS):
            for start in range(0, len(self.rows), 1024):
                part = self.rows[start : start + 1024]
                cost = (1 + step) ** 2 if self.noise == "laplace" else 1 + step**2
                added = (self.R / (precision + step**2 * part)).sum(axis=1)
                found[k, start : start + 1024] = cost * added
        self.spent += 2 * TOUCH * len(STEPS) * self.rows.size
        found[:, state.active] = np.inf
        best = found.min(axis=0)
        order = np.argsort(best, kind="stable")[:SHORTLIST]
        order = order[np.isfinite(best[order])]
        return order, STEPS[found[:, order].argmin(axis=0)]

    def hop(self, state: State, rng: np.random.Generator, order: Indices, steps: Floats) -> State:
        """Add a few sets, promising or random ones, drop some, shake the weights, and descend."""
        count = min(int(rng.choice([1, 1, 2, 3, 6])), len(order))
        place = rng.geometric(rng.choice([0.2, 0.05, 0.02]), size=count) - 1
        place = np.unique(np.minimum(place, len(order) - 1))
        added, weights = order[place], steps[place] * rng.choice([1.0, 2.0])
        if rng.random() < 0.3:
            added = np.setdiff1d(rng.choice(len(self.rows), size=count), state.active)
            weights = np.full(len(added), rng.choice([0.03, 0.1]))
        w = state.w * np.exp(rng.choice([0.0, 0.1, 0.5, 1.0]) * rng.normal(size=len(state.w)))
        dropped = rng.random(len(w)) < rng.choice([0.0, 0.02, 0.1])
        w = np.where(dropped, 1e-4 * w, w)
        active = np.concatenate([state.active, added])
        return self.descend(active, np.concatenate([w, weights]))

    def climb(self, state: State, rng: np.random.Generator, seconds: float) -> State:
        """Hop from a local optimum to better ones for some nominal time."""
        end = self.spent + seconds
        order, steps = self.shortlist(state)
        while self.spent < end and len(self.usable) > 1:
            other = self.hop(state, rng, order, steps)
            if other.error < state.error * (1 - 1e-9):
                state = other
                order, steps = self.shortlist(state)
        return state

    def run(self, starts: Sequence[Floats], seconds: float, seed: int) -> None:
        """Climb a little from every start, more from the better half, and most from the best."""
        rng = np.random.default_rng(seed)
        size = len(self.usable)
        found = []
        for start in starts:
            w = start[self.usable]
            found.append(self.descend(np.flatnonzero(w > 0), w[w > 0]))
        for _ in range(RANDOM_STARTS if size > RANDOM_SETS else 4 * RANDOM_STARTS):
            chosen = np.union1d(rng.permutation(size)[:RANDOM_SETS], found[0].active)
            w = rng.random(len(chosen)) ** rng.choice([1.0, 2.0]) + 1e-9
            found.append(self.descend(chosen, w))
        while len(found) > 1:
            share = seconds / 4 / len(found)
            found = [self.climb(state, rng, share) for state in found]
            found.sort(key=lambda state: state.error)
            found = found[: len(found) // 2]
        best = self.climb(found[0], rng, seconds - min(self.spent, 3 * seconds / 4))
        tight = self.descend(best.active, best.w, 1e-11)
        self.state = min(best, tight, key=lambda state: state.error)

    def weights(self) -> Floats:
        """Return the best weights over all sets of the family."""
        w = np.zeros(self.count)
        w[self.usable[self.state.active]] = self.state.w
        return w


def search_weights(
    objective: Objective,
    thetas: tuple[Floats | None, ...],
    *,
    seconds: float,
    seed: int = 0,
    starts: Sequence[Floats] = (),
    allowed: Floats | None = None,
) -> Found:
    """Return the best weights found for fixed factors: many starts, then hops from the best.

    ``allowed`` marks with one the sets that may be measured; ``seconds`` is nominal.

    Source: HDMM, section 6.3 (OPT_M); many starts and hops because local minima dominate.
    """
    R, totals = objective.tables(thetas)
    family = objective.family
    mask = np.ones(len(family.sets)) if allowed is None else allowed
    search = WeightSearch(family, R, totals, objective.problem.noise, mask)
    search.run([np.ones(len(mask)), *starts, _root_start(family, R)], seconds, seed)
    return Found(search.state.error, Union(thetas, search.weights()))


def _root_start(family: Family, R: Floats) -> Floats:
    """Return weights proportional to the cube root of what each component is asked for."""
    place = {mask: m for m, mask in enumerate(family.sets)}
    w = np.full(len(family.sets), 1e-3)
    for mask, value in zip(family.components, R, strict=True):
        if mask in place:
            w[place[mask]] += value ** (1 / 3)
    return w
