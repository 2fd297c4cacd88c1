"""The ledger as tables: every entry, one line each for a screen, or added up by day or month."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import UsageError, decimal_text, printable
from dpsql.ui.grid import Grid

if TYPE_CHECKING:
    from dpsql.dbapi.connection import LedgerEntry
    from dpsql.dbapi.history import HistoryEntry
    from dpsql.dbapi.upgrading import UpgradedRequest

PERIODS = {"day": 10, "month": 7}
"""Characters of a time that tell a period from others."""

FULL = (
    *("seq", "time", "kind", "noise", "epsilon", "rho", "state", "plan", "charged also to"),
    *("statements", "source", "digest", "sql", "change", "note"),
)


def full_grid(moments: Sequence[HistoryEntry]) -> Grid:
    """Every entry with all that is known of it, oldest first."""
    rows = [_full_row(moment) for moment in moments]
    types = ["integer" if name in ("seq", "statements") else "text" for name in FULL]
    return Grid.of_rows(FULL, tuple(types), rows)


def _full_row(moment: HistoryEntry) -> tuple[object, ...]:
    e = moment.entry
    return (
        *(e.seq, e.at, e.act, e.noise, _decimal(e.epsilon), _decimal(e.rho), e.state),
        *(e.plan_hash[:12], _also(e), e.statements, e.source, e.digest_of_sql, one_line(e.sql)),
        *(moment.change, e.note),
    )


def json_line(moment: HistoryEntry) -> str:
    """An entry as one JSON object, for programs that collect logs; amounts are texts, exact."""
    e = moment.entry
    budgets = e.within.split("\n") if e.within else []
    analysts = [name.partition(":")[2] for name in budgets if name.startswith("analyst:")]
    told = {
        "event": "ledger",
        "entry": e.seq,
        "at": e.at,
        "kind": e.act,
        "user": analysts[0] if analysts else "",
        "budgets": budgets,
        "state": e.state,
        "noise": e.noise,
        "epsilon": e.epsilon,
        "rho": e.rho,
        "delta": str(e.delta) if e.delta else "",
        "statements": e.statements,
        "source": e.source,
        "sql": e.sql,
        "digest": e.digest_of_sql,
        "change": moment.change,
        "note": e.note,
        "plan": e.plan_hash,
        "head": e.hash,
    }
    return json.dumps({name: value for name, value in told.items() if value not in ("", [], None)})


def brief_grid(moments: Sequence[HistoryEntry]) -> Grid:
    """One line for every entry, for a screen: what it was, what it cost, what for."""
    rows = [
        (e.seq, _minute(e.at), _what(e), _decimal(e.epsilon), _also(e), about(moment))
        for moment in moments
        for e in (moment.entry,)
    ]
    names = ("entry", "time", "what", "epsilon", "also to", "about")
    return Grid.of_rows(names, ("integer", *("text",) * 5), list(rows))


def about(moment: HistoryEntry) -> str:
    """Return an entry's reason: its SQL, or the file that it came from; a change and its note."""
    e = moment.entry
    if e.kind != "debit":
        note = f'"{printable(e.note)}"' if e.note else ""
        return "; ".join(each for each in (moment.change, note) if each)
    count = f"{e.statements} statements" if (e.statements or 0) > 1 else ""
    digest = f"digest {e.digest_of_sql[:12]}" if e.digest_of_sql else ""
    head = ", ".join(each for each in (printable(e.source), count, digest) if each)
    return ": ".join(each for each in (head, one_line(e.sql)) if each)


def summed_grid(moments: Sequence[HistoryEntry], period: str, budget: str = "") -> Grid:
    """Requests and epsilons by day or month, and what a budget still admitted at the end of each.

    Epsilons are what was asked for, whatever the noise; only those of Laplace noise add up.

    Args:
        moments: entries of the ledger, in order, with what was left after each.
        period: "day" or "month", in UTC.
        budget: name of a nested budget in the ledger; empty for the whole one.
    """
    groups: dict[str, list[HistoryEntry]] = {}
    for moment in moments:
        groups.setdefault(moment.entry.at[: PERIODS[period]], []).append(moment)
    rows = []
    for key, found in groups.items():
        debits = [moment.entry for moment in found if moment.entry.kind == "debit"]
        asked = sum((Fraction(e.epsilon) for e in debits), Fraction(0))
        left = found[-1].left(budget)
        failed = sum(e.state == "failed" for e in debits)
        rows.append(
            (
                *(key, len(debits), sum(e.statements or 0 for e in debits), failed),
                *(decimal_text(asked), None if left is None else decimal_text(left)),
                sum(1 for moment in found if moment.entry.kind != "debit"),
            )
        )
    names = (period, "requests", "statements", "failed", "epsilon", "left", "acts")
    kinds = ("text", *("integer",) * 3, "text", "text", "integer")
    return Grid.of_rows(names, kinds, list(rows))


def again_grid(found: Sequence[UpgradedRequest]) -> Grid:
    """The requests of a ledger, and what would be charged for each if it were asked again."""
    rows: list[tuple[object, ...]] = []
    for each in found:
        told = "free" if each.free else f"would be charged ε {decimal_text(each.epsilon)}"
        if each.refusal is not None:
            told = f"cannot be asked: {each.refusal.message} [{each.refusal.code}]"
        places = ", ".join(map(str, each.entries))
        rows.append((places, printable(each.analyst), one_line(each.sql), one_line(told)))
    return Grid.of_rows(("entry", "analyst", "statement", "now"), ("text",) * 4, rows)


def of_analyst(moments: Sequence[HistoryEntry], analyst: str) -> tuple[HistoryEntry, ...]:
    """The entries that were charged to an analyst. Raises: UsageError (E_ANALYST) for nobody."""
    known = {
        name.removeprefix("analyst:")
        for moment in moments
        if moment.state is not None
        for name in moment.state.known
        if name.startswith("analyst:")
    }
    key = analyst.casefold()
    if key not in known:
        hint = f"analysts: {', '.join(sorted(map(printable, known)))}" if known else None
        what = f"the ledger knows no analyst {printable(analyst)!r}"
        raise UsageError("E_ANALYST", what, hint=hint)
    return tuple(m for m in moments if f"analyst:{key}" in m.entry.within.split("\n"))


def one_line(sql: str) -> str:
    """SQL in one line."""
    return printable(" ".join(sql.split()))


def _also(entry: LedgerEntry) -> str:
    names: Iterable[str] = entry.within.split("\n") if entry.within else ()
    return ", ".join(printable(name.replace(":", " ", 1)) for name in names)


def _decimal(text: str) -> str:
    """An exact fraction as a decimal of at most twelve places, rounded down."""
    return decimal_text(Fraction(text)) if text else ""


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


def _what(entry: LedgerEntry) -> str:
    names = {"released": "charged", "failed": "failed", "reserved": "pending"}
    return names[entry.state] if entry.kind == "debit" else entry.act
