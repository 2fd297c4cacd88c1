"""Declared columns to SQL: every row gets one small integer per column, and nothing can raise.

The generated SQL holds quoted identifiers and literals of the catalog only, never text of a query.
Every expression is total on its own (``TRY_CAST``, clipping before arithmetic), because SQL does
not promise in which order the branches of a CASE are evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins, IntegerRange, Periods, Values
from dpsql.privacy.vault.base import Codes
from dpsql.privacy.vault.source import literal

Floats = npt.NDArray[np.float64]

FAMILIES = {
    "integer": (
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    ),
    "float": ("FLOAT", "DOUBLE"),
    "decimal": ("DECIMAL",),
    "boolean": ("BOOLEAN",),
    "text": ("VARCHAR", "ENUM"),
    "date": ("DATE",),
    "timestamp": (
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
        "TIMESTAMP WITH TIME ZONE",
    ),
    "other": ("UUID", "BLOB", "TIME", "BIT", "BIGNUM"),
}
ACCEPTED = {
    "integer": ("integer", "float", "decimal"),
    "number": ("integer", "float", "decimal"),
    "text": ("text",),
    "boolean": ("boolean", "integer"),
    "date": ("date", "timestamp"),
}
LAST_DAY = "DATE '9999-12-31'"


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one column becomes a cell number.

    ``value`` and ``missing`` are expressions over the raw column. ``cell`` is one over the column
    ``v<i>`` that holds the value: NULL means "no cell of the domain". ``texts`` become the ENUM
    type ``e<i>``, exact and without duplicates. With ``edges``, ``cell`` is not yet the number of
    the cell but the number to look up among them, see :func:`find_bins`.
    """

    value: str
    missing: str
    cell: str
    texts: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()


def family(duckdb_type: str) -> str | None:
    """Return the family of a DuckDB type, or None for nested and unknown types.

    >>> family("DECIMAL(18,3)"), family("ENUM('a', 'b')"), family("INTEGER[]")
    ('decimal', 'text', None)
    """
    if duckdb_type.endswith("]"):
        return None
    name = duckdb_type.partition("(")[0].strip().upper()
    return next((key for key, names in FAMILIES.items() if name in names), None)


def encode(column: Column, raw: str, kind: str, index: int) -> Encoding:
    """Encode a column with a domain; ``raw`` is its quoted name and ``kind`` its type family."""
    value, missing = _value(column, raw, kind)
    v = f"v{index}"
    match column.domain:
        case IntegerRange(lo, hi):
            cell = f"CASE WHEN {v} BETWEEN {lo} AND {hi} THEN {_clip(v, lo, hi)} - {lo} END"
            return Encoding(value, missing, cell)
        case Bins(edges):
            lo_edge, hi_edge = (_double(float(edge)) for edge in (edges[0], edges[-1]))
            cell = f"CASE WHEN {v} BETWEEN {lo_edge} AND {hi_edge} THEN {v} END"
            return Encoding(value, missing, cell, edges=tuple(map(float, edges[:-1])))
        case Periods() as periods:
            return Encoding(value, missing, _period_cell(periods, v))
        case Values(values):
            texts = tuple(map(str, values))
            if column.type == "boolean":
                texts = tuple(map(str.lower, texts))
            cell = f"enum_code(TRY_CAST({v} AS e{index}))"
            return Encoding(value, missing, cell, texts)
        case None:
            raise ValueError("a column without a domain has no cells")


def find_bins(numbers: Floats, edges: Sequence[float]) -> Codes:
    """Return the bin of numbers not below the first edge; infinity, for NULL, comes after the last.

    >>> find_bins(np.array([0.0, 0.99, 1.0, 7.0, np.inf]), (0.0, 1.0)).tolist()
    [0, 0, 1, 1, 2]
    """
    cells = np.searchsorted(np.array([*edges, np.inf]), numbers, side="right") - 1
    return cells.astype(np.uint32)


def code_sql(column: Column, index: int, encoding: Encoding) -> str:
    """Return the final code: the domain's cells, then ``other``, then NULL; NULL if dropped."""
    if encoding.edges:
        null = "CAST('inf' AS DOUBLE)" if column.null else "NULL"
        return f"CASE WHEN m{index} THEN {null} ELSE {encoding.cell} END"
    other = "NULL" if column.other is None else str(column.size - column.null - 1)
    null = str(column.size - 1) if column.null else "NULL"
    cell = f"COALESCE({encoding.cell}, {other})"
    return f"TRY_CAST(CASE WHEN m{index} THEN {null} ELSE {cell} END AS {code_type(column.size)})"


def code_type(size: int) -> str:
    """Return the narrowest unsigned type for ``size`` codes.

    >>> code_type(256), code_type(257)
    ('UTINYINT', 'USMALLINT')
    """
    return "UTINYINT" if size <= 1 << 8 else "USMALLINT" if size <= 1 << 16 else "UINTEGER"


def missing_sql(raw: str, kind: str) -> str:
    """Say when a raw value is missing: NULL, or NaN in a floating-point column."""
    return f"({raw} IS NULL OR isnan({raw}))" if kind == "float" else f"({raw} IS NULL)"


def measure_sql(column: Column, raw: str, kind: str) -> str:
    """Return the value of a measure, clipped to its bounds, as a DOUBLE.

    NaN stands for a declared NULL; NULL means that the row is outside the declared view.
    """
    if column.bounds is None:
        raise ValueError("a column without bounds is no measure")
    number, missing = _number(raw, kind)
    low, high = (_double(float(bound)) for bound in column.bounds)
    null = "CAST('nan' AS DOUBLE)" if column.null else "NULL"
    known = f"CASE WHEN {number} IS NOT NULL THEN {_clip(number, low, high)} END"
    return f"CASE WHEN {missing} THEN {null} ELSE {known} END"


def select_codes(
    columns: Sequence[Column],
    encodings: Sequence[Encoding],
    measures: Sequence[str],
    relation: str,
    extra: Sequence[str],
) -> str:
    """Return a SELECT of the declared view: a code per column with cells, c0, c1, ..., then the
    ``measures`` q0, q1, ..., then ``extra`` expressions over the raw columns, x0, x1, ....
    """
    inner = [f"{each.value} AS v{i}, {each.missing} AS m{i}" for i, each in enumerate(encodings)]
    inner += [f"{each} AS q{i}" for i, each in enumerate(measures)]
    inner += [f"{each} AS x{i}" for i, each in enumerate(extra)]
    codes = [f"{code_sql(each, i, encodings[i])} AS c{i}" for i, each in enumerate(columns)]
    codes += [f"q{i}" for i in range(len(measures))]
    codes += [f"x{i}" for i in range(len(extra))]
    declared = [f"c{i}" for i in range(len(columns))] + [f"q{i}" for i in range(len(measures))]
    kept = " AND ".join(f"{name} IS NOT NULL" for name in declared) or "TRUE"
    layer = f"SELECT {', '.join(inner) or '0 AS v'} FROM {relation}"
    layer = f"SELECT {', '.join(codes) or '0 AS c'} FROM ({layer})"
    return f"SELECT * FROM ({layer}) WHERE {kept}"


def _number(raw: str, kind: str) -> tuple[str, str]:
    """Return a raw column as a DOUBLE, and when it is missing; text that is no number is not."""
    number = f"TRY_CAST({raw} AS DOUBLE)"
    if kind == "text":
        return number, f"({raw} IS NULL OR COALESCE(isnan({number}), FALSE))"
    return number, missing_sql(raw, kind)


def _value(column: Column, raw: str, kind: str) -> tuple[str, str]:
    """Return the value of a column in the type of its domain, and when it is missing."""
    missing = missing_sql(raw, kind)
    match column.type:
        case "text":
            return f"CAST({raw} AS VARCHAR)", missing
        case "boolean" if kind == "integer":
            return (
                f"CASE TRY_CAST({raw} AS BIGINT) WHEN 0 THEN 'false' WHEN 1 THEN 'true' END",
                missing,
            )
        case "boolean":
            return f"CAST(TRY_CAST({raw} AS BOOLEAN) AS VARCHAR)", missing
        case "date":
            day = f"TRY_CAST({raw} AS DATE)"
            return f"CASE WHEN isfinite({day}) THEN {day} END", missing
    number, missing = _number(raw, kind)
    if isinstance(column.domain, Bins):
        return number, missing
    if kind == "integer":
        whole = f"TRY_CAST({raw} AS BIGINT)"
    else:
        whole = f"TRY_CAST(CASE WHEN {number} = floor({number}) THEN {number} END AS BIGINT)"
    return (f"CAST({whole} AS VARCHAR)" if isinstance(column.domain, Values) else whole), missing


def _clip(value: str, lo: object, hi: object) -> str:
    return f"LEAST(GREATEST({value}, {lo}), {hi})"


def _double(value: float) -> str:
    return f"CAST({literal(repr(value))} AS DOUBLE)"


def _period_cell(periods: Periods, v: str) -> str:
    start = f"DATE {literal(periods.start.isoformat())}"
    day = _clip(v, start, LAST_DAY)
    months = f"(year({day}) - {periods.start.year}) * 12 + month({day}) - {periods.start.month}"
    days = f"date_diff('day', {start}, {day})"
    number = {
        "day": days,
        "week": f"({days}) // 7",
        "month": months,
        "quarter": f"({months}) // 3",
        "year": f"({months}) // 12",
    }[periods.unit]
    inside = f"{v} BETWEEN {start} AND {LAST_DAY} AND {number} < {periods.count}"
    return f"CASE WHEN {inside} THEN {number} END"
