"""SELECTs with one row for each privacy unit, or for each unit and group of its rows.

``SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id`` is a table of persons, which a
SELECT around it may count and group like any other; so is ``SELECT DISTINCT patient_id, ward``.
Nothing of it is SQL to the vault: it becomes a unit-local relation over the declared cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn, cast

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import ProgrammingError, printable
from dpsql.logical.functions import SETS, conjuncts, find
from dpsql.records import dataclass, field, replace
from dpsql.relation.header import has_single_values, read_header
from dpsql.relation.lineage import named
from dpsql.relation.unit_local import (
    AllOf,
    DerivedTable,
    FilterRows,
    HasValue,
    PerKey,
    PerUnit,
    Summary,
    Summing,
    Test,
)
from dpsql.sql.cells.cell_columns import FlatColumns
from dpsql.sql.cells.cell_tests import as_test
from dpsql.sql.inline import FlatFrom
from dpsql.sql.measures.column_hints import remedy
from dpsql.sql.names import written_key
from dpsql.sql.products import Compiler
from dpsql.sql.relations import Field, PrivateRows, column_of
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import Locate, one_branch, over_parts
from dpsql.sql.text.clauses import clip_of
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.stepped_columns import SteppedColumns, may_step
from dpsql.sql.units.unit_sums import clipped_to, summed_column

_WORKS = (
    "COUNT, SUM, AVG, MIN and MAX of columns, BOOL_OR and BOOL_AND, COUNT(DISTINCT column), each "
    "with FILTER"
)
_NAMES: dict[Summing, str] = {
    "count": "count",
    "distinct": "different",
    "sum": "sum",
    "mean": "avg",
    "distinct_sum": "sum of different",
    "distinct_mean": "avg of different",
    "least": "min",
    "greatest": "max",
}


def refuse_units(node: exp.Expr, locate: Locate) -> NoReturn:
    """Refuse a SELECT that shows a row for each privacy unit."""
    raise ProgrammingError(
        "E_DOMAIN",
        "a row for each privacy unit cannot be shown, only counts and sums of them",
        hint="SELECT n, COUNT(*) FROM (SELECT unit, COUNT(*) AS n FROM t GROUP BY unit) AS p "
        "GROUP BY n",
        span=locate(node),
    )


def table_under(flat: FlatFrom, compiler: Compiler) -> Table:
    """The private table that a flat SELECT is over."""
    return compiler.catalog.find(flat.rows.source.name.casefold())


def is_per_unit(flat: FlatFrom, select: exp.Select, table: Table) -> bool:
    """True if a SELECT has one row for each unit and group, by GROUP BY or by DISTINCT."""
    if table.unit.column is None or table.synthetic:
        return False
    keys = [flat.resolve(key) for key in group_keys(flat, select)]
    return any(is_unit(key, table) or is_stored_key(key, table) for key in keys)


def group_keys(flat: FlatFrom, select: exp.Select) -> list[exp.Expr]:
    """The grouping keys of a SELECT, positions and aliases written out; its items if DISTINCT."""
    group, items = select.args.get("group"), select.expressions
    if group is None:
        distinct = select.args.get("distinct")
        is_plain = distinct is not None and not (distinct.args.get("on") or _aggregated(select))
        return [item.unalias() for item in items] if is_plain else []
    if any(value for name, value in group.args.items() if name not in ("expressions", "all")):
        return []
    written = list(group.expressions)
    if group.args.get("all"):
        written = [item.unalias() for item in items if not item.find(exp.AggFunc)]
    return [_key(flat, node, items) for node in written]


def _aggregated(select: exp.Select) -> bool:
    return any(item.find(exp.AggFunc) for item in select.expressions)


def _key(flat: FlatFrom, node: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    if not isinstance(node, SETS):
        return written_key(node, items, flat.names.find)
    node = node.copy()
    node.set("expressions", [_key(flat, each, items) for each in node.expressions])
    return node


def is_unit(node: exp.Expr, table: Table) -> bool:
    """True if a flat expression is the column that tells the units of a table apart."""
    inner = node.unnest()
    unit = (table.unit.column or "").casefold()
    return isinstance(inner, exp.Column) and inner.name.casefold() == unit


def is_stored_key(node: exp.Expr, table: Table) -> bool:
    """True if a flat expression is a column that rows are matched by, and that has no domain."""
    inner = node.unnest()
    name = inner.name.casefold() if isinstance(inner, exp.Column) else ""
    column = table.columns.get(name)
    keys = read_header(relation_of(table), named(_bases(table))).keys if name else ()
    return name in keys and (column is None or column.domain is None)


def _bases(table: Table) -> tuple[Table, ...]:
    return table.bases if isinstance(table, DerivedTable) else (table,)


@dataclass
class UnitRows:
    """Makes the relation of one such SELECT, and the rows that a SELECT around it sees."""

    flat: FlatFrom
    table: Table
    statement: Statement
    compiler: Compiler
    most: int | None = None
    found: dict[tuple[object, ...], Summary] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fragment = self.statement.fragment
        self.columns = FlatColumns(self.flat.rows.source, self.table, fragment, self.compiler)

    def refuse(self, node: exp.Expr, what: str, hint: str) -> NoReturn:
        self.flat.refuse(node, "E_AGGREGATE", f"{what} for each privacy unit", hint)

    def rows(self, select: exp.Select) -> PrivateRows:
        """The rows of a SELECT by privacy unit. Raises: NotSupportedError; ProgrammingError."""
        self.check(select)
        keys = [self.flat.resolve(key).unnest() for key in group_keys(self.flat, select)]
        keys = [key for key in keys if not is_unit(key, self.table)]
        self.keys = tuple(k.name.casefold() for k in keys if is_stored_key(k, self.table))
        by = tuple(self.by(key) for key in keys if not is_stored_key(key, self.table))
        alias = self.flat.rows.source.alias_or_name
        items = [self.value(self.flat.resolve(item.unalias()), by) for item in select.expressions]
        names = [name_of(item) for item in select.expressions]
        having = select.args.get("having")
        tests = [] if having is None else conjuncts(having.this)
        where = [self.value(self.flat.resolve(test, select.expressions), by) for test in tests]
        table = self.derived(select, by)
        source = named_source(table.name, alias)
        if where and may_step(table):
            steps = SteppedColumns(source, self.compiler, self.flat.locate)
            where, source = [steps.over(test) for test in where], steps.source
        fields = tuple(Field(name, value) for name, value in zip(names, items, strict=True))
        return PrivateRows(source, (), tuple(where), fields, frozenset({alias.casefold()}))

    def check(self, select: exp.Select) -> None:
        """Refuse clauses that have no meaning for rows of units."""
        if self.flat.joins:
            self.flat.refuse(
                select,
                "E_JOIN",
                "public rows in a SELECT by privacy unit",
                "join them by columns with a domain, each row with at most 100 of them",
            )
        for name in ("limit", "offset", "qualify"):
            if select.args.get(name):
                self.refuse(select.args[name], name.upper(), "leave it to the SELECT around")

    def derived(self, select: exp.Select, by: tuple[str, ...]) -> DerivedTable:
        relation = relation_of(self.table)
        tests = self.flat.filters(select)
        if tests:
            relation = FilterRows(relation, self.test(tests))
        over, sums = self.columns.over(relation), tuple(self.found.values())
        groups = PerKey(over, by, sums, self.keys) if self.keys else PerUnit(over, by, sums)
        label = (
            f"{self.table.name.split(' #')[0]} by {', '.join(self.keys) or self.table.unit.column}"
        )
        catalog, span = self.compiler.catalog, self.flat.locate(select)
        self.most = self.fewest(by)
        table = table_of(catalog, groups, label, None, span)
        if self.most is None or self.most >= table.unit.max_rows:
            return table
        return table_of(catalog, groups, label, self.most, span)

    def fewest(self, by: Sequence[str]) -> int | None:
        """Rows of a unit: no more than it has of what the keys are declared to refer to."""
        found = [] if self.most is None else [self.most]
        catalog, columns = self.compiler.catalog, self.columns.all()
        wanted = {key.rsplit(".", 1)[-1] for key in self.keys}
        size = math.prod(columns[name].size for name in by)
        for base in _bases(self.table) if self.keys else ():
            ways = [each for each in (base.unit.through, *base.references) if each is not None]
            for way in ways:
                if {own.casefold() for own, _ in way.on} >= wanted:
                    most = catalog.find(way.table).unit.max_rows
                    found.append((most + (way is not base.unit.through)) * size)  # NULL is a key
        return min(found, default=None)

    def by(self, key: exp.Expr) -> str:
        """A key besides the unit: a column with a domain, or an expression over one."""
        column = self.column(key)
        if column is None or column.domain is None:
            self.refuse(key, "this key", "a column with a domain, or an expression over one")
        return column.name.casefold()

    def column(self, node: exp.Expr) -> Column | None:
        """The column that a flat expression is, or makes of the cells of another."""
        return self.columns.find(node)

    def value(self, node: exp.Expr, by: Sequence[str]) -> exp.Expr:
        """A flat expression over the columns of the relation: its aggregates are columns."""
        mapped = self.columns.known(node)
        if mapped is not None and mapped.name.casefold() in by:
            return column_of(mapped.name, self.flat.rows.source.alias_or_name)
        if isinstance(node, exp.Filter):
            tests = conjuncts(node.expression.this)
            return self.summed(node.this, tests)
        if isinstance(node, exp.AggFunc | exp.WithinGroup):
            return self.summed(node, [])
        if isinstance(node, exp.Window | exp.Query):
            self.refuse(node, "this", _WORKS)
        if isinstance(node, exp.Column):
            kept = (*by, *self.keys)
            if not is_unit(node, self.table) and node.name.casefold() not in kept:
                what = f"column {printable(node.name)} must appear in GROUP BY or in an aggregate"
                span = self.flat.locate(node)
                raise ProgrammingError("E_GROUP_BY", what, hint="add it to GROUP BY", span=span)
            return node.copy()
        return over_parts(node, lambda part: self.value(part, by))

    def summed(self, node: exp.Expr, tests: list[exp.Expr]) -> exp.Expr:
        """An aggregate as a column that sums up the rows of a unit."""
        node, tests, filled = _without_case(node, tests)
        where = self.test(tests) if tests else None
        known, inner = find(node), node.this
        if isinstance(node, exp.Count | exp.CountIf) and not isinstance(inner, exp.Distinct):
            return self.count(node, where)
        kinds = () if known is None else cast(tuple[Summing, ...], known.summed)
        if once := isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
            (inner,) = inner.expressions
        kind = next(iter(kinds[-1:] if once else kinds), None)
        is_read = kind is not None and isinstance(inner, exp.Expr)
        column = self.column(inner) if is_read else None
        if kind == "distinct" and (column is None or column.domain is None):
            self.refuse(node, "COUNT(DISTINCT) of this", "count a column with a domain")
        if kind is None or column is None or node.args.get("expressions"):
            self.refuse(node, "this aggregate", _WORKS)
        if once and kind in ("distinct_sum", "distinct_mean") and not has_single_values(column):
            hint = "DISTINCT sums need a column that lists its values"
            self.refuse(node, "a sum of different values of a column with bins", hint)
        self.check_bounds(inner, column)
        key = column.name.casefold()
        span = self.flat.locate(node)
        shape = clipped_to(self.declared(kind, column), self.clip(node), span)
        found = self.add(kind, shape, key, where)
        return exp.Coalesce(this=found, expressions=[exp.Literal.number(0)]) if filled else found

    def check_bounds(self, node: exp.Expr, column: Column) -> None:
        """Refuse to sum up a column that is declared with neither a domain nor bounds."""
        if column.domain is None and column.bounds is None:
            raise ProgrammingError(
                "E_NO_BOUNDS",
                f"column {column.name} has no bounds: one row could change its sum by anything",
                hint=remedy(self.table, column, summed=True),
                span=self.flat.locate(node),
            )

    def clip(self, node: exp.Expr) -> tuple[float, float] | None:
        return clip_of(node, self.statement.clips, self.statement.fragment)

    def count(self, node: exp.Expr, where: Test | None) -> exp.Expr:
        """COUNT of rows or of values; of rows there is at least one."""
        most, inner = self.table.unit.max_rows, node.this
        if isinstance(node, exp.CountIf):
            where = _both(where, self.test(conjuncts(inner)))
        elif not isinstance(inner, exp.Star | exp.Literal) and not is_unit(inner, self.table):
            column = self.column(inner)
            if column is None:
                self.refuse(node, "COUNT of this", "COUNT(*) FILTER (WHERE ...)")
            where = _both(where, HasValue(column.name.casefold()))
        whole = Column("", "integer", IntegerRange(where is None, most))
        shape = clipped_to(whole, self.clip(node), self.flat.locate(node))
        return self.add("count", shape, None, where)

    def declared(self, kind: Summing, column: Column) -> Column:
        """The declaration of the values of a summary; they may be NULL."""
        if kind in ("least", "greatest"):
            return replace(column, null=True)
        most = self.table.unit.max_rows
        if kind == "distinct":
            return Column("", "integer", IntegerRange(0, min(most, column.size)))
        most = most if kind in ("sum", "distinct_sum") else 1
        return summed_column(column, most, kind)

    def add(self, kind: Summing, shape: Column, of: str | None, where: Test | None) -> exp.Expr:
        """The column of a summary, which is added unless it is there."""
        key = (kind, of, where, shape)
        if key not in self.found:
            told = f"{_NAMES[kind]}({'*' if of is None else self.columns.told(of)})"
            name = self.columns.fresh(told, [each.column.name for each in self.found.values()])
            self.found[key] = Summary(replace(shape, name=name), kind, of, where)
        return column_of(self.found[key].column.name, self.flat.rows.source.alias_or_name)

    def test(self, tests: Sequence[exp.Expr]) -> Test:
        """Flat conditions on one row, decided on the declared cells."""
        fragment = self.statement.fragment
        return as_test(self.flat.rows.source, tests, fragment, self.compiler)


def _without_case(node: exp.Expr, tests: list[exp.Expr]) -> tuple[exp.Expr, list[exp.Expr], bool]:
    """SUM or COUNT of a CASE with one branch as the aggregate of it, where its test holds.

    Also says whether rows where it does not hold add 0, which makes the sum 0 where none does.
    """
    found = one_branch(node.this) if isinstance(node, exp.Sum | exp.Count) else None
    if found is None:
        return node, tests, False
    value, test, rest = found
    is_zero = isinstance(rest, exp.Literal) and rest.name == "0" and isinstance(node, exp.Sum)
    if not is_zero and not isinstance(rest, exp.Null | None):
        return node, tests, False
    if value.name == "1" and isinstance(value, exp.Literal) and (is_zero or node.key == "count"):
        return exp.Count(this=exp.Star(), big_int=True), [*tests, test], False
    return type(node)(this=value.copy()), [*tests, test], is_zero


def _both(one: Test | None, two: Test) -> Test:
    return two if one is None else AllOf((one, two))
