"""The interface of every kind of strategy: what is measured, its cost, and what follows from it.

A new kind derives from these four classes in a module of its own that ``dpsql.strategy`` imports,
and is proposed by a module of ``dpsql.search``. Nothing outside this package tells kinds apart.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense
from dpsql.algebra.integer_rows import IntegerRows, Matrix
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.errors import ProgrammingError
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.published_variance import unit_variance
from dpsql.workload.workload import Product, Workload

SCALE_BITS = 30
"""Significant bits of a noise scale; the rounding is towards more noise, by less than 2^-29."""

WRITTEN = 1 << 22
"""Numbers of a factor up to which it is written out for some of its rows."""

Keep = Callable[[Integers], str]
"""Stores an array and returns the name under which it is found again."""


class Block(ABC):
    """Integer rows with noise of their own, and the share of the budget that pays for it.

    ``attributes`` are those that the rows resolve, in domain order: all others are summed over.
    """

    __slots__ = ()

    attributes: tuple[str, ...]
    share: Fraction

    @property
    @abstractmethod
    def integer_rows(self) -> IntegerRows:
        """Return the rows, over the cells of the attributes, as the membrane reads them."""

    @property
    def rows(self) -> int:
        """Return how many numbers the block measures."""
        return self.integer_rows.count

    @property
    def cells(self) -> int:
        """Return the number of cells the block reads."""
        return self.integer_rows.cells

    @property
    def estimated(self) -> int:
        """Return how many numbers the estimate keeps of the block, for forecasts of memory."""
        return self.cells

    @property
    def factors(self) -> dict[Any, Any]:
        """Return attribute to its integer rows, None for the identity.

        Rows that are not an array are structured; their ``dense()`` writes them out. A key that is
        a tuple of attributes gives rows over their combined cells, first slowest.
        Raises ValueError where these are too many to write out.
        """
        return self.integer_rows.factors(self.attributes)


class Forecast(ABC):
    """The exact least squares of a strategy at given noise: a function of public facts only.

    ``noise`` are the variances of one number of each block.
    """

    writes_intervals: ClassVar[bool] = True
    """True if ``paired`` writes out rows that are intervals of cells."""

    domain: Mapping[str, int]
    noise: tuple[float, ...]

    @abstractmethod
    def supports(self, product: Product) -> bool:
        """Say whether the strategy measures enough to answer every row of a product."""

    @abstractmethod
    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major.

        Raises ProgrammingError E_NOT_MEASURED where the strategy does not support it.
        """

    @abstractmethod
    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """

    @abstractmethod
    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other, shape (rows,).

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """

    def between(self, left: Product, right: Product) -> Floats:
        """Return the covariance of every row of a product with every row of another, (rows, rows).

        Factors are in the order of the domain.
        """
        ours, theirs, shape = {}, {}, []
        for name in self.domain:
            one, two = left.factors.get(name), right.factors.get(name)
            m, n = (1 if each is None else each.rows for each in (one, two))
            if one is not None:
                ours[name] = take_rows(one, np.repeat(np.arange(m), n)) if two and n > 1 else one
            if two is not None:
                theirs[name] = take_rows(two, np.tile(np.arange(n), m)) if one and m > 1 else two
            shape += [m, n] if one or two else []
        found = self.covariance(Product(ours), Product(theirs)).reshape(shape)
        axes = [*range(0, len(shape), 2), *range(1, len(shape), 2)]
        return found.transpose(axes).reshape(left.rows, right.rows)

    def beside(self, product: Product) -> Floats:
        """Return what other strategies tell of every row of a product, shape (rows, numbers).

        Rows of two strategies of one plan have the covariance of less their scalar product.
        """
        return np.zeros((product.rows, 0))

    def total(self, product: Product) -> float:
        """Return the sum of the variances of all rows of a product."""
        return float(self.variance(product).sum())

    def totals(self, products: Iterable[Product]) -> list[float]:
        """Return ``total`` of many products."""
        return [self.total(product) for product in products]

    def variances(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``variance`` of many products."""
        return [self.variance(product) for product in products]

    def is_whole(self, product: Product) -> bool:
        """True if the answers will be whole; least squares mostly has fractions."""
        return False

    def check(self, product: Product) -> None:
        """Raise ProgrammingError E_NOT_MEASURED where a product is not supported."""
        if not self.supports(product):
            raise not_measured(product)


class Estimate(ABC):
    """The estimate of a release: every answer is linear in it, so all agree with each other."""

    __slots__ = ()

    forecast: Forecast

    @abstractmethod
    def answer(self, product: Product) -> Floats:
        """Return the answers to a product, flat and row-major over its factors' rows.

        Raises ProgrammingError E_NOT_MEASURED where the release does not support it.
        """

    def answers(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``answer`` of many products."""
        return [self.answer(product) for product in products]


class Strategy(ABC):
    """Blocks of integer rows over a domain (attribute to cells), measured with one noise law.

    ``kind`` is the name that files know it by, ``method`` the one that is shown. Where it
    ``is_joint``, the budget pays for the cell in which all blocks together cost most; else costs
    of blocks add up, and the shares of the blocks sum to one. Either way the membrane recomputes
    the cost from the integer rows. With ``has_marginals``, blocks are Kronecker products to which
    graphical models can be fitted.
    """

    __slots__ = ()

    kind: ClassVar[str]
    is_joint: ClassVar[bool] = False
    has_marginals: ClassVar[bool] = False

    domain: Mapping[str, int]
    blocks: tuple[Block, ...]
    noise: Noise
    method: str

    @abstractmethod
    def sensitivity(self, block: Any) -> int | Fraction:
        """Return the exact L1 (Laplace) or squared L2 (Gaussian) sensitivity of a block's rows."""

    @abstractmethod
    def forecast(self, variances: Sequence[float], integers: bool = False) -> Forecast:
        """Return the exact errors of every answer, for the noise variance of each block.

        ``integers`` says that values will be the integers that were measured.
        """

    @abstractmethod
    def solve(self, values: Sequence[NDArray[Any]], forecast: Any) -> Estimate:
        """Return the least-squares estimate of a release.

        Args:
            values: the noisy numbers (rows,) of each block, in the order of its rows.
            forecast: the strategy's own, at their noise.
        """

    @abstractmethod
    def describe(self, keep: Keep) -> dict[str, Any]:
        """Return plain facts from which ``decode`` makes the strategy, without kind and domain."""

    @classmethod
    @abstractmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> Self:
        """Return the strategy that ``encode`` described.

        Args:
            facts: as of ``encode``.
            arrays: every array that was kept, by its name.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hex digest of everything that is measured and of the noise law."""

    @property
    def shared_rows(self) -> Mapping[str, Matrix] | None:
        """Return the rows of every attribute where all blocks share these, else None."""
        return None

    def sensitivities(self) -> tuple[int | Fraction, ...]:
        """Return the sensitivity of every block."""
        return tuple(self.sensitivity(block) for block in self.blocks)

    def scales(
        self,
        amount: Fraction,
        rows_per_unit: int = 1,
        multipliers: Sequence[int] | None = None,
    ) -> tuple[Fraction, ...]:
        """Return per block the Laplace scale, or the Gaussian sigma squared, for a total cost.

        Args:
            amount: epsilon (Laplace) or rho (Gaussian).
            rows_per_unit: rows that one privacy unit can contribute.
            multipliers: per block by how much its sensitivity is larger than that of its rows for
                other reasons; 1 if absent.

        Guarantee: dyadic, rounded up, so the costs of all blocks sum to at most ``amount``.
        """
        reach = self.check_amount(amount, rows_per_unit)
        scale, times = law(self.noise).scale, multipliers or [1] * len(self.blocks)
        return tuple(
            round_up(scale(reach * each * self.sensitivity(block), block.share * amount))
            for block, each in zip(self.blocks, times, strict=True)
        )

    def check_amount(self, amount: Fraction, rows_per_unit: int) -> int:
        """Return by how much so many rows raise a sensitivity. Raises ValueError."""
        if amount <= 0 or rows_per_unit < 1:
            raise ValueError(f"amount {amount} and rows per unit {rows_per_unit} must be positive")
        return int(rows_per_unit ** law(self.noise).norm)

    def encode(self, keep: Keep) -> dict[str, Any]:
        """Return plain facts that describe the strategy; ``keep`` stores an array by name."""
        own = self.describe(keep)
        return {
            "kind": self.kind,
            "domain": list(self.domain.items()),
            **own,
            "noise": self.noise,
            "method": self.method,
        }

    def noise_variances(self, scales: Sequence[Fraction]) -> tuple[float, ...]:
        """Return per block the variance of one measured number, for its scale."""
        variance = law(self.noise).variance
        return tuple(variance(float(scale)) for scale in scales)

    def unit_variances(self) -> list[float]:
        """Return per block the squared sensitivity over its share: noise of a unit budget."""
        squared = law(self.noise).squared
        pairs = zip(self.sensitivities(), self.blocks, strict=True)
        return [squared(float(Fraction(cost) / block.share)) for cost, block in pairs]

    def unit_error(self, workload: Workload, variances: Sequence[float] | None = None) -> float:
        """Return the weighted total variance of a workload at noise ||A|| per unit budget.

        ``variances`` are other ones of a number of each block.
        """
        forecast = self.forecast(variances or self.unit_variances())
        single = [pair for pair in workload.asked if pair[0].rows == 1]
        several = [pair for pair in workload.asked if pair[0].rows > 1]
        found = forecast.variances([p for p, _ in single]) if single else []
        total = sum(w * float(v[0]) for (_, w), v in zip(single, found, strict=True))
        sums = forecast.totals(p for p, _ in several)
        return total + sum(w * each for (_, w), each in zip(several, sums, strict=True))

    def rmse(self, workload: Workload, epsilon: float = 1.0, delta: float = 1e-6) -> float:
        """Return the expected root mean squared error in the convention of the literature.

        Laplace variance is 2 (sensitivity / epsilon)^2; Gaussian noise uses the analytic
        calibration at (epsilon, delta).

        Args:
            workload: over the domain of the strategy.
            epsilon: of the release.
            delta: of the release, under Gaussian noise alone.

        Source: HDMM, section 8.
        """
        unit = unit_variance(self.noise, epsilon, delta)
        return math.sqrt(unit * self.unit_error(workload) / workload.rows)


def take_rows(factor: Operator, rows: NDArray[np.intp]) -> Operator:
    """Return rows (k,) of a factor by their places; those of intervals are not written out."""
    from dpsql.algebra.ranges import Ranges  # most answers are not taken row by row
    from dpsql.strategy.structured_axis import interval_bounds

    if (bounds := interval_bounds(factor)) is not None:
        return Ranges(factor.n, bounds[0][rows], bounds[1][rows])
    if factor.rows * factor.n <= WRITTEN:
        return Dense(np.asarray(factor.dense(), dtype=np.float64)[rows])
    kept, back = np.unique(rows, return_inverse=True)
    chosen = np.zeros((factor.rows, len(kept)))
    chosen[kept, np.arange(len(kept))] = 1
    return Dense(np.asarray(factor.rmatmat(chosen), dtype=np.float64).T[back])


def decode_domain(facts: Mapping[str, Any]) -> dict[str, int]:
    """Return the domain of an encoded strategy."""
    return {name: int(size) for name, size in facts["domain"]}


def digest_of(facts: object) -> str:
    """Return the hex digest of plain facts."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def array_digest(array: NDArray[Any]) -> str:
    """Return the hex digest of the numbers of an array.

    Any shape; the shape is no part of it.
    """
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def not_measured(product: Product) -> ProgrammingError:
    """Return the refusal of a product that a strategy does not support."""
    return ProgrammingError(
        "E_NOT_MEASURED",
        f"the release does not measure enough to answer over {list(product.factors)}",
        hint="ask for it in the same workload",
    )


def check_variances(variances: Sequence[float], blocks: int) -> tuple[float, ...]:
    """Return the noise variances of so many blocks. Raises ValueError."""
    if len(variances) != blocks or not all(v > 0 for v in variances):
        raise ValueError("one positive variance per block is needed")
    return tuple(float(v) for v in variances)


def round_up(value: Fraction) -> Fraction:
    """Return the least dyadic of 30 significant bits that is not below a positive value.

    >>> round_up(Fraction(1, 3)) >= Fraction(1, 3), round_up(Fraction(5)) == 5
    (True, True)
    """
    exponent = SCALE_BITS - (value.numerator.bit_length() - value.denominator.bit_length())
    unit = Fraction(1, 1 << exponent) if exponent >= 0 else Fraction(1 << -exponent)
    return -(-value // unit) * unit


def by_single_rows(
    products: Iterable[Product],
    one: Callable[[Product], Floats],
    together: Callable[[tuple[str, ...], list[Product]], Floats],
) -> list[Floats]:
    """Return ``one`` of every product; those of one row over the same attributes at once.

    Args:
        one: returns (rows of the product,).
        together: of attributes and the products over them, one number for each.
    """
    items = list(products)
    out: list[Floats] = [np.empty(0)] * len(items)
    groups: dict[tuple[str, ...], list[int]] = {}
    for j, product in enumerate(items):
        if product.rows == 1:
            groups.setdefault(tuple(product.factors), []).append(j)
        else:
            out[j] = one(product)
    for names, members in groups.items():
        if names:
            values = np.array(together(names, [items[j] for j in members]))
        else:  # all of them are the total
            values = np.repeat(one(items[members[0]]), len(members))
        for j, value in zip(members, values[:, np.newaxis], strict=True):
            out[j] = value
    return out


def paired_rows(
    domain: Mapping[str, int], products: tuple[Product, Product], rows: tuple[Floats, Floats]
) -> Floats:
    """Return the inner products of vectors of paired rows of two products, (pairs,).

    On each attribute both have the same number of rows, or one of them is Total.

    Args:
        rows: a vector for every row of each product, shape (rows, size).
    """
    names = [n for n in domain if any(n in product.factors for product in products)]
    one, other = (
        found.reshape(*(p.factors[n].rows if n in p.factors else 1 for n in names), -1)
        for p, found in zip(products, rows, strict=True)
    )
    return np.asarray((one * other).sum(axis=-1)).reshape(-1)


def distinct(operators: Sequence[Operator]) -> tuple[list[Operator], NDArray[np.intp]]:
    """Return the operators of different content, and which of them each is, (operators,)."""
    found: list[Operator] = []
    known: dict[Hashable, int] = {}
    seen: dict[int, int] = {}  # by identity, since hashing the same rows again is slow
    places = []
    for operator in operators:
        place = seen.get(id(operator))
        if place is None:
            place = seen[id(operator)] = known.setdefault(operator.key, len(found))
            if place == len(found):
                found.append(operator)
        places.append(place)
    return found, np.array(places, dtype=np.intp)


def distinct_rows(
    operators: Sequence[Operator], row: Callable[[Operator], Floats]
) -> tuple[Floats, NDArray[np.intp]]:
    """Return the distinct rows of one-row operators, (rows, n), and which one each uses.

    Args:
        operators: of one row over n cells each.
        row: writes out the row (n,) of one.
    """
    found, places = distinct(operators)
    return np.array([row(operator) for operator in found]), places
