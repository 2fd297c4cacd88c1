"""Substitutes for an aggregate of rows that is not answered."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.errors import printable
from dpsql.sql.rewrites.lists import MAX_QUANTILES
from dpsql.sql.scope import Scope
from dpsql.sql.shell.language import EACH_COLUMN

Answers = Callable[[exp.Expr], bool]
"""True if another aggregate would be answered."""

WORKS = (
    "COUNT, SUM, AVG, VAR_POP, VAR_SAMP, STDDEV, CORR, MEDIAN, QUANTILE_CONT, QUANTILE_DISC, MODE"
)
_ALL = f"{WORKS} work"
_FIRSTS = (exp.AnyValue, exp.First, exp.Last)
_LISTS = (exp.ArrayAgg, exp.ArrayUniqueAgg, exp.GroupConcat)
_COUNTED = {"histogram", "histogram_exact", "listagg"}
_FIRST = {"arbitrary", "first_value"}


def instead_of(scope: Scope, answers: Answers, node: exp.Expr) -> str:
    """The hint of an aggregate that is refused; what it says would be answered here."""
    called = str(node.this).lower() if isinstance(node, exp.AnonymousAggFunc) else ""
    of = _argument(node)
    text = None if of is None else _text(scope, of)
    if node.find(exp.Columns) is not None:
        return EACH_COLUMN
    if isinstance(node, exp.ApproxQuantiles):
        return f"APPROX_QUANTILES(x, 4): a whole number up to {MAX_QUANTILES}"
    if isinstance(node, exp.LogicalAnd | exp.LogicalOr):
        works = of is None or answers(exp.CountIf(this=of.copy()))
        return (
            f"one row decides it; COUNT_IF({text or 'x'}) {'works' if works else 'needs a domain'}"
        )
    if isinstance(node, exp.Min | exp.Max):
        return _of_extreme(scope, answers, node)
    if isinstance(node.this, exp.Distinct) and not isinstance(node, _LISTS):
        return _of_distinct(scope, answers, node)
    if of is None or text is None:
        return _ALL
    if isinstance(node, _FIRSTS) or called in _FIRST:
        works = answers(exp.Mode(this=of.copy()))
        return f"one row decides it; MODE({text}) works" if works else _ALL
    counts = f"SELECT {text}, COUNT(*) ... GROUP BY {text}"
    if isinstance(node, exp.ApproxTopK):
        return f"{counts} ORDER BY 2 DESC LIMIT 3 works"
    if isinstance(node, _LISTS) or called in _COUNTED:
        return f"{counts} works: a row for every declared value"
    quantiles = exp.PercentileCont(this=of.copy(), expression=exp.Literal.number("0.25"))
    if called in ("mad", "reservoir_quantile") and answers(quantiles):
        return f"QUANTILE_CONT({text}, [0.25, 0.5, 0.75]) works"
    return _ALL


def _of_extreme(scope: Scope, answers: Answers, node: exp.Expr) -> str:
    """The quantile that answers nearly what MIN or MAX asks of the same argument."""
    place = exp.Literal.number("0.05" if isinstance(node, exp.Min) else "0.95")
    columns = list(node.find_all(exp.Column))
    if columns and all(map(scope.is_public, columns)):
        groups = f"SELECT DISTINCT {_text(scope, node.this)} AS x FROM ..."
        decides = "it is over the public rows that private ones meet: one row decides it"
        return f"{decides}; {type(node).__name__.upper()}(x) FROM ({groups}) works, by noisy counts"
    decides = "one row decides it"
    for value in (node.this, *columns) if columns else ():
        quantile = exp.PercentileDisc(this=value.copy(), expression=place)
        if answers(quantile):
            text = _text(scope, value)
            return f"{decides}; QUANTILE_DISC({text}, {place.name}) works"
    named = f" of {printable(columns[0].name)}" if columns else ""
    return f"{decides}; a quantile needs a domain (or bins){named} in the catalog"


def _of_distinct(scope: Scope, answers: Answers, node: exp.Expr) -> str:
    """The aggregates that work near one of distinct values."""
    unit, listed = scope.table.unit.column, node.this.expressions
    if not listed:
        return _ALL
    if not isinstance(node, exp.Count):
        plain = type(node)(this=listed[0].copy())
        text = printable(plain.sql("duckdb", comments=False))
        return f"{text} works" if answers(plain) else _ALL
    columns = [each for part in listed for each in part.find_all(exp.Column)]
    others = list(dict.fromkeys(each.name for each in columns if each.name.isidentifier()))
    if unit is not None and any(each.casefold() == unit.casefold() for each in others):
        keys = ", ".join(each for each in others if each.casefold() != unit.casefold())
        counted = f"SELECT {keys}, COUNT(DISTINCT {unit}) AS n ... GROUP BY {keys}"
        return f"SELECT SUM(n) FROM ({counted}) AS g works" if keys else _unit(unit)
    if len(others) > 1:
        bare = [each for each in others if not _has_cells(scope, each)]
        if bare:
            return f"declare a domain (or bins) for {' and '.join(bare)} in the catalog"
        keys = "a, b" if any(map(_is_inlined, columns)) else ", ".join(others)
        groups = f"SELECT {keys} ... GROUP BY {keys} HAVING COUNT(*) > 10"
        return f"SELECT COUNT(*) FROM ({groups}) AS g works"
    return "one row is one unit: COUNT(*) works" if unit is None else _unit(unit)


def _has_cells(scope: Scope, name: str) -> bool:
    """Say whether a column can be a key, if the table has it; others are named by sub-queries."""
    column = scope.table.columns.get(name.casefold())
    return column is None or column.domain is not None


def _unit(column: str) -> str:
    return f"COUNT(DISTINCT {column}) works"


def _argument(node: exp.Expr) -> exp.Expr | None:
    """The argument of an aggregate."""
    of = node.this
    if isinstance(node, exp.AnonymousAggFunc):
        of = next(iter(node.expressions), None)
    while isinstance(of, exp.Order | exp.Distinct):
        of = of.this if isinstance(of, exp.Order) else next(iter(of.expressions), None)
    return of if isinstance(of, exp.Expr) and of.find(exp.Column) is not None else None


def _text(scope: Scope, node: exp.Expr) -> str:
    """A part as its author would write it."""
    if isinstance(node, exp.Column):
        at = scope.locate(node)
        name = at.text[at.start : at.end]  # of a column of a sub-query this is the user's
        return name if name.isidentifier() else printable(node.sql("duckdb", comments=False))
    inlined = any(map(_is_inlined, node.find_all(exp.Column)))
    return "expression" if inlined else printable(node.sql("duckdb", comments=False))


def _is_inlined(column: exp.Column) -> bool:
    """True if a column stands for one of a sub-query, which its author calls otherwise."""
    table = column.args.get("table")
    return table is not None and bool(table.args.get("quoted"))
