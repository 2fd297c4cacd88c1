"""Means and spreads of values that are far from zero for how far they are apart.

A sum of such values is hardly more than a multiple of a count, and so are its noise and how it is
measured: the mean of years would be known as badly as that of years since zero. A constant is taken
off before, which is a function of declared bounds alone, and added to the mean again.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

from sqlglot import exp

from dpsql.logical.functions import has
from dpsql.records import dataclass, replace

Bounds = tuple[float, float]
BoundsOf = Callable[[exp.Expr], Bounds | None]
"""The declared bounds of a bare number column, None for what is none."""

FAR = 2
"""The number of widths from zero that bounds may be before a constant is taken off."""
BITS = 53
"""Significant bits of a constant: those of a double, its square is one of exact polynomials."""
FINE = 11
"""Binary places of bounds' width that a constant is rounded to."""
ZERO, ONE = Fraction(0), Fraction(1)

NEARLY = 2.0**20
"""The largest ratio of summed numbers to how far they are apart.

Beyond it a sum is that of a count, and doubles and planning lose what is not: seen from 2^24 on.
"""

_OPERATORS: dict[type[exp.Expr], Callable[[float, float], float]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


def centred(
    node: exp.Expr, bounds_of: BoundsOf, *, lone: bool = False
) -> tuple[exp.Expr, exp.Expr | None]:
    """Return an argument less a constant, and the constant; none where zero is near its values.

    Of what is linear in columns, each has a constant of its own, so that squares and products are
    of small numbers alone: the middle of its bounds, where they are far from zero, and wherever
    they are where an aggregate stands ``lone`` (``sql/measures/mean_weights.py``).
    Guarantee: the SQL and declared bounds alone decide, and constants follow from them.

    >>> from sqlglot import parse_one
    >>> bounds = {"x": (2000.0, 2010.0), "y": (0.0, 4.0)}
    >>> found = centred(parse_one("2 * x - y + 1"), lambda column: bounds[column.name])
    >>> [each.sql() for each in found]
    ['2 * (x - 2005) - y', '4011']
    >>> found = centred(parse_one("y"), lambda column: bounds[column.name], lone=True)
    >>> [each.sql() for each in found]
    ['(y - 2)', '2']
    """
    if node.find(exp.Column) is None:
        return node, None
    form = _linear(node, bounds_of)
    if form is None:
        return _apart(node, _span(node, bounds_of))
    centres = {
        name: _centre(*each.bounds) if lone or is_far(*each.bounds) else 0.0
        for name, each in form.columns.items()
    }
    if not any(centres.values()) and not form.constant:
        return node, None
    parts = [
        each.written(number(centres[name])) if centres[name] else each.written()
        for name, each in form.columns.items()
    ]
    taken = sum(each.times * Fraction(centres[name]) for name, each in form.columns.items())
    constant = float(form.constant + taken)
    inner = functools.reduce(_joined, parts)
    return inner, number(constant) if constant else None


def _apart(node: exp.Expr, bounds: Bounds | None) -> tuple[exp.Expr, exp.Expr | None]:
    """The same of what is not linear: one constant is all that is taken off."""
    if bounds is None or not is_far(*bounds):
        return node, None
    inner = node.unnest()
    if not has(inner, "choice") and _is_nearly_constant(bounds):
        return node, None
    centre = _centre(*bounds)
    return _less(node, centre), number(centre)


def _chosen(inner: exp.Expr) -> list[exp.Expr]:
    """The parts that a choice may be, NULL apart."""
    if isinstance(inner, exp.Case):
        found = [*(each.args["true"] for each in inner.args["ifs"]), inner.args.get("default")]
    elif isinstance(inner, exp.If):
        found = [inner.args["true"], inner.args.get("false")]
    else:
        found = [inner.this, *inner.expressions]
    return [each for each in found if each is not None and not isinstance(each, exp.Null)]


def _span(node: exp.Expr, bounds_of: BoundsOf) -> Bounds | None:
    """Bounds of the values of arithmetic or of a choice."""
    inner = node.unnest()
    if not has(inner, "choice"):
        return _range(node, bounds_of)
    found = [_span(each, bounds_of) for each in _chosen(inner)]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    lows, highs = zip(*known, strict=True)
    least = min if not isinstance(inner, exp.Greatest) else max
    most = max if not isinstance(inner, exp.Least) else min
    return least(lows), most(highs)


def _less(node: exp.Expr, centre: float) -> exp.Expr:
    """An expression less a constant, which is taken off each part that a choice may be."""
    constant = written_number(node)
    if constant is not None:
        return number(float(constant - Fraction(centre)))
    if not has(node.unnest(), "choice"):
        return exp.paren(exp.Sub(this=exp.paren(node.copy()), expression=number(centre)))
    found = node.unnest().copy()
    for each in _chosen(found):
        each.replace(_less(each, centre))
    return found


def is_far(low: float, high: float) -> bool:
    """True if bounds are far from zero for how far they are apart."""
    return 0 < FAR * (high - low) < max(-low, high)


def _is_nearly_constant(bounds: Bounds) -> bool:
    low, high = bounds
    return 0 < (high - low) * NEARLY < max(-low, high)


def _centre(low: float, high: float) -> float:
    """About the middle of bounds: an eighth of the width off it is a quarter more noise."""
    if not high > low:
        return 0.0
    middle, width = low + (high - low) / 2, high - low
    step = 2.0 ** max(math.frexp(width)[1] - FINE, math.frexp(middle)[1] - BITS)
    return round(middle / step) * step


@dataclass(frozen=True, slots=True)
class _Multiple:
    """So many times a column, which is within bounds."""

    column: exp.Column
    bounds: Bounds
    times: Fraction

    def written(self, centre: exp.Expr | None = None) -> exp.Expr:
        """The multiple as SQL, of the column less a constant."""
        found: exp.Expr = self.column.copy()
        if centre is not None:
            found = exp.paren(exp.Sub(this=found, expression=centre))
        if abs(self.times) != 1:
            found = exp.Mul(this=number(float(abs(self.times))), expression=found)
        return exp.Neg(this=found) if self.times < 0 else found


@dataclass(frozen=True, slots=True)
class _Linear:
    """A sum of multiples of columns, by their names, and a constant."""

    columns: Mapping[str, _Multiple]
    constant: Fraction

    def plus(self, other: _Linear, times: Fraction) -> _Linear:
        """The sum with so many times another one."""
        found = dict(self.columns)
        for name, each in other.columns.items():
            own = found[name].times if name in found else Fraction(0)
            found[name] = replace(each, times=own + times * each.times)
        return _Linear(found, self.constant + times * other.constant)


def _linear(node: exp.Expr, bounds_of: BoundsOf) -> _Linear | None:
    """A node as a sum of multiples of columns with bounds; None for all else."""
    inner = node.unnest()
    constant = written_number(inner)
    if constant is not None:
        return _Linear({}, constant)
    if isinstance(inner, exp.Column):
        bounds = bounds_of(inner)
        key = inner.sql("duckdb").casefold()
        return None if bounds is None else _Linear({key: _Multiple(inner, bounds, ONE)}, ZERO)
    if isinstance(inner, exp.Neg):
        found = _linear(inner.this, bounds_of)
        return None if found is None else _Linear({}, ZERO).plus(found, -ONE)
    if type(inner) not in _OPERATORS:
        return None
    one, two = _linear(inner.this, bounds_of), _linear(inner.expression, bounds_of)
    if one is None or two is None:
        return None
    if not isinstance(inner, exp.Mul):
        return one.plus(two, ONE if isinstance(inner, exp.Add) else -ONE)
    if two.columns:
        one, two = two, one
    return None if two.columns else _Linear({}, ZERO).plus(one, two.constant)


def _joined(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    if isinstance(right, exp.Neg):
        return exp.Sub(this=left, expression=right.this)
    return exp.Add(this=left, expression=right)


def shifted(node: exp.Expr) -> tuple[exp.Column, Fraction] | None:
    """A column, and the numbers that are added to it; None for all else.

    >>> from sqlglot import parse_one
    >>> shifted(parse_one("(x - 3) + 0.5"))[1], shifted(parse_one("3 - x"))
    (Fraction(-5, 2), None)
    """
    inner = node.unnest()
    if isinstance(inner, exp.Column):
        return inner, ZERO
    if not isinstance(inner, exp.Add | exp.Sub):
        return None
    below, added = inner.this, written_number(inner.expression)
    if added is None and isinstance(inner, exp.Add):
        below, added = inner.expression, written_number(inner.this)
    found = None if added is None else shifted(below)
    if found is None or added is None:
        return None
    return found[0], found[1] + (added if isinstance(inner, exp.Add) else -added)


def written_number(node: exp.Expr) -> Fraction | None:
    """The value of a number that is written out: whole ones are exact, others are doubles."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        found = written_number(inner.this)
        return None if found is None else -found
    if not isinstance(inner, exp.Literal) or inner.is_string:
        return None
    return Fraction(inner.name) if inner.name.isdigit() else Fraction(float(inner.name))


def moved(mean: exp.Expr, centre: exp.Expr | None) -> exp.Expr:
    """The mean of an argument, given that of it less a constant."""
    return mean if centre is None else exp.paren(exp.Add(this=mean, expression=centre.copy()))


def same_but_for_little(node: exp.Expr, bounds_of: BoundsOf) -> exp.Expr | None:
    """The argument of a sum, or a factor of it, whose values are all but the same, else None."""
    inner, found = node.unnest(), _range(node, bounds_of)
    if found is not None and _is_nearly_constant(found):
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
    """Bounds of the values of sums, differences and products of columns and numbers."""
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
