"""Columns of public rows and of the private ones that conditions set equal, directly or not."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.catalog.domain import IntegerRange, Values
from dpsql.sql.scope import Scope
from dpsql.sql.shell.whole_numbers import INTEGERS

Side: TypeAlias = "tuple[int, int] | str"
"""A public column, by the numbers of its rows and of itself, or a private one by name."""


def close_equalities(scope: Scope, tests: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Conditions that compare public columns with a private one wherever they are equal to it.

    ``l_partkey = ps_partkey AND ps_partkey = p_partkey`` says what ``l_partkey = ps_partkey AND
    l_partkey = p_partkey`` says, without a condition between the two public tables.
    """
    classes = equal_classes(scope, tests)
    found: dict[exp.Expr, None] = {}
    for test in tests:
        sides = sides_of(scope, test)
        private = None if sides is None else _private_of(sides, classes)
        equal = test.unnest()
        parts = () if private is None else (equal.this, equal.expression)
        own = exp.column(private or "", scope.alias)
        both: list[exp.Expr] = [
            exp.EQ(this=part.unnest().copy(), expression=own.copy()) for part in parts
        ]
        found |= dict.fromkeys(both or [test])
    return [*found]


def _private_of(sides: tuple[Side, Side], classes: Sequence[set[Side]]) -> str | None:
    """The private column that two public ones are equal to."""
    if any(isinstance(side, str) for side in sides):
        return None
    (group,) = [each for each in classes if sides[0] in each]
    return min((side for side in group if isinstance(side, str)), default=None)


def equated(
    scope: Scope, tests: Sequence[exp.Expr], linked: Sequence[Collection[int]]
) -> dict[int, str]:
    """Public rows, by number, that one private column tells, since it is equal to one of theirs.

    Those that are ``linked`` to others are told where one private column is equal to columns of all
    of these, or each is told by a key, a column in which no two agree: else which of them are side
    by side is one list.
    """
    found: list[set[str]] = [set() for _ in linked]
    keyed: set[int] = set()
    for sides in (sides_of(scope, test) for test in tests):
        private = [side for side in sides or () if isinstance(side, str)]
        public = [side for side in sides or () if not isinstance(side, str)]
        if len(private) == 1 == len(public):
            number, index = public[0]
            values = [each for each in scope.joined[number].values[index] if each is not None]
            keyed |= {number} if len(set(values)) == len(values) else set()
            found[number].add(private[0])
    keyed = {number for number in keyed if len(found[number]) == 1}
    told: dict[int, str] = {}
    for number, members in enumerate(linked):
        together = set[str]().union(*(found[each] for each in members))
        own = found[number] if keyed.issuperset(members) else together
        if len(own) == 1:
            told[number] = min(own)
    return told


def equal_classes(scope: Scope, tests: Sequence[exp.Expr]) -> list[set[Side]]:
    """Classes of columns that conditions set equal, of one type each: equality is transitive."""
    classes: list[set[Side]] = []
    for test in tests:
        sides = sides_of(scope, test)
        if sides is not None:
            together = [each for each in classes if each & set(sides)]
            classes = [each for each in classes if each not in together]
            classes.append(set(sides).union(*together))
    return classes


def sides_of(scope: Scope, test: exp.Expr) -> tuple[Side, Side] | None:
    """The two columns that a condition sets equal, if they are of one type."""
    inner = test.unnest()
    if not isinstance(inner, exp.EQ):
        return None
    one, two = (_side(scope, each.unnest()) for each in (inner.this, inner.expression))
    if one is None or two is None or one == two:
        return None
    kind = _kind(scope, one)
    return (one, two) if kind is not None and kind == _kind(scope, two) else None


def _side(scope: Scope, node: exp.Expr) -> Side | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    public = scope.find_public(node)
    if public is not None:
        return scope.joined.index(public[0]), public[1]
    name = node.name.casefold()
    known = node.table.casefold() in ("", scope.alias)
    return name if known and name in scope.table.columns else None


def _kind(scope: Scope, side: Side) -> str | None:
    """The type of a column whose cells are single values; None for others."""
    if isinstance(side, str):
        return _kind_of(scope.table.columns[side])
    kind = scope.joined[side[0]].types[side[1]]
    return "integer" if kind in INTEGERS else {"VARCHAR": "text"}.get(kind)


def _kind_of(column: Column) -> str | None:
    is_listed = isinstance(column.domain, IntegerRange | Values) and column.other is None
    return column.type if is_listed and column.type in ("integer", "text") else None


def implied(scope: Scope, numbers: Sequence[int]) -> Iterator[exp.Expr]:
    """Equalities between public columns of some rows that follow from those with private ones."""
    for group in equal_classes(scope, scope.where):
        own = sorted(each for each in group if not isinstance(each, str) and each[0] in numbers)
        for one, two in itertools.pairwise(own):
            yield exp.EQ(this=_column(scope, one), expression=_column(scope, two))


def _column(scope: Scope, side: tuple[int, int]) -> exp.Column:
    joined = scope.joined[side[0]]
    name, alias = (
        exp.to_identifier(each, quoted=True) for each in (joined.names[side[1]], joined.alias)
    )
    return exp.column(name, alias)
