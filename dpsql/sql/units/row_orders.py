"""Comparisons of two columns with too many pairs of cells to list: they choose rows within a unit.

``l_commitdate < l_receiptdate`` over 2,500 days each would be a table of six million cells. Where a
table has a unit, such rows are chosen before they are bounded, like those of a sub-query by unit.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.logical.functions import conjuncts
from dpsql.records import dataclass, replace
from dpsql.relation.unit_local import AllOf, FilterRows, InOrder
from dpsql.sql.cells.cell_tests import in_order
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import table_under


@dataclass(frozen=True, slots=True)
class RowOrders:
    """Moves such conditions of one SELECT over private rows into the relation of its rows."""

    flat: FlatFrom
    compiler: Compiler

    def taken(self, select: exp.Select) -> exp.Select:
        """The SELECT without these conditions. Raises: ProgrammingError."""
        table = table_under(self.flat, self.compiler)
        if table.unit.column is None or table.synthetic:
            return select
        where = select.args.get("where")
        own = [] if where is None else conjuncts(where.this)
        found = [(test, self.order(test)) for test in own]
        before = [(test, in_order(test, table, self.alias)) for test in self.flat.where]
        orders = [order for _, order in [*found, *before] if order is not None]
        if not orders:
            return select
        self.narrow(orders, select)
        self.flat.where = [test for test, order in before if order is None]
        kept = [exp.paren(test.copy(), copy=False) for test, order in found if order is None]
        copy = select.copy()
        copy.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
        return copy

    @property
    def alias(self) -> str:
        """The alias of the rows."""
        return self.flat.rows.source.alias_or_name

    def order(self, test: exp.Expr) -> InOrder | None:
        """A condition of the SELECT itself as such a comparison."""
        node = test.unnest()
        if not isinstance(node, exp.Binary) or node.find(exp.Query):
            return None
        table = table_under(self.flat, self.compiler)
        return in_order(self.flat.resolve(node), table, self.alias)

    def narrow(self, orders: list[InOrder], select: exp.Select) -> None:
        """Keep the rows that stand in these orders."""
        table = table_under(self.flat, self.compiler)
        relation = FilterRows(relation_of(table), AllOf(tuple(dict.fromkeys(orders))))
        span, label = self.flat.locate(select), table.name.split(" #")[0]
        found = table_of(self.compiler.catalog, relation, label, table.unit.max_rows, span)
        source = named_source(found.name, self.alias)
        self.flat.rows = replace(self.flat.rows, source=source, plain=False)
