"""A SELECT whose aggregates are of different rows: each kind is measured by itself.

Those over rows, those over what privacy units add to groups, and the numbers of different keys are
SELECTs of their own by the same keys; a SELECT over their answers, joined, has the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.records import dataclass, replace
from dpsql.sql.cells.cell_columns import FlatColumns
from dpsql.sql.groups.group_parts import GroupParts, counted_name
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.relations import FromElement, Join, ShellTable
from dpsql.sql.shell.over_tables import FromTable
from dpsql.sql.subqueries.result_subqueries import needs_split, split
from dpsql.sql.text.clauses import RowBounds, clip_of
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.contribution_bounds import keep_groups, refuse_sets
from dpsql.sql.units.contribution_limits import ContributionLimits
from dpsql.sql.units.per_unit import group_keys, table_under

Kind = str
"""The case-folded column by whose parts an aggregate is; that of rows is over none."""
_ROWS = ""


@dataclass(frozen=True, slots=True)
class SplitSelect:
    """The SELECTs that one is made of, and what joins their answers.

    ``outer`` is the SELECT over these, if there is one. ``keys`` says of each key that they are
    joined by whether it may be NULL.
    """

    trees: tuple[exp.Select, ...]
    outer: exp.Select | None = None
    keys: tuple[bool, ...] = ()

    def placed(self, tables: Iterable[ShellTable]) -> list[FromTable]:
        """The answers of all parts, in FROM."""
        found: list[FromTable] = []
        for place, table in enumerate(tables):
            node = exp.Table(this=exp.to_identifier(f"p{place}"))
            tests = [_same(k, null, node.name) for k, null in enumerate(self.keys)]
            on = exp.and_(*tests, copy=False) if tests else None
            join = Join(exp.Join(this=node), "", "", "", (), on) if place else None
            found.append(FromTable(FromElement(node.name, node, join), table))
        return found


def _same(key: int, null: bool, side: str) -> exp.Expr:
    """The condition that a side has the same key as the first one."""
    left, right = exp.column(f"k{key}", "p0"), exp.column(f"k{key}", side)
    return (exp.NullSafeEQ if null else exp.EQ)(this=left, expression=right)


def needs_bounds(statement: Statement, select: exp.Select, table: Table) -> bool:
    """True if what a unit adds to a group, or to how many, is to be bounded."""
    if table.unit.max_rows == 1 or table.unit.column is None:
        return False
    if ContributionLimits.of(statement.options, table).says:
        return True
    called = select.find_all(exp.Sum, exp.Count, exp.Avg) if statement.clips else ()
    return any(is_clipped(node, statement, table.unit.max_rows) for node in called)


def is_clipped(node: exp.Expr, statement: Statement, most: int) -> bool:
    """True if what a unit of so many rows adds to a group is clipped."""
    clip = clip_of(node, statement.clips, statement.fragment)
    if clip is None or isinstance(clip, RowBounds) or isinstance(node.this, exp.Distinct):
        return False
    is_sum = isinstance(node, exp.Sum | exp.Avg)
    return is_sum or (isinstance(node, exp.Count) and (clip[1] < most or clip[0] > 1))


def needs_parts(flat: FlatFrom, select: exp.Select, statement: Statement, table: Table) -> bool:
    """True if aggregates of a SELECT are not over its rows as they are."""
    if needs_bounds(statement, select, table):
        return True
    counts = select.find(exp.Count) if table.unit.column is not None else None
    return counts is not None and any(
        counted_name(flat, each, table) not in (None, _unit(table))
        for each in _aggregates_of(select)
    )


def _unit(table: Table) -> str:
    return str(table.unit.column).casefold()


def in_parts(
    flat: FlatFrom, select: exp.Select, statement: Statement, compiler: Compiler
) -> SplitSelect:
    """The parts of such a SELECT. Raises: NotSupportedError; ProgrammingError."""
    keys, table = group_keys(flat, select), table_under(flat, compiler)
    refuse_sets(flat, keys)
    limits = ContributionLimits.of(statement.options, table)
    limits = limits if keys else replace(limits, groups=None)
    if limits.says:
        select = keep_groups(flat, select, limits, statement, compiler)
        table = table_under(flat, compiler)
    kinds = _Kinds(flat, table, statement, limits.groups)
    seen = kinds.of(select)
    several = len(seen) > 1
    apart = several or needs_split(select) or bool({*seen} - {_ROWS, _unit(table)})
    inner, outer = split(flat, select) if apart else (select, None)
    given = (flat, table, statement, compiler)
    makers = {
        kind: GroupParts(*given, kind, limits.groups).aggregate if kind else flat.aggregate
        for kind in seen
    }
    if not several:
        make = makers[seen[0]] if seen else flat.aggregate
        return SplitSelect((make(inner),), outer)
    group = inner.args.get("group")
    by = [] if group is None else group.expressions
    columns = FlatColumns(flat.rows.source, table, statement.fragment, compiler)
    nulls = tuple(_may_be_null(columns.find(flat.resolve(key))) for key in by)
    trees = tuple(makers[kind](kinds.some(inner, by, kind, seen[0])) for kind in seen)
    return SplitSelect(trees, outer, nulls)


def _may_be_null(column: Column | None) -> bool:
    return column is None or column.null


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Tells the kinds of aggregates of one SELECT apart."""

    flat: FlatFrom
    table: Table
    statement: Statement
    groups: int | None

    def of(self, select: exp.Select) -> list[Kind]:
        """The kinds of its aggregates, that of rows first."""
        found = {self.kind(each) for each in _aggregates_of(select)}
        unit = _unit(self.table)
        return sorted(found, key=lambda kind: (kind != _ROWS, kind == unit, kind))

    def kind(self, node: exp.Expr) -> Kind:
        """The kind of an aggregate.

        A sum over rows has the noise of all rows of a unit, one over what it adds to groups that
        of as many rows in each of these: what may be either is of the first kind.
        """
        called = node.this if isinstance(node, exp.Filter) else node
        counted, unit = counted_name(self.flat, node, self.table), _unit(self.table)
        if counted is None and is_clipped(called, self.statement, self.table.unit.max_rows):
            return unit
        return _ROWS if counted is None or (counted == unit and self.groups is None) else counted

    def some(
        self, select: exp.Select, keys: Sequence[exp.Expr], kind: Kind, other: Kind
    ) -> exp.Select:
        """The keys of a SELECT, called k0, k1 and so on, and its aggregates of one kind.

        Its other items, which are keys, are among those of the kind ``other``.
        """
        items = [exp.alias_(key.copy(), f"k{i}") for i, key in enumerate(keys)]
        for item in select.expressions:
            kinds = {self.kind(each) for each in _aggregates(item)} or {other}
            if kind in kinds:
                items.append(item.copy())
        found = select.copy()
        found.set("expressions", items)
        return found


def _aggregates_of(select: exp.Select) -> Iterator[exp.Expr]:
    """The aggregates of a SELECT that are in no other one."""
    clauses = (select.args.get(key) for key in ("having", "order", "qualify"))
    for node in (*select.expressions, *clauses):
        if node is not None:
            yield from _aggregates(node)


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.AggFunc | exp.WithinGroup | exp.Filter):
        yield node
        return
    for part in node.iter_expressions():
        if not isinstance(part, exp.Query):
            yield from _aggregates(part)
