"""Counts of privacy units -> the unions of cells that are measured, each as a number of its own.

Units do not add up: one with rows in two cells is one unit of their union. So a condition that
keeps several cells, or a group that shares cells with another, is a union for which units are
counted as such, and nothing is ever inferred from the counts of its cells. Nor do different
values: a cell or union is occupied where it has a row, and those of a group are added up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity, Total, simplify
from dpsql.algebra.groups import grouped
from dpsql.algebra.operator import Operator
from dpsql.catalog import Table
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass, replace
from dpsql.workload.cells import Cells, Resolution, Unions
from dpsql.workload.coarsen import Coarsening, coarsen
from dpsql.workload.layout import SEPARATOR, Layout, Place, WeightedAnswer
from dpsql.workload.workload import Product, Workload

Members = NDArray[np.bool_]

Reading: TypeAlias = "Sequence[tuple[float, Product]]"

MAX_MEMBERS = 1 << 24
"""Most numbers of a matrix that says which unions have which cells."""


def lay_out_units(table: Table, asked: Mapping[Place, WeightedAnswer]) -> Layout:
    """Find the unions behind answers that count the same units, in one order or another.

    A row counts for a group exactly if it adds something to the number of its rows, so a union has
    the cells with a positive entry, whatever products the entry is a signed sum of. Columns whose
    conditions couple them become one attribute. Different values are counted as unions that have
    rows, which are added up.
    Raises: ProgrammingError (E_TOO_LARGE).
    """
    terms = next(iter(asked.values())).terms
    domain = {name: column.size for name, column in table.columns.items() if column.size}
    coarse = coarsen(Workload(domain, [Product(term.factors) for term in terms]))
    reading = [(t.scale, p) for t, p in zip(terms, coarse.workload.products, strict=True)]
    groups = _groups(coarse.workload, reading)
    attributes = [_attribute(table, coarse, *each) for each in groups.items()]
    domain = {each.name: each.resolution.size for each in attributes}
    distinct = next(iter(asked.values())).distinct
    if distinct is not None:
        attributes = [_added_up(each, distinct, reading) for each in attributes]
    factors = {each.name: each.chosen for each in attributes}
    workload = Workload(domain, [Product(factors, each.weight) for each in asked.values()])
    scale = 1.0
    if distinct is not None and not any(distinct[0] in a.resolution.columns for a in attributes):
        (scale,) = distinct[1]  # the one value that a column has tells no rows apart
    products = {
        place: ((scale, product),) for place, product in zip(asked, workload.products, strict=True)
    }
    resolutions = {each.name: each.resolution for each in attributes}
    order = tuple(name for each in attributes for name in each.resolution.columns)
    return Layout(workload, resolutions, products, order)


@dataclass(frozen=True, slots=True)
class _Attribute:
    """Unions over some columns, and which of them every row of the answers is."""

    name: str
    resolution: Resolution
    chosen: Operator


def _added_up(
    attribute: _Attribute, distinct: tuple[str, tuple[float, ...]], reading: Reading
) -> _Attribute:
    """An attribute of which each row adds up unions: those of one group and any of the values.

    Its rows before are those of its columns in all combinations, the last column changing first.
    """
    columns, (name, counts) = attribute.resolution.columns, distinct
    if name not in columns:
        return attribute
    rows = [reading[0][1].factors[n].rows if n in reading[0][1].factors else 1 for n in columns]
    after = math.prod(rows[columns.index(name) + 1 :])
    every = np.arange(attribute.chosen.rows)
    values = len(counts)
    groups = every // (after * values) * after + every % after
    weights = np.array(counts)[every // after % values]
    added = grouped(groups, attribute.chosen.rows // values, weights)
    if isinstance(attribute.chosen, Identity):
        return replace(attribute, chosen=added)
    return replace(attribute, chosen=simplify(added.dense() @ attribute.chosen.dense()))


def sum_coefficients(workload: Workload) -> dict[str, NDArray[np.int64]]:
    """Whole coefficients (rows, unions) with which answers sum unions, for each attribute.

    An attribute where a union counts in two rows, a row is of none, or numbers are not whole is
    left out.
    """
    found = {}
    for name, size in workload.domain.items():
        factor = workload.products[0].factors.get(name, Total(size))
        if factor.rows < factor.n and factor.rows * factor.n <= MAX_MEMBERS:
            rows = np.asarray(factor.dense())
            whole = np.rint(rows)
            once = rows.any(axis=1).all() and (rows != 0).sum(axis=0).max() == 1
            if once and (rows == whole).all():
                found[name] = whole.astype(np.int64)
    return found


def _groups(workload: Workload, reading: Reading) -> dict[tuple[str, ...], Reading]:
    """The attributes that matter, and how each is read: those in which products differ together.

    Several equal products may add up to nothing, which any one attribute can tell.
    """
    names = workload.attributes
    factors = {name: [p.factors.get(name) for _, p in reading] for name in names}
    coupled = tuple(n for n, found in factors.items() if len({id(f) for f in found}) > 1)
    coupled = coupled or names[: len(reading) > 1]
    found: dict[tuple[str, ...], Reading] = {coupled: reading} if coupled else {}
    for name, (first, *_) in factors.items():
        if name not in coupled and first is not None:
            found[name,] = [(1.0, reading[0][1])]
    return dict(sorted(found.items(), key=lambda each: names.index(each[0][0])))


def _attribute(
    table: Table, coarse: Coarsening, group: tuple[str, ...], reading: Reading
) -> _Attribute:
    cells, name = _cells(coarse, group), SEPARATOR.join(group)
    first = reading[0][1].factors.get(group[0])
    if len(reading) == 1 and isinstance(first, Identity):
        return _Attribute(name, cells, first)
    sizes = [coarse.workload.domain[each] for each in group]
    rows = [math.prod(p.factors[n].rows for n in group if n in p.factors) for _, p in reading]
    if max(rows) * math.prod(sizes) > MAX_MEMBERS:
        names = " and ".join(table.columns[each].name for each in cells.columns)
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"counts of privacy units over {max(rows):,} groups of {math.prod(sizes):,} cells of"
            f" {names}, which share cells, are too large",
            hint=f"at most {MAX_MEMBERS:,} pairs of both; ask for fewer groups",
        )
    total = sum(scale * _kron(product, group, sizes) for scale, product in reading)
    return _Attribute(name, *_unions(cells, np.asarray(total > 0)))


def _cells(coarse: Coarsening, group: tuple[str, ...]) -> Cells:
    classes = tuple(coarse.classes[name] for name in group)
    if len(group) == 1:
        return Cells(group, classes)
    shape = [coarse.workload.domain[name] for name in group]
    return Cells(group, classes, np.arange(math.prod(shape)).reshape(shape))


def _kron(product: Product, group: Sequence[str], sizes: Sequence[int]) -> NDArray[Any]:
    out: NDArray[Any] = np.ones((1, 1))
    for name, size in zip(group, sizes, strict=True):
        factor = product.factors.get(name)
        out = np.kron(out, np.ones((1, size)) if factor is None else factor.dense())
    return out


def _unions(cells: Cells, groups: Members) -> tuple[Resolution, Operator]:
    """The different unions among groups of cells, and which of them every group is.

    A group without cells is none of them. Unions that share no cell are cells themselves.
    """
    members, chosen = _different(groups)
    alike, first = _first_of_each(members.T)
    if not members.any():
        return Unions(cells, members), chosen
    if members.any(axis=1).all() and members[:, first].sum(axis=0).max() <= 1:
        union = np.where(members.any(axis=0), members.argmax(axis=0), -1)
        return _relabelled(cells, union), chosen
    used = members[:, first].any(axis=0)
    place = np.where(used, np.cumsum(used) - 1, -1)
    return Unions(_relabelled(cells, place[alike]), members[:, first[used]]), chosen


def _different(groups: Members) -> tuple[Members, Operator]:
    """Each union once, none of them empty unless all are."""
    inverse, first = _first_of_each(groups)
    kept = [j for j in range(len(first)) if groups[first[j]].any()] or [0]
    if len(kept) == len(groups) or len(groups) * len(kept) > MAX_MEMBERS:
        return groups, Identity(len(groups))
    chosen = (inverse[:, None] == np.array(kept)) & groups.any(axis=1, keepdims=True)
    return groups[first[kept]], Dense(chosen.astype(np.int64))


def _first_of_each(rows: Members) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number different rows by first occurrence: the number of every row, and where each is."""
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[inverse.reshape(-1)], first[order]


def _relabelled(cells: Cells, place: NDArray[np.int64]) -> Cells:
    """The same cells merged: ``place`` says where each goes, -1 for nowhere."""
    labels = cells.classes[0] if cells.labels is None else cells.labels
    merged = np.where(labels < 0, -1, place[np.maximum(labels, 0)])
    if cells.labels is None:
        return Cells(cells.columns, (merged,))
    return Cells(cells.columns, cells.classes, merged)
