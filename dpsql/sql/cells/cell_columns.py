"""Expressions on private rows as columns of their own, for relations that the vault works out."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlglot import exp, parse_one

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import (
    PERIODS,
    Bins,
    DecimalRange,
    IntegerRange,
    Periods,
    Values,
    count_periods,
    floor_period,
)
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass, field, replace
from dpsql.relation.cell_maps import CELLS, VALUES
from dpsql.relation.unit_local import FormulaRows, MapRows, Scan, UnitLocal
from dpsql.sql.bind import bind
from dpsql.sql.cells.formula_columns import as_formula
from dpsql.sql.cells.signed_products import SignedProducts
from dpsql.sql.products import Compiler
from dpsql.sql.query import JointCondition
from dpsql.sql.relations import read_literal
from dpsql.sql.shell.whole_numbers import INTEGERS
from dpsql.sql.text.lexemes import Fragment

MOST_LISTED = 10_000
"""Different values of an expression, each of which is a cell."""
MOST_COMBINED = 1 << 18
"""Combinations of cells that an expression over several columns is worked out on: days of a year
with days of another are 2^17; each takes four bytes of the relation."""


@dataclass(slots=True)
class FlatColumns:
    """The columns that flat expressions over one private table are, or make of its cells.

    ``source`` is the table in FROM; ``made`` are the columns that are made.
    """

    source: exp.Table
    table: Table
    fragment: Fragment
    compiler: Compiler
    made: dict[exp.Expr, MapRows | FormulaRows] = field(default_factory=dict)

    def find(self, node: exp.Expr) -> Column | None:
        """The column of an expression; None if it is none.

        Raises: ProgrammingError or NotSupportedError, as in GROUP BY.
        """
        inner = node.unnest()
        if isinstance(inner, exp.Column):
            return self.table.columns.get(inner.name.casefold())
        if inner not in self.made:
            name = self.fresh(_written(inner))
            found = self.make(inner, name)
            if found is None:
                return None
            self.made[inner.copy()] = found
        return self.made[inner].column

    def make(self, inner: exp.Expr, name: str) -> MapRows | FormulaRows | None:
        """The column of an expression: its value for each cell, or worked out of numbers."""
        names = {each.name.casefold() for each in inner.find_all(exp.Column)}
        known = [self.table.columns[each] for each in names if each in self.table.columns]
        has_values = any(c.domain is None or isinstance(c.domain, Bins) for c in known)
        found = as_formula(inner, self.table.columns, name) if has_values else None
        if found is not None:
            return found
        mapped = as_mapped(self.source, inner, name, self.fragment, self.compiler)
        return as_formula(inner, self.table.columns, name) if mapped is None else mapped

    def all(self) -> dict[str, Column]:
        """The columns of the table and those that are made, by case-folded name."""
        made = {each.column.name.casefold(): each.column for each in self.made.values()}
        return {**self.table.columns, **made}

    def known(self, node: exp.Expr) -> Column | None:
        """The column that was made of an expression."""
        found = self.made.get(node.unnest()) if self.made else None
        return None if found is None else found.column

    def over(self, relation: UnitLocal) -> UnitLocal:
        """Rows with the columns that are made."""
        for each in self.made.values():
            relation = replace(each, rows=relation)
        return relation

    def fresh(self, told: str, taken: Iterable[str] = ()) -> str:
        """A name that no column has."""
        names = {*self.table.columns, *(name.casefold() for name in taken)}
        names |= {each.column.name.casefold() for each in self.made.values()}
        name, number = told, 2
        while name.casefold() in names:
            name, number = f"{told} {number}", number + 1
        return name

    def told(self, name: str) -> str:
        """A column as people write it, by its case-folded name."""
        known = self.table.columns.get(name)
        return name if known is None else known.name


def _written(node: exp.Expr) -> str:
    """An expression as people write it, without the names of tables."""
    bare = node.copy().transform(lambda n: exp.column(n.name) if isinstance(n, exp.Column) else n)
    return str(bare.sql("duckdb", comments=False)).lower()


def as_mapped(
    source: exp.Table, node: exp.Expr, name: str, fragment: Fragment, compiler: Compiler
) -> MapRows | None:
    """The column that a flat expression makes of others; None if it has no such cells.

    ``node`` is over the columns of ``source``, as they are called there. Which rows it is a column
    of is left to the caller. Raises: ProgrammingError or NotSupportedError, as in GROUP BY.
    """
    columns = {each.name.casefold() for each in node.find_all(exp.Column)}
    if not columns:
        return _constant(node, name)
    known = [compiler.catalog.find(source.name.casefold()).columns.get(each) for each in columns]
    if any(each is None or each.domain is None for each in known):
        return None
    if len(known) > 1:
        return _of_several(source, node, name, fragment, compiler)
    key = exp.alias_(node.copy(), "k", copy=False)
    count = exp.alias_(exp.Count(this=exp.Star()), "n")
    select = exp.Select(expressions=[key, count], from_=exp.From(this=source.copy()))
    select.set("group", exp.Group(expressions=[exp.Literal.number(1)]))
    query = bind(select, fragment, compiler.catalog, evaluator=compiler.evaluator)
    (found,) = query.keys
    table = compiler.catalog.find(query.table)
    kind, values = SignedProducts(compiler.evaluator, query, table).values(found)
    column = column_of_values(name, kind, values)
    if column is None or found.column is None or table.columns[found.column].size != len(values):
        return None
    return mapped(column, (found.column,), values)


def _of_several(
    source: exp.Table, node: exp.Expr, name: str, fragment: Fragment, compiler: Compiler
) -> MapRows | None:
    """The column that an expression over several columns makes of all their combinations."""
    test = exp.Is(this=exp.paren(node.copy(), copy=False), expression=exp.null())
    select = exp.Select(expressions=[exp.Count(this=exp.Star())], where=exp.Where(this=test))
    select.set("from_", exp.From(this=source.copy()))
    query = bind(select, fragment, compiler.catalog, evaluator=compiler.evaluator)
    (found,) = query.where
    if not isinstance(found, JointCondition):
        return None
    table = compiler.catalog.find(query.table)
    of = tuple(dict.fromkeys(part.column for part in found.parts if part.column is not None))
    sizes = [table.columns[each].size for each in of]
    if math.prod(sizes) > MOST_COMBINED or len(of) < len({p.column for p in found.parts}):
        return None
    pieces, grid = (
        SignedProducts(compiler.evaluator, query, table),
        np.indices(sizes).reshape(len(of), -1),
    )
    columns = []
    for part in found.parts:
        kind, values = pieces.values(part)
        place = of.index(part.column or "")
        if len(values) != sizes[place]:
            return None
        columns.append((kind, [values[k] for k in grid[place]]))
    inner = parse_one(found.sql, read="duckdb").this.sql("duckdb")
    cells = {f"x{number}": each for number, each in enumerate(columns)}
    answers = compiler.evaluator.combined.values(inner, [cells], {}, found.span)
    kind = compiler.evaluator.combined.values(f"typeof({inner})", [cells], {}, found.span)[0]
    column = column_of_values(name, kind, answers)
    return None if column is None else mapped(column, of, answers)


def mapped(column: Column, of: tuple[str, ...], values: Any) -> MapRows:
    """A column of the values that combinations of the cells of others stand for."""
    places: Mapping[Any, int] = {plain(value): k for k, value in enumerate(column.cells)}
    cells = np.array([places[plain(value)] for value in values], CELLS)
    return MapRows(Scan(""), column, of, cells.tobytes())


def measured(column: Column, of: tuple[str, ...], values: Sequence[Any]) -> MapRows:
    """A column without cells: the number, or NULL, that combinations of cells of others have."""
    numbers = [math.nan if value is None else float(value) for value in values]
    return MapRows(Scan(""), column, of, np.array(numbers, VALUES).tobytes())


def plain(value: Any) -> Any:
    """A value as Python has it; an instant at midnight is that day."""
    if isinstance(value, dt.datetime) and value.time() == dt.time():
        return value.date()
    return value.item() if isinstance(value, np.generic) else value


def column_of_values(name: str, kind: str, values: Any) -> Column | None:
    """The declaration of a column with these values."""
    listed = list(dict.fromkeys(plain(value) for value in values))
    known = [value for value in listed if value is not None]
    null = len(known) < len(listed)
    if not known or len(known) > MOST_LISTED:
        return None
    if kind == "VARCHAR":
        return Column(name, "text", Values(tuple(known)), null=null)
    if kind == "BOOLEAN":
        return Column(name, "boolean", Values((False, True)), null=null)
    if kind in ("DATE", "TIMESTAMP"):
        days = _periods(sorted(known))
        return None if days is None else Column(name, kind.lower(), days, null=null)
    if kind not in INTEGERS:
        return None
    low, high = min(known), max(known)
    if high - low + 1 == len(known):
        return Column(name, "integer", IntegerRange(low, high), null=null)
    return Column(name, "integer", Values(tuple(sorted(known))), null=null)


def _periods(days: list[dt.date]) -> Periods | None:
    """The calendar periods that begin on some days, None if these do not follow each other."""
    if any(isinstance(day, dt.datetime) for day in days):
        return None
    for unit in PERIODS:
        count = count_periods(days[0], days[-1], unit)
        if count == len(days) and floor_period(days[0], unit) == days[0]:
            found = Periods(days[0], unit, count)
            if list(found.representatives) == days:
                return found
    return None


def _constant(node: exp.Expr, name: str) -> MapRows | None:
    """A literal as a column with one cell."""

    def refuse(_: exp.Expr) -> Any:
        raise ProgrammingError("E_DOMAIN", "no literal")

    try:
        value = read_literal(node, refuse)
    except ProgrammingError:
        return None
    kinds = {str: "VARCHAR", int: "BIGINT", bool: "BOOLEAN"}
    column = column_of_values(name, kinds.get(type(value), ""), [value])
    return None if column is None else mapped(column, (), [value])


def tells_values(column: Column) -> bool:
    """True if rows with the same cell have the same value."""
    if isinstance(column.domain, Periods):
        return column.type == "date" and (column.domain.unit, column.domain.length) == ("day", 1)
    told = isinstance(column.domain, IntegerRange | Values | DecimalRange)
    return told and column.other is None
