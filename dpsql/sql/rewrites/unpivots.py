"""UNPIVOT as a union: a row for every column that is named, with its name and its value.

What is turned is read once, whatever it costs to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.sql.shell.language import Locate, refuse

_SOURCE = "unpivoted"
_WORKS = "UNPIVOT (SELECT ...) ON a, b INTO NAME which VALUE n"


ColumnsOf = Callable[[exp.Expr], Sequence[exp.Expr]]
"""The columns that ``*`` or the argument of ``COLUMNS`` asks for."""


def unpivoted(
    node: exp.Pivot, source: exp.Expr, columns_of: ColumnsOf, locate: Locate
) -> exp.Query:
    """The union that an UNPIVOT of ``source`` is.

    Raises: NotSupportedError (E_STATEMENT) for more than one value a row.
    """
    name, value, columns = _parts(node, columns_of, locate)
    hidden = [exp.column(column.name, quoted=True) for column, _ in columns]
    selects: list[exp.Query] = [
        _select(column, shown, name, value, hidden, bool(node.args.get("include_nulls")))
        for column, shown in columns
    ]
    found = selects[0]
    for select in selects[1:]:
        found = exp.Union(this=found, expression=select, distinct=False)
    whole = exp.Select(expressions=[exp.Star()], from_=exp.From(this=source.copy()))
    alias = exp.TableAlias(this=exp.to_identifier(_SOURCE))
    found.set("with_", exp.With(expressions=[exp.CTE(this=whole, alias=alias)]))
    return found


def _parts(
    node: exp.Pivot, columns_of: ColumnsOf, locate: Locate
) -> tuple[str, str, Sequence[tuple[exp.Column, exp.Expr]]]:
    """The name of the column of names, that of the values, and the columns with their names."""
    fields, into = node.args.get("fields") or [], node.args.get("into")
    name, value, listed = "name", "value", node.expressions
    if fields:
        named = node.expressions
        if len(fields) > 1 or len(named) != 1:
            refuse(node, "E_STATEMENT", "UNPIVOT of several values a row", _WORKS, locate)
        name, value, listed = fields[0].this.name, named[0].name, fields[0].expressions
    elif into is not None:
        values = into.expressions
        if len(values) != 1:
            refuse(node, "E_STATEMENT", "UNPIVOT of several values a row", _WORKS, locate)
        name, value = into.this.name, values[0].name
    columns = []
    asked = [each for part in listed for each in (columns_of(part) if _is_asked(part) else [part])]
    for each in asked:
        inner = each.this if isinstance(each, exp.Alias | exp.PivotAlias) else each
        if not isinstance(inner, exp.Column) or isinstance(inner.this, exp.Star):
            refuse(node, "E_STATEMENT", "UNPIVOT of what is no column", _WORKS, locate)
        columns.append((inner, each.args["alias"] if inner is not each else inner))
    return name, value, columns


def _is_asked(node: exp.Expr) -> bool:
    """True if it asks for columns otherwise than by the name of one."""
    return isinstance(node, exp.Columns) or node.is_star


def _select(
    column: exp.Column,
    shown: exp.Expr,
    name: str,
    value: str,
    hidden: Sequence[exp.Expr],
    has_nulls: bool,
) -> exp.Select:
    """The rows of one column."""
    rest = exp.Star(except_=[each.copy() for each in hidden])
    items = [
        rest,
        exp.alias_(exp.Literal.string(shown.name), name, quoted=True),
        exp.alias_(column.copy(), value, quoted=True),
    ]
    table = exp.Table(this=exp.to_identifier(_SOURCE))
    found = exp.Select(expressions=items, from_=exp.From(this=table))
    if not has_nulls:
        test = exp.Not(this=exp.Is(this=column.copy(), expression=exp.null()))
        found.set("where", exp.Where(this=test))
    return found
