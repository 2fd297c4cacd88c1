"""Expressions over one number that have few values: where they change, found by evaluating them.

``FLOOR(x / 50)``, ``x BETWEEN 10 AND 20`` and ``CASE WHEN x > 100 THEN 'high' ELSE 'low' END`` are
constant between cuts. All that reads the number is monotone in it (its floor, or whether it is
above something), so that halving finds every cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlglot import exp

from dpsql.records import dataclass, field

MOST_STEPS = 10_000
"""Values of one expression, with repetitions."""

_MOVED = (exp.Add, exp.Sub, exp.Mul)
TESTS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_ROUNDING = (exp.Floor, exp.Ceil, exp.Round, exp.Trunc, exp.Sign, exp.IntDiv, exp.Cast)
_WHOLE = (*exp.DataType.INTEGER_TYPES,)
_REAL = (*exp.DataType.FLOAT_TYPES,)


class TooManyStepsError(Exception):
    """An expression has too many values."""


class _NoStepsError(Exception):
    """An expression is not constant between cuts."""


def probes_of(node: exp.Expr) -> list[exp.Expr] | None:
    """What is monotone in the only column of an expression and decides on its value.

    None where more than such parts decide. A column that only one of them reads is enough.

    >>> from sqlglot import parse_one
    >>> [each.sql() for each in probes_of(parse_one("CASE WHEN x / 2 > 3 THEN FLOOR(x) END"))]
    ['x / 2 >= 3', 'x / 2 > 3', 'FLOOR(x)']
    >>> probes_of(parse_one("x + 1")) is None
    True
    """
    try:
        found = list(_probes(node))
    except _NoStepsError:
        return None
    return list(dict.fromkeys(found)) if found else None


def _probes(node: exp.Expr) -> Iterator[exp.Expr]:
    if not node.find(exp.Column):
        return
    if isinstance(node, exp.Column):
        raise _NoStepsError
    if isinstance(node, exp.Query | exp.AggFunc | exp.Window):
        raise _NoStepsError
    if isinstance(node, _ROUNDING) and _rounds(node):
        yield node
        return
    if isinstance(node, TESTS):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if is_monotone(one) and _is_constant(other):
                yield from _sides(one, other)
                return
    if isinstance(node, exp.Between) and is_monotone(node.this):
        ends = (node.args["low"], node.args["high"])
        if all(map(_is_constant, ends)) and not node.args.get("symmetric"):
            for each in ends:
                yield from _sides(node.this, each)
            return
    is_list = isinstance(node, exp.In) and node.args.get("query") is None
    if is_list and is_monotone(node.this) and all(map(_is_constant, node.expressions)):
        for each in node.expressions:
            yield from _sides(node.this, each)
        return
    if isinstance(node, exp.Is) and is_monotone(node.this):
        yield node
        return
    for each in node.iter_expressions():
        yield from _probes(each)


def _sides(value: exp.Expr, bound: exp.Expr) -> Iterator[exp.Expr]:
    for kind in (exp.GTE, exp.GT):
        yield kind(this=value.copy(), expression=bound.copy())


def _rounds(node: exp.Expr) -> bool:
    """Whether a function rounds what is monotone."""
    if not is_monotone(node.this):
        return False
    if isinstance(node, exp.Cast):
        return node.args["to"].this in _WHOLE
    rest = [value for key, value in node.args.items() if key != "this"]
    return all(_is_constant(each) for each in rest if isinstance(each, exp.Expr))


def _is_constant(node: exp.Expr) -> bool:
    return not node.find(exp.Column, exp.Query)


def is_monotone(node: exp.Expr) -> bool:
    """Whether an expression never falls, or never rises, with its only column.

    >>> from sqlglot import parse_one
    >>> [is_monotone(parse_one(each)) for each in ("-x / 2 + 1", "LEAST(x, 9)", "x * x", "1 / x")]
    [True, True, False, False]
    """
    if isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Paren | exp.Neg):
        return is_monotone(node.this)
    if isinstance(node, _ROUNDING):
        is_real = isinstance(node, exp.Cast) and node.args["to"].this in _REAL
        return is_monotone(node.this) if is_real else _rounds(node)
    if isinstance(node, _MOVED):
        sides = (node.this, node.expression)
        return any(is_monotone(one) and _is_constant(two) for one, two in (sides, sides[::-1]))
    if isinstance(node, exp.Div):
        return is_monotone(node.this) and _is_constant(node.expression)
    if isinstance(node, exp.Coalesce):
        return is_monotone(node.this) and all(map(_is_constant, node.expressions))
    if isinstance(node, exp.Least | exp.Greatest):
        read = [each for each in (node.this, *node.expressions) if not _is_constant(each)]
        return len(read) == 1 and is_monotone(read[0])
    return False


@dataclass(slots=True)
class Halving:
    """Finds where monotone expressions change between two whole numbers, inclusive.

    ``values`` evaluates an expression on some of them.
    """

    first: int
    last: int
    values: Callable[[exp.Expr, Sequence[int]], Sequence[Any]]
    cuts: set[int] = field(default_factory=set)

    def cut(self, probes: Sequence[exp.Expr]) -> list[int]:
        """The first numbers of all runs but the first, increasing.

        Raises: TooManyStepsError.
        """
        for probe in probes:
            self.find(probe)
        return sorted(self.cuts)

    def find(self, probe: exp.Expr) -> None:
        ends = self.values(probe, [self.first, self.last])
        known = {self.first: ends[0], self.last: ends[1]}
        waiting = [(self.first, self.last)]
        while waiting:
            waiting = [each for each in waiting if not _alike(known, each)]
            self.cuts |= {high for low, high in waiting if high - low == 1}
            waiting = [(low, high) for low, high in waiting if high - low > 1]
            if len(waiting) + len(self.cuts) > MOST_STEPS:
                raise TooManyStepsError
            middles = [(low + high) // 2 for low, high in waiting]
            if middles:
                known |= dict(zip(middles, self.values(probe, middles), strict=True))
            halves = zip(waiting, middles, strict=True)
            waiting = [part for (a, b), m in halves for part in ((a, m), (m, b))]


def _alike(known: dict[int, Any], ends: tuple[int, int]) -> bool:
    """Whether values are the same at both ends; 0.0 and -0.0 are not."""
    one, other = (known[end] for end in ends)
    return repr(one) == repr(other)
