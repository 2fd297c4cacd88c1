"""Sets of attributes that are asked together: the weight of every subset, and its derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.kron import outer_sum
from dpsql.algebra.operator import Floats
from dpsql.records import cached_property, dataclass
from dpsql.search.marginals.attribute_masks import as_array, subsets_of

Masks: TypeAlias = NDArray[np.int64]

WRITTEN = 1 << 20
"""Most numbers of products and components that are written out at once, 8 MiB."""

KEPT = 4
"""Workloads whose components are remembered: those of a rollup of 16 attributes take 5 MiB."""


@dataclass(frozen=True)
class Group:
    """The merged products over one support: where their components lie."""

    axes: tuple[int, ...]
    members: NDArray[np.intp]
    positions: NDArray[np.intp]


@dataclass(frozen=True)
class SupportStack:
    """Groups of equally many attributes: G supports of e attributes with P products in all.

    Products are the last axis of all that is computed of them, since there are many of them and
    only two numbers of each factor. ``which`` (e, P) points into the concatenated tables of all
    attributes, ``weights2`` has shape (P,) and ``positions`` (2^e, G); the products of a group lie
    together, ``counts`` (G,) of them from ``starts`` (G,) on.
    """

    which: NDArray[np.intp]
    weights2: Floats
    positions: NDArray[np.intp]
    counts: NDArray[np.intp]
    starts: NDArray[np.intp]

    def before(self, pairs: Floats) -> list[Floats]:
        """Return per product the weight times the first k of its pairs, (2^k, P) for k = 0..e.

        ``pairs`` are (2, e, P): of every factor its t and its r.
        """
        out = [self.weights2[np.newaxis]]
        for k in range(pairs.shape[1]):
            out.append((out[-1][:, np.newaxis] * pairs[:, k]).reshape(2 << k, -1))
        return out

    def summed(self, pairs: Floats) -> Floats:
        """Return per support the sum of its products, each times the weight, (2^e, G).

        Of very many numbers none is written out for a product: they are summed in two halves.

        Args:
            pairs: (2, e, P), of every factor its t and its r.
        """
        if pairs.shape[2] << pairs.shape[1] <= WRITTEN:
            return np.asarray(np.add.reduceat(self.before(pairs)[-1], self.starts, axis=1))
        parts = [slice(start, start + n) for start, n in zip(self.starts, self.counts, strict=True)]
        found = [
            outer_sum(self.weights2[part], list(pairs[:, :, part].transpose(1, 2, 0)))
            for part in parts
        ]
        return np.stack([each.ravel() for each in found], axis=1)

    def pull(self, slope: Floats, pairs: Floats) -> Floats:
        """Return the derivatives by ``pairs``, in their shape, from those by ``summed`` (2^e, G).

        ``before`` is followed backwards: what it multiplied last is taken off first.
        """
        before = self.before(pairs[:, :-1])
        out = np.empty_like(pairs)
        behind = np.repeat(slope, self.counts, axis=1)
        for k in range(len(self.which) - 1, -1, -1):
            behind = behind.reshape(1 << k, 2, -1)
            out[:, k] = np.einsum("asp,ap->sp", behind, before[k])
            behind = behind[:, 0] * pairs[0, k] + behind[:, 1] * pairs[1, k]
        return out


class Components:
    """The subsets of supports, and the weight R_c the workload puts on each of them.

    Masks have the first attribute as their most significant bit.
    """

    def __init__(self, index: Masks, weights2: Floats) -> None:
        self.index = index
        self.weights2 = weights2
        self.d = int(index.shape[1])
        self._members: dict[tuple[int, ...], list[int]] = {}
        for j, row in enumerate(index.tolist()):
            axes = tuple(i for i, f in enumerate(row) if f >= 0)
            self._members.setdefault(axes, []).append(j)
        self.supports = [sum(map(self.bit, axes)) for axes in self._members]

    @cached_property
    def masks(self) -> tuple[int, ...]:
        """The components, in the order of their numbers: formed on use, k attributes have 2^k."""
        return _within(tuple(self.supports))[0]

    @cached_property
    def groups(self) -> list[Group]:
        """The merged products over each support, in the order of ``supports``."""
        pairs = zip(self._members.items(), _within(tuple(self.supports))[1], strict=True)
        return [Group(axes, np.array(members), places) for (axes, members), places in pairs]

    def bit(self, i: int) -> int:
        """Return the mask of one attribute."""
        return 1 << (self.d - 1 - i)

    def values(self, t: Sequence[Floats], r: Sequence[Floats]) -> Floats:
        """Return R_c = sum_j w_j^2 prod r_ij (i in c) prod t_ij (others), shape (C,)."""
        tables = np.stack([np.concatenate(t), np.concatenate(r)])
        R = np.zeros(len(self.masks))
        for stack in self._stacks:
            found = stack.summed(tables.take(stack.which, axis=1))
            R += np.bincount(stack.positions.ravel(), found.ravel(), len(R))
        return R

    @cached_property
    def _stacks(self) -> list[SupportStack]:
        """The groups, stacked with those of as many attributes."""
        used = self.index.max(axis=0, initial=-1) + 2
        ends = np.cumsum(used)
        flat = np.where(self.index < 0, ends - 1, self.index + ends - used)
        sizes: dict[int, list[Group]] = {}
        for group in self.groups:
            sizes.setdefault(len(group.axes), []).append(group)
        return [_stacked(alike, flat, self.weights2) for alike in sizes.values()]

    def group_values(self, group: Group, t: Sequence[Floats], r: Sequence[Floats]) -> Floats:
        """Return the R_c of one support alone, in the order of its positions.

        Args:
            t, r: (factors,) per attribute, with that of Total last.
        """
        part = self.weights2[group.members][np.newaxis]
        for i in group.axes:
            which = self.index[group.members, i]
            pair = np.stack([t[i][which], r[i][which]])
            part = (part[:, np.newaxis] * pair).reshape(2 * len(part), -1)
        return np.asarray(part.sum(axis=1))

    def pull(
        self, g: Floats, t: Sequence[Floats], r: Sequence[Floats]
    ) -> tuple[list[Floats], list[Floats]]:
        """Return the derivatives by t and r (without Total) of a function with df/dR = g.

        Args:
            g: (components,).
            t, r: (factors,) per attribute, with that of Total last.
        """
        tables = np.stack([np.concatenate(t), np.concatenate(r)])
        out = np.zeros_like(tables)
        for stack in self._stacks:
            found = stack.pull(g[stack.positions], tables.take(stack.which, axis=1))
            for side in (0, 1):
                out[side] += np.bincount(stack.which.ravel(), found[side].ravel(), out.shape[1])
        ends = np.cumsum([len(x) for x in t])
        parts = [out[:, end - len(x) : end - 1] for end, x in zip(ends, t, strict=True)]
        return [part[0] for part in parts], [part[1] for part in parts]


def _stacked(groups: Sequence[Group], flat: NDArray[np.intp], weights2: Floats) -> SupportStack:
    counts = np.array([len(group.members) for group in groups])
    return SupportStack(
        np.concatenate([flat[g.members][:, list(g.axes)].T for g in groups], axis=1),
        weights2[np.concatenate([g.members for g in groups])],
        np.stack([g.positions for g in groups], axis=1),
        counts,
        np.cumsum(counts) - counts,
    )


@lru_cache(KEPT)
def _within(supports: tuple[int, ...]) -> tuple[tuple[int, ...], list[NDArray[np.intp]]]:
    """Return all components, and the positions of those of every support; remembered.

    A request is weighed and planned time and again, and its supports stay as they are.
    """
    subsets = [subsets_of(mask)[0] for mask in as_array(supports)[:, np.newaxis]]
    found = np.unique(np.concatenate(subsets))
    return tuple(found.tolist()), [np.searchsorted(found, each) for each in subsets]
