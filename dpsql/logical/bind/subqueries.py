"""Queries where they stand in the tree of a statement: the names of their FROM, and their level.

Only what is below a query is bound, and the CTEs that it sees. So a statement may be written
otherwise between two questions, and what is wrong around a query, or beyond the binder, is no
matter; a query that does not bind itself has no names here, and is refused by who compiles it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlglot import exp

from dpsql.catalog.catalog import Catalog, Column, PublicRows, Table
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
from dpsql.logical.expressions import ColumnId, ColumnRef, Scalar, columns_in
from dpsql.logical.facts import Origin, PlanFacts, scanned_column
from dpsql.logical.functions import conjuncts
from dpsql.logical.inference import FactReader
from dpsql.logical.nodes import (
    ApplyKind,
    BoundStatement,
    LogicalAggregate,
    LogicalApply,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalSetOperation,
    LogicalShared,
    LogicalValues,
    Plan,
    columns_of,
    from_below,
    inputs_of,
    parts_of,
    passed,
)
from dpsql.logical.rules import ruled
from dpsql.records import dataclass, field, replace

_ONE_ROW = LogicalValues(((),), ())
_OF_SEVERAL = (exp.AggFunc, exp.Window, exp.Query)
"""Values of more than the row that they stand in."""


@dataclass(frozen=True, slots=True, eq=False)
class SubqueryConditions:
    """The conditions of a sub-query: about its own rows, and about the row around it.

    ``pairs`` are equal, the first of the sub-query and the second of the row around; ``mixed`` are
    about both in any other way.
    """

    own: tuple[exp.Expr, ...]
    pairs: tuple[tuple[exp.Expr, exp.Expr], ...]
    mixed: tuple[exp.Expr, ...]


def _over(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """An expression over one column with a value in place of this."""
    return node.transform(lambda e: exp.paren(value) if isinstance(e, exp.Column) else e)


@dataclass(frozen=True, slots=True, eq=False)
class SubqueryNames:
    """The names of the FROM of one SELECT; ``facts`` are those of its rows, None if refused."""

    plan: Plan
    scope: BindScope
    facts: PlanFacts | None
    catalog: Catalog

    def column(self, node: exp.Column) -> ColumnId | None:
        """The column of this FROM that a name stands for; None for one of a SELECT around.

        Raises: ProgrammingError where it may be one or another.
        """
        return self.scope.own(node)

    def source(self, column: ColumnId | None) -> str | None:
        """The alias of the element of FROM that a column is of."""
        return next((name for name, each in self.scope.visible() if each.column == column), None)

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
            pair = self.pair(test.unnest())
            if self.has_all(test):
                own.append(test)
            elif pair is None:
                mixed.append(test)
            else:
                pairs.append(pair)
        return SubqueryConditions(tuple(own), tuple(pairs), tuple(mixed))

    def pair(self, test: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
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
        number = self.column(column)
        return self.facts is not None and number in self.facts.units

    def worked_out(self, node: exp.Expr) -> tuple[Table, Column, exp.Expr] | None:
        """The stored column that an expression is of, and the expression over ``v`` in its place.

        None where it is of several columns, of none, or of what is no row's own.
        """
        columns = list(node.find_all(exp.Column))
        if not columns or not all(map(self.has, columns)) or node.find(*_OF_SEVERAL) is not None:
            return None
        numbers = {self.scope.own(each) for each in columns}
        found = self._lineage(self.plan, numbers.pop()) if len(numbers) == 1 else None
        return None if found is None else (*found[:2], _over(node, found[2]))

    def _lineage(
        self, plan: Plan, number: ColumnId | None
    ) -> tuple[Table, Column, exp.Expr] | None:
        """The stored column that a column of a plan is of, and what it is over ``v``."""
        below: Sequence[Plan] = (plan,)
        while below and number is not None:
            plan, below = below[0], inputs_of(below[0])
            match plan:
                case LogicalScan():
                    table, name = self.catalog.find(plan.table), dict(plan.columns)[number]
                    column = table.columns.get(name.casefold())
                    return None if column is None else (table, column, exp.column("v"))
                case LogicalShared():
                    number = dict(plan.columns)[number]
                case LogicalAggregate():
                    key = dict(plan.keys).get(number)
                    number = key.column if isinstance(key, ColumnRef) else None
                case LogicalProject() if number in dict(plan.added):
                    item = self.scope.numbers.items.get(number)
                    numbers = {each.column for each in columns_in(dict(plan.added)[number])}
                    if item is None or len(numbers) != 1 or item.find(*_OF_SEVERAL) is not None:
                        return None
                    found = self._lineage(plan.input, numbers.pop())
                    return None if found is None else (*found[:2], _over(item, found[2]))
                case LogicalSetOperation():
                    return None
            below = [each for each in below if number in columns_of(each)]
        return None

    def origin(self, column: exp.Column) -> Column | None:
        """The stored column that a column of this FROM has the values of; None where it has none.

        The values of a unit or a key that nobody declared are those of no column.
        """
        stored = self.stored(column)
        return None if stored is None else self.catalog.find(stored[0]).columns.get(stored[1])

    def stored(self, column: exp.Column) -> Origin | None:
        """The private table, and the name in it, that a column of this FROM has the values of."""
        number = self.column(column) if self.has(column) else None
        if number is None or self.facts is None:
            return None
        return self.facts.origins.get(number)

    def scanned(self, column: exp.Column) -> Origin | None:
        """The same of an element that is of one table, private or public, or some of its rows."""
        number = self.column(column) if self.has(column) else None
        plans = [each.plan for each in self.scope.sources if each.name == self.source(number)]
        return scanned_column(plans[0], number) if plans and number is not None else None

    def is_optional(self, column: exp.Column) -> bool:
        """True if a column of this FROM may be NULL, as far as the catalog says."""
        stored = self.origin(column)
        return not self.holds_unit(column) and (stored is None or stored.null)


class SubqueryBinder:
    """Reads queries in the tree of a statement over a catalog and its public tables."""

    def __init__(self, catalog: Catalog, public: PublicRows) -> None:
        self.catalog = catalog
        self.public = public
        self.schema = CatalogSchema(catalog, public)
        self.numbers = ColumnNumbers(None)  # carets are those of the compiler

    def element(self, node: exp.Expr, place: exp.Expr) -> SubqueryNames | None:
        """The names of what stands in FROM by itself, where the CTEs of a place are seen.

        None where it is of a form that is not bound. Raises: ProgrammingError, without a caret.
        """
        binder, scope = StatementBinder(self.schema, self.numbers), BindScope(self.numbers)
        try:
            seen = binder.with_ctes(place, _ctes_around(place))
            plan = binder.rows(exp.Select(from_=exp.From(this=node.copy())), scope, seen)
        except NotYetBoundError:
            return None
        return SubqueryNames(plan, scope, self._facts(plan, self._around()), self.catalog)

    def names(self, select: exp.Select, seen: SharedQueries | None = None) -> SubqueryNames | None:
        """The names of the FROM of a SELECT; None where that does not bind.

        Args: seen: the CTEs that it sees but for its own, where it stands in no statement.
        """
        around = self._around()
        scope = BindScope(self.numbers, around)
        binder = StatementBinder(self.schema, self.numbers)
        try:
            seen = _ctes_around(select) if seen is None else seen
            plan = binder.rows(select, scope, binder.with_ctes(select, seen))
        except (Error, NotYetBoundError, RecursionError):
            return None
        return SubqueryNames(plan, scope, self._facts(plan, around), self.catalog)

    def facts(self, query: exp.Expr) -> PlanFacts | None:
        """The facts of a query, or of what stands in FROM; None where it is refused."""
        return self._read(query, self._around())

    def _read(self, query: exp.Expr, around: Correlation) -> PlanFacts | None:
        binder = StatementBinder(self.schema, self.numbers)
        try:
            plan = binder.query(query, _ctes_around(query), around).plan
        except (Error, NotYetBoundError, RecursionError):
            return None
        return self._facts(plan, around)

    def is_answer(self, query: exp.Expr) -> bool:
        """True if a query is one row of answers, whatever the row around it is."""
        around = self._around()
        facts = self._read(query, around)
        is_one = facts is not None and facts.is_answers and facts.rows == 1
        return is_one and not around.parameters

    def sources(self, names: SubqueryNames) -> Mapping[str, PlanFacts | None]:
        """The facts of every element of a FROM, by its alias; None for those that are refused."""
        around = names.scope.around
        assert around is not None
        return {each.name: self._facts(each.plan, around) for each in names.scope.sources}

    def coarse(self, names: SubqueryNames) -> frozenset[ColumnId]:
        """The columns of a FROM that show something of a cell of a table, and not its value.

        An expression over stored columns is not one, since it is checked on their cells.
        """
        read = _CoarseColumns(self.catalog)
        for each in names.scope.sources:
            read.read(each.plan)
        return frozenset(read.found)

    def is_public(self, query: exp.Expr) -> bool:
        """True if a query, or what stands in FROM, is of public facts alone."""
        facts = self.facts(query)
        return facts is not None and facts.is_public

    def is_unique(self, plan: Plan, columns: Collection[ColumnId | None], known: bool) -> bool:
        """True if no two rows of a plan of public rows are the same in some columns.

        Args: known: rows with NULL in one of them are left out, which is equal to nothing.
        """
        match plan:
            case LogicalScan():
                table = self.public(self.catalog.find(plan.table))
                lists = [table[name][1] for column, name in plan.columns if column in columns]
                rows = list(zip(*lists, strict=True))
                rows = [row for row in rows if None not in row] if known else rows
                return bool(lists) and len({*rows}) == len(rows)
            case LogicalFilter():
                return self.is_unique(plan.input, columns, known)
            case LogicalShared():
                own = {old for new, old in plan.columns if new in columns}
                return self.is_unique(plan.input, own, known)
            case LogicalProject():
                made = {column: value for column, value in plan.added if column in columns}
                own = {each.column for each in made.values() if isinstance(each, ColumnRef)}
                return self.is_unique(plan.input, own | ({*columns} - made.keys()), known)
            case LogicalAggregate():
                return {column for column, _ in plan.keys} <= {*columns}
        return False

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


@dataclass(slots=True, eq=False)
class _CoarseColumns:
    """The columns of plans that show something of a cell; ``stored`` are those of tables."""

    catalog: Catalog
    found: set[ColumnId] = field(default_factory=set)
    stored: set[ColumnId] = field(default_factory=set)

    def read(self, plan: Plan) -> None:
        """Read a plan, from below."""
        for each in from_below(plan):
            match each:
                case LogicalScan():
                    known = self.catalog.find(each.table).columns
                    cells = [(column, known.get(name.casefold())) for column, name in each.columns]
                    self.stored |= {column for column, cell in cells if cell is not None}
                    self.found |= {column for column, cell in cells if cell and cell.is_coarse}
                case LogicalProject():
                    self._add(each.added)
                case LogicalAggregate():
                    self._add(each.keys)
                    for column, call in each.calls:
                        parts = (part for value in parts_of(call) for part in columns_in(value))
                        if any(part.column in self.found for part in parts):
                            self.found.add(column)
                case _:
                    for column, own in passed(each):
                        if not self.found.isdisjoint(own):
                            self.found.add(column)
                        if isinstance(each, LogicalShared) and self.stored.issuperset(own):
                            self.stored.add(column)

    def _add(self, made: Iterable[tuple[ColumnId, Scalar]]) -> None:
        for column, value in made:
            own = {each.column for each in columns_in(value)}
            is_column = isinstance(value, ColumnRef)
            if not self.found.isdisjoint(own if is_column else own - self.stored):
                self.found.add(column)
            if is_column and own <= self.stored:
                self.stored.add(column)


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
