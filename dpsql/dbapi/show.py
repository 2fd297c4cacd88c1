"""Public facts as results: SHOW and DESCRIBE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpsql.answer.result import Result, listing
from dpsql.answer.synthetics import Synthetic, find_synthetic
from dpsql.catalog import Catalog
from dpsql.catalog.describe import describe_table
from dpsql.catalog.view import left_out
from dpsql.engine.engine import Engine
from dpsql.engine.terms import Terms
from dpsql.errors import ProgrammingError, decimal_text, printable
from dpsql.privacy.chain import budget_text
from dpsql.privacy.curator import analyst_name, nested_name
from dpsql.privacy.ledger import Status
from dpsql.privacy.status import Nested
from dpsql.sql.parse import Statement
from dpsql.sql.qualified import find_key


def show(engine: Engine, terms: Terms, what: str, sql: str) -> Result:
    """SHOW tables, budget, ledger or a setting."""
    if what == "tables":
        rows: list[tuple[Any, ...]] = [
            (table.name, _unit_text(table.unit.column, table.unit.max_rows), len(table.columns))
            for table in engine.catalog.tables.values()
        ]
        rows += [
            (each.name, f"synthetic, from {each.table}", len(each.model.domain))
            for each in engine.models.values()
        ]
        rows += [(view.name, "view", None) for view in engine.catalog.views.values()]
        return listing(("table", "privacy_unit", "columns"), rows, sql)
    if what == "budget":
        status = engine.status()
        rows = _budget_rows(status)
        for key, table in engine.catalog.tables.items():
            inner = status.nested.get(nested_name(key))
            if inner is not None:
                rows += _nested_rows(table.name, inner, status.total_delta > 0)
        for key in [engine.analyst] if engine.analyst else engine.catalog.analysts:
            inner = status.nested[analyst_name(key)]
            rows += _nested_rows(f"analyst {key}", inner, status.total_delta > 0)
        return listing(("budget", "value"), rows, sql)
    if what == "ledger":
        rows = [
            (e.seq, e.at, e.kind, e.noise, e.epsilon, e.state, charged(e.within), one_line(e.sql))
            for e in engine.entries()
        ]
        names = ("seq", "time", "kind", "noise", "epsilon", "state", "charged also to", "sql")
        return listing(names, rows, sql)
    return listing((what,), [(terms.display()[what],)], sql)


def charged(within: str) -> str:
    """Write the names of the budgets inside the whole one that an entry is charged to.

    >>> charged("table:adult\\nanalyst:ana")
    'table adult, analyst ana'
    """
    return ", ".join(map(budget_text, within.split("\n"))) if within else ""


def one_line(sql: str) -> str:
    """Write SQL in one line.

    >>> one_line("SELECT 1;\\n  SELECT 2")
    'SELECT 1; SELECT 2'
    """
    return printable(" ".join(sql.split()))


def _unit_text(column: str | None, max_rows: int) -> str:
    return "row" if column is None else f"{column}, at most {max_rows} rows"


def _budget_rows(status: Status) -> list[tuple[Any, ...]]:
    rows = [
        ("total epsilon", decimal_text(status.total_epsilon)),
        ("total delta", f"{float(status.total_delta):g}"),
        ("largest epsilon of one more request", decimal_text(status.remaining_epsilon)),
    ]
    if status.total_delta > 0:
        rows.append(
            (
                "largest epsilon of one more Gaussian request",
                decimal_text(status.remaining_gaussian_epsilon),
            )
        )
    return [*rows, ("requests", str(status.entries)), ("ledger", status.ledger_id)]


def _nested_rows(name: str, inner: Nested, gaussian: bool) -> list[tuple[Any, ...]]:
    found = [
        (f"total epsilon of {name}", decimal_text(inner.total_epsilon)),
        (f"largest epsilon of one more request on {name}", decimal_text(inner.remaining_epsilon)),
    ]
    if gaussian:
        label = f"largest epsilon of one more Gaussian request on {name}"
        found.append((label, decimal_text(inner.remaining_gaussian_epsilon)))
    return list(found)


def describe(catalog: Catalog, models: Mapping[str, Synthetic], statement: Statement) -> Result:
    """DESCRIBE a table: its declared columns; a synthetic one: how it was learned.

    Raises: ProgrammingError (E_UNKNOWN_TABLE).
    """
    name = statement.words[0]
    if statement.words[1:]:
        made = find_synthetic(models, name)
        return listing(("synthetic", made.name), made.facts(), statement.fragment.body)
    key = find_key([name], catalog) or find_key(name.split("."), catalog) or ""
    table, view = catalog.tables.get(key), catalog.views.get(key)
    if table is None and view is not None:
        return listing(("view", "sql"), [(view.name, view.sql)], statement.fragment.body)
    if table is None:
        names = [t.name for t in catalog.tables.values()]
        names += [v.name for v in catalog.views.values()]
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no table {printable(name)!r} in the catalog",
            hint=f"tables: {', '.join(names)}",
        )
    rows: list[tuple[Any, ...]] = list(describe_table(table))
    found = listing(("column", "type", "values", "cells"), rows, statement.fragment.body)
    standing = left_out(table)
    return found if standing is None else replace(found, notes=(standing,))
