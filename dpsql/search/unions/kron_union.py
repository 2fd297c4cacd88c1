"""Unions of Kronecker blocks that share one matrix per attribute: error, cost and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra import marginals
from dpsql.algebra.operator import Floats
from dpsql.records import cached_property
from dpsql.search.marginals.attribute_masks import as_array, bits_of, subsets_of
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.coarsen import label_rows

DENSE_LIMIT = 14
"""Most attributes for which every subset, of 2^14, is a candidate block."""

KEPT = 4
"""Workloads whose components are remembered as bits: those of 16 attributes take 8 MiB."""

CLASSED = 1 << 10
"""Components from which on those within the same sets are taken together."""


class Family:
    """Candidate attribute sets M and components c; every block is written w_M.

    ``sup`` sums over the sets that contain a component, ``sub`` over the components within a set.
    The precision of component c is lambda_c = sum of w_M^2 prod 1/tau_i over M containing c, with
    i in M but not in c. Source: HDMM, section 6.3, extended from marginals to any shared factors.
    """

    def __init__(self, d: int, sets: Sequence[int] | None, components: Sequence[int]) -> None:
        self.d = d
        self.dense = sets is None
        self.sets = list(range(1 << d)) if sets is None else list(sets)
        self.components = tuple(components)
        self._member = _all_bits(d) if self.dense else bits_of(self.sets, d)
        self._inside = _kept_bits(self.components, d)
        if self.dense:
            self._at = np.array(self.components, dtype=np.int64)

    @property
    def pairs(self) -> int:
        """Return how many components are within some set, for every set of those listed."""
        return len(self._paired[0])

    @cached_property
    def _paired(self) -> NDArray[np.intp]:
        """The sets and the components that are within each other, (2, pairs): 3^d of all subsets.

        They are found once they are needed: families that are too large are never searched.
        """
        return _contained(self.sets, self.components).T

    def sup(self, x: Floats) -> Floats:
        """Return per component the sum of x (sets,) over the sets that contain it."""
        if not self.dense:
            of_set, of_component = self._paired
            return _summed(of_component, x[of_set], len(self.components))
        sums = marginals.sup(x.reshape((2,) * self.d))
        return np.asarray(sums.reshape(-1)[self._at])

    def sub(self, y: Floats) -> Floats:
        """Return per set the sum of y (components,) over the components within it."""
        if not self.dense:
            of_set, of_component = self._paired
            return _summed(of_set, y[of_component], len(self.sets))
        out = np.zeros(len(self.sets))
        out[self._at] = y
        return np.asarray(marginals.sub(out.reshape((2,) * self.d)).reshape(-1))

    def rows(self, totals: Floats, sets: NDArray[np.intp], components: NDArray[np.intp]) -> Floats:
        """Return the precision that a unit weight of each set gives to each component.

        Args:
            totals: (attributes,) 1/tau.
            sets, components: places among those of the family; the result is (sets, components).
        """
        over_sets, over_components = self.measure(totals)
        out = self.contains(sets, components) * over_sets[sets, np.newaxis]
        out /= over_components[components]
        return out

    def contains(self, sets: NDArray[np.intp], components: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether each set contains each component, shape (sets, components)."""
        member, inside = self._member[sets], self._inside[components]
        return np.asarray(member @ inside.T == inside.sum(axis=1))

    def measure(self, totals: Floats) -> tuple[Floats, Floats]:
        """Return prod of 1/tau_i over each set (sets,) and over each component (components,).

        Args:
            totals: (attributes,) 1/tau.
        """
        # Rounding may take a total below zero where columns nearly cancel.
        logs = np.log(np.maximum(totals, 1e-300))
        return np.exp(self._member @ logs), np.exp(self._inside @ logs)

    def error(
        self, w: Floats, R: Floats, totals: Floats, noise: Noise
    ) -> tuple[float, Floats, Floats, Floats]:
        """Return (error, d/dw, d/dR, d/dlog(1/tau)) of unit-sensitivity factors.

        The error is infinite where some R_c > 0 has no precision, or where numbers overflow.

        Args:
            w: (sets,) weights.
            R: (components,) what is asked of each.
            totals: (attributes,) 1/tau.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._error(w, R, totals, noise)
        if all(np.isfinite(part).all() for part in found):
            return found
        return np.inf, np.zeros_like(w), np.zeros_like(R), np.zeros(self.d)

    def weighed(
        self, R: Floats, totals: Floats, noise: Noise
    ) -> Callable[[Floats], tuple[float, Floats]]:
        """Return (error, d/dw) as a function of w alone, for fixed factors: see ``error``.

        Components within the same sets are one: of a chain of sets, however many attributes they
        have, there are as many as sets.

        Args: as of ``error``.
        """
        if self.dense or len(self.components) < CLASSED:
            return lambda w: self.error(w, R, totals, noise)[:2]
        of_set, of_component = self._paired
        within = np.zeros((len(self.components), len(self.sets)), dtype=np.bool_)
        within[of_component, of_set] = True
        labels = label_rows(np.packbits(within, axis=1))
        first = np.unique(labels, return_index=True)[1]
        kinds = Family(self.d, self.sets, [self.components[c] for c in first])
        _, over_components = self.measure(totals)
        merged = np.bincount(labels, R * over_components) / kinds.measure(totals)[1]
        return lambda w: kinds.error(w, merged, totals, noise)[:2]

    def _error(
        self, w: Floats, R: Floats, totals: Floats, noise: Noise
    ) -> tuple[float, Floats, Floats, Floats]:
        over_sets, over_components = self.measure(totals)
        cost, dcost = _cost(w, noise)
        u = w * w * over_sets
        precision = self.sup(u) / over_components
        asked = R > 0
        if not (precision[asked] > 0).all():
            return np.inf, np.zeros_like(w), np.zeros_like(R), np.zeros(self.d)
        inverse = np.zeros_like(R)
        inverse[asked] = 1 / precision[asked]
        parts = R * inverse
        total = float(parts.sum())
        s = self.sub(parts * inverse / over_components)
        dw = cost * (-2 * w * over_sets * s) + dcost * total
        dtotals = -cost * (self._member.T @ (u * s) - self._inside.T @ parts)
        return cost * total, dw, cost * inverse, dtotals


def _contained(sets: Sequence[int], components: Sequence[int]) -> NDArray[np.intp]:
    """Return the pairs (position of a set, position of a component within it), (pairs, 2)."""
    known = as_array([*components, *sets])[: len(components)]
    order = np.argsort(known, kind="stable")
    pairs = [np.empty((0, 2), dtype=np.intp)]
    by_size: dict[int, list[int]] = {}
    for m, M in enumerate(sets):
        by_size.setdefault(M.bit_count(), []).append(m)
    for size, places in by_size.items():
        if 1 << size <= len(components):
            inside = subsets_of(np.array([sets[m] for m in places], dtype=known.dtype))
            found = np.searchsorted(known, inside, sorter=order)
            at = order[np.minimum(found, len(known) - 1)]
            row, column = np.nonzero(known[at] == inside)
            pairs.append(np.stack([np.array(places)[row], at[row, column]], axis=1))
        else:
            for m in places:
                at = np.flatnonzero((known & ~sets[m]) == 0)
                pairs.append(np.stack([np.full(len(at), m), at], axis=1))
    joined = np.concatenate(pairs)
    return joined[np.argsort(joined[:, 0], kind="stable")]


def _summed(places: NDArray[np.intp], values: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(places, values, minlength=size), dtype=np.float64)


def _cost(w: Floats, noise: Noise) -> tuple[float, Floats]:
    """Return the squared sensitivity of unit-sensitivity blocks and its gradient."""
    if law(noise).norm == 1:
        total = float(w.sum())
        return total**2, np.full(len(w), 2 * total)
    return float(w @ w), 2 * w


@lru_cache(KEPT)
def _kept_bits(masks: tuple[int, ...], d: int) -> Floats:
    found = bits_of(masks, d)
    found.setflags(write=False)
    return found


@lru_cache(DENSE_LIMIT + 1)
def _all_bits(d: int) -> Floats:
    found = bits_of(range(1 << d), d)
    found.setflags(write=False)
    return found
