"""Candidates as linear maps on the marginal of the attributes they touch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Floats, Operator
from dpsql.errors import ProgrammingError
from dpsql.pgm.measurements import Candidate, Measured
from dpsql.workload.workload import Product

DENSE_CELLS = 4096
"""Up to so many cells a candidate's rows are written out; beyond, they are applied."""


def clique_of(candidate: Candidate, domain: Mapping[str, int]) -> tuple[str, ...]:
    """Return the attributes a candidate touches, in domain order.

    Raises ProgrammingError E_WORKLOAD for an attribute outside the domain.
    """
    touched = {a for product in candidate for a in product.factors}
    if not touched <= domain.keys():
        unknown = sorted(touched - domain.keys())
        raise ProgrammingError(
            "E_WORKLOAD",
            f"{', '.join(unknown)} is not in the domain",
            hint=f"attributes: {', '.join(domain)}",
        )
    return tuple(a for a in domain if a in touched)


def whole_marginal(domain: Mapping[str, int], attributes: Sequence[str]) -> Candidate:
    """Return the candidate that asks for every cell of a marginal.

    >>> whole_marginal({"a": 2, "b": 3}, ["b"])[0].rows
    3
    """
    wanted = set(attributes)
    return (Product({a: Identity(domain[a]) for a in domain if a in wanted}),)


def is_whole(candidate: Candidate) -> bool:
    """Say whether a candidate is a whole marginal."""
    return len(candidate) == 1 and all(
        isinstance(f, Identity) for f in candidate[0].factors.values()
    )


def apply(candidate: Candidate, tensor: Floats, clique: Sequence[str]) -> Floats:
    """Return the flat answers of a candidate on a tensor of counts over a clique.

    ``tensor`` has an axis for each attribute of ``clique``, in its order.
    """
    parts = [_apply(product, tensor, clique) for product in candidate]
    return np.asarray(sum(parts[1:], parts[0]), dtype=np.float64)


def _apply(product: Product, tensor: Floats, clique: Sequence[str]) -> Floats:
    out = np.asarray(tensor, dtype=np.float64)
    for axis, name in reversed(list(enumerate(clique))):
        factor = product.factors.get(name)
        if factor is None:
            out = out.sum(axis=axis)
        elif not isinstance(factor, Identity):
            out = np.asarray(factor.apply(out, axis), dtype=np.float64)
    return np.asarray(out).reshape(-1)


def adjoint(
    candidate: Candidate, values: Floats, clique: Sequence[str], shape: Sequence[int]
) -> Floats:
    """Return the transpose of ``apply``: flat values spread over a tensor of the given shape."""
    total = np.zeros(tuple(shape))
    for product in candidate:
        sizes = [product.factors[a].rows if a in product.factors else 1 for a in clique]
        part = np.asarray(values, dtype=np.float64).reshape(sizes)
        for axis, name in enumerate(clique):
            factor = product.factors.get(name)
            if factor is not None and not isinstance(factor, Identity):
                part = _transpose(factor, part, axis)
        total += part
    return total


def _transpose(factor: Operator, tensor: Floats, axis: int) -> Floats:
    moved = np.moveaxis(tensor, axis, 0)
    flat = np.asarray(factor.rmatmat(moved.reshape(moved.shape[0], -1)), dtype=np.float64)
    return np.moveaxis(flat.reshape(-1, *moved.shape[1:]), 0, axis)


def norm2(candidate: Candidate, clique: Sequence[str], shape: Sequence[int]) -> float:
    """Return an upper bound of the squared spectral norm of a candidate on its clique."""
    roots = []
    for product in candidate:
        size = 1.0
        for name, n in zip(clique, shape, strict=True):
            factor = product.factors.get(name)
            size *= n if factor is None else _norm2(factor)
        roots.append(math.sqrt(size))
    return sum(roots) ** 2


def _norm2(factor: Operator) -> float:
    if isinstance(factor, Identity):
        return 1.0
    return _spectral(ByKey(factor))


class ByKey:
    """An operator that hashes by content."""

    __slots__ = ("operator",)

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def __hash__(self) -> int:
        return hash(self.operator.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByKey) and self.operator.key == other.operator.key


@lru_cache(maxsize=1024)
def _spectral(held: ByKey) -> float:
    operator = held.operator
    rows = np.asarray(operator.dense(), dtype=np.float64)
    if min(rows.shape) <= 256:
        gram = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
        return float(np.linalg.eigvalsh(gram)[-1])
    sizes = np.abs(rows)
    return float(sizes.sum(axis=0).max() * sizes.sum(axis=1).max())


def estimate_total(measurements: Sequence[Measured], domain: Mapping[str, int]) -> float:
    """Return the row count that measurements imply, at least one.

    Each measurement whose rows span the all-ones row gives an unbiased count; the counts are
    averaged with inverse-variance weights.

    Raises ProgrammingError E_WORKLOAD when no measurement fixes the count.
    """
    counts, precisions = [], []
    for m in measurements:
        weights = _ones(m.candidate, domain)
        if weights is not None:
            counts.append(float(weights @ m.values))
            precisions.append(1 / max(m.stddev**2 * float(weights @ weights), 1e-300))
    if not counts:
        raise ProgrammingError(
            "E_WORKLOAD",
            "no measurement fixes the number of rows",
            hint="measure the total, or give it",
        )
    return max(1.0, float(np.average(counts, weights=precisions)))


def _ones(candidate: Candidate, domain: Mapping[str, int]) -> Floats | None:
    """Return w of least norm with Q'w = 1, None when there is none."""
    clique = clique_of(candidate, domain)
    shape = [domain[a] for a in clique]
    if len(candidate) == 1:
        weights: Floats = np.ones(1)
        for name in clique:
            factor = candidate[0].factors[name]
            part = np.ones(factor.n) if isinstance(factor, Identity) else _solve(factor.dense())
            if part is None:
                return None
            weights = np.asarray(np.kron(weights, part), dtype=np.float64)
        return weights
    cells = math.prod(shape)
    if cells > DENSE_CELLS:
        return None
    columns = [apply(candidate, row.reshape(shape), clique) for row in np.eye(cells)]
    return _solve(np.stack(columns, axis=1))


def _solve(rows: Floats) -> Floats | None:
    dense = np.asarray(rows, dtype=np.float64)
    ones = np.ones(dense.shape[1])
    weights = np.asarray(np.linalg.lstsq(dense.T, ones, rcond=None)[0], dtype=np.float64)
    return weights if np.abs(dense.T @ weights - 1).max() < 1e-8 else None
