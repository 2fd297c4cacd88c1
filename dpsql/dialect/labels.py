"""Names that PostgreSQL gives columns without one.

Source: ``FigureColname`` of PostgreSQL's parser, as the results of statements show it.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.dialect.types import written

UNNAMED = "?column?"
_RENAMED = {"trim": "btrim", "date_part\x01": "date_part", "div\x01": "div"}
"""Functions that PostgreSQL knows by another name than the one that they are called by."""
_WORDS = {
    exp.Case: "case",
    exp.Array: "array",
    exp.Exists: "exists",
    exp.Coalesce: "coalesce",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Nullif: "nullif",
    exp.Grouping: "grouping",
    exp.AtTimeZone: "timezone",
    exp.Extract: "extract",
    exp.RowNumber: "row_number",
    exp.StrPosition: "position",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "now",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.GroupConcat: "string_agg",
    exp.WidthBucket: "width_bucket",
    exp.Overlay: "overlay",
    exp.Trim: "btrim",
}


def label(item: exp.Expr, text: str) -> str:
    """The name of a column: its alias, else what stands for it in the ``text`` of the statement.

    >>> from sqlglot import parse_one
    >>> for sql in ("SELECT a.B", "SELECT Stddev(x)", "SELECT x::int", "SELECT 1"):
    ...     label(parse_one(sql, read="postgres").expressions[0], sql)
    'b'
    'stddev'
    'x'
    '?column?'
    """
    return _named(item, text)[0]


def _named(node: exp.Expr, text: str) -> tuple[str, int]:
    """The name of an expression, and how much it is one: types of casts give way to others."""
    match node:
        case exp.Alias():
            return _identifier(node.args["alias"]), 2
        case exp.Column():
            return _identifier(node.this), 2
        case exp.Dot():
            return _identifier(node.expression), 2
        case exp.Paren() | exp.Window() | exp.Filter() | exp.WithinGroup() | exp.Collate():
            return _named(node.this, text)
        case exp.IgnoreNulls() | exp.Bracket() | exp.Order():
            return _named(node.this, text)
        case exp.Cast():
            name, strength = _named(node.this, text)
            known = written(node.to) or node.to.sql("postgres").lower()
            return (name, strength) if strength > 1 else (known.removesuffix("[]"), 1)
        case exp.Case():
            default = node.args.get("default")
            name, strength = ("", 0) if default is None else _named(default, text)
            return (name, strength) if strength > 1 else ("case", 1)
        case exp.Interval():
            return "interval", 1
        case exp.Subquery() if isinstance(node.this, exp.Select) and node.this.expressions:
            return _named(node.this.expressions[0], text)
        case (
            exp.Any() | exp.All() | exp.Between() | exp.In() | exp.RegexpLike() | exp.RegexpILike()
        ):
            return UNNAMED, 0
        case exp.Func() | exp.Mod() if "start" in node.meta or not isinstance(node, exp.Binary):
            return _called(node, text), 2
    return (_WORDS[type(node)], 2) if type(node) in _WORDS else (UNNAMED, 0)


def _identifier(node: exp.Expr | str) -> str:
    if isinstance(node, str):
        return node
    return node.name if getattr(node, "quoted", False) else node.name.lower()


def _called(node: exp.Expr, text: str) -> str:
    """The word that a function is called by, as the parser remembers its place."""
    start, end = node.meta.get("start"), node.meta.get("end")
    if start is not None and end is not None and text[start : end + 1].replace("_", "a").isalnum():
        called = text[start : end + 1].lower()
        return _RENAMED.get(called, called)
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return _RENAMED.get(str(node.this).lower(), str(node.this).lower())
    return _WORDS.get(type(node)) or (
        node.sql_name().lower() if isinstance(node, exp.Func) else node.key
    )
