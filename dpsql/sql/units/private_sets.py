"""UNION, INTERSECT and EXCEPT of rows of one privacy unit, as one derived table.

UNION ALL has the rows of both sides, and as many of a unit as both may have. UNION leaves one of
those that are alike within a unit. INTERSECT and EXCEPT are of units, and of columns beside them:
they compare rows of one unit, of which there is one of a kind; with ALL, as many as there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange, Values
from dpsql.errors import ProgrammingError, Span, printable
from dpsql.records import dataclass, field, replace
from dpsql.relation.unit_local import (
    Among,
    FilterRows,
    JoinRows,
    MapRows,
    PerKey,
    PerUnit,
    PickColumns,
    Summary,
    UnionRows,
    UnitLocal,
    WindowRows,
)
from dpsql.sql.cells.cell_columns import FlatColumns, mapped, tells_values
from dpsql.sql.cells.cell_tests import as_test
from dpsql.sql.joins.full_joins import header_of
from dpsql.sql.products import Compiler
from dpsql.sql.relations import Field, PrivateRows, column_of
from dpsql.sql.shell.language import check_scalar, locate, refuse
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import is_unit
from dpsql.sql.units.union_columns import Constant, alone, beside, constant_of, joint_column, made

_ALIKE = "columns with one domain, or texts, whole numbers and dates with a domain each"
_UNITS = (
    "the privacy unit first on both sides: SELECT unit, ... {0} SELECT unit, ...; or answers on "
    "both: SELECT k FROM ... GROUP BY k HAVING COUNT(*) > 10 {0} ..."
)
_BOOLEAN = Values((False, True))
_ALIAS = "rows"


@dataclass(frozen=True, slots=True)
class _SetSide:
    """One side of the operation: its rows, the columns that it shows, and those made for it."""

    node: exp.Expr
    rows: PrivateRows
    table: Table
    columns: FlatColumns
    fields: tuple[Field, ...]
    made: list[MapRows] = field(default_factory=list)

    def is_unit(self, each: Field) -> bool:
        return is_unit(each.value, self.table)

    @property
    def has_unit(self) -> bool:
        """True if the rows of a side have a column of their unit."""
        return any(self.is_unit(each) for each in self.rows.fields)

    def make(self, column: Column, of: tuple[str, ...], values: Sequence[Any]) -> str:
        """A column more that follows from the cells of others; its name."""
        taken = [each.column.name for each in self.made]
        name = self.columns.fresh(column.name, taken)
        self.made.append(made(replace(column, name=name), of, values))
        return name.casefold()

    def picked(self, relation: UnitLocal, names: Sequence[tuple[str, str]]) -> UnitLocal:
        """Its rows with the columns of the operation."""
        relation = self.columns.over(relation)
        for each in self.made:
            relation = replace(each, rows=relation)
        return PickColumns(relation, tuple(names))


@dataclass(frozen=True, slots=True)
class PrivateSets:
    """A set operation of two SELECTs over private rows, at ``node``."""

    node: exp.SetOperation
    statement: Statement
    compiler: Compiler

    def locate(self, node: exp.Expr) -> Span:
        return locate(node, self.statement.fragment)

    def refuse(self, node: exp.Expr, what: str, hint: str) -> NoReturn:
        refuse(node, "E_SET_OP", what, hint, self.locate)

    def rows(self, one: PrivateRows, other: PrivateRows) -> PrivateRows:
        """The rows of the operation. Raises: NotSupportedError (E_SET_OP); ProgrammingError."""
        node = self.node
        is_union, is_set = isinstance(node, exp.Union), bool(node.args.get("distinct"))
        extra = [key for key in ("by_name", "on", "side", "kind") if node.args.get(key)]
        if extra:
            what = f"{node.key.upper()} {extra[0].upper().replace('_', ' ')} of private rows"
            self.refuse(node, what, "list the columns in one order on both sides")
        left, right = self.side(node.this, one), self.side(node.expression, other)
        self.check(left, right)
        if is_union:
            return self.different(left, right) if is_set else self.union(left, right)
        if is_set and len(left.fields) == 1 and left.is_unit(left.fields[0]):
            return self.of_units(left, right)
        return self.of_columns(left, right, not is_set)

    def side(self, node: exp.Expr, rows: PrivateRows) -> _SetSide:
        table = self.compiler.catalog.find(rows.source.name.casefold())
        if table.unit.column is None or table.synthetic or rows.joins:
            joined = "private rows that public rows or parts of a UNION are joined to"
            what = joined if rows.joins else "private rows"
            hint = "aggregate each part: SELECT COUNT(*) ... UNION ALL SELECT COUNT(*) ..."
            self.refuse(node, f"{self.node.key.upper()} of {what}", hint)
        columns = FlatColumns(rows.source, table, self.statement.fragment, self.compiler)
        fields = tuple(each for each in rows.fields if not each.hidden)
        return _SetSide(node, rows, table, columns, fields)

    def check(self, left: _SetSide, right: _SetSide) -> None:
        """Refuse sides of different widths, and a unit beside something else."""
        if len(left.fields) != len(right.fields):
            raise ProgrammingError(
                "E_SET_OP",
                f"{self.node.key.upper()} of {len(left.fields)} and {len(right.fields)} columns",
                hint="both sides need the same number of columns",
                span=self.locate(self.node),
            )
        for one, other in zip(left.fields, right.fields, strict=True):
            if left.is_unit(one) != right.is_unit(other):
                hint = "the privacy unit at one place on both sides"
                self.refuse(right.node, "a privacy unit beside another column", hint)

    def filtered(self, side: _SetSide) -> UnitLocal:
        """The rows of a side before they are bounded."""
        relation = relation_of(side.table)
        if side.rows.where:
            fragment = self.statement.fragment
            test = as_test(side.rows.source, side.rows.where, fragment, self.compiler)
            relation = FilterRows(relation, test)
        return relation

    def together(self, left: _SetSide, right: _SetSide) -> tuple[UnionRows, list[str | None]]:
        """The rows of both sides, and the names of their columns; None is the unit."""
        names: list[str | None] = []
        picked: tuple[list[tuple[str, str]], ...] = ([], [])
        for one, other in zip(left.fields, right.fields, strict=True):
            if left.is_unit(one):
                names.append(None)
                continue
            name, number = one.name, 2
            while name.casefold() in (each.casefold() for each in names if each):
                name, number = f"{one.name} {number}", number + 1
            names.append(name)
            for found, old in zip(picked, self.pair(left, one, right, other), strict=True):
                found.append((name, old))
        parts = (
            side.picked(self.filtered(side), found)
            for side, found in zip((left, right), picked, strict=True)
        )
        return UnionRows(tuple(parts)), names

    def union(self, left: _SetSide, right: _SetSide) -> PrivateRows:
        """UNION ALL: a unit has as many rows as on both sides together."""
        relation, names = self.together(left, right)
        most = left.table.unit.max_rows + right.table.unit.max_rows
        return self.shown(relation, left, right, names, most)

    def different(self, left: _SetSide, right: _SetSide) -> PrivateRows:
        """UNION: one of the rows that are alike within a unit."""
        relation, names = self.together(left, right)
        if not self.are_of_units(left, right):
            hint = "list the columns, the privacy unit among them; or UNION ALL"
            self.refuse(self.node, "UNION of private rows without their privacy unit", hint)
        return self.shown(self.alike(relation, names), left, right, names, None)

    def are_of_units(self, left: _SetSide, right: _SetSide) -> bool:
        """True if rows on both sides say whose they are, and show all that tells them apart."""
        hidden = [
            each
            for side in (left, right)
            for each in side.rows.fields
            if each.hidden and not side.is_unit(each)
        ]
        return left.has_unit and right.has_unit and not hidden

    def alike(self, rows: UnionRows, names: Sequence[str | None], *columns: Summary) -> PerUnit:
        """One row of those that are alike within a unit, in columns with cells and in keys."""
        header = header_of(rows, self.compiler.catalog)
        listed = [name.casefold() for name in names if name]
        by = tuple(name for name in listed if name not in header.keys)
        keys = tuple(name for name in listed if name in header.keys)
        return PerKey(rows, by, columns, keys) if keys else PerUnit(rows, by, columns)

    def of_columns(self, left: _SetSide, right: _SetSide, every: bool) -> PrivateRows:
        """INTERSECT and EXCEPT within each unit: rows of a kind on both sides, or on the first."""
        word = self.node.key.upper()
        shown = any(left.is_unit(each) for each in left.fields)
        if not shown or not self.are_of_units(left, right):
            what = f"{word} of private rows without their privacy unit"
            self.refuse(self.node, what, _UNITS.format(word))
        both, names = self.together(left, right)
        self.check_told(left, both, names, every)
        place, number, *told = free_columns(names)
        parts = []
        for side, part in enumerate(both.parts):
            if every:
                most = max(left.table.unit.max_rows, right.table.unit.max_rows)
                column = Column(number, "integer", IntegerRange(1, most))
                by = tuple(each.casefold() for each in names if each)
                part = WindowRows(part, column, "row_number", (), by, row_by_row=True)
            marked = mapped(Column(place, "boolean", _BOOLEAN), (), [bool(side)])
            parts.append(replace(marked, rows=part))
        columns = [
            Summary(Column(name, "integer", IntegerRange(0, 1)), "count", where=Among((place,), on))
            for name, on in zip(told, (b"\1\0", b"\0\1"), strict=True)
        ]
        groups = self.alike(
            UnionRows(tuple(parts)), [*names, *([number] if every else [])], *columns
        )
        # of the four cases (no, yes on the right) x (no, yes on the left), left slowest
        kept = b"\0\0\0\1" if isinstance(self.node, exp.Intersect) else b"\0\0\1\0"
        found = FilterRows(groups, Among(tuple(told), kept))
        picked = PickColumns(found, tuple((name, name.casefold()) for name in names if name))
        most = left.table.unit.max_rows
        if isinstance(self.node, exp.Intersect):
            most = min(most, right.table.unit.max_rows)
        return self.shown(picked, left, right, names, most)

    def check_told(
        self, left: _SetSide, both: UnionRows, names: Sequence[str | None], every: bool
    ) -> None:
        """Refuse columns of which two rows may seem alike that are not."""
        header, word = header_of(both, self.compiler.catalog), self.node.key.upper()
        for name, item in zip(names, left.fields, strict=True):
            key = (name or "").casefold()
            column = header.columns.get(key)
            if key in header.keys and every:
                what = f"{word} ALL of rows with the key {printable(item.name)}"
                self.refuse(left.node, what, f"{word} works, which has each key of a unit once")
            if column is not None and not tells_values(column):
                what = f"{word} by {printable(item.name)}, of which a cell has several values,"
                hint = (
                    "what is alike in its whole cell: CASE WHEN x < 10 THEN 'low' ELSE 'high' END"
                )
                self.refuse(left.node, what, hint)

    def of_units(self, left: _SetSide, right: _SetSide) -> PrivateRows:
        """INTERSECT and EXCEPT: the units of the first side with rows on the other, or without."""
        own, other = PerUnit(self.filtered(left)), PerUnit(self.filtered(right))
        is_except = isinstance(self.node, exp.Except)
        joined = JoinRows(own, other, "other", outer=is_except, one=True)
        lone = Among((joined.partner_of.casefold(),), b"\1\0")
        relation = FilterRows(joined, lone) if is_except else joined
        return self.shown(PickColumns(relation, ()), left, right, [None], 1)

    def pair(self, left: _SetSide, one: Field, right: _SetSide, other: Field) -> tuple[str, str]:
        """The names of a column of the operation on both sides, where it is made if need be."""
        values = one.value.unnest(), other.value.unnest()
        keys = _key_of(left.table, values[0]), _key_of(right.table, values[1])
        if keys[0] is not None and keys[1] is not None:
            return keys[0], keys[1]
        sides = (left, right)
        columns = [self.column(side, value) for side, value in zip(sides, values, strict=True)]
        known = next((each for each in columns if isinstance(each, Column)), None)
        known = known or alone(one.name, columns)
        if known is None:
            self.refuse(right.node, f"a union of NULLs as {printable(one.name)}", _ALIKE)
        first, second = (
            each if isinstance(each, Column) else beside(known, each) for each in columns
        )
        whole = None if first is None or second is None else joint_column(first, second)
        if whole is None:
            name = printable(one.name)
            self.refuse(right.node, f"a union of columns {name} with different domains", _ALIKE)
        found = []
        for side, column in zip(sides, columns, strict=True):
            if not isinstance(column, Column):
                same = replace(whole, name=known.name, null=whole.null or column is None)
                found.append(side.make(same, (), [column]))
            elif column.domain != whole.domain:
                wide = replace(whole, name=column.name, null=column.null)
                found.append(side.make(wide, (column.name.casefold(),), column.cells))
            else:
                found.append(column.name.casefold())
        return found[0], found[1]

    def column(self, side: _SetSide, value: exp.Expr) -> Column | Constant:
        """The column that a field is or makes, or the constant that it is."""
        if not value.find(exp.Column):
            check_scalar(value, self.locate)
            return constant_of(value, self.compiler.evaluator, self.locate(side.node))
        found = side.columns.find(value)
        if found is None or (found.domain is None and found.bounds is None):
            self.refuse(side.node, f"a union of {printable(value.sql('duckdb'))}", _ALIKE)
        return found

    def shown(
        self,
        relation: UnitLocal,
        left: _SetSide,
        right: _SetSide,
        names: Sequence[str | None],
        most: int | None,
    ) -> PrivateRows:
        """The rows of a relation under the names of the first side."""
        label = f"{left.table.title} + {right.table.title}"
        table = table_of(self.compiler.catalog, relation, label, most, self.locate(self.node))
        unit = column_of(str(table.unit.column), _ALIAS)
        fields = [
            Field(each.name, unit.copy() if name is None else column_of(name, _ALIAS))
            for each, name in zip(left.fields, names, strict=True)
        ]
        if None not in names and left.has_unit and right.has_unit:
            fields.append(Field(str(left.table.unit.column), unit, hidden=True))
        source = named_source(table.name, _ALIAS)
        return PrivateRows(source, (), (), tuple(fields), frozenset({_ALIAS}))


def free_columns(names: Sequence[str | None]) -> list[str]:
    """Four names for columns that are not among these.

    >>> free_columns(["Side", None])
    ['side 2', 'number 2', 'left 2', 'right 2']
    """
    taken = {each.casefold() for each in names if each}
    wanted = ["side", "number", "left", "right"]
    place = 1
    while taken & {_numbered(each, place) for each in wanted}:
        place += 1
    return [_numbered(each, place) for each in wanted]


def _numbered(name: str, place: int) -> str:
    return name if place == 1 else f"{name} {place}"


def _key_of(table: Table, value: exp.Expr) -> str | None:
    """The stored key that a value is, if it is one without a domain."""
    name = value.name.casefold() if isinstance(value, exp.Column) else ""
    is_key = name in (key.casefold() for key in table.keys)
    return name if is_key and name not in table.columns else None
