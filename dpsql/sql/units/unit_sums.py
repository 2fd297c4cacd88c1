"""The declaration of the sum of one privacy unit's values, or of their mean."""

from __future__ import annotations

import itertools
from decimal import Decimal
from fractions import Fraction

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import BoundedBins, DecimalRange, IntegerRange
from dpsql.errors import ProgrammingError, Span
from dpsql.records import replace
from dpsql.relation.unit_local import Summing

MOST_WHOLE = 10_000
"""Cells that a sum gets at most; a wider one is a measure with bounds."""


def summed_column(column: Column, most: int, kind: Summing = "sum") -> Column:
    """The column of sums of at most so many values of a column, or of means; it may be NULL."""
    low, high = column.number_bounds or (0.0, 0.0)
    low, high = min(low, low * most), max(high, high * most)
    if kind in ("sum", "distinct_sum") and column.type == "integer" and high - low < MOST_WHOLE:
        return Column("", "integer", IntegerRange(int(low), int(high)), null=True)
    bounds = Fraction(low), Fraction(high)
    if kind in ("sum", "distinct_sum"):
        decimals = _decimals_between(column, low, high)
        if decimals is not None:
            return Column("", "decimal", decimals, null=True)
    bins = _bins_between(column, *bounds)
    whole = bins is None and kind in ("sum", "distinct_sum") and column.type == "integer"
    return Column("", "integer" if whole else "number", bins, bounds, null=True)


def _bins_between(column: Column, low: Fraction, high: Fraction) -> BoundedBins | None:
    """Bins as wide as those of a column, where these are of one width and not too many."""
    edges = column.domain.edges if isinstance(column.domain, BoundedBins) else ()
    widths = {after - before for before, after in itertools.pairwise(edges)}
    width = widths.pop() if len(widths) == 1 else None
    if width is None or low % width or high % width or (high - low) / width > MOST_WHOLE:
        return None
    return BoundedBins(tuple(low + k * width for k in range(int((high - low) / width) + 1)))


def _decimals_between(column: Column, low: float, high: float) -> DecimalRange | None:
    """Decimals as far apart as those of a column from a multiple of that, if not too many."""
    domain = column.domain
    if not isinstance(domain, DecimalRange):
        return None
    first, last = (Decimal(repr(bound)) for bound in (low, high))
    if domain.lo % domain.step or first % domain.step or last % domain.step:
        return None
    count = int((last - first) / domain.step) + 1
    return DecimalRange(first, domain.step, count) if count <= MOST_WHOLE else None


def clipped_to(column: Column, bounds: tuple[float, float] | None, span: Span) -> Column:
    """A declaration with narrower bounds; values beyond them are taken for the nearest one."""
    if bounds is None:
        return column
    low, high = bounds
    least, most = column.number_bounds or bounds
    least, most = min(max(least, low), high), max(min(most, high), low)
    if isinstance(column.domain, IntegerRange) and low.is_integer() and high.is_integer():
        return replace(column, domain=IntegerRange(int(least), int(most)))
    if least == most:
        raise ProgrammingError(
            "E_DEGENERATE_BOUNDS",
            f"what a privacy unit adds is never between {low:g} and {high:g}",
            hint="bounds within the declared ones",
            span=span,
        )
    decimals = _decimals_between(column, least, most)
    if decimals is not None:
        return replace(column, domain=decimals)
    narrow = (Fraction(least), Fraction(most))
    return replace(column, type="number", domain=None, bounds=narrow)
