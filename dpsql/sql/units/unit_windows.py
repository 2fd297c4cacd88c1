"""Windows over the rows of each privacy unit: its first visit, the time since its last one.

``ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY day)`` in a sub-query becomes a column of a
unit-local relation, which a SELECT around it may count, group by and filter like any other. As in
SQL, a window sees the rows that the WHERE beside it leaves.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NoReturn, cast

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange, Periods, Spans
from dpsql.errors import printable
from dpsql.logical.functions import conjuncts, find, has
from dpsql.records import dataclass, field, replace
from dpsql.relation.distances import are_comparable
from dpsql.relation.header import is_ordered, is_summed, taken_from
from dpsql.relation.unit_local import FRAMED, FilterRows, FramedRows, RowOrder, Running, WindowRows
from dpsql.sql.cells.cell_columns import FlatColumns
from dpsql.sql.cells.cell_tests import as_test
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.relations import PrivateRows, column_of
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import is_unit
from dpsql.sql.units.unit_sums import MOST_WHOLE, summed_column

WORKS = (
    "ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, FIRST_VALUE, LAST_VALUE, COUNT, SUM, AVG, MIN and "
    "MAX of columns work"
)
MOST_STEPS = 13
"""Rows that LAG and LEAD go, and one more: each is a column of its own. A year of months works."""
_FRAMES = "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW, RANGE BETWEEN 6 PRECEDING AND CURRENT ROW work"


_DAYS = ("DAY", "DAYS")
MOST_DIGITS = 7


def has_windows(select: exp.Select) -> bool:
    """True if a SELECT has windows of its own, in its items or in QUALIFY."""
    parts = [*select.expressions, *filter(None, [select.args.get("qualify")])]
    return any(part.find(exp.Window) for part in parts)


@dataclass(frozen=True, slots=True)
class _Around:
    """The rows from ``first`` to ``last`` places, or distances, after each row; None is all."""

    first: int | None
    last: int | None
    by_value: bool = False

    @property
    def is_whole(self) -> bool:
        return self.first is None and self.last is None

    @property
    def has_own(self) -> bool:
        """True if the frame of a row contains the row."""
        return (self.first or 0) <= 0 <= (self.last or 0)

    @property
    def most(self) -> float:
        """The number of rows around a row."""
        is_open = self.first is None or self.last is None or self.by_value
        return math.inf if is_open else max(0, (self.last or 0) - (self.first or 0) + 1)


@dataclass(frozen=True, slots=True)
class _Over:
    """The specification of a window: its partition but for the unit, its order, its frame."""

    by: tuple[str, ...]
    order: tuple[RowOrder, ...]
    row_by_row: bool = False
    around: _Around | None = None

    def in_any_order(self) -> _Over:
        """The same rows where all of a group are seen from each."""
        return _Over(self.by, ()) if self.around is not None and self.around.is_whole else self

    def reversed(self) -> _Over:
        """The same rows from the last one to the first."""
        order = (
            RowOrder(each.column, not each.descends, not each.missing_first) for each in self.order
        )
        return replace(self, order=tuple(order))


@dataclass
class UnitWindows:
    """Makes the relation of one such SELECT, and the rows that a SELECT around it sees."""

    flat: FlatFrom
    table: Table
    statement: Statement
    compiler: Compiler
    found: dict[tuple[object, ...], WindowRows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fragment = self.statement.fragment
        self.columns = FlatColumns(self.flat.rows.source, self.table, fragment, self.compiler)

    def refuse(self, node: exp.Expr, what: str, hint: str = WORKS) -> NoReturn:
        self.flat.refuse(node, "E_WINDOW", what, hint)

    def rows(self, select: exp.Select) -> PrivateRows:
        """The rows of a SELECT with windows. Raises: NotSupportedError; ProgrammingError."""
        flat = self.flat
        if flat.joins:
            hint = "join them by a unique key"
            flat.refuse(select, "E_JOIN", "public rows beside a window", hint)
        tests = flat.filters(select)
        qualify = select.args.get("qualify")
        for part in (*select.expressions, *([] if qualify is None else [qualify])):
            self.read(part)
        relation = relation_of(self.table)
        if tests:
            test = as_test(flat.rows.source, tests, self.statement.fragment, self.compiler)
            relation = FilterRows(relation, test)
        relation = self.columns.over(relation)
        for window in self.found.values():
            relation = replace(window, rows=relation)
        label, most = self.table.name.split(" #")[0], self.table.unit.max_rows
        wider = table_of(self.compiler.catalog, relation, label, most, flat.locate(select))
        source = named_source(wider.name, flat.rows.source.alias_or_name)
        flat.rows, flat.where = replace(flat.rows, source=source, where=(), plain=False), []
        bare = select.copy()
        for clause in ("where", "qualify"):
            bare.set(clause, None)
        rows = flat.project(bare)
        kept = [] if qualify is None else conjuncts(qualify.this)
        return replace(rows, where=tuple(flat.resolve(test, select.expressions) for test in kept))

    def read(self, node: exp.Expr) -> None:
        """Note what the windows of an expression stand for."""
        found = self.difference(node)
        if found is None and isinstance(node, exp.Window):
            found = self.window(node)
        if found is not None:
            self.flat.known[node] = found
            return
        for part in node.iter_expressions():
            self.read(part)

    def difference(self, node: exp.Expr) -> exp.Expr | None:
        """``day - LAG(day) OVER ...``, ``LEAD(day) OVER ... - day``, or both by DATE_DIFF."""
        is_difference = isinstance(node, exp.Sub)
        if isinstance(node, exp.DateDiff):
            is_difference = str(node.args.get("unit")).upper() == "DAY"
        if not is_difference:
            return None
        if isinstance(node, exp.DateDiff) and node.find(exp.Window):
            node = self.by_days(node)
        left, right = node.this.unnest(), node.expression.unnest()
        lag, lead = _called(right, exp.Lag), _called(left, exp.Lead)
        value = left if lag is not None else right
        called = lag if lag is not None else lead
        if called is None or self.flat.resolve(value) != self.flat.resolve(called.this):
            return None
        column, over = self.column(called), self.over(right if lag is not None else left)
        over = over if lag is not None else over.reversed()
        shape = self.difference_of(called, column, over)
        found = self.add("since_previous", shape, over, column.name.casefold())
        return found if lag is not None else exp.Neg(this=found)

    def by_days(self, node: exp.Expr) -> exp.Expr:
        """A difference in days of instants as one of their days."""
        copy = node.copy()
        for each in list(copy.find_all(exp.Column)):
            if each.find_ancestor(exp.Ordered, exp.Cast) is None and not self.is_partition(each):
                found = self.flat.names.find(each)
                column = None if found is None else self.declared(found)
                if column is not None and column.type == "timestamp":
                    each.replace(exp.cast(each.copy(), "DATE"))
        return copy

    def is_partition(self, node: exp.Expr) -> bool:
        """True if a column is one that rows are told apart by."""
        return node.arg_key == "partition_by"

    def difference_of(self, node: exp.Expr, column: Column, over: _Over) -> Column:
        """The column of differences of a column: of one sign where the rows are in its order."""
        periods = column.domain if isinstance(column.domain, Periods) else None
        if periods is not None and periods.unit == "day" and not isinstance(periods, Spans):
            width, whole = float(periods.count - 1), True
        elif is_summed(column):
            low, high = column.number_bounds or (0.0, 0.0)
            width, whole = high - low, column.type == "integer"
        else:
            self.refuse(node, f"a difference of {printable(column.name)}", "numbers and days work")
        own = [each.descends for each in over.order[:1] if each.column == column.name.casefold()]
        low, high = (0.0 if own == [False] else -width), (0.0 if own == [True] else width)
        if whole and high - low < MOST_WHOLE:
            return Column("", "integer", IntegerRange(int(low), int(high)), null=True)
        return Column("", "number", None, (Fraction(low), Fraction(high)), null=True)

    def window(self, node: exp.Window) -> exp.Expr:
        """A window as a column of the rows."""
        called, most = node.this, self.table.unit.max_rows
        over = self.over(node)
        known = find(called)
        running = None if known is None else cast(Running | None, known.running)
        if running is not None and has(called, "place"):
            return self.add(running, Column("", "integer", IntegerRange(1, most)), over)
        around = over.around
        most = most if around is None else int(min(most, max(around.most, 1)))
        if isinstance(called, exp.Count) and isinstance(called.this, exp.Star | exp.Literal):
            has_own = around is None or around.has_own
            counted = Column("", "integer", IntegerRange(int(has_own), most))
            return self.add("running_count", counted, over.in_any_order())
        if running is None and not isinstance(called, exp.Count | exp.Sum | exp.Avg):
            self.refuse(node, "this window over private rows")
        column = self.column(called)
        name = column.name.casefold()
        if isinstance(called, exp.Count):
            counted = Column("", "integer", IntegerRange(0, most))
            return self.add("running_count", counted, over.in_any_order(), name)
        if isinstance(called, exp.Sum | exp.Avg):
            if not is_summed(column):
                self.refuse(node, f"a sum of {printable(column.name)}", "numbers with bounds")
            if isinstance(called, exp.Avg):
                shape = summed_column(column, 1, "mean")
                return self.add("running_mean", shape, over.in_any_order(), name)
            return self.add("running_sum", summed_column(column, most), over.in_any_order(), name)
        return self.taken(called, running or "previous", column, over)

    def taken(self, called: exp.Expr, kind: Running, column: Column, over: _Over) -> exp.Expr:
        """The value of another row."""
        name, shape = column.name.casefold(), taken_from(column, "")
        if isinstance(called, exp.Min | exp.Max):
            if not is_ordered(column):
                self.refuse(called, "this window over private rows")
            whole = over.in_any_order()
            if not whole.order:
                order = (RowOrder(name, isinstance(called, exp.Max)),)
                return self.add("first_value", shape, replace(whole, order=order), name)
        if kind != "previous":
            return self.add(kind, shape, over, name)
        back = over.reversed() if isinstance(called, exp.Lead) else over
        found = self.add("previous", shape, back, name)
        for _ in range(1, self.steps(called)):
            found = self.add("previous", shape, back, found.name.casefold())
        return found

    def steps(self, called: exp.Expr) -> int:
        """The steps of LAG and LEAD in rows: each one looks at what the row before looked at."""
        offset = called.args.get("offset")
        number = offset.name if isinstance(offset, exp.Literal) else "1" if offset is None else ""
        if called.args.get("default") is not None or number not in map(str, range(1, MOST_STEPS)):
            what = f"LAG and LEAD by {MOST_STEPS} rows or more, or with a default,"
            self.refuse(called, what, "LAG(day), LAG(day, 2)")
        return int(number)

    def column(self, called: exp.Expr) -> Column:
        """The column that a window is of."""
        inner = called.this
        if isinstance(inner, exp.Expr) and not called.args.get("expressions"):
            found = self.declared(self.flat.resolve(inner))
            if found is not None:
                return found
        self.refuse(called, "a window of this over private rows", "columns with a domain work")

    def declared(self, node: exp.Expr) -> Column | None:
        """The column that a flat expression is or makes, if it has a domain or bounds."""
        found = self.columns.find(node)
        has_values = found is not None and (found.domain is not None or found.bounds is not None)
        return found if has_values else None

    def over(self, node: exp.Expr) -> _Over:
        """The specification of a window. Raises: NotSupportedError (E_WINDOW)."""
        if node.args.get("alias") is not None:
            self.refuse(node, "a window by name", "write it out: OVER (PARTITION BY ...)")
        parts = [self.flat.resolve(part) for part in node.args.get("partition_by") or []]
        if not any(is_unit(part, self.table) for part in parts):
            unit = printable(str(self.table.unit.column))
            hint = f"OVER (PARTITION BY {unit} ORDER BY ...): rows of different units never meet"
            self.refuse(node, "a window over private rows without their privacy unit", hint)
        by = tuple(self.key(part) for part in parts if not is_unit(part, self.table))
        order = node.args.get("order")
        listed = [] if order is None else order.expressions
        ordered = [self.ordered(each) for each in listed]
        ways = tuple(each for each in ordered if each is not None)
        return self.framed(node, _Over(by, ways))

    def key(self, part: exp.Expr) -> str:
        column = self.declared(part)
        if column is None or column.domain is None:
            self.refuse(part, "this partition of private rows", "columns with a domain work")
        return column.name.casefold()

    def ordered(self, node: exp.Expr) -> RowOrder | None:
        """A column of ORDER BY; None for the unit, which its rows share."""
        inner = self.flat.resolve(node.this)
        if is_unit(inner, self.table):
            return None
        column = self.declared(inner)
        if column is None or not is_ordered(column):
            hint = "columns of numbers and dates with a domain work"
            self.refuse(node, "this order of private rows", hint)
        first = bool(node.args.get("nulls_first"))
        return RowOrder(column.name.casefold(), bool(node.args.get("desc")), first)

    def framed(self, node: exp.Expr, over: _Over) -> _Over:
        """The frame: from the first row to this one, or some rows around it."""
        spec = node.args.get("spec")
        if spec is None:
            return over
        kind = str(spec.args.get("kind")).upper()
        first = self.end(node, spec, "start", "PRECEDING")
        last = self.end(node, spec, "end", "FOLLOWING")
        left_out = str(spec.args.get("exclude") or "NO OTHERS").upper()
        if left_out == "CURRENT ROW" and kind == "ROWS" and 0 in (first, last):
            # it ends with the row itself, or begins with it
            first, last = (first, -1) if last == 0 else (1, last)
            left_out = "NO OTHERS"
        if kind not in ("ROWS", "RANGE") or left_out != "NO OTHERS":
            self.refuse(node, "this frame over private rows", _FRAMES)
        if (first, last) == (None, 0):
            return replace(over, row_by_row=kind == "ROWS")
        around = _Around(first, last, kind == "RANGE" and (first, last) != (None, None))
        if around.by_value and not self.has_distances(over):
            hint = "a frame by RANGE is in the order of one column of whole numbers or days"
            self.refuse(node, "this frame over private rows", hint)
        return replace(over, around=around)

    def end(self, node: exp.Expr, spec: exp.Expr, name: str, outwards: str) -> int | None:
        """One end of a frame in rows, or in days or whole numbers, after each row; None for all."""
        given, side = spec.args.get(name), str(spec.args.get(f"{name}_side") or "").upper()
        inner = given.this if isinstance(given, exp.Interval) else given
        if isinstance(given, exp.Interval) and str(given.args.get("unit")).upper() not in _DAYS:
            inner = None
        if (
            isinstance(inner, exp.Literal)
            and inner.name.isdigit()
            and len(inner.name) < MOST_DIGITS
        ):
            return int(inner.name) * (-1 if side == "PRECEDING" else 1)
        word = str(given or "CURRENT ROW").upper()
        if word == "UNBOUNDED" and side == outwards:
            return None
        if word != "CURRENT ROW":
            self.refuse(node, "this frame over private rows", _FRAMES)
        return 0

    def has_distances(self, over: _Over) -> bool:
        """True if rows are in the order of one column of whole numbers or days."""
        columns = self.columns.all()
        found = [columns[each.column] for each in over.order]
        return len(found) == 1 and are_comparable(found[0], found[0])

    def add(self, kind: Running, shape: Column, over: _Over, of: str | None = None) -> exp.Expr:
        """The column of a window, which is added unless it is there."""
        around = over.around
        if around is not None and kind not in FRAMED:
            over, around = replace(over, around=None), None
        facts = (kind, shape, over, of)
        if facts not in self.found:
            told = kind if of is None else f"{kind}({self.columns.told(of)})"
            taken = [each.column.name for each in self.found.values()]
            name = self.columns.fresh(told, taken)
            column, rows = replace(shape, name=name), relation_of(self.table)
            if around is None:
                by_row = over.row_by_row
                window = WindowRows(rows, column, kind, over.order, over.by, of, by_row)
            else:
                ends = around.first, around.last, around.by_value
                window = FramedRows(rows, column, kind, over.order, over.by, of, False, *ends)
            self.found[facts] = window
        return column_of(self.found[facts].column.name, self.flat.rows.source.alias_or_name)


def _called(node: exp.Expr, kind: type[exp.Expr]) -> exp.Expr | None:
    """The function of a window, if it is of a kind."""
    found = node.this if isinstance(node, exp.Window) else None
    return found if isinstance(found, kind) else None
