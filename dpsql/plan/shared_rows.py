"""Parts of a plan that measured the same rows, and the numbers that several of them know.

A part knows how many rows are in each of its cells. What two parts tell apart of a column has
coarser classes that both know, those that the cells of the two connect; a table over such classes
of several columns is known to both where the strategies of both support it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from dpsql.algebra.blocks import Identity
from dpsql.algebra.groups import grouped
from dpsql.algebra.operator import Integers, Operator
from dpsql.records import cached_property, dataclass
from dpsql.strategy.consistency_constraints import MOST_AGREED
from dpsql.strategy.joined import AgreeingStrategies, SharedNumbers
from dpsql.workload.cells import Cells, Nodes, Resolution
from dpsql.workload.workload import Product

if TYPE_CHECKING:
    from dpsql.relation.row_view import RowView
    from dpsql.strategy.base import Block, Forecast, Strategy

MOST_COLUMNS = 6
"""Most columns that two parts both tell apart, of which all sets are looked at."""

MOST_NUMBERS = 1 << 23
"""Numbers of one part times those that several know, 64 MiB."""

MOST_CELLS = 1 << 18
"""Most numbers that the estimate of a part has, for it to be estimated together with others."""

DISAGREE = (
    "sums of these answers may differ from those of other statements beside them: only small tables"
    " that several measurements tell are made to agree"
)
"""The note where parts have more in common than they agree on."""

Split: TypeAlias = "Integers | Nodes"
"""The class of every declared cell of a column, -1 for those in none; or the nodes of a measure."""


class MeasuredPart(Protocol):
    """A part as it is read: the rows that it is of, its cells, and what is measured of them."""

    @property
    def table(self) -> str:
        """The table."""

    @property
    def view(self) -> RowView | None:
        """The rows that count."""

    @property
    def rows_per_unit(self) -> int:
        """The rows that one privacy unit can contribute."""

    @property
    def units(self) -> bool:
        """True where privacy units are counted, not rows."""

    @property
    def resolutions(self) -> Mapping[str, Resolution]:
        """The way in which rows become the cells of every attribute."""

    @property
    def homes(self) -> Mapping[str, Sequence[str]]:
        """By column, the attributes that are made of its cells."""

    @property
    def strategy(self) -> Strategy:
        """The strategy that is measured."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the strategy."""

    @property
    def forecast(self) -> Forecast:
        """The errors of the part by itself."""


@dataclass(frozen=True)
class PartClasses:
    """The classes of cells that a part tells apart, column by column."""

    part: MeasuredPart

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """By column, the finest classes of which the part knows how many rows are in each.

        A column with attributes of several kinds is only summed over.
        """
        found: dict[str, Split] = {}
        for name, each in self.part.resolutions.items():
            if isinstance(each, Nodes):
                found[name] = each
            elif isinstance(each, Cells) and not (each.leaves_out and len(each.columns) > 1):
                for column in each.columns:
                    if len(self.part.homes[column]) == 1:
                        found[column] = _split_of(each, column)
        return found

    @cached_property
    def needed(self) -> frozenset[str] | None:
        """The columns of which some rows are in no cell; None where what is left is not told."""
        found = set()
        for name, each in self.part.resolutions.items():
            if each.leaves_out:
                key = name if isinstance(each, Nodes) else each.columns[0]
                if key not in self.splits:
                    return None
                found.add(key)
        return frozenset(found)

    def told(self, wanted: Mapping[str, Split]) -> SharedNumbers | None:
        """The sums by which a part tells a table over classes; None where it does not."""
        if self.needed is None or not self.splits.keys() >= wanted.keys() >= self.needed:
            return None
        factors: dict[str, Operator] = {}
        columns: list[str] = []
        for name in self.part.strategy.domain:
            each = self.part.resolutions.get(name)
            own = () if each is None else (name,) if isinstance(each, Nodes) else each.columns
            here = [column for column in own if column in wanted]
            if each is None or not here:
                continue
            factor = _factor(each, {column: wanted[column] for column in here})
            if factor is None:
                return None
            factors[name] = factor
            columns += here
        product = Product(factors)
        if len(columns) < len(wanted) or not self.part.forecast.supports(product):
            return None
        sizes = [_size(wanted[column]) for column in columns]
        places = np.arange(math.prod(sizes)).reshape(sizes)
        order = places.transpose([columns.index(column) for column in sorted(columns)]).ravel()
        return SharedNumbers(product, tuple(order.tolist()))


def _split_of(cells: Cells, column: str) -> Integers:
    """The classes of a column that no cell of several columns brings together."""
    axis = cells.columns.index(column)
    classes = cells.classes[axis]
    if cells.labels is None:
        return classes
    labels = cells.labels
    own = np.broadcast_to(
        np.arange(labels.shape[axis]).reshape(-1, *(1,) * (labels.ndim - axis - 1)), labels.shape
    )
    merged, _ = _connected(own.ravel(), labels.ravel(), labels.shape[axis])
    return np.where(classes < 0, -1, merged[np.maximum(classes, 0)])


def _connected(left: Integers, right: Integers, count: int) -> tuple[Integers, int]:
    """The component of each of ``count`` left places, in order, by pairs of left and right."""
    labels, before = np.arange(count), None
    while before is None or not np.array_equal(labels, before):
        before = labels.copy()
        least = np.full(int(right.max(initial=0)) + 1, count)
        np.minimum.at(least, right, before[left])
        np.minimum.at(labels, left, least[right])
    _, found = np.unique(labels, return_inverse=True)
    return found.astype(np.int64), int(found.max(initial=-1)) + 1


def _common(one: Split, other: Split) -> Split | None:
    """The finest classes that both know; None where there are none."""
    if isinstance(one, Nodes) or isinstance(other, Nodes):
        is_same = isinstance(one, Nodes) and isinstance(other, Nodes) and one == other
        return one if is_same else None
    if len(one) != len(other):
        return None
    merged, _ = _connected(one + 1, other + 1, int(one.max(initial=0)) + 2)
    found = merged[one + 1]
    outside = np.unique(found[(one < 0) | (other < 0)])
    kept = [each for each in np.unique(found).tolist() if each not in set(outside.tolist())]
    if not kept:
        return None
    labels = np.full(int(found.max()) + 1, -1)
    labels[kept] = np.arange(len(kept))
    return np.asarray(labels[found], dtype=np.int64)


def _size(split: Split) -> int:
    return split.size if isinstance(split, Nodes) else int(split.max()) + 1


def _factor(resolution: Resolution, wanted: Mapping[str, Split]) -> Operator | None:
    """Rows that count the classes of columns by the cells of their attribute."""
    if isinstance(resolution, Nodes):
        return Identity(resolution.size) if [*wanted.values()] == [resolution] else None
    if not isinstance(resolution, Cells) or any(isinstance(s, Nodes) for s in wanted.values()):
        return None
    index: Integers = np.zeros(resolution.size, dtype=np.int64)
    inside = np.ones(resolution.size, dtype=np.bool_)
    for column, split in wanted.items():
        found = _by_cell(resolution, column, np.asarray(split))
        if found is None:
            return None
        index = index * _size(split) + found
        inside &= found >= 0
    count = math.prod(_size(split) for split in wanted.values())
    return grouped(np.where(inside, index, -1), count)


def _by_cell(cells: Cells, column: str, split: Integers) -> Integers | None:
    """The class of every cell; None where one has rows of several, or none has rows that count."""
    axis = cells.columns.index(column)
    classes = cells.classes[axis]
    if len(classes) != len(split) or (split[classes < 0] >= 0).any():
        return None
    kept = classes >= 0
    by_class = np.full(int(classes.max(initial=-1)) + 1, -1)
    by_class[classes[kept]] = split[kept]
    if not np.array_equal(by_class[classes[kept]], split[kept]):
        return None
    if cells.labels is None:
        return by_class
    labels = cells.labels
    own = np.broadcast_to(by_class.reshape(-1, *(1,) * (labels.ndim - axis - 1)), labels.shape)
    found = np.full(cells.size, -1)
    found[labels.ravel()] = own.ravel()
    return found if np.array_equal(found[labels], own) else None


def joined(parts: Sequence[MeasuredPart]) -> AgreeingStrategies | None:
    """Return parts of a plan with what they have in common; None where that is nothing."""
    found = [
        {place: told[place] for place in sorted(told)}
        for knowers, _ in _by_rows(parts)
        if len(knowers) > 1
        for _, told in _shared(knowers)
    ]
    if not found:
        return None
    forecasts: list[Forecast] = [part.forecast for part in parts]
    return AgreeingStrategies(forecasts, found)


def unagreed(parts: Sequence[MeasuredPart]) -> frozenset[int]:
    """Return the places of parts that know more in common with others than they agree on."""
    found: set[int] = set()
    for knowers, large in _by_rows(parts):
        if large and len(knowers) + len(large) > 1:
            found |= {*knowers, *large}
            continue
        agreed = _shared(knowers) if len(knowers) > 1 else []
        for one, other in combinations(knowers, 2):
            for wanted, _, _ in _tables(knowers[one], knowers[other], MOST_CELLS):
                both = {one, other}
                if not any(both <= by.keys() and _implies(each, wanted) for each, by in agreed):
                    found |= both
    return frozenset(found)


def _by_rows(
    parts: Sequence[MeasuredPart],
) -> Iterator[tuple[dict[int, PartClasses], list[int]]]:
    """Yield the parts of the same rows: those that are estimated together, and too large ones."""
    found: dict[Hashable, tuple[dict[int, PartClasses], list[int]]] = {}
    for place, part in enumerate(parts):
        if not part.units:
            view = None if part.view is None else part.view.facts
            knowers, large = found.setdefault((part.table, view, part.rows_per_unit), ({}, []))
            if sum(block.estimated for block in part.blocks) <= MOST_CELLS:
                knowers[place] = PartClasses(part)
            else:
                large.append(place)
    yield from found.values()


Table: TypeAlias = tuple[Mapping[str, Split], dict[int, SharedNumbers]]
"""The classes of the columns of a table, and its numbers as each of several parts tells them."""


def _shared(knowers: Mapping[int, PartClasses]) -> list[Table]:
    """The tables that several parts know, small ones first, as many as there is room for."""
    known: dict[Hashable, Table] = {}
    for one, other in combinations(knowers, 2):
        for wanted, ours, theirs in _tables(knowers[one], knowers[other], MOST_AGREED):
            key = tuple((name, _key(wanted[name])) for name in sorted(wanted))
            known.setdefault(key, (wanted, {}))[1].update({one: ours, other: theirs})
    tables = sorted(known.values(), key=lambda each: len(next(iter(each[1].values())).order))
    out: list[Table] = []
    most = max(sum(b.estimated for b in each.part.blocks) for each in knowers.values())
    room = min(MOST_AGREED, MOST_NUMBERS // most)
    for at, (wanted, told) in enumerate(tables):
        finer = [other for other, by in tables[at + 1 :] if told.keys() <= by.keys()]
        if any(_implies(each, wanted) for each in finer):
            continue
        room -= (len(told) - 1) * len(next(iter(told.values())).order)
        if room < 0:
            break
        out.append((wanted, told))
    return out


def _tables(
    one: PartClasses, other: PartClasses, most: int
) -> Iterator[tuple[Mapping[str, Split], SharedNumbers, SharedNumbers]]:
    """Yield the finest tables of at ``most`` so many numbers that two parts both know."""
    if one.needed is None or other.needed is None:
        return
    common: dict[str, Split] = {}
    for column in one.splits.keys() & other.splits.keys():
        split = _common(one.splits[column], other.splits[column])
        if split is not None:
            common[column] = split
    needed = one.needed | other.needed
    needed |= {name for name, split in common.items() if _leaves_out(split)}
    if not needed <= common.keys():
        return
    free = sorted(n for n in common.keys() - needed if _size(common[n]) > 1)
    sizes = range(len(free), -1, -1) if len(free) <= MOST_COLUMNS else (len(free), 1, 0)
    found: list[set[str]] = []
    for size in sizes:
        for names in combinations(free, size):
            if any(set(names) <= each for each in found):
                continue
            wanted = {name: common[name] for name in sorted({*names, *needed})}
            if math.prod(_size(each) for each in wanted.values()) > most:
                continue
            ours = one.told(wanted)
            theirs = None if ours is None else other.told(wanted)
            if ours is not None and theirs is not None:
                found.append(set(names))
                yield wanted, ours, theirs


def _implies(finer: Mapping[str, Split], coarser: Mapping[str, Split]) -> bool:
    """True where a table has another as sums of its numbers, of all columns that it has besides."""
    if not finer.keys() >= coarser.keys():
        return False
    for name, split in finer.items():
        other = coarser.get(name)
        if other is None:
            if _leaves_out(split):
                return False
        elif _key(split) != _key(other):
            return False
    return True


def _leaves_out(split: Split) -> bool:
    return split.leaves_out if isinstance(split, Nodes) else bool((split < 0).any())


def _key(split: Split) -> Hashable:
    return split if isinstance(split, Nodes) else split.tobytes()
