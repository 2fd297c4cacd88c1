"""The components of a union of products: all subsets of supports, and what is asked of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats

Masks: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """The merged products over one support: where their components lie."""

    axes: tuple[int, ...]
    members: NDArray[np.intp]
    positions: NDArray[np.intp]


@dataclass(frozen=True)
class SupportStack:
    """Groups of equal shape: G supports of e attributes with m products each.

    ``which`` (G, m, e) points into the concatenated tables of all attributes, ``weights2`` has
    shape (G, m) and ``positions`` (G, 2^e).
    """

    which: NDArray[np.intp]
    weights2: Floats
    positions: NDArray[np.intp]

    def before(self, pairs: Floats) -> list[Floats]:
        """Return per product the weights times the first k pairs, (G, m, 2^k) for k = 0..e."""
        out = [self.weights2[:, :, np.newaxis]]
        for k in range(self.which.shape[2]):
            out.append(_kron(out[-1], pairs[:, :, k]))
        return out


class Components:
    """All subsets of supports, and the weight R_c the workload puts on each of them.

    Masks have the first attribute as their most significant bit.
    """

    def __init__(self, index: Masks, weights2: Floats) -> None:
        self.index = index
        self.weights2 = weights2
        self.d = int(index.shape[1])
        supports: dict[tuple[int, ...], list[int]] = {}
        for j, row in enumerate(index.tolist()):
            axes = tuple(i for i, f in enumerate(row) if f >= 0)
            supports.setdefault(axes, []).append(j)
        lists = {axes: _subsets([self.bit(i) for i in axes]) for axes in supports}
        self.masks = sorted({mask for masks in lists.values() for mask in masks})
        place = {mask: c for c, mask in enumerate(self.masks)}
        self.groups = [
            Group(axes, np.array(members), np.array([place[m] for m in lists[axes]]))
            for axes, members in supports.items()
        ]
        self.supports = [sum(self.bit(i) for i in group.axes) for group in self.groups]

    def bit(self, i: int) -> int:
        """Return the mask of one attribute."""
        return 1 << (self.d - 1 - i)

    def values(self, t: Sequence[Floats], r: Sequence[Floats]) -> Floats:
        """Return R_c = sum_j w_j^2 prod r_ij (i in c) prod t_ij (others), shape (C,)."""
        tables = np.stack([np.concatenate(t), np.concatenate(r)], axis=-1)
        R = np.zeros(len(self.masks))
        for batch in self._batches:
            part = batch.before(tables[batch.which])[-1].sum(axis=1)
            R += np.bincount(batch.positions.ravel(), part.ravel(), len(R))
        return R

    @cached_property
    def _batches(self) -> list[SupportStack]:
        """All groups; those with as many attributes and products together."""
        used = self.index.max(axis=0, initial=-1) + 2
        ends = np.cumsum(used)
        flat = np.where(self.index < 0, ends - 1, self.index + ends - used)
        shapes: dict[tuple[int, int], list[Group]] = {}
        for group in self.groups:
            shapes.setdefault((len(group.axes), len(group.members)), []).append(group)
        return [
            SupportStack(
                np.array([flat[g.members][:, list(g.axes)] for g in alike], dtype=np.intp),
                np.array([self.weights2[g.members] for g in alike]),
                np.array([g.positions for g in alike]),
            )
            for alike in shapes.values()
        ]

    def group_values(self, group: Group, t: Sequence[Floats], r: Sequence[Floats]) -> Floats:
        """Return the R_c of one support alone, in the order of its positions."""
        part = self.weights2[group.members][:, np.newaxis]
        for i in group.axes:
            which = self.index[group.members, i]
            part = _kron(part, np.stack([t[i][which], r[i][which]], axis=-1))
        return np.asarray(part.sum(axis=0))

    def pull(
        self, g: Floats, t: Sequence[Floats], r: Sequence[Floats]
    ) -> tuple[list[Floats], list[Floats]]:
        """Return the derivatives by t and r (without Total) of a function with df/dR = g."""
        tables = np.stack([np.concatenate(t), np.concatenate(r)], axis=-1)
        out = np.zeros_like(tables)
        for batch in self._batches:
            pairs = tables[batch.which]
            before = batch.before(pairs)
            right = np.ones((*batch.weights2.shape, 1))
            for k in range(batch.which.shape[2] - 1, -1, -1):
                left = before[k]
                G = g[batch.positions].reshape(len(left), left.shape[2], -1)
                partial = np.matmul(left, G).reshape(*left.shape[:2], 2, -1)
                both = (partial * right[:, :, np.newaxis]).sum(axis=3)
                for side in (0, 1):
                    found = both[:, :, side].ravel()
                    out[:, side] += np.bincount(batch.which[:, :, k].ravel(), found, len(out))
                right = _kron(pairs[:, :, k], right)
        ends = np.cumsum([len(x) for x in t])
        parts = [out[end - len(x) : end - 1] for end, x in zip(ends, t, strict=True)]
        return [part[:, 0] for part in parts], [part[:, 1] for part in parts]


def _subsets(bits: list[int]) -> list[int]:
    masks = [0]
    for bit in bits:
        masks = [m for mask in masks for m in (mask, mask | bit)]
    return masks


def _kron(left: Floats, right: Floats) -> Floats:
    """Return the Kronecker products of vectors (..., a) and (..., b), shape (..., a b)."""
    product = left[..., :, np.newaxis] * right[..., np.newaxis, :]
    return np.asarray(product.reshape(*left.shape[:-1], -1))
