"""Terms of answers -> the attributes to measure and the products over them, on the fewest cells.

A column becomes cells, or nodes where its values are summed; columns that a condition couples
become one attribute where that is small.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dpsql.algebra.blocks import simplify
from dpsql.algebra.operator import Operator
from dpsql.catalog import Table
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass
from dpsql.workload.cells import Cells, Nodes, Resolution, cells_of
from dpsql.workload.coarsen import coarsen
from dpsql.workload.merged_products import lift
from dpsql.workload.merged_terms import gathered
from dpsql.workload.nodes import find_nodes, node_key, node_rows, summed_name
from dpsql.workload.repeated_blocks import is_resolved
from dpsql.workload.term import Term, normalise
from dpsql.workload.workload import Product, Workload

Place: TypeAlias = "tuple[int, int]"

MOST_COLUMNS = 60
"""Most columns of one answer: tensors have an axis for each and a few more, numpy has 64."""

JOINT_COLUMNS = 32
"""Most columns of one attribute: cells have an axis for each, of which numpy has 64."""

JOINT_CELLS = 4096
"""Most cells of an attribute that is made of several columns, alike cells merged.

Searches form matrices of cells by cells for it, 128 MiB each.
"""

JOINT_NUMBERS = 1 << 22
"""Most numbers in a matrix over such an attribute, 32 MiB, before cells are merged."""

TOGETHER_NUMBERS = 1 << 23
"""Most numbers in all matrices over one attribute that is made of all columns, 64 MiB."""

SEPARATOR = " × "
"""Between the columns in the name of an attribute that is made of several."""


@dataclass(frozen=True, slots=True)
class WeightedAnswer:
    """The terms of one answer and how much its error counts.

    ``distinct`` is a column of which different values are counted, and what each of them counts
    for: the terms have a row for each of them, group by group.
    """

    terms: tuple[Term, ...]
    weight: float = 1.0
    distinct: tuple[str, tuple[float, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A workload on the fewest cells, and what its attributes are.

    ``products`` gives every answer as a weighted sum of products of the workload; ``order`` is the
    order of the columns in the rows of products. Where it is ``padded`` some cells can hold no row:
    other strategies may do with less than a bound over all cells says.
    """

    workload: Workload
    resolutions: Mapping[str, Resolution]
    products: Mapping[Place, tuple[tuple[float, Product], ...]]
    order: tuple[str, ...]
    padded: bool = False

    @property
    def is_single(self) -> bool:
        """True if every answer is one product."""
        return all(len(reading) == 1 for reading in self.products.values())

    @property
    def rows(self) -> dict[Place, int]:
        """The number of rows of every answer."""
        return {place: reading[0][1].rows for place, reading in self.products.items()}


def make_layout(
    table: Table,
    asked: Mapping[Place, WeightedAnswer],
    *,
    joint: bool,
    drop: bool = True,
) -> Layout:
    """Form the workload of all answers about one table.

    Args:
        asked: the terms and the weight of each answer, by its place.
        joint: make one attribute of columns that a condition couples, where that is small.
        drop: without it, cells of single columns that no answer counts are a class of their own.
    """
    layout, nodes = _apart(table, asked, drop=drop)
    groups = _coupled(layout, nodes) if joint else []
    return join(layout, groups) or layout if groups else layout


def lay_out_together(table: Table, asked: Mapping[Place, WeightedAnswer]) -> Layout | None:
    """Form the workload on one attribute of all columns that are asked about, cells alike merged.

    None where there are no such columns to join, measures among them, or too many cells. Columns of
    which each cell has the same problem stay apart: the others are planned once for all. So does a
    range whose sums are all of the first degree: its cells are mixtures of two, the ends, and nodes
    are these. One of squares has cells too, on which there is more than on nodes.
    """
    terms = [term for each in asked.values() for term in each.terms]
    columns = {name for term in terms for name in term.factors}
    if len(columns) < 2 or any(term.polynomials for term in terms):
        return None
    ranges = find_nodes(table, terms)
    are_squared = any(each.degree > 1 for each in ranges.values())
    layout, nodes = _apart(table, asked, cells_alone=are_squared or len(ranges) != 1)
    workload = layout.workload
    used = {name for product in workload.products for name in product.factors}
    alone = {name for name in used if is_resolved(workload, name)}
    group = tuple(n for n in workload.attributes if n in used - alone - nodes.keys())
    cells = math.prod(workload.domain[name] for name in group)
    rows = workload.rows // math.prod(workload.domain[name] for name in alone)
    if cells * rows > TOGETHER_NUMBERS or not group:
        return None
    if len(group) > 1:
        return join(layout, [group])
    return layout if are_squared and cells <= JOINT_CELLS else None


def _apart(
    table: Table,
    asked: Mapping[Place, WeightedAnswer],
    *,
    cells_alone: bool = False,
    drop: bool = True,
) -> tuple[Layout, Mapping[str, Nodes]]:
    """The workload with one attribute per column, or more for nodes; and which have nodes."""
    terms = [term for each in asked.values() for term in each.terms]
    nodes = {} if cells_alone else find_nodes(table, terms)
    domain = domain_over(table, nodes)
    places, products, scales = [], [], []
    for place, each in asked.items():
        for product, scale in products_over(table, nodes, domain, each):
            places.append(place)
            scales.append(scale)
            products.append(product)
    coarse = coarsen(Workload(domain, products), keep=nodes, drop=drop)
    workload, classes = coarse.workload, dict(coarse.classes)
    most = max(len(product.factors) for product in workload.products)
    if most > MOST_COLUMNS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"one answer has conditions and groups over {most} columns,"
            f" the limit is {MOST_COLUMNS}",
            hint="leave some conditions out, or make one column of several in the data",
        )
    resolutions: dict[str, Resolution] = {
        name: nodes[name] if name in nodes else Cells((name,), (classes[name],))
        for name in workload.attributes
    }
    order = tuple(resolutions[name].columns[0] for name in workload.attributes)
    found: dict[Place, list[tuple[float, Product]]] = {place: [] for place in asked}
    for place, scale, product in zip(places, scales, workload.products, strict=True):
        found[place].append((scale, product))
    return Layout(workload, resolutions, _frozen(found), order), nodes


def _frozen(
    found: Mapping[Place, Sequence[tuple[float, Product]]],
) -> dict[Place, tuple[tuple[float, Product], ...]]:
    return {place: tuple(products) for place, products in found.items()}


def domain_over(table: Table, nodes: Mapping[str, Nodes]) -> dict[str, int]:
    """Every attribute with its number of cells: columns in declared order."""
    domain = {}
    for name, size in table.sizes.items():
        if size and name not in nodes:
            domain[name] = size
        domain.update({key: each.size for key, each in nodes.items() if each.column == name})
    return domain


def products_over(
    table: Table, nodes: Mapping[str, Nodes], domain: Mapping[str, int], wanted: WeightedAnswer
) -> list[tuple[Product, float]]:
    """An answer over nodes and all cells of other columns: products, and what each counts for.

    Args:
        nodes: the nodes of measures, by attribute.
        domain: the cells of every attribute.
        wanted: the terms of the answer, and its weight.
    """
    found = [_product(table, nodes, term, wanted.weight) for term in wanted.terms]
    return gathered(found, nodes, domain, wanted.weight) if len(found) > 1 else found


def _product(
    table: Table, nodes: Mapping[str, Nodes], term: Term, weight: float
) -> tuple[Product, float]:
    """A term over all cells, measures as rows over nodes, and what to multiply it by."""
    factors: dict[str, Operator] = {}
    scale = term.scale
    by_column = {p.column: p for p in term.polynomials.values()}
    for name in table.columns:
        keys = [key for key, each in nodes.items() if each.column == name]
        factor, polynomial = term.factors.get(name), by_column.get(name)
        if not keys or (polynomial is None and keys == [summed_name(name)]):
            if factor is not None:
                factors[name] = factor
            continue
        for key in keys:
            used = polynomial if polynomial and node_key(polynomial, nodes) == key else None
            if factor is not None or used is not None:
                rows, part = normalise(node_rows(table.columns[name], nodes[key], factor, used))
                factors[key] = simplify(rows)
                scale *= part
    return Product(factors, weight * abs(scale)), scale


def _coupled(layout: Layout, nodes: Mapping[str, Nodes]) -> list[tuple[str, ...]]:
    """The attributes that the terms of some answer differ in, as groups small enough to join."""
    workload, found = layout.workload, layout.products
    sizes = workload.domain
    groups: list[set[str]] = []
    for products in found.values():
        differing = {
            name
            for name in sizes
            if len({_key(product.factors.get(name)) for _, product in products}) > 1
        }
        if len(differing) > 1 and not differing & nodes.keys():
            apart = [group for group in groups if not group & differing]
            groups = [*apart, differing.union(*(g for g in groups if g & differing))]
    return [
        tuple(name for name in workload.attributes if name in group)
        for group in groups
        if _fits(workload, group)
    ]


def _key(factor: Operator | None) -> Hashable:
    return None if factor is None else factor.key


def _fits(workload: Workload, group: set[str]) -> bool:
    cells = math.prod(workload.domain[name] for name in group)
    return all(
        cells * math.prod(f.rows for name, f in product.factors.items() if name in group)
        <= JOINT_NUMBERS
        for product in workload.products
    )


def join(layout: Layout, groups: Sequence[tuple[str, ...]]) -> Layout | None:
    """Make one attribute of every group of attributes; None where one is large."""
    if any(len(group) > JOINT_COLUMNS for group in groups):
        return None
    workload, resolutions, found = layout.workload, layout.resolutions, layout.products
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
        for scale, product in lift(products, joint, sizes, shared):
            merged.append((place, scale, product))
    kept = {name: each for name, each in resolutions.items() if isinstance(each, Nodes)}
    pinned = {inside.get(name, name) for name in workload.pinned}
    coarse = coarsen(Workload(domain, [p for _, _, p in merged], pinned=pinned), keep=kept)
    if any(coarse.workload.domain[key] > JOINT_CELLS for key in joint):
        return None
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
