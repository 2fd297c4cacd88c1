"""Quantiles and the mode of expressions over several columns, as columns of the rows.

``MEDIAN(arrived - ordered)`` is of a column that follows from the cells of two others, which the
vault works out for every row.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.logical.functions import kinds
from dpsql.records import dataclass, replace
from dpsql.sql.cells.cell_columns import FlatColumns
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.relations import column_of
from dpsql.sql.rewrites.lists import rank_parts
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import split_test
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import table_under


@dataclass(frozen=True, slots=True)
class RankedColumns:
    """Maker of ranked columns in one SELECT over private rows."""

    flat: FlatFrom
    statement: Statement
    compiler: Compiler

    def written(self, select: exp.Select) -> exp.Select:
        """The SELECT over rows with such columns. Raises: NotSupportedError; ProgrammingError."""
        table = table_under(self.flat, self.compiler)
        if table.unit.column is None or table.synthetic or select.find(*kinds("rank")) is None:
            return select
        copy = select.copy()
        values = [
            each for node in copy.find_all(*kinds("rank")) for each in self.values(node, copy)
        ]
        if not values:
            return select
        source = self.flat.rows.source
        columns = FlatColumns(source, table, self.statement.fragment, self.compiler)
        found = [(value, columns.find(self.flat.resolve(value))) for value in values]
        named = [
            exp.alias_(each, name_of(each), quoted=True, copy=False) for each in copy.expressions
        ]
        for value, column in found:
            if column is not None and column.domain is not None:
                shown = exp.column(exp.to_identifier(column.name, quoted=True))
                self.flat.known[shown] = column_of(column.name, source.alias_or_name)
                value.replace(shown.copy())
        if not columns.made:
            return select
        copy.set("expressions", named)
        label, most = table.name.split(" #")[0], table.unit.max_rows
        relation = columns.over(relation_of(table))
        wider = table_of(self.compiler.catalog, relation, label, most, self.flat.locate(select))
        source = named_source(wider.name, source.alias_or_name)
        self.flat.rows = replace(self.flat.rows, source=source, plain=False)
        return copy

    def values(self, node: exp.Expr, select: exp.Select) -> list[exp.Expr]:
        """The argument of a quantile of the SELECT, where it is over several private columns."""
        if node.find_ancestor(exp.Query) is not select:
            return []
        whole = node.parent if isinstance(node.parent, exp.WithinGroup) else node
        parts = rank_parts(whole)
        value = None if parts is None else split_test(parts[1])[0]
        names = set()
        for column in [] if value is None else value.find_all(exp.Column):
            found = self.flat.names.find(column)
            if found is None or not self.flat.is_own(found):
                return []
            names.add(found)
        return [value] if value is not None and len(names) > 1 else []
