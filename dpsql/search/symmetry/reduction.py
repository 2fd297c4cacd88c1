"""A workload reduced by the symmetry of its cells: one small Gram matrix per kind of component."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpsql.algebra.blocks import Identity, IdentityTotal, Total
from dpsql.algebra.integer_rows import CONSTANT
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.algebra.orbits import Orbits, find_orbits
from dpsql.records import dataclass, field
from dpsql.workload.workload import Workload

SYMMETRIC = (Identity, IdentityTotal, Total)
"""Operators that treat all cells alike."""


@dataclass(frozen=True, slots=True)
class Component:
    """The copies of one irreducible part of the workload Gram matrix.

    ``kinds`` has per attribute CONSTANT or the orbit whose differences are asked. ``gram`` is
    (K, K) over the orbit tuples ``where`` (flat positions in the grid of orbit tuples), in
    orthonormal coordinates, and occurs ``copies`` times in the full Gram matrix.
    """

    kinds: tuple[int, ...]
    gram: Floats
    where: Integers
    copies: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """Attributes whose Gram matrix does not factor, with its components.

    ``cells`` counts the cells of every orbit tuple, flat and row-major over the orbits.
    """

    names: tuple[str, ...]
    orbits: tuple[Orbits, ...]
    cells: Floats
    components: tuple[Component, ...]

    def room(self) -> Floats:
        """Return per orbit tuple the multiple of the identity whose columns have unit norm."""
        met = np.zeros(len(self.cells))
        for component in self.components:
            met[component.where] += component.copies
        return np.asarray(self.cells / np.maximum(met, 1.0))


@dataclass(frozen=True, slots=True)
class _FactorTables:
    """Factor tables of one attribute, the last entry for Total."""

    orbits: Orbits
    constant: Floats
    inside: Floats

    @classmethod
    def read(cls, orbits: Orbits, operators: Sequence[Operator]) -> _FactorTables:
        k, roots = len(orbits.sizes), np.sqrt(orbits.sizes)
        constant = np.ones((len(operators) + 1, k, k))
        inside = np.zeros((len(operators) + 1, len(orbits.wide)))
        for f, operator in enumerate(operators):
            constant[f], inside[f] = orbits.gram_parts(operator.gram())
        constant *= np.multiply.outer(roots, roots)
        return cls(orbits, constant, inside / (orbits.sizes[orbits.wide] - 1))


def groups(workload: Workload) -> list[list[int]]:
    """Return the active attributes, those with one factor in every product each on their own.

    The optimum of a Kronecker product of Gram matrices is the product of the optima.
    """
    active = [i for i, factors in enumerate(workload.factors) if factors]
    alone = [i for i in active if is_constant(workload, [i])]
    rest = [i for i in active if i not in alone]
    return ([rest] if rest else []) + [[i] for i in alone]


def is_constant(workload: Workload, axes: Sequence[int]) -> bool:
    """Say whether every product has the same factors on some attributes."""
    return bool((workload.index[:, axes] == workload.index[0, axes]).all())


def orbits_of(workload: Workload, axes: Sequence[int]) -> tuple[Orbits, ...]:
    """Return the orbits of some attributes."""
    return tuple(
        find_orbits(_context_grams(workload, i), workload.domain[workload.attributes[i]])
        for i in axes
    )


def _context_grams(workload: Workload, axis: int) -> Iterator[Floats]:
    """Yield the distinct Gram matrices that meet one and the same rest of a product.

    Rows that are asked one by one are as symmetric as when they are asked together.
    """
    factors = workload.factors[axis]
    others = np.delete(workload.index, axis, axis=1)
    _, context = np.unique(others, axis=0, return_inverse=True)
    order = np.argsort(context.reshape(-1), kind="stable")
    bounds = np.flatnonzero(np.diff(context.reshape(-1)[order])) + 1
    known: set[tuple[tuple[int, float], ...]] = set()
    for members in np.split(order, bounds):
        own = workload.index[members, axis].tolist()
        weights = workload.weights2[members]
        asked = sorted(zip(own, weights.tolist(), strict=True))
        parts = [(f, w) for f, w in asked if f >= 0 and not isinstance(factors[f], SYMMETRIC)]
        key = tuple((f, w / parts[0][1]) for f, w in parts)
        if key and key not in known:
            known.add(key)
            yield np.asarray(sum(w * factors[f].gram() for f, w in key))


def size_of(orbits: Sequence[Orbits]) -> tuple[int, float]:
    """Return the number of orbit tuples, and the sum of K^3 over all components.

    >>> size_of([Orbits(np.array([0, 0])), Orbits(np.array([0, 1, 1]))])
    (2, 18.0)
    """
    work = math.prod(float(len(o.sizes)) ** 3 + len(o.wide) for o in orbits)
    return math.prod(len(o.sizes) for o in orbits), work


def reduce_group(
    workload: Workload, axes: Sequence[int], orbits: tuple[Orbits, ...], weights: Floats
) -> Reduction:
    """Return the components of sum_j w_j (x)_i G_ij over some attributes.

    Args:
        axes: the places of the attributes.
        orbits: of the cells of each.
        weights: (j,) one per merged product of the workload.
    """
    tables = [_FactorTables.read(o, workload.factors[i]) for o, i in zip(orbits, axes, strict=True)]
    index = workload.index[:, axes]
    index = np.where(index < 0, [len(workload.factors[i]) for i in axes], index)
    names = tuple(workload.attributes[i] for i in axes)
    cells = np.ones(1)
    for o in orbits:
        cells = np.multiply.outer(cells, o.sizes).reshape(-1)
    found = tuple(_Builder(tables, orbits).components(index, weights))
    return Reduction(names, orbits, cells, found)


@dataclass(frozen=True, slots=True)
class _Builder:
    tables: Sequence[_FactorTables]
    orbits: tuple[Orbits, ...]
    grid: Integers = field(init=False)

    def __post_init__(self) -> None:
        shape = [len(o.sizes) for o in self.orbits]
        grid = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
        object.__setattr__(self, "grid", grid)

    def components(self, index: Integers, weights: Floats) -> Iterator[Component]:
        """Yield the components that some product asks for."""
        choices = [[CONSTANT, *o.wide.tolist()] for o in self.orbits]
        for kinds in itertools.product(*choices):
            scale, copies = weights.copy(), 1
            for i, kind in enumerate(kinds):
                if kind != CONSTANT:
                    place = int(np.searchsorted(self.orbits[i].wide, kind))
                    scale *= self.tables[i].inside[index[:, i], place]
                    copies *= int(self.orbits[i].sizes[kind]) - 1
            asked = scale > 0
            if asked.any():
                gram = self._gram(kinds, index[asked], scale[asked])
                if np.trace(gram) > 0:
                    yield Component(kinds, gram, self._where(kinds), copies)

    def _gram(self, kinds: tuple[int, ...], index: Integers, weights: Floats) -> Floats:
        axes = [i for i, kind in enumerate(kinds) if kind == CONSTANT]
        return _fold([self.tables[i].constant for i in axes], index[:, axes], weights)

    def _where(self, kinds: tuple[int, ...]) -> Integers:
        chosen = tuple(slice(None) if kind == CONSTANT else kind for kind in kinds)
        return np.asarray(self.grid[chosen]).reshape(-1)


def _fold(tables: Sequence[Floats], index: Integers, weights: Floats) -> Floats:
    """Return sum_j w_j kron_i tables[i][index[j, i]]."""
    if not tables:
        return np.full((1, 1), weights.sum())
    first, rest = tables[0], tables[1:]
    if not rest:
        totals = np.bincount(index[:, 0], weights, minlength=len(first))
        return np.asarray(np.tensordot(totals, first, axes=1))
    parts = []
    for f in np.unique(index[:, 0]):
        chosen = index[:, 0] == f
        parts.append(np.kron(first[f], _fold(rest, index[chosen, 1:], weights[chosen])))
    return np.asarray(sum(parts))
