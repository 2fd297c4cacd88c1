"""Other shares for the rows of strategies: quick, since their factors stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

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
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import LAPLACE
from dpsql.strategy.product import ProductStrategy, assemble
from dpsql.strategy.quantise import column_norm, rank_of
from dpsql.workload.workload import Workload

SECONDS = 0.05
"""Nominal seconds of the search."""

LONG = 1 << 6
"""Entries above this are roundings: not more of such factors may meet than did before."""


def share_anew(
    strategy: Strategy, workload: Workload, limit: int, *, settle: bool = False
) -> ProductStrategy | None:
    """Return the rows of a Laplace strategy with the best weights for another workload.

    Blocks over other sets of attributes may come in, unless the weights are only to ``settle``.
    None where residual rows are measured, some attribute is not, or not all of its cells.
    """
    problem = Problem(workload, strategy.noise)
    known = strategy.shared_rows
    if known is None or not set(problem.names) <= known.keys() or workload.pinned:
        return None
    space = room(problem, limit, 1.0)
    if space.crowded:
        return None
    shares = {block.attributes: float(block.share) for block in strategy.blocks}
    now = np.array([shares.get(problem.attributes(M), 0.0) for M in space.family.sets])
    full = {name: known[name] for name in problem.names}
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
        for name, rows in (strategy.shared_rows or {}).items()
        if rows is not None and np.abs(rows).max() > LONG
    }
    most = max(len(long & set(block.attributes)) for block in strategy.blocks)
    return np.array([len(long & set(problem.attributes(M))) <= most for M in sets])


def _unit(rows: Integers | None) -> Floats | None:
    return None if rows is None else np.asarray(rows / column_norm(rows, LAPLACE.name))


def mix(
    one: Strategy, other: Strategy | None, workload: Workload, part: float
) -> ProductStrategy | None:
    """Return a strategy of which ``part`` of the shares are those of the other.

    Without another, they go to a block for every product of the workload. None where the rows of
    an attribute differ, residual ones are measured, or some attribute is not.
    """
    full = one.shared_rows
    if full is None or workload.pinned:
        return None
    if other is None:
        given = _by_product(workload)
        if not {name for names in given for name in names} <= full.keys():
            return None
    else:
        theirs = other.shared_rows
        if theirs is None or not _agree(full, theirs):
            return None
        given = {block.attributes: float(block.share) for block in other.blocks}
        full = {**full, **theirs}
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


def _agree(one: Mapping[str, Integers | None], other: Mapping[str, Integers | None]) -> bool:
    shared = [(rows, one[name]) for name, rows in other.items() if name in one]
    return all(
        np.array_equal(left, right) if left is not None and right is not None else left is right
        for left, right in shared
    )
