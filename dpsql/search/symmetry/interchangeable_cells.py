"""The exact Gaussian optimum of workloads with interchangeable cells, as an integer strategy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import CONSTANT, OrbitPart, OrbitRows
from dpsql.algebra.operator import Floats, Integers
from dpsql.algebra.orbits import Orbits
from dpsql.records import dataclass
from dpsql.search.problem import ALIVE
from dpsql.search.symmetry.invariant_strategy import InvariantStrategy, optimise
from dpsql.search.symmetry.reduction import (
    Reduction,
    groups,
    is_constant,
    orbits_of,
    reduce_group,
    size_of,
)
from dpsql.search.work_limit import has_room
from dpsql.strategy.symmetric import OrbitBlock, SymmetricStrategy
from dpsql.strategy.symmetric_forecast import invert
from dpsql.workload.workload import Workload

COPIES = 6
"""Arrays of all cells that are alive at once."""

TUPLES_LIMIT = 4096
"""Largest number of orbit tuples of a strategy: rows on all of them take 128 MiB."""

WORK_LIMIT = 4e8
"""Largest sum of K^3 over all components of size K, at effort 1: multiplications of one step.

The census workload has 9e7 and takes 8 s; beyond the limit minutes.
"""

STEPS = 40, 200
"""Fewest and most steps; small problems are solved more tightly."""

AXIS_LIMIT = 2048
"""Largest number of cells of one attribute: orbits are found on Grams of 32 MiB each."""

CELLS_LIMIT = 1 << 23
"""Largest number of cells of a strategy: its estimate is one table of them all, 64 MiB."""

BITS = 14
"""Significant bits of the smallest column of a part."""

FILL = 2.0**-14
"""Part of the sensitivity that keeps every part of full rank when it is rounded."""

ENTRY_LIMIT = 1 << 28
"""Largest entry of a quantised row."""


@dataclass(frozen=True, slots=True)
class SymmetricOptimum:
    """A strategy, and bounds on the least unit-noise error of any strategy of unit L2 norm."""

    strategy: SymmetricStrategy
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class _Solved:
    """The solution over some attributes, by their positions in the strategy."""

    axes: tuple[int, ...]
    reduction: Reduction
    found: InvariantStrategy


def fits(workload: Workload, effort: float = 1.0, cells: int = CELLS_LIMIT) -> bool:
    """Say whether the reduced problem is small enough, without solving it.

    Args:
        effort: scales the work that is allowed.
        cells: most cells of all attributes together.
    """
    return _plan(workload, effort, cells) is not None


def symmetric_optimum(
    workload: Workload, effort: float = 1.0, *, tol: float = 3e-5, cells: int = CELLS_LIMIT
) -> SymmetricOptimum | None:
    """Return the integer strategy next to the optimum, None where the workload does not fit.

    Attributes with one factor in every product are solved on their own; the others together on
    the components of their symmetry.

    Args:
        effort: scales the work that is allowed.
        tol: relative gap to the bound.
        cells: most cells of all attributes together.
    """
    plan = _plan(workload, effort, cells)
    if plan is None:
        return None
    try:
        return _solve(workload, plan, effort, tol)
    except np.linalg.LinAlgError:
        return None


def _solve(
    workload: Workload, plan: list[tuple[list[int], tuple[Orbits, ...]]], effort: float, tol: float
) -> SymmetricOptimum | None:
    apart = [is_constant(workload, axes) for axes, _ in plan]
    scale = float(workload.weights2.sum()) if all(apart) else 1.0
    names = [a for a, f in zip(workload.attributes, workload.factors, strict=True) if f]
    solved, lower, upper = [], scale, scale
    for (axes, orbits), alone in zip(plan, apart, strict=True):
        weights = np.eye(1, len(workload.weights2))[0] if alone else workload.weights2
        reduction = reduce_group(workload, axes, orbits, weights)
        if not reduction.components:
            return None
        steps = WORK_LIMIT * effort / size_of(orbits)[1] * STEPS[0]
        found = optimise(reduction, tol=tol, maxiter=int(np.clip(steps, *STEPS)))
        places = tuple(names.index(name) for name in reduction.names)
        solved.append(_Solved(places, reduction, found))
        lower, upper = lower * found.lower, upper * found.upper
    block = _realise(tuple(names), solved)
    if block is None:
        return None
    return SymmetricOptimum(SymmetricStrategy(workload.domain, (block,)), lower, upper)


def _plan(
    workload: Workload, effort: float, cells: int
) -> list[tuple[list[int], tuple[Orbits, ...]]] | None:
    """Return the groups of attributes and their orbits, None where there are too many of them."""
    sizes = [workload.domain[workload.attributes[i]] for axes in groups(workload) for i in axes]
    if not sizes or max(sizes) > AXIS_LIMIT or math.prod(sizes) > cells:
        return None
    plan = [(axes, orbits_of(workload, axes)) for axes in groups(workload)]
    tuples, _ = size_of([orbits for _, group in plan for orbits in group])
    work = sum(size_of(group)[1] for _, group in plan)
    if tuples > TUPLES_LIMIT or work > WORK_LIMIT * effort:
        return None
    return plan if has_room(8 * (ALIVE * tuples**2 + COPIES * math.prod(sizes))) else None


def _realise(names: tuple[str, ...], solved: Sequence[_Solved]) -> OrbitBlock | None:
    """Return integer rows near the solution, None where no grid keeps them independent."""
    orbits: list[Orbits] = [Orbits(np.zeros(1, dtype=np.int64))] * len(names)
    for group in solved:
        for axis, own in zip(group.axes, group.reduction.orbits, strict=True):
            orbits[axis] = own
    parts = list(_combined(solved, orbits))
    smallest = min(float(np.square(rows).sum(axis=0).min()) for _, rows in parts) ** 0.5
    largest = max(float(np.abs(rows).max()) for _, rows in parts)
    grid = min(2.0**BITS / smallest, ENTRY_LIMIT / largest)
    while grid * largest <= ENTRY_LIMIT:
        found = tuple(OrbitPart(kinds, _rounded(grid * rows)) for kinds, rows in parts)
        if all(_independent(part, orbits) for part in found):
            return OrbitBlock(names, OrbitRows(tuple(orbits), found))
        grid *= 2
    return None


def _rounded(rows: Floats) -> Integers:
    integers = np.rint(rows).astype(np.int64)
    return np.ascontiguousarray(integers[integers.any(axis=1)])


def _independent(part: OrbitPart, orbits: Sequence[Orbits]) -> bool:
    try:
        invert(part, orbits)
    except ValueError:
        return False
    return True


def _combined(
    solved: Sequence[_Solved], orbits: Sequence[Orbits]
) -> Iterator[tuple[tuple[int, ...], Floats]]:
    """Yield the kinds and rows of all products of components, on raw sums and residual rows."""
    fills = [group.reduction.room() for group in solved]
    choices = [
        list(zip(group.reduction.components, group.found.grams, strict=True)) for group in solved
    ]
    for choice in itertools.product(*choices):
        kinds = [0] * len(orbits)
        gram: Floats = np.full((1, 1), 1 - FILL)
        fill: Floats = np.full(1, FILL)
        constant: list[int] = []
        for group, raised, (component, factor) in zip(solved, fills, choice, strict=True):
            gram = np.asarray(np.kron(gram, factor))
            fill = np.asarray(np.kron(fill, raised[component.where]))
            for axis, kind in zip(group.axes, component.kinds, strict=True):
                kinds[axis] = kind
                if kind == CONSTANT:
                    constant.append(axis)
        rows = np.asarray(np.linalg.cholesky(gram + np.diag(fill)), dtype=np.float64)
        yield tuple(kinds), _on_sums(rows.T, kinds, constant, orbits)


def _on_sums(
    rows: Floats, kinds: Sequence[int], constant: Sequence[int], orbits: Sequence[Orbits]
) -> Floats:
    """Return rows in orthonormal coordinates as rows on raw orbit sums, axes in domain order.

    A residual row s I - J has s times the norm of its orthonormal coordinates.
    """
    tensor: NDArray[Any] = rows.reshape(len(rows), *(len(orbits[i].sizes) for i in constant))
    for position, i in enumerate(constant):
        shape = (-1,) + (1,) * (len(constant) - position - 1)
        tensor = tensor / np.sqrt(orbits[i].sizes).reshape(shape)
    for i, kind in enumerate(kinds):
        if kind != CONSTANT:
            tensor = tensor / orbits[i].sizes[kind]
    order = np.argsort(constant)
    return np.asarray(tensor.transpose(0, *(order + 1)).reshape(len(rows), -1))
