"""Queries where they stand in the tree of a statement: the names of their FROM, and their level.

Only what is below a query is bound, and the CTEs that it sees. So a statement may be written
otherwise between two questions, and what is wrong around a query, or beyond the binder, is no
matter; a query that does not bind itself has no names here, and is refused by who compiles it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from sqlglot import exp

from dpsql.catalog.catalog import Catalog, Column, Table
from dpsql.errors import Error
from dpsql.logical.bind.binder import StatementBinder, ctes_of
from dpsql.logical.bind.catalog_schema import CatalogSchema
from dpsql.logical.bind.scope import (
    BindScope,
    ColumnNumbers,
    Correlation,
    NotYetBoundError,
    SharedQueries,
)
from dpsql.logical.expressions import ColumnRef
from dpsql.logical.facts import PlanFacts
from dpsql.logical.inference import FactReader
from dpsql.logical.levels import RelationLevel
from dpsql.logical.nodes import (
    ApplyKind,
    BoundStatement,
    LogicalApply,
    LogicalValues,
    Plan,
)
from dpsql.logical.rules import ruled
from dpsql.records import dataclass, replace
from dpsql.sql.lexemes import Fragment
from dpsql.sql.scope import conjuncts

_ONE_ROW = LogicalValues(((),), ())


@dataclass(frozen=True, slots=True, eq=False)
class SubqueryConditions:
    """The conditions of a sub-query: about its own rows, and about the row around it.

    ``pairs`` are equal, the first of the sub-query and the second of the row around; ``mixed`` are
    about both in any other way.
    """

    own: tuple[exp.Expr, ...]
    pairs: tuple[tuple[exp.Expr, exp.Expr], ...]
    mixed: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SubqueryNames:
    """The names of the FROM of one SELECT; ``facts`` are those of its rows, None if refused."""

    scope: BindScope
    facts: PlanFacts | None
    catalog: Catalog

    def has(self, column: exp.Column) -> bool:
        """True if a name is one of this FROM, and not of a SELECT around."""
        if column.table:
            return self.scope.has(column.table)
        name = column.name.casefold()
        return any(each.name.casefold() == name for _, each in self.scope.visible())

    def has_all(self, node: exp.Expr) -> bool:
        """True if all names of an expression are those of this FROM."""
        return all(map(self.has, node.find_all(exp.Column)))

    def conditions(self, select: exp.Select) -> SubqueryConditions:
        """The conditions in the WHERE of the SELECT."""
        where = select.args.get("where")
        own: list[exp.Expr] = []
        pairs: list[tuple[exp.Expr, exp.Expr]] = []
        mixed: list[exp.Expr] = []
        for test in [] if where is None else conjuncts(where.this):
            pair = self._pair(test.unnest())
            if self.has_all(test):
                own.append(test)
            elif pair is None:
                mixed.append(test)
            else:
                pairs.append(pair)
        return SubqueryConditions(tuple(own), tuple(pairs), tuple(mixed))

    def _pair(self, test: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """The two sides of an equality: of the sub-query alone, and of the row around alone."""
        if not isinstance(test, exp.EQ):
            return None
        one, other = test.this.unnest(), test.expression.unnest()
        known = [{self.has(each) for each in side.find_all(exp.Column)} for side in (one, other)]
        if known == [{True}, {False}]:
            return one, other
        return (other, one) if known == [{False}, {True}] else None

    def holds_unit(self, column: exp.Column) -> bool:
        """True if a column of this FROM holds the privacy unit of its rows."""
        number = self.scope.own(column)
        return self.facts is not None and number in self.facts.units

    def origin(self, column: exp.Column) -> Column | None:
        """The stored column that a column of this FROM has the values of; None where it has none.

        The values of a unit or a key that nobody declared are those of no column.
        """
        number = self.scope.own(column) if self.has(column) else None
        if number is None or self.facts is None or number not in self.facts.origins:
            return None
        table, name = self.facts.origins[number]
        return self.catalog.find(table).columns.get(name)


class SubqueryBinder:
    """Reads queries in the tree of a statement over a catalog and its public tables."""

    def __init__(self, catalog: Catalog, public: Callable[[Table], Iterable[str]]) -> None:
        self.catalog = catalog
        self.schema = CatalogSchema(catalog, public)
        self.numbers = ColumnNumbers(Fragment("", 0, 0))  # carets are those of the compiler

    def names(self, select: exp.Select) -> SubqueryNames | None:
        """The names of the FROM of a SELECT; None where that does not bind."""
        around = self._around()
        scope = BindScope(self.numbers, around)
        binder = StatementBinder(self.schema, self.numbers)
        try:
            plan = binder.rows(select, scope, binder.with_ctes(select, _ctes_around(select)))
        except (Error, NotYetBoundError, RecursionError):
            return None
        return SubqueryNames(scope, self._facts(plan, around), self.catalog)

    def facts(self, query: exp.Expr) -> PlanFacts | None:
        """The facts of a query, or of what stands in FROM; None where it is refused."""
        around = self._around()
        binder = StatementBinder(self.schema, self.numbers)
        try:
            plan = binder.query(query, _ctes_around(query), around).plan
        except (Error, NotYetBoundError, RecursionError):
            return None
        return self._facts(plan, around)

    def is_public(self, query: exp.Expr) -> bool:
        """True if a query, or what stands in FROM, is of public facts alone."""
        facts = self.facts(query)
        return facts is not None and facts.level is RelationLevel.PUBLIC

    def _around(self) -> Correlation:
        """The SELECTs around a query: they have every name that it has not."""
        return Correlation(self.numbers, lambda node: ColumnRef(self.numbers.fresh()))

    def _facts(self, plan: Plan, around: Correlation) -> PlanFacts | None:
        """The facts of a plan as a sub-query; None where they are refused."""
        plan = ruled(BoundStatement(plan, ())).plan
        asked = LogicalApply(_ONE_ROW, plan, ApplyKind.EXISTS, self.numbers.fresh(), ())
        asked = replace(asked, parameters=around.values())
        try:
            return FactReader(self.catalog, BoundStatement(asked, ())).of(plan, None).facts
        except (Error, RecursionError):
            return None


def _ctes_around(node: exp.Expr) -> SharedQueries:
    """The CTEs that a node sees, but for its own. Raises: NotYetBoundError."""
    path = [node]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    found: SharedQueries = {}
    for below, above in reversed(list(itertools.pairwise(path))):
        clause = above if isinstance(above, exp.With) else above.args.get("with_")
        if clause is not None and clause is not below:
            found = ctes_of(clause, found, below)
    return found
