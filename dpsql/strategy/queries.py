"""A strategy that measures queries themselves: noise for the cell that most of them share."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Integers, Operator
from dpsql.algebra.worst import worst_cell
from dpsql.strategy.noise_law import Noise, is_law, law
from dpsql.strategy.product import round_up
from dpsql.workload.workload import Product, Workload

if TYPE_CHECKING:
    from dpsql.strategy.queries_solve import QueriesForecast

MOST_ROWS = 1536
"""Most query rows in all: least squares is over these."""

MOST_NUMBERS = 1 << 22
"""Most numbers in the rows of one attribute."""

BINARY_PLACES = 16
"""Binary places of rows that count as whole."""

WEIGHTS = 65_520
"""What the largest weight of a block is rounded to."""


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """The rows of one product: per attribute a matrix, None for the identity.

    Its noise is that of the strategy over ``weight``, a whole number: the Laplace scale, or sigma
    squared for Gaussian noise. ``sizes`` are the cells of the attributes.
    """

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    matrices: tuple[Integers | None, ...]
    weight: int
    share: Fraction = Fraction(1)
    residual: frozenset[str] = frozenset()

    @property
    def factors(self) -> dict[str, Integers | None]:
        """Return attribute to its integer rows, None for the identity."""
        return dict(zip(self.attributes, self.matrices, strict=True))

    @property
    def rows(self) -> int:
        """Return how many numbers the block measures."""
        pairs = zip(self.matrices, self.sizes, strict=True)
        return math.prod(n if matrix is None else len(matrix) for matrix, n in pairs)

    @property
    def cells(self) -> int:
        """Return the number of cells the block reads."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True)
class QueriesStrategy:
    """Blocks with rows of their own whose sensitivity is that of all of them together.

    Guarantee: noise is for the cell in which the weighted column norms of all blocks have the
    largest sum, an exact integer or one that is never less, so that all blocks together cost at
    most the amount given, in exact rational arithmetic.
    """

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

    def sensitivities(self) -> tuple[Fraction, ...]:
        """Return the sensitivity of every block."""
        return tuple(self.sensitivity(block) for block in self.blocks)

    def scales(
        self,
        amount: Fraction,
        rows_per_unit: int = 1,
        multipliers: Sequence[int] | None = None,
    ) -> tuple[Fraction, ...]:
        """Return per block the Laplace scale, or the Gaussian sigma squared, for a total cost.

        ``multipliers`` are as those of ``Strategy.scales``.
        Guarantee: rounded up, so the joint cost of all blocks is at most ``amount``.
        """
        if amount <= 0 or rows_per_unit < 1:
            raise ValueError(f"amount {amount} and rows per unit {rows_per_unit} must be positive")
        noise = law(self.noise)
        times = rows_per_unit**noise.norm * self.joint(multipliers or [1] * len(self.blocks))
        base = round_up(noise.scale(times, amount))
        return tuple(base / block.weight for block in self.blocks)

    def rows(self, block: QueryBlock) -> int:
        """Return how many numbers the block measures."""
        return block.rows

    def forecast(self, variances: Sequence[float]) -> QueriesForecast:
        """Return the exact errors of every answer, for the noise variance of each block."""
        from dpsql.strategy.queries_solve import QueriesForecast

        return QueriesForecast(self, variances)

    def encode(self, keep: Callable[[Integers], str]) -> dict[str, Any]:
        """Return plain facts that describe the strategy; ``keep`` stores an array by name."""
        blocks = [
            [
                list(block.attributes),
                [None if rows is None else keep(rows) for rows in block.matrices],
                block.weight,
            ]
            for block in self.blocks
        ]
        return {
            "kind": "queries",
            "domain": list(self.domain.items()),
            "blocks": blocks,
            "noise": self.noise,
            "method": self.method,
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> QueriesStrategy:
        """Return the strategy that ``encode`` described."""
        domain = {name: int(size) for name, size in facts["domain"]}
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
            rows = [None if m is None else (m.shape, _digest(m)) for m in block.matrices]
            text.append((block.attributes, rows, block.weight))
        return hashlib.sha256(repr(text).encode()).hexdigest()

    def rmse(self, workload: Workload, epsilon: float = 1.0, delta: float = 1e-6) -> float:
        """Return the expected root mean squared error in the convention of the literature."""
        from dpsql.strategy.convention import rmse

        return rmse(self, workload, epsilon, delta)

    def heatmap(self, attribute: str) -> NDArray[np.float64]:
        """Return the rows measured on one attribute, scaled to a largest entry of one."""
        found = [
            np.eye(self.domain[attribute]) if rows is None else rows / np.abs(rows).max()
            for block in self.blocks
            for rows in [block.factors.get(attribute, np.ones((1, self.domain[attribute])))]
        ]
        return np.unique(np.concatenate(found), axis=0)


def block_norms(block: QueryBlock, noise: Noise) -> dict[str, NDArray[Any]]:
    """Return per attribute the L1 or squared L2 norm of every column, as Python integers."""
    out: dict[str, NDArray[Any]] = {}
    for name, rows in block.factors.items():
        if rows is not None:
            out[name] = law(noise).powers(rows.astype(object)).sum(axis=0)
    return out


def joint_norm(
    domain: Mapping[str, int], norms: Sequence[Mapping[str, NDArray[Any]]], weights: Sequence[int]
) -> int:
    """Return the largest sum, over cells, of weights times the products of column norms."""
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


def measure_queries(workload: Workload, noise: Noise) -> QueriesStrategy | None:
    """Return the products of a workload as a strategy; None where they are many or not whole.

    Products that are asked several times are measured once, with the sum of their weights.
    """
    if workload.rows > MOST_ROWS:
        return None
    found: dict[tuple[object, ...], tuple[dict[str, Integers | None], float]] = {}
    known: dict[int, tuple[Integers | None, float] | None] = {}
    for product in workload.products:
        factors: dict[str, Integers | None] = {}
        scale = product.weight
        for name, factor in product.factors.items():
            if id(factor) not in known:
                known[id(factor)] = _whole(factor)
            whole = known[id(factor)]
            if whole is None:
                return None
            factors[name] = whole[0]
            scale *= whole[1]
        key = tuple((n, None if m is None else (m.shape, m.tobytes())) for n, m in factors.items())
        found[key] = (factors, found.get(key, (factors, 0.0))[1] + scale)
    power = law(noise).norm
    largest = max(scale for _, scale in found.values())
    domain = workload.domain
    blocks = tuple(
        QueryBlock(
            tuple(factors),
            tuple(domain[name] for name in factors),
            tuple(factors.values()),
            max(1, round(WEIGHTS * (scale / largest) ** power)),
        )
        for factors, scale in found.values()
    )
    weights = math.gcd(*(block.weight for block in blocks))
    blocks = tuple(
        QueryBlock(b.attributes, b.sizes, b.matrices, b.weight // weights) for b in blocks
    )
    return QueriesStrategy(domain, blocks, noise)


def _whole(factor: Operator) -> tuple[Integers | None, float] | None:
    """Return whole rows and what one of theirs is of the factor's, None where there are none."""
    if isinstance(factor, Identity):
        return None, 1.0
    if factor.rows * factor.n > MOST_NUMBERS:
        return None
    scaled = np.ldexp(np.asarray(factor.dense(), dtype=np.float64), BINARY_PLACES)
    if not np.array_equal(scaled, np.rint(scaled)) or np.abs(scaled).max() >= 2.0**40:
        return None
    rows: Integers = scaled.astype(np.int64)
    divisor = max(1, int(np.gcd.reduce(rows, axis=None)))
    return np.ascontiguousarray(rows // divisor), divisor / 2**BINARY_PLACES


def _digest(array: Integers) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def product_names(domain: Mapping[str, int], product: Product) -> list[str]:
    """Return the attributes of a product in domain order."""
    return [name for name in domain if name in product.factors]
