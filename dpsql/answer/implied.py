"""Implication: releases that determine a request, decided from public structure alone.

A stored strategy lives on merged cells. It answers a product exactly when every factor treats the
cells of a class alike, counts no cell that was left out, and the strategy supports what results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Total
from dpsql.algebra.operator import Operator
from dpsql.answer.codec import Release
from dpsql.plan.division import DEEPEST, halves, part_of, statements
from dpsql.plan.plan import Part, Plan
from dpsql.plan.request import Request
from dpsql.plan.target import Reading, Readings, Target, reading_variances
from dpsql.records import dataclass
from dpsql.workload.cells import Cells, Merging, Nodes, merging_of
from dpsql.workload.coarsen import DISTINCT
from dpsql.workload.facets import factors_over
from dpsql.workload.layout import Layout, Place, domain_over, products_over
from dpsql.workload.nodes import spans
from dpsql.workload.workload import Product

DENSE_LIMIT = 1 << 24
"""Largest factor that is compared column by column."""


@dataclass(frozen=True, slots=True)
class ImpliedRelease:
    """A release that determines a request: its name, and how every answer is read off it."""

    name: str
    release: Release
    readings: Readings

    @property
    def is_on_grid(self) -> bool:
        """True if it is read off nodes of before, whose rounding no standard error counts."""
        parts = {index for index, _, _ in self.readings.values()}
        found = (self.release.plan.parts[index].resolutions for index in parts)
        resolutions = (each for names in found for each in names.values())
        return any(isinstance(each, Nodes) and each.grid > 0 for each in resolutions)

    def error(self) -> float:
        """The expected squared error of all answers together."""
        total = 0.0
        for index, forecast in enumerate(self.release.plan.forecasts):
            here = [reading for at, reading, _ in self.readings.values() if at == index]
            total += sum(float(v.sum()) for v in reading_variances(forecast, here))
        return total


def find_implied(request: Request, candidates: Mapping[str, Release]) -> tuple[ImpliedRelease, ...]:
    """Return the releases that determine a request, by their expected errors.

    Only those with noise of a law that the request admits count. Ties go to the earlier candidate.
    """
    noises = request.noises
    found = [
        implied
        for name, release in candidates.items()
        if release.plan.noise in noises and (implied := imply(request, name, release)) is not None
    ]
    return tuple(sorted(found, key=ImpliedRelease.error)) if len(found) > 1 else tuple(found)


def imply(request: Request, name: str, release: Release) -> ImpliedRelease | None:
    """Return the readings of a request off a release; None if it does not determine every answer.

    Args:
        name: the request that the release was made for.
    """
    readings: dict[Place, tuple[int, Reading, tuple[str, ...]]] = {}
    taken: set[int] = set()
    for target in request.targets:
        found = _read_all(target, release.plan, taken)
        if found is None:
            return None
        readings.update(found)
    return ImpliedRelease(name, release, readings)


def _read_all(target: Target, plan: Plan, taken: set[int]) -> Readings | None:
    """Return the readings of a target off one of the parts, or off several as if planned apart."""
    found = _read_off(target, plan.parts, taken)
    alike = [part for part in plan.parts if part.table == target.table.name.casefold()]
    several = len([part for part in alike if not part.units]) > 1
    if found is not None or not several or target.units or len(target.asked) == 1:
        return found
    from dpsql.plan.partition import best_partition  # most releases are one part

    def grouped(measurable: bool) -> list[Target]:
        groups = best_partition(target, plan.noise, measurable=measurable).groups
        return [part_of(target, group) for group in groups]

    return (
        _read_each(grouped(False), plan.parts)
        or _read_each(grouped(True), plan.parts)
        or _read_halves(target, plan.parts, DEEPEST)
        or _read_each(statements(target), plan.parts)
    )


def _read_each(pieces: Sequence[Target], parts: Sequence[Part]) -> Readings | None:
    """Return the readings of each of some pieces off one of the parts."""
    readings: dict[Place, tuple[int, Reading, tuple[str, ...]]] = {}
    for piece in pieces:
        found = _read_off(piece, parts, set())
        if found is None:
            return None
        readings.update(found)
    return readings


def _read_halves(target: Target, parts: Sequence[Part], depth: int) -> Readings | None:
    """Return the readings of a target off one of the parts, or of its halves off one each."""
    found = _read_off(target, parts, set())
    if found is not None or not depth or len(target.asked) == 1:
        return found
    readings: dict[Place, tuple[int, Reading, tuple[str, ...]]] = {}
    for half in halves(target):
        some = _read_halves(half, parts, depth - 1)
        if some is None:
            return None
        readings.update(some)
    return readings


def _read_off(target: Target, parts: Sequence[Part], taken: set[int]) -> Readings | None:
    """Return the readings of a target off one part; a count of units takes a part for itself."""
    for index, part in enumerate(parts):
        if index in taken or not part.kind.admits(target):
            continue
        found = _as_planned(target, part)
        if found is None and not target.units:
            found = _map_all(target, part)
        if found is not None:
            if target.units:
                taken.add(index)
            order, products = found
            return {place: (index, reading, order) for place, reading in products.items()}
    return None


Found: TypeAlias = "tuple[tuple[str, ...], Mapping[Place, Reading]]"


def _as_planned(target: Target, part: Part) -> Found | None:
    """Return the target's own readings, if the part was planned on the same cells."""
    for layout, telling in target.planned:
        if _is_alike(part, layout, telling):
            readings = layout.products.values()
            if all(part.forecast.supports(p) for reading in readings for _, p in reading):
                return layout.order, layout.products
    return None


def _is_alike(part: Part, layout: Layout, telling: frozenset[str]) -> bool:
    """True if rows become the cells of a layout as they became those of a part.

    An attribute by which no rows differ need not be among those of the part.
    """
    if not part.resolutions.keys() >= telling:
        return False
    if any(layout.resolutions.get(name) != each for name, each in part.resolutions.items()):
        return False
    return _telling(part.strategy.domain) == _telling(layout.workload.domain)


def _telling(domain: Mapping[str, int]) -> dict[str, int]:
    """The attributes that rows differ by: one of a column whose keys were found since may not."""
    return {name: size for name, size in domain.items() if size > 1}


def _map_all(target: Target, part: Part) -> Found | None:
    """Map every term of a target onto the merged cells of a part, and onto its nodes."""
    if part.homes.keys() >= target.counted_by and not target.has_sums:
        pairs = [(place, term) for place, asked in target.asked.items() for term in asked.terms]
        places = [(place, term.scale, term.factors) for place, term in pairs]
    else:
        places = _over_nodes(target, part)
    mapped = _map([factors for _, _, factors in places], part, target.known)
    if not mapped:
        return None
    found: dict[Place, Reading] = {}
    for (place, scale, _), product in zip(places, mapped, strict=True):
        found[place] = (*found.get(place, ()), (scale, product))
    measured = [
        column
        for name in part.strategy.domain
        if name in part.resolutions
        for column in part.resolutions[name].columns
    ]
    others = [name for name, column in target.table.columns.items() if column.size]
    return tuple(dict.fromkeys([*measured, *others])), found


def _over_nodes(target: Target, part: Part) -> list[tuple[Place, float, Mapping[str, Operator]]]:
    """The terms of a target over the nodes of a part; none where these do not tell them.

    Nodes are what they hold: sums, their squares, and counts of the same rows are all read off
    those of one measure, whatever was asked when they were measured.
    """
    table, homes = target.table, part.homes
    nodes = {name: each for name, each in part.resolutions.items() if isinstance(each, Nodes)}
    told = {each.column for each in nodes.values()} | homes.keys()
    if not nodes or not told >= target.counted_by:
        return []
    for asked in target.asked.values():
        for term in asked.terms:
            polynomials = {each.column: each for each in term.polynomials.values()}
            if term.pattern is not None or not spans(table, nodes, term, polynomials):
                return []
    domain = domain_over(table, nodes)
    found = [
        (place, scale, product.factors)
        for place, asked in target.asked.items()
        for product, scale in products_over(table, nodes, domain, asked)
    ]
    known = nodes.keys() | homes.keys()
    return found if all(factors.keys() <= known for _, _, factors in found) else []


def _on_nodes(nodes: Nodes, factor: Operator) -> Operator | None:
    """A factor on those of the nodes and other cells of a column that rows are in."""
    inside = nodes.intervals * (nodes.degree + 1)
    if nodes.others == tuple(range(len(nodes.others))):
        return factor
    rows = factor.dense()
    left = [inside + i for i, place in enumerate(nodes.others) if place < 0]
    if rows[:, left].any() or sorted(each for each in nodes.others if each >= 0) != [
        *range(len(nodes.others) - len(left))
    ]:
        return None
    kept = sorted((place, inside + i) for i, place in enumerate(nodes.others) if place >= 0)
    return factor.take_columns(np.array([*range(inside), *(i for _, i in kept)]))


def _map(
    products: Sequence[Mapping[str, Operator]],
    part: Part,
    known: dict[tuple[object, ...], Operator | None],
) -> list[Product] | None:
    """Return products on the merged cells of a part, None when one of them is not supported.

    ``products`` are the factors of each, by columns that the part has cells of, and by its nodes;
    ``known`` are those that were mapped already, onto cells of other parts too.
    """
    split: dict[tuple[object, ...], dict[str, Operator]] = {}
    cells = {name: each for name, each in part.resolutions.items() if isinstance(each, Cells)}
    nodes = {name: each for name, each in part.resolutions.items() if isinstance(each, Nodes)}
    homes = part.homes
    left_out = [name for name, each in part.resolutions.items() if each.leaves_out]
    mapped = []
    for product in products:
        asked = {a: f for a, f in product.items() if not isinstance(f, Total)}
        own = {name: asked.pop(name) for name in [*asked] if name in nodes}
        names = dict.fromkeys(homes[column][0] for column in asked)
        if not {*names, *own} >= set(left_out):
            return None
        factors: dict[str, Operator] = {}
        for name, whole in own.items():
            told = _on_nodes(nodes[name], whole)
            if told is None:
                return None
            factors[name] = told
        for name in names:
            (column, *_) = cells[name].columns
            if len(homes[column]) > 1:
                parts = {each: cells[each].classes[0] for each in homes[column]}
                found = _split(column, asked[column], parts, split)
            else:
                factor = _merge(cells[name], asked, known)
                found = {} if factor is None else {name: factor}
            if not found:
                return None
            factors.update(found)
        small = Product({n: factors[n] for n in part.strategy.domain if n in factors})
        if not part.forecast.supports(small):
            return None
        mapped.append(small)
    return mapped


def _split(
    column: str,
    factor: Operator,
    parts: Mapping[str, NDArray[np.int64]],
    known: dict[tuple[object, ...], dict[str, Operator]],
) -> dict[str, Operator]:
    """Return a factor over attributes of one column, each worked out once; none if it is not."""
    place = (column, factor.key)
    if place not in known:
        known[place] = factors_over(factor, parts)
    return known[place]


def _merge(
    cells: Cells,
    asked: Mapping[str, Operator],
    known: dict[tuple[object, ...], Operator | None],
) -> Operator | None:
    """Return the factors of some columns on the merged cells of these, None where they differ."""
    mergings = cells.mergings.items()
    parts = [_remembered(column, asked.get(column), merging, known) for column, merging in mergings]
    if cells.labels is None:
        return parts[0]
    # Not asked for is not the same as asked for and different within classes: None is both here.
    if any(p is None for c, p in zip(cells.columns, parts, strict=True) if c in asked):
        return None
    shape = cells.labels.shape
    place = (cells, *(None if p is None else p.key for p in parts))
    if place not in known:
        count = math.prod(p.rows for p in parts if p is not None)
        if count * cells.labels.size > DENSE_LIMIT:
            return None
        dense = [
            np.ones((1, n), dtype=np.int64) if p is None else p.dense()
            for p, n in zip(parts, shape, strict=True)
        ]
        every = Dense(reduce(np.kron, dense))
        known[place] = merge_columns(every, merging_of(cells.labels.reshape(-1)))
    return known[place]


def _remembered(
    column: str,
    factor: Operator | None,
    merging: Merging,
    known: dict[tuple[object, ...], Operator | None],
) -> Operator | None:
    """Return a factor on the merged cells of its column, each worked out once."""
    if factor is None:
        return None
    place = (column, factor.key, merging.content)
    if place not in known:
        known[place] = merge_columns(factor, merging)
    return known[place]


def merge_columns(factor: Operator, merging: Merging) -> Operator | None:
    """Return a factor on merged cells; None unless it is alike within classes, zero outside.

    >>> from dpsql.algebra.blocks import Dense
    >>> merging = merging_of(np.array([0, 0, 1, -1]))
    >>> merge_columns(Dense(np.array([[1, 1, 2, 0]])), merging).dense().tolist()
    [[1, 2]]
    >>> merge_columns(Dense(np.array([[1, 0, 2, 0]])), merging) is None
    True
    """
    if merging.is_whole:
        return factor
    if isinstance(factor, DISTINCT) or factor.rows * merging.spread.size > DENSE_LIMIT:
        return None
    rows = factor.dense()
    alike = rows[:, merging.spread]
    alike[:, merging.outside] = 0
    return factor.take_columns(merging.first) if np.array_equal(rows, alike) else None
