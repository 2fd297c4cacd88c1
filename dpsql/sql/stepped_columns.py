"""Sums and means of a unit's own rows, in steps: conditions on them, and keys made of them.

``SELECT FLOOR(spent / 50), COUNT(*) FROM (SELECT id, SUM(cost) AS spent ... GROUP BY id) ...``: a
sum has too many values to list each as a cell. What is asked of it is constant between cuts, which
follow from the statement and the declared bounds alone. So the vault finds for every row between
which of them its sum is, and the expression is a column of the row from then on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.catalog.derive import bases_of
from dpsql.catalog.domain import Bins
from dpsql.catalog.header import read_header
from dpsql.catalog.origins import named
from dpsql.catalog.unit_local import (
    STEPS,
    DerivedTable,
    DifferRows,
    FilterRows,
    JoinRows,
    MapRows,
    MeetRows,
    PerUnit,
    PickColumns,
    Summary,
    UnitLocal,
    WindowRows,
    scanned,
)
from dpsql.errors import ProgrammingError, printable
from dpsql.sql.cell_columns import column_of_values, mapped, plain
from dpsql.sql.language import Locate, check_scalar
from dpsql.sql.local_tables import named_source, table_of
from dpsql.sql.products import Compiler
from dpsql.sql.relations import column_of
from dpsql.sql.steps import MOST_STEPS, Halving, TooManyStepsError, probes_of

_ADDED = ("sum", "mean", "distinct_sum", "distinct_mean")
_MOST_DIGITS = 6
_FINE = 2.0**-38
"""Four times what adding up may be off by, in proportion to the largest sum."""


def may_step(table: Table) -> bool:
    """Whether a table has sums, or means, without cells."""
    columns = table.columns.values() if isinstance(table, DerivedTable) else ()
    return any(each.domain is None and each.bounds is not None for each in columns)


@dataclass(slots=True)
class SteppedColumns:
    """Lets the rows of one private table have columns of such expressions, which are flat.

    ``source`` are the rows in FROM, with all columns so far; ``keys`` are expressions that stay
    whole; ``made`` are the columns.
    """

    source: exp.Table
    compiler: Compiler
    locate: Locate
    keys: Sequence[exp.Expr] = ()
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

    def column(self, node: exp.Expr, value: exp.Expr) -> exp.Expr | None:
        """The column that an expression is, if it is one; never one with a key inside.

        Raises: ProgrammingError (E_TOO_LARGE); NotSupportedError.
        """
        if not isinstance(node, exp.Condition) or isinstance(node, exp.Alias | exp.Paren):
            return None
        if isinstance(node, exp.If) and isinstance(node.parent, exp.Case):
            return None  # a WHEN with its THEN is no value
        if value.find(exp.Query, exp.AggFunc, exp.Window):
            return None
        if value not in self.keys and any(each in self.keys for each in value.walk()):
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
        names = {each.name.casefold() for each in value.find_all(exp.Column)}
        if len(names) != 1 or any(c.table != alias for c in value.find_all(exp.Column)):
            return None
        (name,) = names
        column = table.columns.get(name)
        if column is None or column.domain is not None or not isinstance(table, DerivedTable):
            return None
        probes = probes_of(value)
        summary = None if probes is None else self.summary(table.relation, name)
        if probes is None or summary is None:
            return None
        check_scalar(value, self.locate)
        return self.cut(node, value, table, _Grid.of(column, *summary), probes)

    def summary(self, relation: UnitLocal, name: str) -> tuple[Summary, bool] | None:
        """The sum that a column is, and whether it is of whole numbers."""
        match relation:
            case PerUnit(rows, columns=columns):
                for each in columns:
                    if each.column.name.casefold() == name and each.kind in _ADDED:
                        bases = bases_of(self.compiler.catalog, scanned(rows))
                        inner = read_header(rows, named(bases)).columns[each.of or ""]
                        return each, inner.type == "integer" and "sum" in each.kind
            case FilterRows(rows) | MapRows(rows) | DifferRows(rows) | WindowRows(rows):
                return self.summary(rows, name)
            case MeetRows(left):
                return self.summary(left, name)
            case PickColumns(rows, names):
                olds = [old for new, old in names if new.casefold() == name]
                return self.summary(rows, olds[0]) if olds else None
            case JoinRows(left, right, prefix):
                start = f"{prefix.casefold()}."
                if name.startswith(start):
                    return self.summary(right, name.removeprefix(start))
                return self.summary(left, name)
        return None

    def cut(
        self,
        node: exp.Expr,
        value: exp.Expr,
        table: DerivedTable,
        grid: _Grid,
        probes: Sequence[exp.Expr],
    ) -> exp.Expr | None:
        span = self.locate(node)

        def values(tree: exp.Expr, places: Sequence[int | None]) -> list[Any]:
            copy = tree.copy().transform(_bare)
            numbers = [None if place is None else grid.number(place) for place in places]
            text = copy.sql("duckdb", comments=False)
            return self.compiler.evaluator.joint(text, {"x0": (grid.kind, numbers)}, {}, span)

        try:
            cuts = Halving(grid.first, grid.last, values).cut(probes)
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
        rows, name = _with_steps(table.relation, grid.name, grid.bins(cuts))
        map_rows = replace(mapped(column, (name,), [plain(each) for each in found]), rows=rows)
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
    def of(cls, column: Column, summary: Summary, whole: bool) -> _Grid:
        """The grid of a column that is such a sum: no finer than the sum is exact."""
        assert column.bounds is not None
        low, high = column.bounds
        most = max(abs(float(low)), abs(float(high)), 1.0)
        digits = 0 if whole else min(_MOST_DIGITS, math.floor(-math.log10(most * _FINE)))
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


def _with_steps(relation: UnitLocal, name: str, steps: Column) -> tuple[UnitLocal, str]:
    """The rows with the steps of a sum beside it, and what these are called there."""
    match relation:
        case PerUnit(by=by, columns=columns):
            (found,) = (each for each in columns if each.column.name.casefold() == name)
            known = {each.column.name.casefold() for each in columns} | set(by)
            own = _fresh(f"steps of {found.column.name}", "", known)
            added = replace(found, column=replace(steps, name=own))
            return replace(relation, columns=(*columns, added)), own.casefold()
        case FilterRows(rows) | MapRows(rows) | DifferRows(rows) | WindowRows(rows):
            inner, seen = _with_steps(rows, name, steps)
            return replace(relation, rows=inner), seen
        case PickColumns(rows, names):
            (old,) = (old for new, old in names if new.casefold() == name)
            inner, seen = _with_steps(rows, old, steps)
            return replace(relation, rows=inner, names=(*names, (seen, seen))), seen
        case MeetRows(left):
            inner, seen = _with_steps(left, name, steps)
            return replace(relation, left=inner), seen
        case JoinRows(left, right, prefix):
            start = f"{prefix.casefold()}."
            if name.startswith(start):
                inner, seen = _with_steps(right, name.removeprefix(start), steps)
                return replace(relation, right=inner), f"{start}{seen}"
            inner, seen = _with_steps(left, name, steps)
            return replace(relation, left=inner), seen
    raise ValueError("rows without such a sum")


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
