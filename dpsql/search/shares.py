"""Other shares for the rows of a strategy: quick, since its factors stay as they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Integers
from dpsql.search.family import Family
from dpsql.search.gaussian import FixedRows
from dpsql.search.joint import Union, descend
from dpsql.search.laplace import room
from dpsql.search.opt_kron import split_weights
from dpsql.search.opt_m import search_weights
from dpsql.search.problem import Problem
from dpsql.strategy.noise_law import LAPLACE
from dpsql.strategy.product import Strategy, assemble
from dpsql.strategy.quantise import column_norm, rank_of
from dpsql.workload.workload import Workload

SECONDS = 0.05
"""Nominal seconds of the search."""

LONG = 1 << 6
"""Entries above this are roundings: not more of such factors may meet than did before."""


def share_anew(
    strategy: Strategy, workload: Workload, limit: int, *, settle: bool = False
) -> Strategy | None:
    """Return the rows of a Laplace strategy with the best weights for another workload.

    Blocks over other sets of attributes may come in, unless the weights are only to ``settle``.
    None where residual rows are measured, some attribute is not, or not all of its cells.
    """
    problem = Problem(workload, strategy.noise)
    if strategy.residual or not set(problem.names) <= strategy.full.keys() or workload.pinned:
        return None
    space = room(problem, limit, 1.0)
    if space.crowded:
        return None
    shares = {block.attributes: float(block.share) for block in strategy.blocks}
    now = np.array([shares.get(problem.attributes(M), 0.0) for M in space.family.sets])
    full = {name: strategy.full[name] for name in problem.names}
    if any(rows is not None and rank_of(rows) < rows.shape[1] for rows in full.values()):
        return None
    rows = [_unit(each) for each in full.values()]
    thetas: tuple[Floats | None, ...] = (None,) * problem.d
    if settle:
        sets = [M for M, share in zip(space.family.sets, now, strict=True) if share > 0]
        family = Family(problem.d, sets, problem.components.masks)
        start = Union(thetas, now[now > 0])
        found = descend(FixedRows(problem, family, rows), start, weights_only=True)
    else:
        family = space.family
        objective = FixedRows(problem, family, rows)
        allowed = space.allowed * _are_short(problem, strategy, family.sets)
        starts = [split_weights(objective, thetas), now + 1e-3 * allowed]
        found = search_weights(objective, thetas, seconds=SECONDS, starts=starts, allowed=allowed)
    weights = {
        problem.attributes(M): float(x)
        for M, x in zip(family.sets, found.union.w, strict=True)
        if x > 0
    }
    return assemble(workload.domain, full, weights, strategy.noise, strategy.method)


def _are_short(problem: Problem, strategy: Strategy, sets: list[int]) -> NDArray[np.bool_]:
    """Which sets have no more attributes with rounded rows than a block of the strategy has."""
    long = {
        name
        for name, rows in strategy.full.items()
        if rows is not None and np.abs(rows).max() > LONG
    }
    most = max(len(long & set(block.attributes)) for block in strategy.blocks)
    return np.array([len(long & set(problem.attributes(M))) <= most for M in sets])


def _unit(rows: Integers | None) -> Floats | None:
    return None if rows is None else np.asarray(rows / column_norm(rows, LAPLACE.name))
