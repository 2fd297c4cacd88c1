"""LEAST, GREATEST and CASE that clip a measure: such an expression is a measure with other bounds.

``LEAST(2 * price, 100)`` is twice the price within its lowest value and 50. What is NULL follows
SQL: LEAST passes over NULL, ``CASE WHEN price > 50 THEN 50 ELSE price END`` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.workload.term import Polynomial

Bounds = tuple[float, float]
BoundsOf = Callable[[exp.Column], Bounds | None]
"""The bounds of a column that is a measure, None for others."""

CLIPPING = (exp.Least, exp.Greatest, exp.Case, exp.If)
"""What may clip."""
_BELOW: tuple[type[exp.Expr], ...] = (exp.LT, exp.LTE)
_ABOVE: tuple[type[exp.Expr], ...] = (exp.GT, exp.GTE)


@dataclass(frozen=True, slots=True)
class ClippedMeasure:
    """``factor`` times a value of ``column`` between ``low`` and ``high``, plus ``shift``.

    ``null`` is what it is where the column is NULL, None for NULL.
    """

    column: exp.Column
    low: float
    high: float
    factor: float = 1.0
    shift: float = 0.0
    null: float | None = None

    def at_most(self, most: float) -> ClippedMeasure:
        """The lesser of it and a constant; what is NULL stays so.

        >>> found = ClippedMeasure(exp.column("x"), 0.0, 60.0, -2.0, 10.0).at_most(4.0)
        >>> found.low, found.high
        (3.0, 60.0)
        """
        if not self.factor:
            return replace(self, shift=min(self.shift, most))
        place = (most - self.shift) / self.factor
        low, high = self.low, self.high
        low, high = (low, min(high, place)) if self.factor > 0 else (max(low, place), high)
        return replace(self, low=low, high=high) if low < high else self.always(most)

    def at_least(self, least: float) -> ClippedMeasure:
        """The greater of it and a constant; what is NULL stays so."""
        return self.times(-1.0).at_most(-least).times(-1.0)

    def always(self, value: float) -> ClippedMeasure:
        """A constant where the column is not NULL."""
        return replace(self, factor=0.0, shift=value)

    def times(self, factor: float) -> ClippedMeasure:
        """A multiple."""
        null = None if self.null is None else self.null * factor
        return replace(self, factor=self.factor * factor, shift=self.shift * factor, null=null)

    def plus(self, shift: float) -> ClippedMeasure:
        """The sum with a constant."""
        return replace(
            self, shift=self.shift + shift, null=None if self.null is None else self.null + shift
        )

    def polynomial(self, column: Column) -> Polynomial:
        """It as a polynomial of its column."""
        null, name = self.null or 0.0, column.name.casefold()
        return Polynomial(name, (self.shift, self.factor, 0.0), null, self._clip(column))

    def present(self, column: Column) -> Polynomial:
        """One where it is not NULL."""
        null, name = float(self.null is not None), column.name.casefold()
        return Polynomial(name, (1.0, 0.0, 0.0), null, self._clip(column))

    def _clip(self, column: Column) -> Bounds | None:
        clip = self.low, self.high
        return None if clip == column.number_bounds else clip

    def at(self, value: float) -> float:
        """What it is for a value of the column."""
        return self.factor * min(max(value, self.low), self.high) + self.shift


def read_clipped(node: exp.Expr, bounds_of: BoundsOf) -> ClippedMeasure | None:
    """What a node is if it is linear in a clipped measure, None for all else.

    >>> from sqlglot import parse_one
    >>> text = "CASE WHEN x > 5 THEN 5 ELSE x END"
    >>> read_clipped(parse_one(text), lambda _: (0.0, 60.0)).high
    5.0
    """
    inner = node.unnest()
    match inner:
        case exp.Column():
            bounds = bounds_of(inner)
            return None if bounds is None else ClippedMeasure(inner, *bounds)
        case exp.Neg():
            found = read_clipped(inner.this, bounds_of)
            return None if found is None else found.times(-1.0)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _computed(inner, bounds_of)
        case exp.Least() | exp.Greatest():
            return _extreme(inner, bounds_of)
        case exp.Case() | exp.If():
            return _chosen(inner, bounds_of)
    return None


def as_case(node: exp.Expr) -> exp.Expr:
    """What clips an expression as CASE with tests that tell bins apart; all else as it is.

    Where both sides of a test are the same for the constant itself, it may be of either.

    >>> from sqlglot import parse_one
    >>> as_case(parse_one("LEAST(x, 5)")).sql()
    'CASE WHEN x < 5.0 THEN x ELSE 5.0 END'
    """
    parts = _extreme_parts(node)
    if parts is None:
        return _loosened(node)
    kind = exp.LT if isinstance(node, exp.Least) else exp.GTE
    value, constant = parts
    number = exp.convert(constant)
    test = kind(this=value.copy(), expression=number)
    return exp.Case(ifs=[exp.If(this=test, true=value.copy())], default=number.copy())


def _loosened(node: exp.Expr) -> exp.Expr:
    """CASE between an expression and the constant that it is compared with, by < and >=."""
    branch, rest = _branches(node)
    kinds: dict[type[exp.Expr], type[exp.Binary]] = {exp.GT: exp.GTE, exp.LTE: exp.LT}
    if branch is None or rest is None or type(branch[0]) not in kinds:
        return node
    test, value = branch
    bound = constant_of(test.expression)
    either = (value, rest.unnest()) if constant_of(value) == bound else (rest, value.unnest())
    if bound is None or constant_of(either[0]) != bound or either[1] != test.this.unnest():
        return node
    looser = kinds[type(test)](this=test.this.copy(), expression=test.expression.copy())
    return exp.Case(ifs=[exp.If(this=looser, true=value.copy())], default=rest.copy())


def _computed(node: exp.Expr, bounds_of: BoundsOf) -> ClippedMeasure | None:
    """A sum, difference or multiple of a clipped measure and a constant."""
    left, right = constant_of(node.this), constant_of(node.expression)
    if (left is None) == (right is None):
        return None
    found = read_clipped(node.expression if right is None else node.this, bounds_of)
    constant = left if right is None else right
    if found is None or constant is None:
        return None
    match node:
        case exp.Add():
            return found.plus(constant)
        case exp.Sub():
            return found.times(-1.0).plus(constant) if right is None else found.plus(-constant)
        case exp.Mul():
            return found.times(constant)
        case exp.Div() if right:
            return found.times(1 / right)
    return None


def _extreme_parts(node: exp.Expr) -> tuple[exp.Expr, float] | None:
    """What LEAST or GREATEST is of beside constants, and the one of these that matters."""
    if not isinstance(node, exp.Least | exp.Greatest):
        return None
    parts = [node.this, *node.expressions]
    constants = [number for number in map(constant_of, parts) if number is not None]
    values = [part for part in parts if constant_of(part) is None]
    if len(values) != 1 or not constants:
        return None
    return values[0], (min if isinstance(node, exp.Least) else max)(constants)


def _extreme(node: exp.Expr, bounds_of: BoundsOf) -> ClippedMeasure | None:
    """LEAST and GREATEST pass over NULL."""
    parts = _extreme_parts(node)
    found = None if parts is None else read_clipped(parts[0], bounds_of)
    if parts is None or found is None:
        return None
    most, is_least = parts[1], isinstance(node, exp.Least)
    null = most if found.null is None else (min if is_least else max)(found.null, most)
    return replace(found.at_most(most) if is_least else found.at_least(most), null=null)


def _chosen(node: exp.Expr, bounds_of: BoundsOf) -> ClippedMeasure | None:
    """CASE and IF between a measure and the constant that it is compared with."""
    branch, rest = _branches(node)
    if branch is None or rest is None:
        return None
    test, value = branch
    if not isinstance(test, exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    bound, below, compared = constant_of(test.expression), _BELOW, test.this
    if bound is None:
        bound, below, compared = constant_of(test.this), _ABOVE, test.expression
    base = read_clipped(compared, bounds_of)
    if base is None or base.null is not None or bound is None or not base.factor:
        return None
    is_below = isinstance(test, below)
    if constant_of(value) == bound:
        inner = read_clipped(rest, bounds_of)
        if inner is None or not _meets(inner, base, bound):
            return None
        return inner.at_least(bound) if is_below else inner.at_most(bound)
    if constant_of(rest) == bound and value.unnest() == compared.unnest():
        found = base.at_most(bound) if is_below else base.at_least(bound)
        return replace(found, null=bound)
    return None


def _branches(node: exp.Expr) -> tuple[tuple[exp.Expr, exp.Expr] | None, exp.Expr | None]:
    """The first condition of a CASE with its value, and what it is otherwise."""
    if isinstance(node, exp.If):
        return (node.this.unnest(), node.args["true"]), node.args.get("false")
    if node.this is not None:
        return None, None
    first, *others = node.args["ifs"]
    default = node.args.get("default")
    if others and default is not None:
        default = exp.Case(ifs=[each.copy() for each in others], default=default.copy())
    return (first.this.unnest(), first.args["true"]), default


def _meets(inner: ClippedMeasure, base: ClippedMeasure, bound: float) -> bool:
    """Whether a clipped measure and what it is compared with are the same where that is a bound."""
    if (inner.column, inner.factor, inner.shift) != (base.column, base.factor, base.shift):
        return False
    return inner == base or inner.at((bound - base.shift) / base.factor) == bound


def constant_of(node: exp.Expr) -> float | None:
    """The value of a number that is written out."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        found = constant_of(inner.this)
        return None if found is None else -found
    return float(inner.name) if isinstance(inner, exp.Literal) and not inner.is_string else None
