"""How numbers are written for people: as many digits as the noise leaves meaningful."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction

MAX_DECIMALS = 12


def decimals_for(stddevs: Iterable[float | None]) -> int:
    """Return the decimal places that keep two significant digits of the smallest stddev.

    >>> decimals_for([1.41, 86.0]), decimals_for([86.0]), decimals_for([0.0031, None])
    (1, 0, 4)
    """
    finite = [s for s in stddevs if s is not None and 0 < s < math.inf]
    if not finite:
        return 0
    return min(MAX_DECIMALS, max(0, 1 - math.floor(math.log10(min(finite)))))


def fixed(value: float, decimals: int) -> str:
    """Write a number with a fixed number of decimals and without a negative zero.

    >>> fixed(-0.04, 1), fixed(1203.37, 1)
    ('0.0', '1203.4')
    """
    text = f"{value:.{decimals}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def plain(value: object) -> str:
    """Write one value in full precision: ISO dates, lower-case booleans, shortest float.

    >>> plain(True), plain(0.1), plain(dt.date(2024, 2, 1)), plain("x")
    ('true', '0.1', '2024-02-01', 'x')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case dt.date():
            return value.isoformat()
        case Fraction():
            return plain(value.numerator if value.denominator == 1 else float(value))
        case _:
            return str(value)


def floor_text(value: Fraction, digits: int = 4) -> str:
    """Write a budget amount with at most ``digits`` significant digits, rounded down.

    >>> floor_text(Fraction(27, 10)), floor_text(Fraction(2, 3)), floor_text(Fraction(1, 10**9))
    ('2.7', '0.6666', '1e-9')
    """
    with localcontext() as context:
        context.prec, context.rounding = digits, ROUND_DOWN
        number = Decimal(value.numerator) / Decimal(value.denominator)
    if number == 0:
        return "0"
    if -5 < number.adjusted() < 12:
        text = f"{number:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = f"{number.normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def short(value: float) -> str:
    """Write a forecast error with four significant digits.

    >>> short(5.26135), short(86.0), short(12345.6)
    ('5.261', '86', '12346')
    """
    if math.isnan(value):
        return "not known"
    return fixed(value, 0) if abs(value) >= 1000 else f"{value:.4g}"
