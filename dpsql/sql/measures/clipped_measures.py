"""LEAST, GREATEST and CASE that clip a measure: such an expression is a measure with other bounds.

``LEAST(2 * price, 100)`` is twice the price within its lowest value and 50. What is NULL follows
SQL: LEAST passes over NULL, ``CASE WHEN price > 50 THEN 50 ELSE price END`` does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.logical.functions import INTEGER_TYPES, MIRRORED, REAL_TYPES, has
from dpsql.records import dataclass, replace
from dpsql.sql.rewrites.tree_parts import NodeLimit, size_of
from dpsql.workload.polynomial import Polynomial

Bounds = tuple[float, float]
BoundsOf = Callable[[exp.Column], Bounds | None]
"""The bounds of a column that is a measure, None for others."""

MOST_BRANCHES = 256
"""Most branches that arithmetic over several CASEs is written out in."""
Told = Callable[[exp.Expr], bool]


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
        """The measure as a polynomial of its column."""
        null, name = self.null or 0.0, column.name.casefold()
        return Polynomial(name, (self.shift, self.factor, 0.0), null, self._clip(column))

    def present(self, column: Column) -> Polynomial:
        """The polynomial that is 1 where a measure is not NULL."""
        null, name = float(self.null is not None), column.name.casefold()
        return Polynomial(name, (1.0, 0.0, 0.0), null, self._clip(column))

    def _clip(self, column: Column) -> Bounds | None:
        clip = self.low, self.high
        return None if clip == column.number_bounds else clip

    def at(self, value: float) -> float:
        """The measure's number for a value of the column."""
        return self.factor * min(max(value, self.low), self.high) + self.shift


def read_clipped(node: exp.Expr, bounds_of: BoundsOf) -> ClippedMeasure | None:
    """The linear form of a clipped measure that a node is, None for all else.

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


def lifted(node: exp.Expr, is_stepped: Told, is_apart: Told, room: NodeLimit) -> exp.Expr:
    """An expression as CASE, where it or a part of its arithmetic is one.

    That is so for what clips a column in bins, which ``is_stepped`` tells, for CASE and IF that
    ``is_apart`` tells, and for COALESCE, LEAST, GREATEST and ABS of several columns. Arithmetic
    with NULL is NULL.

    Args:
        node: A part of the argument of a sum.
        is_stepped: Tells what clips a column in bins.
        is_apart: Tells a CASE whose branches are summed each by itself.
        room: The nodes that may still be copied: branches of branches double with each level.

    Raises: ProgrammingError (E_TOO_COMPLEX), before anything is copied.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("2 * LEAST(x, 5) + y")
    >>> lifted(tree, lambda node: isinstance(node, exp.Least), bool, NodeLimit(9)).sql()
    'CASE WHEN x < 5.0 THEN 2 * (x) + y ELSE 2 * (5.0) + y END'
    """
    tested = _tested(node)
    if tested is not None and is_apart(tested):
        return tested
    if is_stepped(node) and not isinstance(node, exp.If):
        return as_case(node)
    if isinstance(node, exp.If) or _is_choice(node):
        return _as_branches(node, room)
    parts = list(_parts_apart(node, is_stepped, is_apart))
    if not parts or math.prod(map(_branches_of, parts)) > MOST_BRANCHES:
        return node
    part = parts[0]
    case = _as_branches(as_case(part) if is_stepped(part) else part, room)
    room.take(_branches_of(part) * size_of(node))
    ifs = [
        exp.If(this=each.this.copy(), true=_instead(node, part, each.args["true"]))
        for each in case.args["ifs"]
    ]
    rest = case.args.get("default")
    return exp.Case(ifs=ifs, default=None if rest is None else _instead(node, part, rest))


def least_products(node: exp.Expr, is_apart: Told) -> int:
    """The number of products, at least, of a sum whose branches are summed each by itself.

    ABS doubles what is within: that is known before anything is copied.

    >>> from sqlglot import parse_one
    >>> least_products(parse_one("ABS(ABS(x - y) + LEAST(x, y)) * 2"), bool)
    4
    """
    node = node.unnest()
    if isinstance(node, exp.Null):
        return 0
    if _is_choice(node):
        inner = [least_products(each, is_apart) for each in (node.this, *node.expressions)]
        return sum(inner) * (2 if isinstance(node, exp.Abs) else 1)
    if isinstance(node, exp.Case | exp.If) and is_apart(node):
        ifs = node.args.get("ifs", [node])
        rest = node.args.get("default", node.args.get("false"))
        values = [*(each.args["true"] for each in ifs), *([] if rest is None else [rest])]
        return sum(least_products(each, is_apart) for each in values)
    parts = node.iter_expressions() if has(node, "arithmetic") else ()
    found = [least_products(each, is_apart) for each in parts]
    return max(found, default=1) if all(found) else 0


def _tested(node: exp.Expr) -> exp.Case | None:
    """A condition, or one as a number, as CASE: 1, 0 or NULL; None for all else.

    >>> from sqlglot import parse_one
    >>> _tested(parse_one("(a > b)::int")).sql()
    'CASE WHEN a > b THEN 1 WHEN NOT (a > b) THEN 0 END'
    >>> _tested(parse_one("x IS NULL")).sql()
    'CASE WHEN x IS NULL THEN 1 ELSE 0 END'
    """
    is_cast = isinstance(node, exp.Cast) and node.to.this in (*INTEGER_TYPES, *REAL_TYPES)
    test = node.this.unnest() if is_cast else node
    if not isinstance(test, exp.Predicate | exp.Connector | exp.Not) or isinstance(test, exp.Cast):
        return None
    while isinstance(test, exp.Not) and isinstance(test.this.unnest(), exp.Not):
        test = test.this.unnest().this.unnest()
    one, zero = exp.Literal.number(1), exp.Literal.number(0)
    inner = test.this.unnest() if isinstance(test, exp.Not) else test
    if isinstance(inner, exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ):
        known = inner.copy() if inner is test else exp.Not(this=inner.copy())
        return exp.Case(ifs=[exp.If(this=known, true=one)], default=zero)
    other = exp.Not(this=exp.paren(test.copy(), copy=False))
    ifs = [exp.If(this=test.copy(), true=one), exp.If(this=other, true=zero)]
    return exp.Case(ifs=ifs)


def _is_choice(node: exp.Expr) -> bool:
    """True if a node is COALESCE, LEAST, GREATEST or ABS of several columns."""
    if not isinstance(node, exp.Coalesce | exp.Least | exp.Greatest | exp.Abs):
        return False
    if isinstance(node, exp.Coalesce) and not any(e.find(exp.Column) for e in node.expressions):
        return False  # a constant in the place of NULL is a number of the measure's own
    return len({each.name.casefold() for each in node.find_all(exp.Column)}) > 1


def _branches_of(node: exp.Expr) -> int:
    """The branches, ELSE included, that a part has as CASE."""
    ifs = node.args.get("ifs")
    return 2 + len(node.expressions) if ifs is None else 1 + len(ifs)


def _as_branches(node: exp.Expr, room: NodeLimit) -> exp.Case:
    """CASE, IF, COALESCE and their like as CASE with a condition for each branch."""
    parts = [node.this, *node.expressions] if _is_choice(node) else []
    room.take(3 * max(1, len(parts)) * size_of(node))  # no less than is copied, of any kind
    if isinstance(node, exp.Coalesce):
        ifs = [exp.If(this=_is_known(each), true=each.copy()) for each in parts[:-1]]
        return exp.Case(ifs=ifs, default=parts[-1].copy())
    if isinstance(node, exp.Abs):
        value = exp.paren(node.this.copy(), copy=False)
        below = exp.LT(this=value.copy(), expression=exp.Literal.number(0))
        return exp.Case(ifs=[exp.If(this=below, true=exp.Neg(this=value.copy()))], default=value)
    if isinstance(node, exp.Least | exp.Greatest):
        kind = exp.LTE if isinstance(node, exp.Least) else exp.GTE
        ifs = [exp.If(this=_is_first(each, parts, kind), true=each.copy()) for each in parts]
        return exp.Case(ifs=ifs)
    if isinstance(node, exp.If):
        branch = exp.If(this=node.this.copy(), true=node.args["true"].copy())
        rest = node.args.get("false")
        return exp.Case(ifs=[branch], default=None if rest is None else rest.copy())
    assert isinstance(node, exp.Case)
    if node.this is None:
        return node
    ifs = [
        exp.If(
            this=exp.EQ(this=node.this.copy(), expression=each.this.copy()), true=each.args["true"]
        )
        for each in node.args["ifs"]
    ]
    return exp.Case(ifs=[each.copy() for each in ifs], default=node.args.get("default"))


def _is_first(node: exp.Expr, others: Sequence[exp.Expr], kind: type[exp.Expr]) -> exp.Expr:
    """The condition that a value is known, and before all others that are."""
    tests = [_is_known(node)]
    for other in others:
        if other is not node:
            missing = exp.Is(this=exp.paren(other.copy(), copy=False), expression=exp.null())
            sides = (exp.paren(each.copy(), copy=False) for each in (node, other))
            before = kind(**dict(zip(("this", "expression"), sides, strict=True)))
            tests.append(exp.paren(exp.or_(missing, before, copy=False), copy=False))
    return exp.and_(*tests, copy=False)


def _is_known(node: exp.Expr) -> exp.Expr:
    null = exp.Is(this=exp.paren(node.copy(), copy=False), expression=exp.null())
    return exp.Not(this=null)


def _parts_apart(node: exp.Expr, is_stepped: Told, is_apart: Told) -> Iterator[exp.Expr]:
    """The parts of some arithmetic that are CASE, or are to be."""
    for each in node.iter_expressions() if has(node, "arithmetic") else ():
        is_case = isinstance(each, exp.Case | exp.If) and is_apart(each)
        if is_case or is_stepped(each) or _is_choice(each):
            yield each
        else:
            yield from _parts_apart(each, is_stepped, is_apart)


def _instead(node: exp.Expr, part: exp.Expr, value: exp.Expr) -> exp.Expr:
    """A copy of some arithmetic with another value in the place of one part."""
    if isinstance(value.unnest(), exp.Null):
        return exp.null()
    if node is part:
        return exp.paren(value.copy(), copy=False)
    if not has(node, "arithmetic"):
        return node.copy()
    args = {key: each for key, each in node.args.items() if not isinstance(each, exp.Expr)}
    parts = {key: each for key, each in node.args.items() if isinstance(each, exp.Expr)}
    copy = type(node)(**args, **{key: _instead(each, part, value) for key, each in parts.items()})
    copy.meta.update(node.meta)
    return copy


def as_case(node: exp.Expr) -> exp.Expr:
    """A clipping expression as CASE with tests that tell bins apart; all else as it is.

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
    """The argument of LEAST or GREATEST beside constants, and the one of these that matters."""
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
    if not has(test, "order"):
        return None
    kind, bound, compared = type(test), constant_of(test.expression), test.this
    if bound is None:
        kind, bound, compared = MIRRORED[kind], constant_of(test.this), test.expression
    base = read_clipped(compared, bounds_of)
    if base is None or base.null is not None or bound is None or not base.factor:
        return None
    is_below = kind in (exp.LT, exp.LTE)
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
    """True if a clipped measure and what it is compared with are the same where that is a bound."""
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
