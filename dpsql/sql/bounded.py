"""Sums and counts whose parts are bounded for each privacy unit and group, as ZetaSQL bounds them.

``SELECT ward, SUM(cost, contribution_bounds_per_group => (0, 50)) FROM visits GROUP BY ward`` where
a patient has several visits adds up what each patient adds to each ward, clipped to the bounds, in
at most ``max_groups_contributed`` wards: a SELECT over one by privacy unit, whose columns have
these bounds by declaration.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.records import dataclass, field
from dpsql.sql.clauses import clip_of, without_clip
from dpsql.sql.distinct_aggregates import OF_ONE
from dpsql.sql.expressions import name_of
from dpsql.sql.inline import Flat, FlatSource
from dpsql.sql.parse import Statement
from dpsql.sql.per_unit import UnitRows, group_keys, is_unit
from dpsql.sql.products import Compiler
from dpsql.sql.relations import Element

_PARTS = "_part"
_HINT = "SUM, COUNT and AVG of columns, COUNT(DISTINCT unit), grouped by columns"


@dataclass
class Bounded:
    """Rewrites one SELECT over private rows."""

    flat: Flat
    table: Table
    statement: Statement
    compiler: Compiler
    groups: int | None = None
    inner: list[tuple[exp.Expr, tuple[float, float] | None]] = field(default_factory=list)
    """What a unit adds to a group, part by part, and the bounds of each."""

    def aggregate(self, select: exp.Select) -> exp.Select:
        """The SELECT over what units add to groups. Raises: NotSupportedError; ProgrammingError."""
        keys = group_keys(self.flat, select)
        unit = exp.column(str(self.table.unit.column))
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
        units = UnitRows(self.flat, self.table, self.statement, self.compiler, most=self.groups)
        rows = units.rows(within)
        source = FlatSource(Element(_PARTS, exp.Table(this=exp.to_identifier(_PARTS))), rows)
        return Flat([source], self.flat.locate, self.flat.values).aggregate(outer)

    def over(self, node: exp.Expr, keys: dict[str, exp.Expr]) -> exp.Expr:
        """An expression over the parts: its aggregates are sums of them."""
        for name, key in keys.items():
            if node == key:
                return _placed(exp.column(name), node)
        called = node.this if isinstance(node, exp.Filter) else node
        if isinstance(called, exp.Count) and isinstance(called.this, exp.Distinct):
            return self.units(node, called)
        if isinstance(node, exp.Filter | exp.AggFunc):
            return self.sums(node)
        args = {name: self.part(value, keys) for name, value in node.args.items()}
        return _placed(type(node)(**args), node)

    def part(self, value: object, keys: dict[str, exp.Expr]) -> object:
        if isinstance(value, exp.Expr):
            return self.over(value, keys)
        if isinstance(value, list):
            return [self.part(each, keys) for each in value]
        return value

    def units(self, node: exp.Expr, called: exp.Count) -> exp.Expr:
        """The number of units in a group, or of those with such rows in it."""
        clip, counted = self.clip(called), self.flat.resolve(called.this.expressions[0])
        if clip is not None and not clip[0] <= 1 <= clip[1]:
            self.flat.refuse(node, "E_EXPR_IN_AGG", *OF_ONE)
        if not is_unit(counted, self.table):
            self.flat.refuse(node, "E_AGGREGATE", "this count of bounded parts", _HINT)
        if not isinstance(node, exp.Filter):
            return exp.Count(this=exp.Distinct(expressions=[exp.column("unit")]))
        every = exp.Count(this=exp.Star(), big_int=True)
        rows = self.sum(exp.Filter(this=every, expression=node.expression.copy())).this
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
