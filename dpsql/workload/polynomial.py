"""Polynomials of a bounded measure, of degree two at most.

Far from zero the squares of constants are more than a double keeps: coefficients are exact.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from dpsql.records import dataclass

Exact: TypeAlias = "float | Fraction"
"""A number as a double, or as a fraction where no double is it."""

MAX_DEGREE = 2
"""Highest power of a measure: what its nodes carry is enough for squares, which variances need."""


def exact_double(value: Fraction) -> Exact:
    """A number as a double where one is it.

    >>> exact_double(Fraction(1, 2)), exact_double(Fraction(1, 3))
    (0.5, Fraction(1, 3))
    """
    try:
        near = float(value)
    except OverflowError:
        return value
    return near if Fraction(near) == value else value


@dataclass(frozen=True, slots=True)
class Polynomial:
    """c0 + c1 v + c2 v^2 of a bounded measure v, and ``null`` where it is NULL.

    ``clip`` are bounds within the declared ones.
    """

    column: str
    coefficients: tuple[Exact, Exact, Exact]
    null: float = 0.0
    clip: tuple[float, float] | None = None

    @property
    def fractions(self) -> tuple[Fraction, Fraction, Fraction]:
        """The coefficients, as they are."""
        first, second, third = self.coefficients
        return Fraction(first), Fraction(second), Fraction(third)

    def largest(self, low: float, high: float) -> float:
        """The largest magnitude for values from ``low`` to ``high``, or NULL.

        >>> Polynomial("v", (0.0, -4.0, 1.0)).largest(0.0, 5.0)
        5.0
        """
        return max(abs(self.null), *map(abs, self.extremes(low, high)))

    def extremes(self, low: float, high: float) -> list[float]:
        """Values among which are the least and the largest for ``low`` to ``high``, or the clip.

        >>> Polynomial("v", (0.0, -4.0, 1.0)).extremes(0.0, 5.0)
        [0.0, 5.0, -4.0]
        """
        low, high = self.clip or (low, high)
        _, b, c = self.fractions
        turn = [self.at(-b / (2 * c))] if c and low < -b / (2 * c) < high else []
        return [self.at(low), self.at(high), *turn]

    def at(self, value: Exact) -> float:
        """The polynomial of a value: far from zero, doubles would keep none of its differences.

        >>> Polynomial("v", (2.0**104, -(2.0**53), 1.0)).at(2.0**52 + 3)
        9.0
        """
        a, b, c = self.fractions
        place = Fraction(value)
        return float(a + (b + c * place) * place)

    def plus(self, other: Polynomial, own: float, others: float) -> Polynomial:
        """Return so many times this polynomial and so many times another one of the same values.

        Args:
            other: of the same column, clipped alike.
            own, others: the factors of this one, and of the other.

        >>> Polynomial("v", (0.0, 2.0, 0.0)).plus(Polynomial("v", (7.0, 0.0, 0.0)), 1.0, -1.0)
        Polynomial(column='v', coefficients=(-7.0, 2.0, 0.0), null=0.0, clip=None)
        """
        x, y = Fraction(own), Fraction(others)
        pairs = zip(self.fractions, other.fractions, strict=True)
        a, b, c = (exact_double(x * p + y * q) for p, q in pairs)
        return Polynomial(self.column, (a, b, c), own * self.null + others * other.null, self.clip)

    def times(self, other: Polynomial) -> Polynomial | None:
        """The product with another one of the same values; None above the highest degree.

        >>> Polynomial("v", (-(2.0**53 - 1), 1.0, 0.0)).times(Polynomial("v", (0.0, 1.0, 0.0)))
        Polynomial(column='v', coefficients=(0.0, -9007199254740991.0, 1.0), null=0.0, clip=None)
        """
        product = [Fraction(0)] * 5
        for i, a in enumerate(self.fractions):
            for j, b in enumerate(other.fractions):
                product[i + j] += a * b
        if any(product[MAX_DEGREE + 1 :]):
            return None
        first, second, third = map(exact_double, product[: MAX_DEGREE + 1])
        null = self.null * other.null
        return Polynomial(self.column, (first, second, third), null, self.clip)
