"""Other shares for the rows of strategies: quick, since their factors stay as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense
from dpsql.algebra.integer_rows import Matrix, largest_entry
from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.algebra.weak_cache import WeakCache
from dpsql.search.gaussian import FixedRows, inverse_gram
from dpsql.search.laplace import is_crowded, room
from dpsql.search.one_attribute.hierarchy import base_of
from dpsql.search.problem import Problem
from dpsql.search.unions.joint import Union, descend
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.opt_kron import split_weights
from dpsql.search.unions.opt_m import search_weights
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import LAPLACE
from dpsql.strategy.product import ProductStrategy, assemble
from dpsql.strategy.quantise import column_norm, rank_of
from dpsql.workload.workload import Workload

SECONDS = 0.05
"""Nominal seconds of the search."""

MOST_SETS = 64
"""Most sets of attributes that may come in near those that are asked."""

ENTRY = 1e-2
"""Weight that blocks which come in start from."""

LONG = 1 << 6
"""Entries above this are roundings: not more of such factors may meet than did before."""

REMEMBERED = 1 << 22
"""Numbers of the inverse Grams that are remembered, 32 MiB, or those of the latest."""

_latest: WeakCache[Floats | None] = WeakCache(REMEMBERED)

Reach: TypeAlias = Literal["own", "near", "far"]


def reweight(
    strategy: Strategy, workload: Workload, limit: int, reach: Reach = "near"
) -> ProductStrategy | None:
    """Return the rows of a Laplace strategy with the best weights for another workload.

    None where residual rows are measured, some attribute is not, or not all of its cells.

    Args:
        limit: most numbers of one block.
        reach: the blocks that may come in: none ("own"), those over what is asked and, where these
            are few, over unions of two ("near"), or any that a search finds ("far").
    """
    problem = Problem(workload, strategy.noise)
    known = strategy.shared_rows
    if known is None or not set(problem.names) <= known.keys() or workload.pinned:
        return None
    held = zip(_masks(problem, strategy), strategy.blocks, strict=True)
    own = {M: float(block.share) for M, block in held if M is not None}
    if reach == "own":
        family, allowed = (
            Family(problem.d, sorted(own), problem.components.masks),
            np.ones(len(own)),
        )
    else:
        space = room(problem, limit, 1.0)
        family, allowed = space.family, space.allowed
    full = {name: known[name] for name in problem.names}
    spans = [r for r in full.values() if isinstance(r, np.ndarray)]
    if is_crowded(family) or any(_inverse(rows) is None for rows in spans):
        return None
    now = np.array([own.get(M, 0.0) for M in family.sets])
    for factors, each in zip(problem.factors, full.values(), strict=True):
        if isinstance(each, Structured):
            factors.base = base_of(factors.operators, each, strategy.noise)
    inverses = [_inverse(each) if isinstance(each, np.ndarray) else None for each in full.values()]
    if reach != "own":
        allowed = allowed * _are_short(problem, strategy, family.sets)
    if reach == "far":
        found = _search(FixedRows(problem, family, inverses), now, allowed)
    else:
        near = _near(problem) if reach == "near" else set()
        now += ENTRY * allowed * np.array([M in near for M in family.sets])
        chosen = np.flatnonzero(now > 0)
        family = Family(problem.d, [family.sets[m] for m in chosen], problem.components.masks)
        start = Union((None,) * problem.d, now[chosen])
        found = descend(FixedRows(problem, family, inverses), start, weights_only=True).union.w
    weights = {
        problem.attributes(family.sets[m]): float(found[m]) for m in np.flatnonzero(found > 0)
    }
    return assemble(workload.domain, full, weights, strategy.noise, strategy.method)


def _search(objective: FixedRows, now: Floats, allowed: Floats) -> Floats:
    """Return the best weights that a search finds over all sets."""
    thetas: tuple[Floats | None, ...] = (None,) * objective.problem.d
    starts = [split_weights(objective, thetas), now + 1e-3 * allowed]
    found = search_weights(objective, thetas, seconds=SECONDS, starts=starts, allowed=allowed)
    return found.union.w


def _near(problem: Problem) -> set[int]:
    """Return what is asked, and unions of two of these where they are few."""
    supports = set(problem.components.supports)
    if len(supports) > MOST_SETS:
        return supports
    pairs = {one | two for one in supports for two in supports}
    return pairs if len(pairs) <= MOST_SETS else supports


def _are_short(problem: Problem, strategy: Strategy, sets: list[int]) -> NDArray[np.bool_]:
    """Mark sets with no more attributes of rounded rows than a block of the strategy has."""
    long = {
        name
        for name, rows in (strategy.shared_rows or {}).items()
        if rows is not None and largest_entry(rows) > LONG
    }
    most = max(len(long & set(block.attributes)) for block in strategy.blocks)
    bits = [problem.components.bit(i) for i, name in enumerate(problem.names) if name in long]
    if len(bits) <= most:
        return np.ones(len(sets), dtype=np.bool_)
    asked = sum(bits)
    return np.array([(M & asked).bit_count() <= most for M in sets])


def _masks(problem: Problem, strategy: Strategy) -> list[int | None]:
    """Return the set of every block, None where the problem has not all of its attributes."""
    bits = {name: problem.components.bit(i) for i, name in enumerate(problem.names)}
    return [
        sum(bits[name] for name in block.attributes)
        if bits.keys() >= set(block.attributes)
        else None
        for block in strategy.blocks
    ]


def _inverse(rows: Integers) -> Floats | None:
    """Return the inverse Gram of a matrix at unit sensitivity, None for less than full rank.

    Remembered: shares are found for the same rows over and over again.
    """
    return _latest.of(rows, rows.shape[1] ** 2, lambda: _inverted(rows))


def _inverted(rows: Integers) -> Floats | None:
    if rank_of(rows) < rows.shape[1]:
        return None
    return inverse_gram(np.asarray(rows / column_norm(rows, LAPLACE.name)))


def mix(
    one: Strategy, other: Strategy | None, workload: Workload, part: float
) -> ProductStrategy | None:
    """Return a strategy of which ``part`` of the shares are those of the other.

    None where the rows of an attribute differ, residual ones are measured, or some attribute is
    not.

    Args:
        other: without it, shares go to a block for every product of the workload.
        part: from 0 to 1.
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
    """Shares in proportion to the largest numbers of the products over each set of attributes."""
    out: dict[tuple[str, ...], float] = {}
    for product in workload.products:
        names = tuple(name for name in workload.attributes if name in product.factors)
        size = product.weight * math.prod(map(_largest, product.factors.values()))
        out[names] = out.get(names, 0.0) + size
    total = sum(out.values())
    return {names: size / total for names, size in out.items()}


def _largest(factor: Operator) -> float:
    """Return the largest magnitude of the numbers of a factor; those of sums are like no others."""
    return float(np.abs(factor.matrix).max()) if isinstance(factor, Dense) else 1.0


def _agree(one: Mapping[str, Matrix], other: Mapping[str, Matrix]) -> bool:
    return all(_same(rows, one[name]) for name, rows in other.items() if name in one)


def _same(left: Matrix, right: Matrix) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return left == right if isinstance(left, Structured) else left is right
