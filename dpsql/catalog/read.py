"""Read and validate a TOML catalog: strict, and every message says what would be right."""

from __future__ import annotations

import datetime as dt
import difflib
import math
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from dpsql.catalog.catalog import Budget, Catalog, Column, Table, Unit
from dpsql.catalog.domain import (
    PERIODS,
    Bins,
    Domain,
    IntegerRange,
    Periods,
    Value,
    Values,
    count_periods,
    floor_period,
)
from dpsql.errors import CatalogError

TYPES = ("integer", "number", "text", "date", "boolean")
COLUMN_KEYS = ("type", "domain", "domain_file", "bins", "bounds", "by", "other", "null")
TABLE_KEYS = ("source", "privacy_unit", "public", "column")
BUDGET_KEYS = ("epsilon", "delta", "max_epsilon_per_request")
MAX_CELLS = 1_000_000
MAX_BOUND = 2**53


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a catalog something stands; knows how to complain about it."""

    path: Path
    table: str | None = None
    column: str | None = None

    def fail(self, problem: str, remedy: str, code: str = "E_POLICY") -> NoReturn:
        """Raise the CatalogError that names this place, the problem and the remedy."""
        parts = [self.path.name]
        parts += [f"table {self.table!r}"] if self.table is not None else []
        parts += [f"column {self.column!r}"] if self.column is not None else []
        raise CatalogError(code, f"{', '.join(parts)}: {problem}", hint=remedy)

    def check_keys(self, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """Refuse keys that are not known: a typo must never mean a default."""
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
                self.fail(f"unknown key {key!r}", remedy)


def read_catalog(path: Path) -> Catalog:
    """Read the catalog at ``path``; sources and domain files are relative to its folder.

    Raises: CatalogError with code E_POLICY, E_EPSILON, E_DELTA or E_DEGENERATE_BOUNDS.
    """
    path = Path(path).expanduser()
    place = Place(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        place.fail("there is no such file", "`dpsql init DATA` drafts a catalog for a data file")
    except (OSError, UnicodeDecodeError) as error:
        place.fail(f"cannot be read ({type(error).__name__})", "a catalog is a UTF-8 TOML file")
    try:
        raw = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        place.fail(f"not valid TOML: {error}", "see https://toml.io for the syntax")
    place.check_keys(raw, ("budget", "table"))
    tables = _section(place, raw, "table")
    if not tables:
        place.fail("declares no table", 'add a section such as [table.people] with source = "..."')
    catalog = Catalog(path.resolve(), _read_budget(place, raw), {})
    for name, body in tables.items():
        key = name.casefold()
        if key in catalog.tables:
            place.fail(f"table {name!r} is declared twice", "names are compared without case")
        catalog.tables[key] = _read_table(Place(path, table=name), name, body)
    return catalog


def _section(place: Place, raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        place.fail(f"{key!r} is not a section", f"write [{key}]")
    return value


def _read_budget(place: Place, raw: Mapping[str, Any]) -> Budget:
    from dpsql.privacy.accounting import parse_delta, parse_epsilon

    if "budget" not in raw:
        place.fail("has no [budget]", "add [budget] with epsilon = 3.0 and delta = 1e-9")
    budget = _section(place, raw, "budget")
    place.check_keys(budget, BUDGET_KEYS)
    if "epsilon" not in budget:
        place.fail("[budget] has no epsilon", "add epsilon = 3.0")
    limit = Fraction(10**6)
    values = {}
    for key, default in (("epsilon", None), ("max_epsilon_per_request", 100), ("delta", 0)):
        given = budget.get(key, default)
        try:
            parse = parse_delta if key == "delta" else parse_epsilon
            values[key] = parse(given) if key == "delta" else parse_epsilon(given, limit)
        except Exception as error:
            remedy = "0, or between 1e-15 and 1e-4" if key == "delta" else "a number from 1e-6 up"
            place.fail(f"[budget] {key} = {given} is not usable", f"{remedy} ({_text(error)})")
    return Budget(values["epsilon"], values["delta"], values["max_epsilon_per_request"])


def _text(error: Exception) -> str:
    return str(getattr(error, "message", type(error).__name__))


def _read_table(place: Place, name: str, body: Any) -> Table:
    if not isinstance(body, dict):
        place.fail("is not a section", f"write [table.{name}]")
    place.check_keys(body, TABLE_KEYS)
    if not name or any(not c.isprintable() for c in name):
        place.fail("has an unusable name", "use letters, digits and underscores")
    columns: dict[str, Column] = {}
    for column_name, facts in _section(place, body, "column").items():
        here = Place(place.path, name, column_name)
        if column_name.casefold() in columns:
            here.fail("is declared twice", "names are compared without case")
        columns[column_name.casefold()] = _read_column(here, column_name, facts)
    if not columns:
        place.fail("declares no column", f"add a section [table.{name}.column]")
    public = body.get("public", False)
    if not isinstance(public, bool):
        place.fail(f"public = {public!r}", "public = true or public = false")
    unit = _read_unit(place, body, public)
    size = math.prod(column.size or 1 for column in columns.values())
    if not public and size >= 2**63:
        place.fail(
            "the product of the domain sizes exceeds 2^63",
            "leave out columns that are not queried, or give numbers fewer bins",
        )
    return Table(name, _read_source(place, body), unit, columns, public)


def _read_source(place: Place, body: Mapping[str, Any]) -> str:
    source = body.get("source")
    if isinstance(source, dict):
        place.fail("only file sources are supported", 'source = "data.parquet" (file or glob)')
    if not isinstance(source, str) or not source or "\0" in source:
        place.fail("has no source", 'add source = "data.parquet" (a file or a glob)')
    return str(place.path.resolve().parent / Path(source).expanduser())


def _read_unit(place: Place, body: Mapping[str, Any], public: bool) -> Unit:
    unit = body.get("privacy_unit", "row" if public else None)
    remedy = 'privacy_unit = "row", or { column = "person_id", max_rows = 5 }'
    if unit == "row":
        return Unit()
    if not isinstance(unit, dict) or set(unit) != {"column", "max_rows"}:
        place.fail("privacy_unit is missing or malformed", remedy)
    column, rows = unit["column"], unit["max_rows"]
    if not isinstance(column, str) or not column:
        place.fail(f"privacy_unit column = {column!r} is not a column name", remedy)
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= 10**6:
        place.fail(f"privacy_unit max_rows = {rows!r}", "a positive integer, at most 1000000")
    return Unit(column, rows)


def _read_column(place: Place, name: str, facts: Any) -> Column:
    if not isinstance(facts, dict):
        place.fail("is not a table", f'write {name} = {{ type = "integer", domain = [0, 99] }}')
    place.check_keys(facts, COLUMN_KEYS)
    kind = facts.get("type")
    if kind not in TYPES:
        place.fail(f"type = {kind!r}", f"one of {', '.join(TYPES)}")
    null = facts.get("null", False)
    if not isinstance(null, bool):
        place.fail(f"null = {null!r}", "null = true or null = false")
    if "bounds" in facts:
        extra = [key for key in ("domain", "domain_file", "bins", "by", "other") if key in facts]
        if extra:
            place.fail(f"bounds and {extra[0]} exclude each other", "keep one of them")
        return Column(name, kind, None, _read_bounds(place, kind, facts["bounds"]), null)
    domain = _read_domain(place, kind, facts)
    other = _read_other(place, kind, domain, facts.get("other", False))
    column = Column(name, kind, domain, None, null, other)
    if column.size > MAX_CELLS:
        place.fail(f"has {column.size} cells", f"at most {MAX_CELLS}; use bins")
    return column


def _read_bounds(place: Place, kind: str, given: Any) -> tuple[Fraction, Fraction]:
    if kind not in ("integer", "number"):
        place.fail(f"bounds on a {kind} column", "bounds belong to integer and number columns")
    lo, hi = _read_pair(place, "bounds", given)
    if lo == hi:
        place.fail(
            "bounds of zero width", "write bounds = [lowest, highest]", "E_DEGENERATE_BOUNDS"
        )
    if lo > hi:
        place.fail("bounds are reversed", f"bounds = [{given[1]}, {given[0]}]")
    return lo, hi


def _read_pair(place: Place, key: str, given: Any) -> tuple[Fraction, Fraction]:
    if not isinstance(given, list) or len(given) != 2:
        place.fail(f"{key} = {_show(given)}", f"write {key} = [lowest, highest]")
    lo, hi = (_read_number(place, key, value) for value in given)
    return lo, hi


def _read_number(place: Place, key: str, value: Any) -> Fraction:
    usable = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if not usable or (isinstance(value, Decimal) and not value.is_finite()):
        place.fail(f"{key}: {_show(value)} is not a finite number", f"{key} = [0, 100]")
    if abs(value) > MAX_BOUND:
        place.fail(f"{key}: {_show(value)} is too large", "at most 2^53 in absolute value")
    return Fraction(value)


def _show(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _read_domain(place: Place, kind: str, facts: Mapping[str, Any]) -> Domain | None:
    if "domain" in facts and "domain_file" in facts:
        place.fail("domain and domain_file exclude each other", "keep one of them")
    if "by" in facts and kind != "date":
        place.fail("`by` belongs to date columns", 'bins = 100, or type = "date"')
    if "bins" in facts and kind not in ("integer", "number"):
        place.fail(f"`bins` on a {kind} column", "bins belong to integer and number columns")
    if "bins" in facts:
        return _read_bins(place, facts)
    if "domain_file" in facts:
        if kind != "text":
            place.fail("domain_file on a column that is not text", "domain_file is for text")
        return Values(_check_texts(place, _read_lines(place, facts["domain_file"])))
    if "domain" not in facts:
        if "by" in facts:
            place.fail("`by` without a domain", 'domain = ["2020-01-01", "2024-12-31"]')
        return None
    given = facts["domain"]
    if not isinstance(given, list) or not given:
        place.fail(f"domain = {_show(given)}", "a list of values, or [lowest, highest]")
    match kind:
        case "integer":
            return _read_integers(place, given)
        case "text":
            return Values(_check_texts(place, given))
        case "boolean":
            if sorted(map(repr, given)) != ["False", "True"]:
                place.fail(f"domain = {_show(given)}", "domain = [false, true]")
            return Values(tuple(given))
        case "date":
            return _read_periods(place, given, facts.get("by", "day"))
        case _:
            place.fail(
                "a number column needs bins or bounds",
                "domain = [0, 500], bins = 100  (or bounds = [0, 500] for a measure)",
            )


def _read_bins(place: Place, facts: Mapping[str, Any]) -> Bins:
    bins = facts["bins"]
    if isinstance(bins, list):
        edges = tuple(_read_number(place, "bins", value) for value in bins)
        if len(edges) < 2 or any(a >= b for a, b in pairwise(edges)):
            place.fail("bin edges are not increasing", "bins = [0, 10, 50, 100]")
        if "domain" in facts:
            lo, hi = _read_pair(place, "domain", facts["domain"])
            if (lo, hi) != (edges[0], edges[-1]):
                place.fail("bins do not span the domain", "leave the domain out")
        return Bins(edges)
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MAX_CELLS:
        place.fail(f"bins = {_show(bins)}", f"a number from 1 to {MAX_CELLS}, or increasing edges")
    lo, hi = _read_pair(place, "domain", facts.get("domain"))
    if lo >= hi:
        place.fail(f"domain = [{lo}, {hi}]", "domain = [lowest, highest]")
    return Bins(tuple(lo + (hi - lo) * j / bins for j in range(bins + 1)))


def _read_integers(place: Place, given: list[Any]) -> IntegerRange | Values:
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_BOUND:
            place.fail(f"domain: {_show(value)} is not a usable integer", "domain = [0, 99]")
    if len(given) == 2:
        lo, hi = given
        if lo > hi:
            place.fail("domain is reversed", f"domain = [{hi}, {lo}]")
        if hi - lo >= MAX_CELLS:
            place.fail(f"domain has {hi - lo + 1} cells", "add bins = 100")
        return IntegerRange(lo, hi)
    if len(set(given)) != len(given):
        place.fail("domain repeats a value", "each value once")
    return Values(tuple(given))


def _check_texts(place: Place, given: list[Any]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for value in given:
        if not isinstance(value, str):
            place.fail(f"domain: {_show(value)} is not text", 'domain = ["a", "b"]')
        if any(c == "\0" for c in value):
            place.fail("domain: a value holds a NUL character", "leave it out")
        key = unicodedata.normalize("NFC", value).strip()
        if key in seen:
            place.fail(
                f"domain: {value!r} and {seen[key]!r} are the same text",
                "values must differ in more than spaces around them or Unicode form",
            )
        seen[key] = value
    return tuple(given)


def _read_lines(place: Place, file: Any) -> list[str]:
    if not isinstance(file, str) or not file:
        place.fail(f"domain_file = {_show(file)}", 'domain_file = "values.txt"')
    try:
        text = (place.path.resolve().parent / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        place.fail(f"domain_file {file!r} cannot be read", "one value per line, UTF-8")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    lines = lines[:-1] if lines and lines[-1] == "" else lines
    if not lines:
        place.fail(f"domain_file {file!r} is empty", "one value per line")
    return lines


def _read_periods(place: Place, given: list[Any], unit: Any) -> Periods:
    if unit not in PERIODS:
        place.fail(f"by = {_show(unit)}", f"one of {', '.join(PERIODS)}")
    days = [_read_day(place, value) for value in given]
    if len(days) != 2 or days[0] > days[1]:
        place.fail(f"domain = {_show(given)}", 'domain = ["2020-01-01", "2024-12-31"]')
    return Periods(floor_period(days[0], unit), unit, count_periods(days[0], days[1], unit))


def _read_day(place: Place, value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    try:
        return dt.date.fromisoformat(value)
    except (TypeError, ValueError):
        place.fail(f"domain: {_show(value)} is not a date", '"2020-01-01"')


def _read_other(place: Place, kind: str, domain: Domain | None, given: Any) -> Value:
    if given is False:
        return None
    if kind not in ("text", "integer") or isinstance(domain, Bins) or domain is None:
        place.fail("`other` needs a list of values", "other belongs to text and integer domains")
    if given is True and kind == "text":
        given = "other"
    expected = str if kind == "text" else int
    if isinstance(given, bool) or not isinstance(given, expected):
        place.fail(f"other = {_show(given)}", 'other = true for text, or a value such as "Rest"')
    if given in domain.representatives:
        place.fail(
            f"other = {_show(given)} is also a domain value", 'choose a label, other = "Rest"'
        )
    return given
