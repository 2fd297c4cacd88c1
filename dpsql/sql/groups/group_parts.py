"""Sums and counts of parts: of what each privacy unit adds to a group, or each key of one.

``SELECT ward, SUM(cost, contribution_bounds_per_group => (0, 50)) FROM visits GROUP BY ward`` where
a patient has several visits adds up what each patient adds to each ward, clipped to the bounds as
ZetaSQL does it, in at most ``max_groups_contributed`` wards: a SELECT over one by privacy unit,
whose columns have these bounds by declaration. ``COUNT(DISTINCT order_number)``, where each order
is of one unit, counts parts by order, with the noise of as many as a unit may have.
"""

from __future__ import annotations

import copy

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.records import dataclass, field, replace
from dpsql.relation.declared_units import unit_keys_of
from dpsql.relation.unit_local import JoinRows, PerKey
from dpsql.sql.inline import FlatFrom, FlatSource
from dpsql.sql.measures.distinct_aggregates import OF_ONE
from dpsql.sql.products import Compiler
from dpsql.sql.relations import FromElement, column_of
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import over_parts, split_test
from dpsql.sql.text.clauses import clip_of, without_clip
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import UnitRows, group_keys, is_stored_key, is_unit

_PARTS = "_part"
_HINT = "SUM, COUNT and AVG of columns, COUNT(DISTINCT unit), grouped by columns"


def counted_name(flat: FlatFrom, node: exp.Expr, table: Table) -> str | None:
    """The unit, or the key of units, case-folded, of which a count is of different ones, if any."""
    called = node.this if isinstance(node, exp.Filter) else node
    distinct = called.this if isinstance(called, exp.Count) else None
    if not isinstance(distinct, exp.Distinct) or len(distinct.expressions) != 1:
        return None
    value, _ = split_test(distinct.expressions[0])
    if not isinstance(value, exp.Column) or isinstance(value.this, exp.Star):
        return None
    found = flat.resolve(value)
    name = found.unnest().name.casefold()
    is_key = is_stored_key(found, table) and name in unit_keys_of(table)
    return name if is_unit(found, table) or is_key else None


@dataclass
class GroupParts:
    """Rewrites one SELECT over private rows.

    ``of`` is the case-folded column that parts are told apart by: the privacy unit, or a key. A
    unit is in so many ``groups``.
    """

    flat: FlatFrom
    table: Table
    statement: Statement
    compiler: Compiler
    of: str
    groups: int | None
    inner: list[tuple[exp.Expr, tuple[float, float] | None]] = field(default_factory=list)
    """The amounts that a unit adds to a group, part by part, and the bounds of each."""

    def __post_init__(self) -> None:
        self.of_keys = self.of != str(self.table.unit.column).casefold()
        if self.of_keys:
            self.groups = None  # that a unit has keys in, each in several

    def aggregate(self, select: exp.Select) -> exp.Select:
        """The SELECT over what units add to groups. Raises: NotSupportedError; ProgrammingError."""
        keys = group_keys(self.flat, select)
        flat, table = self.with_keys(select) if self.of_keys else (self.flat, self.table)
        unit = column_of(" part", " part")  # whatever the rows call it, if they show it
        flat.known[unit] = column_of(self.of, flat.rows.source.alias_or_name)
        named = {f"k{i}": key for i, key in enumerate(keys)}
        outer = exp.Select(
            expressions=[
                exp.alias_(self.over(item.unalias(), named), name_of(item), quoted=True)
                for item in select.expressions
            ]
        )
        outer.meta.update(select.meta)
        for clause in ("having", "order", "limit", "offset", "qualify"):
            value = select.args.get(clause)
            if value is not None:
                outer.set(clause, self.over(value, named))
        if keys:
            outer.set("group", exp.Group(expressions=[exp.column(name) for name in named]))
        items = [exp.alias_(unit.copy(), "unit")]
        items += [exp.alias_(key.copy(), name) for name, key in named.items()]
        items += [exp.alias_(part, f"v{i}") for i, (part, _) in enumerate(self.inner)]
        within = exp.Select(expressions=items, where=select.args.get("where"))
        within.set("group", exp.Group(expressions=[unit, *(key.copy() for key in keys)]))
        within.meta.update(select.meta)
        rows = UnitRows(flat, table, self.statement, self.compiler, most=self.groups).rows(within)
        source = FlatSource(FromElement(_PARTS, exp.Table(this=exp.to_identifier(_PARTS))), rows)
        return FlatFrom([source], self.flat.locate, self.flat.values).aggregate(outer)

    def with_keys(self, select: exp.Select) -> tuple[FlatFrom, Table]:
        """The rows that have a key: they have themselves for a partner, and NULL has none."""
        relation, source = relation_of(self.table), self.flat.rows.source
        every = PerKey(relation, (), (), (self.of,))
        found = JoinRows(relation, every, "known", ((self.of, self.of),), one=True)
        label, most = self.table.name.split(" #")[0], self.table.unit.max_rows
        table = table_of(self.compiler.catalog, found, label, most, self.flat.locate(select))
        flat, source = copy.copy(self.flat), named_source(table.name, source.alias_or_name)
        flat.rows = replace(flat.rows, source=source, plain=False)
        return flat, table

    def over(self, node: exp.Expr, keys: dict[str, exp.Expr]) -> exp.Expr:
        """An expression over the parts: its aggregates are sums of them."""
        for name, key in keys.items():
            if node == key:
                return _placed(exp.column(name), node)
        called = node.this if isinstance(node, exp.Filter) else node
        if isinstance(called, exp.Count) and isinstance(called.this, exp.Distinct):
            return self.different(node, called)
        if isinstance(node, exp.Filter | exp.AggFunc):
            return self.sums(node)
        return _placed(over_parts(node, lambda part: self.over(part, keys)), node)

    def different(self, node: exp.Expr, called: exp.Count) -> exp.Expr:
        """The number of parts in a group, or of those with such rows in it."""
        if counted_name(self.flat, called, self.table) != self.of:
            self.flat.refuse(node, "E_AGGREGATE", "this count of bounded parts", _HINT)
        clip, most = self.clip(called), self.table.unit.max_rows if self.of_keys else 1
        if clip is not None and not clip[0] <= 1 <= most <= clip[1]:
            self.flat.refuse(node, "E_EXPR_IN_AGG", *OF_ONE)
        tests = [node.expression.this] if isinstance(node, exp.Filter) else []
        tests += split_test(called.this.expressions[0])[1]
        every = exp.Count(this=exp.Star(), big_int=True)
        if not tests:
            units = exp.Count(this=exp.Distinct(expressions=[exp.column("unit")]))
            return every if self.of_keys else units
        where = exp.Where(this=exp.and_(*tests))
        rows = self.sum(exp.Filter(this=every, expression=where)).this
        return _placed(exp.CountIf(this=exp.GT(this=rows, expression=exp.Literal.number(0))), node)

    def sums(self, node: exp.Expr) -> exp.Expr:
        called = node.this if isinstance(node, exp.Filter) else node
        if isinstance(called.this, exp.Distinct):  # different values do not add up over units
            self.flat.refuse(node, "E_AGGREGATE", "this aggregate of bounded parts", _HINT)
        if isinstance(called, exp.Avg) and self.clip(called) is not None:
            return self.sum(node, exp.Avg)  # the mean of what units have on average, clipped
        if isinstance(called, exp.Avg):
            total, count = self.replaced(node, exp.Sum), self.replaced(node, exp.Count)
            never = exp.Nullif(this=self.sum(count), expression=exp.Literal.number(0))
            return exp.paren(exp.Div(this=self.sum(total), expression=never), copy=False)
        if not isinstance(called, exp.Sum | exp.Count | exp.CountIf):
            self.flat.refuse(node, "E_AGGREGATE", "this aggregate of bounded parts", _HINT)
        return self.sum(node)

    def clip(self, node: exp.Expr) -> tuple[float, float] | None:
        return clip_of(node, self.statement.clips, self.statement.fragment)

    def replaced(self, node: exp.Expr, kind: type[exp.Expr]) -> exp.Expr:
        """The same aggregate of another kind."""
        if isinstance(node, exp.Filter):
            inner = self.replaced(node.this, kind)
            return exp.Filter(this=inner, expression=node.expression.copy())
        return kind(this=node.this.copy())

    def sum(self, node: exp.Expr, kind: type[exp.Expr] = exp.Sum) -> exp.Expr:
        """The sum or mean of what units add; what is asked for twice is one part."""
        clip = self.clip(node.this if isinstance(node, exp.Filter) else node)
        same = [k for k, (each, known) in enumerate(self.inner) if each == node and known == clip]
        if not same:
            self.inner.append((node.copy(), clip))
        place = same[0] if same else len(self.inner) - 1
        found = _placed(kind(this=exp.column(f"v{place}")), node)
        return without_clip(found)  # its parts are clipped


def _placed(found: exp.Expr, node: exp.Expr) -> exp.Expr:
    """Note where in the text an expression stands."""
    found.meta.update(node.meta)
    place = next((part.meta for part in node.walk() if "start" in part.meta), {})
    for part in found.walk():
        if isinstance(part, exp.Identifier) and "start" not in part.meta:
            part.meta.update(place)
    return found
