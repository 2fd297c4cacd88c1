"""Precision that sets of attributes add to components, without a matrix of sets by components.

A set adds precision to the components within it alone: a few hundredths of all pairs. Sums over
them are those of the lattice of sets where all sets are candidates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.records import cached_property
from dpsql.search.unions.kron_union import Family

Indices = NDArray[np.intp]


class SetRows:
    """The rows of some sets of a family over some components, each for a unit squared weight.

    ``size`` is how many numbers it takes to multiply by them and by their transpose.
    """

    def __init__(self, family: Family, totals: Floats, sets: Indices, components: Indices) -> None:
        self._family, self._totals = family, totals
        self._sets, self._components = sets, components
        over_sets, over_components = family.measure(totals)
        self._over_sets = over_sets[sets]
        self._over_components = over_components[components]
        self.size = 2 * family.d << family.d if family.dense else family.pairs

    def take(self, places: Indices) -> SetRows:
        """Return the rows of some of the sets, in the order of their places."""
        if np.array_equal(places, np.arange(len(self._sets))):
            return self
        return SetRows(self._family, self._totals, self._sets[places], self._components)

    def dense(self) -> Floats:
        """Return the rows written out, shape (sets, components)."""
        return self._family.rows(self._totals, self._sets, self._components)

    def precision(self, squares: Floats) -> Floats:
        """Return what squared weights of shape (sets,) add up to, shape (components,)."""
        u = np.zeros(len(self._family.sets))
        u[self._sets] = squares * self._over_sets
        return np.asarray(self._family.sup(u)[self._components] / self._over_components)

    def within(self, parts: Floats) -> Floats:
        """Return the sums of parts of shape (components,) times what each set adds, (sets,)."""
        y = np.zeros(len(self._family.components))
        y[self._components] = parts / self._over_components
        return np.asarray(self._family.sub(y)[self._sets] * self._over_sets)

    def added(self, precision: Floats, R: Floats, steps: Floats) -> Floats:
        """Return the sum of R over precision where each set alone is added, (steps, sets).

        Args:
            precision: (components,) without the set.
            R: (components,) what is asked of each.
            steps: (steps,) weights of the set.
        """
        first, component, values = self._pairs
        is_open = precision <= 0
        known = np.divide(R, precision, out=np.zeros_like(R), where=~is_open)
        asked, had = R[component], precision[component]
        others = known.sum() - _summed(known[component], first)
        out = np.empty((len(steps), len(self._sets)))
        for found, step in zip(out, steps, strict=True):
            parts = values * step**2
            parts += had
            np.divide(asked, parts, out=parts)
            np.add(others, _summed(parts, first), out=found)
        if is_open.any():
            covered = _summed(is_open[component].astype(np.float64), first)
            out[:, covered < np.count_nonzero(is_open)] = np.inf
        return out

    @property
    def pairs(self) -> int:
        """Return how many components are within some set, for every set."""
        return len(self._pairs[1])

    @cached_property
    def _pairs(self) -> tuple[Indices, Indices, Floats]:
        """Every component within each set, and what the set adds there, set by set.

        Three arrays: where those of each set begin, and where the last ones end, (sets + 1,);
        the components, and what is added, (pairs,).
        """
        contains = self._family.contains(self._sets, self._components)
        place, component = np.nonzero(contains)
        first = np.concatenate([[0], contains.sum(axis=1).cumsum()])
        return first, component, self._over_sets[place] / self._over_components[component]


def _summed(values: Floats, first: Indices) -> Floats:
    """Return the sums of values of shape (pairs,) set by set, of which some may have none."""
    sums = np.add.reduceat(np.append(values, 0.0), first[:-1])  # the last sets may have none
    return np.where(first[1:] > first[:-1], sums, 0.0)
