"""Answers of many candidates at once: single rows over the same attributes share one product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dpsql.adaptive.handle import Candidate, Floats

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
            self.groups.append((names, np.array(members), rows))
        grouped = {int(i) for _, members, _ in self.groups for i in members}
        self.single = [i for i in range(len(self.candidates)) if i not in grouped]

    def answers(self, model: Answers) -> list[Floats]:
        """Return the model's answer to every candidate, in order."""
        out: list[Floats] = [np.zeros(0)] * len(self.candidates)
        for i in self.single:
            out[i] = model.answer(self.candidates[i])
        for names, members, rows in self.groups:
            values = _contract(rows, model.marginal(names))
            for i, value in zip(members, values, strict=True):
                out[i] = np.array([value])
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
