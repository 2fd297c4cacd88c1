"""IN and EXISTS over private rows: whether the privacy unit of a row has such rows elsewhere.

``WHERE patient_id IN (SELECT patient_id FROM visits WHERE ...)`` and ``EXISTS (SELECT 1 FROM visits
v WHERE v.patient_id = p.patient_id AND ...)`` become a column of the rows, true where the unit has
a partner. They add no rows, so that a unit has as many as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.unit_local import FilterRows, JoinRows, PerUnit
from dpsql.errors import Error
from dpsql.sql.cell_tests import as_test
from dpsql.sql.inline import Flat
from dpsql.sql.local_tables import named_source, relation_of, table_of
from dpsql.sql.parse import Statement
from dpsql.sql.per_unit import is_unit, table_under
from dpsql.sql.products import Compiler
from dpsql.sql.relations import PrivateRows, Relation, column_of, read_from
from dpsql.sql.scope import conjuncts

_WORKS = "unit IN (SELECT unit FROM ...), or EXISTS with an equality of both units"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A condition on a row: its unit is, or is not, among those of a sub-query."""

    node: exp.Expr
    query: exp.Select
    is_in: bool


@dataclass(frozen=True, slots=True)
class SemiJoins:
    """Reads the conditions of one SELECT over private rows.

    ``relation`` says what a query stands for.
    """

    flat: Flat
    statement: Statement
    compiler: Compiler
    relation: Callable[[exp.Expr], Relation]

    def taken(self, select: exp.Select) -> exp.Select:
        """The SELECT without these conditions, which are among those of its rows from now on.

        Raises: NotSupportedError (E_SUBQUERY, E_JOIN); ProgrammingError.
        """
        where, table = select.args.get("where"), table_under(self.flat, self.compiler)
        tests = [] if where is None else conjuncts(where.this)
        if table.unit.column is None or not any(test.find(exp.Query) for test in tests):
            return select
        kept = [test for test in tests if not self.take(test)]
        copy = select.copy()
        found = [exp.paren(test.copy(), copy=False) for test in kept]
        copy.set("where", exp.Where(this=exp.and_(*found, copy=False)) if kept else None)
        return copy

    def take(self, test: exp.Expr) -> bool:
        """Add a condition to the rows, if it is one of units."""
        asked = self.read(test)
        if asked is None:
            return False
        found = self.relation(asked.query)
        if not isinstance(found, PrivateRows):
            return False
        table = table_under(self.flat, self.compiler)
        other = self.compiler.catalog.find(found.source.name.casefold())
        if len(found.fields) != 1 or not is_unit(found.fields[0].value, other) or found.joins:
            self.flat.refuse(asked.node, "E_SUBQUERY", "this sub-query over private rows", _WORKS)
        self.flat.rows = self.joined(asked, table, found, other)
        return True

    def joined(self, asked: _Asked, table: Table, found: PrivateRows, other: Table) -> PrivateRows:
        """The rows with a column that says whether their unit has a partner, and that test."""
        right = relation_of(other)
        if found.where:
            fragment = self.statement.fragment
            where = as_test(found.source, found.where, fragment, self.compiler)
            right = FilterRows(right, where)
        left, number = relation_of(table), 1
        while f"in {number} exists" in table.columns:
            number += 1
        node = JoinRows(left, PerUnit(right), f"in {number}", outer=True, one=True)
        label = table.name.split(" #")[0]
        place = self.flat.locate(asked.node)
        wider = table_of(self.compiler.catalog, node, label, table.unit.max_rows, place)
        alias = self.flat.rows.source.alias_or_name
        test: exp.Expr = column_of(node.partner_of, alias)
        test = test if asked.is_in else exp.Not(this=test)
        self.flat.where.append(test)
        source = named_source(wider.name, alias)
        return replace(self.flat.rows, source=source, plain=False)

    def read(self, test: exp.Expr) -> _Asked | None:
        """The sub-query of a condition over units; None for other conditions."""
        node, is_in = test.unnest(), True
        while isinstance(node, exp.Not):
            node, is_in = node.this.unnest(), not is_in
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            query = node.args["query"].unnest()
            if isinstance(query, exp.Select) and self.is_own_unit(node.this):
                return _Asked(node, query, is_in)
        if isinstance(node, exp.Exists) and isinstance(node.this.unnest(), exp.Select):
            query = self.uncorrelated(node.this.unnest())
            return None if query is None else _Asked(node, query, is_in)
        return None

    def is_own_unit(self, node: exp.Expr) -> bool:
        """Whether an expression is the privacy unit of the rows."""
        inner = node.unnest()
        if not isinstance(inner, exp.Column):
            return False
        try:
            found = self.flat.names.find(inner)
        except Error:
            return False
        return found is not None and is_unit(found, table_under(self.flat, self.compiler))

    def uncorrelated(self, query: exp.Select) -> exp.Select | None:
        """A sub-query of EXISTS as one of units: what it compares with the unit around it."""
        where = query.args.get("where")
        tests = [] if where is None else conjuncts(where.this)
        inside = {element.alias for element in read_from(query)}
        for test in tests:
            unit = self.compared(test.unnest(), inside)
            if unit is not None:
                rest = [exp.paren(each.copy(), copy=False) for each in tests if each is not test]
                copy = query.copy()
                copy.set("expressions", [unit.copy()])
                copy.set("distinct", None)
                copy.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)
                return copy
        return None

    def compared(self, test: exp.Expr, inside: set[str]) -> exp.Expr | None:
        """The column within that a condition compares with the unit around."""
        sides: Sequence[exp.Expr] = ()
        if isinstance(test, exp.EQ):
            sides = (test.this.unnest(), test.expression.unnest())
        for one, two in (sides, sides[::-1]) if sides else ():
            is_around = isinstance(one, exp.Column) and one.table.casefold() not in {"", *inside}
            if is_around and self.is_own_unit(one) and isinstance(two, exp.Column):
                return two
        return None
