"""True answers, counted once per set of attributes; nothing of them leaves but under noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.doors.exact_products import MANY_ROWS, apply_unbounded
from dpsql.privacy.doors.sensitivity import LISTED, ProductRows, misused
from dpsql.privacy.vault.vault import Vault
from dpsql.workload.cells import AnyResolution
from dpsql.workload.term import Pattern
from dpsql.workload.weights import block_unit

Integers = NDArray[Any]
HALF = 31
"""Bits of the lower half of a distance: 2^31 such halves add up within int64."""


class TrueAnswers:
    """The marginals of one table that were looked at, for the life of one handle."""

    __slots__ = ("_classes", "_closed", "_most", "_numbers", "_tensors", "_vault")

    def __init__(self, vault: Vault, classes: Mapping[str, NDArray[np.int64]]) -> None:
        self._vault = vault
        self._classes = dict(classes)
        self._tensors: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self._numbers: dict[int, tuple[Sequence[ProductRows], Integers]] = {}
        self._most = MANY_ROWS
        self._closed = False

    def close(self) -> None:
        """Forget everything; later looks fail."""
        self._closed = True
        self._tensors.clear()
        self._numbers.clear()

    def answer(self, pieces: Sequence[ProductRows]) -> Integers:
        """Return a candidate's true answers, flat and exact, in an array of its own."""
        most = self._most * len(pieces)
        parts = [self._apply(piece, most) for piece in pieces]
        return np.array(parts[0]) if len(parts) == 1 else np.asarray(sum(parts[1:], parts[0]))

    def distances(
        self, candidates: Sequence[Sequence[ProductRows]], rounded: Sequence[Integers]
    ) -> list[int]:
        """Return the L1 distances between true answers and whole numbers.

        Single cells are many: they are looked up together, marginal by marginal.
        """
        found = [0] * len(candidates)
        cells: dict[tuple[str, ...], list[int]] = {}
        for i, pieces in enumerate(candidates):
            if len(pieces) == 1 and pieces[0].cell is not None and not _is_wide(pieces[0]):
                cells.setdefault(pieces[0].attributes, []).append(i)
            else:
                found[i] = _distance(self._number(pieces), rounded[i])
        for names, members in cells.items():
            places = np.array([candidates[i][0].cell for i in members]).reshape(
                len(members), len(names)
            )
            true = self.marginal(names)[tuple(places.T)]
            gaps = np.abs(true - np.array([rounded[i][0] for i in members]))
            for i, gap in zip(members, gaps.tolist(), strict=True):
                found[i] = gap
        return found

    def _number(self, pieces: Sequence[ProductRows]) -> Integers:
        """Return true answers; a single one, which may take a whole table, is worked out once."""
        if self._closed or pieces[0].rows > 1:
            return self.answer(pieces)
        if id(pieces) not in self._numbers:  # pieces are kept alive, so their id stays their own
            self._numbers[id(pieces)] = pieces, self.answer(pieces)
        return self._numbers[id(pieces)][1]

    def _apply(self, piece: ProductRows, most: int) -> Integers:
        if piece.pattern is not None:
            return self._matching(piece.pattern)
        if _is_wide(piece):
            return self._apply_wide(piece, most)
        tensor = self.marginal(piece.attributes)
        if piece.cell is not None:
            return np.array(tensor[piece.cell]).reshape(1)
        return apply_unbounded(tuple(piece.matrices), tensor, most)

    def _apply_wide(self, piece: ProductRows, most: int) -> Integers:
        """Apply rows to counts of the classes of cells that they do not tell apart."""
        labels: dict[str, Integers] = {}
        matrices: list[NDArray[np.int64] | None] = []
        for name, size, matrix in zip(piece.attributes, piece.sizes, piece.matrices, strict=True):
            if matrix is None:
                labels[name] = np.arange(size)
                matrices.append(None)
            else:
                columns, labels[name] = np.unique(matrix, axis=1, return_inverse=True)
                matrices.append(columns)
        return apply_unbounded(tuple(matrices), self._count(labels), most)

    def _matching(self, pattern: Pattern) -> Integers:
        """The number of rows of a pattern."""
        found = self._count(pattern.labels, pattern.truth.shape)
        return np.array([int(found[pattern.truth].sum())])

    def _count(
        self, labels: Mapping[str, Integers], shape: Sequence[int] | None = None
    ) -> NDArray[np.int64]:
        """The true counts over classes of classes; a shape says how many there may be of each."""
        if self._closed:
            raise misused()
        joined = []
        for name, each in labels.items():
            known = self._classes[name]
            joined.append(np.where(known < 0, -1, each.reshape(-1)[known]))
        found = self._vault.count(list(labels), joined)
        if shape is None or found.shape == tuple(shape):
            return found
        full = np.zeros(shape, dtype=np.int64)
        full[tuple(map(slice, found.shape))] = found
        return full

    def marginal(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        """Return the true counts over some attributes; the array is shared, not to be changed."""
        if self._closed:
            raise misused()
        if names not in self._tensors:
            self._tensors[names] = self._vault.count(names, [self._classes[n] for n in names])
        return self._tensors[names]


class Tally(TrueAnswers):
    """The rows of one table in the cells or nodes of one resolution, seen through others."""

    __slots__ = ("_resolutions",)

    def __init__(self, vault: Vault, resolutions: Sequence[AnyResolution]) -> None:
        super().__init__(vault, {})
        self._resolutions = tuple(resolutions)
        self._most = MANY_ROWS * block_unit(self._resolutions)

    def marginal(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        """Return what the rows add to the cells of the first resolution, whatever its name."""
        if self._closed:
            raise misused()
        if () not in self._tensors:
            found = self._vault.tally(self._resolutions)
            self._tensors[()] = found.reshape(self._resolutions[0].size, -1).sum(axis=1)
        return self._tensors[()]


def _is_wide(piece: ProductRows) -> bool:
    """Say whether the cells of a product are too many to be counted all: a public fact."""
    return math.prod(piece.sizes) > LISTED


def _distance(true: Integers, whole: Integers) -> int:
    """The L1 distance; halves of the bits are added up apart, which never passes int64."""
    gap = np.abs(true - whole)
    if gap.dtype == object:
        return int(gap.sum())
    return (int((gap >> HALF).sum()) << HALF) + int((gap & ((1 << HALF) - 1)).sum())
