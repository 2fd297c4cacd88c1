"""Public facts as grids and lines: tables, columns, the budget and the ledger."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.ui.grid import Grid
from dpsql.ui.numbers import floor_text, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.catalog import Catalog, Column, Table
    from dpsql.dbapi import BudgetStatus, LedgerEntry


def tables_grid(catalog: Catalog) -> Grid:
    """List the tables: name, columns that can be queried, and whom the guarantee protects."""
    rows: list[tuple[object, ...]] = [
        (table.name, len(table.columns), _protects(table)) for table in catalog.tables.values()
    ]
    return Grid.exact(("table", "columns", "protects"), ("text", "integer", "text"), rows)


def _protects(table: Table) -> str:
    if table.public:
        return "nothing: public"
    if table.unit.column is None:
        return "every row"
    return f"every {table.unit.column}, up to {table.unit.max_rows} rows each"


def schema_grid(table: Table) -> Grid:
    """List the declared columns of a table: type, values or bounds, number of cells."""
    names = ("column", "type", "values", "cells")
    rows: list[tuple[object, ...]] = [
        (column.name, column.type, describe_values(column), column.size or None)
        for column in table.columns.values()
    ]
    return Grid.exact(names, ("text", "text", "text", "integer"), rows)


def describe_values(column: Column) -> str:
    """Describe the declared domain and bounds of a column in a few words."""
    parts = []
    if column.domain is not None:
        extra = (column.other is not None) + column.null
        cells = column.cells[: column.size - extra]
        parts.append(_describe_cells(cells))
        parts += [f"other as {_quoted(column.other)}"] if column.other is not None else []
        parts += ["NULL"] if column.null else []
    if column.bounds is not None:
        low, high = column.bounds
        parts.append(f"bounds {plain(low)} to {plain(high)}")
    return "; ".join(parts) or "not declared: cannot be queried"


def _describe_cells(cells: Sequence[object]) -> str:
    if all(isinstance(cell, int) and not isinstance(cell, bool) for cell in cells):
        numbers = [int(str(cell)) for cell in cells]
        if numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:
            return f"{numbers[0]} to {numbers[-1]}"
    shown = [_quoted(cell) for cell in cells]
    if len(shown) > 5:
        shown = [*shown[:3], "…", shown[-1]]
    return ", ".join(shown)


def _quoted(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else plain(value)


def budget_lines(budget: BudgetStatus, unicode: bool = True) -> list[str]:
    """Describe the budget: total, remaining, what a Gaussian request may still ask, requests."""
    total = f"total      ε {floor_text(budget.total_epsilon)}"
    if budget.total_delta:
        total += f", δ {floor_text(budget.total_delta)}"
    bar = gauge(budget.remaining_epsilon, budget.total_epsilon, unicode=unicode)
    lines = [total, f"remaining  ε {floor_text(budget.remaining_epsilon)}  {bar}"]
    if budget.remaining_gaussian is not None:
        lines.append(f"           ε {floor_text(budget.remaining_gaussian)} with Gaussian noise")
    lines.append(f"requests   {budget.requests}")
    lines.append(f"ledger     {budget.ledger_id}, entry {budget.seq}")
    return lines


def ledger_grid(entries: Sequence[LedgerEntry]) -> Grid:
    """List ledger entries, oldest first."""
    names = ("seq", "time", "epsilon", "delta", "noise", "plan")
    types = ("integer", "text", "text", "text", "text", "text")
    rows: list[tuple[object, ...]] = [
        (e.seq, e.time, floor_text(e.epsilon, 12), floor_text(e.delta, 12), e.noise, e.plan[:12])
        for e in entries
    ]
    return Grid.exact(names, types, rows)


def gauge(remaining: Fraction, total: Fraction, width: int = 20, unicode: bool = True) -> str:
    """Draw how much of a budget is left.

    >>> gauge(Fraction(3, 4), Fraction(1), 8)
    '██████░░'
    """
    full = int(width * min(Fraction(1), remaining / total)) if total > 0 else 0
    left, spent = "█░" if unicode else "#."
    return left * full + spent * (width - full)
