"""One Kronecker block of p-Identity factors (OPT_kron, Laplace noise)."""

from __future__ import annotations

import numpy as np

from dpsql.plan.templates import p_identity
from dpsql.plan.templates.family import Family
from dpsql.plan.templates.joint import (
    Found,
    Objective,
    Union,
    descend,
    initial_thetas,
    random_thetas,
)
from dpsql.plan.templates.problem import Floats, Problem

SWEEPS = 20


def kron_family(problem: Problem) -> Family:
    """Return the family of the one block over all active attributes."""
    return Family(problem.d, [problem.full], problem.components.masks)


def search_kron(
    problem: Problem, *, restarts: int, seed: int = 0, rough: bool = False
) -> tuple[Family, Found]:
    """Return the best Kronecker strategy found.

    A single product decouples into one search per attribute. Otherwise block-cyclic descent from
    OPT_0 of each attribute's own factors, and joint descents from there and from random starts;
    ``rough`` ends early, for a search that goes on from there.

    Source: HDMM, section 6.1 (OPT_kron).
    """
    family = kron_family(problem)
    objective = Objective(problem, family)
    one = np.ones(1)
    if len(problem.components.weights2) == 1:
        thetas = tuple(_single(problem, i) for i in range(problem.d))
        return family, Found(objective.error(Union(thetas, one)), Union(thetas, one))
    base = initial_thetas(problem, trivial=True)
    rng = np.random.default_rng(seed)
    starts = [cycle(problem, base)]
    starts += [random_thetas(base, rng) for _ in range(restarts)]
    loose = [
        descend(objective, Union(s, one), ftol=1e-5, maxiter=60 if rough else 300, thetas_only=True)
        for s in starts
    ]
    loose.sort(key=lambda found: found.error)
    if rough:
        return family, loose[0]
    tight = [descend(objective, f.union, ftol=1e-9, thetas_only=True) for f in loose[:2]]
    return family, min(tight, key=lambda found: found.error)


def _single(problem: Problem, i: int) -> Floats | None:
    operator = problem.factors[i].operators[0]
    large = problem.factors[i].large
    if large or problem.sizes[i] == 1 or operator.key == ("identity", problem.sizes[i]):
        return None
    return p_identity.optimise(operator)


def cycle(problem: Problem, thetas: tuple[Floats | None, ...]) -> tuple[Floats | None, ...]:
    """Return the factors after block-cyclic descent: each attribute given all others."""
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
            gram = factors.gram(share) + others[~asked].sum()
            current[i] = p_identity.optimise(gram, init=theta, ftol=1e-6, maxiter=200)
            traces[i] = _trace_table(problem, i, current[i])[which]
        error = float(weights2 @ traces.prod(axis=0))
        if error > last * (1 - 1e-4):
            break
        last = error
    return tuple(current)


def _trace_table(problem: Problem, i: int, theta: Floats | None) -> Floats:
    """Return tr(G K) per factor, and 1'K1 for Total."""
    factors = problem.factors[i]
    if theta is None:
        return np.append(factors.frobenius, float(factors.n))
    K = p_identity.inverse_gram(theta)
    t, r = factors.tables(K)
    return np.asarray(r + K.sum() * t)
