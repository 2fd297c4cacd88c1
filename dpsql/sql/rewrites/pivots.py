"""PIVOT as a SELECT: an aggregate with FILTER for every value of the pivoted columns.

Which values there are is declared, never read from rows: an expression over one column of a table
is spread over its values on the domain, and anything else over the values that are listed.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Sequence
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.catalog import Column, Table
from dpsql.errors import Error, ProgrammingError
from dpsql.logical.bind.subqueries import SubqueryBinder
from dpsql.sql.cells.evaluate import Evaluator, Operand
from dpsql.sql.query import Expression
from dpsql.sql.relations import as_literal
from dpsql.sql.rewrites.unpivots import unpivoted
from dpsql.sql.shell.language import Locate, check_scalar, refuse
from dpsql.sql.text.parse import MAX_COLUMNS

_LISTED = "list the values: ON column IN ('x', 'y')"

Value = tuple[str, exp.Expr]
"""A value of a pivoted column: the name that its columns have, and the test of a row."""


def write_out_pivots(
    tree: exp.Expr, binder: SubqueryBinder, evaluator: Evaluator, locate: Locate
) -> exp.Expr:
    """A query whose PIVOTs, as statements or behind a table, are written as SELECTs.

    Raises: NotSupportedError (E_STATEMENT); ProgrammingError (E_TOO_LARGE, E_GROUP_BY); what is
    wrong about its source.
    """
    tree = tree.copy()
    for node in reversed(list(tree.find_all(exp.Pivot))):
        turned = bool(node.args.get("unpivot"))
        if node.arg_key != "pivots":
            source = node.this
            spread = _Spread(node, source, binder, evaluator, locate)
            node.replace(spread.unpivoted() if turned else spread.select())
            continue
        around = node.parent
        assert around is not None
        if len(around.args["pivots"]) > 1:
            refuse(node, "E_STATEMENT", "a second PIVOT", "PIVOT a sub-query", locate)
        source = around.copy()
        source.set("pivots", None)
        spread = _Spread(node, source, binder, evaluator, locate)
        select = spread.unpivoted() if turned else spread.select()
        around.replace(exp.Subquery(this=select, alias=node.args.get("alias")))
    return tree


class _Spread:
    """One PIVOT of the rows of ``source``."""

    def __init__(
        self,
        node: exp.Pivot,
        source: exp.Expr,
        binder: SubqueryBinder,
        evaluator: Evaluator,
        locate: Locate,
    ) -> None:
        self.node = node
        self.source = source
        self.locate = locate
        try:
            self.inside = binder.element(source, node)
        except Error as error:
            raise type(error)(
                error.code, error.message, hint=error.hint, span=locate(source)
            ) from None
        self.evaluator = evaluator
        standard = bool(node.args.get("fields"))
        self.over = node.args["fields"] if standard else node.expressions
        self.span = locate(node)
        self.using = node.expressions if standard else node.args.get("using") or []

    def select(self) -> exp.Select:
        """The keys, and an aggregate for every combination of values."""
        if not self.over:
            hint = "PIVOT t ON b USING COUNT(*) GROUP BY c"
            self.wrong("E_STATEMENT", "PIVOT ON nothing is not supported", hint)
        values = [self.values(each) for each in self.over]
        if math.prod(map(len, values)) * max(len(self.using), 1) > MAX_COLUMNS:
            self.wrong("E_TOO_LARGE", f"PIVOT makes over {MAX_COLUMNS:,} columns", _LISTED)
        spread = list(itertools.product(*values))
        items = [self.cell(each, using) for each in spread for using in self.using or [None]]
        keys = self.keys()
        found = exp.Select(expressions=[*(key.copy() for key in keys), *items])
        found.set("from_", exp.From(this=self.source.copy()))
        if keys:
            found.set("group", exp.Group(expressions=[key.copy() for key in keys]))
        return found

    def unpivoted(self) -> exp.Query:
        """A row for every column that is named."""
        return unpivoted(self.node, self.source, self.asked, self.locate)

    def asked(self, node: exp.Expr) -> Sequence[exp.Expr]:
        """The columns that ``*`` or ``COLUMNS`` stands for."""
        from dpsql.sql.rewrites.columns_items import columns_asked  # few are asked for so

        names = self.names()
        if names is None:
            hint = "UNPIVOT t ON a, b INTO NAME which VALUE n"
            self.wrong("E_STATEMENT", "UNPIVOT of columns that nobody names is not supported", hint)
        inner = node.this if isinstance(node, exp.Columns) else node
        return columns_asked(inner, names, self.evaluator, self.locate)

    def keys(self) -> list[exp.Expr]:
        """The keys of GROUP BY; all columns that are not used otherwise where it is left out."""
        group = self.node.args.get("group")
        if group is not None:
            return list(group.expressions)
        parts = itertools.chain(self.over, self.using)
        used = {c.name.casefold() for part in parts for c in part.find_all(exp.Column)}
        names = self.names()
        rest = [name for name in names or [] if name.casefold() not in used]
        if names is None or not all(map(self.is_key, rest)):
            hint = "PIVOT t ON b USING COUNT(*) GROUP BY c"
            self.wrong("E_GROUP_BY", "PIVOT of this without GROUP BY is not supported", hint)
        return [exp.column(name, quoted=True) for name in rest]

    def names(self) -> list[str] | None:
        """The names of the columns of the source; None where it is not bound."""
        if self.inside is None:
            return None
        return [each.name for _, each in self.inside.scope.visible() if not each.hidden]

    def is_key(self, name: str) -> bool:
        """True if a column can be grouped by, as far as its table says."""
        found = None if self.inside is None else self.inside.worked_out(exp.column(name))
        return found is None or found[0].public or found[1].domain is not None

    def values(self, over: exp.Expr) -> list[Value]:
        """The values of a pivoted column: those listed, or all that are declared."""
        if isinstance(over, exp.In) and over.expressions:
            return [_listed(over.this, each) for each in over.expressions]
        found_in = None if self.inside is None else self.inside.worked_out(over)
        if found_in is None or found_in[0].public or found_in[1].domain is None:
            self.wrong("E_DOMAIN", "PIVOT over values that nobody listed", _LISTED)
        known = sorted(self.declared(*found_in))
        found = [(_text(value), as_literal(value)) for value in known]
        tests = ((text, literal) for text, literal in found if literal is not None)
        return [(text, exp.EQ(this=over.copy(), expression=each)) for text, each in tests]

    def declared(self, table: Table, column: Column, tree: exp.Expr) -> set[Any]:
        """The values of an expression over ``v`` on the declared values of a column."""
        if isinstance(tree.unnest(), exp.Column):
            return {value for value in column.cells if value is not None}
        check_scalar(tree, self.locate)
        place = Expression(column.name.casefold(), tree.sql("duckdb", comments=False), self.span)
        found = self.evaluator.values(Operand(table.name.casefold(), column), place)[1]
        return {value for value in found if value is not None}

    def cell(self, values: Sequence[Value], using: exp.Expr | None) -> exp.Expr:
        """One column: an aggregate of the rows with these values."""
        test = exp.and_(*(test.copy() for _, test in values))
        name = "_".join(text for text, _ in values)
        if using is None:
            using = exp.Count(this=exp.Star(), big_int=True)
        elif using.alias or len(self.using) > 1:
            name += f"_{using.alias or _written(using)}"
        return exp.alias_(_filtered(using.unalias().copy(), test), name, quoted=True)

    def wrong(self, code: str, what: str, hint: str) -> NoReturn:
        raise ProgrammingError(code, what, hint=hint, span=self.span)


def _filtered(tree: exp.Expr, test: exp.Expr) -> exp.Expr:
    """An expression whose aggregates are of the rows that pass a test."""
    if isinstance(tree, exp.Filter):
        both = exp.And(this=exp.paren(tree.expression.this), expression=test.copy())
        return exp.Filter(this=tree.this, expression=exp.Where(this=both))
    if isinstance(tree, exp.AggFunc | exp.WithinGroup):
        return exp.Filter(this=tree, expression=exp.Where(this=test.copy()))
    for part in list(tree.iter_expressions()):
        part.replace(_filtered(part.copy(), test))
    return tree


def _listed(over: exp.Expr, value: exp.Expr) -> Value:
    """A value as it is listed, under its alias if it has one."""
    inner = value.this if isinstance(value, exp.Alias | exp.PivotAlias) else value
    named = value.args.get("alias") if inner is not value else None
    text = named.name if isinstance(named, exp.Expr) else _text(inner.name)
    if isinstance(inner, exp.Boolean):
        text = text if named is not None else _text(bool(inner.this))
    elif not isinstance(inner, exp.Literal | exp.Cast) and named is None:
        text = inner.sql("duckdb")
    return text, exp.EQ(this=over.copy(), expression=inner.copy())


def _text(value: object) -> str:
    """A value as DuckDB names a column after it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat(sep=" ") if isinstance(value, dt.datetime) else str(value) or "''"


def _written(using: exp.Expr) -> str:
    """An aggregate as DuckDB names a column after it."""
    return using.sql("duckdb", comments=False).lower().replace("count(*)", "count_star()")
