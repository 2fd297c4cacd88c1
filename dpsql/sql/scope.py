"""The names of a SELECT that is measured, columns of one private table and of public rows.

Conditions over them are bound here: one over several columns as the largest parts over single
columns, and what couples those.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from dpsql.catalog import Column, Table
from dpsql.errors import NotSupportedError, ProgrammingError, Span, printable
from dpsql.logical.functions import conjuncts, has
from dpsql.records import dataclass, replace
from dpsql.relation.unit_local import DerivedTable
from dpsql.sql.cells.cell_edges import check_edges, check_literals, is_of_days, undeclared
from dpsql.sql.cells.column_mentions import MentionCache
from dpsql.sql.cells.evaluate import Evaluator
from dpsql.sql.measures.column_hints import remedy
from dpsql.sql.names import Names, unknown_table
from dpsql.sql.query import Condition, Expression, JointCondition
from dpsql.sql.relations import as_literal, suggest_column
from dpsql.sql.shell.language import check_scalar, locate, refuse
from dpsql.sql.shell.whole_numbers import INTEGERS
from dpsql.sql.text.clauses import Clips, Cut, clip_of
from dpsql.sql.text.growth import check_growth
from dpsql.sql.text.lexemes import Fragment

if TYPE_CHECKING:
    from dpsql.sql.public.public_rows import JoinedPublicRows


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The scope of names in a measured SELECT: ``joined`` are first among its sources.

    ``where`` are its conditions but for those that join public rows. ``clips`` are the contribution
    bounds of aggregates, by where they stand in the text, ``cut`` says where a column is clipped
    in all of them. ``known`` are conditions on one column that were bound before, by table, alias
    and tree; ``evaluator`` works out what is public. ``stored`` is the table that ``table`` is made
    of, with columns of its own besides.
    """

    fragment: Fragment
    table: Table
    alias: str
    names: Names
    joined: tuple[JoinedPublicRows, ...]
    clips: Clips
    cut: Cut | None
    known: dict[Hashable, Expression]
    evaluator: Evaluator
    where: tuple[exp.Expr, ...] = ()
    stored: Table | None = None

    def clip_of(self, node: exp.Expr) -> tuple[float, float] | None:
        """The contribution bounds written after the argument of an aggregate."""
        return clip_of(node, self.clips, self.fragment)

    def cut_of(self, column: Column) -> tuple[float, float] | None:
        """The bounds of the column whose values are clipped in the whole statement."""
        here = (self.table.name.casefold(), column.name.casefold())
        if self.cut is None or here != (self.cut.table, self.cut.column):
            return None
        bounds = column.number_bounds
        assert bounds is not None
        return float(bounds[0]), min(float(bounds[1]), self.cut.level)

    def locate(self, node: exp.Expr) -> Span:
        """The span of text that ``node`` was parsed from, as well as the parser remembers it."""
        return locate(node, self.fragment)

    def refuse(self, value: object, code: str, what: str, hint: str | None = None) -> NoReturn:
        """Refuse a clause by name."""
        hint = hint or "one private table with WHERE, GROUP BY, HAVING, ORDER BY, LIMIT works"
        refuse(value, code, what, hint, self.locate)

    def columns(self, node: exp.Expr) -> dict[str, Column]:
        """The private columns that ``node`` depends on, by case-folded name."""
        found = {}
        for reference in node.find_all(exp.Column):
            if not self.is_listed(reference):
                column = self.find_column(reference)
                found[column.name.casefold()] = column
        return found

    def stem(self, unit: str) -> str:
        """The name of the table of the catalog that a privacy unit is a column of."""
        bases = self.table.bases if isinstance(self.table, DerivedTable) else (self.table,)
        owned = [each for each in bases if str(each.unit.column).casefold() == unit.casefold()]
        return (owned or bases)[0].name

    def find_column(
        self, reference: exp.Column, *, measure: bool = False, summed: bool = False
    ) -> Column:
        """The private column a reference depends on: its own, or the one public rows fit.

        Raises: ProgrammingError (E_UNKNOWN_TABLE, E_UNKNOWN_COLUMN, E_DOMAIN).
        """
        public = self.find_public(reference)
        if public is not None:
            if public[0].carrier is None:
                what = f"{printable(reference.name)} of a list that joins several columns, here,"
                hint = "GROUP BY its columns, sum and filter by them"
                self.refuse(reference, "E_JOIN", what, hint)
            return self.table.columns[public[0].carrier]
        name, qualifier = reference.name, reference.table
        column = self.table.columns.get(name.casefold())
        if qualifier and qualifier.casefold() != self.alias:
            known = sorted([self.alias, *(each.alias for each in self.joined)])
            raise unknown_table(qualifier, known, self.locate(reference))
        if column is None and self.is_unit(reference):
            raise NotSupportedError(
                "E_DOMAIN",
                f"{printable(name)} is the privacy unit: it can be counted and nothing else",
                hint=f"COUNT(DISTINCT {printable(name)}) works, or SELECT n, COUNT(*) FROM (SELECT "
                f"{printable(name)}, COUNT(*) AS n FROM {printable(self.stem(name))} GROUP BY "
                f"{printable(name)}) AS p GROUP BY n",
                span=self.locate(reference),
            )
        if column is None and isinstance(reference.this, exp.Star):
            raise NotSupportedError(
                "E_FUNCTION",
                f"{printable(reference.sql('duckdb', comments=False))} is not supported here",
                hint="COUNT(*) counts rows; of one column by its name: COUNT(a), AVG(b)",
                span=self.locate(reference),
            )
        if column is None:
            declared = [c.name for c in self.table.columns.values()]
            raise ProgrammingError(
                "E_UNKNOWN_COLUMN",
                f"there is no column {printable(name)!r} in table {self.table.name}",
                hint=suggest_column(reference, declared),
                span=self.locate(reference),
            )
        if column.domain is None and not (measure and column.bounds is not None):
            tested = isinstance(reference.find_ancestor(exp.Predicate, exp.AggFunc), exp.Predicate)
            if summed and not tested and column.type != "boolean":
                raise ProgrammingError(
                    "E_NO_BOUNDS",
                    f"column {column.name} has no bounds: one row could change its sum by anything",
                    hint=remedy(self.table, column, summed),
                    span=self.locate(reference),
                )
            reason = "has no declared domain: nothing can be asked of it"
            if column.bounds:
                reason = "is a measure with bounds: it cannot be used in a predicate or GROUP BY"
            raise ProgrammingError(
                "E_DOMAIN",
                f"column {column.name} {reason}",
                hint=remedy(self.table, column, tested=isinstance(reference.parent, exp.Is)),
                span=self.locate(reference),
            )
        return column

    def find_public(self, reference: exp.Column) -> tuple[JoinedPublicRows, int] | None:
        """The public column a reference names, if it names one.

        Raises: ProgrammingError (E_UNKNOWN_COLUMN) for a name that stands for several columns.
        """
        shared = self.names.shared.get(reference.name.casefold())
        merged = shared is not None and not reference.table
        if merged and isinstance(shared, exp.Column) and shared.table:
            return self.find_public(shared)
        place = self.names.place(reference) if self.joined and not merged else None
        if place is None or place[0] == len(self.joined):
            return None
        return self.joined[place[0]], place[1]

    def has(self, reference: exp.Column) -> bool:
        """True if a name is that of a declared column, or of one of public rows."""
        return reference.name.casefold() in self.table.columns or self.is_public(reference)

    def is_public(self, reference: exp.Column) -> bool:
        """True if a reference names a column of public rows."""
        return self.find_public(reference) is not None

    def is_listed(self, node: exp.Expr) -> bool:
        """True if an expression mentions public rows that are joined to several columns."""
        found = map(self.find_public, node.find_all(exp.Column)) if self.joined else ()
        return any(each is not None and each[0].listed for each in found)

    def is_integer(self, reference: exp.Column) -> bool:
        """True if a column holds integers to SQL; truth values count as such."""
        public = self.find_public(reference)
        if public is not None:
            return public[0].types[public[1]] in INTEGERS
        column = self.table.columns.get(reference.name.casefold())
        return column is not None and column.type in ("integer", "boolean")

    def written_out(self, node: exp.Expr) -> list[exp.Expr]:
        """A node as it is, or for every public row with the values of that row in it.

        Nothing where it depends on public rows alone.
        """
        found = [self.find_public(reference) for reference in node.find_all(exp.Column)]
        public = [each for each in found if each is not None]
        if not public:
            return [node]
        if None not in found:
            return []
        used = sorted({(self.joined.index(joined), index) for joined, index in public})
        rows = [
            dict.fromkeys(joined.rows([k for n, k in used if n == number]))
            for number, joined in enumerate(self.joined)
            if any(n == number for n, _ in used)
        ]
        flat = map(itertools.chain.from_iterable, itertools.product(*rows))
        return [self.with_values(node, dict(zip(used, each, strict=True))) for each in flat]

    def with_values(self, node: exp.Expr, values: dict[tuple[int, int], Any]) -> exp.Expr:
        """A copy of a node with the values of one public row instead of its columns."""
        tree = exp.paren(node.copy())
        for reference in list(tree.find_all(exp.Column)):
            public = self.find_public(reference)
            if public is not None:
                value = values[self.joined.index(public[0]), public[1]]
                reference.replace(as_literal(value) or exp.Literal.string(str(value)))
        tree.parent = node.parent
        return tree

    def is_unit(self, reference: exp.Column) -> bool:
        """True if a name is that of the column of the privacy unit."""
        unit, alias = self.table.unit.column, reference.table.casefold()
        named = unit is not None and reference.name.casefold() == unit.casefold()
        return named and alias in ("", self.alias)

    def is_never_null(self, reference: exp.Column) -> bool:
        """True if a name is that of the unit, or of what rows belong to it by: others do not count.

        A column that is declared is none of them here.
        """
        way, name = (self.stored or self.table).unit.through, reference.name.casefold()
        if name in self.table.columns or self.find_public(reference) is not None:
            return False
        owners = {own.casefold() for own, _ in way.on} if way is not None else set()
        known = reference.table.casefold() in ("", self.alias)
        return self.is_unit(reference) or (known and name in owners)

    def single_column(self, node: exp.Expr, code: str, what: str, instead: str) -> Column | None:
        """The one column that ``node`` depends on, or None; refuse two."""
        check_scalar(node, self.locate)
        columns = self.columns(node)
        if len(columns) > 1:
            listed = ", ".join(sorted(column.name for column in columns.values()))
            raise NotSupportedError(
                code,
                f"{what} is not supported ({listed})",
                hint=instead,
                span=self.locate(node),
            )
        only = next(iter(columns.values()), None)
        check_growth([only], node, self.locate)
        return only

    def expression(self, column: Column | None, node: exp.Expr) -> Expression:
        """Render ``node`` over the name ``v``; partial functions must not give NaN."""
        listed = self.is_listed(node)
        if column is None:
            return Expression(None, self.render(node), self.locate(node), listed=listed)
        absent = undeclared(column, node, self.is_public)
        name, sql, span = column.name.casefold(), self.render(node), self.locate(node)
        return Expression(name, sql, span, undeclared=absent, listed=listed)

    def render(self, node: exp.Expr) -> str:
        """SQL over ``v`` and the public columns ``p0``, ``p1``, ..., or ``r0``, ``r1``, ...."""
        if isinstance(node, exp.Column):
            return self._name(node)
        tree = node.copy()
        for reference in list(tree.find_all(exp.Column)):
            reference.replace(exp.column(self._name(reference)))
        for partial in list(tree.walk(prune=_is_partial)):
            if not _is_partial(partial):
                continue
            text = partial.sql("duckdb", comments=False)
            guarded = exp.Var(
                this=f"(CASE WHEN isnan(CAST({text} AS DOUBLE)) THEN error('not a number') "
                f"ELSE {text} END)"
            )
            if partial is tree:
                tree = guarded
            else:
                partial.replace(guarded)
        return str(tree.sql("duckdb", comments=False, copy=False))

    def _name(self, reference: exp.Column) -> str:
        """The name of a column in SQL over its values."""
        public = self.find_public(reference)
        if public is None:
            return "v"
        joined, index = public
        return f"{'r' if joined.listed else 'p'}{joined.first + index}"


def _is_partial(node: exp.Expr) -> bool:
    return has(node, "partial")


_TESTS = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean)


def conjunction(scope: Scope, tree: exp.Expr) -> tuple[Condition, ...]:
    """Split a condition at its ANDs and bind every part.

    Raises: ProgrammingError or NotSupportedError with a caret.
    """
    return tuple(condition(scope, part) for part in conjuncts(tree))


def condition(scope: Scope, node: exp.Expr) -> Condition:
    """Bind a condition over one column, or over several at once."""
    if scope.joined:
        return _bound(scope, node)
    key = (scope.table.name, scope.alias, node)
    known = scope.known.get(key)
    if known is not None:
        return replace(known, span=scope.locate(node))
    found = _bound(scope, node)
    if isinstance(found, Expression):  # parts of others, too, stand in a text of their own
        scope.known[key] = found
    return found


def _bound(scope: Scope, node: exp.Expr) -> Condition:
    check_scalar(node, scope.locate)
    node = _of_somebody(scope, node)
    columns = scope.columns(node)
    if len(columns) > 1:
        return coupled(scope, node)
    column = next(iter(columns.values()), None)
    check_growth([column], node, scope.locate)
    _check_test(scope, column, node)
    return scope.expression(column, node)


def _of_somebody(scope: Scope, node: exp.Expr) -> exp.Expr:
    """A condition in which the unit of a row is never NULL: rows of nobody are not counted."""
    if not any(_is_of_nobody(scope, each) for each in node.find_all(exp.Is)):
        return node
    tree = exp.paren(node.copy())
    for each in list(tree.find_all(exp.Is)):
        if _is_of_nobody(scope, each):
            each.replace(exp.false())
    tree.parent = node.parent
    return tree


def _is_of_nobody(scope: Scope, node: exp.Is) -> bool:
    is_null = isinstance(node.expression, exp.Null) and isinstance(node.this, exp.Column)
    return is_null and scope.is_never_null(node.this)


def negation(scope: Scope, node: exp.Expr) -> Condition:
    """The condition that ``node`` is not true: false or NULL."""
    test = exp.Not(this=exp.Coalesce(this=exp.paren(node.copy()), expressions=[exp.false()]))
    return condition(scope, test)


def _check_test(scope: Scope, column: Column | None, node: exp.Expr) -> None:
    if column is not None:
        check_literals(column, node, scope.locate, scope.is_public)
        for tree in () if is_of_days(column, node, scope.find_public) else scope.written_out(node):
            check_edges(column, tree, scope.locate, scope.evaluator.is_same)


def coupled(scope: Scope, node: exp.Expr) -> JointCondition:
    """Replace the largest parts over single columns by x0, x1, ...; the rest couples them.

    Raises: ProgrammingError (E_TOO_COMPLEX), where that could be too large.
    """
    check_growth(scope.columns(node).values(), node, scope.locate)
    parts: dict[Expression, int] = {}
    tree, below = exp.paren(node.copy()), MentionCache()
    below.of(tree)
    _extract(scope, below, tree.this, parts)
    return JointCondition(tree.this.sql("duckdb", comments=False), tuple(parts), scope.locate(node))


def _extract(
    scope: Scope, below: MentionCache, node: exp.Expr, parts: dict[Expression, int]
) -> None:
    if isinstance(node, exp.DataType | exp.Identifier | exp.Var | exp.Interval):
        return
    columns: dict[str, Column] = {}
    for reference in below.of(node).columns.values():
        columns |= scope.columns(reference)
    if isinstance(node, exp.DateDiff) and len(columns) > 1:
        from dpsql.sql.cells.cell_constants import cut_off_sides  # few compare days

        cut_off_sides(node)
    if len(columns) > 1 or (isinstance(node, exp.If) and isinstance(node.parent, exp.Case)):
        for child in list(node.iter_expressions()):
            _extract(scope, below, child, parts)
        return
    if not columns and not scope.is_listed(node):
        return
    column = next(iter(columns.values()), None)
    check_growth([column], node, scope.locate)
    if isinstance(node, _TESTS):
        _check_test(scope, column, node)
    elif column is not None:
        for tree in scope.written_out(node):
            check_edges(column, tree, scope.locate, scope.evaluator.is_same)
    place = parts.setdefault(scope.expression(column, node), len(parts))
    node.replace(exp.column(f"x{place}"))
