"""Residual planner: uncorrelated components, each measured once (Gaussian noise).

Source: ResidualPlanner for the marginals of identities; generalised here to any product workload
by one inverse Gram K per attribute, which may be optimised together with the shares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass
from dpsql.search.bounds.singular_values import operator_bound
from dpsql.search.one_attribute.free_rows import DescentRows, FreeRows, free_rows
from dpsql.search.one_attribute.opt0 import steps_within
from dpsql.search.problem import Problem
from dpsql.search.search_cache import SearchCache
from dpsql.search.unions.joint import minimise_log, normalised_weights, shared_groups
from dpsql.search.work_limit import threads_for

LULL = 5e-5
"""Relative gain of ten steps together below which a descent ends: what comes after is a few times
as much in all, and takes most of the steps."""

CUBES, STEPS = 2.4, 500
"""Work of one step of a descent over rows, in cubes of the cells, and most steps.

It takes six products of matrices, which are two to three times as quick as other work. At 500 cells
a third of the steps was 3 % worse, and two thirds are a few parts in a thousand.
"""

MOST_STEPS, LEAST_STEPS = 100, 8
"""Steps of the dual fixed point of an attribute, where several products are asked."""

WORK = 3e10
"""Sum over its steps of the cube of the cells: half a minute; 100 steps up to 670 cells."""

RIDGE = 1e-6
"""Part of the identity that makes a start invertible where the optimum is singular."""


REMEMBERED = 1 << 22
"""Numbers of the rows of starts that are remembered, 32 MiB."""

_starts: SearchCache[tuple[Floats, float]] = SearchCache(REMEMBERED)


@dataclass(frozen=True, slots=True)
class Traces:
    """Per attribute the traces of all factors, the inverse Gram and 1'K1."""

    t: list[Floats]
    r: list[Floats]
    tau: Floats


def identity_tables(problem: Problem) -> Traces:
    """Return the tables of K = I everywhere."""
    t, r = problem.identity_tables()
    return Traces(t, r, np.array(problem.sizes, dtype=np.float64))


def prices(problem: Problem, tau: Floats) -> Floats:
    """Return p_c = prod over i in c of (1 - 1/tau_i): the cost of unit precision.

    ``tau`` (attributes,) is 1'K1 of each; the result has one price per set c of attributes.
    Source: ResidualPlanner (Xiao et al. 2023).
    """
    return np.array([np.prod((1 - 1 / tau)[inside]) for inside in inside_of(problem)])


def inside_of(problem: Problem) -> list[list[int]]:
    return [list(problem.axes(mask)) for mask in problem.components.masks]


def initial_rows(problem: Problem, tol: float = 1e-3) -> list[Floats | None]:
    """Return per attribute the OPT_0 rows of its normalised factors, None where K = I."""
    return bounded_rows(problem, tol)[0]


def bounded_rows(problem: Problem, tol: float) -> tuple[list[Floats | None], float]:
    """Return ``initial_rows`` and, for a single product, a lower bound on every strategy."""
    rows: list[Floats | None] = [None] * problem.d
    weights2 = problem.components.weights2
    lower = float(weights2[0]) if len(weights2) == 1 else 0.0
    for group in shared_groups(problem):
        factors = problem.factors[group[0]]
        bound = operator_bound(factors.operators[0]) if factors.trivial else 0.0
        if not factors.trivial:
            steps = MOST_STEPS if lower else affordable_steps(factors.n)
            start, least = _started(problem, group[0], tol, steps)
            bound = least * float(factors.frobenius[0])
            for i in group:
                rows[i] = start if factors.n > 1 else None  # a single cell has no residual
        lower *= bound ** len(group)
    return rows, lower


def _started(problem: Problem, i: int, tol: float, steps: int) -> tuple[Floats, float]:
    """Return the rows from which an attribute starts, and a lower bound for its normalised factors.

    Other weights of the same answers have the same.
    """
    factors, (scales, level) = problem.factors[i], normalised_weights(problem, i)
    keys = tuple(operator.key for operator in factors.operators)
    key = (keys, scales.tobytes(), level, tol, steps)

    def find() -> tuple[Floats, float]:
        from dpsql.search.one_attribute import (
            dual,  # searches that most requests do without
        )

        found = dual.optimise(factors.gram(scales) + level, tol=tol, maxiter=steps)
        X = found.matrix.T @ found.matrix
        scale = 1 / np.sqrt(np.diag(X))
        X = X * scale * scale[:, np.newaxis]
        ridge = RIDGE * np.eye(factors.n)
        start = np.linalg.cholesky((1 - RIDGE) * X + ridge).T.astype(np.float64)
        start.setflags(write=False)
        return start, found.lower

    return _starts.of(key, factors.n**2, find)


def affordable_steps(n: int) -> int:
    """Return how many steps of the dual fixed point to take on n cells.

    >>> affordable_steps(256), affordable_steps(1024), affordable_steps(4096)
    (100, 27, 8)
    """
    return int(np.clip(WORK / float(n) ** 3, LEAST_STEPS, MOST_STEPS))


def optimise_rows(
    problem: Problem, rows: Sequence[Floats | None], *, effort: float = 1.0, ftol: float = 1e-9
) -> list[Floats | None]:
    """Return the rows after joint descent on the log of the planned error.

    Attributes that share a start share the result. Where few steps are within the work of a
    search, the rows are nearly those given.

    Args:
        rows: (n_i, n_i) per attribute, with unit L2 columns; None for an attribute of which only
            identity and total are asked.
        effort: above 1 scales the number of steps.
        ftol: relative decrease of a step at which it ends.
    """
    search = _JointDescent(problem, rows)
    work = sum(CUBES * float(free.size) ** 3 for _, _, free in search.groups)
    maxiter = steps_within(work, int(STEPS * max(1.0, effort)), effort)
    with threads_for(max((free.size for _, _, free in search.groups), default=0)):
        x = minimise_log(
            search.evaluate, search.start, ftol, maxiter, signed=True, cost=work, lull=LULL
        )
    return search.unpack(x)


class _JointDescent:
    """The planned error as a function of the rows of all attributes."""

    def __init__(self, problem: Problem, rows: Sequence[Floats | None]) -> None:
        self.problem = problem
        self.base = identity_tables(problem)
        self.inside = inside_of(problem)
        self.member = np.zeros((len(self.inside), problem.d))
        for c, attributes in enumerate(self.inside):
            self.member[c, attributes] = 1
        shared: dict[int, list[int]] = {}  # by identity, which is what shared means
        for i, B in enumerate(rows):
            if B is not None:
                shared.setdefault(id(B), []).append(i)
        self.groups: list[tuple[list[int], slice, FreeRows]] = []
        size = 0
        for members in shared.values():
            start = rows[members[0]]
            assert start is not None
            free = free_rows([problem.factors[i] for i in members], start)
            self.groups.append((members, slice(size, size + len(free.start)), free))
            size += len(free.start)
        parts = [free.start for _, _, free in self.groups]
        self.start = np.concatenate(parts) if parts else np.zeros(0)

    def unpack(self, x: Floats) -> list[Floats | None]:
        rows: list[Floats | None] = [None] * self.problem.d
        for members, place, free in self.groups:
            A = free.cells(x[place])
            for i in members:
                rows[i] = A
        return rows

    def evaluate(self, x: Floats) -> tuple[float, Floats]:
        """Return the planned error and its gradient."""
        components = self.problem.components
        t, r, tau = list(self.base.t), list(self.base.r), self.base.tau.copy()
        looks: list[DescentRows] = []
        for members, place, free in self.groups:
            try:
                looks.append(free.look(x[place]))
                for k, i in enumerate(members):
                    t[i], r[i], tau[i] = free.tables(looks[-1], k)
            except np.linalg.LinAlgError:  # a step too far: no inverse, or one of lost totals
                return np.inf, np.zeros_like(x)
        if not (tau > 0).all():
            return np.inf, np.zeros_like(x)
        R = components.values(t, r)
        rest = 1 - 1 / tau
        # Products over subsets as sums of logarithms; a zero stays zero to a double.
        p = np.exp(self.member @ np.log(np.maximum(rest, 1e-300)))
        root = np.sqrt(R * p)
        T = float(root.sum())
        # Components that nobody asks about are rounding residue here, and their slope infinite.
        asked = 1e-14 * R.max() < R
        dR = np.zeros_like(R)
        dR[asked] = T * np.sqrt(p[asked] / R[asked])
        gt, gr = components.pull(dR, t, r)
        gtau = (self.member.T @ (T * root)) / np.maximum(rest, 1e-300) / tau**2
        out = np.zeros_like(x)
        for look, (members, place, free) in zip(looks, self.groups, strict=True):
            slopes = [(k, gt[i], gr[i], float(gtau[i])) for k, i in enumerate(members)]
            out[place] = free.gradient(look, slopes)
        return T**2, out
