"""One Kronecker block (OPT_kron), one block per support (OPT_plus), unions of identities."""

from __future__ import annotations

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.search.one_attribute import opt0
from dpsql.search.one_attribute.p_inverse import STRUCTURED_FROM, LeanInverse
from dpsql.search.problem import Problem
from dpsql.search.unions.joint import (
    ROUGH,
    FoundUnion,
    Objective,
    Union,
    descend,
    initial_thetas,
    random_thetas,
)
from dpsql.search.unions.kron_union import Family
from dpsql.search.work_limit import may_go_on
from dpsql.strategy.noise_law import law

TIGHT = 1e-7
"""Relative decrease per step at which a search ends: a hundredth of it took twice as long."""

ROUGH_STEPS = 20
"""Steps of each start of a rough search, of which the best goes on."""

SWEEPS = 20
"""Most rounds over all attributes, each optimised given the others; gains of 1e-4 end them."""


def kron_family(problem: Problem) -> Family:
    """Return the family of the one block over all active attributes."""
    return Family(problem.d, [problem.full], problem.components.masks)


def search_kron(
    problem: Problem, *, restarts: int, seed: int = 0, rough: bool = False, effort: float = 1.0
) -> tuple[Family, FoundUnion]:
    """Return the best Kronecker strategy found.

    A single product decouples into one search per attribute. Otherwise block-cyclic descent from
    OPT_0 of each attribute's own factors, and joint descents from there and from random starts;
    ``rough`` ends early, for a search that goes on from there. Where factors are large, no start
    is random: such a descent is dear, and has not ended below.

    Source: HDMM, section 6.1 (OPT_kron).
    """
    family = kron_family(problem)
    objective = Objective(problem, family)
    one = np.ones(1)
    if len(problem.components.weights2) == 1:
        thetas = initial_thetas(problem, trivial=True, effort=effort)
        return family, FoundUnion(objective.error(Union(thetas, one)), Union(thetas, one))
    base = initial_thetas(problem, trivial=True, effort=effort)
    rng = np.random.default_rng(seed)
    if problem.cycled is None:
        problem.cycled = cycle(problem, base)
    starts = [problem.cycled]
    if all(theta is None or theta.shape[1] < STRUCTURED_FROM for theta in base):
        starts += [random_thetas(base, rng) for _ in range(restarts)]
    steps = ROUGH_STEPS if rough else 300
    loose = [
        descend(objective, Union(s, one), ftol=1e-5, maxiter=steps, thetas_only=True)
        for s in starts
    ]
    loose.sort(key=lambda found: found.error)
    if rough:
        best = loose[0].union
        return family, descend(objective, best, ftol=1e-5, maxiter=60, thetas_only=True)
    tight = [descend(objective, f.union, ftol=TIGHT, thetas_only=True) for f in loose[:2]]
    return family, min(tight, key=lambda found: found.error)


def cycle(problem: Problem, thetas: tuple[Floats | None, ...]) -> tuple[Floats | None, ...]:
    """Return the factors after block-cyclic descent: each attribute given all others.

    A theta has shape (p_i, n_i), one per attribute; None is an attribute without one.
    """
    index, weights2 = problem.components.index, problem.components.weights2
    current = list(thetas)
    traces = np.ones((problem.d, len(weights2)))
    for i, theta in enumerate(current):
        traces[i] = _trace_table(problem, i, theta)[index[:, i]]
    last = np.inf
    for _ in range(SWEEPS):
        for i, theta in enumerate(current):
            if theta is None:
                continue
            others = weights2 * np.delete(traces, i, axis=0).prod(axis=0)
            factors, which = problem.factors[i], index[:, i]
            asked = which >= 0
            count = len(factors.operators)
            share = np.bincount(which[asked], others[asked], minlength=count).astype(np.float64)
            gram = factors.summed(share, float(others[~asked].sum()))
            ftol = 1e-6 if factors.n < STRUCTURED_FROM else ROUGH
            current[i] = opt0.optimise(gram, init=theta, ftol=ftol, maxiter=200)
            traces[i] = _trace_table(problem, i, current[i])[which]
        error = float(weights2 @ traces.prod(axis=0))
        # A sweep costs a search of every attribute: a hundredth of a percent is not worth one more.
        if error > last * (1 - 1e-4) or not may_go_on():
            break
        last = error
    return tuple(current)


def _trace_table(problem: Problem, i: int, theta: Floats | None) -> Floats:
    """Return tr(G K) per factor, and 1'K1 for Total."""
    factors = problem.factors[i]
    if theta is None and factors.base.total is not None:
        t, r = factors.identity_tables()
        return r + t / factors.base.total
    if theta is None:
        return np.append(factors.frobenius, float(factors.n))
    K = LeanInverse.of(theta)
    t, r = factors.tables(K)
    return np.asarray(r + K.total * t)


MANY = 1000
"""Supports above which no set is compared with every other."""


def maximal(masks: list[int]) -> list[int]:
    """Return the masks that are contained in no other; very many masks are all kept.

    >>> maximal([1, 3, 4])
    [3, 4]
    """
    masks = sorted(set(masks))
    if len(masks) > MANY:
        return masks
    return sorted({m for m in masks if not any(m != o and m & ~o == 0 for o in masks)})


def best_identities(problem: Problem, limit: int) -> tuple[Family, Union]:
    """Return the best of ``identity_unions``; one histogram alone is not weighed."""
    families = _identity_families(problem, limit)
    if len(families) == 1 == len(families[0]):
        family = Family(problem.d, families[0], problem.components.masks)
        return family, Union((None,) * problem.d, np.ones(1))
    family, found = min(identity_unions(problem, limit), key=lambda pair: pair[1].error)
    return family, found.union


def _identity_families(problem: Problem, limit: int) -> list[list[int]]:
    supports = problem.components.supports
    families = [maximal(supports), sorted(set(supports))]
    union = int(np.bitwise_or.reduce(np.array(supports, dtype=object)))
    if problem.cells(union) <= limit:
        families.insert(0, [union])
    return [f for k, f in enumerate(families) if f not in families[:k]]


def identity_unions(problem: Problem, limit: int) -> list[tuple[Family, FoundUnion]]:
    """Return the histogram of all attributes (if it fits) and one per (maximal) support.

    Shares follow the cube-root (Laplace) or square-root (Gaussian) rule on the errors of the
    supports; the error is that of least squares over all of them. Source: HDMM, section 6.2.
    """
    out = []
    for sets in _identity_families(problem, limit):
        family = Family(problem.d, sets, problem.components.masks)
        objective = Objective(problem, family)
        union_of = Union((None,) * problem.d, split_weights(objective, (None,) * problem.d))
        out.append((family, FoundUnion(objective.error(union_of), union_of)))
    return out


def split_weights(objective: Objective, thetas: tuple[Floats | None, ...]) -> Floats:
    """Return the OPT_+ weights: each support is answered by the smallest set that contains it.

    Args:
        thetas: (p_i, n_i) per attribute, None for the identity.
    """
    problem, family = objective.problem, objective.family
    t, r, totals = objective.values(thetas)
    errors = np.zeros(len(family.sets))
    _, over = family.measure(totals)
    sizes = [problem.cells(M) for M in family.sets]
    log_totals = np.log(totals)
    place = {M: m for m, M in enumerate(family.sets)}
    for support, group in zip(problem.components.supports, problem.components.groups, strict=True):
        home = place.get(support, -1)
        if home < 0:
            holders = [m for m, M in enumerate(family.sets) if support & ~M == 0]
            if not holders:
                continue
            home = min(holders, key=sizes.__getitem__)
        extra = family.sets[home]
        inside = sum(log_totals[i] for i in problem.axes(extra))
        values = problem.components.group_values(group, t, r)
        errors[home] += float((values * over[group.positions]).sum() / np.exp(inside))
    power = law(problem.noise).share_power / law(problem.noise).norm
    weights = np.maximum(errors, 1e-300) ** power
    # A set that holds nothing by itself may still help others: not zero, where no descent could
    # raise it.
    return np.where(errors > 0, weights, 1e-3 * weights.max())


def search_union(
    problem: Problem, thetas: tuple[Floats | None, ...] | None = None, *, maxiter: int = 600
) -> tuple[Family, FoundUnion]:
    """Return the best union of one block per support, or per maximal support.

    The budget starts at the cube-root split and is then optimised together with the factors.

    Args:
        thetas: (p_i, n_i) per attribute to begin with, None for the identity.
        maxiter: most steps.

    Source: HDMM, section 6.2 (OPT_+).
    """
    base = initial_thetas(problem) if thetas is None else thetas
    supports = sorted(set(problem.components.supports))
    choices = [supports] if maximal(supports) == supports else [supports, maximal(supports)]
    out = []
    for sets in choices:
        family = Family(problem.d, sets, problem.components.masks)
        objective = Objective(problem, family)
        start = Union(base, split_weights(objective, base))
        out.append((family, descend(objective, start, ftol=1e-7, maxiter=maxiter)))
    return min(out, key=lambda pair: pair[1].error)
