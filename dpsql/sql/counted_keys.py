"""COUNT(DISTINCT order_number): how many keys have a row, where each key is of one privacy unit.

A row for each key and group of rows is counted, with the noise of as many as a unit may have.
"""

from __future__ import annotations

import copy

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.declared_units import unit_keys_of
from dpsql.catalog.unit_local import DerivedTable, JoinRows, PerKey
from dpsql.records import dataclass, replace
from dpsql.sql.expressions import name_of
from dpsql.sql.inline import Flat, FlatSource
from dpsql.sql.local_tables import named_source, relation_of, table_of
from dpsql.sql.parse import Statement
from dpsql.sql.per_unit import UnitRows, group_keys, is_stored_key, is_unit
from dpsql.sql.products import Compiler
from dpsql.sql.relations import Element

_NAME = "counted keys"
_KNOWN = "known"


def counted_key(flat: Flat, node: exp.Expr, table: Table) -> str | None:
    """The case-folded name of the key of which a count is of different ones."""
    called = node.this if isinstance(node, exp.Filter) else node
    if not isinstance(called, exp.Count) or not isinstance(called.this, exp.Distinct):
        return None
    value, _ = _value(called)
    if not isinstance(value, exp.Column) or isinstance(value.this, exp.Star):
        return None
    found = flat.resolve(value)
    if is_unit(found, table) or not is_stored_key(found, table):
        return None
    name = found.unnest().name.casefold()
    return name if name in unit_keys_of(table) else None


def _value(called: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """What a count is of, and the condition under which: that of a CASE without another value."""
    inner = called.this
    if isinstance(inner, exp.Distinct):
        inner = inner.expressions[0] if len(inner.expressions) == 1 else inner
    inner = inner.unnest()
    if isinstance(inner, exp.Case) and inner.this is None and len(inner.args["ifs"]) == 1:
        branch, rest = inner.args["ifs"][0], inner.args.get("default")
    elif isinstance(inner, exp.If):
        branch, rest = inner, inner.args.get("false")
    else:
        return inner, None
    if rest is not None and not isinstance(rest, exp.Null):
        return inner, None
    return branch.args["true"].unnest(), branch.this


def _test(node: exp.Expr) -> exp.Expr | None:
    """The condition on the rows of a count: that of FILTER and that of a CASE in it."""
    called = node.this if isinstance(node, exp.Filter) else node
    _, of_case = _value(called)
    tests = [node.expression.this] if isinstance(node, exp.Filter) else []
    tests += [] if of_case is None else [of_case]
    return exp.and_(*tests) if tests else None


@dataclass(slots=True)
class UnitKeyCounts:
    """Writes the counts of one key of a SELECT over private rows.

    Its items are keys and such counts, and nothing is asked of its answers.
    """

    flat: Flat
    table: Table
    statement: Statement
    compiler: Compiler
    key: str

    def rows(self, select: exp.Select) -> DerivedTable:
        """The rows that have a key: they have themselves for a partner, and NULL has none."""
        relation, catalog = relation_of(self.table), self.compiler.catalog
        every = PerKey(relation, (), (), (self.key,))
        found = JoinRows(relation, every, _KNOWN, ((self.key, self.key),), one=True)
        label, most = self.table.name.split(" #")[0], self.table.unit.max_rows
        return table_of(catalog, found, label, most, self.flat.locate(select))

    def aggregate(self, select: exp.Select) -> exp.Select:
        """The SELECT with COUNT(DISTINCT key): of a row for each key and group of rows."""
        table, flat = self.rows(select), copy.copy(self.flat)
        source = named_source(table.name, flat.rows.source.alias_or_name)
        flat.rows = replace(flat.rows, source=source, plain=False)
        keys = group_keys(self.flat, select)
        within = [exp.alias_(key.copy(), f"g{i}") for i, key in enumerate(keys)]
        items, written, count = [], None, exp.Count(this=exp.Star(), big_int=True)
        for place, item in enumerate(select.expressions):
            inner = item.unalias()
            if inner in keys:
                shown: exp.Expr = exp.column(f"g{keys.index(inner)}")
            else:
                called = inner.this if isinstance(inner, exp.Filter) else inner
                written, test = _value(called)[0], _test(inner)
                shown = count.copy()
                if test is not None:
                    part = exp.Filter(this=count.copy(), expression=exp.Where(this=test))
                    within.append(exp.alias_(part, f"n{place}"))
                    some = exp.GT(this=exp.column(f"n{place}"), expression=exp.Literal.number(0))
                    shown = exp.CountIf(this=some)
            items.append(exp.alias_(shown, name_of(item), quoted=True))
        assert written is not None
        by = [written.copy(), *(key.copy() for key in keys)]
        inside = exp.Select(expressions=within, where=select.args.get("where"))
        inside.set("group", exp.Group(expressions=by))
        inside.meta.update(select.meta)
        rows = UnitRows(flat, table, self.statement, self.compiler).rows(inside)
        outer = exp.Select(expressions=items)
        if keys:
            group = [exp.column(f"g{i}") for i in range(len(keys))]
            outer.set("group", exp.Group(expressions=group))
        for clause in ("having", "order", "limit", "offset", "qualify"):
            assert select.args.get(clause) is None
        outer.meta.update(select.meta)
        element = Element(_NAME, exp.Table(this=exp.to_identifier(_NAME, quoted=True)))
        return Flat([FlatSource(element, rows)], self.flat.locate, self.flat.values).aggregate(
            outer
        )
