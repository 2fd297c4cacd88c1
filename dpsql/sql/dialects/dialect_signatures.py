"""Functions that DuckDB has not, or has with other arguments: as BigQuery and Snowflake write them.

Only what means one thing whoever wrote it is read; the rest stays as it is, and is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser

_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "ISOWEEK", "DAY", "HOUR", "MINUTE", "SECOND"}
_FORMAT = re.compile(r"([^%]|%[YmdyjHMSBbAa%])*")
"""Formats of dates that mean the same wherever they are written with percent signs."""
_SAME = re.compile(r"([^%]|%[Ymdyj%])*")
"""Formats of dates that mean the same in MySQL, too."""
_Build = Callable[[Sequence[exp.Expr]], exp.Expr]


def _unit(node: exp.Expr) -> str | None:
    """The unit of time that a bare word or a text names."""
    if isinstance(node, exp.Literal) and node.is_string and node.name.upper() in _UNITS:
        return node.name.upper()
    is_bare = isinstance(node, exp.Column | exp.Var) and not node.args.get("table")
    bare = is_bare and not (isinstance(node.this, exp.Identifier) and node.this.quoted)
    return node.name.upper() if bare and node.name.upper() in _UNITS else None


def _in_units(name: str, place: int, build: _Build) -> _Build:
    """A function of time whose unit may come last, too, as BigQuery has it.

    Weeks begin on Sunday there. ``build`` takes the unit first, then the rest from last to first.
    """
    known = DuckDBParser.FUNCTIONS[name]

    def read(args: Sequence[exp.Expr]) -> exp.Expr:
        unit = _unit(args[place]) if len(args) == place + 1 else None
        if unit is None or _is_text(args[0]):
            found: exp.Expr = known(args)
            return found
        return build(
            [exp.Literal.string(unit.replace("ISOWEEK", "WEEK")), *args[:place], args[place]]
        )

    return read


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _truncated(args: Sequence[exp.Expr]) -> exp.Expr:
    """The beginning of a period; of a week the Sunday, unless it is an ISO week."""
    unit, of, written = args
    if written.name.upper() != "WEEK":
        found: exp.Expr = DuckDBParser.FUNCTIONS["DATE_TRUNC"]([unit, of])
        return found
    monday = DuckDBParser.FUNCTIONS["DATE_TRUNC"]([unit, exp.paren(_later(of))])
    return exp.cast(exp.Sub(this=monday, expression=_a_day()), "DATE")


def _between(args: Sequence[exp.Expr]) -> exp.Expr:
    """The number of periods that begin from the second time to the first."""
    unit, last, first, written = args
    if unit.name != "WEEK":
        found: exp.Expr = DuckDBParser.FUNCTIONS["DATE_DIFF"]([unit, first, last])
        return found
    ends = [_truncated([unit, each, written]) for each in (first, last)]
    days = DuckDBParser.FUNCTIONS["DATE_DIFF"]([exp.Literal.string("day"), *ends])
    return exp.paren(exp.IntDiv(this=days, expression=exp.Literal.number(7)), copy=False)


def _a_day() -> exp.Interval:
    return exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="DAY"))


def _later(node: exp.Expr) -> exp.Expr:
    return exp.Add(this=node.copy(), expression=_a_day())


def _decoded(args: Sequence[exp.Expr]) -> exp.Expr:
    """DECODE as Oracle and Snowflake know it, a CASE; of two arguments it is DuckDB's own."""
    if len(args) < 3:
        found: exp.Expr = DuckDBParser.FUNCTIONS["DECODE"](args)
        return found
    of, *pairs = args
    case = exp.Case(ifs=[], default=pairs[-1] if len(pairs) % 2 else None)
    for value, result in zip(pairs[0::2], pairs[1::2], strict=False):
        is_null = isinstance(value, exp.Null)
        test = exp.Is(this=of.copy(), expression=value) if is_null else _same(of, value)
        case = case.when(test, result, copy=False)
    return exp.paren(case, copy=False)


def _same(of: exp.Expr, value: exp.Expr) -> exp.Expr:
    is_literal = isinstance(value, exp.Literal | exp.Neg)
    kind = exp.EQ if is_literal else exp.NullSafeEQ
    return kind(this=of.copy(), expression=value)


SHARED = {
    "date_trunc": _in_units("DATE_TRUNC", 1, _truncated),
    "datetime_trunc": _in_units("DATE_TRUNC", 1, _truncated),
    "timestamp_trunc": _in_units("TIMESTAMP_TRUNC", 1, _truncated),
    "date_diff": _in_units("DATE_DIFF", 2, _between),
    "decode": _decoded,
}
"""Functions of names that DuckDB has, too, with the arguments of others."""
MARK = "\x01"
"""The mark at the end of these names, so that the parser leaves their arguments as they are."""


def _shared(name: str, args: list[exp.Expr]) -> exp.Expr:
    """A function of a name that was marked, which stays one of that name with wrong arguments."""
    with suppress(SqlglotError, IndexError, TypeError, ValueError):
        found = SHARED[name](args)
        is_whole = _unit(args[-1]) is not None or any(each is args[-1] for each in found.walk())
        if is_whole and not found.error_messages(args):
            return found
    return exp.Anonymous(this=name, expressions=args)


def read_function(name: str, args: list[exp.Expr]) -> exp.Expr | None:
    """DuckDB's call for a function that it does not know by that name; None for all else.

    >>> from sqlglot import parse_one
    >>> read_function("format_date", [parse_one(each) for each in ("'%Y'", "d")]).sql("duckdb")
    "STRFTIME(d, '%Y')"
    """
    if name.endswith(MARK):
        return _shared(name.removesuffix(MARK), args)
    match name, args:
        case "date_sub", [of, exp.Interval() as step]:
            return exp.paren(exp.Sub(this=of, expression=step), copy=False)
        case "dateadd", [unit, count, of]:
            return _moved(unit, count, of)
        case "format_date", [pattern, of]:
            return _shown(of, pattern, _FORMAT)
        case "date_format", [of, pattern]:
            return _shown(of, pattern, _SAME)
        case "to_date", [exp.Literal() as of] if of.is_string:
            return exp.cast(of, "DATE")
        case "regexp_contains", [of, exp.Literal() as pattern]:
            return exp.RegexpLike(this=of, expression=pattern)
        case (("date_part" | "datepart"), [unit, of]) if _unit(unit) is not None:
            name = str(_unit(unit)).replace("ISOWEEK", "WEEK")
            return exp.Extract(this=exp.Var(this=name), expression=of)
    return None


def _moved(unit: exp.Expr, count: exp.Expr, of: exp.Expr) -> exp.Expr | None:
    """A time some units later, or earlier."""
    name, number = _unit(unit), count.this if isinstance(count, exp.Neg) else count
    is_whole = isinstance(number, exp.Literal) and number.name.isdigit()
    if name is None or not is_whole or name == "ISOWEEK":
        return None
    step = exp.Interval(this=exp.Literal.string(number.name), unit=exp.Var(this=name))
    kind = exp.Sub if isinstance(count, exp.Neg) else exp.Add
    return exp.paren(kind(this=of, expression=step), copy=False)


def _shown(of: exp.Expr, pattern: exp.Expr, known: re.Pattern[str]) -> exp.Expr | None:
    """A time in a format that is written out; None where a code of it is not known."""
    if not _is_text(pattern) or not known.fullmatch(pattern.name):
        return None
    return exp.TimeToStr(this=of, format=pattern)
