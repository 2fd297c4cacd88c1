"""Forecast of a symmetric strategy: least squares is separate for every kind of component."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from dpsql.algebra.blocks import Total
from dpsql.algebra.integer_rows import CONSTANT, OrbitPart, OrbitRows
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.algebra.orbits import Orbits
from dpsql.records import dataclass
from dpsql.strategy.base import Forecast, by_single_rows, check_variances
from dpsql.workload.workload import Product

CHUNK = 1 << 22
"""Numbers handled at once, 32 MiB."""

DEPENDENT = 1e-7
"""Relative size of a column outside the others below which the rows are rank-deficient."""


@dataclass(frozen=True, slots=True)
class Inverse:
    """The least squares of one part: ``solve`` (K, r) and ``root`` F (K, K), FF' = (R'R)^-1.

    ``unit`` divides the variance: the squared sizes of the resolved orbits.
    """

    solve: Floats
    root: Floats
    unit: float


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Distinct pairs of rows on one attribute and which one each row uses.

    ``left`` and ``right`` (u, k) are on raw orbit sums, ``cross`` (u, wide) the inner product
    within every wide orbit, ``place`` (m,) the pair of each row.
    """

    left: Floats
    right: Floats
    cross: Floats
    place: Integers

    @classmethod
    def gather(cls, left: Floats, right: Floats, cross: Floats) -> RowPairs:
        """Return the distinct pairs among rows.

        Args:
            left, right: (m, k), on raw orbit sums.
            cross: (m, wide), the inner product within every wide orbit.
        """
        table = np.concatenate([left, right, cross], axis=1)
        _, first, place = np.unique(table, axis=0, return_index=True, return_inverse=True)
        kept = left[first]
        other = kept if right is left else right[first]
        return cls(kept, other, cross[first], place.reshape(-1).astype(np.int64))


def invert(part: OrbitPart, orbits: Sequence[Orbits]) -> Inverse:
    """Return the least squares of a part. Raises ValueError unless its rows have full rank."""
    rows = part.rows.astype(np.float64)
    norms = np.sqrt(np.square(rows).sum(axis=0))
    if len(rows) < rows.shape[1] or not norms.all():
        raise ValueError("the rows of a part must determine all of its orbit tuples")
    Q, T = np.linalg.qr(rows / norms)
    if np.abs(np.diagonal(T)).min() < DEPENDENT:
        raise ValueError("the rows of a part must be independent over its orbit tuples")
    root = np.linalg.inv(T) / norms[:, np.newaxis]
    size = math.prod(int(orbits[i].sizes[part.kinds[i]]) for i in part.resolved)
    return Inverse(root @ Q.T / size, root, float(size) ** 2)


class SymmetricForecast(Forecast):
    """The exact generalised least squares of a symmetric strategy at a given noise variance.

    Everything is derived from the integer rows that are measured. Parts of different kinds are
    orthogonal and uncorrelated, so variances add over them: a part with rows R adds, at noise of
    variance v, v a'(R'R)^-1 a prod b_i / s_i^2, where a are the means of a query row on orbits of
    the axes that are summed, b_i its squared norm within an orbit of s_i cells of the others.
    """

    def __init__(
        self,
        domain: Mapping[str, int],
        attributes: tuple[str, ...],
        rows: OrbitRows,
        variances: Sequence[float],
    ) -> None:
        self.noise = check_variances(variances, 1)
        self.domain, self.attributes, self.rows, self.orbits = domain, attributes, rows, rows.orbits
        self.measured = {part.kinds: part for part in rows.parts}
        self._inverses: dict[tuple[int, ...], Inverse] = {}
        self._known: dict[tuple[int, Hashable], tuple[Floats, Floats]] = {}
        self._supported: dict[tuple[tuple[int, ...], ...], bool] = {}

    def inverse(self, part: OrbitPart) -> Inverse:
        """Return the least squares of a part, remembered."""
        if part.kinds not in self._inverses:
            self._inverses[part.kinds] = invert(part, self.orbits)
        return self._inverses[part.kinds]

    def parts(self, axis: int, operator: Operator) -> tuple[Floats, Floats]:
        """Return a query factor on orbit sums and its spread within orbits, remembered."""
        key = (axis, operator.key)
        if key not in self._known:
            self._known[key] = self.orbits[axis].query_parts(operator)
        return self._known[key]

    def factor(self, product: Product, axis: int) -> Operator:
        """Return the factor of a product on one measured attribute."""
        return product.factors.get(self.attributes[axis]) or Total(self.orbits[axis].n)

    def supports(self, product: Product) -> bool:
        """Say whether the strategy measures enough to answer every row of a product."""
        if not product.factors.keys() <= set(self.attributes):
            return False
        asked = []
        for axis, orbits in enumerate(self.orbits):
            means, spread = self.parts(axis, self.factor(product, axis))
            kinds = orbits.wide[spread.any(axis=0)].tolist()
            asked.append((*([CONSTANT] if means.any() else []), *kinds))
        key = tuple(asked)
        if key not in self._supported:
            self._supported[key] = all(k in self.measured for k in itertools.product(*key))
        return self._supported[key]

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major.

        Raises ProgrammingError E_NOT_MEASURED where the strategy does not support it.
        """
        self.check(product)
        asked = []
        for axis in range(len(self.orbits)):
            means, spread = self.parts(axis, self.factor(product, axis))
            asked.append(RowPairs.gather(means, means, spread))
        return np.maximum(self._grid(asked), 0.0)

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        self.check(left)
        self.check(right)
        return self._grid(self._asked(left, right))

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other.

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """
        asked = self._asked(left, right)
        return self._rows(asked, np.array(np.broadcast_arrays(*(a.place for a in asked))))

    def _asked(self, left: Product, right: Product) -> list[RowPairs]:
        asked = []
        for axis, orbits in enumerate(self.orbits):
            P, Q = self.factor(left, axis), self.factor(right, axis)
            p, q = orbits.query_parts(P)[0], orbits.query_parts(Q)[0]
            if isinstance(P, Total) or isinstance(Q, Total):
                cross = np.zeros((max(len(p), len(q)), len(orbits.wide)))
            else:
                cross = orbits.cross(P, Q)
            p, q = (np.broadcast_to(x, (len(cross), x.shape[1])) for x in (p, q))
            asked.append(RowPairs.gather(p, q, cross))
        return asked

    def total(self, product: Product) -> float:
        """Return the sum of the variances of all rows of a product, without forming them."""
        self.check(product)
        grams = [
            orbits.gram_parts(self.factor(product, axis).gram())
            for axis, orbits in enumerate(self.orbits)
        ]
        total = 0.0
        for part in self.measured.values():
            scale = self._scale(part, [inside for _, inside in grams])
            if scale:
                inverse = self.inverse(part)
                tensor = inverse.root @ inverse.root.T
                for i in part.constant:
                    tensor = _fold_gram(tensor, grams[i][0])
                total += float(scale) * float(tensor[0, 0]) / inverse.unit
        return total * self.noise[0]

    def variances(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``variance`` of many products; one-row products are handled together."""
        return by_single_rows(products, self.variance, self._single_rows)

    def _single_rows(self, _: tuple[str, ...], products: list[Product]) -> Floats:
        for product in products:
            self.check(product)
        asked = []
        for axis in range(len(self.orbits)):
            found = [self.parts(axis, self.factor(product, axis)) for product in products]
            means = np.concatenate([m for m, _ in found])
            asked.append(RowPairs.gather(means, means, np.concatenate([s for _, s in found])))
        places, back = np.unique(np.array([a.place for a in asked]), axis=1, return_inverse=True)
        return np.maximum(self._rows(asked, places)[back.reshape(-1)], 0.0)

    def _grid(self, asked: Sequence[RowPairs]) -> Floats:
        """Return the covariance of every combination of rows, flat."""
        shape = [len(a.left) for a in asked]
        places = np.indices(shape).reshape(len(shape), -1)
        distinct = self._rows(asked, places).reshape(shape)
        return distinct[np.ix_(*(a.place for a in asked))].reshape(-1)

    def _rows(self, asked: Sequence[RowPairs], places: Integers) -> Floats:
        """Return the covariance of rows given by the pair they use on each attribute."""
        out = np.zeros(places.shape[1])
        for part in self.measured.values():
            scale = np.ones(len(out))
            for i in part.resolved:
                column = int(np.searchsorted(self.orbits[i].wide, part.kinds[i]))
                scale *= asked[i].cross[places[i], column]
            used = np.flatnonzero(scale)
            if len(used):
                chosen = places[np.array(part.constant, dtype=np.int64)][:, used]
                means = self._quadratic(part, [asked[i] for i in part.constant], chosen)
                out[used] += scale[used] * means / self.inverse(part).unit
        return out * self.noise[0]

    def _quadratic(self, part: OrbitPart, asked: Sequence[RowPairs], places: Integers) -> Floats:
        """Return a'(R'R)^-1 b for the Kronecker products a, b of the rows at places."""
        root = self.inverse(part).root
        if not asked:
            return np.full(places.shape[1], root[0, 0] ** 2)
        distinct, back = np.unique(places, axis=1, return_inverse=True)
        out = np.empty(distinct.shape[1])
        step = max(1, CHUNK // len(root))
        for start in range(0, len(out), step):
            chunk = distinct[:, start : start + step]
            a = _rowwise_kron([x.left[p] for x, p in zip(asked, chunk, strict=True)], chunk) @ root
            if all(x.left is x.right for x in asked):
                b = a
            else:
                right = [x.right[p] for x, p in zip(asked, chunk, strict=True)]
                b = _rowwise_kron(right, chunk) @ root
            out[start : start + step] = np.einsum("ij,ij->i", a, b)
        return out[back.reshape(-1)]

    def _scale(self, part: OrbitPart, inside: Sequence[Floats]) -> float:
        scale = 1.0
        for i in part.resolved:
            scale *= float(inside[i][np.searchsorted(self.orbits[i].wide, part.kinds[i])])
        return scale


def _fold_gram(tensor: Floats, gram: Floats) -> Floats:
    """Contract the leading axis pair of a matrix over tuples with a Gram matrix."""
    k = len(gram)
    rest = len(tensor) // k
    split = tensor.reshape(k, rest, k, rest)
    return np.asarray(np.tensordot(gram, split, axes=([0, 1], [0, 2])))


def _rowwise_kron(tables: Sequence[Floats], places: Integers) -> Floats:
    out = np.ones((places.shape[1], 1))
    for table in tables:
        out = (out[:, :, np.newaxis] * table[:, np.newaxis, :]).reshape(len(out), -1)
    return out
