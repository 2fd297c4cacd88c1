"""Expressions over one number that have few values: where they change, found by evaluating them.

``FLOOR(x / 50)``, ``x BETWEEN 10 AND 20`` and ``CASE WHEN x > 100 THEN 'high' ELSE 'low' END`` are
constant between cuts. All that reads the number is monotone in it (its floor, or whether it is
above something), so that dividing finds every cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from sqlglot import exp

from dpsql.logical.functions import INTEGER_TYPES, REAL_TYPES, has
from dpsql.records import dataclass, field

MOST_STEPS = 10_000
"""Values of one expression, with repetitions."""


TOGETHER = 128
"""Numbers that an expression is evaluated on at a time: fewer take DuckDB as long."""


class TooManyStepsError(Exception):
    """An expression has too many values."""


class _NoStepsError(Exception):
    """An expression is not constant between cuts."""


def probes_of(node: exp.Expr) -> list[exp.Expr] | None:
    """The parts of an expression, monotone in its only column, that decide on its value.

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
    if has(node, "steps") and _rounds(node):
        yield node
        return
    if has(node, "order", "equality", "sameness"):
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
    """True if a function rounds what is monotone."""
    if isinstance(node, exp.Cast) and node.to.this not in INTEGER_TYPES:
        return False
    return is_monotone(node) and not _is_constant(node.this)


def _is_constant(node: exp.Expr) -> bool:
    return not node.find(exp.Column, exp.Query)


def is_monotone(node: exp.Expr) -> bool:
    """True if an expression never falls, or never rises, with its only column.

    >>> from sqlglot import parse_one
    >>> [is_monotone(parse_one(each)) for each in ("-x / 2 + 1", "LEAST(x, 9)", "x * x", "1 / x")]
    [True, True, False, False]
    """
    if isinstance(node, exp.Column):
        return True
    moving = [part for part in node.iter_expressions() if not _is_constant(part)]
    if len(moving) != 1 or has(node, "partial") or not is_monotone(moving[0]):
        return False
    if isinstance(node, exp.Cast) and node.to.this not in (*INTEGER_TYPES, *REAL_TYPES):
        return False
    return has(node, "monotone") or (has(node, "monotone_first") and moving[0] is node.this)


@dataclass(slots=True)
class StepSearch:
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
        ends = [self.first, self.last]
        known = dict(zip(ends, self.values(probe, ends), strict=True))
        waiting = [(self.first, self.last)]
        while waiting:
            waiting = [each for each in waiting if not _alike(known, each)]
            self.cuts |= {high for low, high in waiting if high - low == 1}
            waiting = [(low, high) for low, high in waiting if high - low > 1]
            if len(waiting) + len(self.cuts) > MOST_STEPS:
                raise TooManyStepsError
            parts = max(2, TOGETHER // max(1, len(waiting)))
            divided = [_divided(low, high, min(parts, high - low)) for low, high in waiting]
            inner = [place for each in divided for place in each[1:-1]]
            if inner:
                known |= dict(zip(inner, self.values(probe, inner), strict=True))
            waiting = [pair for each in divided for pair in pairwise(each)]


def _divided(low: int, high: int, parts: int) -> list[int]:
    return [low + (high - low) * part // parts for part in range(parts + 1)]


def _alike(known: dict[int, Any], ends: tuple[int, int]) -> bool:
    """True if values are the same at both ends; 0.0 and -0.0 are not."""
    one, other = (known[end] for end in ends)
    return repr(one) == repr(other)
