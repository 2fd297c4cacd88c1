"""Weights of a union whose factors are fixed: OPT_M when the factors are identities and totals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass
from dpsql.search.family import Family
from dpsql.search.joint import Found, Objective, Union
from dpsql.search.meter import SECOND, left, may_go_on, spend
from dpsql.search.set_rows import SetRows
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

    ``w`` has shape (batch, sets) and ``rows`` (batch, sets, components): the precision that a unit
    squared weight gives; those of one start may be ``SetRows``. At an optimum the shares p of the
    sensitivity are the shares q of the error, and w (q/p)^(1/3) (Laplace; 1/4 for Gaussian) is the
    exact optimum for disjoint supports. Two such steps in log w give the direction and length of an
    extrapolated third, which is taken where the error falls. Ends early when every predicted
    decrease is below tol.

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
    """Return the errors, and per set its shares of the sensitivity and of the error.

    ``w`` is (starts, sets), the weights; ``rows`` (starts, sets, eigenspaces) what the square of
    each adds to the precision there; ``R`` (eigenspaces,) what is asked. Errors are (starts,), both
    shares (starts, sets).
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


STEPS = np.array([0.003, 0.01, 0.03, 0.1, 0.3])
"""Weights at which a set that is not measured yet is tried, relative to the sum of all."""

SHORTLIST = 200
"""How many of the most promising new sets are drawn from."""

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
"""What a hop draws from: sets added, scale of the shake, part dropped, reach in the shortlist,
by how much a listed weight grows, and the weight of a set that is not listed."""

NEGLIGIBLE = 1e-6
"""Weights below this part of the largest are dropped."""

PROMISING = 0.01
"""Relative distance to the best at which a half-finished hop is still worth finishing."""

GAIN = 1e-4
"""Relative gain below which a hop counts as idle."""

PATIENCE, PER_SET = 40, 2
"""Idle hops in a row that end a climb, and more per measured set; more still in later rounds."""

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
        """Return the local optimum reached from weights over some sets, without idle sets."""
        active, w = active[w > 0], w[w > 0]
        if not (self.all.take(active).precision(np.ones(len(active))) > 0).all():
            return LocalOptimum(np.inf, active, w / w.sum())
        return self._finished(active, w[np.newaxis], tol)

    def _finished(self, active: Indices, w: Floats, tol: float) -> LocalOptimum:
        rows = self._rows(active)
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
        """
        k, extra = len(state.active), max(ADDED)
        batch = max(1, min(BATCH, CHUNK // ((k + extra) * max(1, len(self.R)))))
        shake = _one_each(rng, SHAKES, batch) * rng.normal(size=(batch, k))
        dropped = rng.random((batch, k)) < _one_each(rng, DROPS, batch)
        old = state.w * np.exp(shake) * np.where(dropped, 1e-4, 1.0)
        place = rng.geometric(_one_each(rng, SPREADS, batch), size=(batch, extra)) - 1
        place = np.minimum(place, max(0, len(order) - 1))
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
        """Return where the best of a batch of starts ends; hopeless ones are not finished."""
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
        """Hop from a local optimum to better ones, for some nominal time or while it pays."""
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
        """Search once for every whole unit of effort, each time from other random starts."""
        rounds = max(1, int(effort))
        for k in range(rounds):
            rng = np.random.default_rng([seed, k])
            found = self._tournament(starts, rng, self.spent, seconds / rounds, effort / rounds)
            tight = self.descend(found.active, found.w, 1e-11)
            self.state = min(self.state, found, tight, key=lambda state: state.error)

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
) -> Found:
    """Return the best weights found for fixed factors: many starts, then hops from the best.

    ``allowed`` marks with one the sets that may be measured; ``seconds`` is nominal, and
    ``effort`` scales how many idle hops in a row end a climb.

    Source: HDMM, section 6.3 (OPT_M); many starts and hops because local minima dominate.
    """
    R, totals = objective.tables(thetas)
    family = objective.family
    mask = np.ones(len(family.sets)) if allowed is None else allowed
    search = WeightSearch(family, R, totals, objective.problem.noise, mask)
    may_take = min(seconds, left() / SECOND) if may_go_on() else 0.0
    search.run([np.ones(len(mask)), *starts, _root_start(family, R)], may_take, seed, effort)
    spend(search.spent * SECOND, is_cut=may_take < min(seconds, search.spent))
    return Found(search.state.error, Union(thetas, search.weights()))


def _root_start(family: Family, R: Floats) -> Floats:
    """Return weights proportional to the cube root of what each component is asked for."""
    place = {mask: m for m, mask in enumerate(family.sets)}
    w = np.full(len(family.sets), 1e-3)
    for mask, value in zip(family.components, R, strict=True):
        if mask in place:
            w[place[mask]] += value ** (1 / 3)
    return w
