"""Columns whose cells show how far their values are apart: days, and whole numbers."""

from __future__ import annotations

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange, Periods

MOST_APART = 1 << 20
"""Cells of a difference at most: two columns of so many cells take memory in their number."""


def are_comparable(one: Column, other: Column) -> bool:
    """True if the cells of two columns show which value is greater: both are days, or integers."""
    kinds = {_scale(column) for column in (one, other)}
    return None not in kinds and len(kinds) == 1


def difference_of(name: str, one: Column, other: Column) -> Column | None:
    """The column of by how much values of one column are above those of another, if it is known.

    Args:
        name: of the column that is returned.
        one, other: integers, or days or instants of one period; NULL in either is NULL of the
            difference.

    Returns: None where they cannot be compared, or are too far apart for a column of cells.

    >>> years = Column("born", "integer", IntegerRange(1900, 2000))
    >>> difference_of("x", Column("died", "integer", IntegerRange(1950, 2020)), years).domain
    IntegerRange(lo=-50, hi=120)
    """
    if not are_comparable(one, other):
        return None
    (low, high), (least, most) = _ends(one), _ends(other)
    found = IntegerRange(low - most, high - least)
    if found.size > MOST_APART:
        return None
    return Column(name, "integer", found, null=one.null or other.null)


def _scale(column: Column) -> str | None:
    if column.other is not None:
        return None
    if type(column.domain) is Periods and column.domain.unit == "day":
        return "day"
    return "integer" if isinstance(column.domain, IntegerRange) else None


def _ends(column: Column) -> tuple[int, int]:
    """The least and the greatest value; days since the first one that there is."""
    domain = column.domain
    if isinstance(domain, IntegerRange):
        return domain.lo, domain.hi
    assert isinstance(domain, Periods)
    first = domain.start.toordinal()
    return first, first + domain.count - 1
