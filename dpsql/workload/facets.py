"""One column as several attributes: hours, weekdays and months of a time need no cell for each.

Queries that see a column through functions of it cut it into classes, one per combination of what
the functions say. Where these are very many, functions that say nothing of each other become
attributes of their own: a row has a cell of each, as it has of several columns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity
from dpsql.algebra.groups import Groups, grouped
from dpsql.algebra.operator import Integers, Operator
from dpsql.records import dataclass
from dpsql.workload.cells import Cells, Resolution, cells_of
from dpsql.workload.coarsen import label_cells
from dpsql.workload.layout import Layout, Place
from dpsql.workload.workload import Product, Workload

SPLIT_FROM = 512
"""Classes of a column from which it is split: fewer are searched over in seconds."""

FULL, SPARSE = 0.5, 0.05
"""Parts of all combinations of two functions, and of all, that must occur for these to stay apart.

Day of the month, weekday, month and year: all pairs occur, and a seventh of all combinations.
"""

FUNCTIONS, AXES = 24, 6
"""Most functions of a column that are looked at, and most attributes whose order is searched."""

Factors: TypeAlias = "dict[str, Operator]"


@dataclass(frozen=True, slots=True, eq=False)
class _Function:
    """A function of the cells of a column: what it says of each, and a cell for all it says."""

    labels: Integers
    first: NDArray[np.intp]

    @classmethod
    def of(cls, labels: Integers) -> _Function:
        """Return the function that says these of the cells (n,): all from zero to the largest."""
        return cls(labels, np.unique(labels, return_index=True)[1])

    @classmethod
    def joined(cls, *labels: Integers) -> _Function:
        """Return the function that says what all of these, (n,) each, do."""
        both = reduce(lambda a, b: np.unique(a * (b.max() + 1) + b, return_inverse=True)[1], labels)
        return cls.of(np.unique(both, return_inverse=True)[1].reshape(-1).astype(np.int64))

    @property
    def size(self) -> int:
        return len(self.first)

    def determines(self, other: _Function) -> bool:
        return np.array_equal(other.labels[self.first][self.labels], other.labels)


def split(layout: Layout) -> Layout:
    """Return the layout with columns of many classes as several attributes, where that fits.

    Source: HDMM, section 8 (domain reduction), applied to one function of a column at a time.
    """
    for name in layout.workload.attributes:
        layout = _split(layout, name) or layout
    return layout


def factors_over(factor: Operator, classes: Mapping[str, Integers]) -> Factors:
    """Return a factor of a column as factors over its attributes, none where it is none of these.

    ``classes`` (cells of the column,) are those of every attribute.
    """
    seen = _Function.joined(label_cells((factor,), factor.n, False))
    axes = {name: _Function.of(labels) for name, labels in classes.items()}
    return _factors(factor, seen, axes)


def is_splittable(layout: Layout, names: Iterable[str]) -> bool:
    """Say whether a search over all classes of some attribute of a column would be long."""
    sizes, attributes = layout.workload.domain, layout.workload.attributes
    for name in names:
        cells = layout.resolutions[name]
        count = len(layout.workload.factors[attributes.index(name)])
        is_plain = isinstance(cells, Cells) and cells.labels is None
        if is_plain and sizes[name] >= SPLIT_FROM and 2 <= count <= FUNCTIONS:
            return True
    return False


def _split(layout: Layout, name: str) -> Layout | None:
    workload, size = layout.workload, layout.workload.domain[name]
    factors = workload.factors[workload.attributes.index(name)]
    if name in workload.pinned or not is_splittable(layout, [name]):
        return None
    seen = [_Function.joined(label_cells((factor,), size, False)) for factor in factors]
    axes = _axes(size, seen, factors)
    if len(axes) < 2:
        return None
    names = [f"{name} ({i})" for i in range(1, len(axes) + 1)]
    named = dict(zip(names, axes, strict=True))
    parts = {f.key: _factors(f, s, named) for f, s in zip(factors, seen, strict=True)}
    if not _keeps_rows_together(layout, name, parts):
        return None
    return _replaced(layout, name, named, parts)


def _keeps_rows_together(layout: Layout, name: str, parts: Mapping[Hashable, Factors]) -> bool:
    """True if a statement's answers of one size have their rows on the same of these attributes.

    They may be columns of one result, whose covariances are row by row.
    """
    known: dict[tuple[int, int], frozenset[str]] = {}
    for (statement, _), reading in layout.products.items():
        for _, product in reading:
            factor = product.factors.get(name)
            if factor is not None and factor.rows > 1:
                found = parts[factor.key].items()
                keys = frozenset(each for each, part in found if part.rows > 1)
                if known.setdefault((statement, factor.rows), keys) != keys:
                    return False
    return True


def _axes(
    size: int, seen: Sequence[_Function], factors: Sequence[Operator]
) -> tuple[_Function, ...]:
    """Return the functions that become attributes, in an order in which every factor fits."""
    ordered = sorted(range(len(seen)), key=lambda i: seen[i].size)
    simple: list[_Function] = []
    products: list[int] = []
    for i in ordered:
        if _is_product(seen[i], simple):
            products.append(i)
        else:
            simple.append(seen[i])
    while True:
        axes = _independent(size, simple)
        for order in itertools.permutations(axes) if len(axes) <= AXES else ():
            named = {str(i): axis for i, axis in enumerate(order)}
            if all(_factors(factors[i], seen[i], named) for i in products):
                return order
        if not products:
            return ()
        simple.append(seen[products.pop()])


def _is_product(function: _Function, simple: Sequence[_Function]) -> bool:
    """Say whether a function says what some others do, all combinations of which occur."""
    inside = [each for each in simple if each.size > 1 and function.determines(each)]
    return len(inside) > 1 and math.prod(each.size for each in inside) == function.size


def _independent(size: int, simple: Sequence[_Function]) -> list[_Function]:
    """Return functions that together say as much, most combinations of which occur.

    Those that say one of two things are one function: ranges and single conditions. What another
    says as well needs no attribute.
    """
    ordered = sorted(simple, key=lambda each: -each.size)
    simple = [
        each
        for place, each in enumerate(ordered)
        if not any(other.determines(each) for other in ordered[:place])
    ]
    few = [each for each in simple if each.size <= 2]
    axes = [each for each in simple if each.size > 2]
    axes += [_Function.joined(*(each.labels for each in few))] if few else []
    while len(axes) > 1:
        near = min(itertools.combinations(axes, 2), key=_part_that_occurs)
        is_sparse = size < SPARSE * math.prod(each.size for each in axes)
        if _part_that_occurs(near) >= FULL and not is_sparse:
            break
        joined = _Function.joined(*(each.labels for each in near))
        axes = [each for each in axes if each not in near] + [joined]
    return axes


def _part_that_occurs(pair: tuple[_Function, _Function]) -> float:
    """Return the part of all combinations of two functions that occur."""
    one, other = pair
    both = one.labels * other.size + other.labels
    return len(np.unique(both)) / (one.size * other.size)


def _factors(factor: Operator, seen: _Function, axes: Mapping[str, _Function]) -> Factors:
    """Return a factor as factors over attributes, none where it is no product of such."""
    finer = [name for name, axis in axes.items() if axis.determines(seen)]
    if finer:
        name = min(finer, key=lambda each: axes[each].size)
        return {name: factor.take_columns(axes[name].first)}
    inside = {name: axis for name, axis in axes.items() if seen.determines(axis)}
    shape, rows = [axis.size for axis in inside.values()], _rows(factor)
    if rows is None or math.prod(shape) != factor.rows:
        return {}
    found: Factors = {}
    places = np.unravel_index(rows, shape)
    for (name, axis), place in zip(inside.items(), places, strict=True):
        if not np.array_equal(place[axis.first][axis.labels], place):
            return {}
        found[name] = grouped(place[axis.first], axis.size)
    return found


def _rows(factor: Operator) -> Integers | None:
    """Return the only row that every cell is in, None where that is not all that is asked."""
    if isinstance(factor, Identity):
        return np.arange(factor.n)
    if isinstance(factor, Groups):
        return factor.labels if factor.weights is None and factor.labels.min() >= 0 else None
    if not isinstance(factor, Dense) or not factor.integer or factor.matrix.min() < 0:
        return None
    return factor.matrix.argmax(axis=0) if (factor.matrix.sum(axis=0) == 1).all() else None


def _replaced(
    layout: Layout, name: str, axes: Mapping[str, _Function], parts: Mapping[Hashable, Factors]
) -> Layout:
    """Return the layout with attributes in place of a column."""
    workload, cells = layout.workload, layout.resolutions[name]
    assert isinstance(cells, Cells)
    (classes,) = cells.classes
    own = {key: cells_of(cells.columns[0], axis.labels[classes]) for key, axis in axes.items()}
    sizes = {key: axis.size for key, axis in axes.items()}
    domain: dict[str, int] = {}
    resolutions: dict[str, Resolution] = {}
    for each, size in workload.domain.items():
        domain.update(sizes if each == name else {each: size})
        resolutions.update(own if each == name else {each: layout.resolutions[each]})
    places = [(place, scale) for place, reading in layout.products.items() for scale, _ in reading]
    products = [
        _product(product, name, parts)
        for reading in layout.products.values()
        for _, product in reading
    ]
    settled = Workload(domain, products, pinned=workload.pinned)
    found: dict[Place, tuple[tuple[float, Product], ...]] = {}
    for (place, scale), product in zip(places, settled.products, strict=True):
        found[place] = (*found.get(place, ()), (scale, product))
    order = tuple(column for each in resolutions.values() for column in each.columns)
    padded = layout.padded or math.prod(sizes.values()) > workload.domain[name]
    return Layout(settled, resolutions, found, order, padded)


def _product(product: Product, name: str, parts: Mapping[Hashable, Factors]) -> Product:
    factors: Factors = {}
    for each, factor in product.factors.items():
        factors.update(parts[factor.key] if each == name else {each: factor})
    return Product(factors, product.weight)
