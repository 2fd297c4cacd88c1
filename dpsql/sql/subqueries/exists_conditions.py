"""IN and EXISTS over private rows: whether the privacy unit of a row has such rows elsewhere.

``WHERE patient_id IN (SELECT patient_id FROM visits WHERE ...)`` and ``EXISTS (SELECT 1 FROM visits
v WHERE v.patient_id = p.patient_id AND ...)`` become a column of the rows, true where the row has
a partner: any row of its unit, or one with the same key where the catalog declares a reference by
it. They add no rows, so that a unit has as many as before. Such a column may stand in
any expression on the row: joined by OR, in CASE, in FILTER or as a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.errors import Error, ProgrammingError, printable
from dpsql.logical.bind.subqueries import SubqueryNames
from dpsql.logical.functions import conjuncts
from dpsql.records import dataclass, replace
from dpsql.relation.declared_keys import is_declared
from dpsql.relation.derive import bases_of
from dpsql.relation.header import read_header
from dpsql.relation.lineage import named
from dpsql.relation.unit_local import (
    FilterRows,
    JoinRows,
    MeetRows,
    PerUnit,
    Test,
    UnitLocal,
    scanned,
)
from dpsql.sql.cells.cell_tests import as_test
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.relations import PrivateRows, Relation, column_of, read_from
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import is_unit, table_under

_PAIR = "pair"
_WORKS = (
    "unit IN (SELECT unit FROM ...), or EXISTS with an equality of units or declared keys; columns "
    "with ids of other units are declared in unit_columns"
)
_CUT = "comparing rows by a column whose cells hold many values"
_CUT_WORKS = (
    "compare what is the same on whole cells, such as date_trunc of both, or FLOOR(x / width)"
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A condition on a row: it has, or has not, a partner in a sub-query.

    ``own`` are the columns of the row that meet those of the sub-query, in their order. ``mixed``
    are conditions on both, about the ``inner`` columns that the sub-query has after those.
    """

    node: exp.Expr
    query: exp.Query
    is_in: bool
    own: tuple[exp.Column, ...]
    mixed: tuple[exp.Expr, ...] = ()
    inner: tuple[exp.Column, ...] = ()


@dataclass(frozen=True, slots=True)
class SemiJoins:
    """Reads the conditions of one SELECT over private rows.

    ``relation`` says what a query stands for, ``names`` what is in the FROM of one.
    """

    flat: FlatFrom
    statement: Statement
    compiler: Compiler
    relation: Callable[[exp.Expr], Relation]
    names: Callable[[exp.Select], SubqueryNames | None]

    def taken(self, select: exp.Select) -> exp.Select:
        """The SELECT without these conditions, which are among those of its rows from now on.

        Raises: NotSupportedError (E_SUBQUERY, E_JOIN); ProgrammingError.
        """
        where, table = select.args.get("where"), table_under(self.flat, self.compiler)
        tests = [] if where is None else conjuncts(where.this)
        if table.unit.column is None:
            return select
        if any(test.find(exp.Query) for test in tests):
            kept = [test for test in tests if not self.take(test)]
            select = select.copy()
            found = [exp.paren(test.copy(), copy=False) for test in kept]
            select.set("where", exp.Where(this=exp.and_(*found, copy=False)) if kept else None)
        return self.written(select)

    def take(self, test: exp.Expr) -> bool:
        """Add a condition to the rows, if it is one of units."""
        asked = self.read(test)
        column = None if asked is None else self.column(asked)
        if asked is None or column is None:
            return False
        self.flat.where.append(column if asked.is_in else exp.Not(this=column))
        return True

    def written(self, select: exp.Select) -> exp.Select:
        """The SELECT with columns of those that stand within its expressions."""
        if not any(map(_has_predicate, _parts(select))):
            return select
        select = select.copy()
        named = [
            exp.alias_(item, name_of(item), quoted=True) if _has_predicate(item) else item
            for item in select.expressions
        ]
        select.set("expressions", named)
        for node in [node for part in _parts(select) for node in _predicates(part)]:
            asked = self.read(node)
            if asked is None or (self.may_be_null(asked) and not _is_test(node)):
                continue
            column = self.column(asked)
            if column is not None:
                shown = exp.column(exp.to_identifier(column.name, quoted=True))
                self.flat.known[shown] = column
                node.replace(shown.copy())
        return select

    def may_be_null(self, asked: _Asked) -> bool:
        """True if IN may be unknown: a key may be NULL, which the privacy unit is not."""
        values = [self.flat.names.find(own) for own in asked.own]
        table = table_under(self.flat, self.compiler)
        units = [value is not None and is_unit(value, table) for value in values]
        return isinstance(asked.node, exp.In) and not all(units)

    def column(self, asked: _Asked) -> exp.Column | None:
        """The column of the rows that says whether they have a partner; None if no rows do."""
        found = self.relation(asked.query)
        if not isinstance(found, PrivateRows):
            return None
        table = table_under(self.flat, self.compiler)
        other = self.compiler.catalog.find(found.source.name.casefold())
        if len(found.fields) != len(asked.own) + len(asked.inner) or found.joins:
            self.refuse(asked)
        keys = self.keys(asked, table, found, other)
        return self.joined(asked, table, found, other, keys)

    def refuse(self, asked: _Asked) -> NoReturn:
        self.flat.refuse(asked.node, "E_SUBQUERY", "this sub-query over private rows", _WORKS)

    def keys(
        self, asked: _Asked, table: Table, found: PrivateRows, other: Table
    ) -> tuple[tuple[str, str], ...]:
        """The pairs of keys but for the unit's, with which rows meet anyway."""
        keys: list[tuple[str, str]] = []
        for own, inner in zip(asked.own, found.fields, strict=False):
            value, theirs = self.flat.names.find(own), inner.value.unnest()
            if value is None:
                self.refuse(asked)
            if not (is_unit(value, table) and is_unit(theirs, other)):
                if not (self.is_key(theirs, other) and self.is_key(value, table)):
                    self.refuse(asked)
                keys.append((value.name.casefold(), theirs.name.casefold()))
        if len(keys) == len(asked.own) and not is_declared(table, other, keys):
            self.refuse(asked)
        return tuple(keys)

    def joined(
        self,
        asked: _Asked,
        table: Table,
        found: PrivateRows,
        other: Table,
        keys: tuple[tuple[str, str], ...],
    ) -> exp.Column:
        """Give the rows a column that says whether they have a partner; return it."""
        right = relation_of(other)
        if found.where:
            fragment = self.statement.fragment
            where = as_test(found.source, found.where, fragment, self.compiler)
            right = FilterRows(right, where)
        left, number = relation_of(table), 1
        while f"in {number} exists" in table.columns:
            number += 1
        name = f"in {number}"
        node: JoinRows | MeetRows
        if asked.mixed:
            node = MeetRows(
                left, right, name, keys, self.pairs(asked, left, right, name, keys, found)
            )
        else:
            right = right if keys else PerUnit(right)
            node = JoinRows(left, right, name, keys, outer=True, one=True)
        label = table.name.split(" #")[0]
        place = self.flat.locate(asked.node)
        wider = table_of(self.compiler.catalog, node, label, table.unit.max_rows, place)
        alias = self.flat.rows.source.alias_or_name
        source = named_source(wider.name, alias)
        self.flat.rows = replace(self.flat.rows, source=source, plain=False)
        return column_of(node.partner_of, alias)

    def pairs(
        self,
        asked: _Asked,
        left: UnitLocal,
        right: UnitLocal,
        name: str,
        keys: tuple[tuple[str, str], ...],
        found: PrivateRows,
    ) -> Test:
        """The conditions on rows of both sides, side by side, as a test on their cells."""
        table = table_under(self.flat, self.compiler)
        place, catalog = self.flat.locate(asked.node), self.compiler.catalog
        joined = JoinRows(left, right, name, keys)
        pairs = table_of(catalog, joined, table.title, table.unit.max_rows, place)
        values = {
            column: each.value
            for column, each in zip(asked.inner, found.fields[len(asked.own) :], strict=True)
        }

        def beside(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            if node in values:
                return (
                    values[node]
                    .copy()
                    .transform(
                        lambda n: _renamed(n, f"{name}.{n.name}", _PAIR) if _is_column(n) else n
                    )
                )
            value = self.flat.names.find(node)
            if value is None:
                self.flat.names.refuse_column(node)
            return value.copy().transform(
                lambda n: _renamed(n, n.name, _PAIR) if _is_column(n) else n
            )

        tests = [test.copy().transform(beside) for test in asked.mixed]
        source, fragment = named_source(pairs.name, _PAIR), self.statement.fragment
        for written, compared in zip(asked.mixed, tests, strict=True):
            try:
                as_test(source, [compared.copy()], fragment, self.compiler)
            except ProgrammingError as error:
                if error.code != "E_BIN_EDGE":
                    raise
                self.flat.refuse(written, error.code, _CUT, _CUT_WORKS)
        return as_test(source, tests, fragment, self.compiler)

    def read(self, test: exp.Expr) -> _Asked | None:
        """The sub-query of a condition over units; None for other conditions."""
        node, is_in = test.unnest(), True
        while isinstance(node, exp.Not):
            node, is_in = node.this.unnest(), not is_in
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            query = node.args["query"].unnest()
            own = node.this.unnest()
            if isinstance(query, exp.Query) and self.is_own(own):
                return _Asked(node, query, is_in, (own,))
        if isinstance(node, exp.Exists) and isinstance(node.this.unnest(), exp.Select):
            return self.exists(node, node.this.unnest(), is_in)
        return None

    def is_own(self, node: exp.Expr) -> bool:
        """True if an expression is the privacy unit of the rows, or a key of theirs."""
        if not isinstance(node, exp.Column):
            return False
        try:
            found = self.flat.names.find(node)
        except Error:
            return False
        table = table_under(self.flat, self.compiler)
        return found is not None and (is_unit(found, table) or self.is_key(found, table))

    def is_key(self, value: exp.Expr, table: Table) -> bool:
        """True if a flat expression is a stored column that rows are matched by."""
        relation, catalog = relation_of(table), self.compiler.catalog
        header = read_header(relation, named(bases_of(catalog, scanned(relation))))
        return isinstance(value, exp.Column) and value.name.casefold() in header.keys

    def exists(self, node: exp.Expr, query: exp.Select, is_in: bool) -> _Asked | None:
        """EXISTS as a sub-query by itself: it selects what it compares with the rows around."""
        where = query.args.get("where")
        tests = [] if where is None else conjuncts(where.this)
        inside = self.names(query)
        if inside is None:
            return None
        met = [(test, self.compared(test.unnest(), inside)) for test in tests]
        pairs = [pair for _, pair in met if pair is not None]
        rest = [test for test, pair in met if pair is None]
        mixed = [test for test in rest if self.is_mixed(test, inside)]
        columns = [c for test in mixed for c in test.find_all(exp.Column) if inside.has(c)]
        inner = tuple(dict.fromkeys(columns))
        own = [exp.paren(test.copy(), copy=False) for test in rest if test not in mixed]
        copy = query.copy()
        copy.set("expressions", [each.copy() for each in (*(one for one, _ in pairs), *inner)])
        if copy.args.get("distinct") is not None and not copy.args["distinct"].args.get("on"):
            copy.set("distinct", None)
        copy.set("where", exp.Where(this=exp.and_(*own, copy=False)) if own else None)
        self.check_correlation(copy)
        if not pairs:
            return None
        return _Asked(node, copy, is_in, tuple(own for _, own in pairs), tuple(mixed), inner)

    def is_mixed(self, test: exp.Expr, inside: SubqueryNames) -> bool:
        """True if a condition of a sub-query is about columns within and around it."""
        if test.find(exp.Query):
            return False
        sides = set(map(inside.has, test.find_all(exp.Column)))
        return sides == {True, False}

    def check_correlation(self, query: exp.Select) -> None:
        """Refuse a sub-query that compares something else with the rows around it."""
        inside = {element.alias for element in read_from(query)}
        around = {alias for alias, _ in self.flat.names.sources} - inside
        for column in query.find_all(exp.Column):
            if column.table.casefold() in around:
                what = f"a sub-query that depends on {printable(column.sql())} around it"
                self.flat.refuse(column, "E_SUBQUERY", what, _WORKS)

    def compared(
        self, test: exp.Expr, inside: SubqueryNames
    ) -> tuple[exp.Column, exp.Column] | None:
        """The column within that a condition compares with one of the rows around, and that."""
        inner, own = inside.pair(test) or (None, None)
        if not isinstance(inner, exp.Column) or not isinstance(own, exp.Column):
            return None
        return (inner, own) if self.is_own(own) else None


def _parts(select: exp.Select) -> list[exp.Expr]:
    """The expressions on rows of a SELECT: items, WHERE and GROUP BY."""
    clauses = [select.args.get("where"), select.args.get("group")]
    return [*select.expressions, *(each for each in clauses if each is not None)]


def _has_predicate(node: exp.Expr) -> bool:
    return next(_predicates(node), None) is not None


def _predicates(node: exp.Expr) -> Iterator[exp.Expr]:
    """IN and EXISTS with sub-queries in an expression, not those within other sub-queries."""
    if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query")):
        yield node
    elif not isinstance(node, exp.Query):
        for each in node.iter_expressions():
            yield from _predicates(each)


def _is_test(node: exp.Expr) -> bool:
    """True if a condition that is unknown is as good as one that does not hold, where it stands."""
    above = node.parent
    while isinstance(above, exp.And | exp.Or | exp.Paren):
        node, above = above, above.parent
    return isinstance(above, exp.Where) or (isinstance(above, exp.If) and above.this is node)


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column)


def _renamed(node: exp.Expr, name: str, alias: str) -> exp.Column:
    """A column by another name, where it stands."""
    column = column_of(name, alias)
    column.meta.update(node.meta)
    return column
