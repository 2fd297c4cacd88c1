"""Renyi divergence in upper bounds: the conversion to (epsilon, delta) and two curves.

Logarithms and exponentials are taken by ``decimal`` at 60 digits, where they are correctly
rounded; adding 1e-40 then makes every returned number a true upper bound, because the
quantities here are below 1e15 and a few roundings of relative size 1e-60 apart from exact.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

_CTX = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
_PAD = Fraction(1, 10**40)
_LARGEST_ORDER = 2**40


def conversion(order: int, delta: Fraction) -> Fraction:
    """Return an upper bound of c such that (order, tau)-RDP gives (tau + c, delta)-DP.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12.

    >>> round(float(conversion(35, Fraction(1, 10**9))), 4)
    0.476
    """
    top = _ln(1 / delta) + (order - 1) * _ln(Fraction(order - 1, order)) - _ln(Fraction(order))
    return top / (order - 1) + _PAD


def best_order(epsilon: Fraction, delta: Fraction) -> int:
    """Return the integer order at which the most zCDP fits into (epsilon, delta).

    It maximises (epsilon - c(order, delta)) / order, which rises and then falls. Any other
    order would be as safe, only tighter.

    >>> best_order(Fraction(1), Fraction(1, 10**9))
    35
    """
    return _peak(lambda order: (epsilon - conversion(order, delta)) / order)


def order_for_rho(rho: Fraction, delta: Fraction) -> int:
    """Return the integer order whose conversion of rho-zCDP at delta is the smallest."""
    return _peak(lambda order: -(order * rho + conversion(order, delta)))


def randomised_response(order: int, epsilon: Fraction) -> Fraction:
    """Return an upper bound of the Renyi divergence of any epsilon-DP mechanism.

    Randomised response is the worst one: ln((e^(a eps) + e^(eps - a eps)) / (1 + e^eps)) / (a - 1).

    >>> 0 < randomised_response(2, Fraction(1)) < 1
    True
    """
    small = max(epsilon - 2 * order * epsilon, Fraction(-1000))
    below = epsilon if epsilon > 1000 else _ln(1 + _exp(epsilon))
    top = order * epsilon + _ln(1 + _exp(small)) - below
    return top / (order - 1) + _PAD


def _peak(value: Callable[[int], Fraction]) -> int:
    """Return where a function that rises and then falls is largest, over integers from 2."""
    low, high = 2, 4
    while high < _LARGEST_ORDER and value(high) > value(high // 2):
        low, high = high // 2, 2 * high
    while low < high:
        middle = (low + high) // 2
        if value(middle) < value(middle + 1):
            low = middle + 1
        else:
            high = middle
    return low


def _ln(x: Fraction) -> Fraction:
    return Fraction(_decimal(x).ln(_CTX))


def _exp(x: Fraction) -> Fraction:
    return Fraction(_decimal(x).exp(_CTX))


def _decimal(x: Fraction) -> Decimal:
    return _CTX.divide(Decimal(x.numerator), Decimal(x.denominator))
