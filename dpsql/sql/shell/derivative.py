"""Standard errors of expressions over aggregates, as SQL: the first-order (delta) method.

An affine expression gets its exact standard error; a ratio gets the usual first-order one. The
result is an expression over the columns ``c{i}_{j}``, the covariances of the aggregates.

Rounding to steps of h adds h^2/12 to the variance. That is exact on average over where the truth
lies between two steps: what is left after rounding is then uniform and independent of the noise.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TypeVar

from sqlglot import exp

from dpsql.logical.functions import INTEGER_TYPES, REAL_TYPES, find, has
from dpsql.records import dataclass, field
from dpsql.sql.cells.column_mentions import MentionCache

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Rounding:
    """The error of rounding an expression, given as SQL, to a whole number of ``step``."""

    sql: str
    step: Fraction


Gradient = dict[int | Rounding, str]

GUARD = "guard"
"""The mark of nodes that only keep a value within its public range, or from being undefined."""

LONG = 200
"""Characters of slopes from which on each is written once: DuckDB plans every copy anew."""
FEW = 16
"""Noisy numbers of one expression whose covariances are columns; those of more are one of lists.

Their pairs are terms of SQL, which DuckDB plans one by one: 5,000 took 4 s, 8,000 over 16.
"""
MAX_TEXT = 50_000
"""Longest SQL of the slopes of a product or ratio; of one that has more, the error is not known."""
KEPT = 1e-10
"""Part of a sum of variances that is left at least beside covariances, for it to be known."""
OWN = "d['s'][p] * d['s'][p] * d['m'][p][1]"
"""The variance of one aggregate of a group alone. DuckDB looks for ``d.s`` among all columns of the
table, and for names like it: of 3,000 columns that took three times as long as all else."""
_HOLE = re.compile(r"\{(\w)\}")
_UNKNOWN = "CAST('nan' AS DOUBLE)"
DECIMALS = 3
"""Decimals of a DECIMAL that names none."""


class NoDerivative(Exception):
    """The expression has no derivative that this module knows."""


def guard(node: exp.Expr) -> exp.Expr:
    """Mark a node as a guard."""
    node.meta[GUARD] = True
    return node


@dataclass(frozen=True, slots=True)
class CovarianceTerms:
    """The covariances that standard errors are written over.

    ``pairs`` (i, j) of aggregates, i <= j, have a column ``c{i}_{j}`` each. Of the ``groups``, in
    rising order, number g has a column ``m{g}`` of lists: list p has the covariances of aggregate
    p of the group with itself and with those after it.
    """

    pairs: set[tuple[int, int]] = field(default_factory=set)
    groups: dict[tuple[int, ...], int] = field(default_factory=dict)


def stddev_sql(
    tree: exp.Expr, needed: CovarianceTerms, unknown: Collection[int] = ()
) -> str | None:
    """Return SQL for the standard error of ``tree``; note the covariances it needs.

    ``tree`` is over columns ``a{j}`` (aggregates) and ``k{i}`` (keys). ``None`` when the error is
    not known in closed form, as for the aggregates listed in ``unknown``.
    """
    try:
        slopes = gradient(tree)
    except NoDerivative:
        return None
    if slopes.keys() & set(unknown):
        return None
    if not slopes:
        return "0.0"
    noisy = [i for i in slopes if isinstance(i, int)]
    if len(noisy) > FEW:
        ordered = tuple(sorted(noisy))
        group = needed.groups.setdefault(ordered, len(needed.groups))
        return _of_group(slopes, ordered, f"m{group}")
    names = {i: f"d['s{place}']" for place, i in enumerate(slopes)}
    by_name = sum(map(len, slopes.values())) > LONG
    factors = names if by_name else {i: f"({slope})" for i, slope in slopes.items()}
    needed.pairs.update((min(i, j), max(i, j)) for i in noisy for j in noisy)
    own = [f"{factors[i]} * {factors[i]} * c{i}_{i}" for i in noisy]
    own += [
        f"{factors[each]} * {factors[each]} * {float(each.step**2 / 12)!r}"
        for each in slopes
        if isinstance(each, Rounding)
    ]
    shared = [
        f"2 * {factors[i]} * {factors[j]} * c{min(i, j)}_{max(i, j)}"
        for i, j in itertools.combinations(noisy, 2)
    ]
    root = _root(" + ".join(own), " + ".join(shared))
    if not by_name:
        return root
    known = ", ".join(f"{names[i][2:-1]}: {slope}" for i, slope in slopes.items())
    return f"list_transform([{{{known}}}], lambda d: {root})[1]"


def _of_group(slopes: Gradient, noisy: Sequence[int], column: str) -> str:
    """The standard error of an expression over many aggregates, from the lists of a group."""
    steps = [each for each in slopes if isinstance(each, Rounding)]
    parts = {
        "s": [slopes[i] for i in noisy],
        "r": [slopes[each] for each in steps],
        "h": [repr(float(each.step**2 / 12)) for each in steps],
    }
    lists = [
        f"'{name}': [{', '.join(f'coalesce({each}, {_UNKNOWN})' for each in found)}]::DOUBLE[]"
        for name, found in parts.items()
    ]
    count = len(noisy)
    rounded = _added(f"1, {len(steps) + 1}", "d['r'][p] * d['r'][p] * d['h'][p]")
    own = f"{_added(f'1, {count + 1}', OWN)} + {rounded}"
    dot = "list_dot_product(d['s'][p + 1:], d['m'][p][2:])"
    root = _root(own, _added(f"1, {count}", f"2 * d['s'][p] * {dot}"))
    return f"list_transform([{{{', '.join(lists)}, 'm': {column}}}], lambda d: {root})[1]"


def _added(places: str, term: str) -> str:
    return f"coalesce(list_sum(list_transform(range({places}), lambda p: {term})), 0.0)"


def _root(own: str, shared: str) -> str:
    """The root of a variance: what each aggregate adds alone, and what pairs of them add.

    It is unknown where a slope is, that of a root at zero, and where so little is left of the parts
    that doubles do not keep it: that must not be told as an error of zero.
    """
    if not shared:
        # GREATEST passes over NULL: an unknown error is none of zero.
        return f"nullif(sqrt(greatest(0.0, coalesce({own}, {_UNKNOWN}))), {_UNKNOWN})"
    kept = f"v[1] + v[2] >= {KEPT!r} * v[1]"
    root = f"CASE WHEN {kept} THEN nullif(sqrt(v[1] + v[2]), {_UNKNOWN}) END"
    return f"list_transform([[{own}, {shared}]], lambda v: {root})[1]"


def slopes_of(tree: exp.Expr, leaf: Callable[[exp.Column], dict[T, str]]) -> dict[T, str]:
    """Return the derivatives of smooth arithmetic; none where it is anything else.

    >>> from sqlglot import parse_one
    >>> [slopes_of(parse_one(s), lambda c: {c.name: "1"}) for s in ("a0 / 2", "round(a0)")]
    [{'a0': '(1) / (2)'}, {}]
    """
    try:
        return smooth_gradient(tree, leaf)
    except NoDerivative:
        return {}


def smooth_gradient(tree: exp.Expr, leaf: Callable[[exp.Column], dict[T, str]]) -> dict[T, str]:
    """Return the partial derivatives of smooth arithmetic; those of a column are its ``leaf``.

    Smooth are + - * / and square roots, casts to DOUBLE, and what is marked as a guard.
    Raises: NoDerivative.
    """
    inner = tree.this

    def below(part: exp.Expr) -> dict[T, str]:
        return smooth_gradient(part, leaf)

    match tree:
        case exp.Column():
            return leaf(tree)
        case exp.Literal() if not tree.is_string:
            return {}
        case exp.Nullif() if tree.expression == exp.Literal.number(0):
            return below(inner)
        case exp.Cast() if tree.to.this in REAL_TYPES:
            return below(inner)
        case exp.Greatest() | exp.Least() if tree.meta.get(GUARD):
            return below(inner)
        case exp.Case() if tree.meta.get(GUARD):
            return below(tree.args["ifs"][0].args["true"])
    if has(tree, "choice") or isinstance(tree, exp.Nullif):
        raise NoDerivative
    return _chained(tree, below)


def gradient(tree: exp.Expr, below: MentionCache | None = None) -> Gradient:
    """Return the partial derivatives by aggregate, as SQL texts; absent means zero.

    >>> from sqlglot import parse_one
    >>> gradient(parse_one("3 * a0 - a1 / 2"))
    {0: '(3) * (1)', 1: '-((1) / (2))'}

    A value that is clipped has the slope of the value itself, which is its first argument. What
    rounding adds is listed beside the aggregates. ``below`` remembers what the nodes mention.
    Raises: NoDerivative.
    """
    if isinstance(tree, exp.Column):
        return {int(tree.name[1:]): "1"} if tree.name.startswith("a") else {}
    below = below or MentionCache()
    within = partial(gradient, below=below)
    if not any(name.startswith("a") for _, name in below.of(tree).columns):
        return {}
    match tree:
        case exp.Case() if tree.args.get("default") is None and len(tree.args["ifs"]) == 1:
            return within(tree.args["ifs"][0].args["true"])
        case exp.Round() | exp.Cast():
            return _rounded(tree, within)
    return _chained(tree, within)


def _rounded(tree: exp.Round | exp.Cast, within: Callable[[exp.Expr], Gradient]) -> Gradient:
    """The derivatives of what is rounded, and the error that rounding adds."""
    step = _step(tree)
    if step is None:
        raise NoDerivative
    found = within(tree.this)
    return found if step == 0 else {**found, Rounding(_sql(tree), step): "1"}


def _step(tree: exp.Round | exp.Cast) -> Fraction | None:
    """The step that a number is rounded to; 0 where it is not, None where that is not known."""
    if isinstance(tree, exp.Round):
        decimals = tree.args.get("decimals") or exp.Literal.number(0)
        negative = isinstance(decimals, exp.Neg)
        places = decimals.this if isinstance(decimals, exp.Neg) else decimals
        if not isinstance(places, exp.Literal) or not places.name.isdigit():
            return None
        size = Fraction(10) ** min(int(places.name), 30)
        return size if negative else 1 / size
    kind = tree.to.this
    if kind in REAL_TYPES:
        return Fraction(0)
    if kind in INTEGER_TYPES:
        return Fraction(1)
    if kind == exp.DataType.Type.DECIMAL:
        named = [part.name for part in tree.to.expressions]
        places = int(named[1]) if len(named) > 1 else 0 if named else DECIMALS
        return Fraction(1, 10**places)
    return None


def _chained(tree: exp.Expr, below: Callable[[exp.Expr], dict[T, str]]) -> dict[T, str]:
    """The chain rule, by the slopes of a function; ``below`` gives the derivatives of an argument.

    Raises: NoDerivative, where an argument moves that the function has no slope for.
    """
    known, parts = find(tree), list(tree.iter_expressions())
    if known is None or not known.slopes:
        raise NoDerivative
    if any(below(part) for part in parts[len(known.slopes) :]):
        raise NoDerivative
    found: dict[T, str] = {}
    for rule, part in zip(known.slopes, parts, strict=False):
        written = {str(i): _sql(each) for i, each in enumerate(parts) if f"{{{i}}}" in rule}
        written["f"] = _sql(tree) if "{f}" in rule else ""
        moved = below(part) if rule else {}
        found = _plus(found, {i: _filled(rule, slope, written) for i, slope in moved.items()})
    is_long = any("{0}" in rule or "{1}" in rule for rule in known.slopes)
    return _short(found) if is_long else found


def _filled(rule: str, slope: str, written: Mapping[str, str]) -> str:
    return _HOLE.sub(lambda hole: {"s": slope, **written}[hole.group(1)], rule)


def _short(slopes: dict[T, str]) -> dict[T, str]:
    """Slopes that are not too long: of a product of n factors each has n. Raises: NoDerivative."""
    if sum(map(len, slopes.values())) > MAX_TEXT:
        raise NoDerivative
    return slopes


_WRITTEN: dict[type[exp.Expr], str] = {exp.Mul: "*", exp.Add: "+", exp.Sub: "-"}


def _sql(tree: exp.Expr) -> str:
    """An expression as SQL; what long chains are made of without a copy of them for every link."""
    if type(tree) in _WRITTEN:
        return f"{_sql(tree.this)} {_WRITTEN[type(tree)]} {_sql(tree.expression)}"
    if isinstance(tree, exp.Paren):
        return f"({_sql(tree.this)})"
    if isinstance(tree, exp.Column) and len(tree.parts) == 1 and not tree.this.quoted:
        return tree.name
    return tree.sql("duckdb")


def _plus(left: dict[T, str], right: dict[T, str]) -> dict[T, str]:
    both = {i: f"{left[i]} + {right[i]}" for i in left if i in right}
    return {**left, **right, **both}
