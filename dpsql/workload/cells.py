"""Maps from the rows of a table to the cells of one attribute of a strategy.

``Cells`` partitions the rows: every row is in one cell or in none. ``Nodes`` spreads the value of
a row over two or three neighbouring nodes with whole, non-negative weights that always sum to the
same total, so that sums of values are counts of nodes: one row moves a vertex of a simplex at most.
``Unions`` are groups of cells that may share cells: for counts of privacy units, which do not add
up.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Integers
from dpsql.records import cached_property, dataclass, replace

MOST_STEPS = 1 << 53
"""Most whole steps of a column: doubles tell them apart."""

LONG_CONTENT = 1 << 12
"""Bytes of an array above which a digest stands for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Merging:
    """The map from the n cells of a column to classes of merged cells.

    ``first`` (classes,) is the first cell of each class, ``spread`` (n,) that of the class which a
    cell is in, and ``outside`` (m,) are the cells in none. Where ``is_whole``, each is a class.
    Equal ``content`` is the same merging.
    """

    first: Integers
    spread: Integers
    outside: Integers
    is_whole: bool
    content: bytes


def merging_of(classes: Integers) -> Merging:
    """Return how cells are merged; ``classes`` (n,) has the class of each, -1 for none."""
    kept = np.flatnonzero(classes >= 0)
    first = kept[np.unique(classes[kept], return_index=True)[1]]
    spread = np.zeros_like(classes)
    spread[kept] = first[classes[kept]]
    is_whole = np.array_equal(classes, np.arange(classes.size))
    return Merging(first, spread, np.flatnonzero(classes < 0), is_whole, _content(classes))


def _content(array: Integers) -> bytes:
    """Return what equal arrays of whole numbers have in common: all of them, or a digest."""
    content = np.ascontiguousarray(array, dtype=np.int64).tobytes()
    short = content if len(content) <= LONG_CONTENT else hashlib.sha256(content).digest()
    return repr(array.shape).encode() + short


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows by the cells of one column, or of several columns together.

    ``classes[i]`` has one entry per declared cell of ``columns[i]``: its class, or -1 for "in no
    cell". With several columns, ``labels`` has one axis per column and gives the cell of every
    combination of classes, or -1.
    """

    columns: tuple[str, ...]
    classes: tuple[Integers, ...]
    labels: Integers | None = None

    @cached_property
    def size(self) -> int:
        """The number of cells."""
        found = self.classes[0] if self.labels is None else self.labels
        return int(found.max(initial=-1)) + 1

    @property
    def overlap(self) -> int:
        """The most cells that one row is in."""
        return 1

    @cached_property
    def leaves_out(self) -> bool:
        """True if some rows are in no cell."""
        return any(bool((each < 0).any()) for each in self.arrays())

    @cached_property
    def mergings(self) -> Mapping[str, Merging]:
        """The merging of the cells of each column, by its name."""
        pairs = zip(self.columns, self.classes, strict=True)
        return {column: merging_of(classes) for column, classes in pairs}

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts beside the arrays."""
        return ("cells", self.columns)

    def arrays(self) -> tuple[Integers, ...]:
        """The arrays that identify the cells, for digests and storage."""
        return self.classes if self.labels is None else (*self.classes, self.labels)

    def __eq__(self, other: object) -> bool:
        """Say whether every row falls in the same cell."""
        return self is other or (
            isinstance(other, Cells)
            and self.columns == other.columns
            and self._contents == other._contents
        )

    def __hash__(self) -> int:
        return hash(self.facts)

    @cached_property
    def _contents(self) -> tuple[bytes, ...]:
        return tuple(map(_content, self.arrays()))


@dataclass(frozen=True, slots=True, eq=False)
class Unions:
    """Privacy units by unions of cells: a unit is in every union that has a cell of its rows.

    ``members[j, k]`` says whether union j has cell k. Unions may share cells, so they are no
    partition: only units are counted in this way, once in every union.
    """

    cells: Cells
    members: NDArray[np.bool_]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the cells."""
        return self.cells.columns

    @property
    def size(self) -> int:
        """The number of unions."""
        return len(self.members)

    @property
    def overlap(self) -> int:
        """The most unions that share one cell: how many one row may bring its unit into."""
        return max(1, int(self.members.sum(axis=0).max(initial=0)))

    @property
    def leaves_out(self) -> bool:
        """True if some rows are in no union."""
        return self.cells.leaves_out or not bool(self.members.any(axis=0).all())

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts beside the arrays."""
        return ("unions", self.columns)

    def arrays(self) -> tuple[Integers, ...]:
        """The arrays that identify the unions, for digests and storage."""
        return (*self.cells.arrays(), self.members.astype(np.int64))

    def __eq__(self, other: object) -> bool:
        """Say whether every unit falls in the same unions."""
        return (
            isinstance(other, Unions)
            and self.cells == other.cells
            and np.array_equal(self.members, other.members)
        )

    def __hash__(self) -> int:
        return hash(self.facts)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Rows by the value of one number column, spread over nodes: the Bernstein basis.

    Degree 1 has two nodes per interval, with weights 1-w and w; degree 2 has three, with weights
    (1-w)^2, 2w(1-w) and w^2; w in [0, 1] is the place of the value in its interval. There is one
    interval for a measure with bounds or a range of integers; of a binned column one per bin, or
    one from each of the bins ``starts`` to the next, where no answer tells the bins between apart.
    Nodes come interval by interval, then the cells of ``others``: one entry for the ``other`` cell
    and one for NULL, where they are declared, gives the place of its cell after the nodes; -1
    leaves such rows out. A measure with bounds may be clipped to narrower ones, ``low`` to
    ``high``. With ``steps`` w is one of so many whole steps from end to end, 0 for real numbers.
    Weights are whole numbers whose sum is that of the block: see ``dpsql.workload.weights``.
    A positive ``grid`` is that of a release of before: w was rounded to multiples of 1/``grid``,
    and weights were the products of those, ``grid`` to the power of the degree in all.
    Guarantee: the weights of a row are non-negative and sum to a public number, or it has none: it
    moves any linear rows over the nodes by at most that times their largest column norm.
    Source: Wu et al. 2019; the K-norm mechanism of Hardt and Talwar 2010 on the square.
    """

    column: str
    degree: int
    intervals: int
    steps: int = 0
    others: tuple[int, ...] = ()
    low: Fraction | None = None
    high: Fraction | None = None
    starts: tuple[int, ...] = ()
    grid: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (self.column,)

    @property
    def size(self) -> int:
        """The number of nodes and other cells."""
        return self.intervals * (self.degree + 1) + max(self.others, default=-1) + 1

    @property
    def leaves_out(self) -> bool:
        """True if some rows are in no cell."""
        return any(other < 0 for other in self.others)

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts, all there are: there are no arrays."""
        clipped = [None if each is None else str(each) for each in (self.low, self.high)]
        kind, steps = ("nodes", self.grid) if self.grid else ("moments", self.steps)
        return (
            *(kind, self.column, self.degree, self.intervals, steps),
            *(self.others, *clipped, *((self.starts,) if self.starts else ())),
        )

    def arrays(self) -> tuple[Integers, ...]:
        """The empty tuple: nodes have no arrays for digests and storage."""
        return ()


@dataclass(frozen=True, slots=True)
class Steps:
    """Rows by the public levels that the value of a bounded measure lies between.

    Cell i has the values above ``levels[i - 1]`` and not above ``levels[i]``; the first cell has
    all lower ones, the last all higher ones. NULL is in no cell. Levels increase.
    """

    column: str
    levels: tuple[Fraction, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (self.column,)

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.levels)

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts, all there are: there are no arrays."""
        return ("steps", self.column, *map(str, self.levels))

    def arrays(self) -> tuple[Integers, ...]:
        """The empty tuple: steps have no arrays for digests."""
        return ()


Resolution: TypeAlias = Cells | Nodes | Unions

AnyResolution: TypeAlias = Cells | Nodes | Unions | Steps


def cells_of(column: str, classes: Integers) -> Cells:
    """The cells of one column.

    ``classes`` (cells of the domain,) gives the cell that each is merged into, -1 for none.

    >>> cells_of("age", np.array([0, 0, 1, -1])).size
    2
    """
    return Cells((column,), (classes,))


def unit_reach(resolutions: Sequence[Resolution], rows: int) -> int:
    """The most cells or unions of a block that one privacy unit of so many rows is in.

    It is the L1 and the squared L2 sensitivity of the numbers of units, which change by one each.

    >>> ranges = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
    >>> cells = cells_of("year", np.arange(2))
    >>> unit_reach([cells], 5), unit_reach([Unions(cells, ranges)], 1)
    (2, 2)
    """
    overlap = math.prod(1 if isinstance(each, Nodes) else each.overlap for each in resolutions)
    return min(rows * overlap, math.prod(each.size for each in resolutions))


def resolution_bytes(resolutions: Mapping[str, Resolution]) -> list[bytes]:
    """Return what attributes are made of, in their order, for a digest."""
    found = []
    for name, resolution in resolutions.items():
        arrays = map(np.ascontiguousarray, resolution.arrays())
        found += [repr((name, resolution.facts)).encode(), *(each.tobytes() for each in arrays)]
    return found


def encode_resolution(resolution: Resolution, keep: Callable[[Integers], str]) -> list[Any]:
    """Return plain facts that describe a resolution; ``keep`` stores an array by name.

    Args:
        resolution: of one attribute.
        keep: stores an array of classes, (cells of the domain,), and returns its name.
    """
    return [list(resolution.facts), [keep(each) for each in resolution.arrays()]]


def decode_resolution(stored: Sequence[Any], arrays: Mapping[str, Integers]) -> Resolution:
    """Return the resolution that ``encode_resolution`` described.

    ``arrays`` hold the classes (cells of a domain,) of each attribute, by name.
    Raises ValueError, KeyError or TypeError for anything else.
    """
    (kind, *facts), names = stored
    if kind == "cells":
        return _decode_cells(facts, names, arrays)
    if kind == "unions":
        return Unions(_decode_cells(facts, names[:-1], arrays), arrays[names[-1]].astype(np.bool_))
    column, degree, intervals, steps, others, low, high, *starts = facts
    least, most = (None if each is None else Fraction(each) for each in (low, high))
    merged = tuple(starts[0]) if starts else ()
    found = Nodes(column, degree, intervals, 0, tuple(others), least, most, merged)
    return replace(found, **{{"nodes": "grid", "moments": "steps"}[kind]: steps})


def _decode_cells(
    facts: Sequence[Any], names: Sequence[str], arrays: Mapping[str, Integers]
) -> Cells:
    columns, found = tuple(facts[0]), [arrays[name] for name in names]
    labels = found[len(columns)] if len(found) > len(columns) else None
    return Cells(columns, tuple(found[: len(columns)]), labels)
