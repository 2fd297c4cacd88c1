"""OPT_+: products in groups, each with a Kronecker strategy of its own.

Source: HDMM, section 6.2, Definition 19. Beyond it, blocks are made to agree: least squares is over
all measurements, and shares of the budget are those that are best for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import cast

import numpy as np

from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass, replace
from dpsql.search.bounds.single_answers import factor_bound
from dpsql.search.bounds.singular_values import cells_bound
from dpsql.search.gaussian import kron_strategy
from dpsql.search.one_attribute.distinct_queries import read_few
from dpsql.search.problem import Problem
from dpsql.search.unions.joint import realise
from dpsql.search.unions.opt_kron import search_kron
from dpsql.search.work_limit import has_room, may_go_on, spend
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product import assemble, shares
from dpsql.strategy.separate import SeparateBlock, SeparateStrategy, has_independent_columns
from dpsql.workload.coarsen import coarsen
from dpsql.workload.workload import Product, Workload

MOST_PRODUCTS = 24
"""Most distinct products: groups are planned one by one."""

MOST_CELLS = 1 << 20
"""Most cells of a group's attributes, 8 MiB."""

MOST_CLASSES = 1 << 11
"""Most classes of cells of an attribute: matrices of these by these are written out, 32 MiB."""

MOST_ROWS = 1 << 23
"""Most numbers of the queries of one attribute: errors are forecast from them, 64 MiB."""

COPIES = 3
"""Arrays of all rows of queries that are alive at once."""

STEPS = 3
"""Most rounds in which shares move to where the error comes from."""

SETTLED = 1e-3
"""Relative gain below which the rounds end."""

LEAST = 1e-6
"""Least share of a block, relative to the largest."""

CLOSE = 1.5
"""Largest error, relative to that of the best groups, of others that are looked at."""

HOPEFUL = 2.5
"""Largest error, likewise, of groups that answer alone and are made to agree."""


@dataclass(frozen=True, slots=True)
class FittedGroup:
    """A group of products with a block for it, and the error of that block alone."""

    workload: Workload
    block: SeparateBlock
    error: float


def separate_strategy(
    workload: Workload, noise: Noise, than: float = np.inf, by_name: bool = False
) -> SeparateStrategy | None:
    """Return the best strategy with a block per group, None where there is nothing to separate.

    Args:
        than: groups that would have an error much larger, each alone, are not looked at.
        by_name: run the paper's algorithm, worthwhile or not, with its split of the budget.
    """
    if not by_name and not is_worthwhile(workload, noise):
        return None
    found: list[tuple[float, list[FittedGroup]]] = []
    most = HOPEFUL * than
    for groups in groupings(workload):
        if not may_go_on():
            break
        members = _members(groups, noise, most)
        if len(members) < len(groups):
            continue
        if by_name or not _are_alike([each.block for each in members]):
            found.append((_total([member.error for member in members], noise), members))
            most = min(most, CLOSE * found[-1][0])
    least = min((error for error, _ in found), default=np.inf)
    power = law(noise).share_power
    built = [
        _combined(
            workload,
            [member.block for member in members],
            np.array([member.error for member in members]) ** power,
            noise,
            1 if by_name else STEPS,
        )
        for error, members in found
        if error <= min(HOPEFUL * than, CLOSE * least)
    ]
    return min(built, key=lambda strategy: strategy.unit_error(workload), default=None)


def _members(groups: Sequence[Workload], noise: Noise, most: float) -> list[FittedGroup]:
    """Return plans of groups, of which there are fewer where one has none.

    Or where their error together is above ``most`` for sure: bounds of what is not planned yet.
    """
    bounds = list(map(_bound, groups))
    members: list[FittedGroup] = []
    for place, group in enumerate(groups):
        errors = [each.error for each in members]
        if _total([*errors, *bounds[place:]], noise) > most:
            break
        member = _plan(group, noise)
        if member is None:
            break
        members.append(member)
    return members


def is_worthwhile(workload: Workload, noise: Noise) -> bool:
    """True if groups could differ: several products, and more than cells and totals asked.

    Of one attribute they are among what OPT_0 searches, rows below an identity, or combinations of
    few queries: in 37 random lists of sums, ranges and totals these had 1.01 to 2.4 times their
    error. One that is too large for OPT_0 is looked at, unless queries are few.
    """
    problem = Problem(workload, noise)
    plain = all(factors.trivial for factors in problem.factors)
    if plain or problem.d == 0 or _too_many(problem) is not None:
        return False
    if problem.d > 1 or not problem.factors[0].large:
        return problem.d > 1
    few = read_few(problem)
    return few is None or not few.is_thin


def fits_apart(problem: Problem) -> str | None:
    """Return why products cannot have blocks of their own; None where they can."""
    largest = max(map(problem.cells, problem.components.supports), default=1)
    if largest > MOST_CELLS or max(problem.sizes, default=1) > MOST_CLASSES:
        return "a product has too many cells"
    return _too_many(problem)


def _too_many(problem: Problem) -> str | None:
    count, pinned = len(problem.components.weights2), problem.workload.pinned
    if count < 2:
        return "it is for several products, and here is one"
    if pinned:
        return f"values of {', '.join(sorted(pinned))} are added up"
    if count > MOST_PRODUCTS:
        return f"it plans {MOST_PRODUCTS} products at most, and here are {count:,}"
    numbers = [op.rows * op.n for factors in problem.factors for op in factors.operators]
    if max(numbers, default=0) > MOST_ROWS or not has_room(8 * COPIES * sum(numbers)):
        return "the queries of a column are too many"
    return None


def groupings(workload: Workload) -> Iterator[list[Workload]]:
    """Yield the distinct products in groups, where there are several: by support, by themselves."""
    products = list(_distinct(workload))
    supports: dict[tuple[str, ...], list[Product]] = {}
    for product in products:
        supports.setdefault(tuple(product.factors), []).append(product)
    if len(supports) > 1:
        yield [_alone_on(workload, group) for group in supports.values()]
    if len(supports) < len(products):
        yield [_alone_on(workload, [product]) for product in products]


def _distinct(workload: Workload) -> Iterator[Product]:
    for row, weight2 in zip(workload.index.tolist(), workload.weights2.tolist(), strict=True):
        factors = {
            name: workload.factors[i][j]
            for i, (name, j) in enumerate(zip(workload.attributes, row, strict=True))
            if j >= 0
        }
        yield Product(factors, weight2**0.5)


def _alone_on(workload: Workload, products: Sequence[Product]) -> Workload:
    """Return the products as a workload on the attributes that they mention."""
    names = {name for product in products for name in product.factors}
    domain = {name: n for name, n in workload.domain.items() if name in names}
    return Workload(domain, products)


def _plan(group: Workload, noise: Noise) -> FittedGroup | None:
    """Return the Kronecker strategy of a group on its own classes; None where it is too large."""
    if not group.domain:
        block = SeparateBlock((), (), (), Fraction(1))
        return FittedGroup(group, block, float(group.weights2.sum()))
    # With the total among the products, no cell is left out: blocks are to agree on it.
    coarse = coarsen(Workload(group.domain, [*group.products, {}]))
    merged = Workload(coarse.workload.domain, coarse.workload.products[:-1])
    problem = Problem(merged, noise)
    if problem.cells(problem.full) > MOST_CELLS or max(problem.sizes) > MOST_CLASSES:
        return None
    if cells_bound(merged):
        strategy = assemble(merged.domain, {}, {problem.names: 1.0}, noise, "identity")
    elif law(noise).norm == 1:
        family, found = search_kron(problem, restarts=0)
        strategy = realise(problem, family, found.union, "kron")
    else:
        strategy = kron_strategy(problem)
    matrices = tuple(
        _spread(strategy.full.get(name), coarse.classes[name]) for name in group.domain
    )
    if any(rows is not None and not has_independent_columns(rows) for rows in matrices):
        return None
    names, sizes = tuple(group.domain), tuple(group.domain.values())
    block = SeparateBlock(names, sizes, matrices, Fraction(1))
    return FittedGroup(group, block, strategy.unit_error(merged))


def _are_alike(blocks: Sequence[SeparateBlock]) -> bool:
    """True if all blocks are over the same attributes, and tell all of their cells apart.

    What they measure of one table can be measured at once, and is by strategies that are one block.
    """
    return len({block.attributes for block in blocks}) == 1 and all(
        rows is None or len(rows) >= n
        for block in blocks
        for n, rows in zip(block.sizes, block.matrices, strict=True)
    )


def _spread(rows: Integers | Structured | None, classes: Integers) -> Integers | None:
    """Return rows over classes as rows over cells, written out."""
    count = int(classes.max()) + 1
    if rows is None:
        if count == len(classes):
            return None
        rows = np.eye(count, dtype=np.int64)
    written = rows.dense() if isinstance(rows, Structured) else rows
    return np.ascontiguousarray(written[:, classes])


def _bound(group: Workload) -> float:
    """Return a quick lower bound on the error of any strategy of a group: of products alone."""
    return sum(
        product.weight**2 * math.prod(map(factor_bound, product.factors.values()))
        for product in group.products
    )


def _total(errors: Sequence[float], noise: Noise) -> float:
    """Return the error of groups that each answer their own products, with the best shares."""
    power = law(noise).share_power
    return float(sum(error**power for error in errors) ** (1 / power))


def share_blocks(strategy: Strategy, workload: Workload) -> SeparateStrategy:
    """Return separate blocks with the best shares for other weights of the products."""
    blocks = cast("tuple[SeparateBlock, ...]", strategy.blocks)
    weights = np.array([float(block.share) for block in blocks])
    return _combined(workload, blocks, weights, strategy.noise)


def _combined(
    workload: Workload,
    blocks: Sequence[SeparateBlock],
    weights: Floats,
    noise: Noise,
    steps: int = STEPS,
) -> SeparateStrategy:
    """Return the blocks with shares for the least error of all together, from first weights."""
    power = law(noise).share_power
    weights = np.maximum(weights / weights.max(), LEAST)
    strategy = _shared(workload, blocks, weights, noise)
    products = [(product, product.weight**2) for product in _distinct(workload)]
    best, least = strategy, np.inf
    work = sum(float(n) ** 3 for block in blocks for n in block.sizes)
    for step in range(steps):
        if step and not may_go_on():
            break
        spend(work)
        parts = strategy.forecast(strategy.unit_variances()).parts(products)
        error = float(parts.sum())
        gain = 1 - error / least
        if error < least:
            best, least = strategy, error
        if gain < SETTLED:
            break
        moved = weights * (np.maximum(parts, 0) / weights) ** power
        weights = np.maximum(moved / moved.max(), LEAST)
        strategy = _shared(workload, blocks, weights, noise)
    return best


def _shared(
    workload: Workload, blocks: Sequence[SeparateBlock], weights: Floats, noise: Noise
) -> SeparateStrategy:
    parts = shares(list(weights), negligible=0.0)
    kept = tuple(replace(block, share=part) for block, part in zip(blocks, parts, strict=True))
    return SeparateStrategy(workload.domain, kept, noise)
