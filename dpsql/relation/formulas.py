"""Columns that are worked out from numbers of the same row: sums of products.

Guarantee: what is worked out for a row follows from the row alone, so that a row with one more
column is a row of the same unit, and units have as many rows as before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NoReturn

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins
from dpsql.errors import ProgrammingError, printable
from dpsql.relation.unit_local import FormulaRows, Multiple

MOST_TERMS = 32
"""Products of one formula."""
LARGEST = 2**52
"""Bound below which numbers are, so that whole numbers stay whole."""
NUMBERS = ("integer", "number", "decimal")


def is_number(column: Column | None) -> bool:
    """True if the values of a column are numbers with least and largest ones."""
    if column is None or column.other is not None or column.type not in NUMBERS:
        return False
    return column.number_bounds is not None


def check_formula(formula: FormulaRows, columns: Mapping[str, Column]) -> None:
    """Refuse a formula over other columns than numbers. Raises: ProgrammingError (E_JOIN)."""
    for name in formula.of:
        if not is_number(columns.get(name)):
            hint = "columns of numbers, with a domain or bounds"
            _refuse(f"calculating with {printable(name)!r}", hint)
    if not {name for name, _ in formula.filled} <= {*formula.of}:
        _refuse("a number in the place of NULL of another column", "columns of the formula")
    if not 0 < len(formula.terms) <= MOST_TERMS:
        _refuse(f"a formula of {len(formula.terms)} products", f"at most {MOST_TERMS}")
    made = formula.column
    if made.type not in NUMBERS or not (made.bounds is not None or isinstance(made.domain, Bins)):
        _refuse(f"{printable(made.name)!r} as {made.type}", "a number with bounds or bins")


def _refuse(what: str, hint: str) -> NoReturn:
    raise ProgrammingError("E_JOIN", f"{what} is not possible", hint=hint)


def formula_column(
    terms: Sequence[Multiple],
    columns: Mapping[str, Column],
    filled: Mapping[str, Fraction] | None = None,
) -> Column | None:
    """The declaration of a sum of products: what it can be, by what its columns can be.

    None where numbers would be too large.

    Args:
        terms: products of columns with exact factors, to be added up.
        columns: declarations by name; a measure reaches from its lower to its upper bound.
        filled: numbers that stand for NULL in some columns, which are then never NULL.
    """
    low = high = Fraction(0)
    null, whole = False, True
    for term in terms:
        ends = (term.times, term.times)
        whole &= term.times.denominator == 1
        for name in term.columns:
            column = columns[name]
            reach = [Fraction(end) for end in column.number_bounds or (0.0, 0.0)]
            reach += [filled[name]] if filled and name in filled else []
            found = [a * b for a, b in itertools.product(ends, reach)]
            ends = min(found), max(found)
            null |= column.null and not (filled and name in filled)
            whole &= column.type == "integer" and reach[-1].denominator == 1
        low, high = low + ends[0], high + ends[1]
    if max(abs(low), abs(high)) >= LARGEST or not math.isfinite(float(high - low)):
        return None
    high = high if high > low else low + 1
    return Column("", "integer" if whole else "number", None, (low, high), null=null)
