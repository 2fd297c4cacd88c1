"""Integer rows near planned ones, measured as residual rows: with as many bits as blocks allow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.algebra.weak_cache import WeakCache
from dpsql.records import cached_property
from dpsql.search.marginals.residual import Traces, identity_tables, inside_of
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

REMEMBERED = 1 << 22
"""Numbers of rows whose axes are remembered, 32 MiB."""

_rounded: WeakCache[dict[tuple[int, float | None], Axis | None]] = WeakCache(REMEMBERED)


def realise_residual(
    problem: Problem, rows: Sequence[Floats | None], method: str
) -> ProductStrategy:
    """Return the integer strategy: residual rows per attribute, shares planned from these.

    The shares are the exact optimum for the rounded rows, not for those they approximate.

    Args:
        rows: as ``optimise_rows`` returns them.
        method: the name of the search, for people.
    """
    components = problem.components
    inside = inside_of(problem)
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
        self.inside = inside_of(problem)
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
        plain = _remembered(A, self.bits[i], None)
        if plain is not None:
            return plain
        found: list[tuple[float, Axis]] = []
        for part in MIXED:
            axis = _remembered(A, self.bits[i], part)
            if axis is None:
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


def _remembered(A: Floats, bits: int, part: float | None) -> Axis | None:
    """Return the axis of rounded rows with a part of the identity, None where they lose rank.

    Without a part, None too where they may be too rough. Remembered for as long as A is in use.
    """
    known = _rounded.of(A, A.size * len(MIXED), dict)
    if (bits, part) not in known:
        known[bits, part] = None
        with suppress(ValueError):  # LinAlgError is one
            known[bits, part] = _rounded_axis(A, bits, part)
    return known[bits, part]


def _rounded_axis(A: Floats, bits: int, part: float | None) -> Axis | None:
    if part:
        A = np.linalg.cholesky(_mixed_gram(A, part)).T.astype(np.float64)
    B, size = residual_matrix(A), A.shape[1]
    if part is None:
        smallest = np.sqrt(np.square(B).sum(axis=1).min())  # its rows are orthogonal
        if smallest <= ROUGHNESS * np.sqrt(size) * 2.0**-bits:
            return None
    return residual_axis(size, quantise(B, bits, GAUSSIAN.name))


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
