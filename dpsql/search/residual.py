"""Residual planner: uncorrelated components, each measured once (Gaussian noise).

Source: ResidualPlanner for the marginals of identities; generalised here to any product workload
by one inverse Gram K per attribute, which may be optimised together with the shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass
from dpsql.search.bounds import operator_bound
from dpsql.search.joint import minimise_log, normalised_weights, shared_groups
from dpsql.search.opt0 import steps_within
from dpsql.search.problem import Problem
from dpsql.strategy.axis import Axis, residual_axis
from dpsql.strategy.noise_law import GAUSSIAN
from dpsql.strategy.product import ProductStrategy, shares
from dpsql.strategy.product_block import ProductBlock
from dpsql.strategy.quantise import bits_for, column_norm, quantise

MIXED = (0.0, 1e-4, 1e-3, 1e-2)
"""Parts of the identity mixed into rows that degenerate when they are rounded."""

ROUGHNESS, LOST = 0.25, 1e-2
"""The smallest singular value below which that may be, as a part of what rounding adds, and the
relative loss of one attribute from which more is mixed in."""

EVEN = 1e-9
"""Relative distance from equal up to which two cells are measured as one difference."""

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
    return np.array([np.prod((1 - 1 / tau)[inside]) for inside in _inside(problem)])


def _inside(problem: Problem) -> list[list[int]]:
    return [list(problem.axes(mask)) for mask in problem.components.masks]


def planned_error(problem: Problem, tables: Traces) -> float:
    """Return the least error at unit budget, (sum_c sqrt(R_c p_c))^2."""
    R = problem.components.values(tables.t, tables.r)
    return float(np.sqrt(R * prices(problem, tables.tau)).sum() ** 2)


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
            from dpsql.search import dual as convex  # searches that most requests do without

            scales, level = normalised_weights(problem, group[0])
            gram = problem.factors[group[0]].gram(scales) + level
            steps = MOST_STEPS if lower else affordable_steps(len(gram))
            found = convex.optimise(gram, tol=tol, maxiter=steps)
            bound, n = found.lower * float(factors.frobenius[0]), len(gram)
            X = found.matrix.T @ found.matrix
            scale = 1 / np.sqrt(np.diag(X))
            X = X * scale * scale[:, np.newaxis]
            start = np.linalg.cholesky((1 - RIDGE) * X + RIDGE * np.eye(n)).T.astype(np.float64)
            for i in group:
                rows[i] = start if n > 1 else None  # a single cell has no residual
        lower *= bound ** len(group)
    return rows, lower


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

    The rows A_i have unit L2 columns; attributes that share a start share the result. Each has
    shape (n_i, n_i), one per attribute; None is an attribute of which only identity and total are
    asked. Where few steps are within the work of a search, the rows are nearly those given.
    """
    search = _JointDescent(problem, rows)
    work = sum(CUBES * float(n) ** 3 for _, _, n in search.groups)
    maxiter = steps_within(work, int(STEPS * max(1.0, effort)), effort)
    x = minimise_log(
        search.evaluate, search.start, ftol, maxiter, signed=True, cost=work, lull=LULL
    )
    return search.unpack(x)


class _JointDescent:
    """The planned error as a function of the rows, columns of any length."""

    def __init__(self, problem: Problem, rows: Sequence[Floats | None]) -> None:
        self.problem = problem
        self.base = identity_tables(problem)
        self.inside = _inside(problem)
        self.member = np.zeros((len(self.inside), problem.d))
        for c, attributes in enumerate(self.inside):
            self.member[c, attributes] = 1
        self.groups: list[tuple[list[int], slice, int]] = []
        parts: list[Floats] = []
        known: dict[int, int] = {}  # by identity, which is what shared means; ``rows`` holds all
        size = 0
        for i, B in enumerate(rows):
            if B is None:
                continue
            if id(B) in known:
                self.groups[known[id(B)]][0].append(i)
                continue
            known[id(B)] = len(self.groups)
            self.groups.append(([i], slice(size, size + B.size), B.shape[1]))
            parts.append(B.ravel())
            size += B.size
        self.start = np.concatenate(parts) if parts else np.zeros(0)

    def unpack(self, x: Floats) -> list[Floats | None]:
        rows: list[Floats | None] = [None] * self.problem.d
        for members, place, n in self.groups:
            A = _unit_columns(x[place].reshape(-1, n))
            for i in members:
                rows[i] = A
        return rows

    def evaluate(self, x: Floats) -> tuple[float, Floats]:
        """Return the planned error and its gradient."""
        problem, components = self.problem, self.problem.components
        t, r, tau = list(self.base.t), list(self.base.r), self.base.tau.copy()
        inverses: dict[int, tuple[Floats, Floats]] = {}
        for members, place, n in self.groups:
            A = _unit_columns(x[place].reshape(-1, n))
            try:
                root_of = np.asarray(np.linalg.inv(A), dtype=np.float64)
                K = root_of @ root_of.T
                for i in members:
                    inverses[i] = root_of, K
                    t[i], r[i] = problem.factors[i].tables(K)
                    tau[i] = K.sum()
            except np.linalg.LinAlgError:  # a step too far: no inverse, or one of lost totals
                return np.inf, np.zeros_like(x)
        if not (tau > 0).all():
            return np.inf, np.zeros_like(x)
        R = components.values(t, r)
        rest = 1 - 1 / tau
        p = np.exp(self.member @ np.log(np.maximum(rest, 1e-300)))
        root = np.sqrt(R * p)
        T = float(root.sum())
        asked = 1e-14 * R.max() < R
        dR = np.zeros_like(R)
        dR[asked] = T * np.sqrt(p[asked] / R[asked])
        gt, gr = components.pull(dR, t, r)
        gtau = (self.member.T @ (T * root)) / np.maximum(rest, 1e-300) / tau**2
        out = np.zeros_like(x)
        for members, place, n in self.groups:
            B = x[place].reshape(-1, n)
            root_of, K = inverses[members[0]]
            pulled = sum(
                problem.factors[i].slope_times(K, gt[i], gr[i], float(gtau[i])) for i in members
            )
            norms = np.sqrt(np.square(B).sum(axis=0))
            A = B / norms
            g = -2 * root_of.T @ pulled
            out[place] = ((g - A * (A * g).sum(axis=0)) / norms).ravel()
        return T**2, out


def _unit_columns(B: Floats) -> Floats:
    return np.asarray(B / np.sqrt(np.square(B).sum(axis=0)))


def realise_residual(
    problem: Problem, rows: Sequence[Floats | None], method: str
) -> ProductStrategy:
    """Return the integer strategy: residual rows per attribute, shares planned from these.

    The shares are the exact optimum for the rounded rows, not for those they approximate.
    ``rows`` as ``optimise_rows`` returns them.
    """
    components = problem.components
    inside = _inside(problem)
    rounding = _Rounding(problem, rows)
    residual: dict[str, Integers | None] = {}
    t, r = problem.identity_tables()
    gain = np.ones(problem.d)
    for i, name in enumerate(problem.names):
        axis = rounding.axis(i)
        residual[name], gain[i] = axis.rows, axis.gain
        t[i], r[i] = _tables(problem, i, axis)
    R = components.values(t, r)
    keep = [c for c in range(len(inside)) if R[c] > 0]
    names = [problem.attributes(components.masks[c]) for c in keep]
    draft = [ProductBlock(a, frozenset(a), Fraction(1, len(keep))) for a in names]
    domain = problem.workload.domain
    used = {a for block in draft for a in block.attributes}
    residual = {a: m for a, m in residual.items() if a in used}
    measured = ProductStrategy(domain, {}, residual, tuple(draft), problem.noise, method)
    price = [
        measured.sensitivity(block) / np.prod(gain[inside[c]])
        for c, block in zip(keep, draft, strict=True)
    ]
    parts_of = shares(list(np.sqrt(R[keep] * np.array(price))), negligible=0.0)
    blocks = tuple(
        ProductBlock(block.attributes, block.residual, part)
        for block, part in zip(draft, parts_of, strict=True)
    )
    return ProductStrategy(domain, {}, residual, blocks, problem.noise, method)


class _Rounding:
    """Integer rows near the planned ones, with as many bits as the blocks of each allow."""

    def __init__(self, problem: Problem, rows: Sequence[Floats | None]) -> None:
        self.problem = problem
        self.inside = _inside(problem)
        self.rows = [None if A is None or _is_even(A) else A for A in rows]
        learned = {i for i, A in enumerate(self.rows) if A is not None}
        meet = [(set(c), len(learned & set(c))) for c in self.inside]
        self.bits = [
            bits_for(max((count for c, count in meet if i in c), default=1))
            for i in range(problem.d)
        ]

    def axis(self, i: int) -> Axis:
        """Return the axis of rounded rows of an attribute.

        A workload that can hardly tell some cells apart is planned with rows that hardly do, and
        rounding may lose that: then some of the identity is mixed in, as much as loses least.
        """
        A, size = self.rows[i], self.problem.sizes[i]
        if A is None:
            return residual_axis(size, None)
        with suppress(ValueError):  # LinAlgError is one
            B = residual_matrix(A)
            smallest = np.sqrt(np.square(B).sum(axis=1).min())  # its rows are orthogonal
            if smallest > ROUGHNESS * np.sqrt(size) * 2.0 ** -self.bits[i]:
                return residual_axis(size, quantise(B, self.bits[i], GAUSSIAN.name))
        found: list[tuple[float, Axis]] = []
        for part in MIXED:
            try:
                axis = _mixed_axis(A, self.bits[i], part)
            except ValueError:
                continue
            found.append((self._error_with(i, axis), axis))
            if found[-1][0] <= self._least * (1 + LOST):
                break
        if not found:
            raise ValueError("the rows of an attribute lose rank however they are rounded")
        return min(found, key=lambda pair: pair[0])[1]

    @cached_property
    def _planned(self) -> Traces:
        """The tables of the planned rows, with the prices of unit precision in place of tau."""
        tables = identity_tables(self.problem)
        for i, A in enumerate(self.rows):
            if A is not None:
                tables.t[i], tables.r[i], tables.tau[i] = self._planned_tables(i, A)
        return Traces(tables.t, tables.r, 1 - 1 / tables.tau)

    def _planned_tables(self, i: int, A: Floats) -> tuple[Floats, Floats, float]:
        """Return the tables of planned rows; of those that lose the total, with some identity."""
        for part in MIXED:
            with suppress(np.linalg.LinAlgError):
                K = np.asarray(np.linalg.inv(_mixed_gram(A, part)), dtype=np.float64)
                return *self.problem.factors[i].tables(K), float(K.sum())
        raise np.linalg.LinAlgError

    @cached_property
    def _least(self) -> float:
        return self._error(self._planned)

    def _error_with(self, i: int, axis: Axis) -> float:
        """Return the planned error with an attribute rounded and all others as planned."""
        t, r = list(self._planned.t), list(self._planned.r)
        prices = self._planned.tau.copy()
        t[i], r[i] = _tables(self.problem, i, axis)
        cells = axis.rows
        prices[i] = 1.0 if cells is None else column_norm(cells, GAUSSIAN.name) / axis.gain
        return self._error(Traces(t, r, prices))

    def _error(self, priced: Traces) -> float:
        R = self.problem.components.values(priced.t, priced.r)
        price = np.array([np.prod(priced.tau[c]) for c in self.inside])
        return float(np.sqrt(R * price).sum() ** 2)


def _is_even(A: Floats) -> bool:
    """Say whether rows on two cells are as good as the identity: the residual is one difference."""
    if A.shape[1] != 2:
        return False
    left, right = residual_matrix(A)[0]
    return bool(abs(left + right) < EVEN)


def _tables(problem: Problem, i: int, axis: Axis) -> tuple[Floats, Floats]:
    """Return the tables of an attribute, the last entries of which are those of Total."""
    parts = [axis.parts(op)[:2] for op in problem.factors[i].operators]
    t = np.append([means @ means for means, _ in parts], 1.0)
    return t, np.append([spread.sum() for _, spread in parts], 0.0)


def _mixed_axis(A: Floats, bits: int, part: float) -> Axis:
    if part:
        A = np.linalg.cholesky(_mixed_gram(A, part)).T.astype(np.float64)
    return residual_axis(A.shape[1], quantise(residual_matrix(A), bits, GAUSSIAN.name))


def _mixed_gram(A: Floats, part: float) -> Floats:
    return np.asarray((1 - part) * A.T @ A + part * np.eye(A.shape[1]))


def residual_matrix(A: Floats) -> Floats:
    """Return rows B with B'B = A'A - J/tau, as n - 1 rows scaled to a largest column of one.

    ``A`` has shape (r, n) and rank n, the result (n - 1, n).
    """
    S = A.T @ A
    tau = np.linalg.inv(S).sum()
    values, vectors = np.linalg.eigh(S - 1 / tau)
    B = np.sqrt(np.maximum(values[1:], 0))[:, np.newaxis] * vectors[:, 1:].T
    return np.asarray(B / np.sqrt(np.square(B).sum(axis=0).max()))
