"""True answers, counted once per set of attributes; nothing of them leaves but under noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.plan.cells import AnyResolution
from dpsql.privacy.measure import apply_rows_unbounded
from dpsql.privacy.norms import Piece
from dpsql.privacy.vault.base import Vault
from dpsql.privacy.whole import misused

Integers = NDArray[Any]


class Truth:
    """The marginals of one table that were looked at, for the life of one handle."""

    __slots__ = ("_classes", "_closed", "_tensors", "_vault")

    def __init__(self, vault: Vault, classes: Mapping[str, NDArray[np.int64]]) -> None:
        self._vault = vault
        self._classes = dict(classes)
        self._tensors: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self._closed = False

    def close(self) -> None:
        """Forget everything; later looks fail."""
        self._closed = True
        self._tensors.clear()

    def answer(self, pieces: Sequence[Piece]) -> Integers:
        """Return a candidate's true answers, flat and exact, in an array of its own."""
        parts = [self._apply(piece) for piece in pieces]
        return np.array(parts[0]) if len(parts) == 1 else np.asarray(sum(parts[1:], parts[0]))

    def distances(
        self, candidates: Sequence[Sequence[Piece]], rounded: Sequence[Integers]
    ) -> list[int]:
        """Return the L1 distances between true answers and whole numbers.

        Single cells are many: they are looked up together, marginal by marginal.
        """
        found = [0] * len(candidates)
        cells: dict[tuple[str, ...], list[int]] = {}
        for i, pieces in enumerate(candidates):
            if len(pieces) == 1 and pieces[0].cell is not None:
                cells.setdefault(pieces[0].attributes, []).append(i)
            else:
                found[i] = _distance(self.answer(pieces), rounded[i])
        for names, members in cells.items():
            places = np.array([candidates[i][0].cell for i in members]).reshape(
                len(members), len(names)
            )
            true = self.marginal(names)[tuple(places.T)]
            gaps = np.abs(true - np.array([rounded[i][0] for i in members]))
            for i, gap in zip(members, gaps.tolist(), strict=True):
                found[i] = gap
        return found

    def _apply(self, piece: Piece) -> Integers:
        tensor = self.marginal(piece.attributes)
        if piece.cell is not None:
            return np.array(tensor[piece.cell]).reshape(1)
        return apply_rows_unbounded(list(piece.matrices), tensor)

    def marginal(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        """Return the true counts over some attributes; the array is shared, not to be changed."""
        if self._closed:
            raise misused()
        if names not in self._tensors:
            self._tensors[names] = self._vault.count(names, [self._classes[n] for n in names])
        return self._tensors[names]


class Tally(Truth):
    """The rows of one table in the cells or nodes of one resolution, seen through others."""

    __slots__ = ("_resolutions",)

    def __init__(self, vault: Vault, resolutions: Sequence[AnyResolution]) -> None:
        super().__init__(vault, {})
        self._resolutions = tuple(resolutions)

    def marginal(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        """Return what the rows add to the cells of the first resolution, whatever its name."""
        if self._closed:
            raise misused()
        if () not in self._tensors:
            found = self._vault.tally(self._resolutions)
            self._tensors[()] = found.reshape(self._resolutions[0].size, -1).sum(axis=1)
        return self._tensors[()]


def _distance(true: Integers, whole: Integers) -> int:
    gap = np.abs(true - whole)
    wide = int(gap.max(initial=0)) * gap.size >= 2**62
    return int(gap.astype(object).sum() if wide else gap.sum())
