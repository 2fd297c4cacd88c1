"""The workload as the optimisers see it: per attribute factor tables, beside its components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import AllRange, Dense, Identity, IdentityTotal, Prefix
from dpsql.algebra.connected_components import gram_of_parts, parts_of
from dpsql.algebra.groups import Groups
from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Array, Floats, Integers, Operator
from dpsql.algebra.weak_cache import WeakCache
from dpsql.errors import ProgrammingError
from dpsql.records import cached_property, dataclass
from dpsql.search.marginals.attribute_masks import axes_of, cells_of, names_of
from dpsql.search.marginals.components import Components
from dpsql.search.one_attribute.p_inverse import AppliedGram, LeanInverse, applied, is_structured
from dpsql.search.work_limit import has_room, has_work
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.workload import Workload

PLANNED = 1 << 12
"""Most cells of an attribute for which matrices of cells by cells are formed and searched over.

Twice as many took minutes, to gain an eighth over structured rows.
"""

CUBES, SMALL = 20.0, 512
"""Work of the fewest steps of a Gaussian search over one attribute, in cubes of its cells, with
rows that are rounded and errors that are forecast; and cells up to which it is always taken."""

ALIVE, STACKED = 16, 3
"""Matrices of cells by cells that a search holds at its peak beside the Gram matrices of queries,
and copies of explicit rows: 11 to 15 were measured."""

FAST = (Prefix, AllRange)
"""Workloads with a tridiagonal inverse Gram."""

REMEMBERED = 1 << 14
"""Factors whose sizes are remembered: weights of the same ones change again and again."""

_known: WeakCache[tuple[float, float]] = WeakCache(REMEMBERED)

TRIVIAL = (Identity, IdentityTotal)
"""Factors for which the identity is the matrix of choice within a union of marginals."""


@dataclass(frozen=True, slots=True)
class Base:
    """The measured rows of an attribute of which no matrix is planned: cells, or structured rows.

    ``tables`` are (t, r) of these rows at unit sensitivity, ``total`` is its 1/tau.
    """

    rows: Structured | None = None
    tables: tuple[Floats, Floats] | None = None
    total: float | None = None


class FactorSet:
    """The distinct factors of one attribute, ready for traces against any inverse Gram K.

    Tables have one entry per factor and a last one for Total. Few explicit rows are kept as rows,
    everything else as Gram matrices, whichever is smaller.
    """

    def __init__(self, name: str, operators: Sequence[Operator]) -> None:
        self.name = name
        self.operators = tuple(operators)
        self.n = operators[0].n
        self.frobenius, self.sums2 = np.array([_sizes(op) for op in operators]).T
        self.base: Base = Base()
        self.is_dear = False

    @cached_property
    def large(self) -> bool:
        """Say whether there are too many cells to plan anything but the identity."""
        if self.n > PLANNED or self.is_dear:
            return True
        return not (self.asks_cells or has_room(self.matrices))

    @property
    def matrices(self) -> int:
        """Return the bytes of all matrices of cells by cells, and of explicit rows, at a peak."""
        written = sum(op.rows for op, few in zip(self.operators, self._few, strict=True) if few)
        grams = len(self.operators) - int(self._few.sum()) - len(self._cells)
        return 8 * self.n * (STACKED * written + self.n * (grams + ALIVE))

    @property
    def trivial(self) -> bool:
        """Say whether only cells and totals are asked, or nothing else can be planned."""
        return self.large or self.asks_cells

    @property
    def is_graded(self) -> bool:
        """True if cells differ by values that are summed: conditions tell fewer of them apart."""
        return (self.n - 1).bit_length() > sum(each.rows for each in self.operators)

    @cached_property
    def weight(self) -> float:
        """Return the cost of the tables relative to n^2."""
        if self.large:
            return 0.0
        return len(self._stack[0]) / self.n + 2 * self._applying / self.n

    @property
    def rows(self) -> int:
        """Return by how many rows a product is multiplied, those of Gram matrices among them."""
        return len(self._stack[0]) + round(self._applying) + 1

    @property
    def _applying(self) -> float:
        """Products of numbers that it takes to apply all Gram matrices, for each cell."""
        return sum(G.cost for _, G in self._applied) / self.n

    @cached_property
    def _few(self) -> NDArray[np.bool_]:
        return np.array([isinstance(op, Dense) and op.rows <= op.n for op in self.operators])

    @cached_property
    def _stack(self) -> tuple[Floats, NDArray[np.intp]]:
        """Return all explicit rows (m, n) and the factor each belongs to."""
        chosen = [f for f in range(len(self.operators)) if self._few[f]]
        if not chosen:
            return np.zeros((0, self.n)), np.zeros(0, dtype=np.intp)
        rows = [np.asarray(self.operators[f].dense(), dtype=np.float64) for f in chosen]
        return np.concatenate(rows), np.repeat(chosen, [len(r) for r in rows])

    @cached_property
    def parts(self) -> Integers | None:
        """Return which part each cell is in, None where all are one, or rows are implicit."""
        written = self._few.sum() + len(self._cells) == len(self.operators)
        return parts_of(self._stack[0]) if written else None

    @cached_property
    def _grams(self) -> list[tuple[int, Floats]]:
        chosen = [f for f in range(len(self.operators)) if not self._few[f]]
        return [(f, self.operators[f].gram()) for f in chosen if f not in self._cells]

    @cached_property
    def _applied(self) -> list[tuple[int, AppliedGram]]:
        """Return the same Gram matrices, those of structured queries never formed."""
        if not any(is_structured(op) for op in self.operators):
            return [(f, applied(G)) for f, G in self._grams]
        chosen = [f for f in range(len(self.operators)) if not self._few[f]]
        return [(f, applied(self.operators[f])) for f in chosen if f not in self._cells]

    @cached_property
    def _cells(self) -> list[int]:
        """The places of factors that ask for cells alone."""
        return [
            f for f, op in enumerate(self.operators) if isinstance(op, Identity) or _is_alone(op)
        ]

    @property
    def asks_cells(self) -> bool:
        """Say whether only cells and totals are asked."""
        return all(isinstance(op, TRIVIAL) or _is_alone(op) for op in self.operators)

    def identity_tables(self) -> tuple[Floats, Floats]:
        """Return (t, r) for K = I: the parts answered by the total and by what sums to zero.

        Where structured rows stand for the identity they are those of these rows.
        """
        if self.base.tables is not None:
            return self.base.tables
        t = self.sums2 / self.n**2
        r = np.maximum(self.frobenius - self.sums2 / self.n, 0)
        # A difference of equal numbers: what the total alone answers would leave residue, and a
        # component that is asked for nothing.
        r[r < 1e-13 * self.frobenius] = 0
        return np.append(t, 1.0), np.append(r, 0.0)

    def tables(self, K: Floats | LeanInverse) -> tuple[Floats, Floats]:
        """Return (t, r) for an inverse Gram K: t = u'Gu and r = tr(G Kt).

        Args:
            K: (n, n), or in the lean form of OPT_0.

        Raises: LinAlgError where entries are so large that the total is lost beside them.
        Source: generalised residual planner; K = I gives the marginals of HDMM, section 6.3.
        """
        k = K.row_sums if isinstance(K, LeanInverse) else K.sum(axis=1)
        tau = k.sum()
        if not tau > 0:
            raise np.linalg.LinAlgError
        h, trace = self._traces(K, k)
        r = trace - h / tau
        # A difference of nearly equal numbers: residue must not count as a query.
        r[r < 1e-12 * trace] = 0
        return np.append(h / tau**2, 1.0), np.append(r, 0.0)

    def _traces(self, K: Floats | LeanInverse, k: Floats) -> tuple[Floats, Floats]:
        """Return per factor 1'K G K1 and tr(G K)."""
        F = len(self.operators)
        Q, owner = self._stack
        rows = K.row_traces(Q) if isinstance(K, LeanInverse) else np.einsum("ij,ij->i", Q @ K, Q)
        h = np.bincount(owner, np.square(Q @ k), minlength=F).astype(np.float64)
        trace = np.bincount(owner, rows, F).astype(np.float64)
        if self._cells:
            h[self._cells] = k @ k
            trace[self._cells] = K.trace() if isinstance(K, LeanInverse) else np.trace(K)
        if isinstance(K, LeanInverse):
            for f, V in self._applied:
                h[f], trace[f] = k @ V.apply(k[:, np.newaxis])[:, 0], K.gram_trace(V)
        else:
            for f, G in self._grams:
                h[f], trace[f] = k @ G @ k, np.vdot(G, K)
        return h, trace

    def slope(self, k: Floats, gt: Floats, gr: Floats, gtau: float) -> AppliedGram:
        """Return df/dK (n, n) as ``pull`` does, applied and never formed.

        Args:
            k: (n,) K1.
            gt, gr, gtau: as of ``pull``.
        """
        line, level = self._line(k, gt, gr, gtau)
        Q, owner = self._stack
        own, cells = gr[owner, np.newaxis], float(gr[self._cells].sum())
        y = Q.T @ (line[owner] * (Q @ k)) + line[self._cells].sum() * k
        diagonal = np.einsum("ij,ij->j", own * Q, Q) + cells
        for f, V in self._applied:
            y += line[f] * V.apply(k[:, np.newaxis])[:, 0]
            diagonal += gr[f] * V.diagonal

        def apply(X: Array) -> Array:
            out = Q.T @ (own * (Q @ X)) + cells * X
            for f, V in self._applied:
                out += gr[f] * V.apply(X)
            sums = X.sum(axis=0)
            return np.asarray(out + np.multiply.outer(y, sums) + (y @ X + level * sums))

        return AppliedGram(diagonal + 2 * y + level, apply)

    def slope_times(self, K: Floats, gt: Floats, gr: Floats, gtau: float) -> Floats:
        """Return df/dK as ``pull`` does, times K, both (n, n): quick where there are few rows.

        Args: as of ``pull``.
        """
        if self._grams:
            return self.pull(K, gt, gr, gtau) @ K
        return np.asarray(self.slope(K.sum(axis=1), gt, gr, gtau).apply(K))

    def _line(self, k: Floats, gt: Floats, gr: Floats, gtau: float) -> tuple[Floats, float]:
        """Return what df/dK owes to K1: per factor a multiple of G K1, and a constant."""
        (Q, owner), tau = self._stack, float(k.sum())
        h = np.bincount(owner, np.square(Q @ k), minlength=len(gt)).astype(np.float64)
        h[self._cells] = k @ k
        for f, V in self._applied:
            h[f] = k @ V.apply(k[:, np.newaxis])[:, 0]
        level = float((gr * h / tau**2 - 2 * gt * h / tau**3).sum()) + gtau
        return gt / tau**2 - gr / tau, level

    def pull(self, K: Floats, gt: Floats, gr: Floats, gtau: float) -> Floats:
        """Return df/dK, symmetric (n, n), from the derivatives by t, r (no Total) and tau.

        Args:
            K: (n, n), the inverse Gram.
            gt, gr: (factors,) the derivatives by t and r.
            gtau: the derivative by tau.
        """
        k = K.sum(axis=1)
        line, level = self._line(k, gt, gr, gtau)
        Q, owner = self._stack
        gamma = Q.T @ (gr[owner, np.newaxis] * Q)
        gamma += gr[self._cells].sum() * np.eye(self.n)
        y = Q.T @ (line[owner] * (Q @ k)) + line[self._cells].sum() * k
        for f, G in self._grams:
            gamma += gr[f] * G
            y += line[f] * (G @ k)
        gamma += y[:, np.newaxis] + y + level
        return gamma

    def summed(self, weights: Floats, level: float = 0.0) -> Floats | AppliedGram:
        """Return ``gram`` with a number added to every entry; never formed where that is slower.

        Args:
            weights: (factors,).
            level: the number.
        """
        if not any(is_structured(op) for op in self.operators):
            return self.gram(weights) + level
        Q, owner = self._stack
        own, cells = weights[owner, np.newaxis], float(weights[self._cells].sum())
        diagonal = np.einsum("ij,ij->j", own * Q, Q) + cells + level

        def apply(X: Array) -> Array:
            out = Q.T @ (own * (Q @ X)) + cells * X + level * X.sum(axis=0)
            for f, V in self._applied:
                out += weights[f] * V.apply(X)
            return np.asarray(out)

        diagonal += sum(weights[f] * V.diagonal for f, V in self._applied)
        return AppliedGram(diagonal, apply, self.n * (2.0 * len(Q) + self._applying))

    def gram(self, weights: Floats) -> Floats:
        """Return the weighted sum of the factor Grams, shape (n, n)."""
        Q, owner = self._stack
        parts = self.parts if len(Q) >= self.n else None
        own = weights[owner]
        out = Q.T @ (own[:, np.newaxis] * Q) if parts is None else gram_of_parts(Q, own, parts)
        out += weights[self._cells].sum() * np.eye(self.n)
        for f, G in self._grams:
            out = out + weights[f] * G
        return np.asarray(out)


def _sizes(op: Operator) -> tuple[float, float]:
    """Return the squared Frobenius norm, and the sum of the squares of the sums of rows."""
    return _known.of(op, 1, lambda: (op.frobenius2(), float(np.square(op.row_sums() * 1.0).sum())))


def _is_alone(op: Operator) -> bool:
    return isinstance(op, Groups) and op.alone


class Problem:
    """A workload reduced to its active attributes.

    ``fitted`` remembers the first factors of an attribute, and ``cycled`` those of one block,
    each given all others, which several searches start from.
    """

    def __init__(self, workload: Workload, noise: Noise) -> None:
        active = [i for i, factors in enumerate(workload.factors) if factors]
        self.workload = workload
        self.noise: Noise = noise
        self.names = tuple(workload.attributes[i] for i in active)
        self.sizes = tuple(workload.domain[name] for name in self.names)
        self.factors = [FactorSet(workload.attributes[i], workload.factors[i]) for i in active]
        self.components = Components(
            np.ascontiguousarray(workload.index[:, active]), workload.weights2
        )
        self.d = len(active)
        if law(noise).norm == 2:
            self._mark_dear()
        self.fitted: dict[int, Floats] = {}
        self.cycled: tuple[Floats | None, ...] | None = None

    def _mark_dear(self) -> None:
        """Mark attributes, the largest first, whose matrices take more work than there may be.

        Steps on them are products of cells by cells by cells, and are never cut short. Factors of
        one product alone are searched for once each, which structured rows are no match for: sums
        over 32 of 4,096 cells are 1.22 times as far off with these.
        """
        if len(self.components.weights2) == 1:
            return
        total = 0.0
        for factors in sorted(self.factors, key=lambda each: each.n):
            if SMALL < factors.n <= PLANNED and not factors.asks_cells:
                work = CUBES * float(factors.n) ** 3
                factors.is_dear = not has_work(total + work)
                total += 0.0 if factors.is_dear else work

    def identity_tables(self) -> tuple[list[Floats], list[Floats]]:
        """Return (t, r) of every attribute for K = I."""
        pairs = [factors.identity_tables() for factors in self.factors]
        return [t for t, _ in pairs], [r for _, r in pairs]

    def totals(self) -> Floats:
        """Return 1/tau of every attribute for K = I."""
        pairs = zip(self.factors, self.sizes, strict=True)
        return np.array([1 / n if f.base.total is None else f.base.total for f, n in pairs])

    def axes(self, mask: int) -> tuple[int, ...]:
        """Return the positions of the attributes of a mask, in domain order."""
        return axes_of(self.d, mask)

    def attributes(self, mask: int) -> tuple[str, ...]:
        """Return the attributes of a mask in domain order."""
        return names_of(self.names, mask)

    def cells(self, mask: int) -> int:
        """Return how many numbers the estimate of a table over a mask keeps."""
        return cells_of(self.sizes, mask)

    @property
    def full(self) -> int:
        """Return the mask of all active attributes."""
        return (1 << self.d) - 1

    def check_sizes(self, limit: int) -> None:
        """Refuse a workload with an answer over more cells, and say what would fit.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        for mask in self.components.supports:
            if self.cells(mask) > limit:
                raise ProgrammingError(
                    "E_TOO_LARGE",
                    f"one product over {', '.join(self.attributes(mask))} spans"
                    f" {self.cells(mask)} cells, the limit is {limit}",
                    hint="ask for fewer attributes at once, or group their values into bins",
                )
