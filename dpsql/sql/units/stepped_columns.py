"""Sums and means of a unit's own rows, in steps: conditions on them, and keys made of them.

``SELECT FLOOR(spent / 50), COUNT(*) FROM (SELECT id, SUM(cost) AS spent ... GROUP BY id) ...``: a
sum has too many values to list each as a cell. What is asked of it is constant between cuts, which
follow from the statement and the declared bounds alone. So the vault finds for every row between
which of them its sum is, and the expression is a column of the row from then on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins, BoundedBins
from dpsql.errors import ProgrammingError, printable
from dpsql.logical.functions import has
from dpsql.records import dataclass, field, replace
from dpsql.relation.unit_local import (
    STEPS,
    DerivedTable,
    DifferRows,
    FilterRows,
    FormulaRows,
    JoinRows,
    MapRows,
    MeetRows,
    Multiple,
    PerUnit,
    PickColumns,
    Scan,
    UnionRows,
    UnitLocal,
    WindowRows,
)
from dpsql.sql.cells.cell_columns import column_of_values, mapped, plain
from dpsql.sql.cells.cell_edges import check_edges
from dpsql.sql.cells.formula_columns import as_formula
from dpsql.sql.products import Compiler
from dpsql.sql.relations import column_of
from dpsql.sql.shell.language import Locate, check_scalar
from dpsql.sql.units.local_tables import named_source, table_of
from dpsql.sql.units.steps import MOST_STEPS, StepSearch, TooManyStepsError, probes_of

_MOST_DIGITS = 6
_FINE = 2.0**-38
"""Four times what adding up may be off by, in proportion to the largest sum."""


def may_step(table: Table) -> bool:
    """True if a table has sums, or means, without cells."""
    columns = table.columns.values() if isinstance(table, DerivedTable) else ()
    return any(map(_is_measured, columns))


@dataclass(slots=True)
class SteppedColumns:
    """Lets the rows of one private table have columns of such expressions, which are flat.

    ``source`` are the rows in FROM, with all columns so far; ``made`` are those of expressions.
    """

    source: exp.Table
    compiler: Compiler
    locate: Locate
    made: dict[exp.Expr, exp.Expr] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        """The table of the rows as they are now."""
        return self.compiler.catalog.find(self.source.name.casefold())

    def over(self, node: exp.Expr) -> exp.Expr:
        """An expression with such columns, each as large a part of it as can be one."""
        if isinstance(node, exp.Query) or not node.find(exp.Column):
            return node
        found = self.column(node, node)
        if found is not None:
            return found
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                node.set(key, self.over(value))
            elif isinstance(value, list):
                node.set(key, [self.over(e) if isinstance(e, exp.Expr) else e for e in value])
        return node

    def column(
        self, node: exp.Expr, value: exp.Expr, keys: Sequence[exp.Expr] = ()
    ) -> exp.Expr | None:
        """The column that an expression is, if it is one; never one with a key inside.

        Raises: ProgrammingError (E_TOO_LARGE); NotSupportedError.
        """
        if not isinstance(node, exp.Condition) or isinstance(node, exp.Alias | exp.Paren):
            return None
        if isinstance(node, exp.If) and isinstance(node.parent, exp.Case):
            return None  # a WHEN with its THEN is no value
        if value.find(exp.Query, exp.AggFunc, exp.Window):
            return None
        if value not in keys and any(each in keys for each in value.walk()):
            return None
        if value not in self.made:
            found = self.stepped(node, value)
            if found is None:
                return None
            self.made[value.copy()] = found
        return self.made[value].copy()

    def stepped(self, node: exp.Expr, value: exp.Expr) -> exp.Expr | None:
        """Let the rows have a column of a flat expression, if it is such a one; return it."""
        table, alias = self.table, self.source.alias_or_name
        columns = list(value.find_all(exp.Column))
        names = {each.name.casefold() for each in columns}
        if not isinstance(table, DerivedTable) or any(each.table != alias for each in columns):
            return None
        measured = [name for name in names if _is_measured(table.columns.get(name))]
        if not any(_is_made(table.relation, name) for name in measured):
            return None
        found = value, table.relation, table.columns[measured[0]]
        if len(names) > 1:
            compared = self.compared(value, table)
            if compared is None:
                return None
            found = compared
        probes = probes_of(found[0])
        if probes is None or self.is_steady(found[2], found[0]):
            return None
        check_scalar(value, self.locate)
        return self.cut(node, table, found, probes)

    def is_steady(self, column: Column, value: exp.Expr) -> bool:
        """True if the bins of a column tell an expression, which needs no steps then."""
        if column.domain is None:
            return False
        try:
            check_edges(column, value, self.locate, self.compiler.evaluator.is_same)
        except ProgrammingError:
            return False
        return True

    def compared(
        self, value: exp.Expr, table: DerivedTable
    ) -> tuple[exp.Expr, UnitLocal, Column] | None:
        """A comparison of numbers of a row as one of their difference with 0, and that column."""
        if not has(value, "order", "equality", "sameness"):
            return None
        less = exp.Sub(this=exp.paren(value.this), expression=exp.paren(value.expression))
        name = _fresh("difference", "", table.columns)
        made = as_formula(less, table.columns, name)
        if made is None:
            return None
        column = column_of(name, self.source.alias_or_name)
        test = type(value)(this=column, expression=exp.Literal.number(0))
        return test, replace(made, rows=table.relation), made.column

    def cut(
        self,
        node: exp.Expr,
        table: DerivedTable,
        of: tuple[exp.Expr, UnitLocal, Column],
        probes: Sequence[exp.Expr],
    ) -> exp.Expr | None:
        """The column of an expression over one number, given with its rows and that column."""
        (value, relation, number), span = of, self.locate(node)
        grid = _Grid.of(number)

        def values(tree: exp.Expr, places: Sequence[int | None]) -> list[Any]:
            copy = tree.copy().transform(_bare)
            numbers = [None if place is None else grid.number(place) for place in places]
            text = copy.sql("duckdb", comments=False)
            given = {"x0": (grid.kind, numbers)}
            return self.compiler.evaluator.combined.values(text, [given], {}, span)

        try:
            cuts = StepSearch(grid.first, grid.last, values).cut(probes)
        except TooManyStepsError:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"over {MOST_STEPS:,} values of what is asked of {printable(grid.title)}",
                hint="wider steps; or fewer of them, as in FLOOR(LEAST(x, 1000) / 50)",
                span=span,
            ) from None
        starts: list[int | None] = [grid.first, *cuts, None]
        found = values(value, starts)
        (kind,) = set(values(_type_of(value), [grid.first]))
        whole = kind in ("DOUBLE", "FLOAT") and all(_is_whole(each) for each in found)
        found = [None if each is None else int(each) for each in found] if whole else found
        name = _fresh(grid.title, STEPS, table.columns)
        column = column_of_values(name, "BIGINT" if whole else kind, found)
        if column is None:
            return None
        steps = replace(grid.bins(cuts), name=_fresh("steps", "", {*table.columns, grid.name}))
        one = Multiple(Fraction(1), (grid.name,))
        rows = FormulaRows(relation, steps, (one,))
        made = mapped(column, (steps.name,), [plain(each) for each in found])
        map_rows = replace(made, rows=rows)
        label, most = table.name.split(" #")[0], table.unit.max_rows
        wider = table_of(self.compiler.catalog, map_rows, label, most, span)
        alias = self.source.alias_or_name
        self.source = named_source(wider.name, alias)
        shown = column_of(column.name, alias)
        return exp.cast(shown, "DOUBLE") if whole else shown


@dataclass(frozen=True, slots=True)
class _Grid:
    """The numbers that a sum may be, as whole numbers: itself, or in a power of ten."""

    name: str
    title: str
    kind: str
    digits: int
    first: int
    last: int

    @classmethod
    def of(cls, column: Column) -> _Grid:
        """The grid of a column within bounds: no finer than sums are exact."""
        assert column.bounds is not None
        low, high = column.bounds
        most, whole = max(abs(float(low)), abs(float(high)), 1.0), column.type == "integer"
        digits = 0 if whole else min(_MOST_DIGITS, max(0, math.floor(-math.log10(most * _FINE))))
        scale = Fraction(10) ** digits
        ends = math.floor(low * scale), math.ceil(high * scale)
        name = column.name.casefold()
        return cls(name, column.name, "BIGINT" if whole else "DOUBLE", digits, *ends)

    def number(self, place: int) -> float | int:
        return place if self.kind == "BIGINT" else place / 10**self.digits

    def bins(self, cuts: Sequence[int]) -> Column:
        """A column with a cell between any two cuts: what is nearest to a number is that number."""
        half = Fraction(1, 2)
        scale = Fraction(10) ** self.digits
        edges = [(place - half) / scale for place in (self.first, *cuts, self.last + 1)]
        return Column("", "number", Bins(tuple(edges)), null=True)


def _is_measured(column: Column | None) -> bool:
    """True if numbers of a column are known beside its bins, if it has any."""
    if column is None or column.bounds is None:
        return False
    return column.domain is None or isinstance(column.domain, BoundedBins)


def _is_made(relation: UnitLocal, name: str) -> bool:
    """True if a column is worked out of rows, and not stored."""
    match relation:
        case Scan():
            return False
        case PickColumns(rows, names):
            return any(_is_made(rows, old) for new, old in names if new.casefold() == name)
        case JoinRows(left, right, prefix):
            start = f"{prefix.casefold()}."
            if name.startswith(start):
                return _is_made(right, name.removeprefix(start))
            return _is_made(left, name)
        case FormulaRows(column=column) | WindowRows(column=column) | MapRows(column=column):
            return column.name.casefold() == name or _is_made(relation.rows, name)
        case UnionRows(parts):
            return any(_is_made(each, name) for each in parts)
        case PerUnit():
            return True
        case FilterRows(rows) | DifferRows(rows) | MeetRows(rows):
            return _is_made(rows, name)


def _bare(node: exp.Expr) -> exp.Expr:
    return exp.column("x0") if isinstance(node, exp.Column) else node


def _type_of(node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="typeof", expressions=[node.copy()])


def _is_whole(value: Any) -> bool:
    return value is None or (math.isfinite(value) and float(value).is_integer())


def _fresh(told: str, end: str, taken: Collection[str]) -> str:
    name, number = told, 2
    while f"{name}{end}".casefold() in taken:
        name, number = f"{told} {number}", number + 1
    return f"{name}{end}"
