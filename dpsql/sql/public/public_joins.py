"""Public rows that are joined to a private table: what FROM and WHERE say of them.

Rows that fit one private column are looked up there; those that fit several are a list, of which
every row stands for a product of conditions.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Column, Table
from dpsql.catalog.catalog import PublicRows, names_of
from dpsql.catalog.domain import Bins, Periods
from dpsql.errors import ProgrammingError, Span, printable
from dpsql.logical.functions import conjuncts
from dpsql.records import replace
from dpsql.sql.cells.cell_edges import check_edges, is_of_days
from dpsql.sql.cells.evaluate import Evaluator
from dpsql.sql.names import Names
from dpsql.sql.public.equal_columns import close_equalities, equated
from dpsql.sql.public.public_combinations import combinations
from dpsql.sql.public.public_lookups import matched, placed
from dpsql.sql.public.public_rows import JoinedPublicRows
from dpsql.sql.query import Expression, JointCondition, Link, Listing, Lookup
from dpsql.sql.relations import (
    Field,
    FromElement,
    common_type,
    find_table,
    read_from,
    read_literal,
    rows_of,
)
from dpsql.sql.scope import Scope, condition
from dpsql.sql.shell.language import check_scalar, locate, refuse
from dpsql.sql.text.clauses import Clips, Cut
from dpsql.sql.text.lexemes import Fragment

INSTEAD = "JOIN public_table ON private_column = public_column, or BETWEEN two public columns"
_VALUE = exp.column("v")
"""A private column in an expression over it."""


class JoinReader:
    """Reads the FROM clause of a flat SELECT: a private table, public rows that fit its columns.

    ``carriers`` are the private columns of all public rows, ``tests`` what joins them.
    """

    def __init__(
        self, tree: exp.Select, fragment: Fragment, catalog: Catalog, public: PublicRows
    ) -> None:
        self.tree = tree
        self.fragment = fragment
        self.catalog = catalog
        self.public = public
        self.elements = read_from(tree)
        self.private: tuple[Table, str] | None = None
        self.joined: list[JoinedPublicRows] = []
        self.carriers: list[list[str]] = []
        self.tests: list[list[exp.Expr]] = []
        self.listed: set[int] = set()
        self.groups: list[list[int]] = []

    def scope(
        self, clips: Clips, cut: Cut | None, known: dict[Hashable, Expression], evaluator: Evaluator
    ) -> Scope:
        """The scope of the names; conditions that join public rows are noted with those.

        Raises: NotSupportedError (E_JOIN, E_SUBQUERY, E_TABLE_FUNCTION); ProgrammingError.
        """
        for each in self.elements:
            self.add(each)
        assert self.private is not None
        table, alias = self.private
        names = Names(self.locate, home=alias)
        for joined in self.joined:
            columns = [exp.column(f"p{index}") for index in range(len(joined.names))]
            fields = tuple(map(Field, joined.names, columns))
            names.sources.append((joined.alias, fields))
        own = tuple(Field(name, _VALUE, hidden) for name, hidden in names_of(table))
        names.sources.append((alias, own))
        public = tuple(self.joined)
        scope = Scope(self.fragment, table, alias, names, public, clips, cut, known, evaluator)
        where = self.fit(scope)
        fitted = placed(list(map(self.fitted, range(len(self.joined)))))
        found = replace(scope, joined=fitted, where=tuple(where))
        return matched(found, self.catalog, self.groups) if self.listed else found

    def locate(self, node: exp.Expr) -> Span:
        return locate(node, self.fragment)

    def refuse(self, node: exp.Expr, code: str, what: str, hint: str = INSTEAD) -> NoReturn:
        refuse(node, code, what, hint, self.locate)

    def add(self, element: FromElement) -> None:
        """Add an element of FROM: the private table, or public rows."""
        source, side = element.node, "" if element.join is None else element.join.side
        if isinstance(source, exp.Values):
            self.joined.append(self.values(element, source, side == "LEFT"))
        else:
            assert isinstance(source, exp.Table)
            table = find_table(self.catalog, source, (), self.locate)
            if not table.public:
                self.private = (table, element.alias)
            else:
                found, span = self.public(table), self.locate(source)
                types, values = zip(*found.values(), strict=True)
                names, keep = tuple(found), side == "LEFT"
                self.joined.append(
                    JoinedPublicRows(element.alias, names, types, values, keep, span)
                )
        if side == "RIGHT":
            self.joined[0] = replace(self.joined[0], keep=True)

    def values(self, element: FromElement, source: exp.Values, keep: bool) -> JoinedPublicRows:
        """A VALUES list as public rows."""
        alias = source.args.get("alias")
        if alias is None or not alias.args.get("columns"):
            self.refuse(
                source, "E_JOIN", "VALUES without names", "(VALUES (17, 29)) AS bands(lo, hi)"
            )
        names = tuple(column.name for column in alias.args["columns"])
        written = rows_of(source)
        rows = []
        for items in written:
            if len(items) != len(names):
                self.refuse(source, "E_JOIN", "VALUES with other lengths than names")
            rows.append(tuple(read_literal(item, self.refuse_value) for item in items))
        values = tuple(zip(*rows, strict=True))
        types = tuple(map(common_type, values))
        return JoinedPublicRows(element.alias, names, types, values, keep, self.locate(source))

    def refuse_value(self, node: exp.Expr) -> NoReturn:
        self.refuse(node, "E_JOIN", "this in VALUES", "numbers, texts and dates work")

    def fit(self, scope: Scope) -> list[exp.Expr]:
        """Find the private column that all public rows are joined to; return other conditions."""
        where = self.tree.args.get("where")
        written = conjuncts(where.this) if where is not None else []
        assert self.private is not None
        own = [each.alias for each in self.elements].index(self.private[1])
        places = enumerate(self.elements)
        joins = [(k - (k >= own), each.join) for k, each in places if each.join is not None]
        if not joins:
            return written
        self.tests = [[] for _ in self.joined]
        outer: list[exp.Expr] = []
        inner: list[exp.Expr] = []
        for number, join in joins:  # that of an inner join picks rows, as WHERE does
            tests = outer if join.side or join.is_whole else inner
            tests += [] if join.on is None else conjuncts(join.on)
            tests += [self.using(scope, name, number) for name in join.using]
        inner += written
        self.find_carriers(scope, outer, inner)
        if self.listed and not any(map(self.kept, range(len(self.joined)))):
            inner = close_equalities(scope, inner)
            self.find_carriers(scope, outer, inner)
        left = [test for test in outer if not self.take(scope, test, True)]
        return left + [test for test in inner if not self.take(scope, test, False)]

    def find_carriers(
        self, scope: Scope, outer: Sequence[exp.Expr], inner: Sequence[exp.Expr]
    ) -> None:
        """Find which private columns public rows are joined to: one that is equal to theirs, first.

        What else is said of these rows picks some. Rows that are joined to each other have the
        columns of all of them.
        """
        about = [[self.sides(scope, test) for test in tests] for tests in (outer, inner)]
        every = range(len(self.joined))
        bound = {number for public, own in about[0] if own for number in public}
        picked = {number for number in every if number not in bound and not self.kept(number)}
        near = _linked(len(every), (public & picked for public, own in about[1] if not own))
        told = {n: name for n, name in equated(scope, inner, near).items() if n in picked}
        own = [[told[number]] if number in told else [] for number in every]
        tests = [(sides, {*every}) for sides in about[0]]
        tests += [(sides, picked - told.keys()) for sides in about[1]]
        for (public, private), found in tests:
            for number in public & found:
                own[number] += private - set(own[number])
        linked = _linked(len(every), (public for (public, _), found in tests if public & found))
        self.groups = [sorted(each) for k, each in enumerate(linked) if k == min(each)]
        self.carriers = [
            list(dict.fromkeys(c for n in sorted(members) for c in own[n])) for members in linked
        ]
        self.listed = {number for number, own in enumerate(self.carriers) if len(own) != 1}

    def kept(self, number: int) -> bool:
        return self.joined[number].keep

    def fitted(self, number: int) -> JoinedPublicRows:
        """Public rows with the private column that they are joined to, or among the listed ones."""
        joined, tests = self.joined[number], tuple(self.tests[number])
        if number not in self.listed:
            return replace(joined, carrier=self.carriers[number][0], tests=tests)
        return replace(joined, tests=tests, listed=True)

    def using(self, scope: Scope, name: exp.Expr, number: int) -> exp.Expr:
        """USING as a condition; its column is that of the left side from now on."""
        key = name.name.casefold()
        having = [k for k, e in enumerate(self.joined) if key in map(str.casefold, e.names)]
        private = key in scope.table.columns
        left = next((k for k in having if k < number), None)
        right = number if number in having else left
        if right is None or (left is None and not private):
            self.refuse(name, "E_JOIN", f"USING ({printable(name.name)})")
        first = scope.alias if private else self.joined[left or 0].alias
        before = exp.column(name.name, first)
        scope.names.shared[key] = _VALUE if private else before
        return exp.EQ(
            this=before.copy(), expression=exp.column(name.name, self.joined[right].alias)
        )

    def sides(self, scope: Scope, test: exp.Expr) -> tuple[set[int], set[str]]:
        """The public rows, by number, and the private columns that a condition is about."""
        references = list(test.find_all(exp.Column))
        found = [scope.find_public(reference) for reference in references]
        public = {self.joined.index(each[0]) for each in found if each is not None}
        private = {
            scope.find_column(reference).name.casefold()
            for reference, each in zip(references, found, strict=True)
            if each is None
        }
        return public, private

    def take(self, scope: Scope, test: exp.Expr, joining: bool) -> bool:
        """Use a condition to join public rows, if that is what it is for."""
        public, private = self.sides(scope, test)
        if not public:
            if joining and any(joined.keep for joined in self.joined):
                self.refuse(test, "E_JOIN", "an outer join on private columns alone")
            return False
        number = max(public)
        if number in self.listed:
            if joining and len(public) > 1 and any(map(self.kept, public)):
                what = "a condition over two public tables in an outer join"
                self.refuse(test, "E_JOIN", what)
            if joining and self.kept(number):
                self.tests[number].append(test)
            return joining and self.kept(number)
        own = self.carriers[number]
        is_apart = bool(private - set(own)) or any(self.carriers[k] != own for k in public)
        is_known = bool(self.tests[number]) or any(map(self.kept, public))
        where = not joining and (is_known or is_apart)
        if where or (not joining and not private and len(public) == 1):
            return False
        check_scalar(test, scope.locate)
        self.tests[number].append(test)
        return True


def _linked(count: int, pairs: Iterable[Collection[int]]) -> list[set[int]]:
    """The numbers that each number is together with, directly or not."""
    linked = [{number} for number in range(count)]
    for each in pairs:
        together = set[int]().union(*(linked[number] for number in each))
        for number in together:
            linked[number] = together
    return linked


def joined_listing(scope: Scope) -> Listing | None:
    """The public rows that are joined to several columns, every combination of them one row.

    Raises: ProgrammingError (E_TOO_LARGE); NotSupportedError (E_JOIN).
    """
    listed = [each for each in scope.joined if each.listed]
    if not listed:
        return None
    span, rows = listed[0].span, combinations(scope, listed)
    types = tuple(kind for each in listed for kind in each.types)
    keep = any(each.keep for each in listed)
    tests = tuple(condition(scope, test) for each in listed for test in each.tests)
    if keep:
        rows.append((None,) * len(types))
        if len(listed) > 1 or any(isinstance(each, JointCondition) for each in tests):
            what = "this outer join on several columns"
            hint = "one list, with conditions that are each about one private column"
            scope.refuse(listed[0].tests[0], "E_JOIN", what, hint)
    name = hashlib.sha256(repr((types, rows)).encode()).hexdigest()
    return Listing(name, types, tuple(rows), tests, keep, span)


def lookups(scope: Scope, tree: exp.Select) -> tuple[Lookup, ...]:
    """The joined public rows as the compiler reads them, one for each private column.

    Raises: ProgrammingError (E_BIN_EDGE).
    """
    if not scope.joined:
        return ()
    found: dict[str, list[JoinedPublicRows]] = {}
    for joined in scope.joined:
        if joined.carrier is not None:
            found.setdefault(joined.carrier, []).append(joined)
    trees = [tree, *(test for joined in scope.joined for test in joined.tests)]
    nodes = itertools.chain.from_iterable(each.find_all(exp.Column) for each in trees)
    used = {place for node in nodes if (place := _used(scope, node))}
    out = []
    for name, members in found.items():
        links = tuple(_link(scope, scope.table.columns[name], each, used) for each in members)
        out.append(Lookup(name, links, members[0].span))
    return tuple(out)


def _used(scope: Scope, node: exp.Column) -> tuple[int, int] | None:
    """The public relation, and its column, that a name stands for; None where it is none."""
    try:
        found = None if isinstance(node.this, exp.Star) else scope.find_public(node)
    except ProgrammingError:  # the alias of an item, which several columns are named like, too
        found = None
    return None if found is None else (scope.joined.index(found[0]), found[1])


def _link(
    scope: Scope, column: Column, joined: JoinedPublicRows, used: set[tuple[int, int]]
) -> Link:
    """Public rows, as many columns as are used, and what joins them."""
    own = scope.joined.index(joined)
    kept = sorted(index for number, index in used if number == own)
    if isinstance(column.domain, Bins | Periods):
        for test in joined.tests:
            for tree in (
                () if is_of_days(column, test, scope.find_public) else scope.written_out(test)
            ):
                check_edges(column, tree, scope.locate, scope.evaluator.is_same)
    on = " AND ".join(f"({scope.render(test)})" for test in joined.tests) or "TRUE"
    rows = tuple(joined.rows(kept))
    name = hashlib.sha256(repr(rows).encode()).hexdigest()
    numbers = tuple(joined.first + k for k in kept)
    return Link(name, numbers, tuple(joined.types[k] for k in kept), rows, on, joined.keep)
