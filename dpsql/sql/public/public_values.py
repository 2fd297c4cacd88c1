"""MIN, MAX and ANY_VALUE of columns of public rows, where public rows alone decide them.

A group whose keys hold a unique key of public rows meets one of these at most: a column of it is a
key like the others. Where joins keep all public rows, and conditions ask of nothing else, those
that meet the conditions are there: the aggregate is that of these rows alone, over all of them or
by columns of theirs. Elsewhere it depends on which of them private rows meet.

Guarantee: of the rows of a unit nothing decides on what is written in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from sqlglot import exp

from dpsql.errors import Error
from dpsql.logical.bind.select import conjuncts
from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames
from dpsql.logical.expressions import ColumnId, equal_columns
from dpsql.logical.facts import PlanFacts
from dpsql.logical.functions import conjuncts as tests_of
from dpsql.logical.levels import RelationLevel
from dpsql.logical.nodes import JoinKind, LogicalJoin, columns_of, from_below
from dpsql.records import dataclass
from dpsql.sql.groups.key_sets import written_keys
from dpsql.sql.relations import FromElement, read_from
from dpsql.sql.shell.expressions import name_of

_ONE = (exp.Max, exp.Min, exp.AnyValue)
"""Aggregates that are the value itself where all rows have one."""


def with_public_values(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement without aggregates that public rows decide; others are as they were."""
    selects = [each for each in tree.find_all(exp.Select) if each.args.get("joins")]
    if not any(any(_called(each)) for each in selects):
        return tree
    tree = tree.copy()
    for select in [each for each in tree.find_all(exp.Select) if each.args.get("joins")]:
        names = binder.names(select) if any(_called(select)) else None
        if names is not None:
            _PublicValues(select, names, binder.sources(names), binder).write()
    return tree


def _called(select: exp.Select) -> Iterator[exp.AggFunc]:
    """The aggregates of one value that a SELECT has itself, and no sub-query in it."""
    clauses = (select.args.get(each) for each in ("having", "qualify", "order"))
    for part in (*select.expressions, *clauses):
        for called in [] if part is None else list(part.find_all(*_ONE)):
            around = called.parent
            is_plain = not called.expressions and called.find(exp.Distinct, exp.Query) is None
            is_alone = not isinstance(around, exp.Window | exp.Filter | exp.WithinGroup)
            if called.find_ancestor(exp.Select) is select and is_plain and is_alone:
                yield called


@dataclass(slots=True, eq=False)
class _PublicValues:
    """Writes the aggregates of one SELECT."""

    select: exp.Select
    names: SubqueryNames
    sources: Mapping[str, PlanFacts | None]
    binder: SubqueryBinder

    def write(self) -> None:
        """Write keys, or sub-queries of public rows, in the place of such aggregates."""
        every = list(_called(self.select))
        sources = {self.source(each) for each in every}
        only = sources.pop() if len(sources) == 1 else None
        called = self.select.find_all(exp.AggFunc)
        alone = len(every) == sum(e.find_ancestor(exp.Select) is self.select for e in called)
        group = self.select.args.get("group")
        if only is not None and alone and group is None:
            if self.is_whole(only):
                self.select.set("from_", exp.From(this=self.element(only)))
                self.select.set("joins", None)
            return
        sides = {each.join.side for each in self.elements if each.join is not None}
        found = [(each, source) for each in every if (source := self.source(each)) is not None]
        decided = {s: not sides & {"RIGHT", "FULL"} and self.is_decided(s) for _, s in found}
        whole = {s: self.is_whole(s) for _, s in found}
        keys = {s: self.keys_of(s) for _, s in found}
        values: dict[exp.Expr, exp.Expr] = {}
        for each, source in found:
            if group is None:
                if whole[source]:
                    self.put(each, self.of_all(source, each))
                continue
            if decided[source]:
                value = each.this
            elif whole[source] and keys[source] and "FULL" not in sides:
                value = values.get(each) or self.of_groups(source, each, keys[source])
                values[each.copy()] = value
            else:
                continue
            self.put(each, value.copy())
            self.add_key(value)

    @property
    def elements(self) -> tuple[FromElement, ...]:
        return read_from(self.select)

    def element(self, source: str) -> exp.Expr:
        """Return the element of FROM under an alias."""
        return next(each.node.copy() for each in self.elements if each.alias == source)

    def source(self, called: exp.AggFunc) -> str | None:
        """The alias of the public rows that an aggregate is about; None if it is of others too."""
        found = {self.names.source(self.names.column(c)) for c in called.find_all(exp.Column)}
        source = found.pop() if len(found) == 1 else None
        facts = None if source is None else self.sources.get(source)
        return source if facts is not None and facts.level is RelationLevel.PUBLIC else None

    def put(self, called: exp.AggFunc, value: exp.Expr) -> None:
        """Write a value in the place of an aggregate; a select item keeps its name."""
        outer = called.parent if isinstance(called.parent, exp.IgnoreNulls) else called
        if outer.parent is self.select and outer.arg_key == "expressions":
            value = exp.alias_(value, name_of(outer), quoted=True)
        outer.replace(value)

    def add_key(self, value: exp.Expr) -> None:
        """Let a value that follows from the keys be one."""
        group = self.select.args["group"]
        if not group.args.get("all") and value not in group.expressions:
            group.append("expressions", value.copy())

    def is_decided(self, source: str) -> bool:
        """True if a group meets one row of public rows at most: its keys hold a unique key."""
        keys = written_keys(self.select, self.names.has) or []
        numbers = {self.number(key) for key in keys} - {None}
        pairs = list(self.pairs())
        for _ in pairs:
            numbers |= {other for one, other in pairs if one in numbers} - {None}
        own = {each for each in numbers if each is not None and self.names.source(each) == source}
        plans = [each.plan for each in self.names.scope.sources if each.name == source]
        return bool(own) and self.binder.is_unique(plans[0], own, known=False)

    def number(self, node: exp.Expr) -> ColumnId | None:
        plain = node.unnest()
        with suppress(Error):
            if isinstance(plain, exp.Column) and self.names.has(plain):
                return self.names.column(plain)
        return None

    def pairs(self) -> Iterator[tuple[ColumnId | None, ColumnId | None]]:
        """Columns of which the second follows from the first: it is equal, or no row is met."""
        for plan in from_below(self.names.plan):
            if isinstance(plan, LogicalJoin):
                late = columns_of(plan.right) if plan.kind is JoinKind.LEFT else columns_of(plan)
                found = [equal_columns(one) for test in plan.on for one in conjuncts(test)]
                for pair in (each for each in found if each is not None):
                    yield from ((a, b) for a, b in (pair, pair[::-1]) if b in late)
        where = self.select.args.get("where")
        for inner in [] if where is None else [each.unnest() for each in tests_of(where.this)]:
            if isinstance(inner, exp.EQ):
                one, other = self.number(inner.this), self.number(inner.expression)
                yield from ((one, other), (other, one))

    def is_whole(self, source: str) -> bool:
        """True if the public rows that meet the conditions are there, each as it is."""
        elements = self.elements
        place = next(i for i, each in enumerate(elements) if each.alias == source)
        kinds = [_kind(each) for each in elements]
        kept = place == 0 or set(kinds[: place + 1]) <= {"", "CROSS"}
        kept = kept or kinds[place] in ("RIGHT", "FULL")
        where = self.select.args.get("where")
        tests = [] if where is None else tests_of(where.this)
        after = set(kinds[place + 1 :]) <= {"LEFT", "CROSS", "FULL"}
        return kept and after and all(map(self.own(source), tests))

    def own(self, source: str) -> Callable[[exp.Expr], bool]:
        """A test of expressions that are of public rows alone."""

        def is_own(node: exp.Expr) -> bool:
            columns = [self.number(each) for each in node.find_all(exp.Column)]
            of_it = (each is not None and self.names.source(each) == source for each in columns)
            return node.find(exp.Query, exp.Window, exp.AggFunc) is None and all(of_it)

        return is_own

    def keys_of(self, source: str) -> list[exp.Expr]:
        """The keys of a GROUP BY of public rows alone; none if there are others, or sets."""
        keys = written_keys(self.select, self.names.has) or []
        return list(keys) if all(map(self.own(source), keys)) else []

    def rows_of(self, source: str, item: exp.Expr) -> exp.Select:
        """An item of the public rows that meet the conditions."""
        where = self.select.args.get("where")
        found = exp.Select(expressions=[item], from_=exp.From(this=self.element(source)))
        if where is not None:
            found.set("where", where.copy())
        return found

    def of_all(self, source: str, called: exp.AggFunc) -> exp.Expr:
        """The aggregate of public rows alone."""
        return exp.Subquery(this=self.rows_of(source, called.copy()))

    def of_groups(self, source: str, called: exp.AggFunc, keys: list[exp.Expr]) -> exp.Expr:
        """A column of the public rows with the aggregate over those of the same group.

        The largest of them stands for any one, since windows have no ANY_VALUE.
        """
        name, others = f"of {called.sql('duckdb')}", self.element(source)
        over = exp.Max(this=called.this) if isinstance(called, exp.AnyValue) else called
        of_them = exp.Window(this=over.copy(), partition_by=[each.copy() for each in keys])
        item = exp.alias_(of_them, name, quoted=True)
        rows = self.rows_of(source, item)
        rows.set("expressions", [exp.Star(), item])
        alias = exp.TableAlias(this=exp.to_identifier(others.alias_or_name, quoted=True))
        found = next(each.node for each in self.elements if each.alias == source)
        found.replace(exp.Subquery(this=rows, alias=alias))
        return exp.column(exp.to_identifier(name, quoted=True), table=alias.this.copy())


def _kind(element: FromElement) -> str:
    """The rows that a join keeps: LEFT, RIGHT or FULL, or CROSS where nothing is asked."""
    join = element.join
    if join is None:
        return ""
    if not join.is_plain:
        return "other"
    return join.side or ("INNER" if join.on is not None or join.using else "CROSS")
