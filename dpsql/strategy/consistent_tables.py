"""Least-squares tables of blocks that agree, whatever the noise: the same for all shares."""

from __future__ import annotations

import math
import weakref
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.algebra.weak_cache import WeakCache
from dpsql.records import cached_property
from dpsql.strategy.consistency_constraints import Matrices, Partitions, agreement
from dpsql.strategy.separate_table import BlockTable
from dpsql.workload.workload import Product

REDUNDANT = 1e-9
"""Relative size below which an eigenvalue is zero: that condition follows from others."""

REMEMBERED = 1 << 23
"""Numbers of the Grams of products that are remembered with the tables, 64 MiB."""


class AgreedTables:
    """The table of every block, and how the parts that several know are compared.

    With C the conditions that tables agree and K the covariance of a table at unit noise, products
    of queries q have Grams of C K q.
    """

    def __init__(self, domain: Mapping[str, int], blocks: Sequence[Matrices]) -> None:
        partitions = Partitions(domain, blocks)
        parts, self.sides = agreement(domain, partitions)
        self.tables = [
            BlockTable(b, matrices, partitions, parts) for b, matrices in enumerate(blocks)
        ]
        self.count = len(self.sides[0].put(np.zeros(self.tables[0].count)))
        self.domain = list(domain.items())
        self.rows = [rows if rows is None else weakref.ref(rows) for rows in _rows_of(blocks)]
        self.names = [tuple(matrices) for matrices in blocks]
        self._grams: dict[Hashable, Floats] = {}
        self._alone: dict[Hashable, float] = {}

    def are_of(self, domain: Mapping[str, int], blocks: Sequence[Matrices]) -> bool:
        """Say whether these are the tables of blocks, told by their very rows."""
        names = [tuple(matrices) for matrices in blocks]
        return (self.domain, self.names) == (list(domain.items()), names) and all(
            each is (known if known is None else known())
            for known, each in zip(self.rows, _rows_of(blocks), strict=True)
        )

    @cached_property
    def spreads(self) -> list[Floats]:
        """Return per block its part of H, at unit noise, shape (conditions, conditions)."""
        return [
            self._scattered(b, table.between(table.inverses)) for b, table in enumerate(self.tables)
        ]

    @cached_property
    def are_independent(self) -> bool:
        """Say whether no condition follows from others, which is so whatever the noise is."""
        H = sum(self.spreads, np.zeros((self.count, self.count)))
        scale = 1 / np.sqrt(np.diag(H))
        return _inverse(scale[:, np.newaxis] * H * scale) is not None

    def _scattered(self, b: int, between: Floats) -> Floats:
        return self.sides[b].put(self.sides[b].put(between).T)

    def alone(self, b: int, product: Product) -> float:
        """Return the sum of the variances of all rows of a product from one block alone."""
        key = (b, key_of(product))
        if key not in self._alone:
            grams, inverses = self.tables[b].grams_of(product.factors), self.tables[b].inverses
            pairs = zip(grams, inverses, strict=True)
            self._alone[key] = math.prod(float(np.vdot(G, K)) for G, K in pairs)
        return self._alone[key]

    def gram(self, b: int, product: Product) -> Floats:
        """Return the sum of g g' over all rows of a product, of g = C K q."""
        key = (b, key_of(product))
        if key in self._grams:
            return self._grams[key]
        grams, inverses = self.tables[b].grams_of(product.factors), self.tables[b].inverses
        pairs = zip(grams, inverses, strict=True)
        found = self._scattered(b, self.tables[b].between([K @ G @ K for G, K in pairs]))
        if (1 + len(self._grams)) * found.size <= REMEMBERED:
            self._grams[key] = found
        return found


_latest: WeakCache[AgreedTables] = WeakCache(1)


def agreed_tables(domain: Mapping[str, int], blocks: Sequence[Matrices]) -> AgreedTables:
    """Return the tables of blocks; the latest are remembered while their rows are in use."""
    rows = next((each for each in _rows_of(blocks) if each is not None), None)
    if rows is None:
        return AgreedTables(domain, blocks)
    found = _latest.of(rows, 1, lambda: AgreedTables(domain, blocks))
    if found.are_of(domain, blocks):
        return found
    return _latest.put(rows, 1, AgreedTables(domain, blocks))


def _rows_of(blocks: Sequence[Matrices]) -> list[Integers | None]:
    return [rows for matrices in blocks for rows in matrices.values()]


def pseudo_inverse(scaled: Floats, is_regular: bool) -> Floats:
    """Return the pseudo-inverse of a symmetric matrix (n, n) without negative eigenvalues.

    Where it ``is_regular``, and norms show it, that is the inverse, in half the time.
    """
    inverse = _inverse(scaled) if is_regular else None
    return _by_eigenvalues(scaled) if inverse is None else inverse


def _inverse(scaled: Floats) -> Floats | None:
    """Return the inverse, None unless norms show that no eigenvalue counts as zero."""
    try:
        inverse = np.asarray(np.linalg.inv(scaled), dtype=np.float64)
    except np.linalg.LinAlgError:  # exactly singular
        return None
    ratio = float(np.linalg.norm(scaled)) * float(np.linalg.norm(inverse))  # at least the condition
    return inverse if ratio * REDUNDANT < 1 else None


def _by_eigenvalues(scaled: Floats) -> Floats:
    values, vectors = _positive(scaled)
    return np.asarray((vectors / values) @ vectors.T)


def pseudo_root(scaled: Floats) -> Floats:
    """Return R (n, rank) of the pseudo-inverse R R' of such a matrix (n, n)."""
    values, vectors = _positive(scaled)
    return np.asarray(vectors / np.sqrt(values))


def _positive(scaled: Floats) -> tuple[Floats, Floats]:
    values, vectors = np.linalg.eigh(scaled)
    kept = values > REDUNDANT * values.max(initial=0)
    return values[kept], vectors[:, kept]


def key_of(product: Product) -> Hashable:
    """Return what tells products apart."""
    return tuple((name, operator.key) for name, operator in product.factors.items())
