"""Expressions that are the same on all of every cell, where cells hold many values.

A bin, a month or an hour is evaluated at one value. That is exact only where an expression has one
value on the whole cell. A function that never turns has if it has the same value at both ends of
every cell, and so has what is worked out from such functions: that is asked of DuckDB. A part of a
calendar, such as the hour or the day of the week, is the same where the time is, cut off at that
part. Everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.logical.functions import ORDERED_TYPES, find, has
from dpsql.records import dataclass, field

Same = Callable[[Column, str], bool]
"""Says whether SQL over ``v`` has one value at both ends of every cell of a column."""

Refusal = Callable[[exp.Expr], NoReturn]

_FIELDS = {
    **dict.fromkeys(("year", "decade", "century", "millennium", "era"), "year"),
    **{each: each for each in ("quarter", "month", "hour", "minute")},
    **dict.fromkeys(("week", "weekofyear", "yearweek", "isoyear"), "week"),
    **dict.fromkeys(("day", "dayofmonth", "dow", "dayofweek", "weekday", "isodow"), "day"),
    **dict.fromkeys(("doy", "dayofyear", "julian"), "day"),
    **dict.fromkeys(("second", "millisecond", "microsecond", "milliseconds"), "microsecond"),
    **dict.fromkeys(("microseconds", "epoch"), "microsecond"),
}
_FORMATS = {
    **dict.fromkeys("Y", "year"),
    **dict.fromkeys("ymbBh", "month"),
    **dict.fromkeys("GVUWuwaAdejDx", "day"),
    **dict.fromkeys("HIp", "hour"),
    **dict.fromkeys("M", "minute"),
}
"""The finest unit that a letter of strftime shows; of any other letter it may be any."""

_MICROS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}

_ORDER = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "microsecond")


@dataclass(frozen=True, slots=True)
class CellConstantCheck:
    """Checks expressions over one column; ``refuse`` is told the part that differs within a cell.

    Columns in an expression are all that one: those of public rows are written out before.
    """

    column: Column
    same: Same
    refuse: Refusal
    _known: dict[int, tuple[exp.Expr, bool]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Nodes by identity, held here, and whether they are settled: comparisons ask several times."""

    def check(self, node: exp.Expr) -> None:
        """Refuse an expression unless it has one value on every cell."""
        if not self.is_settled(node) and not self.same(self.column, _sql(node)):
            self.refuse(node)

    def is_settled(self, node: exp.Expr) -> bool:
        """True if an expression has one value on every cell; False where it never turns.

        All else is refused.
        """
        node = node.unnest()
        if id(node) not in self._known:
            self._known[id(node)] = node, self._is_settled(node)
        return self._known[id(node)][1]

    def _is_settled(self, node: exp.Expr) -> bool:
        if node.find(exp.Column) is None:
            return True
        if isinstance(node, exp.Column):
            return False
        if has(node, "order"):
            self.cut(node, node.this, node.expression)
        elif has(node, "equality", "sameness"):
            self.equal(node.this, node.expression)
        elif isinstance(node, exp.Between):
            self.cut(
                exp.GTE(this=node.this, expression=node.args["low"]), node.this, node.args["low"]
            )
            high = node.args["high"]
            self.cut(exp.LTE(this=node.this, expression=high), node.this, high)
        elif isinstance(node, exp.In) and node.expressions:
            for value in node.expressions:
                self.equal(node.this, value)
        elif isinstance(node, exp.Case) and node.this is None:
            # on a cell on which all conditions are the same it is one of its values
            for each in node.args["ifs"]:
                self.check(each.this)
            values = [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")]
            settled = [self.is_settled(each) for each in values if each is not None]
            return all(settled)
        elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            self.is_settled(node.this)
        elif isinstance(node, exp.Extract) and str(node.this.name).lower() == "epoch":
            return self.is_settled(node.expression)  # seconds since then: no part, but all of it
        elif (part := part_of(node)) is not None:
            self.part(node, *part)
        elif self.column.type == "time" and _is_wrapping(node):
            if not self.same(self.column, _sql(node)):
                self.refuse(node)
        elif _is_time(node) and self.is_within_days():
            return self.is_settled(node.this)
        elif is_steady(node) and len(moving := list(_moving(node))) == 1:
            return self.is_settled(moving[0])
        else:
            for each in _moving(node):
                self.check(each)
        return True

    def cut(self, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> None:
        """Check a comparison by order of what never turns with what does not move."""
        moving = [each for each in (left, right) if each.find(exp.Column)]
        if len(moving) != 1:
            for each in moving:
                self.check(each)
        elif not self.is_settled(moving[0]) and not self.same(self.column, _sql(node)):
            self.refuse(left if moving[0] is right else right)

    def equal(self, left: exp.Expr, right: exp.Expr) -> None:
        """Check a comparison for equality: a value neither begins nor ends within a cell."""
        for kind in (exp.LT, exp.LTE):  # nodes of copies are not asked, so that none is known
            self.cut(kind(this=left.copy(), expression=right.copy()), left, right)

    def is_within_days(self) -> bool:
        """True if the clock does not begin again within a cell."""
        return self.column.type == "time" or self.same(self.column, "CAST(v AS DATE)")

    def part(self, node: exp.Expr, argument: exp.Expr, unit: str) -> None:
        """Check a part of a calendar or clock, by its argument cut off at that part."""
        if not self.is_settled(argument):
            whole = _sql(argument)
            text = whole if unit == "microsecond" else self.cut_off(whole, unit)
            if not self.same(self.column, text):
                self.refuse(node)

    def cut_off(self, whole: str, unit: str) -> str:
        """The value cut off at a unit, as SQL; a time of day in so many units since midnight."""
        if self.column.type == "time" and unit in _MICROS:
            return f"epoch_us({whole}) // {_MICROS[unit]}"
        return f"date_trunc('{unit}', {whole})"


def cut_off_sides(node: exp.DateDiff) -> None:
    """Cut both sides of a difference off at its unit: the bounds that it counts are the same.

    Weeks are not counted by their bounds, but by sevens of days.

    >>> from sqlglot import parse_one
    >>> found = parse_one("date_diff('month', a, b)", read="duckdb")
    >>> cut_off_sides(found)
    >>> found.sql("duckdb")
    "DATE_DIFF('MONTH', DATE_TRUNC('MONTH', a), DATE_TRUNC('MONTH', b))"
    """
    written = node.text("unit") or "DAY"
    is_of_weeks = written.upper() in ("W", "WEEK", "WEEKS", "YEARWEEK")
    unit = exp.Var(this="DAY" if is_of_weeks else written)
    for name in ("this", "expression"):
        whole = exp.TimestampTrunc(this=node.args[name].copy(), unit=unit.copy())
        node.set(name, whole)


def _is_wrapping(node: exp.Expr) -> bool:
    """True if a time of day itself is moved, which may go past midnight.

    A cell is shorter than a day: moved, it has one value only if both of its ends have.
    """
    parts = [part.unnest() for part in node.iter_expressions()]
    return has(node, "shift") and any(isinstance(part, exp.Column) for part in parts)


def _is_time(node: exp.Expr) -> bool:
    """True if a value is cast to a time of day."""
    return isinstance(node, exp.Cast) and node.to.this is exp.DType.TIME


def is_steady(node: exp.Expr) -> bool:
    """True if a function never turns in what moves of its arguments."""
    if isinstance(node, exp.Cast) and node.to.this not in ORDERED_TYPES:
        return False
    first = has(node, "monotone_first") and all(part is node.this for part in _moving(node))
    return first or has(node, "monotone")


def part_of(node: exp.Expr) -> tuple[exp.Expr, str] | None:
    """The argument of a part of a calendar or clock, and the unit that tells it, else None."""
    known = find(node)
    if known is not None and known.part is not None:
        return next(node.iter_expressions()), known.part
    if isinstance(node, exp.Extract):
        return node.expression, _FIELDS.get(str(node.this.name).lower(), "microsecond")
    if isinstance(node, exp.TimeToStr) and isinstance(node.args["format"], exp.Literal):
        return node.this, format_unit(node.args["format"].name)
    return None


def format_unit(text: str) -> str:
    """The unit that tells all that a format of strftime shows.

    >>> format_unit("%Y-%m"), format_unit("%H:%M"), format_unit("%c")
    ('month', 'minute', 'microsecond')
    """
    shown = [
        after[0] for after in text.replace("%%", "").replace("%-", "%").split("%")[1:] if after
    ]
    units = [_FORMATS.get(letter, "microsecond") for letter in shown]
    return max(units, key=_ORDER.index, default="year")


def _moving(node: exp.Expr) -> Iterator[exp.Expr]:
    return (part for part in node.iter_expressions() if part.find(exp.Column))


def _sql(node: exp.Expr) -> str:
    """The SQL of an expression over ``v``."""
    tree = exp.paren(node.copy())
    for reference in list(tree.find_all(exp.Column)):
        reference.replace(exp.column("v"))
    return str(tree.sql("duckdb", comments=False))
