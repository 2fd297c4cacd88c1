"""A parsed SELECT and the catalog -> a logical query, or a refusal by name with a caret."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.catalog.domain import Bins, Periods
from dpsql.errors import NotSupportedError, ProgrammingError, Span, printable
from dpsql.sql.aggregates import BUILDERS, Aggregates
from dpsql.sql.clauses import Clips, Cut
from dpsql.sql.edges import check_edges
from dpsql.sql.evaluate import Evaluator
from dpsql.sql.expressions import refuse_rows
from dpsql.sql.keys import Keys
from dpsql.sql.language import Locate, check_scalar, locate, refuse
from dpsql.sql.lexemes import Fragment
from dpsql.sql.moments import OF_MOMENTS
from dpsql.sql.names import Names, names_of
from dpsql.sql.over_cells import CellExpressions
from dpsql.sql.query import Condition, Lookup, Query
from dpsql.sql.relations import (
    Element,
    Field,
    PublicRows,
    common_type,
    find_clause,
    find_table,
    read_from,
    read_literal,
    rows_of,
)
from dpsql.sql.scope import Joined, Scope, condition, conjuncts
from dpsql.sql.steady import Same

MAX_PAIRS = 1 << 22
"""Most combinations of a cell and a public row that a join is evaluated on."""

_INSTEAD = "JOIN public_table ON private_column = public_column, or BETWEEN two public columns"
_WORKS = "one private table with WHERE, GROUP BY, HAVING, ORDER BY and LIMIT works"
_VALUE = exp.column("v")
"""A private column in an expression over it."""

CLAUSES = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "order",
    "limit",
    "offset",
}
_REFUSED = {
    "with_": ("E_CTE", "WITH"),
    "laterals": ("E_JOIN", "LATERAL"),
    "sample": ("E_SAMPLE", "sampling"),
    "distinct": ("E_AGGREGATE", "SELECT DISTINCT"),
    "windows": ("E_WINDOW", "WINDOW"),
    "pivots": ("E_STATEMENT", "PIVOT"),
}

BUILDERS.update(OF_MOMENTS)


def no_public_rows(table: Table) -> dict[str, tuple[str, list[object]]]:
    """The reader of public tables where there are none to read."""
    raise NotSupportedError("E_JOIN", f"the public table {table.name} cannot be read here")


def bind(
    tree: exp.Select,
    fragment: Fragment,
    catalog: Catalog,
    public: PublicRows = no_public_rows,
    clips: Clips | None = None,
    known: dict[Hashable, Condition] | None = None,
    cut: Cut | None = None,
    same: Same | None = None,
) -> Query:
    """Bind names and types of a SELECT over one private table; refuse what is not understood.

    ``clips`` are the contribution bounds of aggregates, by where they stand in the text, ``cut``
    says where a column is clipped in all of them;
    ``known`` keeps conditions for the statements that follow, ``same`` asks for values at the ends
    of cells.
    Raises: ProgrammingError or NotSupportedError with a stable code, a caret and a hint.
    """
    try:
        _check_clauses(tree, lambda node: locate(node, fragment))
        names = _Sources(tree, fragment, catalog, public)
        asked = Evaluator().is_same if same is None else same
        scope = names.scope(clips or {}, cut, {} if known is None else known, asked)
        return _bind(tree, scope)
    except RecursionError:
        raise ProgrammingError("E_TOO_COMPLEX", "the statement is nested too deeply") from None


def _bind(tree: exp.Select, scope: Scope) -> Query:
    where = tuple(condition(scope, test) for test in scope.where)
    keys = Keys(tree, scope)
    aggregates = Aggregates(scope)
    shell = CellExpressions(tree, scope, keys, aggregates).shell()
    if not aggregates.found:
        refuse_rows(tree.expressions[0], scope.locate)
    return Query(
        scope.table.name.casefold(),
        where,
        tuple(keys.found),
        tuple(aggregates.found),
        shell,
        scope.fragment.body,
        keys.sets,
        _lookups(scope),
    )


def _check_clauses(tree: exp.Select, here: Locate) -> None:
    args = {key: value for key, value in tree.args.items() if value}
    for key, (code, what) in _REFUSED.items():
        if key in args:
            if code == "E_JOIN" and args[key][0].find(exp.Unnest):
                code, what = "E_TABLE_FUNCTION", "UNNEST"
            refuse(args[key], code, what, _WORKS, here)
    for key, value in args.items():
        if key not in CLAUSES:
            refuse(value, "E_STATEMENT", key.strip("_").upper(), _WORKS, here)
    if not tree.expressions:
        raise ProgrammingError(
            "E_PARSE",
            "nothing is selected",
            hint="SELECT COUNT(*) FROM ...",
            span=here(tree),
        )
    if "from_" not in args:
        raise ProgrammingError(
            "E_NO_TABLE",
            "there is no FROM",
            hint="constants need no engine; SELECT COUNT(*) FROM table",
            span=here(tree),
        )


class _Sources:
    """Reads the FROM clause of one SELECT: a private table, and public rows that fit its columns.

    ``carriers`` and ``tests`` are the private column of all public rows, and what joins them.
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
        self.joined: list[Joined] = []
        self.carriers: list[str | None] = []
        self.tests: list[list[exp.Expr]] = []

    def scope(
        self, clips: Clips, cut: Cut | None, known: dict[Hashable, Condition], same: Same
    ) -> Scope:
        """What the names stand for; conditions that join public rows are noted with those.

        Raises: NotSupportedError (E_JOIN, E_SUBQUERY, E_TABLE_FUNCTION); ProgrammingError.
        """
        for each in self.elements:
            self.add(each)
        if self.private is None:
            self.refuse(self.elements[0].node, "E_JOIN", "a public table alone")
        table, alias = self.private
        names = Names(self.locate, home=alias)
        for joined in self.joined:
            columns = [exp.column(f"p{index}") for index in range(len(joined.names))]
            fields = tuple(map(Field, joined.names, columns))
            names.sources.append((joined.alias, fields))
        own = tuple(Field(name, _VALUE, hidden) for name, hidden in names_of(table))
        names.sources.append((alias, own))
        public = tuple(self.joined)
        scope = Scope(self.fragment, table, alias, names, public, clips, cut, known, same)
        where = self.fit(scope)
        fitted = tuple(map(self.fitted, range(len(self.joined))))
        return replace(scope, joined=fitted, where=tuple(where))

    def locate(self, node: exp.Expr) -> Span:
        return locate(node, self.fragment)

    def refuse(self, node: exp.Expr, code: str, what: str, hint: str = _INSTEAD) -> NoReturn:
        refuse(node, code, what, hint, self.locate)

    def add(self, element: Element) -> None:
        """Add an element of FROM, if such a join of it works."""
        join, before = element.join, self.private
        if join is None:
            self.read(element, keep=False)
            return
        if not join.is_plain or join.side == "FULL":
            what = join.method or join.side or join.kind
            self.refuse(join.node, "E_JOIN", f"{what} JOIN")
        if join.using and join.side:
            self.refuse(join.node, "E_JOIN", "an outer join by USING", "write ON left = right")
        self.read(element, keep=join.side == "LEFT")
        if join.side == "LEFT" and (before is None or self.private is not before):
            self.refuse(join.node, "E_JOIN", "a private table on the outer side of a join")
        if join.side == "RIGHT":
            if before is not None or len(self.joined) != 1:
                self.refuse(join.node, "E_JOIN", "this RIGHT JOIN")
            self.joined[0] = replace(self.joined[0], keep=True)

    def read(self, element: Element, *, keep: bool) -> None:
        """Read the private table, or public rows."""
        source = element.node
        if isinstance(source, exp.Values):
            self.joined.append(self.values(element, source, keep))
            return
        if isinstance(source, exp.Subquery):
            self.refuse(source, "E_SUBQUERY", "this sub-query in FROM")
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            what = "UNNEST" if isinstance(source, exp.Unnest) else "a table function"
            self.refuse(
                source, "E_TABLE_FUNCTION", what, "one private table and public tables work"
            )
        extra = find_clause(source)
        if extra is not None:
            self.refuse(source, *extra[:2])
        table = find_table(self.catalog, source, (), self.locate)
        alias = source.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            self.refuse(alias, "E_STATEMENT", "renaming columns in FROM")
        if alias is not None and not isinstance(alias.this, exp.Identifier):
            self.refuse(source, "E_STATEMENT", "this alias in FROM")
        if table.public:
            found = self.public(table)
            rows = tuple(zip(*(values for _, values in found.values()), strict=True))
            types = tuple(kind for kind, _ in found.values())
            span = self.locate(source)
            self.joined.append(Joined(element.alias, tuple(found), types, rows, keep, span))
        elif self.private is not None:
            self.refuse(source, "E_JOIN", "a join of two private tables")
        else:
            self.private = (table, element.alias)

    def values(self, element: Element, source: exp.Values, keep: bool) -> Joined:
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
        types = tuple(common_type(column) for column in zip(*rows, strict=True))
        return Joined(element.alias, names, types, tuple(rows), keep, self.locate(source))

    def refuse_value(self, node: exp.Expr) -> NoReturn:
        self.refuse(node, "E_JOIN", "this in VALUES", "numbers, texts and dates work")

    def fit(self, scope: Scope) -> list[exp.Expr]:
        """Find the private column that all public rows are joined to; return other conditions."""
        where = self.tree.args.get("where")
        written = conjuncts(where.this) if where is not None else []
        joins = [each.join for each in self.elements if each.join is not None]
        if not joins:
            return written
        self.carriers = [None for _ in self.joined]
        self.tests = [[] for _ in self.joined]
        tests: list[tuple[exp.Expr, bool]] = []
        for join in joins:
            if join.on is not None:
                tests += [(test, True) for test in conjuncts(join.on)]
            tests += [(self.using(scope, name), True) for name in join.using]
        tests += [(test, False) for test in written]
        kept = [test for test, joining in tests if not self.take(scope, test, joining)]
        first = self.tree.args["from_"]
        for joined, carrier in zip(self.joined, self.carriers, strict=True):
            if carrier is None:
                self.refuse(first, "E_JOIN", f"{joined.alias} without a condition")
        if len(set(self.carriers)) < len(self.carriers):
            self.refuse(first, "E_JOIN", "joining one column to two public tables")
        return kept

    def fitted(self, number: int) -> Joined:
        """Public rows with the private column that they are joined to."""
        tests = tuple(self.tests[number])
        return replace(self.joined[number], carrier=self.carriers[number], tests=tests)

    def using(self, scope: Scope, name: exp.Expr) -> exp.Expr:
        """USING as a condition; its column is the private one from now on."""
        key = name.name.casefold()
        found = (each.alias for each in self.joined if key in map(str.casefold, each.names))
        alias = next(found, None)
        if alias is None or key not in scope.table.columns:
            self.refuse(name, "E_JOIN", f"USING ({printable(name.name)})")
        scope.names.shared[key] = _VALUE
        sides = (exp.column(name.name, table) for table in (scope.alias, alias))
        return exp.EQ(this=next(sides), expression=next(sides))

    def take(self, scope: Scope, test: exp.Expr, joining: bool) -> bool:
        """Use a condition to join public rows, if that is what it is for."""
        references = list(test.find_all(exp.Column))
        found = [scope.find_public(reference) for reference in references]
        public = {self.joined.index(each[0]) for each in found if each is not None}
        private = {
            scope.find_column(reference).name.casefold()
            for reference, each in zip(references, found, strict=True)
            if each is None
        }
        if len(public) != 1:
            if joining and len(public) > 1:
                self.refuse(test, "E_JOIN", "a condition over two public tables")
            if joining and any(joined.keep for joined in self.joined):
                self.refuse(test, "E_JOIN", "an outer join on private columns alone")
            return False
        number = public.pop()
        carrier = self.carriers[number]
        if not joining and (carrier is not None or self.joined[number].keep or len(private) != 1):
            return False
        check_scalar(test, scope.locate)
        if len(private) > 1 or (carrier and private - {carrier}):
            self.refuse(test, "E_JOIN", "joining public rows to two private columns")
        if private:
            self.carriers[number] = private.pop()
        self.tests[number].append(test)
        return True


def _lookups(scope: Scope) -> tuple[Lookup, ...]:
    """The joined public rows as the compiler reads them.

    Raises: ProgrammingError (E_TOO_LARGE, E_BIN_EDGE).
    """
    out = []
    for joined in scope.joined:
        assert joined.carrier is not None
        column = scope.table.columns[joined.carrier]
        if column.size * max(1, len(joined.rows)) > MAX_PAIRS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"{joined.alias} has {len(joined.rows):,} rows for {column.size:,} cells of "
                f"{column.name}",
                hint=f"at most {MAX_PAIRS:,} combinations",
                span=joined.span,
            )
        for test in joined.tests:
            if isinstance(column.domain, Bins | Periods):
                for tree in scope.written_out(test):
                    check_edges(column, tree, scope.locate, scope.same)
        on = " AND ".join(f"({scope.render(test)})" for test in joined.tests)
        out.append(Lookup(joined.carrier, joined.types, joined.rows, on, joined.keep, joined.span))
    return tuple(out)
