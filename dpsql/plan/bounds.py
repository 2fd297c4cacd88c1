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
from dataclasses import dataclass
from functools import reduce
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity, IdentityTotal, Total
from dpsql.algebra.kron import outer_sum
from dpsql.algebra.operator import Floats, Operator
from dpsql.plan.spectra import SPECTRUM_LIMIT, Axis, clipped, common_axis, spectrum
from dpsql.plan.workload import Workload

WORK_LIMIT = 2.0**27
"""Most multiplications spent on the joint eigenvalues of a workload."""
CHEAP = 1 << 27
"""Most multiplications of a bound that is computed in passing."""
IDENTITIES = (Identity, IdentityTotal)
"""Factors whose eigenvectors are known."""
COMPONENT_LIMIT = 2.0**15
"""Most components that are visited one by one; the others count as zero."""


def svd_bound(workload: Workload) -> float:
    """Return a lower bound on the unit-noise total squared error of every strategy.

    It is the singular value bound itself for one product, for unions of marginals and other
    factors with commuting Grams, and for small domains; otherwise a bound on it.

    Source: Li and Miklau, "Optimal error of query sets under the differentially-private matrix
    mechanism"; HDMM, Theorem 12 for marginals.
    """
    used = [i for i, factors in enumerate(workload.factors) if factors]
    union = _Union(
        tuple(workload.factors[i] for i in used),
        workload.index[:, used],
        np.asarray(workload.weights2, dtype=np.float64),
        tuple(workload.domain[workload.attributes[i]] for i in used),
    )
    if len(union.index) == 1:
        return union.single_bound()
    axes = union.axes()
    if axes is not None and all(axis.products is None for axis in axes):
        bound = union.commuting_bound(axes)
        if bound is not None:
            return bound
    if math.prod(union.sizes) <= SPECTRUM_LIMIT:
        return union.dense_bound()
    return max(union.single_bound(), 0.0 if axes is None else union.basis_bound(axes))


def is_cheap(workload: Workload) -> bool:
    """Say whether ``svd_bound`` takes about a second at most, from the sizes alone."""
    points = all(isinstance(f, IDENTITIES) for factors in workload.factors for f in factors)
    if len(workload.index) == 1 or points:
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
    return float(np.sqrt(spectrum(workload)).sum() ** 2) / workload.n


@dataclass(frozen=True, slots=True)
class _Union:
    """Merged products: per attribute its factors, and which one each product uses (-1: Total)."""

    factors: tuple[tuple[Operator, ...], ...]
    index: NDArray[np.int64]
    weights2: Floats
    sizes: tuple[int, ...]

    def axes(self) -> list[Axis] | None:
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

    def commuting_bound(self, axes: Sequence[Axis]) -> float | None:
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

    def basis_bound(self, axes: Sequence[Axis]) -> float:
        """Return the bound of the module's docstring for the product of the attributes' bases.

        Basis vectors that differ from 1 on the attributes c see only the products that have no
        Total on c. Components too long to visit count as zero.
        """
        if self._visits() > COMPONENT_LIMIT:
            return 0.0
        total = 0.0
        for component in self._components():
            inside = (self.index[:, list(component)] >= 0).all(axis=1)
            seen = _Union(self.factors, self.index[inside], self.weights2[inside], self.sizes)
            total += seen._component_sum(axes, component)
        return total**2

    def _visits(self) -> float:
        return float((2.0 ** (np.unique(self.index >= 0, axis=0).sum(axis=1))).sum())

    def _components(self) -> Iterator[tuple[int, ...]]:
        supports = [np.flatnonzero(row).tolist() for row in np.unique(self.index >= 0, axis=0)]
        found = {c for support in supports for c in _subsets(support)}
        return iter(sorted(found))

    def _component_sum(self, axes: Sequence[Axis], component: tuple[int, ...]) -> float:
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
        both = _Union(self.factors, pairs, self.weights2[left] * self.weights2[right], self.sizes)
        squares = both._moments(axes, component, tables, pairs)
        kept = values > 0
        return float(sizes[kept] @ (values[kept] ** 1.5 / np.sqrt(squares[kept])))

    def _moments(
        self,
        axes: Sequence[Axis],
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
