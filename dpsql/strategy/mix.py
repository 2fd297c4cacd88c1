"""Mixtures of strategies that measure the same rows of every attribute."""

from __future__ import annotations

import numpy as np

from dpsql.strategy.kinds import AnyStrategy
from dpsql.strategy.product import Strategy, assemble
from dpsql.workload.workload import Workload


def mix(
    one: AnyStrategy, other: AnyStrategy | None, workload: Workload, part: float
) -> Strategy | None:
    """Return a strategy of which ``part`` of the shares are those of the other.

    Without another, they go to a block for every product of the workload. None where the rows of
    an attribute differ, residual ones are measured, or some attribute is not.
    """
    if not isinstance(one, Strategy) or one.residual or workload.pinned:
        return None
    if other is None:
        given = _by_product(workload)
        used = {name for names in given for name in names}
        if not used <= one.full.keys():
            return None
        full = dict(one.full)
    elif not isinstance(other, Strategy) or other.residual or not _agree(one, other):
        return None
    else:
        given = {block.attributes: float(block.share) for block in other.blocks}
        full = {**one.full, **other.full}
    weights = {block.attributes: (1 - part) * float(block.share) for block in one.blocks}
    for names, share in given.items():
        weights[names] = weights.get(names, 0.0) + part * share
    kept = {names: weight for names, weight in weights.items() if weight > 0}
    return assemble(workload.domain, full, kept, one.noise, one.method)


def _by_product(workload: Workload) -> dict[tuple[str, ...], float]:
    """Shares in proportion to the weights of the products over each set of attributes."""
    total = sum(product.weight for product in workload.products)
    out: dict[tuple[str, ...], float] = {}
    for product in workload.products:
        names = tuple(name for name in workload.attributes if name in product.factors)
        out[names] = out.get(names, 0.0) + product.weight / total
    return out


def _agree(one: Strategy, other: Strategy) -> bool:
    shared = [(rows, one.full[name]) for name, rows in other.full.items() if name in one.full]
    return all(
        np.array_equal(left, right) if left is not None and right is not None else left is right
        for left, right in shared
    )
