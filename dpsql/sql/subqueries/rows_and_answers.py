"""Conditions of a SELECT over rows and over answers, told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames
from dpsql.logical.expressions import ColumnId
from dpsql.logical.facts import PlanFacts, unique_columns
from dpsql.logical.functions import conjuncts, has, has_aggregates
from dpsql.records import dataclass, field
from dpsql.sql.names import find_alias
from dpsql.sql.relations import FromElement, Join, read_from
from dpsql.sql.rewrites.tree_parts import set_where
from dpsql.sql.subqueries.correlated import is_by_unit

_BOUNDED = (
    *("distinct", "qualify", "limit", "offset", "having", "windows", "laterals", "pivots"),
    "with_",
)
_CARRIED = "compared"
MOST_MOVES = 20
"""Sub-queries that conditions move out of."""
_Part = TypeVar("_Part", bound=exp.Expr)


class NotExpressible(Exception):
    """A SELECT that cannot be said over counted rows."""


@dataclass(slots=True)
class RowsAndAnswers:
    """The rows and the answers in FROM, and what names stand for.

    ``facts`` are those of each by its alias, ``coarse`` columns that show something of a cell.
    ``inner`` are the conditions about rows alone, ``outer`` those that meet an answer, ``on`` those
    by which an answer is joined that rows need not meet.
    """

    select: exp.Select
    binder: SubqueryBinder
    names: SubqueryNames
    facts: Mapping[str, PlanFacts]
    coarse: frozenset[ColumnId]
    rows: list[FromElement]
    answers: list[FromElement]
    inner: list[exp.Expr] = field(default_factory=list)
    outer: list[exp.Expr] = field(default_factory=list)
    on: dict[str, list[exp.Expr]] = field(default_factory=dict)
    known: dict[exp.Expr, bool] = field(default_factory=dict)

    @classmethod
    def read(cls, select: exp.Select, binder: SubqueryBinder) -> RowsAndAnswers | None:
        """Tell rows from answers; None where there are not both, or it is not known.

        Raises: NotExpressible; ProgrammingError where a name may stand for several columns.
        """
        names = binder.names(select)
        if names is None:
            return None
        facts = {name: each for name, each in binder.sources(names).items() if each is not None}
        elements = read_from(select)
        if not elements or any(not e.alias or e.alias not in facts for e in elements):
            return None
        answers = [e for e in elements if facts[e.alias].is_answers]
        rows = [each for each in elements if each not in answers]
        given = (select, binder, names, facts, binder.coarse(names))
        if not any(facts[each.alias].is_private for each in rows):
            found = cls(*given, list(elements), [])
            found.sort_tests()
            return found if found.looks_up and not found.outer else None
        found = cls(*given, rows, answers)
        found.sort_tests()
        queries = (*select.find_all(exp.In), *choosing(select))
        return found if answers or found.looks_up or any(map(found.is_asked, queries)) else None

    @property
    def looks_up(self) -> bool:
        """True if items of a SELECT of groups have sub-queries that depend on its keys."""
        if self.select.args.get("group") is None:
            return False
        queries = [each for item in self.select.expressions for each in item.find_all(exp.Subquery)]
        return any(
            any(map(self.is_own, each.find_all(exp.Column)))
            and not is_by_unit(each.this, self.binder)
            for each in queries
            if self.is_here(each)
        )

    def source(self, column: exp.Column) -> str | None:
        """The alias of the element that a column is of."""
        return self.names.source(self.names.column(column))

    def mentions(self, node: exp.Expr) -> bool:
        """True if an expression is about a column of an answer, or about what is in one."""
        if self.asks(node):
            return True
        return any(self.source(column) in self.beside for column in self.columns(node))

    @property
    def beside(self) -> set[str]:
        """The aliases of the answers."""
        return {each.alias for each in self.answers}

    def asks(self, node: exp.Expr) -> bool:
        """True if an expression is about a list of answers, or a value that is an answer."""
        return any(map(self.is_asked, node.find_all(exp.In, exp.Subquery)))

    def is_asked(self, node: exp.Expr) -> bool:
        """True if a part of this SELECT is a list of answers, or a value that is an answer."""
        if not self.is_here(node) or isinstance(node.parent, exp.In | exp.From | exp.Join):
            return False
        if node not in self.known:
            self.known[node] = self.is_answers(node)
        return self.known[node]

    def is_answers(self, node: exp.Expr) -> bool:
        query = node.args.get("query") if isinstance(node, exp.In) else node.unnest()
        facts = None if query is None else self.binder.facts(query)
        if facts is None or not facts.is_answers or isinstance(node, exp.In):
            return facts is not None and facts.is_answers
        by_unit = isinstance(query, exp.Select) and is_by_unit(query, self.binder)
        return facts.rows == 1 and not by_unit

    def is_here(self, node: exp.Expr) -> bool:
        """True if a part is of this SELECT, not of a sub-query in it."""
        around = node.find_ancestor(exp.Query)
        return around is None or around is self.select

    def columns(self, node: exp.Expr) -> list[exp.Column]:
        """The columns that an expression mentions, without those of sub-queries in it."""
        return self.parts(node, exp.Column)

    def is_own(self, column: exp.Column) -> bool:
        """True if a column is of this SELECT, even where a sub-query in it mentions that."""
        inner = column.find_ancestor(exp.Select)
        while inner is not None and inner is not self.select:
            names = self.binder.names(inner)
            if names is None or names.has(column) or find_alias(inner.expressions, column):
                return False
            inner = inner.find_ancestor(exp.Select)
        return self.names.has(column)

    def parts(self, node: exp.Expr, kind: type[_Part]) -> list[_Part]:
        """The parts of a kind that an expression has, without those of sub-queries in it."""
        return [part for part in node.find_all(kind) if self.is_here(part)]

    def sort_tests(self) -> None:
        """Conditions that meet an answer are for the outside, others stay with the rows."""
        where = self.select.args.get("where")
        self.sort([] if where is None else conjuncts(where.this))
        first, *others = self.rows
        if first.join is not None:
            self.sort_join(first, first.join)
        if any(e.join.on is not None and self.mentions(e.join.on) for e in others if e.join):
            raise NotExpressible
        for each in self.answers:
            if each.join is not None:
                self.sort_join(each, each.join)

    def sort(self, tests: list[exp.Expr]) -> None:
        for test in tests:
            (self.outer if self.mentions(test) else self.inner).append(test)

    def sort_join(self, each: FromElement, join: Join) -> None:
        """The conditions by which an answer is joined, or rows to answers before them."""
        if not join.is_plain or join.side not in ("", "LEFT"):
            raise NotExpressible
        tests = [] if join.on is None else conjuncts(join.on)
        for name in join.using:
            before = self.source(exp.column(name.copy()))
            sides = [exp.column(name.copy(), alias) for alias in (before, each.alias)]
            for column in sides:
                column.meta.update(name.meta)
            tests.append(exp.EQ(this=sides[0], expression=sides[1]))
        if not join.side:
            self.sort(tests)
        elif each in self.answers:
            self.on[each.alias] = tests
        else:
            raise NotExpressible

    def owners(self, test: exp.Expr) -> list[int]:
        """The numbers of the answers that a condition compares."""
        found = {self.source(column) for column in self.columns(test)}
        late = [number for number, each in enumerate(self.answers) if each.alias in found]
        return late if not any(self.answers[n].alias in self.on for n in late) else []

    def is_of_rows(self, node: exp.Expr) -> bool:
        """True if an expression is about columns of rows alone."""
        found = self.columns(node)
        whole = isinstance(node, exp.Condition) and not node.find(
            exp.Query, exp.AggFunc, exp.Window
        )
        # a WHEN with its THEN is no value
        whole = whole and not (isinstance(node, exp.If) and isinstance(node.parent, exp.Case))
        known = all(self.source(column) is not None for column in found)
        return bool(found) and whole and known and not self.mentions(node)

    def is_coarse(self, column: exp.Column) -> bool:
        """True if a column of the rows shows something of its cell, and not its value."""
        return self.names.column(column) in self.coarse

    def equal(self, node: exp.Expr) -> exp.Expr:
        """The expression over rows that equals a column of an answer; all else is itself."""
        number = self.names.column(node) if isinstance(node, exp.Column) else None
        if self.names.source(number) not in self.beside:
            return node
        for test in (each.unnest() for each in self.outer):
            for one, two in _equal(test):
                is_it = isinstance(one, exp.Column) and self.names.column(one) == number
                if is_it and self.is_of_rows(two):
                    return two
        return node

    def same(self, node: exp.Expr, groups: Sequence[exp.Expr]) -> exp.Expr:
        """The key that is the same column as another name; all else is itself."""
        if not isinstance(node, exp.Column) or node in groups:
            return node
        number = self.names.column(node)
        named = (each for each in groups if isinstance(each, exp.Column))
        same = (key for key in named if self.names.column(key) == number)
        return node if number is None else next(same, node)

    def is_unique(self, each: FromElement) -> bool:
        """True if all keys of an answer equal something of the rows."""
        if self.facts[each.alias].rows == 1:
            return True
        (plan,) = (own.plan for own in self.names.scope.sources if own.name == each.alias)
        keys = unique_columns(plan)
        sides = {
            self.names.column(one)
            for test in (*self.outer, *self.on.get(each.alias, []))
            for one, two in _equal(test.unnest())
            if isinstance(one, exp.Column) and not self.mentions(two)
        }
        return keys is not None and keys <= sides

    def is_optional(self, node: exp.Expr) -> bool:
        """True if an expression about rows may be NULL."""
        if any(each.join is not None and each.join.side for each in self.rows):
            return True
        for part in node.walk():
            if isinstance(part, exp.Column):
                if self.names.is_optional(part):
                    return True
            elif not has(part, "total"):
                return True
        return False

    def is_plain(self, node: exp.Expr) -> bool:
        """True if an expression is about no column of the rows."""
        known = all(self.source(column) in self.beside for column in self.columns(node))
        return known and all(map(self.is_asked, self.parts(node, exp.Query)))


def _equal(test: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """The two sides of an equality, each first once."""
    if isinstance(test, exp.EQ):
        one, two = test.this.unnest(), test.expression.unnest()
        yield from ((one, two), (two, one))


def choosing(select: exp.Select) -> Iterator[exp.Subquery]:
    """The sub-queries by which a SELECT chooses its rows, or those of an aggregate."""
    for node in select.find_all(exp.Subquery):
        place = node.find_ancestor(exp.Filter, exp.AggFunc, exp.Where, exp.Query)
        if not isinstance(place, exp.Query) and node.find_ancestor(exp.Query) is select:
            yield node


def outwards(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement with conditions on answers moved out of sub-queries that only project."""
    for cte in list(tree.find_all(exp.CTE)):
        _inline(tree, cte, binder)
    for _ in range(MOST_MOVES):
        if not any(_moved(select, binder) for select in list(tree.find_all(exp.Select))):
            break
    return tree


def _asking(select: exp.Select, binder: SubqueryBinder) -> RowsAndAnswers | None:
    """A SELECT of rows that only projects, and has conditions that ask for an answer."""
    if select.args.get("group") or any(select.args.get(key) for key in _BOUNDED):
        return None
    if not any(choosing(select)) or has_aggregates(select):
        return None
    try:
        sides = RowsAndAnswers.read(select, binder)
    except (NotExpressible, ProgrammingError):
        return None
    return sides if sides is not None and any(map(sides.asks, sides.outer)) else None


def _inline(tree: exp.Expr, cte: exp.CTE, binder: SubqueryBinder) -> None:
    """Write a CTE with such a condition where it is named, if that is in one place."""
    name, select, clause = cte.alias.casefold(), cte.this, cte.parent
    tables = [each for each in tree.find_all(exp.Table) if each.name.casefold() == name]
    others = [each for each in tree.find_all(exp.CTE) if each.alias.casefold() == name]
    if len(tables) != 1 or len(others) != 1 or not isinstance(select, exp.Select):
        return
    (table,) = tables
    is_from = isinstance(table.parent, exp.From | exp.Join) and set(table.args) <= {"this", "alias"}
    if clause is None or not is_from or _asking(select, binder) is None:
        return
    alias, given = table.args.get("alias"), cte.args["alias"].args.get("columns") or []
    named = exp.TableAlias(this=table.this.copy()) if alias is None else alias.copy()
    if given and not named.args.get("columns"):
        named.set("columns", [each.copy() for each in given])
    cte.pop()
    table.replace(exp.Subquery(this=select, alias=named))
    if not clause.expressions:
        clause.pop()


def _moved(select: exp.Select, binder: SubqueryBinder) -> bool:
    """Move the conditions of a sub-query in FROM that only projects into the SELECT around it."""
    around, holder = select.find_ancestor(exp.Select), select.parent
    is_from = isinstance(holder, exp.Subquery) and isinstance(holder.parent, exp.From | exp.Join)
    if around is None or not isinstance(holder, exp.Subquery) or not is_from or not holder.alias:
        return False
    is_outer = holder.parent is not None and holder.parent.args.get("side")
    sides = None if is_outer else _asking(select, binder)
    if sides is None:
        return False
    asking = [test for test in sides.outer if sides.asks(test)]
    set_where(select, [test for test in (*sides.inner, *sides.outer) if test not in asking])
    for test in asking:
        for column in [each for each in test.find_all(exp.Column) if sides.is_own(each)]:
            name = f"{_CARRIED} {len(select.expressions)}"
            select.append("expressions", exp.alias_(column.copy(), name, quoted=True))
            column.replace(exp.column(exp.to_identifier(name, quoted=True), holder.alias))
    where = around.args.get("where")
    set_where(around, [*([] if where is None else [where.this]), *asking])
    return True
