"""Epsilon and delta as exact fractions, and the integer units that budgets are counted in."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from dpsql.errors import DataError

UNITS = 10**12
"""Units in one epsilon: one unit is 1e-12."""

LIMIT = 2**62
"""Every stored cost and total is an integer below this: the sum of two fits SQLite's 64 bits."""

MIN_EPSILON = Fraction(1, 10**6)
"""At less, noise on one count spreads over more than a million rows."""
MAX_EPSILON = Fraction(100)
"""A larger one would promise next to nothing."""
MIN_DELTA = Fraction(1, 10**15)
"""Conversions between rho and epsilon are exact enough down to here, with room to spare."""
MAX_DELTA = Fraction(1, 10**4)
"""A larger delta could publish one row in ten thousand as it is."""

_GRAMMAR = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_LONGEST = 40
"""Characters of an amount as text; longer ones are no amounts."""


def units_down(amount: Fraction) -> int:
    """Return an amount in whole units, rounded down (for budgets).

    >>> units_down(Fraction(1, 3))
    333333333333
    """
    return amount.numerator * UNITS // amount.denominator


def units_up(amount: Fraction) -> int:
    """Return an amount in whole units, rounded up (for costs).

    >>> units_up(Fraction(1, 3))
    333333333334
    """
    return -(-amount.numerator * UNITS // amount.denominator)


def parse_epsilon(value: object, maximum: Fraction = MAX_EPSILON) -> Fraction:
    """Return a number given as epsilon exactly; floats mean the decimal they print as.

    Accepts int, float, Decimal and Fraction between 1e-6 and ``maximum``.
    Raises: DataError E_EPSILON for anything else (bool, str, None, NaN, infinities).

    >>> parse_epsilon(0.1)
    Fraction(1, 10)
    """
    return _epsilon_in_range(_number(value), maximum)


def parse_epsilon_text(text: object, maximum: Fraction = MAX_EPSILON) -> Fraction:
    """Return epsilon written as a plain number of SQL: ``0.5``, ``.5``, ``5e-1``.

    Raises: DataError E_EPSILON.

    >>> parse_epsilon_text("5e-1")
    Fraction(1, 2)
    """
    return _epsilon_in_range(_number_text(text), maximum)


def parse_delta(value: object, maximum: Fraction = MAX_DELTA) -> Fraction:
    """Return a number given as delta exactly: 0, or between 1e-15 and ``maximum``.

    Raises: DataError E_DELTA.

    >>> parse_delta(1e-9)
    Fraction(1, 1000000000)
    """
    return _delta_in_range(_number(value), maximum)


def parse_delta_text(text: object, maximum: Fraction = MAX_DELTA) -> Fraction:
    """Return delta written by the same grammar as epsilon.

    Raises: DataError E_DELTA.

    >>> parse_delta_text("0")
    Fraction(0, 1)
    """
    return _delta_in_range(_number_text(text), maximum)


def _number(value: object) -> Fraction | None:
    """Return the exact value of a number small enough to look at, else None."""
    if isinstance(value, float):
        value = Decimal(float.__repr__(value))  # numpy's float64 prints its type in repr
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        return None
    return Fraction(int(value)) if isinstance(value, int) else Fraction(value)


def _number_text(text: object) -> Fraction | None:
    if not isinstance(text, str) or len(text) > _LONGEST or not _GRAMMAR.fullmatch(text):
        return None
    mantissa, _, exponent = text.lower().partition("e")
    if abs(int(exponent or "0")) > 2 * _LONGEST:
        return Fraction(0) if mantissa.strip("0.") == "" else None
    return Fraction(text)


def _decimal(value: Decimal) -> Fraction | None:
    """Convert a Decimal, after its exponent is known to be harmless."""
    if not value.is_finite():
        return None
    if not value:
        return Fraction(0)
    return Fraction(value) if -100 < value.adjusted() < 100 else None


def _epsilon_in_range(value: Fraction | None, maximum: Fraction) -> Fraction:
    if value is None or not MIN_EPSILON <= value <= maximum:
        raise DataError(
            "E_EPSILON",
            f"epsilon must be a plain number between 0.000001 and {_short(maximum)}",
            hint="write it as digits, such as 0.5 or 5e-1",
        )
    return value


def _delta_in_range(value: Fraction | None, maximum: Fraction) -> Fraction:
    if value is None or (value != 0 and not MIN_DELTA <= value <= maximum):
        raise DataError(
            "E_DELTA",
            f"delta must be 0 or a plain number between 1e-15 and {_short(maximum)}",
            hint="0 means pure differential privacy; 1e-9 is a common choice",
        )
    return value


def _short(value: Fraction) -> str:
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.12g}"
