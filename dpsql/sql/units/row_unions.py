"""UNION ALL of rows of one table each row of which is a privacy unit.

The parts are public rows that the table is joined with: a row counts once for every part that has
it, and the noise says so. What parts work out of different columns is a column of the public rows,
of all values that it has on declared ones; a measure is that of the part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from sqlglot import exp

from dpsql.catalog import Column, Table
from dpsql.catalog.domain import Periods
from dpsql.errors import Span, printable
from dpsql.logical.functions import has_aggregates
from dpsql.records import dataclass, field, replace
from dpsql.sql.cells.cell_columns import tells_values
from dpsql.sql.cells.evaluate import Operand
from dpsql.sql.products import Compiler
from dpsql.sql.query import Expression
from dpsql.sql.relations import Field, PrivateRows, Relation, as_values, column_of
from dpsql.sql.rewrites.tree_parts import any_of
from dpsql.sql.shell.language import check_scalar, locate, refuse
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.union_columns import Constant, constant_of

MAX_ROWS = 10_000
"""Most public rows: values of columns that parts work out of different ones."""
_ALIAS, _PARTS, _NUMBER = "rows", "parts", "part"
_INSTEAD = "aggregate each part: SELECT COUNT(*) ... UNION ALL SELECT COUNT(*) ..."

_Read: TypeAlias = Callable[[exp.Expr], Relation]
_Kept: TypeAlias = Sequence[Constant]


def united_rows(
    node: exp.Union, read: _Read, statement: Statement, compiler: Compiler
) -> PrivateRows | None:
    """The rows of a UNION ALL; None where a part is anything but rows of one such table.

    Raises: NotSupportedError (E_SET_OP) for what the parts cannot have in one column.
    """
    nodes = _parts(node)
    if len(nodes) == 1:
        return None
    if has_aggregates(nodes[0]) or nodes[0].args.get("group"):
        return None
    found: list[PrivateRows] = []
    for each in nodes:
        rows = read(each)
        if not isinstance(rows, PrivateRows) or rows.joins:
            return None
        table = compiler.catalog.find(rows.source.name.casefold())
        same = not found or found[0].source.name.casefold() == rows.source.name.casefold()
        if table.unit.column is not None or table.unit.through or table.synthetic or not same:
            return None
        found.append(rows)
    columns = [[each for each in rows.fields if not each.hidden] for rows in found]
    if len({len(each) for each in columns}) > 1:
        return None
    return _United(node, found, columns, table, statement, compiler).rows()


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """The parts of a UNION ALL of UNION ALL, in the order written."""
    again = isinstance(node, exp.Union) and not node.args.get("distinct")
    around = ("this", "expression", "distinct", "with_", "order")
    if not again or any(v for key, v in node.args.items() if key not in around):
        return [node]
    first = node.this
    inner = _parts(first) if not first.args.get("with_") else [first]
    return [*inner, node.expression]


@dataclass(frozen=True, slots=True)
class _United:
    """The parts of a UNION ALL, with the columns of each; ``names`` are those of public rows."""

    node: exp.Union
    parts: Sequence[PrivateRows]
    columns: Sequence[Sequence[Field]]
    table: Table
    statement: Statement
    compiler: Compiler
    names: list[str] = field(default_factory=lambda: [_NUMBER])

    def rows(self) -> PrivateRows:
        """The table, joined with a public row for each part, or for each of its values."""
        count = len(self.parts)
        tests: list[list[exp.Expr]] = [
            [_moved(test, part) for test in part.where] for part in self.parts
        ]
        listed: list[list[_Kept]] = [[] for _ in self.parts]
        fields: list[Field] = []
        for place, first in enumerate(self.columns[0]):
            values = [
                _moved(columns[place].value.unnest(), part)
                for columns, part in zip(self.columns, self.parts, strict=True)
            ]
            if any(value != values[0] for value in values):
                values = [self.of_period(value) for value in values]
            fields.append(Field(first.name, self.column(first.name, values, listed, tests)))
        sizes = [math.prod(map(len, each)) for each in listed]
        if sum(sizes) > MAX_ROWS:
            what = f"a union with {sum(sizes):,} values in columns that differ"
            self.refuse(
                self.node, what, f"at most {MAX_ROWS:,}: fewer such columns, or rougher ones"
            )
        lines = [
            (number, *line)
            for number in range(count)
            for line in itertools.product(*listed[number])
        ]
        values_list = as_values(lines, self.names, _PARTS)
        if values_list is None:
            self.refuse(self.node, "UNION ALL of these private rows", _INSTEAD)
        source = exp.Table(this=self.parts[0].source.this.copy())
        source.set("alias", exp.TableAlias(this=exp.to_identifier(_ALIAS, quoted=True)))
        used = frozenset({_ALIAS, _PARTS})
        join = exp.Join(this=values_list)
        return PrivateRows(source, (join,), self.where(tests), tuple(fields), used)

    def where(self, tests: Sequence[Sequence[exp.Expr]]) -> tuple[exp.Expr, ...]:
        """The condition that a row is in the part of the public row beside it."""
        if not any(tests):
            return ()
        ways = [
            exp.and_(self.is_part(number), *(exp.paren(each) for each in own), copy=False)
            for number, own in enumerate(tests)
        ]
        return (any_of([exp.paren(each, copy=False) for each in ways]),)

    def is_part(self, number: int) -> exp.Expr:
        own = column_of(_NUMBER, _PARTS)
        return exp.EQ(this=own, expression=exp.Literal.number(number))

    def column(
        self,
        name: str,
        values: Sequence[exp.Expr],
        listed: Sequence[list[_Kept]],
        tests: Sequence[list[exp.Expr]],
    ) -> exp.Expr:
        """The value of a column of the union; ``listed`` and ``tests`` get what else that needs."""
        is_constant = [value.find(exp.Column) is None for value in values]
        if not any(is_constant) and all(value == values[0] for value in values):
            return values[0]
        if not all(is_constant) and any(map(self.is_measure, values)):
            case = exp.Case(ifs=[])
            for number, value in enumerate(values):
                case = case.when(self.is_part(number), value.copy(), copy=False)
            return case
        kept = [self.values(name, *each) for each in zip(values, tests, strict=True)]
        kinds = {_kind(each) for values in kept for each in values if each is not None}
        if len(kinds) > 1:
            what = f"a union of columns {printable(name)} of different types"
            self.refuse(self.node, what, f"CAST({printable(name)} AS VARCHAR) on every side works")
        taken = {each.casefold() for each in self.names}
        free = (f"{name} {k}" if k > 1 else name for k in itertools.count(1))
        self.names.append(next(each for each in free if each.casefold() not in taken))
        place = column_of(self.names[-1], _PARTS)
        for number, each in enumerate(kept):
            listed[number].append(each)
            if not is_constant[number]:
                test = exp.NullSafeEQ(this=exp.paren(values[number]), expression=place.copy())
                tests[number].append(test)
        return place

    def of_period(self, value: exp.Expr) -> exp.Expr:
        """A column of periods as the beginning of its own, which is all that is known of it."""
        column = self.table.columns.get(value.name.casefold())
        periods = None if column is None else column.domain
        known = isinstance(periods, Periods) and periods.length == 1
        if column is None or not isinstance(value, exp.Column) or not known or tells_values(column):
            return value
        assert isinstance(periods, Periods)
        unit = exp.Literal.string(periods.unit)
        kind = exp.DateTrunc if column.type == "date" else exp.TimestampTrunc
        return exp.cast(kind(this=value, unit=unit), column.type.upper())

    def is_measure(self, value: exp.Expr) -> bool:
        """True if a value is of several columns, or of one whose values no cell tells."""
        names = {each.name.casefold() for each in value.find_all(exp.Column)}
        columns = [self.table.columns[name] for name in names if name in self.table.columns]
        plain = isinstance(value, exp.Column)
        return len(names) > 1 or any(
            each.domain is None or (plain and not tells_values(replace(each, other=None)))
            for each in columns
        )

    def values(self, name: str, value: exp.Expr, tests: Sequence[exp.Expr]) -> _Kept:
        """The different values that a part has in a column, on declared ones that it keeps."""
        check_scalar(value, self.locate)
        found = {each.name.casefold() for each in value.find_all(exp.Column)}
        if not found:
            return [constant_of(value, self.compiler.evaluator, self.locate(value))]
        column = self.table.columns.get(next(iter(found)))
        if len(found) > 1 or column is None:
            what = f"a union of {printable(name)}, which is of several columns,"
            self.refuse(self.node, what, "one column on every side, or an expression of one")
        kept = [True] * len(column.cells)
        for test in tests:
            if {each.name.casefold() for each in test.find_all(exp.Column)} == found:
                check_scalar(test, self.locate)
                holds = self.on_cells(column, test)
                kept = [one and bool(other) for one, other in zip(kept, holds, strict=True)]
        values = zip(self.on_cells(column, value), kept, strict=True)
        return list(dict.fromkeys(each for each, is_kept in values if is_kept)) or [None]

    def on_cells(self, column: Column, node: exp.Expr) -> Sequence[Any]:
        """The values of an expression over one column on its declared values."""
        tree = node.transform(lambda e: exp.column("v") if isinstance(e, exp.Column) else e)
        sql, place = tree.sql("duckdb", comments=False), self.locate(node)
        asked = Expression(column.name.casefold(), sql, place)
        source = Operand(self.table.name.casefold(), column)
        return self.compiler.evaluator.values(source, asked)[1]

    def locate(self, node: exp.Expr) -> Span:
        return locate(node, self.statement.fragment)

    def refuse(self, node: exp.Expr, what: str, hint: str) -> NoReturn:
        refuse(node, "E_SET_OP", what, hint, self.locate)


def _kind(value: Constant) -> str:
    """The kind that values of one column have in common."""
    if isinstance(value, bool):
        return "boolean"
    return type(value).__name__ if isinstance(value, str) or not _is_number(value) else "number"


def _is_number(value: Constant) -> bool:
    return isinstance(value, int | float) or hasattr(value, "as_tuple")


def _moved(node: exp.Expr, rows: PrivateRows) -> exp.Expr:
    """A copy of an expression over the one name that the table has in the union."""
    copy = node.copy()
    own = rows.source.alias_or_name.casefold()
    for column in [copy] if isinstance(copy, exp.Column) else list(copy.find_all(exp.Column)):
        if column.table.casefold() in ("", own):
            column.set("table", exp.to_identifier(_ALIAS, quoted=True))
    return copy
