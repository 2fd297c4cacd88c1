"""Public facts as results: SHOW and DESCRIBE."""

from __future__ import annotations

import re
from typing import Any

from dpsql.answer.discovered import find_named
from dpsql.answer.result import Result, listing
from dpsql.answer.synthetic_tables import find_synthetic
from dpsql.catalog import Column
from dpsql.catalog.describe import describe_column, describe_table, find_column
from dpsql.dbapi.column_types import foresee
from dpsql.engine.engine import Engine
from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms
from dpsql.errors import DataUnavailable, ProgrammingError, decimal_text, printable
from dpsql.privacy.budget.curator_acts import SCRATCH, analyst_name, nested_name
from dpsql.privacy.budget.hash_chain import budget_text
from dpsql.privacy.budget.ledger import Entry, Status
from dpsql.privacy.budget.status import NestedBudget
from dpsql.records import replace
from dpsql.relation.row_view import left_out
from dpsql.settings.table import SETTINGS
from dpsql.sql.relations import suggest
from dpsql.sql.rewrites.qualified import find_key
from dpsql.sql.text.create_domain import WORDS
from dpsql.sql.text.parse import QUERY, Statement

_FIRST = re.compile(r"\w+")
LISTED = 50
"""Values that DESCRIBE of one column names; .values lists all of them."""


def settings(terms: Terms, sql: str) -> Result:
    """SHOW ALL: every setting, its value and what it is about."""
    rows = [(name, value, SETTINGS[name].help) for name, value in terms.display().items()]
    return listing(("setting", "value", "description"), list(rows), sql)


def show(engine: Engine, terms: Terms, what: str, sql: str) -> Result:
    """SHOW tables, budget, ledger, all settings or one.

    Args:
        engine: its ledger is read, and its catalog; nothing is charged.
        terms: settings of the session.
        what: tables, domains, budget, ledger, all, or the name of a setting.
        sql: text of the statement, which the result keeps.
    """
    if what == "all":
        return settings(terms, sql)
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
    if what == "domains":
        rows = [
            (each.name, each.what.lower(), f"{each.table}.{each.column}", each.receipt[1])
            for each in engine.found.values()
            if not each.dropped
        ]
        return listing(("name", "kind", "column", "entry"), rows, sql)
    if what == "budget":
        status = engine.status()
        if engine.analyst:
            return listing(("budget", "value"), _own_rows(engine, status, engine.analyst), sql)
        rows = _budget_rows(status)
        for key, table in engine.catalog.tables.items():
            inner = status.nested.get(nested_name(key))
            if inner is not None:
                rows += _nested_rows(table.name, inner, status.total_delta > 0)
        if SCRATCH in status.nested:
            rows += _nested_rows("scratch drafts", status.nested[SCRATCH], status.total_delta > 0)
        for key in engine.catalog.analysts:
            inner = status.nested[analyst_name(key)]
            rows += _nested_rows(f"analyst {key}", inner, status.total_delta > 0)
        return listing(("budget", "value"), rows, sql)
    if what == "ledger":
        rows = [
            (e.seq, e.at, e.kind, e.noise, e.epsilon, e.state, charged(e.within), one_line(e.sql))
            for e in engine.entries()
            if engine.analyst is None or e.kind != "debit" or is_of(engine.analyst, e)
        ]
        names = ("seq", "time", "kind", "noise", "epsilon", "state", "charged also to", "sql")
        return listing(names, rows, sql)
    return listing((what,), [(terms.display()[what],)], sql)


def is_of(analyst: str, entry: Entry) -> bool:
    """True if a debit was charged to the budget of an analyst."""
    return analyst_name(analyst) in entry.within.split("\n")


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
    if status.total_discovery > 0:
        rows.append(("total discovery_delta", f"{float(status.total_discovery):g}"))
        rows.append(("discovery_delta left", f"{float(status.remaining_discovery):g}"))
    return [*rows, ("requests", str(status.entries)), ("ledger", status.ledger_id)]


def _own_rows(engine: Engine, status: Status, analyst: str) -> list[tuple[Any, ...]]:
    """The budget of an analyst, and what others leave of the rest, but not what they have spent."""
    name, gaussian = analyst_name(analyst), status.total_delta > 0
    inner, who = status.nested[name], f"analyst {analyst}"
    rows = _nested_rows(who, inner, gaussian)
    if status.total_discovery > 0:
        rows.append((f"total discovery_delta of {who}", f"{float(inner.total_discovery):g}"))
        rows.append(("discovery_delta left", f"{float(inner.remaining_discovery):g}"))
    parts = [(table.name, nested_name(key)) for key, table in engine.catalog.tables.items()]
    for label, part in (*parts, ("scratch drafts", SCRATCH)):
        if part in status.nested:
            left = decimal_text(status.remaining_within([name, part]))
            rows.append((f"largest epsilon of one more request on {label}", left))
    return [*rows, ("requests", str(inner.entries)), ("ledger", status.ledger_id)]


def _nested_rows(name: str, inner: NestedBudget, gaussian: bool) -> list[tuple[Any, ...]]:
    found = [
        (f"total epsilon of {name}", decimal_text(inner.total_epsilon)),
        (f"largest epsilon of one more request on {name}", decimal_text(inner.remaining_epsilon)),
    ]
    if gaussian:
        label = f"largest epsilon of one more Gaussian request on {name}"
        found.append((label, decimal_text(inner.remaining_gaussian_epsilon)))
    return list(found)


def describe(planner: Planner, statement: Statement) -> Result:
    """DESCRIBE a table: its declared columns; a synthetic one, a domain: how it came about.

    Of a query it is the columns that it would have. Raises: ProgrammingError (E_UNKNOWN_TABLE).
    """
    name, kind, catalog = statement.words[0], statement.words[1:], planner.known
    if kind == QUERY:
        text = statement.fragment.body
        asked = foresee(planner, _FIRST.sub("", text, count=1), statement.fragment.dialect)
        return listing(("column", "type", "noisy"), [each[:3] for each in asked], text)
    if kind and kind[0] in WORDS:
        found = find_named(planner.found, name, kind[0].upper())
        facts = listing((kind[0], found.name), found.rows(), statement.fragment.body)
        try:
            return replace(facts, notes=planner.aged([found]))
        except DataUnavailable:
            return facts
    if kind:
        made = find_synthetic(planner.models, name)
        return listing(("synthetic", made.name), made.facts(), statement.fragment.body)
    key = find_key([name], catalog) or find_key(name.split("."), catalog) or ""
    table, view = catalog.tables.get(key), catalog.views.get(key)
    if table is None and view is None and find_key(name.split(".")[:-1], catalog):
        return _column(find_column(catalog, name), statement.fragment.body)
    if table is None and view is not None:
        return listing(("view", "sql"), [(view.name, view.sql)], statement.fragment.body)
    if table is None:
        names = [t.name for t in catalog.tables.values()]
        names += [v.name for v in catalog.views.values()]
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no table {printable(name)!r} in the catalog",
            hint=suggest(name, names, "tables"),
            span=statement.fragment.whole(),
        )
    rows: list[tuple[Any, ...]] = list(describe_table(table))
    shown = listing(("column", "type", "values", "cells"), rows, statement.fragment.body)
    standing = left_out(table)
    return shown if standing is None else replace(shown, notes=(standing,))


def _column(column: Column, sql: str) -> Result:
    """One declared column, with all of its values that fit a line or two."""
    return listing(("column", "type", "values", "cells"), [describe_column(column, LISTED)], sql)
