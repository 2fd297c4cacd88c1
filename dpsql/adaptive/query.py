"""Public facts of candidates: attributes, sizes, sensitivities, ranges, expected noise."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from fractions import Fraction

import numpy as np

from dpsql.adaptive.handle import Candidate, Query
from dpsql.algebra.blocks import Identity
from dpsql.errors import ProgrammingError
from dpsql.plan.noise_law import Noise, law
from dpsql.plan.pattern import Pattern
from dpsql.plan.workload import Product

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
