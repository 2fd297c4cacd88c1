"""Exponentials and tails as fractions that are bounds for certain: sixty digits, and a pad."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

_CTX = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Sixty digits, as in ``accounting``: what rounding can add is far below _PAD."""
_PAD = Fraction(1, 10**40)
"""Margin that a few roundings at sixty digits are far below, relative to a result."""
_ROOT_TAU = Fraction("2.5066282746310005024")
"""The square root of 2 pi, rounded down."""
_CUT = 128
"""Bits of a bound of exp: shorter fractions, and still 1e-38 close."""


def exp_below(x: Fraction) -> Fraction:
    """Return a fraction of at most exp(x), of few digits, for 0 < x.

    >>> 0 < exp_below(Fraction(1)) - Fraction(2718281828, 10**9) < Fraction(1, 10**9)
    True
    """
    exact = Fraction(_quotient(x).exp(_CTX)) * (1 - _PAD)
    scale = 1 << _CUT
    return max(Fraction(1), Fraction(int(exact * scale), scale))


def gaussian_tail(sigma2: Fraction, t: int) -> Fraction:
    """Return an upper bound of P(Z >= t) for a discrete Gaussian Z of variance ``sigma2``, t >= 1.

    It is at most P(N >= t - 1) of the continuous one (Canonne, Kamath and Steinke 2020, Proposition
    25), and that at most its density there times sigma2 / (t - 1).

    >>> float(gaussian_tail(Fraction(10**6), 3001)) < 0.00148
    True
    """
    x = Fraction(t - 1)
    if x <= 0:
        return Fraction(1)
    # A smaller exponent only raises the bound, and spares decimals of huge exponents.
    exponent = min(x * x / (2 * sigma2), Fraction(10**6))
    density = Fraction((-_quotient(exponent)).exp(_CTX)) * (1 + _PAD) + Fraction(1, 10**400)
    root = Fraction(_quotient(sigma2).sqrt(_CTX)) * (1 + _PAD)
    return min(Fraction(1), density * root / (x * _ROOT_TAU))


def laplace_tail(scale: Fraction, t: int) -> Fraction:
    """Return an upper bound of P(Z >= t) for a discrete Laplace Z: a^t / (1 + a), for t >= 1.

    >>> 0 <= laplace_tail(Fraction(1), 3) - Fraction(0.0363969) < Fraction(1, 10**6)
    True
    """
    step = 1 / scale
    least = Fraction((-_quotient(step)).exp(_CTX)) * (1 - _PAD)
    # A smaller exponent only raises the bound, and spares decimals of huge exponents.
    exponent = min(t * step, Fraction(10**6))
    return Fraction((-_quotient(exponent)).exp(_CTX)) * (1 + _PAD) / (1 + least)


def _quotient(x: Fraction) -> Decimal:
    return _CTX.divide(Decimal(x.numerator), Decimal(x.denominator))
