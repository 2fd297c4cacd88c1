"""Integer rows that can be measured: a Kronecker product, or rows on orbits of cells.

There are these two and no others, and a factor of a product is a matrix, the identity, a hierarchy
of intervals or sums that fade: plain integers, from which the membrane computes what is measured
and what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity
from dpsql.algebra.decayed_sums import Fading
from dpsql.algebra.levels import Levels, Structured
from dpsql.algebra.operator import Integers, Operator
from dpsql.algebra.orbits import Orbits
from dpsql.records import dataclass

Matrix: TypeAlias = Integers | Structured | None
"""Rows of one axis: a matrix of shape (rows, n), structured rows, or None for the identity."""

STRUCTURED: dict[str, type[Levels] | type[Fading]] = {"levels": Levels, "fading": Fading}
"""The kinds of structured rows there are, by name."""

CONSTANT = -1
"""The kind of an axis that is summed over every orbit; other kinds name the orbit resolved."""

MATRIX_LIMIT = 1 << 26
"""Largest explicit matrix (entries, half a GiB) that is written out for inspection."""


@dataclass(frozen=True, slots=True)
class KronRows:
    """A Kronecker product: per axis rows over n ``sizes``, None for the identity."""

    matrices: tuple[Matrix, ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of rows."""
        pairs = zip(self.matrices, self.sizes, strict=True)
        return math.prod(n if rows is None else rows.shape[0] for rows, n in pairs)

    @property
    def cells(self) -> int:
        """Return the number of cells that the rows are over."""
        return math.prod(self.sizes)

    @property
    def is_identity(self) -> bool:
        """Say whether the rows are the cells themselves."""
        return all(rows is None for rows in self.matrices)

    def factors(self, names: tuple[str, ...]) -> dict[Any, Any]:
        """Return the name of every axis to its rows."""
        return dict(zip(names, self.matrices, strict=True))


@dataclass(frozen=True, slots=True)
class OrbitPart:
    """Rows over one kind of component.

    ``kinds`` has per attribute CONSTANT, for sums over each orbit, or an orbit o, for the residual
    rows s I - J of its s cells. ``rows`` (r, K) are over the K tuples of orbits of the CONSTANT
    axes; each row is measured for every combination of residual rows.
    """

    kinds: tuple[int, ...]
    rows: Integers

    @property
    def constant(self) -> tuple[int, ...]:
        """Return the axes that are summed over orbits."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind == CONSTANT)

    @property
    def resolved(self) -> tuple[int, ...]:
        """Return the axes that are measured with residual rows."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind != CONSTANT)


@dataclass(frozen=True, slots=True)
class OrbitRows:
    """Rows that treat the cells of an orbit alike, part by part, over the orbits of every axis.

    Guarantee: ``sensitivity`` is the exact squared L2 norm of the largest column of ``apply``,
    in Python integers; all cells of an orbit tuple have equal columns.
    """

    orbits: tuple[Orbits, ...]
    parts: tuple[OrbitPart, ...]

    is_identity = False

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return sum(math.prod(self.shape(part)) for part in self.parts)

    @property
    def cells(self) -> int:
        """Return the number of cells that the rows are over."""
        return math.prod(orbits.n for orbits in self.orbits)

    def factors(self, names: tuple[str, ...]) -> dict[Any, Any]:
        """Return all names together to the rows over their cells, the first name slowest.

        Raises ValueError where these are too many to write out.
        """
        return {names: self.matrix()}

    def shape(self, part: OrbitPart) -> tuple[int, ...]:
        """Return (rows, cells of the resolved orbits, in the order of the axes)."""
        sizes = [int(self.orbits[i].sizes[part.kinds[i]]) for i in part.resolved]
        return (len(part.rows), *sizes)

    def column_norms(self) -> NDArray[Any]:
        """Return the squared L2 norm of the column of every orbit tuple, as Python integers."""
        shape = [len(orbits.sizes) for orbits in self.orbits]
        norms = np.zeros(shape, dtype=object)
        for part in self.parts:
            scale = 1
            for i in part.resolved:
                size = int(self.orbits[i].sizes[part.kinds[i]])
                scale *= size * (size - 1)
            where = tuple(slice(None) if kind == CONSTANT else kind for kind in part.kinds)
            columns = squared_columns(part.rows) * scale
            norms[where] += columns.reshape([shape[i] for i in part.constant] or ())
        return norms

    def sensitivity(self) -> int:
        """Return the largest squared L2 norm of a column."""
        return int(self.column_norms().max())

    def apply(self, counts: Integers) -> Integers:
        """Return all rows applied to a table of counts, flat; exact modulo 2^64.

        Args:
            counts: one axis per attribute, in order, of its cells.
        """
        tensor = counts
        for axis, orbits in enumerate(self.orbits):
            tensor = _split(tensor, axis, orbits)
        return np.concatenate([self._apply_part(part, tensor) for part in self.parts])

    def _apply_part(self, part: OrbitPart, tensor: Integers) -> Integers:
        where = tuple(slot(o, k) for o, k in zip(self.orbits, part.kinds, strict=True))
        chosen = tensor[where].transpose(*part.constant, *part.resolved)
        return np.asarray(part.rows @ chosen.reshape(part.rows.shape[1], -1)).reshape(-1)

    def matrix(self) -> Integers:
        """Return the explicit rows, shape (rows, cells), columns row-major over the axes.

        Raises ValueError where they exceed the limit.
        """
        if self.count * self.cells > MATRIX_LIMIT:
            raise ValueError(f"{self.count} rows over {self.cells} cells are too many to write out")
        shape = [orbits.n for orbits in self.orbits]
        unit = np.eye(self.cells, dtype=np.int64)
        return np.array([self.apply(cell.reshape(shape)) for cell in unit]).T


IntegerRows: TypeAlias = KronRows | OrbitRows


def operator_of(rows: Matrix, size: int) -> Operator:
    """Return rows over so many cells, an array of shape (rows, size) or structured, as an operator.

    None stands for the identity.
    """
    if rows is None:
        return Identity(size)
    return rows if isinstance(rows, Structured) else Dense(rows)


def structured_of(facts: Sequence[Any]) -> Structured:
    """Return the structured rows of such facts. Raises ValueError, KeyError or TypeError."""
    kind, size, first, second = facts
    return STRUCTURED[kind](size, tuple(first), tuple(second))


def largest_entry(rows: Integers | Structured) -> int:
    """Return the largest magnitude of an entry.

    Args:
        rows: (r, n) whole numbers, or structured rows.

    >>> largest_entry(np.array([[2, -3]])), largest_entry(Levels(2, (1, 2), (7, 5)))
    (3, 7)
    """
    return rows.largest if isinstance(rows, Structured) else int(np.abs(rows).max(initial=0))


def squared_columns(rows: Integers) -> NDArray[Any]:
    """Return the squared L2 norm of every column, as Python integers.

    ``rows`` has shape (r, n), the result (n,).

    >>> squared_columns(np.array([[1, 1 << 40], [2, 0]])).tolist()
    [5, 1208925819614629174706176]
    """
    largest = max(abs(int(rows.max(initial=0))), abs(int(rows.min(initial=0))))
    exact: NDArray[Any] = rows if largest**2 * len(rows) < 1 << 62 else rows.astype(object)
    return np.asarray((exact * exact).sum(axis=0)).astype(object)


def slot(orbits: Orbits, kind: int) -> slice:
    """Return where a kind lies on an axis [sum of every orbit, cells of every wide orbit].

    >>> slot(Orbits(np.array([0, 1, 1, 2, 2, 2])), 2)
    slice(5, 8, None)
    """
    count = len(orbits.sizes)
    if kind == CONSTANT:
        return slice(0, count)
    start = count + int(orbits.sizes[orbits.wide[orbits.wide < kind]].sum())
    return slice(start, start + int(orbits.sizes[kind]))


def wide_cells(orbits: Orbits) -> Integers:
    """Return the cells of the wide orbits, orbit by orbit."""
    return orbits.order[orbits.sizes[orbits.labels[orbits.order]] > 1]


def _split(tensor: Integers, axis: int, orbits: Orbits) -> Integers:
    """Return [sum of every orbit, s x - sum of the orbit for every cell of a wide orbit]."""
    sums = orbits.sums(tensor, axis)
    cells = wide_cells(orbits)
    if not len(cells):
        return sums
    own = orbits.labels[cells]
    scale = orbits.sizes[own].reshape((-1,) + (1,) * (tensor.ndim - axis - 1))
    inside = tensor.take(cells, axis) * scale - sums.take(own, axis)
    return np.concatenate([sums, inside], axis=axis)
