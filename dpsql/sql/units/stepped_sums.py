"""A SELECT over rows by unit, with columns of what it asks of sums and means in steps."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.errors import Error
from dpsql.records import dataclass, field, replace
from dpsql.sql.groups.key_sets import keys_of
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.units.per_unit import group_keys, table_under
from dpsql.sql.units.stepped_columns import SteppedColumns, may_step

_CLAUSES = ("where", "group", "having", "qualify", "order")


@dataclass(slots=True)
class SteppedSums:
    """Makes such columns in one SELECT over private rows; expressions are as they are written."""

    flat: FlatFrom
    compiler: Compiler
    steps: SteppedColumns = field(init=False)
    keys: Sequence[exp.Expr] = ()

    def __post_init__(self) -> None:
        self.steps = SteppedColumns(self.flat.rows.source, self.compiler, self.flat.locate)

    def written(self, select: exp.Select) -> exp.Select:
        """The SELECT with such columns. Raises: ProgrammingError; NotSupportedError."""
        if not may_step(table_under(self.flat, self.compiler)):
            return select
        keys = [key for each in group_keys(self.flat, select) for key in keys_of(each)]
        found = [self.resolved(key) for key in keys]
        self.keys = [key for key in found if key is not None]
        self.flat.where = [self.steps.over(test) for test in self.flat.where]
        copy = select.copy()
        copy.set("expressions", [self.item(each) for each in copy.expressions])
        for clause in _CLAUSES:
            if copy.args.get(clause) is not None:
                copy.set(clause, self.over(copy.args[clause]))
        if not self.steps.made:
            return select
        self.flat.rows = replace(self.flat.rows, source=self.steps.source, plain=False)
        return copy

    def resolved(self, node: exp.Expr) -> exp.Expr | None:
        """A flat expression; None for what cannot be read, which is refused where it is."""
        try:
            return self.flat.resolve(node).unnest()
        except Error:
            return None

    def item(self, item: exp.Expr) -> exp.Expr:
        """A select item under the name that it has as written."""
        found = self.over(item.copy())
        is_same = isinstance(found, exp.Alias) or found == item
        return found if is_same else exp.alias_(found, name_of(item), quoted=True)

    def over(self, node: exp.Expr, of_rows: bool = False) -> exp.Expr:
        """An expression with such columns, each as large a part of it as can be one.

        Keys stay whole, but for what is said of rows, before they are grouped.
        """
        of_rows = of_rows or isinstance(node, exp.Where | exp.AggFunc)
        if isinstance(node, exp.Query) or not node.find(exp.Column):
            return node
        value = self.resolved(node) if isinstance(node, exp.Condition) else None
        found = (
            None if value is None else self.steps.column(node, value, () if of_rows else self.keys)
        )
        if found is not None:
            shown = exp.column(exp.to_identifier(f"step {len(self.flat.known)}", quoted=True))
            self.flat.known[shown] = found
            return shown.copy()
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                node.set(key, self.over(value, of_rows))
            elif isinstance(value, list):
                parts = [self.over(e, of_rows) if isinstance(e, exp.Expr) else e for e in value]
                node.set(key, parts)
        return node
