"""Means and spreads of values that are far from zero for how far they are apart.

A sum of such values is hardly more than a multiple of a count, and so are its noise and how it is
measured: the mean of years would be known as badly as that of years since zero. A constant is taken
off before, which is a function of declared bounds alone, and added to the mean again.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable

from sqlglot import exp

Bounds = tuple[float, float]
BoundsOf = Callable[[exp.Expr], Bounds | None]
"""The declared bounds of a bare number column, None for what is none."""

FAR = 2
"""How many widths from zero bounds may be before a constant is taken off."""
BITS = 26
"""Significant bits of the constant at most, so that its square is exact as a double."""

NEARLY = 2.0**20
"""How many times as large as they are apart summed numbers may be.

Beyond it a sum is that of a count, and doubles and planning lose what is not: seen from 2^24 on.
"""

_OPERATORS: dict[type[exp.Expr], Callable[[float, float], float]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


def centred(node: exp.Expr, bounds_of: BoundsOf) -> tuple[exp.Expr, exp.Expr | None]:
    """Return an argument less a constant, and the constant; none where zero is near its values.

    Guarantee: declared bounds alone decide, and the constant follows from them.
    """
    bounds = None if node.find(exp.Column) is None else _range(node, bounds_of)
    if bounds is None:
        return node, None
    low, high = bounds
    if not 0 < FAR * (high - low) < max(-low, high):
        return node, None
    middle, width = low + (high - low) / 2, high - low
    step = 2.0 ** max(math.frexp(width)[1] - 3, math.frexp(middle)[1] - BITS)
    centre = number(round(middle / step) * step)
    return exp.Sub(this=exp.paren(node.copy()), expression=centre), centre


def moved(mean: exp.Expr, centre: exp.Expr | None) -> exp.Expr:
    """The mean of an argument, given that of it less a constant."""
    return mean if centre is None else exp.paren(exp.Add(this=mean, expression=centre.copy()))


def same_but_for_little(node: exp.Expr, bounds_of: BoundsOf) -> exp.Expr | None:
    """What is summed, or a factor of it, whose values are all but the same; None without any."""
    inner, found = node.unnest(), _range(node, bounds_of)
    if found is not None and 0 < (found[1] - found[0]) * NEARLY < max(-found[0], found[1]):
        return node
    if not isinstance(inner, exp.Mul):
        return None
    sides = (same_but_for_little(each, bounds_of) for each in (inner.this, inner.expression))
    return next((each for each in sides if each is not None), None)


def number(value: float) -> exp.Expr:
    """A double as SQL; whole ones without a point, so that differences of integers stay exact.

    >>> number(-2024.0).sql(), number(0.5).sql()
    ('(-2024)', '0.5')
    """
    text = repr(abs(value)) if value != round(value) else str(round(abs(value)))
    literal = exp.Literal.number(text)
    return exp.paren(exp.Neg(this=literal)) if value < 0 else literal


def _range(node: exp.Expr, bounds_of: BoundsOf) -> Bounds | None:
    """Where the values of sums, differences and products of columns and numbers are."""
    inner = node.unnest()
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return float(inner.name), float(inner.name)
    if isinstance(inner, exp.Column):
        return bounds_of(inner)
    if isinstance(inner, exp.Neg):
        found = _range(inner.this, bounds_of)
        return None if found is None else (-found[1], -found[0])
    if type(inner) not in _OPERATORS:
        return None
    one, two = _range(inner.this, bounds_of), _range(inner.expression, bounds_of)
    if one is None or two is None:
        return None
    ends = [_OPERATORS[type(inner)](a, b) for a, b in itertools.product(one, two)]
    return (min(ends), max(ends)) if all(map(math.isfinite, ends)) else None
