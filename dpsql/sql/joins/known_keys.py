"""COUNT(order_number) and ``order_number IS NULL``, of keys that rows are matched by.

A row has a key where it has itself for a partner by that key: NULL has none. That is a column of
the rows, which what is asked of the key is written with.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from dpsql.records import dataclass, replace
from dpsql.relation.unit_local import EXISTS, AllOf, MeetRows, PerKey
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.relations import column_of
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import one_branch
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import is_stored_key, is_unit, table_under


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """Writes what a SELECT over private rows asks of keys by such columns."""

    flat: FlatFrom
    compiler: Compiler

    def written(self, select: exp.Select) -> exp.Select:
        """The SELECT over rows with such columns. Raises: ProgrammingError."""
        table = table_under(self.flat, self.compiler)
        if table.unit.column is None or table.synthetic or next(_asked(select), None) is None:
            return select
        if not any(self.key(each) for each in _asked(select)):
            return select
        copy = select.copy()
        named = [
            exp.alias_(item, name_of(item), quoted=True) if any(_asked(item)) else item
            for item in copy.expressions
        ]
        copy.set("expressions", named)
        for column in list(_asked(copy)):
            key = self.key(column)
            if key is not None:
                self.write(column, self.known(key, select))
        return copy

    def key(self, column: exp.Column) -> str | None:
        """The case-folded name of the key that a column is."""
        value, table = self.flat.names.find(column), table_under(self.flat, self.compiler)
        if value is None or is_unit(value, table) or not is_stored_key(value, table):
            return None
        return value.unnest().name.casefold()

    def write(self, column: exp.Column, known: exp.Column) -> None:
        """Write IS NULL, or what COUNT is of, by the column that says so.

        ``COUNT(CASE WHEN a THEN key END)`` is one of a CASE in a CASE.
        """
        shown = exp.column(exp.to_identifier(known.name, quoted=True))
        self.flat.known[shown] = known
        parent = column.parent
        if isinstance(parent, exp.Is):
            parent.replace(exp.paren(exp.Not(this=shown.copy()), copy=False))
        else:
            one = exp.If(this=shown.copy(), true=exp.Literal.number(1))
            column.replace(exp.Case(ifs=[one]))

    def known(self, key: str, select: exp.Select) -> exp.Column:
        """The column of the rows that says whether they have a key, which is added once."""
        alias, table = self.flat.rows.source.alias_or_name, table_under(self.flat, self.compiler)
        name = f"{key} of it"
        if f"{name}{EXISTS}" not in table.columns:
            relation, catalog = relation_of(table), self.compiler.catalog
            every = PerKey(relation, (), (), (key,))
            wider = MeetRows(relation, every, name, ((key, key),), AllOf(()))
            label, most = table.name.split(" #")[0], table.unit.max_rows
            found = table_of(catalog, wider, label, most, self.flat.locate(select))
            source = named_source(found.name, alias)
            self.flat.rows = replace(self.flat.rows, source=source, plain=False)
        return column_of(f"{name}{EXISTS}", alias)


def _asked(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns that are counted, or tested for NULL, in a SELECT itself or an expression."""
    if isinstance(node, exp.Select):
        clauses = (node.args.get(key) for key in ("where", "having", "order", "qualify"))
        for part in (*node.expressions, *clauses):
            if part is not None:
                yield from _asked(part)
        return
    is_null = isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)
    inner = node.this if is_null or isinstance(node, exp.Count) else None
    while isinstance(inner, exp.Expr) and (found := one_branch(inner)) is not None:
        inner = found[0]
    inner = inner.unnest() if isinstance(inner, exp.Expr) else None
    if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
        yield inner
    for part in node.iter_expressions():
        if not isinstance(part, exp.Query):
            yield from _asked(part)
