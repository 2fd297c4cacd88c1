"""Numbers as people read them: with the digits that their standard errors leave."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from dpsql.errors import printable, printable_fields

MAX_DECIMALS = 12
"""Decimal places that are shown: a float of ordinary size has no more to tell."""
NOT_KNOWN = "not known"
"""The text that stands where an error is not worked out."""
FORMULA = re.compile(r"[=+\-@\t\r]")
"""Beginnings of texts that spreadsheets compute: who opens a file of results runs them."""


def decimals_for(stddevs: Iterable[float | None]) -> int:
    """Return the decimal places that keep two significant digits of the smallest stddev.

    >>> decimals_for([1.41, 86.0]), decimals_for([86.0]), decimals_for([0.0031, None])
    (1, 0, 4)
    >>> decimals_for([math.nan]), decimals_for([])
    (2, 0)
    """
    told = [s for s in stddevs if s is not None]
    finite = [s for s in told if 0 < s < math.inf]
    if not finite:
        return 2 if any(map(math.isnan, told)) else 0
    return min(MAX_DECIMALS, max(0, 1 - math.floor(math.log10(min(finite)))))


def fixed_decimals(value: float, decimals: int) -> str:
    """Write a number with a fixed number of decimals and without a negative zero.

    >>> fixed_decimals(-0.04, 1), fixed_decimals(1203.37, 1)
    ('0.0', '1203.4')
    """
    text = f"{value:.{decimals}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def short(value: float) -> str:
    """Write an error with four significant digits.

    >>> short(5.26135), short(86.0), short(12345.6), short(math.nan)
    ('5.261', '86', '12346', 'not known')
    """
    if math.isnan(value):
        return NOT_KNOWN
    return fixed_decimals(value, 0) if abs(value) >= 1000 else f"{value:.4g}"


def for_spreadsheets(text: str) -> str:
    """Escape a text for people's files: no spreadsheet computes it, and all of it is seen.

    One that begins like a formula gets an apostrophe, and what is not seen stands by its number.

    Source: OWASP, CSV Injection.

    >>> for_spreadsheets("=HYPERLINK(1)"), for_spreadsheets("eye"), for_spreadsheets("-5 to 0")
    ("'=HYPERLINK(1)", 'eye', "'-5 to 0")
    >>> for_spreadsheets("a\\u202eb")
    'a\\\\u202eb'
    """
    return printable_fields(f"'{text}" if FORMULA.match(text) else text)


def plain(value: object) -> str:
    """Write one value in full precision: ISO dates, lower-case booleans, shortest float.

    >>> plain(True), plain(0.1), plain(dt.date(2024, 2, 1)), plain("x"), plain([1, None])
    ('true', '0.1', '2024-02-01', 'x', '[1, NULL]')
    >>> plain(math.nan)
    'NaN'
    """
    match value:
        case bool():
            return "true" if value else "false"
        case float() if math.isnan(value):
            return "NaN"
        case dt.date() | dt.time():
            return value.isoformat()
        case list():
            return f"[{', '.join('NULL' if each is None else plain(each) for each in value)}]"
        case Fraction():
            return plain(value.numerator if value.denominator == 1 else float(value))
        case _:
            return str(value)


def column_texts(
    values: Sequence[object], stddev: Sequence[float | None] | None, null: str = "NULL"
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The cells of a column as text, and their standard errors; None where there are none.

    Noisy numbers are rounded in view of the least error of the column. ``stddev`` are errors as
    ``Numbers.errors`` tells them: one that is NaN is not known.

    >>> column_texts([12.345, None], [1.41, None])
    (('12.3', 'NULL'), ('1.4', ''))
    >>> column_texts([72.5], [math.nan])
    (('72.5',), ('not known',))
    >>> column_texts([10603.712396, 9.5], None)[0]
    ('10603.71', '9.5')
    """
    if stddev is None or all(each is None for each in stddev):
        return _exact_cells(values, null), None
    if not any(0 < each < math.inf for each in stddev if each is not None):
        return _exact_cells(values, null), tuple(error_text(each, 0) for each in stddev)
    decimals = decimals_for(stddev)
    whole = all(float(str(v)).is_integer() for v in values if isinstance(v, int | float))
    places = 0 if whole else decimals
    cells = tuple(_noisy(v, s, places, null) for v, s in zip(values, stddev, strict=True))
    return cells, tuple(error_text(each, decimals) for each in stddev)


def error_text(stddev: float | None, decimals: int) -> str:
    """Write a standard error with a fixed number of decimals.

    >>> error_text(1.414, 1), error_text(math.nan, 1), error_text(None, 1)
    ('1.4', 'not known', '')
    """
    if stddev is None:
        return ""
    return NOT_KNOWN if math.isnan(stddev) else fixed_decimals(stddev, decimals)


def _exact_cells(values: Sequence[object], null: str) -> tuple[str, ...]:
    """Write values without noise: text escaped, fractions with seven significant digits."""
    sizes = [abs(v) for v in values if isinstance(v, float) and math.isfinite(v)]
    decimals = max(0, 6 - math.floor(math.log10(max(1.0, *sizes)))) if sizes else 0
    return tuple(
        null
        if value is None
        else fixed_decimals(value, decimals).rstrip("0").rstrip(".")
        if isinstance(value, float) and decimals and math.isfinite(value)
        else printable(plain(value))
        for value in values
    )


def _noisy(value: object, stddev: float | None, decimals: int, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, float) and stddev is not None:
        return fixed_decimals(value, decimals)
    return printable(plain(value))
