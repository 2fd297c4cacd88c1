"""Lower bounds on the error of every strategy, from the singular values of the workload.

The bound is (sum of singular values)^2 / cells, the total squared error that no strategy of unit
L2 sensitivity can undercut at unit noise; as L1 norms are larger, it holds for Laplace noise too.

Where the singular values are out of reach their sum is bounded from below: for any orthonormal
basis, tr V^(1/2) = sum e'V^(1/2)e >= sum (e'Ve)^(3/2) / ||Ve||, by Hoelder's inequality for the
spectral measure of V at e. It is exact when the basis diagonalises V.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import AllRange, Columns, Identity, IdentityTotal, Prefix, Total
from dpsql.algebra.groups import Groups
from dpsql.algebra.kron import outer_sum
from dpsql.algebra.operator import Array, Floats, Operator
from dpsql.records import dataclass
from dpsql.workload.repeated_blocks import adds_nothing, has_signs, is_resolved
from dpsql.workload.workload import Workload

SPECTRUM_LIMIT = 1024
"""Largest matrix whose eigenvalues are computed: the work is its cube. Traces are bounds too."""
NEGLIGIBLE = 1e-13
"""Relative size below which an eigenvalue counts as zero."""


@dataclass(frozen=True, slots=True)
class CellBasis:
    """An orthonormal basis of one attribute's cells, in groups that its Grams treat alike.

    With G_f the Gram of factor f divided by the number of cells, and e any vector of group g:
    ``values[f, g]`` is e'G_f e and ``sizes[g]`` the number of vectors. ``products[f, h, g]`` is
    e'G_f G_h e, None when every e is an eigenvector of every Gram. If one factor is Total, group
    0 is the direction of 1 alone.
    """

    values: Floats
    sizes: Floats
    products: Floats | None = None


def spectrum(op: Operator) -> Floats:
    """Return the eigenvalues of a Gram; of a large unknown one, its trace as a single value."""
    n, k = op.n, np.arange(1, op.n + 1)
    if isinstance(op, Columns) and op.permutes:
        return spectrum(op.op)
    if isinstance(op, Prefix):
        return np.asarray(1 / (4 * np.sin((2 * k - 1) * np.pi / (4 * n + 2)) ** 2))
    if isinstance(op, AllRange):
        return np.asarray((n + 1) / (4 * np.sin(k * np.pi / (2 * n + 2)) ** 2))
    points = points_and_total(op)
    if points is not None:
        a, b = points
        return np.array([a + b * n] + [a] * (n - 1), dtype=np.float64)
    if n > SPECTRUM_LIMIT:
        return np.array([op.frobenius2()])
    return clipped(np.linalg.eigvalsh(op.gram()))


def points_and_total(op: Operator) -> tuple[float, float] | None:
    """Return (a, b) when the Gram is a I + b J, else None.

    >>> points_and_total(IdentityTotal(4)), points_and_total(Prefix(4))
    ((1.0, 1.0), None)
    """
    if isinstance(op, (Identity, Total, IdentityTotal)):
        return float(not isinstance(op, Total)), float(not isinstance(op, Identity))
    if isinstance(op, Groups):
        return (1.0, 0.0) if op.alone else None
    if op.n > SPECTRUM_LIMIT or (isinstance(op, (Prefix, AllRange)) and op.n > 2):
        return None
    gram = op.gram()
    b = float(gram[0, -1]) if op.n > 1 else 0.0
    a = float(gram[0, 0]) - b
    close = np.allclose(gram, a * np.eye(op.n) + b, rtol=1e-12, atol=1e-12 * abs(gram[0, 0]))
    return (a, b) if close else None


def clipped(values: Array) -> Floats:
    """Return eigenvalues with the negligible ones, which may be negative, set to zero.

    Any shape; the same comes back.
    """
    kept = values > NEGLIGIBLE * values.max()
    return np.asarray(np.where(kept, values, 0.0), dtype=np.float64)


def common_axis(operators: tuple[Operator, ...]) -> CellBasis | None:
    """Return a basis for the factors of one attribute, None when they are too large to analyse."""
    n = operators[0].n
    points = [points_and_total(op) for op in operators]
    if all(p is not None for p in points):
        pairs = np.array([p for p in points if p is not None])
        values = np.stack([pairs[:, 0] / n + pairs[:, 1], pairs[:, 0] / n], axis=1)
        sizes = np.array([1.0, n - 1.0])
        return CellBasis(values[:, : min(n, 2)], sizes[: min(n, 2)])
    if len(operators) == 1:
        values = spectrum(operators[0]) / n
        return CellBasis(values[None], np.ones(len(values))) if len(values) == n else None
    if n > SPECTRUM_LIMIT // 2 or len(operators) ** 2 * n > 2**24:
        return None
    return _mixed_axis(operators)


def _mixed_axis(operators: tuple[Operator, ...]) -> CellBasis:
    """Return the eigenvectors of the normalised sum of the Grams, beside 1 if one is Total."""
    n = operators[0].n
    grams = [op.gram() / n for op in operators]
    mixed = np.zeros((n, n))
    for k, gram in enumerate(grams):
        # Unequal weights: directions that two Grams tell apart must not get one eigenvalue by
        # symmetry.
        mixed += (1 + 1 / (k + 2)) * gram / max(1e-300, float(np.trace(gram)))
    if any(isinstance(op, Total) for op in operators):
        centre = np.eye(n) - 1 / n
        above = (1 + np.trace(mixed)) / n
        _, basis = np.linalg.eigh(centre @ mixed @ centre + above)
        # ``above`` makes the constant vector the last, of the largest value; it is to come first.
        basis = np.roll(basis, 1, axis=1)
    else:
        _, basis = np.linalg.eigh(mixed)
    images = np.array([gram @ basis for gram in grams])
    values = clipped(np.einsum("ne,fne->fe", basis, images))
    products = np.einsum("fne,hne->fhe", images, images, optimize=True)
    squares = np.einsum("fe,he->fhe", values, values)
    # The Grams commute: each is diagonal in the basis, and products of values are all there is.
    if np.allclose(products, squares, rtol=1e-9, atol=1e-12 * squares.max()):
        return CellBasis(values, np.ones(n))
    return CellBasis(values, np.ones(n), products)


WORK_LIMIT = 2.0**27
"""Most multiplications spent on the joint eigenvalues of a workload."""
CHEAP = 1 << 27
"""Most multiplications of a bound that is computed in passing."""
IDENTITIES = (Identity, IdentityTotal)
"""Factors whose eigenvectors are known."""
DENSE = 512
"""Most cells of all attributes whose Gram matrix is quicker than those of many factors."""
COMPONENT_LIMIT = 2.0**15
"""Most components that are visited one by one; the others count as zero, which lowers the bound."""


def svd_bound(workload: Workload) -> float:
    """Return a lower bound on the unit-noise total squared error of every strategy.

    It is the singular value bound itself for one product, for unions of marginals and other
    factors with commuting Grams, and for small domains; otherwise a bound on it.

    Source: Li and Miklau, "Optimal error of query sets under the differentially-private matrix
    mechanism"; HDMM, Theorem 12 for marginals.
    """
    used = [i for i, factors in enumerate(workload.factors) if factors]
    union = _Merged(
        tuple(workload.factors[i] for i in used),
        workload.index[:, used],
        np.asarray(workload.weights2, dtype=np.float64),
        tuple(workload.domain[workload.attributes[i]] for i in used),
    )
    if len(union.index) == 1:
        return union.single_bound()
    if math.prod(union.sizes) <= DENSE and not all(map(_tells_points, union.factors)):
        return union.dense_bound()
    axes = union.axes()
    if axes is not None and all(axis.products is None for axis in axes):
        bound = union.commuting_bound(axes)
        if bound is not None:
            return bound
    if math.prod(union.sizes) <= SPECTRUM_LIMIT:
        return union.dense_bound()
    return max(union.single_bound(), 0.0 if axes is None else union.basis_bound(axes))


def cells_bound(workload: Workload) -> float:
    """Return the error of counting every cell where nothing can be better, else 0.

    So it is where no query adds any up: no strategy of unit columns knows one cell better, since
    one of them is all that tells of it. And where signs cancel in the Gram matrix of all queries,
    so that it is diagonal.

    >>> cells_bound(Workload({"a": 3}, [{"a": np.diag([1, 2, 3])}, {"a": "identity"}]))
    17.0
    """
    used = [i for i, factors in enumerate(workload.factors) if factors]
    if not used or not all(_is_best_in_cells(workload, i) for i in used):
        return 0.0
    each = np.asarray(workload.weights2, dtype=np.float64)
    for i in used:
        traces = np.array([op.frobenius2() for op in workload.factors[i]])
        each = (
            each * np.append(traces, workload.domain[workload.attributes[i]])[workload.index[:, i]]
        )
    return float(each.sum())


def _is_best_in_cells(workload: Workload, i: int) -> bool:
    """Say whether no query adds cells of an attribute up, or those that do cancel each other."""
    factors, is_in_all = workload.factors[i], (workload.index[:, i] >= 0).all()
    if is_in_all and all(isinstance(op, Identity) or adds_nothing(op) for op in factors):
        return True
    return any(map(has_signs, factors)) and is_resolved(workload, workload.attributes[i])


def _tells_points(factors: Sequence[Operator]) -> bool:
    """Say whether the eigenvectors of all factors of an attribute are known."""
    return all(isinstance(factor, IDENTITIES) for factor in factors)


def is_cheap(workload: Workload) -> bool:
    """Say whether ``svd_bound`` takes about a second at most, from the sizes alone."""
    if len(workload.index) == 1 or all(map(_tells_points, workload.factors)):
        return True
    used = zip(workload.domain.values(), workload.factors, strict=True)
    cells = math.prod(size for size, factors in used if factors)
    return len(workload.index) ** 2 * cells <= CHEAP


def operator_bound(workload: Operator) -> float:
    """Return the singular value bound of one operator, or a weaker one if it is too large.

    >>> from dpsql.algebra.blocks import IdentityTotal
    >>> round(operator_bound(IdentityTotal(3)), 9)
    5.333333333
    """
    values = np.maximum(spectrum(workload), 0.0)  # rounding leaves some just below
    return float(np.sqrt(values).sum() ** 2) / workload.n


@dataclass(frozen=True, slots=True)
class _Merged:
    """Merged products: per attribute its factors, and which one each product uses (-1: Total)."""

    factors: tuple[tuple[Operator, ...], ...]
    index: NDArray[np.int64]
    weights2: Floats
    sizes: tuple[int, ...]

    def axes(self) -> list[CellBasis] | None:
        """Return the basis of every attribute; the last factor of each is Total where used."""
        axes = []
        for i, factors in enumerate(self.factors):
            total = (Total(self.sizes[i]),) if (self.index[:, i] < 0).any() else ()
            axis = common_axis(factors + total)
            if axis is None:
                return None
            axes.append(axis)
        return axes

    def single_bound(self) -> float:
        """Return the best bound of any one product."""
        bounds = self.weights2.copy()
        for i, factors in enumerate(self.factors):
            table = [operator_bound(factor) for factor in factors]
            bounds *= np.array([*table, 1.0])[self.index[:, i]]
        return float(bounds.max())

    def dense_bound(self) -> float:
        """Return the exact bound of a small domain from its explicit Gram."""
        cells = math.prod(self.sizes)
        grams = [[f.gram() for f in factors] for factors in self.factors]
        totals = [np.ones((n, n)) for n in self.sizes]
        V = np.zeros((cells, cells))
        for row, weight2 in zip(self.index.tolist(), self.weights2, strict=True):
            terms = [g[j] if j >= 0 else t for g, t, j in zip(grams, totals, row, strict=True)]
            V += weight2 * reduce(_kron, terms, np.ones((1, 1)))
        return float(np.sqrt(clipped(np.linalg.eigvalsh(V))).sum() ** 2) / cells

    def commuting_bound(self, axes: Sequence[CellBasis]) -> float | None:
        """Return the exact bound when every basis vector is an eigenvector, None if too long."""
        groups = math.prod(float(len(axis.sizes)) for axis in axes)
        if len(self.index) * groups <= WORK_LIMIT:
            tables = [axis.values[self.index[:, i]] for i, axis in enumerate(axes)]
            values = outer_sum(self.weights2, tables).ravel()
            sizes = reduce(_kron, (axis.sizes for axis in axes), np.ones(1))
            return float(sizes @ np.sqrt(values)) ** 2
        if self._visits() > COMPONENT_LIMIT:
            return None
        return self.basis_bound(axes)

    def basis_bound(self, axes: Sequence[CellBasis]) -> float:
        """Return the bound of the module's docstring for the product of the attributes' bases.

        Basis vectors that differ from 1 on the attributes c see only the products that have no
        Total on c. Components too long to visit count as zero.
        """
        if self._visits() > COMPONENT_LIMIT:
            return 0.0
        total = 0.0
        for component in self._components():
            inside = (self.index[:, list(component)] >= 0).all(axis=1)
            seen = _Merged(self.factors, self.index[inside], self.weights2[inside], self.sizes)
            total += seen._component_sum(axes, component)
        return total**2

    def _visits(self) -> float:
        return float((2.0 ** (np.unique(self.index >= 0, axis=0).sum(axis=1))).sum())

    def _components(self) -> Iterator[tuple[int, ...]]:
        supports = [np.flatnonzero(row).tolist() for row in np.unique(self.index >= 0, axis=0)]
        found = {c for support in supports for c in _subsets(support)}
        return iter(sorted(found))

    def _component_sum(self, axes: Sequence[CellBasis], component: tuple[int, ...]) -> float:
        """Return the sum of (e'Ve)^(3/2) / ||Ve|| over the vectors of one component."""
        count = len(self.index)
        cells = math.prod(float(len(axes[i].sizes) - 1) for i in component)
        commute = all(axis.products is None for axis in axes)
        if count ** (1 if commute else 2) * max(cells, 1) > WORK_LIMIT:
            return 0.0
        values = self._moments(axes, component, [axis.values for axis in axes], self.index)
        sizes = reduce(_kron, (axes[i].sizes[1:] for i in component), np.ones(1))
        if commute:
            return float(sizes @ np.sqrt(values))
        left, right = np.divmod(np.arange(count**2), count)
        pairs, tables = np.empty((count**2, len(axes)), dtype=np.int64), []
        for i, axis in enumerate(axes):
            f = len(axis.values)
            pairs[:, i] = self.index[left, i] % f * f + self.index[right, i] % f
            products = axis.products
            if products is None:
                products = axis.values[:, None] * axis.values
            tables.append(products.reshape(f * f, -1))
        both = _Merged(self.factors, pairs, self.weights2[left] * self.weights2[right], self.sizes)
        squares = both._moments(axes, component, tables, pairs)
        kept = values > 0
        return float(sizes[kept] @ (values[kept] ** 1.5 / np.sqrt(squares[kept])))

    def _moments(
        self,
        axes: Sequence[CellBasis],
        component: tuple[int, ...],
        tables: Sequence[Floats],
        index: NDArray[np.int64],
    ) -> Floats:
        """Return sum of weights times table entries: groups 1.. on the component, 0 elsewhere."""
        weights = self.weights2.copy()
        for i in range(len(axes)):
            if i not in component:
                weights *= tables[i][index[:, i], 0]
        return outer_sum(weights, [tables[i][index[:, i], 1:] for i in component]).ravel()


def _subsets(items: list[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(items, r) for r in range(len(items) + 1))


def _kron(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.kron(left, right), dtype=np.float64)
