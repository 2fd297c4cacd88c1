"""Terms of answers -> the attributes to measure and the products over them, on the fewest cells.

A column becomes cells, or nodes where its values are summed; columns that a condition couples
become one attribute where that is small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import simplify
from dpsql.algebra.operator import Operator
from dpsql.catalog import Column, Table
from dpsql.catalog.domain import Bins, IntegerRange
from dpsql.plan.cells import Cells, Nodes, Resolution, cells_of, grid_for
from dpsql.plan.coarsen import coarsen
from dpsql.plan.terms import Polynomial, Term
from dpsql.plan.workload import Product, Workload

Floats = NDArray[np.float64]
Place: TypeAlias = "tuple[int, int]"

JOINT_CELLS = 4096
"""Most cells of an attribute that is made of several columns."""

JOINT_NUMBERS = 1 << 24
"""Most numbers in a matrix over such an attribute."""

SEPARATOR = " × "


@dataclass(frozen=True, slots=True)
class Asked:
    """The terms of one answer and how much its error counts."""

    terms: tuple[Term, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Layout:
    """A workload on the fewest cells, and what its attributes are.

    ``products`` gives every answer as a weighted sum of products of the workload; ``order`` is the
    order of the columns in the rows of products.
    """

    workload: Workload
    resolutions: Mapping[str, Resolution]
    products: Mapping[Place, tuple[tuple[float, Product], ...]]
    order: tuple[str, ...]


def lay_out(
    table: Table, asked: Mapping[Place, Asked], *, joint: bool, all_together: bool = False
) -> Layout:
    """Form the workload of all answers about one table.

    ``joint`` makes one attribute of columns that a condition couples, where that is small;
    ``all_together`` allows for blocks over all nodes at once, with coarser weights.
    """
    terms = [term for each in asked.values() for term in each.terms]
    nodes = find_nodes(table, terms, all_together=all_together)
    places, products, scales = [], [], []
    for place, each in asked.items():
        for term in each.terms:
            places.append(place)
            scales.append(term.scale)
            products.append(_product(table, nodes, term, each.weight))
    domain = _domain(table, nodes)
    coarse = coarsen(Workload(domain, products), keep=nodes)
    workload, classes = coarse.workload, dict(coarse.classes)
    resolutions: dict[str, Resolution] = {
        name: nodes[name] if name in nodes else cells_of(name, classes[name])
        for name in workload.attributes
    }
    order = tuple(resolutions[name].columns[0] for name in workload.attributes)
    found: dict[Place, list[tuple[float, Product]]] = {place: [] for place in asked}
    for place, scale, product in zip(places, scales, workload.products, strict=True):
        found[place].append((scale, product))
    if joint:
        groups = _coupled(workload, found, nodes)
        if groups:
            return _join(workload, resolutions, found, groups)
    return Layout(workload, resolutions, _frozen(found), order)


def _frozen(
    found: Mapping[Place, Sequence[tuple[float, Product]]],
) -> dict[Place, tuple[tuple[float, Product], ...]]:
    return {place: tuple(products) for place, products in found.items()}


def _domain(table: Table, nodes: Mapping[str, Nodes]) -> dict[str, int]:
    """Every attribute with its number of cells: columns in declared order."""
    domain = {}
    for name, column in table.columns.items():
        if column.size and name not in nodes:
            domain[name] = column.size
        domain.update({key: each.size for key, each in nodes.items() if each.column == name})
    return domain


def find_nodes(
    table: Table, terms: Sequence[Term], *, all_together: bool = False
) -> dict[str, Nodes]:
    """The attributes that are nodes: measures, binned columns and ranges that are summed."""
    degrees: dict[str, int] = {}
    clips: dict[str, Polynomial] = {}
    for term in terms:
        for polynomial in term.polynomials.values():
            key = node_name(polynomial)
            clips[key] = polynomial
            degrees[key] = max(degrees.get(key, 1), _degree(polynomial))
    for name, column in table.columns.items():
        if isinstance(column.domain, IntegerRange):
            degree = _range_degree(column, [t.factors[name] for t in terms if name in t.factors])
            if degree is not None:
                degrees[name] = degree
    together = max(
        (sum(degrees[k] for k in _node_keys(term, degrees)) for term in terms), default=0
    )
    if all_together:
        together = sum(degrees.values())
    return {
        key: _nodes(table, key, clips.get(key), degree, together) for key, degree in degrees.items()
    }


def node_name(polynomial: Polynomial) -> str:
    """The name of the attribute that a polynomial is about."""
    clip = polynomial.clip
    return polynomial.column if clip is None else f"{polynomial.column}[{clip[0]}, {clip[1]}]"


def _node_keys(term: Term, degrees: Mapping[str, int]) -> set[str]:
    keys = {node_name(polynomial) for polynomial in term.polynomials.values()}
    return keys | {name for name in term.factors if name in degrees}


def _degree(polynomial: Polynomial) -> int:
    return 2 if polynomial.coefficients[2] else 1


def _nodes(
    table: Table, key: str, polynomial: Polynomial | None, degree: int, together: int
) -> Nodes:
    name = key if polynomial is None else polynomial.column
    column = table.columns[name]
    others = tuple(range((column.other is not None) + column.null))
    low = high = None
    if polynomial is not None and polynomial.clip is not None:
        low, high = (Fraction(bound) for bound in polynomial.clip)
    span, intervals = None, 1
    match column.domain:
        case IntegerRange(lo, hi):
            span = hi - lo
        case Bins() as bins:
            intervals = bins.size
        case _ if column.type == "integer" and column.bounds is not None:
            least, most = column.bounds if low is None or high is None else (low, high)
            if least.denominator == most.denominator == 1:
                span = int(most - least)
    return Nodes(name, degree, intervals, grid_for(span, degree, together), others, low, high)


def _range_degree(column: Column, factors: Sequence[Operator]) -> int | None:
    """1 or 2 when every factor on a range of integers is a polynomial of at most that degree.

    None where a factor is not, where no factor but a constant is, or where nodes are no fewer.
    """
    distinct = {factor.key: factor for factor in factors}
    n = 0 if column.domain is None else column.domain.size
    if not distinct or any(factor.rows > 64 for factor in distinct.values()) or n < 4:
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
    for degree in range(3):
        if np.allclose(steps, steps[0], rtol=0, atol=1e-9 * max(1.0, float(np.abs(row).max()))):
            return degree
        steps = np.diff(steps)
    return None


def _product(table: Table, nodes: Mapping[str, Nodes], term: Term, weight: float) -> Product:
    """A term over all cells, measures as rows over nodes."""
    factors: dict[str, Operator] = {}
    by_column = {p.column: p for p in term.polynomials.values()}
    for name in table.columns:
        keys = [key for key, each in nodes.items() if each.column == name]
        factor, polynomial = term.factors.get(name), by_column.get(name)
        if not keys:
            if factor is not None:
                factors[name] = factor
            continue
        for key in keys:
            used = None if polynomial is None or node_name(polynomial) != key else polynomial
            if factor is not None or used is not None:
                rows = _node_rows(table.columns[name], nodes[key], factor, used)
                factors[key] = simplify(rows)
    return Product(factors, weight * abs(term.scale))


def _node_rows(
    column: Column, nodes: Nodes, factor: Operator | None, polynomial: Polynomial | None
) -> NDArray[Any]:
    """Rows over nodes and other cells: a polynomial in its Bernstein basis, times a factor."""
    if isinstance(column.domain, IntegerRange):
        assert factor is not None
        return _range_rows(column, nodes, np.asarray(factor.dense()))
    used = polynomial or Polynomial(nodes.column, (1.0, 0.0, 0.0), 1.0)
    values = [b for lo, hi in _intervals(column, nodes) for b in bernstein(used, lo, hi, nodes)]
    rest = ([0.0] if column.other is not None else []) + ([used.null] if column.null else [])
    if polynomial is None and column.other is not None:
        rest[0] = 1.0
    row = np.array([*values, *rest])
    if factor is None:
        return _whole(row[np.newaxis])
    masks = np.asarray(factor.dense())
    repeated = np.repeat(masks[:, : nodes.intervals], nodes.degree + 1, axis=1)
    return _whole(np.hstack([repeated, masks[:, nodes.intervals :]]) * row)


def _intervals(column: Column, nodes: Nodes) -> list[tuple[float, float]]:
    if isinstance(column.domain, Bins):
        edges = [float(edge) for edge in column.domain.edges]
        return list(zip(edges[:-1], edges[1:], strict=True))
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

    >>> nodes = Nodes("v", 2, 1, 16)
    >>> bernstein(Polynomial("v", (0.0, 0.0, 1.0)), 1.0, 3.0, nodes)
    [1.0, 3.0, 9.0]
    """
    c0, c1, c2 = polynomial.coefficients
    ends = [c0 + c1 * v + c2 * v * v for v in (lo, hi)]
    if nodes.degree == 1:
        return ends
    return [ends[0], c0 + c1 * (lo + hi) / 2 + c2 * lo * hi, ends[1]]


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
    return _whole(np.hstack([*parts, rows[:, n:]]))


def _whole(rows: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as integers."""
    near = np.rint(rows)
    if (np.abs(near) < 2.0**53).all() and np.allclose(rows, near, rtol=1e-12, atol=1e-9):
        return np.asarray(near.astype(np.int64))
    return rows


def _coupled(
    workload: Workload,
    found: Mapping[Place, Sequence[tuple[float, Product]]],
    nodes: Mapping[str, Nodes],
) -> list[tuple[str, ...]]:
    """The attributes that the terms of some answer differ in, as groups small enough to join."""
    sizes = workload.domain
    groups: list[set[str]] = []
    for products in found.values():
        differing = {
            name
            for name in sizes
            if len({id(product.factors.get(name)) for _, product in products}) > 1
        }
        if len(differing) > 1 and not differing & nodes.keys():
            apart = [group for group in groups if not group & differing]
            groups = [*apart, differing.union(*(g for g in groups if g & differing))]
    return [
        tuple(name for name in workload.attributes if name in group)
        for group in groups
        if math.prod(sizes[name] for name in group) <= JOINT_CELLS and _fits(workload, group)
    ]


def _fits(workload: Workload, group: set[str]) -> bool:
    cells = math.prod(workload.domain[name] for name in group)
    return all(
        cells * math.prod(f.rows for name, f in product.factors.items() if name in group)
        <= JOINT_NUMBERS
        for product in workload.products
    )


def _join(
    workload: Workload,
    resolutions: Mapping[str, Resolution],
    found: Mapping[Place, Sequence[tuple[float, Product]]],
    groups: Sequence[tuple[str, ...]],
) -> Layout:
    """Make one attribute of every group of columns."""
    sizes = workload.domain
    joint = {SEPARATOR.join(group): group for group in groups}
    inside = {name: key for key, group in joint.items() for name in group}
    domain: dict[str, int] = {}
    for name in workload.attributes:
        key = inside.get(name, name)
        domain[key] = domain.get(key, 1) * sizes[name]
    shared: dict[tuple[object, ...], Operator] = {}
    merged: list[tuple[Place, float, Product]] = []
    for place, products in found.items():
        for scale, product in _merge(products, joint, sizes, shared):
            merged.append((place, scale, product))
    kept = {name: each for name, each in resolutions.items() if isinstance(each, Nodes)}
    coarse = coarsen(Workload(domain, [p for _, _, p in merged]), keep=kept)
    settled: dict[str, Resolution] = {}
    order: list[str] = []
    for key in coarse.workload.attributes:
        labels = coarse.classes[key]
        group = joint.get(key, (key,))
        parts = [resolutions[name] for name in group]
        order += [part.columns[0] for part in parts]
        if key in kept:
            settled[key] = kept[key]
            continue
        cells = [part.classes[0] for part in parts if isinstance(part, Cells)]
        if len(group) == 1:
            dropped = np.where(cells[0] < 0, -1, labels[np.maximum(cells[0], 0)])
            settled[key] = cells_of(parts[0].columns[0], dropped)
        else:
            columns = tuple(part.columns[0] for part in parts)
            shape = [sizes[name] for name in group]
            settled[key] = Cells(columns, tuple(cells), labels.reshape(shape))
    answers: dict[Place, list[tuple[float, Product]]] = {place: [] for place in found}
    for (place, scale, _), product in zip(merged, coarse.workload.products, strict=True):
        answers[place].append((scale, product))
    return Layout(coarse.workload, settled, _frozen(answers), tuple(order))


def _merge(
    products: Sequence[tuple[float, Product]],
    joint: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, int],
    shared: dict[tuple[object, ...], Operator],
) -> list[tuple[float, Product]]:
    """Terms over joint attributes; those that differ in one joint factor only are added up."""
    inside = {name for group in joint.values() for name in group}
    lifted: list[_Lifted] = []
    for scale, product in products:
        outside = {name: f for name, f in product.factors.items() if name not in inside}
        dense = {
            key: _kron(product, group, sizes)
            for key, group in joint.items()
            if any(name in product.factors for name in group)
        }
        lifted.append(_Lifted(scale, outside, dense, product.weight))
    for key in {key for each in lifted for key in each.dense}:
        if len(lifted) > 1:
            lifted = _add_up(lifted, key, math.prod(sizes[name] for name in joint[key]))
    out = []
    for each in lifted:
        factors = dict(each.outside)
        for key, rows in each.dense.items():
            name = (key, rows.shape, rows.dtype.kind, rows.tobytes())
            factors[key] = shared.setdefault(name, simplify(rows))
        out.append((each.scale, Product(factors, each.weight)))
    return out


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A term of which some factors are explicit rows over joint attributes."""

    scale: float
    outside: dict[str, Operator]
    dense: dict[str, NDArray[Any]]
    weight: float


def _add_up(lifted: Sequence[_Lifted], key: str, cells: int) -> list[_Lifted]:
    """Add up terms that differ in their rows over one joint attribute only."""
    sums: dict[tuple[object, ...], _Lifted] = {}
    for each in lifted:
        rest = {k: rows for k, rows in each.dense.items() if k != key}
        name = (
            tuple(sorted((a, id(f)) for a, f in each.outside.items())),
            tuple(sorted((k, rows.tobytes()) for k, rows in rest.items())),
        )
        rows = each.scale * each.dense.get(key, np.ones((1, cells)))
        weight = each.weight / abs(each.scale)
        known = sums.get(name)
        if known is not None:
            rows, weight = rows + known.dense[key], max(weight, known.weight)
        sums[name] = _Lifted(1.0, each.outside, {**rest, key: _whole(rows)}, weight)
    return list(sums.values())


def _kron(product: Product, group: Sequence[str], sizes: Mapping[str, int]) -> NDArray[Any]:
    out: NDArray[Any] = np.ones((1, 1), dtype=np.int64)
    for name in group:
        factor = product.factors.get(name)
        rows = np.ones((1, sizes[name]), dtype=np.int64) if factor is None else factor.dense()
        out = np.kron(out, rows)
    return out
