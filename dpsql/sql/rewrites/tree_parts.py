"""Small parts that statements are made of which are written otherwise than they were."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.errors import ProgrammingError

ERRORS = 4
"""Standard errors that a number of rows is above 0, at least, of a group that is taken to exist."""
_HALF = "0.5"
"""Rows that are less than one, however little noise there is."""
_EXISTS = "exists"
"""The mark of the error in the test that a group has rows."""
LEAST_ROOM, MOST_ROOM = 5_000, 100_000
"""Nodes that any statement may grow by, and that the longest one may, when it is written out."""


class NodeLimit:
    """A limit on nodes that a statement may still grow by when its forms are written out.

    What is written out repeats its arguments: nested so, a hundred characters are millions of
    nodes. A statement of so many tokens may grow by some of their square, and by no more.
    """

    __slots__ = ("left",)

    def __init__(self, tokens: int) -> None:
        self.left = min(MOST_ROOM, LEAST_ROOM + tokens * tokens // 4)

    def take(self, nodes: int) -> None:
        """Take so much of it, before that is written.

        Raises: ProgrammingError (E_TOO_COMPLEX).
        """
        self.left -= nodes
        if self.left < 0:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                "the statement is too long once it is written out",
                hint="functions and lists that are compared repeat what they are of: a sub-query "
                "may work out the inner ones",
            )


def size_of(tree: exp.Expr) -> int:
    """The number of nodes of a tree."""
    return sum(1 for _ in tree.walk())


def all_of(tests: Sequence[exp.Expr]) -> exp.Expr:
    """Conditions joined by AND."""
    return exp.and_(*(exp.paren(test) for test in tests), copy=False)


def set_where(select: exp.Select, tests: Sequence[exp.Expr]) -> None:
    """Let a SELECT have these conditions, and no others."""
    select.set("where", exp.Where(this=all_of(tests)) if tests else None)


def any_of(tests: Sequence[exp.Expr]) -> exp.Expr:
    """Conditions joined by OR: of a thousand, a tree ten deep, where a chain could not be walked.

    >>> any_of([exp.column(name) for name in "abc"]).sql()
    'a OR b OR c'
    """
    ways = [exp.paren(test, copy=False) if isinstance(test, exp.And) else test for test in tests]
    while len(ways) > 1:
        pairs = zip(ways[::2], ways[1::2], strict=False)
        joined: list[exp.Expr] = [exp.Or(this=one, expression=two) for one, two in pairs]
        ways = joined + ways[2 * len(joined) :]
    return ways[0]


def count_rows() -> exp.Count:
    """COUNT(*)."""
    return exp.Count(this=exp.Star(), big_int=True)


def with_rows() -> exp.Expr:
    """The test that a group has rows: their noisy number is above what noise alone makes likely."""
    noise = _error_of(count_rows())
    is_known = exp.LT(this=noise, expression=exp.Literal.number("1e300"))  # some have none
    known = exp.Case(ifs=[exp.If(this=is_known, true=noise.copy())], default=exp.Literal.number(0))
    times = exp.Mul(this=exp.Literal.number(ERRORS), expression=known)
    least = exp.Add(this=exp.Literal.number(_HALF), expression=times)
    return exp.GT(this=count_rows(), expression=least)


def _error_of(number: exp.Expr) -> exp.Expr:
    """The error of a number of rows in the test that there are some; it may be unknown there."""
    noise = exp.Anonymous(this="DP_STDDEV", expressions=[number])
    noise.meta[_EXISTS] = True
    return noise


def is_of_existence(node: exp.Expr) -> bool:
    """Say whether a node is the error in the test that a group has rows."""
    return _EXISTS in node.meta


def error_of_sum(part: exp.Column) -> exp.Expr:
    """The error of a sum over a group of noisy numbers, as if the noise of each were its own."""
    own = _error_of(part)
    return exp.Sqrt(this=exp.Sum(this=exp.Mul(this=own, expression=own.copy())))


def aggregate_like(node: exp.Expr, kind: type[exp.AggFunc]) -> exp.Expr:
    """Another aggregate of the same, under the same FILTER.

    >>> from sqlglot import parse_one
    >>> aggregate_like(parse_one("AVG(x) FILTER (WHERE y)"), exp.Sum).sql()
    'SUM(x) FILTER(WHERE y)'
    """
    copy = node.copy()
    called = copy.this if isinstance(copy, exp.Filter) else copy
    fresh = kind(this=called.this.copy())
    if called is copy:
        return fresh
    called.replace(fresh)
    return copy


def divided(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    """A quotient of doubles, NULL where nothing is counted."""
    return exp.paren(
        exp.Div(this=one, expression=exp.Nullif(this=two, expression=exp.Literal.number(0)))
    )
