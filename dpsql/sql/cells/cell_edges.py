"""Expressions against declared domains: texts are declared values, cuts fall on cell edges.

A predicate is evaluated on one representative of each cell. For unit cells that is the value
itself. For bins and calendar periods, days included, it is exact only when the predicate cannot
split a cell, which these checks make sure of.
"""

from __future__ import annotations

import bisect
import contextlib
import datetime as dt
import difflib
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.catalog.domain import Bins, Labels, Periods, Spans, Times, Values
from dpsql.errors import ProgrammingError, printable
from dpsql.logical.functions import MIRRORED, find, has
from dpsql.sql.relations import PUBLIC
from dpsql.sql.shell.language import Locate

if TYPE_CHECKING:
    from dpsql.sql.cells.cell_constants import Same

SHOWN = 12
"""Edges of bins that a hint lists."""
_COARSER = {
    "day": ("day", "month", "year"),
    "week": ("week",),
    "month": ("month", "quarter", "year"),
    "quarter": ("quarter", "year"),
    "year": ("year",),
}
_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren)
_TESTS = (exp.Predicate, exp.Connector, exp.Not)
_DAYS = {
    *("era", "millennium", "century", "decade", "year", "isoyear", "quarter", "month", "yearweek"),
    *("week", "weekofyear", "day", "dayofmonth", "dow", "dayofweek", "weekday", "isodow"),
    *("doy", "dayofyear"),
}
"""The units of date_trunc and EXTRACT that a day determines."""

_WHOLE_STEPS = {"day", "week", "month", "quarter", "year", "decade", "century", "millennium"}
_INSTANT = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
_TIME = re.compile(r"\s*[+-]?\d{1,6}-\d{1,2}-\d{1,2}[ T]+(.*)", re.DOTALL)


def check_literals(
    column: Column, tree: exp.Expr, locate: Locate, is_public: Callable[[exp.Column], bool]
) -> None:
    """Refuse a text literal compared with a text column whose declared values lack it.

    What is compared with columns of public rows, or comes from them, need not be declared.
    Raises: ProgrammingError (E_NOT_IN_DOMAIN) with the nearest declared values.
    """
    if column.type != "text" or not isinstance(column.domain, Values):
        return
    declared = [str(value) for value in column.cells if value is not None]
    for literal in _compared(tree, is_public):
        if not isinstance(literal, exp.Literal) or literal.meta.get(PUBLIC):
            continue
        if literal.is_string and literal.name not in declared:
            if isinstance(column.domain, Labels):
                _check_code(column, column.domain, literal, locate)
            folded = {value.casefold(): value for value in declared}
            near = difflib.get_close_matches(literal.name.casefold(), list(folded), n=3, cutoff=0.4)
            shown = [folded[key] for key in near] or declared[:10]
            intro = "nearest declared values" if near else "declared values"
            raise ProgrammingError(
                "E_NOT_IN_DOMAIN",
                f"{printable(literal.name)!r} is not a declared value of {column.name}",
                hint=f"{intro}: {', '.join(map(repr, shown))}",
                span=locate(literal),
            )


def undeclared(
    column: Column, tree: exp.Expr, is_public: Callable[[exp.Column], bool]
) -> tuple[str, ...]:
    """The numbers and days, as written, that the bare column is compared with and cannot hold."""
    kinds = ("integer", "number", "decimal", "date")
    if isinstance(column.domain, Bins) or column.type not in kinds:
        return ()
    sides = [side for side in _compared(tree, is_public) if not side.meta.get(PUBLIC)]
    known = set(column.cells) if sides else set()
    found: dict[str, None] = {}
    for side in sides:
        value = _constant(side)
        if value is not None and value not in known:
            found[side.sql("duckdb", comments=False)] = None
    return tuple(found)


def _compared(tree: exp.Expr, is_public: Callable[[exp.Column], bool]) -> Iterator[exp.Expr]:
    """The sides, none with columns, that are compared for equality with the bare column."""
    for node in tree.find_all(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In):
        if isinstance(node, exp.In):
            sides, bare = list(node.expressions), node.this
        else:
            left, right = node.this, node.expression
            bare, sides = (left, [right]) if _is_bare(left) else (right, [left])
        bare = bare.unnest()
        if isinstance(bare, exp.Column) and not is_public(bare):
            yield from (side for side in sides if not side.find(exp.Column))


def _check_codes(column: Column, domain: Labels, tree: exp.Expr, locate: Locate) -> None:
    """Refuse numbers that the bare column is compared with, which may be codes of its labels."""
    for node in tree.find_all(exp.Binary, exp.In, exp.Between, exp.Case):
        cases = [each.this for each in node.args.get("ifs") or ()]
        others = (node.args.get(name) for name in ("this", "expression", "low", "high"))
        sides = [each for each in (*others, *node.expressions, *cases) if each is not None]
        if any(map(_is_bare, sides)):
            for each in sides:
                _check_code(column, domain, each, locate)


def _check_code(column: Column, domain: Labels, written: exp.Expr, locate: Locate) -> None:
    """Refuse a code with its label. Raises: ProgrammingError (E_NOT_IN_DOMAIN)."""
    text = written.name if isinstance(written, exp.Literal) else written.sql("duckdb")
    codes = [str(each) for each in domain.codes]
    if text in codes and text not in domain.values:
        label = printable(str(domain.representatives[codes.index(text)]))
        raise ProgrammingError(
            "E_NOT_IN_DOMAIN",
            f"{printable(text)} is a code of {column.name}, of which statements see labels",
            hint=f"write {label!r} in its place, or CODE({printable(column.name)})",
            span=locate(written),
        )


def check_edges(
    column: Column, tree: exp.Expr, locate: Locate, same: Same, *, grouping: bool = False
) -> None:
    """Refuse an expression that would cut through a cell of a binned or calendar column.

    A column alone is a key of its cells. Raises: ProgrammingError (E_BIN_EDGE).
    """
    domain = column.domain
    if isinstance(domain, Labels):
        _check_codes(column, domain, tree, locate)
    if is_daily(column):
        assert isinstance(domain, Periods)
        _check_days(column, domain, tree, locate)
    elif isinstance(domain, Bins | Periods) and not (grouping and _is_bare(tree)):
        if isinstance(tree.unnest(), _TESTS) and _are_known_cuts(column, tree):
            return

        def refused(node: exp.Expr) -> NoReturn:
            capped = _below_top(column, domain, tree)
            if capped is not None and _is_steady(column, capped, same):
                raise _refuse_top(column, tree, capped, locate)
            raise _refuse(column, domain, node, locate)

        from dpsql.sql.cells.cell_constants import CellConstantCheck  # few cut through cells

        CellConstantCheck(column, same, refused).check(tree)


class _CutError(Exception):
    """An expression differs within a cell."""


def _is_steady(column: Column, tree: exp.Expr, same: Same) -> bool:
    """True if an expression has one value on every cell of a column."""

    def refused(_: exp.Expr) -> NoReturn:
        raise _CutError

    from dpsql.sql.cells.cell_constants import CellConstantCheck

    with contextlib.suppress(_CutError):
        CellConstantCheck(column, same, refused).check(tree)
        return True
    return False


def _below_top(column: Column, domain: Bins | Periods, tree: exp.Expr) -> exp.Expr | None:
    """An expression that on the last bin has the value of its lower edge: that holds both ends.

    FLOOR(x / 10) begins a new group at the upper edge of the last bin, of that one value.
    """
    if not isinstance(domain, Bins) or tree.find(exp.Predicate, exp.Case, exp.If):
        return None
    low = exp.Literal.number(domain.representatives[-1])
    own = exp.column(column.name)
    is_last = exp.GTE(this=own, expression=low)
    branch = exp.If(this=is_last, true=_with(tree, low))
    return exp.Case(ifs=[branch], default=_with(tree, own))


def _with(tree: exp.Expr, value: exp.Expr) -> exp.Expr:
    """An expression over one column with something else in its place."""
    return tree.copy().transform(lambda n: value.copy() if isinstance(n, exp.Column) else n)


def _refuse_top(
    column: Column, tree: exp.Expr, capped: exp.Expr, locate: Locate
) -> ProgrammingError:
    assert isinstance(column.domain, Bins)
    top = _edge_text(column.domain.edges[-1])
    what = f"the last bin of {printable(column.name)} holds its upper edge, {top}, too"
    return ProgrammingError(
        "E_BIN_EDGE",
        f"{what}: this would cut through it",
        hint=f"{capped.sql('duckdb', comments=False)} counts {top} with what is below",
        span=locate(tree),
    )


def is_daily(column: Column) -> bool:
    """True if the cells of a column are single days, each of which is one value."""
    domain = column.domain
    return isinstance(domain, Periods) and not isinstance(domain, Spans) and domain.unit == "day"


def _check_days(column: Column, domain: Periods, tree: exp.Expr, locate: Locate) -> None:
    """Refuse what depends on the time within a day."""
    for node in tree.walk():
        match node:
            case exp.Literal():
                fine = not node.is_string or _is_midnight(node.name)
            case exp.Interval():
                fine = _is_whole_step(node)
            case exp.Extract() | exp.TimestampTrunc() | exp.DateTrunc() | exp.DateDiff():
                fine = not node.find(exp.Column) or _unit_of(node) in _DAYS
            case exp.TimeToUnix():
                fine = not node.find(exp.Column)
            case exp.TimeToStr():
                from dpsql.sql.cells.cell_constants import part_of  # few write days as texts

                shown = part_of(node)
                fine = not node.find(exp.Column) or (shown is not None and shown[1] in _DAYS)
            case exp.Cast() if node.to.this in _INSTANT and node.find(exp.Column):
                fine = _reads_days(_around(node))
            case _ if (part := _part(node)) is not None:
                fine = part in _DAYS or not node.find(exp.Column)
            case _:
                continue
        if not fine:
            raise _refuse(column, domain, node, locate)


def _part(node: exp.Expr | None) -> str | None:
    """The unit of a calendar or clock that decides on what a function makes of a time."""
    known = None if node is None else find(node)
    return None if known is None else known.part


def _reads_days(node: exp.Expr | None) -> bool:
    """True if a function takes a day for the instant at which it begins."""
    return _part(node) in _DAYS or (node is not None and has(node, "reads_days"))


def _is_midnight(text: str) -> bool:
    """True if a text is no date with a time of day.

    >>> _is_midnight("2024-01-31"), _is_midnight("2024-01-31 12:00"), _is_midnight("x")
    (True, False, True)
    """
    found = _TIME.fullmatch(text)
    return found is None or not re.search(r"[1-9]", found.group(1))


def _is_whole_step(node: exp.Interval) -> bool:
    """True if an interval is a whole number of days or longer periods, added or taken away."""
    unit = node.args.get("unit")
    named = "" if unit is None else str(unit.name).lower().rstrip("s")
    amount = node.this
    whole = not isinstance(amount, exp.Literal) or bool(re.fullmatch(r"\s*\d+\s*", amount.name))
    return (
        whole
        and named in _WHOLE_STEPS
        and (around := _around(node)) is not None
        and has(around, "shift")
    )


def _around(node: exp.Expr) -> exp.Expr | None:
    """The node around a node, parentheses aside."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _is_bare(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), exp.Column)


def _are_known_cuts(column: Column, tree: exp.Expr) -> bool:
    """True if a condition is of comparisons of the column with edges of its bins alone."""
    tree = tree.unnest()
    if isinstance(tree, _LOGIC):
        return all(_are_known_cuts(column, part) for part in tree.iter_expressions())
    if type(tree) not in MIRRORED or not isinstance(column.domain, Bins):
        return False
    operator, bound = type(tree), tree.expression
    if _is_bare(bound):
        operator, bound = MIRRORED[operator], tree.this
    elif not _is_bare(tree.this):
        return False
    value = _constant(bound)
    inner = column.domain.edges[1:-1]
    return operator in (exp.LT, exp.GTE) and isinstance(value, Fraction) and value in inner


def _unit_of(tree: exp.Expr) -> str:
    """The unit that EXTRACT, date_trunc or date_diff names."""
    unit = tree.this if isinstance(tree, exp.Extract) else tree.args["unit"]
    return str(unit.name).lower()


def _constant(tree: exp.Expr) -> Fraction | dt.date | None:
    tree = tree.unnest()
    if isinstance(tree, exp.Neg):
        value = _constant(tree.this)
        return -value if isinstance(value, Fraction) else None
    if isinstance(tree, exp.Cast):
        tree = tree.this
    if not isinstance(tree, exp.Literal):
        return None
    try:
        if tree.is_string and _is_midnight(tree.name):
            return dt.date.fromisoformat(tree.name[:10])
        return None if tree.is_string else Fraction(tree.name)
    except ValueError:
        return None


def _refuse(
    column: Column, domain: Bins | Periods, node: exp.Expr, locate: Locate
) -> ProgrammingError:
    _refuse_other_kind(node, domain, locate)
    if is_daily(column):
        hint = f"the cells of {column.name} are days: compare it with a DATE"
    elif isinstance(domain, Periods):
        hint = _whole_days(column, domain, node) or _periods_hint(column, domain)
    elif isinstance(node.unnest(), exp.IntDiv) and column.type == "number":
        hint = f"// does not round {column.name}: FLOOR({_divided(node)}) does"
    else:
        near = _nearest(column, domain, node)
        hint = f"{near}compare {column.name} by < or >= with an edge: {_edges_text(domain, node)}"
    return ProgrammingError(
        "E_BIN_EDGE",
        f"this would cut through a cell of {column.name}",
        hint=hint,
        span=locate(node),
    )


def _refuse_other_kind(node: exp.Expr, domain: Bins | Periods, locate: Locate) -> None:
    """Refuse a literal that is compared with a column and cannot be a value of it.

    Raises: ProgrammingError (E_LITERAL).
    """
    literal = node.unnest()
    literal = literal.this if isinstance(literal, exp.Cast) else literal
    test = literal.find_ancestor(exp.Predicate)
    if not isinstance(literal, exp.Literal) or test is None:
        return
    if not any(isinstance(test.args.get(side), exp.Column) for side in ("this", "expression")):
        return
    kind, example, read = _kind(domain)
    with contextlib.suppress(ValueError):
        if literal.is_string or isinstance(domain, Bins):
            read(literal.name.strip())
            return
    what = f"{printable(literal.sql('duckdb'))} is not a {kind}"
    hint = f"write it as {example}"
    raise ProgrammingError("E_LITERAL", what, hint=hint, span=locate(node))


def _kind(domain: Bins | Periods) -> tuple[str, str, Callable[[str], object]]:
    """The noun for values of a domain, one as it is written, and what reads one."""
    if isinstance(domain, Bins):
        return "number", "10.5", float
    if isinstance(domain, Times):
        return "time of day", "'08:00'", dt.time.fromisoformat
    return "date", "DATE '2024-01-31'", dt.datetime.fromisoformat


def _nearest(column: Column, domain: Bins, node: exp.Expr) -> str:
    """The comparison with an edge that is meant, where > or <= stands before one."""
    test, value = node.parent, _constant(node)
    if value not in domain.edges[1:-1] or not isinstance(value, Fraction):
        return ""
    kind = None if test is None else type(test)
    if kind in MIRRORED and test is not None and test.this is node:
        kind = MIRRORED[kind]
    is_upper = isinstance(test, exp.Between) and test.args["high"] is node
    sign = ">=" if kind is exp.GT else "<" if kind is exp.LTE or is_upper else ""
    return f"{column.name} {sign} {_edge_text(value)} works; " if sign else ""


def _edge_text(edge: Fraction) -> str:
    return str(int(edge) if edge.denominator == 1 else float(edge))


def _divided(node: exp.Expr) -> str:
    """The quotient by ``/`` of what ``//`` divides."""
    inner = node.unnest()
    return str(exp.Div(this=inner.this.copy(), expression=inner.expression.copy()).sql("duckdb"))


def _whole_days(column: Column, domain: Periods, node: exp.Expr) -> str:
    """The comparison that takes whole days, where a timestamp is compared with a day."""
    of_days = domain.unit in ("day", "hour", "minute") and not isinstance(domain, Times)
    if not of_days or not isinstance(_constant(node), dt.date):
        return ""
    return f"CAST({column.name} AS DATE) is compared with whole days"


def _periods_hint(column: Column, domain: Periods) -> str:
    """Between which cells cuts may fall, and what works."""
    if domain.length > 1 or isinstance(domain, Times):
        long = f"{domain.length} {domain.unit}s" if domain.length > 1 else domain.unit
        every = f"{long}, from {domain.representatives[0]} on"
        return f"cuts must fall between the cells of {column.name}: every {every}"
    if domain.unit in _COARSER:
        works = " or ".join(f"date_trunc('{u}', {column.name})" for u in _COARSER[domain.unit])
    else:
        works = f"date_trunc('{domain.unit}', {column.name})"
    return f"cuts must fall between {domain.unit}s; {works} works"


def _edges_text(domain: Bins, node: exp.Expr) -> str:
    """The edges of bins, or those next to a number where there are many."""
    edges = [int(e) if e.denominator == 1 else float(e) for e in domain.edges[:-1]]
    value = _constant(node)
    if len(edges) > SHOWN and isinstance(value, Fraction):
        place = bisect.bisect_right(domain.edges[:-1], value)
        edges = edges[max(0, place - 2) : place + 2]
        return f"..., {', '.join(map(str, edges))}, ..."
    shown = edges if len(edges) <= SHOWN else [*edges[:6], "...", *edges[-3:]]
    return ", ".join(map(str, shown))


def is_of_days(
    column: Column, node: exp.Expr, find_public: Callable[[exp.Column], tuple[Any, int] | None]
) -> bool:
    """True if days are compared with public dates alone, which cut through no day."""
    if column.type != "date" or not is_daily(column):
        return False
    inner = node.unnest()
    parts = list(inner.iter_expressions())
    found = [find_public(part) for part in parts if isinstance(part, exp.Column)]
    plain = isinstance(inner, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between)
    dates = all(each is None or each[0].types[each[1]] == "DATE" for each in found)
    return plain and dates and len(found) == len(parts)
