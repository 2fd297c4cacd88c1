"""Functions of dates and numbers as other databases spell them, written as DuckDB knows them."""

from __future__ import annotations

import re

from sqlglot import exp

_PARTS = ("weekday", "yearweek", "century", "decade", "millennium", "era", "isoyear", "julian")
"""Parts of a date that are functions by their own name."""
_FORMATS = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "MONTH": "%B",
    "MON": "%b",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "DAY": "%A",
    "DY": "%a",
    "AM": "%p",
    "PM": "%p",
}
"""What a pattern of TO_CHAR and TO_DATE is to strftime; names are shown as strftime shows them."""
_TOKEN = re.compile("|".join(sorted(_FORMATS, key=len, reverse=True)) + r"|[^A-Za-z%]|(.)", re.I)


def respell(node: exp.Expr) -> exp.Expr | None:
    """Return what DuckDB calls a function of another database, None for all else.

    >>> from sqlglot import parse_one
    >>> parsed = parse_one("date_part('hour', t)", read="duckdb")
    >>> respell(parsed).sql("duckdb")
    'EXTRACT(HOUR FROM t)'
    >>> respell(parse_one("to_char(t, 'YYYY-MM')", read="duckdb")).sql("duckdb")
    "STRFTIME(t, '%Y-%m')"
    """
    if isinstance(node, exp.Anonymous):
        return _named(str(node.this).lower(), list(node.expressions))
    if isinstance(node, exp.ToChar):
        return _formatted(exp.TimeToStr, node.this, node.args.get("format"))
    if isinstance(node, exp.WidthBucket):
        return _bucket(node)
    return None


def _named(name: str, arguments: list[exp.Expr]) -> exp.Expr | None:
    match name, arguments:
        case (("date_part" | "datepart"), [exp.Literal() as unit, of]) if unit.name.isalpha():
            return exp.Extract(this=exp.Var(this=unit.name.upper()), expression=of)
        case _, [of] if name in _PARTS:
            return exp.Extract(this=exp.Var(this=name.upper()), expression=of)
        case "to_date", [of, pattern]:
            instant = _formatted(exp.StrToTime, of, pattern)
            return None if instant is None else exp.cast(instant, "DATE")
    return None


def _formatted(kind: type[exp.Expr], of: exp.Expr, pattern: exp.Expr | None) -> exp.Expr | None:
    """A function with a format that is written out; None where a letter of it is not known."""
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return None
    tokens = list(_TOKEN.finditer(pattern.name))
    if not tokens or any(token.group(1) for token in tokens):
        return None
    shown = "".join(_FORMATS.get(token.group().upper(), token.group()) for token in tokens)
    return kind(this=of, format=exp.Literal.string(shown))


def _bucket(node: exp.WidthBucket) -> exp.Expr | None:
    """The bucket of a number among some of one width, 0 below them and one more above."""
    ends = [node.args[key] for key in ("min_value", "max_value", "num_buckets")]
    numbers = [number for each in ends if (number := _number(each)) is not None]
    if len(numbers) < len(ends) or not numbers[0] < numbers[1] or numbers[2] < 1:
        return None
    of, first, last, parts = (each.copy() for each in (node.this, *ends))
    share = exp.paren((exp.paren(of) - first) * parts) / exp.paren(last.copy() - first.copy())
    inside = exp.cast(exp.Floor(this=share), "BIGINT") + 1
    case = exp.Case(ifs=[], default=inside)
    case = case.when(exp.LT(this=of.copy(), expression=first.copy()), exp.Literal.number(0))
    above = exp.GTE(this=of.copy(), expression=last)
    return case.when(above, parts + 1).when(exp.Is(this=of.copy(), expression=exp.null()), "NULL")


def _number(node: exp.Expr | None) -> float | None:
    if isinstance(node, exp.Neg):
        value = _number(node.this)
        return None if value is None else -value
    is_number = isinstance(node, exp.Literal) and not node.is_string
    return float(node.name) if is_number and node is not None else None
