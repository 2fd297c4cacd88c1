"""Functions of dates and numbers as other databases spell them, written as DuckDB knows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp, parse_one

from dpsql.logical.functions import find, has
from dpsql.sql.dialects.dialect_signatures import read_function
from dpsql.sql.rewrites.tree_parts import NodeLimit, size_of

_REPEATING = (exp.Anonymous, exp.Window, exp.WidthBucket)
"""Functions that may be written as others which repeat their arguments."""
_TYPES = {"FLOAT64": "DOUBLE", "BYTEINT": "TINYINT"}
"""Types by names of other databases that DuckDB has not."""
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
"""Patterns of TO_CHAR and TO_DATE in strftime's letters; names are shown as strftime shows them."""
_TOKEN = re.compile("|".join(sorted(_FORMATS, key=len, reverse=True)) + r"|[^A-Za-z%]|(.)", re.I)


def respell_all(nodes: Sequence[exp.Expr], room: NodeLimit) -> None:
    """Write every function among the nodes of a tree as DuckDB calls it, in place.

    ``nodes`` have each after those that it is within; arguments are written before functions.
    Each repeats its arguments a few times at most, so that what is too long is seen in time.
    Raises: ProgrammingError (E_TOO_COMPLEX).
    """
    for node in reversed(nodes):
        is_repeating = isinstance(node, _REPEATING)
        before = size_of(node) if is_repeating else 0
        spelled = respell(node)
        if spelled is not None:
            room.take(size_of(spelled) - before if is_repeating else 0)
            spelled.meta.update({**node.meta, **spelled.meta})  # where it stands
            node.replace(spelled)


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
        called = str(node.this).lower(), list(node.expressions)
        return _spelled(node) or _named(*called) or read_function(*called)
    if isinstance(node, exp.Window):
        return _share(node)
    if isinstance(node, exp.Extract) and node.name.upper() == "ISOWEEK":
        return exp.Extract(this=exp.Var(this="WEEK"), expression=node.expression)
    if isinstance(node, exp.Nvl2):
        test = exp.Not(this=exp.Is(this=exp.paren(node.this), expression=exp.null()))
        return exp.If(this=test, true=node.args["true"], false=node.args.get("false"))
    if isinstance(node, exp.ToChar):
        return _formatted(exp.TimeToStr, node.this, node.args.get("format"))
    if (
        isinstance(node, exp.TimeToStr)
        and _is_text(node.this)
        and not _is_text(node.args["format"])
    ):
        return exp.TimeToStr(this=node.args["format"], format=node.this)
    if isinstance(node, exp.WidthBucket):
        return _bucket(node)
    if isinstance(node, exp.Count) and node.this is None and not node.expressions:
        return exp.Count(this=exp.Star(), big_int=True)
    if isinstance(node, exp.SafeDivide):
        never = exp.Nullif(this=node.expression, expression=exp.Literal.number(0))
        return exp.paren(exp.Div(this=exp.paren(node.this), expression=never), copy=False)
    if isinstance(node, exp.ApproxDistinct) and not node.args.get("accuracy"):
        return exp.Count(this=exp.Distinct(expressions=[node.this]), big_int=True)
    if isinstance(node, exp.Date) and node.this is not None and not node.args.get("zone"):
        return None if node.expressions else exp.cast(node.this, "DATE")
    if isinstance(node, exp.DataType) and node.this == exp.DType.USERDEFINED:
        known = _TYPES.get(str(node.args.get("kind")).upper())
        return None if known is None else exp.DataType.build(known, dialect="duckdb")
    return None


def _spelled(node: exp.Anonymous) -> exp.Expr | None:
    """Return DuckDB's name of a function of another database, by the table of functions."""
    known, name = find(node), str(node.this).lower()
    if known is None or known.spelled is None or len(node.expressions) != len(known.arguments):
        is_aggregate = has(node, "aggregate")
        aggregate = exp.AnonymousAggFunc(this=name, expressions=node.expressions)
        return aggregate if is_aggregate else None
    given = dict(zip(sorted(known.arguments), node.expressions, strict=True))
    tree = parse_one(known.spelled, read="duckdb")
    tree = exp.paren(tree, copy=False) if isinstance(tree, exp.Binary) else tree
    found: exp.Expr = tree.transform(
        lambda n: given[n.name].copy() if isinstance(n, exp.Column) else n, copy=False
    )
    return found


def _named(name: str, arguments: list[exp.Expr]) -> exp.Expr | None:
    match name, arguments:
        case (("date_part" | "datepart"), [exp.Literal() as unit, of]) if unit.name.isalpha():
            return exp.Extract(this=exp.Var(this=unit.name.upper()), expression=of)
        case "to_date", [of, pattern]:
            instant = _formatted(exp.StrToTime, of, pattern)
            return None if instant is None else exp.cast(instant, "DATE")
    return None


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _share(node: exp.Window) -> exp.Expr | None:
    """RATIO_TO_REPORT, a value over the sum of all values of its partition."""
    called = node.this
    if not isinstance(called, exp.Anonymous) or str(called.this).lower() != "ratio_to_report":
        return None
    if len(called.expressions) != 1 or node.args.get("order") or node.args.get("spec"):
        return None
    (of,) = called.expressions
    window = node.copy()
    window.set("this", exp.Sum(this=of.copy()))
    return exp.paren(exp.Div(this=exp.paren(of), expression=window), copy=False)


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
    ends = [node.args.get(key) for key in ("min_value", "max_value", "num_buckets")]
    numbers = [number for each in ends if (number := _number(each)) is not None]
    if len(numbers) < len(ends) or not numbers[0] < numbers[1] or numbers[2] < 1:
        return None
    of, first, last, parts = (each.copy() for each in (node.this, *ends) if each is not None)
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
