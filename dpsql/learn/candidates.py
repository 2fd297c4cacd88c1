"""Public facts of candidates: sizes, sensitivities, expected noise, and answers of many at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Floats, Integers
from dpsql.errors import ProgrammingError
from dpsql.pgm.measurements import Candidate, Query
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product

MOST_WRITTEN = 1 << 26
"""Most numbers in the rows of a query over one attribute."""

MOST_COUNTED = 1 << 24
"""Most cells that are counted at once."""


def marginal(domain: Mapping[str, int], attributes: Iterable[str]) -> Candidate:
    """Return the candidate that asks for the whole marginal on some attributes.

    >>> rows(marginal({"a": 2, "b": 3}, ["b", "a"]))
    6
    """
    wanted = set(attributes)
    return (Product({a: Identity(n) for a, n in domain.items() if a in wanted}),)


def attributes_of(candidate: Query) -> tuple[str, ...]:
    """Return the attributes a query depends on, each once."""
    if isinstance(candidate, Pattern):
        return tuple(candidate.labels)
    return tuple(dict.fromkeys(a for product in candidate for a in product.factors))


def is_marginal(candidate: Query) -> bool:
    """Say whether a query asks for a whole marginal."""
    return (
        not isinstance(candidate, Pattern)
        and len(candidate) == 1
        and all(isinstance(op, Identity) for op in candidate[0].factors.values())
    )


def rows(candidate: Query) -> int:
    """Return the number of answers."""
    return 1 if isinstance(candidate, Pattern) else candidate[0].rows


def norm(candidate: Query, noise: Noise) -> float:
    """Return the L1 (Laplace) or squared L2 (Gaussian) sensitivity for one row.

    Exact for one product, and for disjoint products.
    """
    if isinstance(candidate, Pattern):
        return 1.0
    is_l1 = law(noise).norm == 1
    return max(
        float(math.prod(op.l1 if is_l1 else op.l2sq for op in product.factors.values()))
        for product in candidate
    )


def spans(candidate: Query) -> tuple[float, float]:
    """Return the least and the largest coefficient of any cell, as a pair.

    >>> spans(marginal({"a": 2}, ["a"]))
    (0.0, 1.0)
    """
    if isinstance(candidate, Pattern):
        return 0.0, 1.0
    if is_marginal(candidate):
        return (0.0, 1.0) if candidate[0].factors else (1.0, 1.0)
    found = []
    for product in candidate:
        low, high = 1.0, 1.0
        for op in product.factors.values():
            if isinstance(op, Identity):
                ends = (0.0, 1.0)
            else:
                dense = op.dense()
                ends = (float(np.min(dense)), float(np.max(dense)))
            corners = [low * ends[0], low * ends[1], high * ends[0], high * ends[1]]
            low, high = min(corners), max(corners)
        found.append((low, high))
    if len(found) == 1:
        return found[0]
    return min(0.0, *(low for low, _ in found)), max(0.0, *(high for _, high in found))


def expected_noise(size: float, noise: Noise, amount: Fraction) -> float:
    """Return the expected absolute noise of one answer whose candidate has norm ``size``."""
    return law(noise).mean_size * law(noise).spread(size, float(amount))


def check_written(queries: Iterable[Query], *, one_by_one: bool) -> None:
    """Refuse a query whose rows would be too many numbers written out.

    ``one_by_one`` says that every row becomes a query of its own, cells as well.

    Raises ProgrammingError E_TOO_LARGE.
    """
    for query in queries:
        for product in () if isinstance(query, Pattern) else query:
            for name, op in product.factors.items():
                written = one_by_one or not isinstance(op, Identity)
                if written and op.rows * op.n > MOST_WRITTEN:
                    raise ProgrammingError(
                        "E_TOO_LARGE",
                        f"{op.rows:,} queries over {op.n:,} values of {name} are too many to learn",
                        hint="use mechanism 'auto', or group the values into bins",
                    )


def check_counted(domain: Mapping[str, int], queries: Iterable[Query]) -> None:
    """Refuse a query whose rows tell apart more cells than are counted at once.

    Raises ProgrammingError E_TOO_LARGE.
    """
    known: dict[Hashable, int] = {}
    for query in queries:
        for product in () if isinstance(query, Pattern) else query:
            if math.prod(domain[a] for a in product.factors) <= MOST_COUNTED:
                continue
            cells = 1
            for op in product.factors.values():
                if op.key not in known:
                    apart = isinstance(op, Identity)
                    known[op.key] = op.n if apart else np.unique(op.dense(), axis=1).shape[1]
                cells *= known[op.key]
            if cells > MOST_COUNTED:
                raise ProgrammingError(
                    "E_TOO_LARGE",
                    f"a query over {', '.join(product.factors)} tells {cells:,} cells apart",
                    hint=f"at most {MOST_COUNTED:,}: ask about fewer columns at once",
                )


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


class CompiledCandidates:
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

    Args:
        rows: per axis the 0/1 tables (queries, cells).
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
