"""Public rows that are kept without private ones: LEFT JOIN of a private table.

Whether a public row is without a partner depends on all rows of the private table, whose ever they
are, and is not measured. COUNT, SUM and AVG of private columns pass over such rows, and groups of
public rows are there in any case: a SELECT of nothing else is one over an inner join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.catalog.domain import IntegerRange, Values
from dpsql.errors import printable
from dpsql.records import dataclass, replace
from dpsql.sql.language import Locate, refuse
from dpsql.sql.names import has_name
from dpsql.sql.relations import Element, Join, PrivateRows, Relation, column_of
from dpsql.sql.scope import conjuncts

Keys = Mapping[str, Sequence[Any]]
"""The values of public columns by case-folded name."""
ReadKeys = Callable[[Element, Relation], Keys | None]
"""Reads public rows in FROM; None for what are none."""

_TELLING = (exp.Is, exp.Coalesce, exp.Case, exp.If, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Query)
"""What may be true, or a number, where a column is NULL."""
_PASSING = (
    *(exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Variance, exp.VariancePop, exp.Stddev),
    *(exp.StddevPop, exp.StddevSamp, exp.Corr, exp.Median, exp.Quantile, exp.PercentileCont),
    *(exp.PercentileDisc, exp.Mode),
)
"""Aggregates that pass over NULL."""


@dataclass(frozen=True, slots=True)
class KeptPublic:
    """Public rows that are kept, in the FROM clause of one SELECT, and a private table.

    ``own`` is the element of the private ``rows``, ``other`` that of the public ones, ``keys`` are
    the values of their columns.
    """

    node: exp.Select
    own: Element
    rows: PrivateRows
    other: Element
    keys: Keys
    catalog: Catalog
    locate: Locate

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
        self.check_keys(bool(group))
        rest = [*self.node.expressions, *filter(None, map(self.node.args.get, _AFTER))]
        aggregates = [each for part in rest for each in part.find_all(exp.AggFunc)]
        for each in aggregates:
            self.check_aggregate(each)
        if not aggregates:
            self.refuse(self.node, "a SELECT without an aggregate")
        for part in [*rest, *([group] if group else [])]:
            for column in _outside(part):
                if self.is_own(column):
                    self.refuse(column, f"{printable(column.name)} of the private table as a key")

    def refuse(self, node: exp.Expr, what: str) -> NoReturn:
        own = printable(self.own.alias)
        hint = f"COUNT({own}.column) and SUM({own}.column) work, with declared keys alone; or JOIN"
        what = f"{what} where public rows stay without private ones"
        refuse(node, "E_JOIN", what, hint, self.locate)

    def is_own(self, column: exp.Column) -> bool:
        """Whether a name is a column of the private table."""
        if column.table:
            return column.table.casefold() == self.own.alias
        return has_name(self.rows.fields, column.name)

    def sides(self, node: exp.Expr) -> set[bool]:
        """Whether an expression is about private columns, public ones, or both."""
        return {self.is_own(column) for column in node.find_all(exp.Column)}

    def check_test(self, test: exp.Expr) -> None:
        """Refuse a condition that may hold where the private columns are NULL."""
        sides = self.sides(test)
        is_mixed = len(sides) > 1 and test.find(exp.Connector)
        if True in sides and (is_mixed or test.find(*_TELLING)):
            self.refuse(test, "this condition")

    def check_aggregate(self, node: exp.Expr) -> None:
        """Refuse an aggregate that does not pass over rows without private columns."""
        passes = isinstance(node, _PASSING) and not node.find(*_TELLING)
        if not passes or True not in self.sides(node):
            is_count = isinstance(node, exp.Count) and isinstance(node.this, exp.Star)
            self.refuse(node, "COUNT(*)" if is_count else "this aggregate")

    def check_keys(self, is_grouped: bool) -> None:
        """Refuse public rows that no declared value meets: their groups would be missing."""
        join = self.own.join or self.other.join
        assert join is not None
        tests = [] if join.on is None else conjuncts(join.on)
        pairs = [test for test in tests if self.sides(test) == {True, False}]
        rest = [test for test in tests if test not in pairs]
        sides = self.pair(pairs[0].unnest()) if len(pairs) == 1 else None
        if sides is None or any(self.sides(test) != {True} for test in rest):
            self.refuse(join.node, "a join by anything but one column")
        own, other = sides
        for test in rest:
            self.check_test(test)
            if any(
                each.name.casefold() == own.name.casefold() for each in test.find_all(exp.Column)
            ):
                self.refuse(test, f"a condition on {printable(own.name)}, which joins,")
        if is_grouped and not self.is_covered(own, other):
            self.refuse(join.node, "a join of public keys that are not all declared")

    def pair(self, test: exp.Expr) -> tuple[exp.Column, exp.Column] | None:
        """The private and the public column that a condition equates."""
        if not isinstance(test, exp.EQ):
            return None
        one, two = test.this.unnest(), test.expression.unnest()
        if not isinstance(one, exp.Column) or not isinstance(two, exp.Column):
            return None
        return (one, two) if self.is_own(one) else (two, one)

    def is_covered(self, own: exp.Column, other: exp.Column) -> bool:
        """Whether every public key is a declared value of the private column."""
        table = self.catalog.find(self.rows.source.name.casefold())
        named = [each for each in self.rows.fields if each.name.casefold() == own.name.casefold()]
        value = named[0].value if named else None
        column = table.columns.get(value.name.casefold()) if isinstance(value, exp.Column) else None
        if column is None or not isinstance(column.domain, IntegerRange | Values):
            return False
        declared = set(column.domain.representatives)
        return all(key in declared for key in self.keys.get(other.name.casefold(), [None]))


_AFTER = ("having", "order")


def _outside(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns of an expression that are not within aggregates."""
    if isinstance(node, exp.Column):
        yield node
    elif not isinstance(node, exp.AggFunc):
        for part in node.iter_expressions():
            yield from _outside(part)


Found = Sequence[tuple[Element, Relation]]


def matched(
    node: exp.Select, found: Found, catalog: Catalog, read: ReadKeys, locate: Locate
) -> tuple[exp.Select, Found]:
    """A SELECT and its FROM, an inner join where public rows are on the kept side.

    Raises: NotSupportedError (E_JOIN) where that is another question.
    """
    last, relation = found[-1]
    side = "" if last.join is None else last.join.side
    is_private = isinstance(relation, PrivateRows)
    if len(found) != 2 or side != ("LEFT" if is_private else "RIGHT"):
        return node, found
    (own, rows), (other, table) = (found[1], found[0]) if is_private else found
    assert last.join is not None
    assert isinstance(rows, PrivateRows)
    keys = read(other, table) if last.join.is_plain else None
    if keys is None:
        return node, found
    join = last.join
    if join.using:
        node, join = _on_keys(node, join, own.alias, other.alias)
        last = replace(last, join=join)
        own, other = (last, other) if is_private else (own, last)
    KeptPublic(node, own, rows, other, keys, catalog, locate).check()
    inner = replace(last, join=replace(join, side=""))
    rows = replace(rows, plain=False)
    out: Found = [(other, table), (inner, rows)] if is_private else [(own, rows), (inner, table)]
    return node, out


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
