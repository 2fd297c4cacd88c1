"""Sums and counts whose parts are bounded for each privacy unit and group, as ZetaSQL bounds them.

``SELECT ward, SUM(cost, contribution_bounds_per_group => (0, 50)) FROM visits GROUP BY ward`` where
a patient has several visits adds up what each patient adds to each ward, clipped to the bounds, in
at most ``max_groups_contributed`` wards: a SELECT over one by privacy unit, whose columns have
these bounds by declaration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.sql.cell_columns import FlatColumns
from dpsql.sql.clauses import RowBounds, clip_of, without_clip
from dpsql.sql.expressions import name_of
from dpsql.sql.inline import Flat, FlatSource
from dpsql.sql.kept_groups import Fewest, keep_groups, refuse_sets
from dpsql.sql.over_tables import Placed
from dpsql.sql.parse import Statement
from dpsql.sql.per_unit import UnitRows, group_keys, is_unit, table_under
from dpsql.sql.products import Compiler
from dpsql.sql.relations import Element, Join, Known
from dpsql.sql.split import needs_split, split

_PARTS = "_part"
_SIDES = ("rows", "parts")
"""The answers over rows, and over what units add to groups."""
_HINT = "SUM, COUNT and AVG of columns, COUNT(DISTINCT unit), grouped by columns"


def needs_bounds(statement: Statement, select: exp.Select, table: Table) -> bool:
    """Whether what a unit adds to a group, or to how many, is to be bounded."""
    if table.unit.max_rows == 1 or table.unit.column is None:
        return False
    if Fewest.of(statement.options, table).says:
        return True
    called = select.find_all(exp.Sum, exp.Count, exp.Avg) if statement.clips else ()
    return any(_is_clipped(node, statement, table.unit.max_rows) for node in called)


def _is_clipped(node: exp.Expr, statement: Statement, most: int) -> bool:
    """Whether what a unit of so many rows adds to a group is clipped."""
    clip = clip_of(node, statement.clips, statement.fragment)
    if clip is None or isinstance(clip, RowBounds):
        return False
    is_sum = isinstance(node, exp.Sum | exp.Avg)
    return is_sum or (isinstance(node, exp.Count) and (clip[1] < most or clip[0] > 1))


@dataclass(frozen=True, slots=True)
class InParts:
    """The SELECTs that one with bounds is made of, and what joins their answers.

    They are over rows, or over what units add to groups. ``outer`` is the SELECT over their
    answers, if there is one; ``on`` is the condition that the keys of both are the same.
    """

    trees: tuple[exp.Select, ...]
    outer: exp.Select | None = None
    on: exp.Expr | None = None

    def placed(self, tables: Iterable[Known]) -> list[Placed]:
        """The answers of all of them in FROM."""
        found: list[Placed] = []
        for name, table in zip(_SIDES, tables, strict=False):
            node = exp.Table(this=exp.to_identifier(name))
            join = Join(exp.Join(this=node), "", "", "", (), self.on) if found else None
            found.append(Placed(Element(name, node, join), table))
        return found


def in_parts(flat: Flat, select: exp.Select, statement: Statement, compiler: Compiler) -> InParts:
    """What a SELECT with bounds is made of. Raises: NotSupportedError; ProgrammingError."""
    keys, fewest = (
        group_keys(flat, select),
        Fewest.of(statement.options, table_under(flat, compiler)),
    )
    refuse_sets(flat, keys)
    fewest = fewest if keys else replace(fewest, groups=None)
    if fewest.says:
        select = keep_groups(flat, select, fewest, statement, compiler)
    parts = Bounded(flat, table_under(flat, compiler), statement, compiler, fewest.groups)
    kinds = set(parts.kinds(select))
    inner, outer = split(flat, select) if len(kinds) > 1 or needs_split(select) else (select, None)
    if len(kinds) < 2:
        return InParts(
            (parts.aggregate(inner) if kinds == {True} else flat.aggregate(inner),), outer
        )
    group = inner.args.get("group")
    keys = [] if group is None else group.expressions
    columns = FlatColumns(flat.rows.source, parts.table, statement.fragment, compiler)
    same = [_same(f"k{i}", columns.find(flat.resolve(key))) for i, key in enumerate(keys)]
    one, other = (parts.some(inner, keys, of_parts) for of_parts in (False, True))
    on = exp.and_(*same, copy=False) if same else None
    return InParts((flat.aggregate(one), parts.aggregate(other)), outer, on)


def _same(name: str, column: Column | None) -> exp.Expr:
    """That both sides have the same key, which may be NULL."""
    left, right = (exp.column(name, side) for side in _SIDES)
    is_known = column is not None and not column.null
    return (exp.EQ if is_known else exp.NullSafeEQ)(this=left, expression=right)


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

    def kinds(self, select: exp.Select) -> Iterator[bool]:
        """For every aggregate of a SELECT whether it is of what units add to groups.

        What may be either is not: a sum over rows has the noise of all rows of a unit, one over
        what it adds to groups that of as many rows in each of these.
        """
        clauses = (select.args.get(key) for key in ("having", "order", "qualify"))
        nodes = [each for each in (*select.expressions, *clauses) if each is not None]
        return (self.is_part(part) for node in nodes for part in _aggregates(node))

    def is_part(self, node: exp.Expr) -> bool:
        """Whether an aggregate is of what units add to groups: clipped, or a number of units."""
        called = node.this if isinstance(node, exp.Filter) else node
        if isinstance(called, exp.Count) and isinstance(called.this, exp.Distinct):
            counted = self.flat.resolve(called.this.expressions[0])
            return self.groups is not None and is_unit(counted, self.table)
        return _is_clipped(called, self.statement, self.table.unit.max_rows)

    def some(self, select: exp.Select, keys: Sequence[exp.Expr], of_parts: bool) -> exp.Select:
        """The keys of a SELECT, called k0, k1 and so on, and its aggregates of one kind.

        Its other items, which are keys, are among those that are not of parts.
        """
        items = [exp.alias_(key.copy(), f"k{i}") for i, key in enumerate(keys)]
        for item in select.expressions:
            kinds = [self.is_part(each) for each in _aggregates(item)]
            if any(kinds) == of_parts:
                items.append(item.copy())
        found = select.copy()
        found.set("expressions", items)
        return found

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
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct):
            counted = self.flat.resolve(node.this.expressions[0])
            if not is_unit(counted, self.table):
                self.flat.refuse(node, "E_AGGREGATE", "this count of bounded parts", _HINT)
            return exp.Count(this=exp.Distinct(expressions=[exp.column("unit")]))
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


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates in an expression that are in no other one."""
    if isinstance(node, exp.AggFunc | exp.WithinGroup | exp.Filter):
        yield node
        return
    for part in node.iter_expressions():
        if not isinstance(part, exp.Query):
            yield from _aggregates(part)


def _placed(found: exp.Expr, node: exp.Expr) -> exp.Expr:
    """Note where in the text an expression stands."""
    found.meta.update(node.meta)
    place = next((part.meta for part in node.walk() if "start" in part.meta), {})
    for part in found.walk():
        if isinstance(part, exp.Identifier) and "start" not in part.meta:
            part.meta.update(place)
    return found
