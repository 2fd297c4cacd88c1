"""By how much two columns of a private row differ, as a column where either has many cells.

``ship - sold BETWEEN 30 AND 60`` over 1,800 days each would be a condition on three million pairs
of days, or thousands of products. The difference itself has 3,600 cells, so that such rows are told
by one column more, worked out row by row. ``date_diff('day', sold, ship)`` is the same, weeks
are sevens of it, and comparisons such as ``ship > sold + 30`` say on which side of 0 it is.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.errors import Error
from dpsql.logical.functions import has
from dpsql.records import dataclass, field, replace
from dpsql.relation.distances import difference_of
from dpsql.relation.unit_local import DifferRows
from dpsql.sql.cells.cell_columns import FlatColumns
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.relations import column_of
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import table_under
from dpsql.workload.term import MAX_PRODUCTS

_CLAUSES = ("where", "group", "having", "qualify", "order")


def may_compare(node: exp.Expr) -> bool:
    """True if a node may compare two columns."""
    of_two = isinstance(node, exp.Sub | exp.DateDiff | exp.Between)
    return of_two or has(node, "order", "equality")


@dataclass(frozen=True, slots=True)
class DifferenceColumns:
    """Makes columns of the differences in one SELECT over private rows; ``made`` are those.

    Expressions are as they are written, or *flat*: over the columns of the rows themselves.
    """

    flat: FlatFrom
    statement: Statement
    compiler: Compiler
    made: dict[tuple[exp.Expr, ...], exp.Column] = field(default_factory=dict)

    def written(self, select: exp.Select) -> exp.Select:
        """The SELECT with such columns. Raises: ProgrammingError; NotSupportedError."""
        table = table_under(self.flat, self.compiler)
        large = any(column.size > MAX_PRODUCTS for column in table.columns.values())
        if table.unit.column is None or table.synthetic or not large:
            return select
        copy = select.copy()
        copy.set("expressions", [self.item(each) for each in copy.expressions])
        for clause in _CLAUSES:
            if copy.args.get(clause) is not None:
                copy.set(clause, self.over(copy.args[clause]))
        return copy if self.made else select

    def item(self, item: exp.Expr) -> exp.Expr:
        """A select item under the name that it has as written."""
        found = self.over(item.copy())
        is_same = isinstance(found, exp.Alias) or found == item
        return found if is_same else exp.alias_(found, name_of(item), quoted=True)

    def over(self, node: exp.Expr, flat: bool = False, added_up: bool = False) -> exp.Expr:
        """An expression with such columns; a difference that is only added up needs none."""
        if isinstance(node, exp.Query):
            return node
        found = None if added_up else self.difference(node, flat)
        if found is not None:
            return found
        is_sum = isinstance(node, exp.Sum | exp.Avg) or has(node, "spread")
        if is_sum or isinstance(node, exp.Predicate | exp.Case):
            added_up = is_sum
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                node.set(key, self.over(value, flat, added_up))
            elif isinstance(value, list):
                parts = [
                    self.over(each, flat, added_up) if isinstance(each, exp.Expr) else each
                    for each in value
                ]
                node.set(key, parts)
        return node

    def difference(self, node: exp.Expr, flat: bool) -> exp.Expr | None:
        """A difference as a column, a comparison of two columns as one with 0; None for others."""
        if isinstance(node, exp.Column) and not flat:
            return self.named(node)
        if isinstance(node, exp.DateDiff):
            unit = node.text("unit").upper()
            if unit not in ("", "DAY", "WEEK"):
                return None
            found = self.column(node, node.this, node.expression, flat)
            if found is None or unit != "WEEK":
                return found
            weeks = exp.IntDiv(this=found, expression=exp.Literal.number(7))  # as DuckDB has them
            return exp.paren(weeks, copy=False)
        if isinstance(node, exp.Sub):
            return self.column(node, node.this, node.expression, flat)
        if has(node, "order", "equality"):
            found = self.column(node, node.this, node.expression, flat)
            zero = exp.Literal.number(0)
            return None if found is None else type(node)(this=found, expression=zero)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
            high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
            ends = [self.difference(test, flat) for test in (low, high)]
            if any(each is not None for each in ends):
                both = zip(ends, (low, high), strict=True)
                tests = [self.over(test, flat) if end is None else end for end, test in both]
                return exp.paren(exp.and_(*tests, copy=False), copy=False)
        return None

    def named(self, node: exp.Column) -> exp.Column | None:
        """A name that stands for an expression in which there are such differences."""
        try:
            value = self.flat.names.find(node)
        except Error:
            return None  # what cannot be read is refused where it is
        if value is None or not any(map(may_compare, value.walk())):
            return None
        found = self.over(value.copy(), flat=True)
        return None if found == value else self.shown(f"{node.name} of differences", found)

    def shown(self, name: str, value: exp.Expr) -> exp.Column:
        """A name that stands for a flat expression from now on."""
        column = exp.column(exp.to_identifier(name, quoted=True))
        self.flat.known[column] = value
        return column.copy()

    def column(
        self, node: exp.Expr, one: exp.Expr, other: exp.Expr, flat: bool
    ) -> exp.Column | None:
        """The column of by how much the first is above the second, where either has many cells."""
        table = table_under(self.flat, self.compiler)
        try:
            sides = [(each if flat else self.flat.resolve(each)).unnest() for each in (one, other)]
        except Error:
            return None  # likewise
        if isinstance(node, exp.DateDiff):
            sides = [each if self.is_day(each, table) else _as_day(each) for each in sides]
        names = [self.names(each, table) for each in sides]
        if [len(each) for each in names] != [1, 1] or names[0] == names[1]:
            return None
        key = tuple(each.copy() for each in sides)
        if key not in self.made:
            found = self.differ(node, sides, table)
            if found is None:
                return None
            self.made[key] = found
        found = self.made[key].copy()
        return found if flat else self.shown(found.name, found)

    def names(self, node: exp.Expr, table: Table) -> set[str]:
        """The columns that a flat expression is about; none if it is about anything else."""
        alias = self.flat.rows.source.alias_or_name.casefold()
        columns = list(node.find_all(exp.Column))
        own = all(each.table.casefold() == alias for each in columns)
        names = {each.name.casefold() for each in columns}
        plain = own and not node.find(exp.Query, exp.AggFunc, exp.Window)
        return names if plain and names <= table.columns.keys() else set()

    def is_day(self, node: exp.Expr, table: Table) -> bool:
        found = table.columns.get(node.name.casefold()) if isinstance(node, exp.Column) else None
        return found is not None and found.type == "date"

    def differ(self, node: exp.Expr, sides: list[exp.Expr], table: Table) -> exp.Column | None:
        """Let the rows have a column of a difference, if it is one; return it."""
        source = self.flat.rows.source
        columns = FlatColumns(source, table, self.statement.fragment, self.compiler)
        try:
            one, other = (columns.find(each) for each in sides)
        except Error:
            return None  # likewise
        if one is None or other is None or max(one.size, other.size) <= MAX_PRODUCTS:
            return None
        kinds = {one.type, other.type}
        stored = [column.type for column in (one, other) if column.name.casefold() in table.columns]
        if "timestamp" in stored or (isinstance(node, exp.Sub) and "timestamp" in kinds):
            return None  # the time of day counts there, or the difference is an interval
        name = columns.fresh(f"{columns.told(one.name)} - {columns.told(other.name)}")
        column = difference_of(name, one, other)
        if column is None:
            return None
        relation = columns.over(relation_of(table))
        rows = DifferRows(relation, column, one.name.casefold(), other.name.casefold())
        span, label, most = self.flat.locate(node), table.name.split(" #")[0], table.unit.max_rows
        wider = table_of(self.compiler.catalog, rows, label, most, span)
        alias = source.alias_or_name
        self.flat.rows = replace(
            self.flat.rows, source=named_source(wider.name, alias), plain=False
        )
        return column_of(name, alias)


def _as_day(node: exp.Expr) -> exp.Expr:
    return exp.cast(node.copy(), "DATE")
