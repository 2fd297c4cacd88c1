"""Expressions against declared domains: texts are declared values, cuts fall on cell edges.

A predicate is evaluated on one representative of each cell. For unit cells that is the value
itself. For bins and calendar periods, days included, it is exact only when the predicate cannot
split a cell, which these checks make sure of.

The length of texts is bounded as well, before anything is evaluated: REPLACE in REPLACE grows them
exponentially in the length of a statement, and DuckDB's limits on memory do not cover texts under
construction.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Callable, Iterator
from fractions import Fraction

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.catalog.domain import PERIODS, Bins, Periods, Values, floor_period
from dpsql.errors import ProgrammingError, printable
from dpsql.sql.language import Locate
from dpsql.sql.relations import PUBLIC

_MIRROR: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_COARSER = {
    "day": PERIODS,
    "week": ("week",),
    "month": ("month", "quarter", "year"),
    "quarter": ("quarter", "year"),
    "year": ("year",),
}
_CALENDAR: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
}
_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren)
_TESTS = (exp.Predicate, exp.Connector, exp.Not)
_DAYS = {
    *("era", "millennium", "century", "decade", "year", "isoyear", "quarter", "month", "yearweek"),
    *("week", "weekofyear", "day", "dayofmonth", "dow", "dayofweek", "weekday", "isodow"),
    *("doy", "dayofyear"),
}
"""What a day determines: units of date_trunc and EXTRACT."""

_WHOLE_STEPS = {"day", "week", "month", "quarter", "year", "decade", "century", "millennium"}
_INSTANT = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
_READERS = (
    *(exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ, exp.Between, exp.In, exp.Is),
    *(exp.DateTrunc, exp.TimestampTrunc, exp.Extract, exp.Year, exp.Quarter, exp.Month, exp.Week),
    *(exp.Day, exp.DayOfWeek, exp.DayOfWeekIso, exp.DayOfYear, exp.Monthname, exp.Dayname),
)
"""What may read a day as the instant at which it begins."""

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
    if isinstance(column.domain, Bins) or column.type not in ("integer", "number", "date"):
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
    """What is compared for equality with the bare column, and is no column."""
    for node in tree.find_all(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In):
        if isinstance(node, exp.In):
            sides, bare = list(node.expressions), node.this
        else:
            left, right = node.this, node.expression
            bare, sides = (left, [right]) if _is_bare(left) else (right, [left])
        bare = bare.unnest()
        if isinstance(bare, exp.Column) and not is_public(bare):
            yield from (side for side in sides if not side.find(exp.Column))


def check_edges(column: Column, tree: exp.Expr, locate: Locate, *, grouping: bool = False) -> None:
    """Refuse an expression that would cut through a cell of a binned or calendar column.

    Raises: ProgrammingError (E_BIN_EDGE).
    """
    domain = column.domain
    if isinstance(domain, Periods) and domain.unit == "day":
        _check_days(column, domain, tree, locate)
    elif isinstance(domain, Bins | Periods):
        if grouping:
            if not _is_bare(tree):
                _check_constant(column, domain, tree, locate)
        else:
            _check_condition(column, domain, tree, locate)


def check_constant(column: Column, tree: exp.Expr, locate: Locate) -> None:
    """Refuse an expression that differs within a cell of a binned or calendar column.

    Raises: ProgrammingError (E_BIN_EDGE).
    """
    domain = column.domain
    if isinstance(domain, Periods) and domain.unit == "day":
        _check_days(column, domain, tree, locate)
    elif isinstance(domain, Bins | Periods):
        _check_constant(column, domain, tree, locate)


def _check_days(column: Column, domain: Periods, tree: exp.Expr, locate: Locate) -> None:
    """Refuse what depends on the time within a day."""
    for node in tree.walk():
        match node:
            case exp.Literal():
                fine = not node.is_string or _is_midnight(node.name)
            case exp.Interval():
                fine = _is_whole_step(node)
            case exp.Extract() | exp.TimestampTrunc() | exp.DateTrunc():
                fine = not node.find(exp.Column) or _unit_of(node) in _DAYS
            case exp.Cast() if node.to.this in _INSTANT and node.find(exp.Column):
                fine = isinstance(_around(node), _READERS)
            case _:
                continue
        if not fine:
            raise _refuse(column, domain, node, locate)


def _is_midnight(text: str) -> bool:
    """Whether a text is no date with a time of day.

    >>> _is_midnight("2024-01-31"), _is_midnight("2024-01-31 12:00"), _is_midnight("x")
    (True, False, True)
    """
    found = _TIME.fullmatch(text)
    return found is None or not re.search(r"[1-9]", found.group(1))


def _is_whole_step(node: exp.Interval) -> bool:
    """Whether an interval is a whole number of days or longer periods, added or taken away."""
    unit = node.args.get("unit")
    named = "" if unit is None else str(unit.name).lower().rstrip("s")
    amount = node.this
    whole = not isinstance(amount, exp.Literal) or bool(re.fullmatch(r"\s*\d+\s*", amount.name))
    return whole and named in _WHOLE_STEPS and isinstance(_around(node), exp.Add | exp.Sub)


def _around(node: exp.Expr) -> exp.Expr | None:
    """The node around a node, parentheses aside."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _is_bare(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), exp.Column)


def _check_condition(
    column: Column, domain: Bins | Periods, tree: exp.Expr, locate: Locate
) -> None:
    if isinstance(tree, _LOGIC):
        for inner in tree.iter_expressions():
            _check_condition(column, domain, inner, locate)
        return
    if not tree.find(exp.Column):
        return
    if isinstance(tree, exp.Column):
        raise _refuse(column, domain, tree, locate)
    if isinstance(tree, exp.Is) and _is_bare(tree.this):
        return
    if isinstance(tree, exp.Between) and _is_bare(tree.this):
        _check_cut(column, domain, exp.GTE, tree.args["low"], locate)
        _check_cut(column, domain, exp.LTE, tree.args["high"], locate)
        return
    if type(tree) in _MIRROR and _is_bare(tree.this):
        _check_cut(column, domain, type(tree), tree.expression, locate)
        return
    if type(tree) in _MIRROR and _is_bare(tree.expression):
        _check_cut(column, domain, _MIRROR[type(tree)], tree.this, locate)
        return
    for part in tree.iter_expressions():
        if part.find(exp.Column):
            _check_constant(column, domain, part, locate)


def _check_constant(column: Column, domain: Bins | Periods, tree: exp.Expr, locate: Locate) -> None:
    """Accept what is constant on every cell: calendar functions, conditions, functions of those."""
    if isinstance(domain, Periods) and _calendar_unit(tree.unnest()) in _COARSER[domain.unit]:
        return
    if isinstance(tree, _TESTS):
        _check_condition(column, domain, tree, locate)
        return
    parts = [part for part in tree.iter_expressions() if part.find(exp.Column)]
    if isinstance(tree, exp.Column) or any(map(_is_bare, parts)):
        raise _refuse(column, domain, tree, locate)
    for part in parts:
        _check_constant(column, domain, part, locate)


def _calendar_unit(tree: exp.Expr) -> str | None:
    if type(tree) in _CALENDAR and _is_bare(tree.this):
        return _CALENDAR[type(tree)]
    truncated = isinstance(tree, exp.TimestampTrunc | exp.DateTrunc) and _is_bare(tree.this)
    if truncated or (isinstance(tree, exp.Extract) and _is_bare(tree.expression)):
        return _unit_of(tree)
    return None


def _unit_of(tree: exp.Expr) -> str:
    """The unit that EXTRACT or date_trunc names."""
    unit = tree.this if isinstance(tree, exp.Extract) else tree.args["unit"]
    return str(unit.name).lower()


def _check_cut(
    column: Column, domain: Bins | Periods, operator: type, bound: exp.Expr, locate: Locate
) -> None:
    """Check that {v operator bound} is a union of cells."""
    if isinstance(bound.unnest(), exp.Null):
        return
    value = _constant(bound)
    after = operator in (exp.LTE, exp.GT)
    if isinstance(domain, Periods):
        if isinstance(value, dt.date):
            day = value + dt.timedelta(days=1) if after and value != dt.date.max else value
            inside = domain.start < day < domain.end
            if not inside or floor_period(day, domain.unit) == day:
                return
    elif isinstance(value, Fraction):
        lo, hi = domain.edges[0], domain.edges[-1]
        if value > hi or (value == hi and after) or value < lo or (value == lo and not after):
            return
        if column.type == "integer" and after:
            value = Fraction(value.__floor__() + 1)
            after = False
        if not after and value in domain.edges and value != hi:
            return
    raise _refuse(column, domain, bound, locate)


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
    if isinstance(domain, Periods) and domain.unit == "day":
        hint = f"the cells of {column.name} are days: compare it with a DATE"
    elif isinstance(domain, Periods):
        works = " or ".join(
            f"date_trunc('{unit}', {column.name})" for unit in _COARSER[domain.unit]
        )
        hint = f"cuts must fall between {domain.unit}s; {works} works"
    else:
        edges = [int(e) if e.denominator == 1 else float(e) for e in domain.edges[:-1]]
        shown = edges if len(edges) <= 12 else [*edges[:6], "...", *edges[-3:]]
        listed = ", ".join(map(str, shown))
        hint = f"compare {column.name} by < or >= with an edge: {listed}"
    return ProgrammingError(
        "E_BIN_EDGE",
        f"this would cut through a cell of {column.name}",
        hint=hint,
        span=locate(node),
    )


MAX_LENGTH = 100_000
"""Most characters of a text that an expression could make."""

_NUMBER = 400
"""More characters than any number takes as text: a DOUBLE has 309 before its point at most."""

_KEEPING = (exp.Left, exp.Right, exp.Substring, exp.Trim, exp.SplitPart)


def check_growth(column: Column | None, tree: exp.Expr, locate: Locate) -> None:
    """Refuse an expression that could make a text of over ``MAX_LENGTH`` characters.

    Raises: ProgrammingError (E_TOO_COMPLEX).
    """
    if tree.find(exp.Replace) is None:
        return
    widest = max((len(str(cell)) for cell in column.cells), default=0) if column else 0
    for node in tree.find_all(exp.Replace):
        if bound_length(node, max(widest, _NUMBER)) > MAX_LENGTH:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                f"REPLACE could make texts of over {MAX_LENGTH} characters",
                hint="replace by shorter texts",
                span=locate(node),
            )


def bound_length(tree: exp.Expr, widest: int) -> int:
    """Bound the length of a value; ``widest`` bounds columns and numbers.

    >>> from sqlglot import parse_one
    >>> bound_length(parse_one("REPLACE(a || 'bc', 'b', 'xyz')"), 10)
    48
    """
    parts = [bound_length(part, widest) for part in tree.iter_expressions()]
    if isinstance(tree, exp.Literal):
        return len(tree.name)
    if isinstance(tree, _KEEPING):
        return parts[0]
    if isinstance(tree, exp.Replace):
        text = bound_length(tree.this, widest)
        return text + text * max(parts[2:], default=0)
    if isinstance(tree, exp.DPipe | exp.Concat):
        return sum(parts)
    return max(parts, default=widest)
