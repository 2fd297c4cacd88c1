"""A strategy that measures queries themselves: noise for the cell that most of them share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import KronRows
from dpsql.algebra.operator import Floats, Integers
from dpsql.algebra.worst import worst_cell
from dpsql.strategy.base import (
    Block,
    Estimate,
    Forecast,
    Keep,
    Strategy,
    array_digest,
    check_variances,
    decode_domain,
    digest_of,
    register,
    round_up,
)
from dpsql.strategy.noise_law import Noise, is_law, law
from dpsql.workload.workload import Product

SINGULAR = 1e-10
"""Relative size below which an eigenvalue counts as zero: some query is a sum of others."""

OUTSIDE = 1e-7
"""Relative size of the part of a query that no measured ones add up to, above which it counts."""


@dataclass(frozen=True, slots=True)
class QueryBlock(Block):
    """The rows of one product: per attribute a matrix, None for the identity.

    Its noise is that of the strategy over ``weight``, a whole number: the Laplace scale, or sigma
    squared for Gaussian noise. ``sizes`` are the cells of the attributes.
    """

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    matrices: tuple[Integers | None, ...]
    weight: int
    share: Fraction = Fraction(1)

    @property
    def integer_rows(self) -> KronRows:
        """Return the rows of every attribute."""
        return KronRows(self.matrices, self.sizes)


@register
@dataclass(frozen=True, slots=True)
class QueriesStrategy(Strategy):
    """Blocks with rows of their own whose sensitivity is that of all of them together.

    Guarantee: noise is for the cell in which the weighted column norms of all blocks have the
    largest sum, an exact integer or one that is never less, so that all blocks together cost at
    most the amount given, in exact rational arithmetic.
    """

    kind: ClassVar[str] = "queries"
    is_joint: ClassVar[bool] = True

    domain: Mapping[str, int]
    blocks: tuple[QueryBlock, ...]
    noise: Noise
    method: str = "queries"
    _joint: dict[tuple[int, ...], int] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        order = list(self.domain)
        if not is_law(self.noise) or not self.blocks:
            raise ValueError("queries have rows, and a noise law")
        for block in self.blocks:
            if list(block.attributes) != sorted(block.attributes, key=order.index):
                raise ValueError(f"block {block.attributes} is not in domain order")
            if block.weight < 1 or block.share != 1:
                raise ValueError("weights are whole and positive, and shares one")
            for name, n, rows in zip(block.attributes, block.sizes, block.matrices, strict=True):
                fits = rows is None or (rows.dtype == np.int64 and rows.shape[1] == n)
                if self.domain[name] != n or not fits:
                    raise ValueError(f"the rows of {name!r} are not integers over its cells")

    def joint(self, multipliers: Sequence[int]) -> int:
        """Return the largest weighted sum of column norms, times a multiplier for every block."""
        key = tuple(multipliers)
        if key not in self._joint:
            weights = [m * b.weight for m, b in zip(key, self.blocks, strict=True)]
            norms = [block_norms(block, self.noise) for block in self.blocks]
            self._joint[key] = joint_norm(self.domain, norms, weights)
        return self._joint[key]

    def sensitivity(self, block: QueryBlock) -> Fraction:
        """Return the sensitivity of all blocks together, over the weight of one."""
        return Fraction(self.joint([1] * len(self.blocks)), block.weight)

    def scales(
        self,
        amount: Fraction,
        rows_per_unit: int = 1,
        multipliers: Sequence[int] | None = None,
    ) -> tuple[Fraction, ...]:
        """Return per block the Laplace scale, or the Gaussian sigma squared, for a total cost.

        Guarantee: rounded up, so the joint cost of all blocks is at most ``amount``.
        """
        reach = self.check_amount(amount, rows_per_unit)
        times = reach * self.joint(multipliers or [1] * len(self.blocks))
        base = round_up(law(self.noise).scale(times, amount))
        return tuple(base / block.weight for block in self.blocks)

    def forecast(self, variances: Sequence[float]) -> QueriesForecast:
        """Return the exact errors of every answer, for the noise variance of each block."""
        return QueriesForecast(self.domain, self.blocks, variances)

    def solve(
        self, values: Sequence[NDArray[Any]], forecast: Any, integers: bool = False
    ) -> QueriesEstimate:
        """Return the least-squares estimate of a release of queries."""
        parts = [
            np.asarray(value).astype(np.float64) / variance**0.5
            for value, variance in zip(values, forecast.noise, strict=True)
        ]
        return QueriesEstimate(forecast, np.concatenate(parts))

    def describe(self, keep: Keep) -> dict[str, Any]:
        """Return plain facts; ``keep`` stores an array by name."""
        blocks = [
            [
                list(block.attributes),
                [None if rows is None else keep(rows) for rows in block.matrices],
                block.weight,
            ]
            for block in self.blocks
        ]
        return {"blocks": blocks}

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> QueriesStrategy:
        """Return the strategy that ``encode`` described."""
        domain = decode_domain(facts)
        blocks = tuple(
            QueryBlock(
                tuple(attributes),
                tuple(domain[name] for name in attributes),
                tuple(None if name is None else arrays[name] for name in names),
                int(weight),
            )
            for attributes, names, weight in facts["blocks"]
        )
        return cls(domain, blocks, facts["noise"], facts["method"])

    def fingerprint(self) -> str:
        """Return a hex digest of everything that is measured and of the noise law."""
        text: list[object] = ["queries", list(self.domain.items()), self.noise]
        for block in self.blocks:
            rows = [None if m is None else (m.shape, array_digest(m)) for m in block.matrices]
            text.append((block.attributes, rows, block.weight))
        return digest_of(text)


def block_norms(block: QueryBlock, noise: Noise) -> dict[str, NDArray[Any]]:
    """Return per attribute the L1 or squared L2 norm of every column, as Python integers."""
    out: dict[str, NDArray[Any]] = {}
    for name, rows in zip(block.attributes, block.matrices, strict=True):
        if rows is not None:
            out[name] = law(noise).powers(rows.astype(object)).sum(axis=0)
    return out


def joint_norm(
    domain: Mapping[str, int], norms: Sequence[Mapping[str, NDArray[Any]]], weights: Sequence[int]
) -> int:
    """Return the largest sum, over cells, of weights times the products of column norms.

    ``domain`` gives the size of each attribute; of each query, ``norms`` has the norms (cells,)
    along the attributes that it has, ``weights`` its whole weight.
    """
    tables = []
    for name, n in domain.items():
        if any(name in each for each in norms):
            ones = np.ones(n, dtype=object)
            tables.append(np.array([each.get(name, ones) for each in norms], dtype=object))
    start = np.array(weights, dtype=object)
    bound = sum(
        weight * math.prod(int(column.max()) for column in each.values())
        for weight, each in zip(weights, norms, strict=True)
    )
    if bound < 2**62:
        tables, start = [t.astype(np.int64) for t in tables], start.astype(np.int64)
    return max(1, int(worst_cell(tables, start)[0]))


class QueriesForecast(Forecast):
    """Exact generalised least squares of measured queries with given noise variances per block.

    With the rows B, scaled to unit noise, and any positive weights of the cells, here equal ones
    that sum to one, the answer to q is c'y with c = (B B')^+ B q, of variance c'c, where q is a
    combination of the rows. Nothing larger than the number of rows squared is formed.
    """

    def __init__(
        self, domain: Mapping[str, int], blocks: Sequence[QueryBlock], variances: Sequence[float]
    ) -> None:
        self.noise = check_variances(variances, len(blocks))
        self.domain, self.blocks = domain, blocks
        self._rows = [_dense(block) for block in blocks]
        self._known: dict[tuple[object, ...], tuple[Floats, bool]] = {}

    @cached_property
    def inverse(self) -> Floats:
        """Return the pseudo-inverse of B B', shape (rows, rows)."""
        names = [block.attributes for block in self.blocks]
        products = [
            dict(zip(n, rows, strict=True)) for n, rows in zip(names, self._rows, strict=True)
        ]
        gram = np.concatenate([self._cross(each) for each in products], axis=1)
        scale = np.concatenate(
            [np.full(b.rows, v**-0.5) for b, v in zip(self.blocks, self.noise, strict=True)]
        )
        gram *= scale
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        kept = values > SINGULAR * values[-1]
        return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T)

    def _cross(self, factors: Mapping[str, Floats], paired: bool = False) -> Floats:
        """Return B Q', shape (rows, queries), of the rows of a product, or of its rows in pairs."""
        out = []
        join = _columnwise if paired else np.kron
        for block, rows, variance in zip(self.blocks, self._rows, self.noise, strict=True):
            own = dict(zip(block.attributes, rows, strict=True))
            parts = [np.ones((1, 1))]
            for name, n in self.domain.items():
                ours, theirs = own.get(name), factors.get(name)
                if ours is None and theirs is None:
                    continue
                ours = np.ones((1, n)) if ours is None else ours
                theirs = np.ones((1, n)) if theirs is None else theirs
                parts.append(ours @ theirs.T / n)
            crossed: Floats = parts[0]
            for part in parts[1:]:
                crossed = np.asarray(join(crossed, part))
            out.append(crossed / variance**0.5)
        return np.concatenate(out)

    def _solve(self, factors: Mapping[str, Floats], paired: bool) -> tuple[Floats, bool]:
        """Return the coefficients of queries, shape (rows, queries), and whether they are exact."""
        cross = self._cross(factors, paired)
        found = self.inverse @ cross
        sizes = [np.square(rows).sum(axis=1) / self.domain[name] for name, rows in factors.items()]
        norms: Floats = np.ones(1)
        for size in sizes:
            norms = np.asarray(norms * size if paired else np.kron(norms, size))
        outside = norms - np.einsum("ij,ij->j", cross, found)
        return found, bool((outside <= OUTSIDE * norms).all())

    def coefficients(self, product: Product) -> tuple[Floats, bool]:
        """Return what to multiply scaled measurements by, per row, and whether that is exact."""
        names = [name for name in self.domain if name in product.factors]
        key = tuple((name, product.factors[name].key) for name in names)
        if key not in self._known:
            rows = {n: np.asarray(product.factors[n].dense(), dtype=np.float64) for n in names}
            self._known[key] = self._solve(rows, False)
        return self._known[key]

    def supports(self, product: Product) -> bool:
        """Say whether what is measured is enough to answer every row of a product."""
        return self.coefficients(product)[1]

    def exact(self, product: Product) -> Floats:
        """Return the coefficients. Raises ProgrammingError E_NOT_MEASURED without support."""
        self.check(product)
        return self.coefficients(product)[0]

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major."""
        return np.asarray(np.square(self.exact(product)).sum(axis=0))

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        names = [n for n in self.domain if n in left.factors or n in right.factors]
        sides = []
        for product in (left, right):
            sizes = [product.factors[n].rows if n in product.factors else 1 for n in names]
            found = self.exact(product)
            sides.append(found.reshape(len(found), *sizes))
        return np.asarray((sides[0] * sides[1]).sum(axis=0)).reshape(-1)

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other.

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """
        sides = []
        for product in (left, right):
            rows = {n: np.asarray(f.dense(), dtype=np.float64) for n, f in product.factors.items()}
            sides.append(self._solve(rows, True)[0])
        return np.asarray((sides[0] * sides[1]).sum(axis=0))


def _dense(block: QueryBlock) -> list[Floats]:
    pairs = zip(block.matrices, block.sizes, strict=True)
    return [np.eye(n) if rows is None else rows.astype(np.float64) for rows, n in pairs]


def _columnwise(left: Floats, right: Floats) -> Floats:
    """Return the Kronecker product of every column of one with that of the other."""
    product = left[:, np.newaxis] * right[np.newaxis]
    return np.asarray(product.reshape(-1, product.shape[-1]))


@dataclass(frozen=True, slots=True)
class QueriesEstimate(Estimate):
    """What a release says: measured queries in units of their noise, and the forecast of errors."""

    forecast: QueriesForecast
    measured: Floats

    def answer(self, product: Product) -> Floats:
        """Return the answers to a product, flat and row-major over its factors' rows.

        Raises ProgrammingError E_NOT_MEASURED where the release does not support it.
        """
        return np.asarray(self.forecast.exact(product).T @ self.measured)
