"""Conditions on the row numbers of a privacy unit: they bound how many rows of it there are.

``WHERE k = 1`` over ``ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY day) AS k`` leaves one
row of each patient, and the noise of one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.logical.functions import conjuncts
from dpsql.records import dataclass, replace
from dpsql.relation.row_number_columns import rows_of_number
from dpsql.relation.unit_local import AllOf, Among, DerivedTable, FilterRows, Test
from dpsql.sql.cells.cell_tests import as_test
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, table_of
from dpsql.sql.units.per_unit import table_under


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """Moves such conditions of one SELECT over private rows into the relation of its rows."""

    flat: FlatFrom
    statement: Statement
    compiler: Compiler

    def taken(self, select: exp.Select) -> exp.Select:
        """The SELECT without these conditions. Raises: ProgrammingError; NotSupportedError."""
        table = table_under(self.flat, self.compiler)
        if not isinstance(table, DerivedTable):
            return select
        where = select.args.get("where")
        own = [] if where is None else conjuncts(where.this)
        flat = [(test, self.number(self.flat.resolve(test), table)) for test in own]
        before = [(test, self.number(test, table)) for test in self.flat.where]
        names = dict.fromkeys(name for _, name in [*flat, *before] if name is not None)
        for name in names:
            tests = [self.flat.resolve(test) for test, found in flat if found == name]
            tests += [test for test, found in before if found == name]
            self.narrow(name, tests, select)
        if not names:
            return select
        self.flat.where = [test for test, found in before if found is None]
        kept = [exp.paren(test.copy(), copy=False) for test, found in flat if found is None]
        copy = select.copy()
        copy.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
        return copy

    def number(self, test: exp.Expr, table: DerivedTable) -> str | None:
        """The column of row numbers that a flat condition is about, and about nothing else."""
        names = {column.name.casefold() for column in test.find_all(exp.Column)}
        if len(names) != 1 or test.find(exp.Query):
            return None
        (name,) = names
        found = rows_of_number(table.relation, name, table.columns)
        return None if found is None else name

    def narrow(self, name: str, tests: Sequence[exp.Expr], select: exp.Select) -> None:
        """Keep the rows with some numbers, and as many of a unit as can have them."""
        table = table_under(self.flat, self.compiler)
        assert isinstance(table, DerivedTable)
        test = as_test(self.flat.rows.source, tests, self.statement.fragment, self.compiler)
        each = rows_of_number(table.relation, name, table.columns) or 1
        most = min(table.unit.max_rows, max(1, each * _numbers(test, name, table)))
        relation = FilterRows(table.relation, test)
        span, label = self.flat.locate(select), table.name.split(" #")[0]
        found = table_of(self.compiler.catalog, relation, label, most, span)
        source = named_source(found.name, self.flat.rows.source.alias_or_name)
        self.flat.rows = replace(self.flat.rows, source=source, plain=False)


def _numbers(test: Test, name: str, table: Table) -> int:
    """The most numbers of a column that meet a condition."""
    match test:
        case Among((column,), cells) if column == name:
            return sum(cells)
        case AllOf(parts):
            return min((_numbers(part, name, table) for part in parts), default=table.sizes[name])
        case Among((), cells):
            return sum(cells) and table.sizes[name]
    return table.sizes[name]
