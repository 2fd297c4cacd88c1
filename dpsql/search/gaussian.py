"""The Gaussian templates in the order of their planning cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Floats, Operator
from dpsql.algebra.weak_cache import WeakCache
from dpsql.search.bounds.isometries import paired_bound
from dpsql.search.laplace import JOINT, KRON, SIMPLE, identity_candidates, room
from dpsql.search.marginals.residual import (
    MOST_STEPS,
    affordable_steps,
    bounded_rows,
    initial_rows,
    optimise_rows,
)
from dpsql.search.one_attribute.distinct_queries import read_few
from dpsql.search.one_attribute.low_rank import few_candidates
from dpsql.search.problem import Problem
from dpsql.search.rounding import realise_residual
from dpsql.search.unions.joint import Objective
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.opt_kron import split_weights
from dpsql.search.unions.opt_m import search_weights
from dpsql.search.work_limit import BRIEF, may_go_on, within
from dpsql.strategy.product import ProductStrategy, assemble

SWEEPS = 10
"""Most rounds over all attributes, each optimised given the others; gains of 1e-5 end them."""

FILL = 2.0**-14
"""Part of the identity in rows that would otherwise be of lower rank."""


DENSE = 1 << 10
"""Most cells on which few queries are searched for among all strategies of the cells as well."""


REMEMBERED = 1 << 22
"""Numbers of inverse Grams that are remembered, 32 MiB."""

_inverses: WeakCache[Floats] = WeakCache(REMEMBERED)


def inverse_gram(rows: Floats) -> Floats:
    """Return the inverse Gram of rows of full rank, shape (r, n): (n, n)."""
    return np.asarray(np.linalg.inv(rows.T @ rows), dtype=np.float64)


def _kept_inverse(rows: Floats) -> Floats:
    """Return the same, remembered for as long as the rows are in use."""
    return _inverses.of(rows, rows.shape[1] ** 2, lambda: inverse_gram(rows))


class FixedRows(Objective):
    """The error of a union whose factors are given by the inverse Grams of unit rows."""

    def __init__(self, problem: Problem, family: Family, inverses: Sequence[Floats | None]) -> None:
        super().__init__(problem, family)
        for i, K in enumerate(inverses):
            if K is not None:
                self.t[i], self.r[i] = problem.factors[i].tables(K)
                self.totals[i] = 1 / K.sum()


def gaussian_candidates(
    problem: Problem, mechanism: str, limit: int, effort: float
) -> Iterator[tuple[ProductStrategy, float]]:
    """Yield the strategies of a mechanism, each with a lower bound on any strategy, 0 if unknown.

    One attribute has a convex optimum. A single product needs no joint search: its optimum is the
    product of the attributes' optima, which residual blocks with the same rows attain.

    Args:
        mechanism: a family, or "auto" or "hdmm" for several.
        limit: most numbers of one block.
        effort: scales the work.
    """
    few = read_few(problem) if problem.d == 1 and mechanism in ("auto", "hdmm", "kron") else None
    if few is not None and few.is_full and effort <= BRIEF and problem.sizes[0] <= DENSE:
        few = None  # the same optimum as that of all cells below
    if few is not None:
        yield from within(JOINT, few_candidates(problem, few, effort))
        if few.is_thin or problem.sizes[0] > DENSE:
            return
    if any(factors.large for factors in problem.factors):
        # Residual rows of so many cells are not written out; identities need no rows at all.
        if mechanism in ("residual", "joint"):
            yield from ((found, 0.0) for found in identity_candidates(problem, limit))
        if mechanism != "kron" and problem.d > 1 and not room(problem, limit, effort).crowded:
            yield from within(SIMPLE, _marginals(problem, limit, effort))
        return
    fits = problem.cells(problem.full) <= limit
    if fits and (mechanism in ("kron", "hdmm") or problem.d == 1):
        yield from within(JOINT if problem.d == 1 else KRON, _kron(problem))
        if problem.d == 1:
            return
    if mechanism in ("union", "hdmm"):
        yield from within(SIMPLE, _union(problem))
    if mechanism in ("marginals", "hdmm"):
        yield from within(SIMPLE, _marginals(problem, limit, effort))
    if mechanism in ("residual", "joint", "auto"):
        yield from within(JOINT, _residual(problem, effort, mechanism == "residual"))


Bounded: TypeAlias = Iterator[tuple[ProductStrategy, float]]


def _kron(problem: Problem) -> Bounded:
    yield bounded_kron(problem)


def _union(problem: Problem) -> Bounded:
    yield union_strategy(problem), 0.0


def _marginals(problem: Problem, limit: int, effort: float) -> Bounded:
    yield marginals_strategy(problem, limit, effort), 0.0


def _residual(problem: Problem, effort: float, starts_only: bool) -> Bounded:
    """Yield residual blocks of rows that are optimised together, unless starts are enough."""
    single = len(problem.components.weights2) == 1
    # For one product these rows are the answer; otherwise they are where a descent begins.
    rows, lower = bounded_rows(problem, 1e-6 if single else 1e-3)
    plain = all(A is None for A in rows)
    if not (starts_only or plain or single):
        rows = optimise_rows(problem, rows, effort=effort)
        lower = max(lower, paired_bound(problem))
    yield realise_residual(problem, rows, "residual" if plain else "joint"), lower


def kron_strategy(problem: Problem) -> ProductStrategy:
    """Return the Kronecker product of convex optima."""
    return bounded_kron(problem)[0]


def bounded_kron(problem: Problem) -> tuple[ProductStrategy, float]:
    """Return the Kronecker product of convex optima, by block-cyclic descent, and a lower bound.

    For a single product each attribute is solved once and the result is globally optimal.
    Source: HDMM, section 6.1; COA for the convex program.
    """
    index, weights2 = problem.components.index, problem.components.weights2
    traces = np.array(
        [np.append(f.frobenius, float(f.n))[index[:, i]] for i, f in enumerate(problem.factors)]
    )
    rows: list[Floats] = [np.eye(n) for n in problem.sizes]
    # With one product the attributes do not meet, so that a single sweep is optimal.
    last, exact = np.inf, problem.d == 1 or len(weights2) == 1
    lower = float(weights2.sum()) if exact else 0.0
    for _ in range(1 if exact else SWEEPS):
        for i, factors in enumerate(problem.factors):
            others = weights2 * np.delete(traces, i, axis=0).prod(axis=0)
            gram = weighted_gram(problem, i, others / others.sum())
            rows[i], bound = optimal_rows(gram)
            lower *= bound
            if exact:
                continue
            K = np.asarray(np.linalg.pinv(rows[i].T @ rows[i], hermitian=True), dtype=np.float64)
            t, r = factors.tables(K)
            traces[i] = (r + K.sum() * t)[index[:, i]]
        error = float(weights2 @ traces.prod(axis=0))
        if error > last * (1 - 1e-5) or not may_go_on():
            break
        last = error
    factors_of = dict(zip(problem.names, rows, strict=True))
    domain = problem.workload.domain
    return assemble(domain, factors_of, {problem.names: 1.0}, problem.noise, "kron"), lower


def weighted_gram(problem: Problem, i: int, others: Floats) -> Floats | Operator:
    """Return sum_j others_j G_ij (n_i, n_i), or the operator itself when there is only one factor.

    Args:
        i: the place of the attribute.
        others: (j,) what the other factors of each component contribute.
    """
    which = problem.components.index[:, i]
    asked = which >= 0
    operators = problem.factors[i].operators
    if asked.all() and len(operators) == 1:
        return operators[0]
    share = np.bincount(which[asked], others[asked], minlength=len(operators)).astype(np.float64)
    return np.asarray(problem.factors[i].gram(share) + others[~asked].sum())


def optimal_rows(gram: Floats | Operator) -> tuple[Floats, float]:
    """Return the rows of unit L2 columns with the least tr(V K), and a lower bound on it.

    The identity is recognised.
    ``gram`` and the rows have shape (n, n).
    """
    from dpsql.search.one_attribute import dual  # searches that most requests do without

    if isinstance(gram, Operator):
        if gram.key == ("identity", gram.n):
            return np.eye(gram.n), float(gram.n)
    elif np.count_nonzero(gram - np.diag(np.diag(gram))) == 0 and np.ptp(np.diag(gram)) == 0:
        # Every cell alone, all alike: the identity, which stays exact and needs no rounding.
        return np.eye(len(gram)), float(np.trace(gram))
    steps = affordable_steps(gram.n if isinstance(gram, Operator) else len(gram))
    found = dual.optimise(gram, maxiter=MOST_STEPS if isinstance(gram, Operator) else steps)
    return of_full_rank(found.matrix), found.lower


def of_full_rank(rows: Floats) -> Floats:
    """Return rows of full rank with columns as long as before, and nearly the same Gram.

    Rounding to integers turns the row space of rows of lower rank, so that they would answer no
    query; a small part of the identity keeps every direction, and costs that part in error.
    ``rows`` has shape (r, n), the result (r, n) or (n, n).
    """
    n = rows.shape[1]
    if len(rows) >= n and np.abs(rows.diagonal()).min() > np.sqrt(FILL):
        return rows
    gram = rows.T @ rows
    filled = (1 - FILL) * gram + FILL * gram.diagonal().max() * np.eye(n)
    return np.asarray(np.linalg.cholesky(filled).T, dtype=np.float64)


def union_strategy(problem: Problem) -> ProductStrategy:
    """Return one block per support with shared rows and the best L2 split."""
    sets = sorted(set(problem.components.supports))
    family = Family(problem.d, sets, problem.components.masks)
    return _weighted(problem, family, initial_rows(problem), np.ones(len(sets)), 0.1, "union")


def marginals_strategy(problem: Problem, limit: int, effort: float) -> ProductStrategy:
    """Return OPT_M: the best weighted union of identities.

    Args:
        limit: most numbers of one block.
        effort: scales the work.
    """
    space = room(problem, limit, effort)
    rows: list[Floats | None] = [None] * problem.d
    seconds = space.weight_seconds() / 4
    return _weighted(problem, space.family, rows, space.allowed, seconds, "marginals")


def _weighted(
    problem: Problem,
    family: Family,
    rows: list[Floats | None],
    allowed: Floats,
    seconds: float,
    method: str,
) -> ProductStrategy:
    inverses: list[Floats | None] = [None if A is None else _kept_inverse(A) for A in rows]
    objective = FixedRows(problem, family, inverses)
    thetas: tuple[Floats | None, ...] = (None,) * problem.d
    start = split_weights(objective, thetas)
    found = search_weights(objective, thetas, seconds=seconds, starts=[start], allowed=allowed)
    weights = {
        problem.attributes(M): float(x) ** 2
        for M, x in zip(family.sets, found.union.w, strict=True)
        if x > 0
    }
    factors: dict[str, Floats | Structured | None] = {}
    for name, asked, A in zip(problem.names, problem.factors, rows, strict=True):
        factors[name] = asked.base.rows if A is None else A
    return assemble(problem.workload.domain, factors, weights, problem.noise, method)
