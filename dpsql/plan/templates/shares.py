"""Other shares for the rows of a strategy: quick, since its factors stay as they are."""

from __future__ import annotations

import numpy as np

from dpsql.plan.quantise import column_norm
from dpsql.plan.strategy import Integers, Strategy, assemble
from dpsql.plan.templates.gaussian import FixedRows
from dpsql.plan.templates.identity import split_weights
from dpsql.plan.templates.laplace import room
from dpsql.plan.templates.marginals import search_weights
from dpsql.plan.templates.problem import Floats, Problem
from dpsql.plan.workload import Workload

SECONDS = 0.05
"""Nominal seconds of the search."""

LONG = 1 << 6
"""Entries above this are roundings: not more of such factors may meet than did before."""


def share_anew(strategy: Strategy, workload: Workload, limit: int) -> Strategy | None:
    """Return the rows of a Laplace strategy with the best weights for another workload.

    Blocks over other sets of attributes may come in. None where residual rows are measured, or
    some attribute is not.
    """
    problem = Problem(workload, "laplace")
    if strategy.residual or not set(problem.names) <= strategy.full.keys() or workload.pinned:
        return None
    full = {name: strategy.full[name] for name in problem.names}
    space = room(problem, limit, 1.0)
    if space.crowded:
        return None
    long = {name for name, rows in full.items() if rows is not None and np.abs(rows).max() > LONG}
    most = max(len(long & set(block.attributes)) for block in strategy.blocks)
    meet = [len(long & set(problem.attributes(M))) for M in space.family.sets]
    allowed = space.allowed * (np.array(meet) <= most)
    rows = [_unit(full[name]) for name in problem.names]
    objective = FixedRows(problem, space.family, rows)
    thetas: tuple[Floats | None, ...] = (None,) * problem.d
    shares = {block.attributes: float(block.share) for block in strategy.blocks}
    now = np.array([shares.get(problem.attributes(M), 0.0) for M in space.family.sets])
    starts = [split_weights(objective, thetas), now + 1e-3 * allowed]
    found = search_weights(objective, thetas, seconds=SECONDS, starts=starts, allowed=allowed)
    weights = {
        problem.attributes(M): float(x)
        for M, x in zip(space.family.sets, found.union.w, strict=True)
        if x > 0
    }
    return assemble(workload.domain, full, weights, "laplace", strategy.method)


def blended(strategy: Strategy, workload: Workload, part: float) -> Strategy | None:
    """Return a strategy of which ``part`` of the shares goes to a block for every product asked.

    None where residual rows are measured, or some attribute is not.
    """
    used = {name for product in workload.products for name in product.factors}
    if strategy.residual or not used <= strategy.full.keys() or workload.pinned:
        return None
    weights = {block.attributes: (1 - part) * float(block.share) for block in strategy.blocks}
    total = sum(product.weight for product in workload.products)
    for product in workload.products:
        names = tuple(name for name in workload.attributes if name in product.factors)
        weights[names] = weights.get(names, 0.0) + part * product.weight / total
    kept = {names: weight for names, weight in weights.items() if weight > 0}
    method = strategy.method
    return assemble(workload.domain, dict(strategy.full), kept, strategy.noise, method)


def _unit(rows: Integers | None) -> Floats | None:
    return None if rows is None else np.asarray(rows / column_norm(rows, "laplace"))
