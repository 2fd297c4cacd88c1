"""Weights of a union whose factors are fixed: OPT_M when the factors are identities and totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass
from dpsql.search.marginals.set_rows import SetRows
from dpsql.search.unions.joint import FoundUnion, Objective, Union
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.relaxation import evaluate, relax
from dpsql.search.work_limit import SECOND, left, may_go_on, spend
from dpsql.strategy.noise_law import Noise, law

STEPS = np.array([0.003, 0.01, 0.03, 0.1, 0.3])
"""Weights at which a set that is not measured yet is tried, relative to the sum of all."""

SHORTLIST = 200
"""Number of the most promising new sets that are drawn from."""

STALE = 3e-4
"""Relative gain after which the shortlist is drawn up again."""

RANDOM_STARTS = 3
"""Random starts of one search; four times as many where each covers all sets."""

RANDOM_SETS = 512
"""Most sets that a random start spreads over."""

WRITTEN = 1 << 19
"""Numbers of the rows of one start beyond which they are not written out."""

BATCH, CHUNK = 16, 1 << 17
"""Most hops tried at once, and most numbers they may hold together."""

OVERHEAD, TOUCH, LISTED = 5e-5, 1e-9, 4
"""Nominal seconds of one evaluation, and of one number it touches; how often a shortlist does."""

ADDED = np.array([1, 1, 2, 3, 6])
SHAKES = np.array([0.0, 0.1, 0.5, 1.0])
DROPS = np.array([0.0, 0.02, 0.1])
SPREADS = np.array([0.2, 0.05, 0.02])
FACTORS, ENTRIES = np.array([1.0, 2.0]), np.array([0.03, 0.1])
"""Choices of a hop: sets added, scale of the shake, part dropped, reach in the shortlist,
by how much a listed weight grows, and the weight of a set that is not listed."""

NEGLIGIBLE = 1e-6
"""Weights below this part of the largest are dropped."""

PROMISING = 0.01
"""Relative distance to the best at which a half-finished hop is still worth finishing."""

GAIN = 1e-4
"""Relative gain below which a hop counts as idle."""

PATIENCE, PER_SET = 40, 2
"""Idle hops in a row that end a climb, and more per measured set; more still in later rounds."""

SETTLED, TIGHT = 1e-6, 1e-9
"""Relative gain of an exchange below which there is no other, and the tolerance of the last
descent, under Gaussian noise."""

MOST_ADDED, ENTRY = 64, 0.1
"""Most sets that come in with one exchange, and their weight, relative to the largest."""

Indices = NDArray[np.intp]
T = TypeVar("T", np.int64, np.float64)


@dataclass(frozen=True, slots=True)
class LocalOptimum:
    """A local optimum: its error, the sets it measures and their weights, which sum to one."""

    error: float
    active: Indices
    w: Floats


class WeightSearch:
    """Local descents over few active sets, and informed hops between them, several at a time.

    ``rows`` has shape (sets, components): the precision that a unit squared weight of a set gives
    to each component. Work is counted in nominal seconds, so equal arguments give equal results.
    """

    def __init__(
        self, family: Family, R: Floats, totals: Floats, noise: Noise, allowed: Floats
    ) -> None:
        # Below are differences of equal numbers, which nobody asked for.
        asked = np.flatnonzero(1e-13 * R.max(initial=0) < R)
        self.count = len(family.sets)
        self.usable = np.flatnonzero(allowed > 0)
        self.all = SetRows(family, totals, self.usable, asked)
        self.rows = self.all.dense()
        self.R = R[asked]
        self.noise = noise
        self.spent = 0.0
        self.listing = LISTED * TOUCH * len(STEPS) * self.all.pairs
        self.state = LocalOptimum(np.inf, np.arange(len(self.usable)), np.ones(len(self.usable)))

    def descend(self, active: Indices, w: Floats, tol: float = 1e-7) -> LocalOptimum:
        """Return the local optimum reached from weights over some sets, without idle sets.

        Args:
            active: (k,) places of the sets.
            w: (k,) their weights.
            tol: predicted decrease of the log of the error at which it ends.
        """
        active, w = active[w > 0], w[w > 0]
        if not (self.all.take(active).precision(np.ones(len(active))) > 0).all():
            return LocalOptimum(np.inf, active, w / w.sum())
        return self._finished(active, w[np.newaxis], tol)

    def _finished(self, active: Indices, w: Floats, tol: float) -> LocalOptimum:
        rows = self._rows(active)
        # Each time sets of nothing go out, descents are smaller; what is left after three stays.
        for _ in range(3):
            w = self._relax(w, rows, 12, tol)[1]
            kept = w[0] > NEGLIGIBLE
            if kept.all():
                break
            active, w = active[kept], w[:, kept]
            rows = self._rows(active)
        errors, _, _ = evaluate(w, rows, self.R, self.noise)
        return LocalOptimum(float(errors[0]), active, w[0] / w[0].sum())

    def _rows(self, active: Indices) -> Floats | SetRows:
        """Return the rows of one start, not written out where they are many."""
        is_large = len(active) * len(self.R) > WRITTEN
        return self.all.take(active) if is_large else self.rows[active][np.newaxis]

    def _relax(
        self, w: Floats, rows: Floats | SetRows, cycles: int, tol: float
    ) -> tuple[Floats, Floats]:
        errors, w, count = relax(w, rows, self.R, self.noise, cycles=cycles, tol=tol)
        self.spent += count * (OVERHEAD + TOUCH * rows.size)
        return errors, w

    def shortlist(self, state: LocalOptimum) -> tuple[Indices, Floats]:
        """Return the sets whose addition alone helps most, best first, and with which weight."""
        precision = (state.w * state.w) @ self.rows[state.active]
        cost = (1 + STEPS) ** 2 if law(self.noise).norm == 1 else 1 + STEPS**2
        found = cost[:, np.newaxis] * self.all.added(precision, self.R, STEPS)
        found[:, state.active] = np.inf
        best = found.min(axis=0)
        order = np.argsort(best, kind="stable")[:SHORTLIST]
        order = order[np.isfinite(best[order])]
        return order, STEPS[found[:, order].argmin(axis=0)]

    def hops(
        self, state: LocalOptimum, rng: np.random.Generator, order: Indices, steps: Floats
    ) -> tuple[Indices, Floats]:
        """Return a batch of starts near a state, shape (batch, sets): which sets, which weights.

        Each adds a few sets, promising or random ones, drops some and shakes the weights.

        Args:
            order: (k,) the shortlist, best first.
            steps: (k,) the weight of each to begin with.
        """
        k, extra = len(state.active), max(ADDED)
        batch = max(1, min(BATCH, CHUNK // ((k + extra) * max(1, len(self.R)))))
        shake = _one_each(rng, SHAKES, batch) * rng.normal(size=(batch, k))
        dropped = rng.random((batch, k)) < _one_each(rng, DROPS, batch)
        # Dropped ones stay above zero: they may come back where leaving them out was wrong.
        old = state.w * np.exp(shake) * np.where(dropped, 1e-4, 1.0)
        place = rng.geometric(_one_each(rng, SPREADS, batch), size=(batch, extra)) - 1
        place = np.minimum(place, max(0, len(order) - 1))
        # Three hops of ten ignore the shortlist, which sees only what one more set would gain.
        random = (rng.random((batch, 1)) < 0.3) | (len(order) == 0)
        anywhere = rng.integers(len(self.rows), size=(batch, extra))
        sets = np.where(random, anywhere, order[place] if len(order) else anywhere)
        size = steps[place] * _one_each(rng, FACTORS, batch) if len(order) else 0.0
        size = np.where(random, _one_each(rng, ENTRIES, batch), size)
        used = np.arange(extra) < _one_each(rng, ADDED, batch)
        is_new = np.ones(len(self.rows), dtype=np.bool_)
        is_new[state.active] = False
        used &= is_new[sets]
        for column in range(1, extra):
            used[:, column] &= (sets[:, column, np.newaxis] != sets[:, :column]).all(axis=1)
        active = np.concatenate([np.broadcast_to(state.active, (batch, k)), sets], axis=1)
        return active, np.concatenate([old, np.where(used, size, 0.0)], axis=1)

    def best_hop(self, active: Indices, w: Floats, error: float) -> LocalOptimum:
        """Return where the best of a batch of starts ends; hopeless ones are not finished.

        Args:
            active, w: (batch, sets), places and weights.
            error: of the state that the hops are from.
        """
        rows = self.rows[active]
        errors, w = self._relax(w, rows, 2, GAIN * 1e-2)
        chosen = np.flatnonzero(errors < error * (1 + PROMISING))
        if not len(chosen):
            return LocalOptimum(np.inf, active[0], w[0])
        if len(chosen) < len(w):
            active, w, rows = active[chosen], w[chosen], rows[chosen]
        errors, w = self._relax(w, rows, 2, GAIN * 1e-2)
        best = int(errors.argmin())
        if errors[best] > error * (1 + GAIN):
            return LocalOptimum(np.inf, active[best], w[best])
        kept = w[best] > NEGLIGIBLE
        return self._finished(active[best][kept], w[best][np.newaxis, kept], 1e-7)

    def climb(
        self, state: LocalOptimum, rng: np.random.Generator, seconds: float, patience: float
    ) -> LocalOptimum:
        """Hop from a local optimum to better ones, for some nominal time or while it pays.

        Args:
            seconds: nominal.
            patience: scales how many idle hops in a row end it.
        """
        end = self.spent + seconds
        self.spent += self.listing
        if self.spent >= end or len(self.usable) <= 1:
            return state  # what a shortlist takes is all the time that there was
        order, steps = self.shortlist(state)
        listed = mark = state.error
        idle = 0
        while self.spent < end:
            active, w = self.hops(state, rng, order, steps)
            idle += len(w)
            if idle > patience * min(PATIENCE + PER_SET * len(state.active), 4 * len(self.rows)):
                break
            other = self.best_hop(active, w, state.error)
            # By more than rounding, or two optima of one error could be exchanged for ever.
            if other.error < state.error * (1 - 1e-9):
                state = other
                if state.error < mark * (1 - GAIN):
                    mark, idle = state.error, 0
                if state.error < listed * (1 - STALE):
                    listed = state.error
                    self.spent += self.listing
                    order, steps = self.shortlist(state)
        return state

    def run(self, starts: Sequence[Floats], seconds: float, seed: int, effort: float) -> None:
        """Search once for every whole unit of effort, each time from other random starts.

        Args:
            starts: (sets,) weights each.
            seconds: nominal, of all searches together.
            effort: scales how many idle hops in a row end a climb.
        """
        if law(self.noise).norm == 2:
            self.state = self._exchanged(starts, seconds)
            return
        rounds = max(1, int(effort))
        for k in range(rounds):
            rng = np.random.default_rng([seed, k])
            found = self._tournament(starts, rng, self.spent, seconds / rounds, effort / rounds)
            tight = self.descend(found.active, found.w, 1e-11)
            self.state = min(self.state, found, tight, key=lambda state: state.error)

    def _exchanged(self, starts: Sequence[Floats], seconds: float) -> LocalOptimum:
        """Return the optimum under Gaussian noise, whose error is convex in squared weights.

        Sets whose slope is steeper than that of what is measured come in, until that gains nothing.
        """
        found = [start[self.usable] for start in starts]
        placed = [(np.flatnonzero(w), w[w > 0]) for w in found]
        state = min((self._as_given(*each) for each in placed), key=lambda each: each.error)
        before, state = math.inf, self.descend(state.active, state.w)
        while state.error < before * (1 - SETTLED) and self.spent < seconds:
            before = state.error
            added = self._steepest(state)
            w = np.concatenate([state.w, np.full(len(added), ENTRY * state.w.max())])
            tried = self.descend(np.concatenate([state.active, added]), w)
            state = min(state, tried, key=lambda each: each.error)
        tight = self.descend(state.active, state.w, TIGHT)
        return min(state, tight, key=lambda each: each.error)

    def _as_given(self, active: Indices, w: Floats) -> LocalOptimum:
        """Return weights over some sets with their error, infinite where something has none."""
        rows = self.all.take(active)
        if not (rows.precision(w * w) > 0).all():
            return LocalOptimum(np.inf, active, w)
        errors, _, _ = evaluate(w[np.newaxis], self._rows(active), self.R, self.noise)
        self.spent += OVERHEAD + TOUCH * rows.size
        return LocalOptimum(float(errors[0]), active, w)

    def _steepest(self, state: LocalOptimum) -> Indices:
        """Return sets that are not measured, and would lower the error most for little weight."""
        squares = np.square(state.w)
        precision = self.all.take(state.active).precision(squares / squares.sum())
        parts = self.R / precision
        slopes = self.all.within(parts / precision)
        slopes[state.active] = 0.0
        self.spent += OVERHEAD + TOUCH * self.all.size
        steep = np.flatnonzero(slopes > parts.sum())
        return steep[np.argsort(-slopes[steep], kind="stable")[:MOST_ADDED]]

    def _tournament(
        self,
        starts: Sequence[Floats],
        rng: np.random.Generator,
        began: float,
        seconds: float,
        patience: float,
    ) -> LocalOptimum:
        """Climb a little from every start, more from the better half, and most from the best."""
        size = len(self.usable)
        found = []
        for start in starts:
            w = start[self.usable]
            found.append(self.descend(np.flatnonzero(w > 0), w[w > 0]))
        for _ in range(RANDOM_STARTS if size > RANDOM_SETS else min(size, 4 * RANDOM_STARTS)):
            chosen = np.union1d(rng.permutation(size)[:RANDOM_SETS], found[0].active)
            w = rng.random(len(chosen)) ** rng.choice([1.0, 2.0]) + 1e-9
            found.append(self.descend(chosen, w))
        while len(found) > 1:
            share = seconds / 4 / len(found)
            found = [self.climb(state, rng, share, patience) for state in found]
            found.sort(key=lambda state: state.error)
            found = found[: len(found) // 2]
            patience *= 2
        left = seconds - min(self.spent - began, 3 * seconds / 4)
        return self.climb(found[0], rng, left, 2 * patience)

    def weights(self) -> Floats:
        """Return the best weights over all sets of the family."""
        w = np.zeros(self.count)
        w[self.usable[self.state.active]] = self.state.w
        return w


def _one_each(rng: np.random.Generator, values: NDArray[T], batch: int) -> NDArray[T]:
    """Draw a value for every start, shape (batch, 1), as Generator.choice does in more time."""
    return values[rng.integers(len(values), size=(batch, 1))]


def search_weights(
    objective: Objective,
    thetas: tuple[Floats | None, ...],
    *,
    seconds: float,
    effort: float = 1.0,
    seed: int = 0,
    starts: Sequence[Floats] = (),
    allowed: Floats | None = None,
) -> FoundUnion:
    """Return the best weights found for fixed factors: many starts, then hops from the best.

    Args:
        thetas: (p_i, n_i) per attribute, None for the identity.
        seconds: nominal.
        effort: scales how many idle hops in a row end a climb.
        starts: (sets,) weights each, beside those that are always tried.
        allowed: (sets,) one for those that may be measured; all unless given.

    Source: HDMM, section 6.3 (OPT_M); many starts and hops because local minima dominate. Under
    Gaussian noise there is one minimum, which is descended to: no start, seed or effort matters.
    """
    R, totals = objective.tables(thetas)
    family = objective.family
    mask = np.ones(len(family.sets)) if allowed is None else allowed
    search = WeightSearch(family, R, totals, objective.problem.noise, mask)
    may_take = min(seconds, left() / SECOND) if may_go_on() else 0.0
    search.run([np.ones(len(mask)), *starts, _root_start(family, R)], may_take, seed, effort)
    spend(search.spent * SECOND, is_cut=may_take < min(seconds, search.spent))
    return FoundUnion(search.state.error, Union(thetas, search.weights()))


def _root_start(family: Family, R: Floats) -> Floats:
    """Return weights proportional to the cube root of what each component is asked for."""
    place = {mask: m for m, mask in enumerate(family.sets)}
    w = np.full(len(family.sets), 1e-3)
    for mask, value in zip(family.components, R, strict=True):
        if mask in place:
            w[place[mask]] += value ** (1 / 3)
    return w
