"""Declared columns to SQL that only fetches: one total expression of one row each, and no WHERE.

A column arrives as whole numbers with two sentinels, or as doubles whose NaN is "missing". What
they mean is decided in :mod:`dpsql.privacy.vault.encode`, never by an SQL engine.

The SQL holds quoted identifiers and indices only, never text of a query. Nothing in it can raise
for any value: conversions are tried, and what cannot be converted is ``UNKNOWN``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins, Values
from dpsql.privacy.vault.source import SHORT, family

MISSING = -(1 << 63)
UNKNOWN = MISSING + 1
"""A value that is no number, no date or no listed text. Declared numbers are far from both."""
FIRST_DAY = "DATE '1970-01-01'"
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Fetch:
    """How one column is fetched.

    ``value`` gives whole numbers (days, if ``per_day`` is 1, cells of ``texts``, 0 and 1) or
    doubles. ``state`` is needed beside doubles that come from text: 0 where there is a number, 1
    where the text is missing, 2 where it is no number. ``texts`` become the ENUM type ``e<i>``.
    """

    value: str
    whole: bool
    state: str | None = None
    texts: tuple[str, ...] = ()
    per_day: int = 1


@dataclass(frozen=True, slots=True)
class UnitIdentity:
    """How the privacy unit of a row is fetched: its value, and whether there is one.

    ``dtype`` is float64 for doubles, int64 for whole numbers and instants, object for text.
    """

    value: str
    known: str
    dtype: type


def fetch_column(column: Column, raw: str, stored: str, index: int) -> Fetch:
    """Fetch a declared column; ``raw`` is its quoted name and ``stored`` its type."""
    kind = family(stored)
    match column.type:
        case "text":
            return _text(column, raw, index)
        case "boolean" if kind != "integer":
            return Fetch(whole_sql(raw, f"CAST(TRY_CAST({raw} AS BOOLEAN) AS BIGINT)"), True)
        case "date":
            instant, per_day = _instant(raw, stored)
            return Fetch(whole_sql(raw, instant), True, per_day=per_day)
    if kind == "integer" and column.bounds is None and not isinstance(column.domain, Bins):
        return Fetch(whole_sql(raw, f"TRY_CAST({raw} AS BIGINT)"), True)
    number = f"TRY_CAST({raw} AS DOUBLE)"
    state = f"CASE WHEN {raw} IS NULL THEN 1 WHEN {number} IS NULL THEN 2 ELSE 0 END"
    return Fetch(number, False, f"CAST({state} AS UTINYINT)" if kind == "text" else None)


def fetch_unit(raw: str, stored: str, valid: str) -> UnitIdentity:
    """Fetch the privacy unit; ``valid`` says when a text is what the file holds."""
    kind, known = family(stored), f"{raw} IS NOT NULL"
    if kind == "float":
        return UnitIdentity(f"COALESCE(CAST({raw} AS DOUBLE), 0)", known, np.float64)
    if kind in ("date", "timestamp"):
        instant, _ = _instant(raw, stored)
        return UnitIdentity(f"COALESCE({instant}, 0)", f"{instant} IS NOT NULL", np.int64)
    if kind == "boolean" or stored in SHORT:
        return UnitIdentity(f"COALESCE(TRY_CAST({raw} AS BIGINT), 0)", known, np.int64)
    text = f"hex({raw})" if stored == "BLOB" else f"TRY_CAST({raw} AS VARCHAR)"
    return UnitIdentity(f"COALESCE({text}, '')", f"({text} IS NOT NULL AND {valid})", object)


def whole_sql(raw: str, value: str) -> str:
    """Return whole numbers without NULL: a missing raw value and an unknown one are told apart."""
    known = f"GREATEST(COALESCE({value}, {_least(1)}), {_least(1)})"
    return f"CASE WHEN {raw} IS NULL THEN {_least(0)} ELSE {known} END"


def _least(more: int) -> str:
    return f"CAST('{MISSING + more}' AS BIGINT)"


def _text(column: Column, raw: str, index: int) -> Fetch:
    if not isinstance(column.domain, Values):
        raise ValueError("a column of text has a list of values")
    code = f"CAST(enum_code(TRY_CAST(CAST({raw} AS VARCHAR) AS e{index})) AS BIGINT)"
    return Fetch(whole_sql(raw, code), True, texts=tuple(map(str, column.domain.values)))


def _instant(raw: str, stored: str) -> tuple[str, int]:
    """Return days, or parts of days, since 1970 in UTC, and how many make a day."""
    if family(stored) != "timestamp":
        return f"TRY(TRY_CAST({raw} AS DATE) - {FIRST_DAY})", 1
    if stored == "TIMESTAMP_NS":
        return f"TRY(epoch_ns({raw}))", DAY * 10**9
    return f"TRY(epoch_us({raw}))", DAY * 10**6
