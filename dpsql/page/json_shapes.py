"""Shapes sent to a browser: results, forecasts, errors and charges as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dpsql.answer.result import Result
from dpsql.dbapi.connection import BudgetStatus, LedgerEntry
from dpsql.engine.explanation import Explanation
from dpsql.errors import Error, Span, decimal_text
from dpsql.server.sqlstates import told_of
from dpsql.strategy.noise_law import law
from dpsql.vectors import rows_of

Shape = dict[str, Any]

MOST_ROWS = 2000
"""Rows of a result that are sent to be shown; a file of it has all."""
EXACT = 1 << 53
"""Whole numbers up to here are numbers in a browser; larger ones are sent as text."""


def shape_result(result: Result) -> Shape:
    """A result: columns, the first rows, their standard errors, and what it cost."""
    noise = None if result.cost is None else result.cost.noise
    shown = [each[:MOST_ROWS] for each in result.vectors]
    return {
        "columns": [
            {"name": name, "type": kind, "noisy": errors is not None}
            for name, kind, errors in zip(result.columns, result.types, result.stddev, strict=True)
        ],
        "rows": [[shape_value(each) for each in row] for row in rows_of(shown)],
        "stddev": [
            None if errors is None else [shape_value(each) for each in errors[:MOST_ROWS]]
            for errors in result.errors
        ],
        "count": result.count,
        "interval": law(noise).interval if noise is not None else 0.0,
        "kind": result.kind,
        "message": result.message,
        "notes": list(result.notes),
        "sql": result.sql.strip(),
        "cost": None if result.cost is None else str(result.cost),
        "free": result.cost is None or result.cost.free,
        "entry": None if result.receipt is None else result.receipt.seq,
        "head": None if result.receipt is None else result.receipt.head,
        "biased": result.biased,
    }


def shape_value(value: object) -> Any:
    """One value: a number, a boolean or null where JSON has it, text otherwise.

    >>> shape_value(3), shape_value(2**60), shape_value(float("nan"))
    (3, '1152921504606846976', 'NaN')
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("nan", "NaN")
    return str(value)


def shape_forecast(found: Explanation) -> Shape:
    """A forecast: what it would cost, and the errors to expect."""
    return {
        "epsilon": decimal_text(found.epsilon),
        "price": "0" if found.free else str(found.epsilon),
        "noise": found.noise,
        "method": found.method,
        "rmse": shape_value(found.rmse) if math.isfinite(found.rmse) else None,
        "case": found.case,
        "free": found.free,
        "entry": found.entry,
        "mixed": found.mixed,
        "affordable": found.free or found.epsilon <= found.remaining,
        "remaining": decimal_text(found.remaining),
        "statements": [
            {
                "sql": " ".join(each.sql.split()),
                "rows": each.rows,
                "stddev": [
                    {
                        "column": column.name,
                        "mean": shape_value(column.rmse),
                        "largest": shape_value(column.largest),
                        "plain": shape_value(column.plain),
                        "alone": shape_value(column.alone),
                        "lower": shape_value(column.lower),
                    }
                    for column in each.errors
                ],
                "derived": list(each.derived),
                "ratios": {name: shape_value(ratio) for name, ratio in each.ratios},
            }
            for each in found.statements
        ],
        "lines": [list(row) for row in found.rows()],
    }


def shape_error(error: Error, text: str) -> Shape:
    """An error; its place is counted in UTF-16 units of the script, as browsers count."""
    message, hint = told_of(error)
    found: Shape = {"code": error.code, "message": message, "hint": hint}
    span = error.span
    if span is not None:
        place = _place(span, text)
        found |= {"start": place[0], "end": place[1]} if place else {"detail": span.caret()}
    return found


def _place(span: Span, text: str) -> tuple[int, int] | None:
    if text[span.start : span.end] != span.text[span.start : span.end]:
        return None
    return _units(text[: span.start]), _units(text[: span.end])


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def shape_budget(status: BudgetStatus, askable: tuple[Any, Any], analyst: str | None) -> Shape:
    """Shape the rest of a budget, and what is left for one more request of this analyst.

    Args:
        status: sums of the ledger.
        askable: largest epsilon of one more request, and the total that it is a part of.
        analyst: who asks, None where the catalog declares no analysts.
    """
    return {
        "total": decimal_text(askable[1]),
        "remaining": decimal_text(askable[0]),
        "part": float(askable[0] / askable[1]) if askable[1] else 0.0,
        "delta": f"{float(status.total_delta):g}",
        "analyst": analyst,
    }


def shape_entry(entry: LedgerEntry) -> Shape:
    """A charge, or a curator's act."""
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "noise": entry.noise,
        "epsilon": _decimal(entry.epsilon),
        "state": entry.state,
        "sql": entry.sql,
        "within": entry.within.split("\n") if entry.within else [],
        "hash": entry.hash,
    }


def _decimal(text: str) -> str:
    """An amount of the ledger as a decimal number; what is none is left as it is."""
    try:
        return decimal_text(Fraction(text))
    except ValueError:
        return text


def shape_analysts(status: BudgetStatus, entries: Sequence[LedgerEntry]) -> list[Shape]:
    """The budgets inside the whole one, and how many requests were charged to each."""
    found = []
    for name, inner in sorted(status.nested.items()):
        kind, _, whose = name.partition(":")
        charged = [each for each in entries if name in each.within.split("\n")]
        found.append(
            {
                "kind": kind,
                "name": whose,
                "total": decimal_text(inner.total_epsilon),
                "remaining": decimal_text(inner.remaining_epsilon),
                "part": float(inner.remaining_epsilon / inner.total_epsilon),
                "requests": len(charged),
                "last": charged[-1].at if charged else "",
            }
        )
    return found
