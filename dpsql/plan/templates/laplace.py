"""The Laplace templates in the order of their planning cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpsql.algebra.operator import Operator
from dpsql.plan.strategy import Strategy
from dpsql.plan.templates import p_identity
from dpsql.plan.templates.family import DENSE_LIMIT, Family
from dpsql.plan.templates.identity import identity_unions, split_weights
from dpsql.plan.templates.joint import (
    Found,
    Objective,
    Union,
    descend,
    initial_thetas,
    random_thetas,
    realise,
)
from dpsql.plan.templates.kron import search_kron
from dpsql.plan.templates.marginals import search_weights
from dpsql.plan.templates.problem import Floats, Problem
from dpsql.plan.templates.union import search_union

BLOCK_LIMIT = 1 << 22
"""Largest extended block that a search may add beyond the supports of the workload."""

EXTRA_SETS = 4000
"""Most unions of supports that are candidates when not every subset is."""

SECOND = 1.0
"""Planning time, in seconds on an ordinary core, that one search aims at for effort 1."""


@dataclass(frozen=True, slots=True)
class Room:
    """What one search may use: candidate sets, which of them fit, and how much work to do."""

    problem: Problem
    family: Family
    allowed: Floats
    effort: float

    def weight_evaluations(self) -> int:
        """Return how many evaluations a search over weights alone may take."""
        count = len(self.family.sets)
        cost = 8e-5 + count * self.problem.d * 8e-9
        return max(100, int(self.effort * min(SECOND / cost, 150 * count)))

    def joint_starts(self, thetas: tuple[Floats | None, ...]) -> int:
        """Return how many joint descents to start."""
        cost = 3e-4 + len(self.family.sets) * self.problem.d * 8e-9
        for theta, factors in zip(thetas, self.problem.factors, strict=True):
            if theta is not None:
                cost += factors.n**2 * (len(theta) + 4 * factors.weight) * 1e-9
        cost += len(self.problem.components.weights2) * 1e-7 * self.problem.d
        return int(np.clip(self.effort * SECOND / (cost * 300), 1, 12 * self.effort + 1))


def room(problem: Problem, limit: int, effort: float) -> Room:
    """Return the candidate sets: all subsets for few attributes, else those near the supports."""
    components = problem.components
    largest = max(problem.cells(M) for M in components.supports)
    bound = min(limit, max(BLOCK_LIMIT, largest))
    sets: list[int] | None = None
    if problem.d > DENSE_LIMIT:
        known = dict.fromkeys(components.masks)
        supports = sorted(set(components.supports))
        for k, left in enumerate(supports):
            for right in supports[:k]:
                if len(known) - len(components.masks) < EXTRA_SETS:
                    known.setdefault(left | right)
        sets = sorted(M for M in known if problem.cells(M) <= bound)
    family = Family(problem.d, sets, components.masks)
    allowed = np.array([float(problem.cells(M) <= bound) for M in family.sets])
    return Room(problem, family, allowed, effort)


def identity_candidates(problem: Problem, limit: int) -> Iterator[Strategy]:
    """Yield the best union of identities."""
    family, found = min(identity_unions(problem, limit), key=lambda pair: pair[1].error)
    yield realise(problem, family, found.union, "identity")


def kron_candidates(problem: Problem, limit: int, effort: float) -> Iterator[Strategy]:
    """Yield the best Kronecker strategy, if the whole domain fits."""
    if problem.cells(problem.full) <= limit:
        cost = sum(f.n**2 * (f.n // 16 + 2 + 4 * f.weight) for f in problem.factors) * 1e-9
        restarts = int(np.clip(effort * SECOND / (300 * (cost + 5e-4)), 1, 20 * effort))
        family, found = search_kron(problem, restarts=restarts)
        yield realise(problem, family, found.union, "kron")


def union_candidates(problem: Problem) -> Iterator[Strategy]:
    """Yield the best union of one block per support."""
    family, found = search_union(problem)
    yield realise(problem, family, found.union, "union")


def marginals_candidates(problem: Problem, limit: int, effort: float) -> Iterator[Strategy]:
    """Yield the best weighted union of identities."""
    space = room(problem, limit, effort)
    objective = Objective(problem, space.family)
    thetas: tuple[Floats | None, ...] = (None,) * problem.d
    found = search_weights(
        objective,
        thetas,
        evaluations=space.weight_evaluations(),
        starts=[split_weights(objective, thetas)],
        allowed=space.allowed,
    )
    yield realise(problem, space.family, found.union, "marginals")


def joint_candidates(problem: Problem, limit: int, effort: float) -> Iterator[Strategy]:
    """Yield the best union with factors and weights optimised together."""
    space = room(problem, limit, effort)
    objective = Objective(problem, space.family)
    base = initial_thetas(problem)
    evaluations = space.weight_evaluations()
    weighted = search_weights(
        objective,
        base,
        evaluations=evaluations // 2,
        starts=[split_weights(objective, base)],
        allowed=space.allowed,
    )
    rng = np.random.default_rng(1)
    starts = [weighted.union]
    count = len(space.family.sets)
    if problem.cells(problem.full) <= limit and problem.full in space.family.sets:
        place = space.family.sets.index(problem.full)
        restarts = 1 + int(4 * effort)
        _, block = search_kron(problem, restarts=restarts)
        w = 0.01 * rng.random(count) * space.allowed
        w[place] = 1.0
        starts.append(Union(block.union.thetas, w))
    for _ in range(space.joint_starts(base) - 1):
        starts.append(Union(random_thetas(base, rng), rng.random(count) ** 2 * space.allowed))
    loose = [descend(objective, s, ftol=1e-6, maxiter=300) for s in starts]
    best = min(loose, key=lambda found: found.error)
    best = polish(objective, best, space, evaluations // 2)
    yield realise(problem, space.family, best.union, "joint")


def polish(objective: Objective, best: Found, space: Room, evaluations: int) -> Found:
    """Tighten, then search the weights again with the factors frozen, then tighten once more."""
    allowed = Union(best.union.thetas, best.union.w * space.allowed)
    tight = descend(objective, allowed, ftol=1e-9)
    again = search_weights(
        objective,
        tight.union.thetas,
        evaluations=evaluations,
        seed=1,
        starts=[tight.union.w],
        allowed=space.allowed,
    )
    last = descend(objective, again.union, ftol=1e-9, maxiter=500)
    return min((tight, again, last), key=lambda found: found.error)


def single_candidates(problem: Problem, effort: float) -> Iterator[Strategy]:
    """Yield OPT_0 of one attribute: the identity and learned rows."""
    factors, components = problem.factors[0], problem.components
    gram: Floats | Operator
    if len(components.weights2) == 1:
        gram = factors.operators[0]
    else:
        which = components.index[:, 0]
        asked = which >= 0
        count = len(factors.operators)
        share = np.bincount(which[asked], components.weights2[asked], minlength=count)
        gram = factors.gram(share.astype(np.float64)) + components.weights2[~asked].sum()
    theta = p_identity.optimise(gram)
    family = Family(1, [1], components.masks)
    yield realise(problem, family, Union((theta,), np.ones(1)), "opt_0")
