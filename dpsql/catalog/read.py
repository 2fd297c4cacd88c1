"""Read and validate a TOML catalog: strict, and every message says what would be right."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.amounts import parse_delta, parse_epsilon
from dpsql.catalog.catalog import ALL, KINDS, OWNERS, Budget, Catalog, Column, Table, Unit, View
from dpsql.catalog.domain import Labels
from dpsql.catalog.read_calendar import MAX_CELLS
from dpsql.catalog.read_discovery import is_sought, read_sought
from dpsql.catalog.read_domain import read_domain, read_other
from dpsql.catalog.read_place import Place, read_pair, show
from dpsql.catalog.read_source import read_source, read_spill
from dpsql.catalog.read_units import (
    ROW_LIMIT,
    is_row_limit,
    read_references,
    read_unit,
    read_unit_columns,
    read_unit_keys,
    read_unit_names,
    relate,
)
from dpsql.errors import Error, decimal_text, printable
from dpsql.files import read_regular
from dpsql.records import replace

TYPES = ("integer", "number", "decimal", "text", "date", "timestamp", "time", "boolean")
COLUMN_KEYS = (
    *("type", "domain", "domain_file", "bins", "step", "bounds", "bounds_are", "by", "zone"),
    *("labels", "other", "null", "max_keys"),
)
TABLE_KEYS = (
    *("source", "privacy_unit", "references", "public", "budget", "row_count_hint", "complete"),
    *("unit_keys", "unit_columns", "spill", "column"),
)
BACKENDS = ("dpsql", "opendp")
VISIBILITIES = (ALL, OWNERS)
LONGEST_ANALYST = 100
"""Characters of a name, which every charge of the analyst keeps in the ledger."""
LARGEST_EPSILON = Fraction(10**6)
"""In units of 1e-12 it is 1e18, and a ledger keeps totals as integers below 2^62."""
BUDGET_KEYS = (
    *("epsilon", "delta", "max_epsilon_per_request", "discovery_delta", "default_epsilon"),
)


def read_catalog(path: str | os.PathLike[str]) -> Catalog:
    """Read the catalog at ``path``; sources and domain files are relative to its folder.

    Raises: CatalogError with code E_POLICY, E_EPSILON, E_DELTA or E_DEGENERATE_BOUNDS, naming file,
    table, column, what is wrong and what would be right.
    """
    path = Path(path)
    place = Place(path)
    if path.name.lower().endswith(tuple(KINDS)):
        name = printable(path.name)
        draft = f"`dpsql init {name} -o {name.split('.')[0]}.toml`"
        place.fail("this is data, not a catalog", f"{draft} drafts a catalog for it")
    try:
        path = path.expanduser()
        text = read_regular(path, through_links=True).decode("utf-8-sig")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        place.fail("there is no such file", "`dpsql init DATA` drafts a catalog for a data file")
    except (OSError, ValueError, RuntimeError) as error:
        place.fail(f"cannot be read: {_reason(error)}", "a catalog is a UTF-8 TOML file")
    try:
        raw = tomllib.loads(text, parse_float=_decimal)
    except (RecursionError, ValueError) as error:
        place.fail(f"not valid TOML: {error}", "see https://toml.io for the syntax")
    place.check_keys(
        raw, ("analyst", "budget", "ledger", "names", "noise", "scratch", "table", "unit", "view")
    )
    tables = _section(place, raw, "table")
    if not tables:
        place.fail("declares no table", 'add a section such as [table.people] with source = "..."')
    whole = _read_budget(place, raw)
    catalog = Catalog(
        path.resolve(),
        whole,
        {},
        _read_backend(place, raw),
        _read_anchors(place, raw),
        _read_analysts(place, raw, whole),
        scratch=_read_scratch(place, raw, whole),
        visibility=_read_visibility(place, raw),
    )
    units = read_unit_names(place, _section(place, raw, "unit"))
    for name, body in tables.items():
        key = name.casefold()
        if key in catalog.tables:
            place.fail(f"table {name!r} is declared twice", "names are compared without case")
        catalog.tables[key] = _read_table(Place(path, table=name), name, body, whole, units)
    catalog.tables.update(relate(path, catalog.tables))
    for name, body in _section(place, raw, "view").items():
        key = name.casefold()
        if key in catalog.tables or key in catalog.views:
            place.fail(f"view {name!r} is declared twice", "names are compared without case")
        catalog.views[key] = _read_view(place, name, body)
    return catalog


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is not UTF-8"
    return (getattr(error, "strerror", None) or str(error)).lower()


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number with an exponent that long is not usable") from None


def _section(place: Place, raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        place.fail(f"{key!r} is not a section", f"write [{key}]")
    return value


def _read_budget(place: Place, raw: Mapping[str, Any]) -> Budget:
    if "budget" not in raw:
        place.fail("has no [budget]", "add [budget] with epsilon = 3.0 and delta = 1e-9")
    budget = _section(place, raw, "budget")
    place.check_keys(budget, BUDGET_KEYS)
    if "epsilon" not in budget:
        place.fail("[budget] has no epsilon", "add epsilon = 3.0")
    values = {}
    defaults = {"epsilon": None, "max_epsilon_per_request": 100, "delta": 0, "discovery_delta": 0}
    defaults |= {"default_epsilon": 1} if "default_epsilon" in budget else {}
    for key, default in defaults.items():
        given, is_delta = budget.get(key, default), key.endswith("delta")
        try:
            values[key] = parse_delta(given) if is_delta else parse_epsilon(given, LARGEST_EPSILON)
        except Exception as error:
            remedy = "0, or between 1e-15 and 1e-4" if is_delta else "a number from 1e-6 up"
            place.fail(
                f"[budget] {key} = {show(given)} is not usable", f"{remedy} ({_text(error)})"
            )
    if values["discovery_delta"] and values["discovery_delta"] >= values["delta"]:
        remedy = "a part of delta, such as half of it: the rest is for everything else"
        place.fail(f"[budget] discovery_delta = {show(budget['discovery_delta'])}", remedy)
    usual, most = values.get("default_epsilon"), values["max_epsilon_per_request"]
    if usual is not None and usual > min(most, values["epsilon"]):
        remedy = "at most max_epsilon_per_request, and the epsilon of [budget]"
        place.fail(f"[budget] default_epsilon = {show(budget['default_epsilon'])}", remedy)
    each = ("epsilon", "delta", "max_epsilon_per_request", "discovery_delta")
    return replace(Budget(*(values[key] for key in each)), default_epsilon=usual)


def _read_backend(place: Place, raw: Mapping[str, Any]) -> str:
    noise = _section(place, raw, "noise")
    place.check_keys(noise, ("backend",))
    backend = noise.get("backend", BACKENDS[0])
    if backend not in BACKENDS:
        place.fail(f"[noise] backend = {show(backend)}", f"one of {', '.join(BACKENDS)}")
    return str(backend)


def _read_visibility(place: Place, raw: Mapping[str, Any]) -> str:
    """Read whose domains, bounds and synthetic tables an analyst sees."""
    names = _section(place, raw, "names")
    place.check_keys(names, ("visibility",))
    given = names.get("visibility", ALL)
    if given not in VISIBILITIES:
        place.fail(f"[names] visibility = {show(given)}", f"one of {', '.join(VISIBILITIES)}")
    if given == OWNERS and not _section(place, raw, "analyst"):
        remedy = "declare them, [analyst.ana] with epsilon = 1.0, or leave it out"
        place.fail("[names] visibility = own, and no analyst is declared", remedy)
    return str(given)


def _read_anchors(place: Place, raw: Mapping[str, Any]) -> Path | None:
    ledger = _section(place, raw, "ledger")
    place.check_keys(ledger, ("anchor",))
    folder = ledger.get("anchor")
    if folder is None:
        return None
    if not isinstance(folder, str) or not folder or "\0" in folder:
        place.fail(f"[ledger] anchor = {show(folder)}", 'anchor = "a/folder"')
    return place.path.resolve().parent / folder


def _text(error: Exception) -> str:
    return str(getattr(error, "message", type(error).__name__))


def _read_table(place: Place, name: str, body: Any, whole: Budget, units: Sequence[str]) -> Table:
    if not isinstance(body, dict):
        place.fail("is not a section", f"write [table.{name}]")
    place.check_keys(body, TABLE_KEYS)
    _check_name(place, name)
    columns: dict[str, Column] = {}
    unit = read_unit(place, body.get("privacy_unit", "row" if body.get("public") else None), units)
    for column_name, facts in _section(place, body, "column").items():
        here = Place(place.path, name, column_name)
        _check_name(here, column_name)
        if column_name.casefold() in columns:
            here.fail("is declared twice", "names are compared without case")
        columns[column_name.casefold()] = _read_column(here, column_name, facts, unit)
    if not columns:
        place.fail("declares no column", f"add a section [table.{name}.column]")
    public = body.get("public", False)
    if not isinstance(public, bool):
        place.fail(f"public = {public!r}", "public = true or public = false")
    complete = body.get("complete", False)
    if not isinstance(complete, bool) or (public and complete):
        place.fail(f"complete = {show(complete)}", "complete = true, of a private table")
    for column in columns.values():
        if public and isinstance(column.domain, Labels):
            remedy = "join a public table of codes and labels"
            place.fail(f"is public, and column {column.name!r} has labels", remedy)
        if column.sought is not None:
            _refuse_sought(Place(place.path, name, column.name), unit, public, complete)
    references = read_references(place, body.get("references", {}))
    budget = _read_table_budget(place, body, whole)
    if public and budget is not None:
        place.fail("is public and has a budget", "leave out one of them")
    hint = body.get("row_count_hint")
    if hint is not None and (isinstance(hint, bool) or not isinstance(hint, int) or hint < 1):
        place.fail(f"row_count_hint = {show(hint)}", "row_count_hint = 50000, a public guess")
    if hint is None and "spill" in body and not public:
        remedy = "row_count_hint = 50000000, the most rows there may be: their room is taken first"
        place.fail("spill without row_count_hint: nothing says how much of the folder", remedy)
    source, options = read_source(place, body.get("source"))
    options = (*options, *read_spill(place, body.get("spill"), public))
    return Table(
        name,
        source,
        unit,
        columns,
        public,
        budget,
        hint,
        complete=complete,
        references=references,
        unit_keys=read_unit_keys(place, body.get("unit_keys", []), unit),
        unit_columns=read_unit_columns(place, body.get("unit_columns", []), unit),
        options=options,
    )


def _refuse_sought(place: Place, unit: Unit, public: bool, complete: bool) -> None:
    """Refuse columns whose values are to be found where there is nothing to find."""
    if public or complete:
        what = "public tables list their rows" if public else "complete = true lists all values"
        place.fail('"discover"', f"leave it out: {what}")
    if unit.through is not None:
        what = "declare the unit's own column for this table, or list the values"
        place.fail('"discover" in a table whose unit is that of another', what)


def _read_view(place: Place, name: str, body: Any) -> View:
    """Read a view; its names are checked where it is used."""
    from dpsql.sql.text.parse import parse_view  # sqlglot, which few catalogs need

    if not isinstance(body, dict):
        place.fail(
            f"view {name!r} is not a section", f'write [view.{name}] with sql = "SELECT ..."'
        )
    place.check_keys(body, ("sql", "max_rows", "column"))
    _check_name(place, name)
    rows = body.get("max_rows")
    if rows is not None and not is_row_limit(rows):
        place.fail(f"view {name!r}: max_rows = {show(rows)}", ROW_LIMIT)
    sql = body.get("sql")
    if not isinstance(sql, str):
        place.fail(f"view {name!r} has no sql", 'add sql = "SELECT ... FROM table"')
    try:
        parse_view(sql)
    except Error as error:
        place.fail(f"the sql of view {name!r}: {error.message}", "write one SELECT")
    columns: dict[str, Column] = {}
    for column, facts in _section(place, body, "column").items():
        if column.casefold() in columns:
            place.fail(f"view {name!r} declares {column!r} twice", "names have no case")
        found = _read_column(Place(place.path, name, column), column, facts, Unit())
        if found.type not in ("integer", "number") or found.sought is not None:
            what = f"view {name!r}: {column!r} is no number with a domain, bins or bounds"
            place.fail(what, "other columns are declared where they come from")
        columns[column.casefold()] = found
    return View(name, sql, rows, columns)


def _read_analysts(place: Place, raw: Mapping[str, Any], whole: Budget) -> dict[str, Fraction]:
    """Read the epsilon of every analyst; its delta is that of the catalog."""
    analysts: dict[str, Fraction] = {}
    for name, body in _section(place, raw, "analyst").items():
        key = name.casefold()
        if not name or not name.isprintable() or len(name) > LONGEST_ANALYST:
            place.fail("an analyst has an unusable name", "use letters, digits and underscores")
        if key in analysts:
            place.fail(f"analyst {name!r} is declared twice", "names are compared without case")
        if not isinstance(body, dict):
            place.fail(f"analyst {name!r} is not a section", f"write [analyst.{name}]")
        analysts[key] = _read_epsilon(place, f"[analyst.{name}]", body, whole)
    return analysts


def _read_scratch(place: Place, raw: Mapping[str, Any], whole: Budget) -> Fraction | None:
    """Read the part of the budget that drafts may spend."""
    if "scratch" not in raw:
        return None
    return _read_epsilon(place, "[scratch]", _section(place, raw, "scratch"), whole)


def _read_table_budget(place: Place, body: Mapping[str, Any], whole: Budget) -> Fraction | None:
    """Read the table's own epsilon; its delta is that of the catalog."""
    if "budget" not in body:
        return None
    return _read_epsilon(place, "budget", _section(place, body, "budget"), whole)


def _read_epsilon(place: Place, what: str, budget: Mapping[str, Any], whole: Budget) -> Fraction:
    """Read the epsilon of a budget inside the whole one."""
    place.check_keys(budget, ("epsilon",))
    if "epsilon" not in budget:
        place.fail(f"{what} has no epsilon", "write epsilon = 1.0")
    given = budget["epsilon"]
    try:
        epsilon = parse_epsilon(given, LARGEST_EPSILON)
    except Exception as error:
        place.fail(f"{what} epsilon = {show(given)} is not usable", _text(error))
    if epsilon > whole.epsilon:
        remedy = f"at most the epsilon of [budget], {decimal_text(whole.epsilon)}"
        place.fail(f"{what} epsilon = {show(given)} can never be spent", remedy)
    return epsilon


def _check_name(place: Place, name: str) -> None:
    if not name or not name.isprintable():
        place.fail("has an unusable name", "use letters, digits and underscores")


def _read_column(place: Place, name: str, facts: Any, unit: Unit) -> Column:
    if not isinstance(facts, dict):
        place.fail("is not a table", f'write {name} = {{ type = "integer", domain = [0, 99] }}')
    place.check_keys(facts, COLUMN_KEYS)
    kind = facts.get("type")
    if kind not in TYPES:
        place.fail(f"type = {kind!r}", f"one of {', '.join(TYPES)}")
    null = facts.get("null", False)
    if not isinstance(null, bool):
        place.fail(f"null = {null!r}", "null = true or null = false")
    if is_sought(facts):
        sought, other = read_sought(place, kind, unit.max_rows, facts)
        return Column(name, kind, None, None, null, other, sought=sought)
    if "bounds" in facts:
        extra = [key for key in ("domain", "domain_file", "by", "other") if key in facts]
        if extra:
            place.fail(f"bounds and {extra[0]} exclude each other", "keep one of them")
        bounds = _read_bounds(place, kind, facts["bounds"])
        if "bins" not in facts and "step" not in facts:
            return Column(name, kind, None, bounds, null, loose=_read_loose(place, facts))
    domain = read_domain(place, kind, facts)
    other = read_other(place, kind, domain, facts.get("other", False))
    implied = kind == "boolean" and "domain" not in facts
    loose = _read_loose(place, facts)
    column = Column(name, kind, domain, None, null, other, loose, implied=implied)
    if column.size > MAX_CELLS:
        place.fail(f"has {column.size} cells", f"at most {MAX_CELLS}; use bins")
    return column


def _read_loose(place: Place, facts: Mapping[str, Any]) -> bool:
    """True if the upper bound is declared to be a guess."""
    given = facts.get("bounds_are", "tight")
    if given not in ("loose", "tight"):
        place.fail(f"bounds_are = {show(given)}", 'bounds_are = "loose", or "tight"')
    if given == "loose" and facts.get("type") not in ("integer", "number"):
        place.fail("bounds_are on a column that is no number", "leave it out")
    return bool(given == "loose")


def _read_bounds(place: Place, kind: str, given: Any) -> tuple[Fraction, Fraction]:
    if kind not in ("integer", "number"):
        place.fail(f"bounds on a {kind} column", "bounds belong to integer and number columns")
    lo, hi = read_pair(place, "bounds", given)
    if lo == hi:
        place.fail(
            "bounds of zero width", "write bounds = [lowest, highest]", "E_DEGENERATE_BOUNDS"
        )
    if lo > hi:
        place.fail("bounds are reversed", f"bounds = [{given[1]}, {given[0]}]")
    return lo, hi
