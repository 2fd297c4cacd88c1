"""The budget and the ledger, as lines and as a grid."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.dbapi.show import charged, one_line
from dpsql.errors import printable
from dpsql.ui.grid import Grid, floor_text

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection


def budget_lines(connection: Connection, unicode: bool = True) -> list[str]:
    """Describe the budget: total, remaining, what a Gaussian request may still ask, requests."""
    budget = connection.budget
    total = f"total      ε {floor_text(budget.total_epsilon)}"
    if budget.total_delta:
        total += f", δ {floor_text(budget.total_delta)}"
    bar = gauge(budget.remaining_epsilon, budget.total_epsilon, unicode=unicode)
    lines = [total, f"remaining  ε {floor_text(budget.remaining_epsilon)}  {bar}"]
    if budget.total_delta:
        gaussian = floor_text(budget.remaining_gaussian_epsilon)
        lines.append(f"           ε {gaussian} for one request with Gaussian noise")
    for name, inner in budget.nested.items():
        left, whole = floor_text(inner.remaining_epsilon), floor_text(inner.total_epsilon)
        lines.append(f"           ε {left} of {whole} for {printable(name.replace(':', ' ', 1))}")
    lines.append(f"requests   {budget.entries}")
    lines.append(f"ledger     {budget.ledger_id}, entry {budget.seq}")
    return lines


def ledger_grid(connection: Connection) -> Grid:
    """List ledger entries, oldest first."""
    names = (
        "seq",
        "time",
        "kind",
        "noise",
        "epsilon",
        "rho",
        "state",
        "plan",
        "charged also to",
        "statements",
        "sql",
    )
    rows: list[tuple[object, ...]] = [
        (
            e.seq,
            e.at,
            e.kind,
            e.noise,
            e.epsilon,
            e.rho,
            e.state,
            e.plan_hash[:12],
            charged(e.within),
            e.statements,
            one_line(e.sql),
        )
        for e in connection.entries()
    ]
    return Grid.exact(names, ("integer", *("text",) * 8, "integer", "text"), rows)


def gauge(remaining: Fraction, total: Fraction, width: int = 20, unicode: bool = True) -> str:
    """Draw how much of a budget is left.

    >>> gauge(Fraction(3, 4), Fraction(1), 8)
    '██████░░'
    """
    full = int(width * min(Fraction(1), remaining / total)) if total > 0 else 0
    left, spent = "█░" if unicode else "#."
    return left * full + spent * (width - full)
