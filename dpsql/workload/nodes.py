"""Columns whose values are summed, as nodes: which they are, and polynomials as rows over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Operator
from dpsql.catalog import Column, Table
from dpsql.catalog.domain import Bins, DecimalRange, IntegerRange
from dpsql.workload.cells import MOST_STEPS, Nodes
from dpsql.workload.coarsen import is_distinct, tell_apart
from dpsql.workload.polynomial import Polynomial
from dpsql.workload.term import Term

PLACE_BITS = 24
"""Bits of the place of a value in its bin, as vaults keep it."""

SHARED = 64
"""Runs of bins up to which counts by bin share the nodes of sums.

One measurement is better for both: 1.7 times at 16 bins, 2.2 times at 64. Above it counts have
cells of their own, unless sums need as many runs: to plan 2,000 nodes took minutes.
"""


MOST_ROWS = 64
"""Rows of a factor over a range up to which it may be told by nodes."""


def find_nodes(table: Table, terms: Sequence[Term]) -> dict[str, Nodes]:
    """The attributes that are nodes: measures, binned columns and ranges that are summed."""
    degrees: dict[str, int] = {}
    clips: dict[str, Polynomial] = {}
    runs: dict[str, tuple[int, ...]] = {}
    names: dict[str, str] = {}
    for polynomial in (p for term in terms for p in term.polynomials.values()):
        domain = table.columns[polynomial.column].domain
        if isinstance(domain, Bins) and polynomial.column not in names:
            found, shared = _find_runs(polynomial.column, domain.size, terms)
            key = polynomial.column if shared else summed_name(polynomial.column)
            names[polynomial.column], runs[key] = key, found
        key = names.get(polynomial.column, node_name(polynomial))
        clips[key] = polynomial
        degrees[key] = max(degrees.get(key, 1), _degree(polynomial))
    for name, column in table.columns.items():
        if isinstance(column.domain, IntegerRange | DecimalRange):
            degree = _range_degree(column, [t.factors[name] for t in terms if name in t.factors])
            if degree is not None:
                degrees[name] = degree
    return {
        key: _nodes(table, key, clips.get(key), degree, runs.get(key, ()))
        for key, degree in degrees.items()
    }


def _find_runs(name: str, bins: int, terms: Sequence[Term]) -> tuple[tuple[int, ...], bool]:
    """Return the starts of runs of bins that no sum tells apart, and whether counts share them.

    Where they do, no count tells the bins of a run apart either.
    """
    summed = [t for t in terms if any(p.column == name for p in t.polynomials.values())]
    counted = [t for t in terms if not any(p.column == name for p in t.polynomials.values())]
    own, others = (_changes(name, bins, each) for each in (summed, counted))
    both = own | others
    shared = int(both.sum()) <= max(SHARED, int(own.sum()))
    found = np.flatnonzero(both if shared else own)
    return tuple(map(int, found)), shared


def _changes(name: str, bins: int, terms: Sequence[Term]) -> NDArray[np.bool_]:
    """Mark bins that some term tells from the bin before; the first one always."""
    found = np.zeros(bins, dtype=np.bool_)
    found[0] = True
    distinct = {t.factors[name].key: t.factors[name] for t in terms if name in t.factors}
    for factor in distinct.values():
        if is_distinct(factor):
            return np.ones(bins, dtype=np.bool_)
        rows = tell_apart(factor)[:, :bins]
        found[1:] |= (rows[:, 1:] != rows[:, :-1]).any(axis=0)
    return found


def summed_name(column: str) -> str:
    """The name of the nodes of a binned column beside which it has cells."""
    return f"{column} (summed)"


def node_name(polynomial: Polynomial) -> str:
    """The name of the attribute that a polynomial is about."""
    clip = polynomial.clip
    return polynomial.column if clip is None else f"{polynomial.column}[{clip[0]}, {clip[1]}]"


def node_key(polynomial: Polynomial, nodes: Collection[str]) -> str:
    """The attribute that a polynomial is over, of these."""
    name = node_name(polynomial)
    return name if name in nodes else summed_name(polynomial.column)


def _degree(polynomial: Polynomial) -> int:
    return 2 if polynomial.coefficients[2] else 1


def _nodes(
    table: Table,
    key: str,
    polynomial: Polynomial | None,
    degree: int,
    starts: tuple[int, ...],
) -> Nodes:
    name = key if polynomial is None else polynomial.column
    column = table.columns[name]
    others = tuple(range((column.other is not None) + column.null))
    low = high = None
    if polynomial is not None and polynomial.clip is not None:
        low, high = (Fraction(bound) for bound in polynomial.clip)
    steps, intervals = 0, 1
    match column.domain:
        case IntegerRange() | DecimalRange():
            steps = max(1, column.domain.size - 1)
        case Bins(edges):
            intervals = len(starts)
            ends = [edges[start] for start in (*starts, len(edges) - 1)]
            if column.type == "integer":
                found = math.lcm(*(int(hi - lo) for lo, hi in itertools.pairwise(ends)))
                steps = found if found <= 1 << PLACE_BITS else 0
            starts = () if intervals == len(edges) - 1 else starts
        case _ if column.type == "integer" and column.bounds is not None:
            steps = steps_between(*(column.bounds if low is None or high is None else (low, high)))
    return Nodes(name, degree, intervals, steps, others, low, high, starts)


def steps_between(low: Fraction, high: Fraction) -> int:
    """Whole steps between two bounds of an integer; 0, as for real numbers, where one is not whole.

    So it is where they are more than a double tells apart.

    >>> steps_between(Fraction(2), Fraction(7)), steps_between(Fraction(2), Fraction(15, 2))
    (5, 0)
    """
    is_whole = low.denominator == high.denominator == 1 and high - low <= MOST_STEPS
    return max(1, int(high - low)) if is_whole else 0


def _range_degree(column: Column, factors: Sequence[Operator]) -> int | None:
    """1 or 2 when every factor on a range of integers is a polynomial of at most that degree.

    None where a factor is not, where no factor but a constant is, or where nodes are no fewer.
    """
    if not factors or column.domain is None:
        return None
    distinct = {factor.key: factor for factor in factors}
    n = column.domain.size
    if any(factor.rows > MOST_ROWS for factor in distinct.values()) or n < 4:
        return None
    degree = 0
    for factor in distinct.values():
        rows = np.asarray(factor.dense(), dtype=np.float64)[:, :n]
        for row in rows:
            found = _row_degree(row)
            if found is None:
                return None
            degree = max(degree, found)
    return degree or None


def _row_degree(row: Floats) -> int | None:
    steps = row
    slack = 1e-12 * float(np.abs(row).max())
    for degree in range(3):
        if np.allclose(steps, steps[0], rtol=0, atol=slack):
            return degree
        steps = np.diff(steps)
    return None


def spans(
    table: Table, nodes: Mapping[str, Nodes], term: Term, polynomials: Mapping[str, Polynomial]
) -> bool:
    """True if some nodes tell all that a term asks of the columns that they are of.

    Nodes may be of a higher degree, and of more runs, than were needed: :func:`node_rows` then is
    what the term is over them.

    Args:
        nodes: by attribute.
        polynomials: those of the term, by column.
    """
    for polynomial in polynomials.values():
        key = node_key(polynomial, nodes)
        if key not in nodes or nodes[key].degree < _degree(polynomial):
            return False
        if (nodes[key].low, nodes[key].high) != _clip_of(polynomial):
            return False
    for key, each in nodes.items():
        column, factor = table.columns[each.column], term.factors.get(each.column)
        has_cells = key == summed_name(each.column) and each.column not in polynomials
        if factor is None or has_cells or column.domain is None:
            continue
        if isinstance(column.domain, Bins):
            runs = each.starts or range(each.intervals)
            changes = _changes(each.column, column.domain.size, [term])
            if not set(np.flatnonzero(changes).tolist()) <= {*runs}:
                return False
        elif factor.rows > MOST_ROWS:
            return False
        elif not _is_level(factor, column.domain.size):
            degree = _range_degree(column, [factor])
            if degree is None or degree > each.degree:
                return False
    return True


def _clip_of(polynomial: Polynomial) -> tuple[Fraction | None, Fraction | None]:
    if polynomial.clip is None:
        return None, None
    low, high = polynomial.clip
    return Fraction(low), Fraction(high)


def _is_level(factor: Operator, cells: int) -> bool:
    """True if every row of a factor is one number in all declared cells."""
    rows = np.asarray(factor.dense())[:, :cells]
    return bool((rows == rows[:, :1]).all())


def node_rows(
    column: Column, nodes: Nodes, factor: Operator | None, polynomial: Polynomial | None
) -> NDArray[Any]:
    """Rows over nodes and other cells: a polynomial in its Bernstein basis, times a factor.

    Args:
        column: the column that the nodes are of.
        factor: (rows, cells of the column); None for all cells. A range of numbers has one.
        polynomial: of the values of the column; None counts its rows.
    """
    if isinstance(column.domain, IntegerRange | DecimalRange):
        assert factor is not None
        return _range_rows(column, nodes, np.asarray(factor.dense()))
    used = polynomial or Polynomial(nodes.column, (1.0, 0.0, 0.0), 1.0)
    values = [b for lo, hi in _intervals(column, nodes) for b in bernstein(used, lo, hi, nodes)]
    rest = ([0.0] if column.other is not None else []) + ([used.null] if column.null else [])
    if polynomial is None and column.other is not None:
        rest[0] = 1.0
    row = np.array([*values, *rest])
    if factor is None:
        return as_integers(row[np.newaxis])
    assert column.domain is not None
    starts = nodes.starts or range(nodes.intervals)
    rest_of = np.arange(column.domain.size, column.size)
    masks = np.asarray(factor.take_columns(np.array([*starts, *rest_of])).dense())
    repeated = np.repeat(masks[:, : nodes.intervals], nodes.degree + 1, axis=1)
    return as_integers(np.hstack([repeated, masks[:, nodes.intervals :]]) * row)


def _intervals(column: Column, nodes: Nodes) -> list[tuple[float, float]]:
    if isinstance(column.domain, Bins):
        edges = [float(edge) for edge in column.domain.edges]
        starts = nodes.starts or range(nodes.intervals)
        return list(itertools.pairwise([*(edges[start] for start in starts), edges[-1]]))
    assert column.bounds is not None
    low, high = column.bounds
    return [
        (
            float(low if nodes.low is None else nodes.low),
            float(high if nodes.high is None else nodes.high),
        )
    ]


def bernstein(polynomial: Polynomial, lo: float, hi: float, nodes: Nodes) -> list[float]:
    """The coefficients of a polynomial on [lo, hi] in the basis of the nodes.

    Args:
        polynomial: of degree ``nodes.degree`` at most.
        lo, hi: the ends of the interval, in the unit of the column.

    >>> nodes = Nodes("v", 2, 1, 16)
    >>> bernstein(Polynomial("v", (0.0, 0.0, 1.0)), 1.0, 3.0, nodes)
    [1.0, 3.0, 9.0]
    """
    ends = [polynomial.at(lo), polynomial.at(hi)]
    if nodes.degree == 1:
        return ends
    c0, c1, c2 = polynomial.fractions
    low, high = Fraction(lo), Fraction(hi)
    return [ends[0], float(c0 + c1 * (low + high) / 2 + c2 * low * high), ends[1]]


def _range_rows(column: Column, nodes: Nodes, rows: NDArray[Any]) -> NDArray[Any]:
    assert column.domain is not None
    n = column.domain.size
    inside = rows[:, :n].astype(np.float64)
    first, last = inside[:, :1], inside[:, -1:]
    parts = [first, last]
    if nodes.degree == 2:
        w = 1 / (n - 1)
        # p(w) = first + b w + c w^2 with p(1) = last
        second = inside[:, 1:2]
        c = ((second - first) / w - (last - first)) / (w - 1)
        b = last - first - c
        parts = [first, first + b / 2, last]
    return as_integers(np.hstack([*parts, rows[:, n:]]))


def as_integers(rows: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as integers.

    Any shape; as they are where they are not whole.
    """
    near = np.rint(rows)
    if (np.abs(near) < 2.0**53).all() and np.allclose(rows, near, rtol=1e-12, atol=0):
        return np.asarray(near.astype(np.int64))
    return rows
