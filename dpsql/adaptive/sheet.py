"""Answers of many candidates at once: single rows over the same attributes share one product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dpsql.adaptive.handle import Candidate, Floats, Integers

CELLS = 1 << 21
"""Most cells of a marginal that is formed to answer a group of single rows."""
WORK = 1 << 22
"""Numbers held at a time while a group is contracted."""
FEW = 4
"""Groups below this size are answered one by one."""


class Answers(Protocol):
    """The two questions a sheet puts to a model."""

    def answer(self, candidate: Candidate) -> Floats:
        """Return the answers of a candidate in counts, flat."""

    def marginal(self, attributes: tuple[str, ...]) -> Floats:
        """Return the counts over the given attributes as a tensor."""


class Sheet:
    """Candidates compiled once, answered by any model."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = tuple(candidates)
        groups: dict[tuple[str, ...], list[int]] = {}
        for i, candidate in enumerate(self.candidates):
            names = tuple(candidate[0].factors)
            if len(candidate) == 1 and names and candidate[0].rows == 1:
                groups.setdefault(names, []).append(i)
        self.groups = []
        for names, members in groups.items():
            sizes = [self.candidates[members[0]][0].factors[a].n for a in names]
            if len(members) < FEW or math.prod(sizes) > CELLS:
                continue
            rows = [
                np.vstack([self.candidates[i][0].factors[a].dense() for i in members]).astype(
                    np.float64
                )
                for a in names
            ]
            self.groups.append((names, np.array(members), rows, read_boxes(rows)))
        grouped = {int(i) for _, members, *_ in self.groups for i in members}
        self.single = [i for i in range(len(self.candidates)) if i not in grouped]

    def answers(self, model: Answers) -> list[Floats]:
        """Return the model's answer to every candidate, in order."""
        out: list[Floats] = [np.zeros(0)] * len(self.candidates)
        for i in self.single:
            out[i] = model.answer(self.candidates[i])
        for names, members, rows, boxes in self.groups:
            tensor = model.marginal(names)
            values = _contract(rows, tensor) if boxes is None else _sum_boxes(boxes, tensor)
            for i, value in zip(members, values, strict=True):
                out[i] = np.array([value])
        return out


def read_boxes(rows: Sequence[Floats]) -> list[Integers] | None:
    """Return the first and the last cell plus one of every row of 0/1 tables, (2, queries) each.

    None unless the ones of every row stand next to each other.
    """
    found = []
    for matrix in rows:
        ones = matrix == 1
        first = ones.argmax(axis=1)
        after = first + ones.sum(axis=1)
        places = np.arange(matrix.shape[1])
        inside = (places >= first[:, np.newaxis]) & (places < after[:, np.newaxis])
        if not np.array_equal(matrix, inside):
            return None
        found.append(np.stack([first, after]))
    return found


def _sum_boxes(boxes: Sequence[Integers], tensor: Floats) -> Floats:
    """Return the sum of the tensor over every box, from its cumulative sums at the corners."""
    sums = np.pad(tensor, [(1, 0)] * tensor.ndim)
    for axis in range(tensor.ndim):
        np.cumsum(sums, axis=axis, out=sums)
    out = np.zeros(boxes[0].shape[1])
    for corner in itertools.product((0, 1), repeat=tensor.ndim):
        sign = (-1) ** (tensor.ndim - sum(corner))
        out += sign * sums[tuple(ends[side] for ends, side in zip(boxes, corner, strict=True))]
    return out


def _contract(rows: Sequence[Floats], tensor: Floats) -> Floats:
    """Return per query the tensor contracted with one row per axis, shape (queries,)."""
    flat = tensor.reshape(len(tensor), -1)
    queries, rest = len(rows[0]), flat.shape[1]
    out = np.empty(queries)
    step = max(1, WORK // rest)
    for first in range(0, queries, step):
        part = slice(first, first + step)
        left = rows[0][part] @ flat
        for matrix, size in zip(rows[1:], tensor.shape[1:], strict=True):
            left = np.einsum("qnr,qn->qr", left.reshape(len(left), size, -1), matrix[part])
        out[part] = left.reshape(-1)
    return out
