"""Public rows that are kept without private ones: LEFT JOIN of a private table.

Whether a public row is without a partner depends on all rows of the private table, whose ever they
are, and is not measured. COUNT, SUM and AVG of private columns pass over such rows, and groups of
public rows are there in any case: a SELECT of nothing else is one over an inner join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Column
from dpsql.errors import printable
from dpsql.logical.functions import SETS, conjuncts, has, is_null_where
from dpsql.records import dataclass, field, replace
from dpsql.sql.cells.combinations import Given
from dpsql.sql.cells.evaluate import Evaluator
from dpsql.sql.names import has_name
from dpsql.sql.public.unmatched_keys import UnmatchedKeys
from dpsql.sql.relations import FromElement, Join, PrivateRows, Relation, column_of
from dpsql.sql.shell.language import Locate, check_scalar, refuse, written_name

ReadKeys = Callable[[FromElement, Relation], Given | None]
"""Reads public rows in FROM; None for what are none."""


@dataclass(frozen=True, slots=True)
class OuterPublicRows:
    """Public rows that are kept, in the FROM clause of one SELECT, and a private table.

    ``own`` is the element of the private ``rows``, ``other`` that of the public ones, ``keys`` are
    the values of their columns by case-folded name.
    """

    node: exp.Select
    own: FromElement
    rows: PrivateRows
    other: FromElement
    keys: Given
    catalog: Catalog
    evaluator: Evaluator
    locate: Locate
    met: dict[str, list[exp.Expr]] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what the public rows without private ones have a part in.

        Raises: NotSupportedError (E_JOIN).
        """
        for clause in ("distinct", "qualify", "pivots", "laterals"):
            if self.node.args.get(clause):
                self.refuse(self.node.args[clause], clause.upper())
        where = self.node.args.get("where")
        for test in [] if where is None else conjuncts(where.this):
            self.check_test(test)
        group = self.node.args.get("group")
        self.check_keys()
        rest = [*self.node.expressions, *filter(None, map(self.node.args.get, _AFTER))]
        called = [each for part in rest for each in part.find_all(exp.AggFunc)]
        mine = [each for each in called if each.find_ancestor(exp.Select) is self.node]
        aggregates = [each for each in mine if not _is_window(each)]
        for each in aggregates:
            self.check_aggregate(each)
        if not aggregates:
            self.refuse(self.node, "a SELECT without an aggregate")
        for part in [*rest, *([group] if group else [])]:
            for column in _outside(part):
                if self.is_own(column):
                    self.refuse(column, f"{printable(column.name)} of the private table as a key")

    def refuse(self, node: exp.Expr, what: str, hint: str = "") -> NoReturn:
        own = printable(self.own.alias)
        works = f"COUNT({own}.column) and SUM({own}.column) work"
        hint = hint or f"{works}, by columns of the public rows; or JOIN"
        what = f"{what} where public rows stay without private ones"
        refuse(node, "E_JOIN", what, hint, self.locate)

    def is_own(self, column: exp.Column) -> bool:
        """True if a name is a column of the private table."""
        if column.table:
            return column.table.casefold() == self.own.alias
        return has_name(self.rows.fields, column.name)

    def is_known(self, column: exp.Column) -> bool:
        """True if there is a column of a name."""
        if self.is_own(column):
            return has_name(self.rows.fields, column.name)
        named = column.table.casefold() in ("", self.other.alias.casefold())
        return named and column.name.casefold() in self.keys

    def sides(self, node: exp.Expr) -> set[bool]:
        """True if an expression is about private columns, public ones, or both."""
        return {self.is_own(column) for column in node.find_all(exp.Column)}

    def check_test(self, test: exp.Expr) -> None:
        """Refuse a condition that may hold where the private columns are NULL."""
        if True in self.sides(test) and not is_null_where(test, self.is_own):
            self.refuse(test, "this condition")

    def check_aggregate(self, node: exp.Expr) -> None:
        """Refuse an aggregate that does not pass over rows without private columns."""
        inner = node.this
        of = inner.expressions[:1] if isinstance(inner, exp.Distinct) else [inner]
        of += [node.expression] if has(node, "paired") else []
        if not has(node, "skips") or not any(is_null_where(each, self.is_own) for each in of):
            is_count = isinstance(node, exp.Count) and isinstance(node.this, exp.Star)
            is_one = isinstance(node, exp.Min | exp.Max | exp.AnyValue)
            asked = [] if self.node.args.get("where") is None else [self.node.args["where"]]
            what, hint = "COUNT(*)" if is_count else "this aggregate", ""
            if is_one and True not in self.sides(node):
                group = self.node.args.get("group")
                if any(True in self.sides(test) for test in asked):
                    hint = "private rows decide which public ones stay: one row decides it"
                elif group is not None and group.find(*SETS) is not None:
                    what = f"{written_name(node, self.locate)}() by several sets of keys"
                    hint = "a statement of its own for each set works, GROUP BY columns of theirs"
            self.refuse(node, what, hint)

    def check_keys(self) -> None:
        """Refuse conditions of a join that are about several private columns, each by itself.

        A public row meets declared values where each of these columns has one for it.
        """
        join = self.own.join or self.other.join
        assert join is not None
        tests = [] if join.on is None else conjuncts(join.on)
        for test in tests:
            names = {c.name.casefold() for c in test.find_all(exp.Column) if self.is_own(c)}
            if len(names) > 1 or test.find(exp.Query):
                what = "a condition of a join that is about several private columns"
                self.refuse(test, what if names else "a sub-query")
            self.met.setdefault(next(iter(names), ""), []).append(test)
        if not any(self.sides(test) == {True, False} for test in tests):
            self.refuse(join.node, "a join without a column of each side")

    def unmet(self) -> UnmatchedKeys | None:
        """The public rows that no declared value meets, if there are any and they make groups."""
        where = self.node.args.get("where")
        kept = [] if where is None else conjuncts(where.this)
        if not self.node.args.get("group") or any(True in self.sides(test) for test in kept):
            return None
        tests = [*kept, *(test for each in self.met.values() for test in each)]
        if not all(self.is_known(each) for test in tests for each in test.find_all(exp.Column)):
            return None  # what there is not is refused where names are looked up
        columns: list[tuple[Column, str]] = []
        for name, tests in self.met.items():
            if not name:
                continue
            column, value = self.column(name)
            of_rows = [test for test in self.rows.where if _names(test) == _names(value)]
            written = [*(self.written(test, value) for test in tests), *map(_over_v, of_rows)]
            columns.append((column, " AND ".join(f"({each})" for each in written)))
        public = {f"p{k}": given for k, given in enumerate(self.keys.values())}
        looked, needed = (
            " AND ".join(f"({self.written(test)})" for test in group)
            for group in (kept, self.met.get("", []))
        )
        span = self.locate(self.node)
        found = UnmatchedKeys(self.evaluator, public, looked, needed, columns, span)
        return found if found.exist() else None

    def groups(self, inner: exp.Select) -> list[tuple[str, list[Any]]]:
        """The groups of rows that nothing meets: the types and values of the items of a SELECT.

        Counts are 0, and other aggregates NULL. Raises: NotSupportedError (E_JOIN) for keys that
        are not declared; ProgrammingError (E_DOMAIN_EVAL).
        """
        group = inner.args["group"].expressions
        if any(isinstance(key, SETS) for key in group):
            self.not_declared()
        unmet, keys = self.unmet(), [self.written(key) for key in group]
        kinds, rows = ((), []) if unmet is None else unmet.groups(keys)
        found: list[tuple[str, list[Any]]] = []
        for item in inner.expressions:
            node = item.this.this if isinstance(item.this, exp.Filter) else item.this
            if isinstance(node, exp.Count | exp.CountIf):
                found.append(("BIGINT", [0] * len(rows)))
            elif node.find(exp.AggFunc) or isinstance(node, exp.Anonymous):
                found.append(("DOUBLE", [None] * len(rows)))
            else:
                place = keys.index(self.written(node))
                found.append((kinds[place], [row[place] for row in rows]))
        return found

    def not_declared(self) -> NoReturn:
        join = self.own.join or self.other.join
        assert join is not None
        self.refuse(
            join.node,
            "a join of public keys that are not all declared",
            "WHERE with columns of public rows alone leaves out those that no declared value "
            "meets; or JOIN",
        )

    def column(self, name: str) -> tuple[Column, exp.Expr]:
        """The declared column that a name of the private rows is worked out from, and how."""
        table = self.catalog.find(self.rows.source.name.casefold())
        named = [each for each in self.rows.fields if each.name.casefold() == name]
        names = _names(named[0].value) if named else set()
        column = table.columns.get(names.pop()) if len(names) == 1 else None
        if column is None or not column.size:
            self.not_declared()
        return column, named[0].value

    def written(self, test: exp.Expr, value: exp.Expr | None = None) -> str:
        """A condition over ``v``, a declared value, and the columns of a public row."""
        check_scalar(test, self.locate)
        places = {name: place for place, name in enumerate(self.keys)}

        def put(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            if value is not None and self.is_own(node):
                return exp.paren(_put_v(value))
            return exp.column(f"p{places[node.name.casefold()]}")

        return test.transform(put).sql("duckdb", comments=False)


_AFTER = ("having", "order")


def _is_window(node: exp.Expr) -> bool:
    """True if an aggregate is of a window, over what aggregates of rows are."""
    outer = node.parent if isinstance(node.parent, exp.Filter | exp.IgnoreNulls) else node
    return isinstance(outer.parent, exp.Window) and outer.arg_key == "this"


def _names(node: exp.Expr) -> set[str]:
    """The case-folded names of the columns of an expression."""
    return {column.name.casefold() for column in node.find_all(exp.Column)}


def _put_v(tree: exp.Expr) -> exp.Expr:
    """An expression over one column as one over ``v``."""
    return tree.transform(lambda each: exp.column("v") if isinstance(each, exp.Column) else each)


def _over_v(test: exp.Expr) -> str:
    return _put_v(test).sql("duckdb", comments=False)


def _outside(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns of an expression that are not within aggregates, or the FILTER of one.

    Those of tables in FROM of sub-queries are their own.
    """
    if isinstance(node, exp.Column):
        yield node
    elif not isinstance(node, exp.AggFunc | exp.Filter | exp.From):
        for part in node.iter_expressions():
            yield from _outside(part)


Found = Sequence[tuple[FromElement, Relation]]


def matched(
    node: exp.Select,
    found: Found,
    catalog: Catalog,
    evaluator: Evaluator,
    read: ReadKeys,
    locate: Locate,
) -> tuple[exp.Select, Found, OuterPublicRows | None]:
    """A SELECT and its FROM, an inner join where public rows are on the kept side.

    These come last, where no declared value meets some of them.

    Raises: NotSupportedError (E_JOIN) where that is another question.
    """
    last, relation = found[-1]
    side = "" if last.join is None else last.join.side
    is_private = isinstance(relation, PrivateRows)
    if len(found) != 2 or side != ("LEFT" if is_private else "RIGHT"):
        return node, found, None
    (own, rows), (other, table) = (found[1], found[0]) if is_private else found
    assert last.join is not None
    assert isinstance(rows, PrivateRows)
    keys = read(other, table) if last.join.is_plain else None
    if keys is None:
        return node, found, None
    join = last.join
    if join.using:
        node, join = _on_keys(node, join, own.alias, other.alias)
        last = replace(last, join=join)
        own, other = (last, other) if is_private else (own, last)
    kept = OuterPublicRows(node, own, rows, other, keys, catalog, evaluator, locate)
    kept.check()
    is_whole = kept.unmet() is not None
    inner = replace(last, join=replace(join, side="", is_whole=is_whole))
    rows = replace(rows, plain=False)
    out: Found = [(other, table), (inner, rows)] if is_private else [(own, rows), (inner, table)]
    return node, out, kept if is_whole else None


def _on_keys(node: exp.Select, join: Join, own: str, other: str) -> tuple[exp.Select, Join]:
    """USING as ON: a name that both sides have is that of the public rows, which all stay."""
    names = {each.name.casefold(): each.name for each in join.using}
    node = node.copy()
    for column in list(node.find_all(exp.Column)):
        here = not column.table and column.find_ancestor(exp.Select) is node
        if here and column.name.casefold() in names:
            column.set("table", exp.to_identifier(other, quoted=True))
    tests = [
        exp.EQ(this=column_of(name, own), expression=column_of(name, other))
        for name in names.values()
    ]
    return node, replace(join, using=(), on=exp.and_(*tests, copy=False))
