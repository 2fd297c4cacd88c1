"""The Laplace templates in the order of their planning cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsql.algebra.marginals import outer
from dpsql.algebra.operator import Floats, Operator
from dpsql.records import dataclass
from dpsql.search.one_attribute import opt0
from dpsql.search.one_attribute.distinct_queries import read_few
from dpsql.search.one_attribute.gram_parts import learn_parts
from dpsql.search.one_attribute.low_rank import few_candidates, read_many
from dpsql.search.problem import Problem
from dpsql.search.unions.joint import (
    FoundUnion,
    Objective,
    Union,
    descend,
    initial_thetas,
    random_thetas,
    realise,
)
from dpsql.search.unions.kron_union import DENSE_LIMIT, Family
from dpsql.search.unions.opt_kron import best_identities, search_kron, search_union, split_weights
from dpsql.search.unions.opt_m import search_weights
from dpsql.search.work_limit import BRIEF, may_go_on, within
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.product_block import estimated

BLOCK_LIMIT = 1 << 22
"""Most numbers of the estimate of a block, 32 MiB, that a search may add beyond what is asked."""

EXTRA_SETS = 4000
"""Most unions of supports that are candidates when not every subset is."""

OPEN_SETS = 256
"""Most candidate sets over which a joint descent runs at once."""

WEIGHT_SECONDS = 2.0
"""Most nominal seconds of a search over weights, for effort 1."""

CROWD = 1 << 24
"""Most pairs of a candidate set and a component for a search over weights."""

QUERY_SCALES, COMBINED_SCALE = (0.5, 2.0), 4.0
"""Scales of queries, and of combinations of them, from which OPT_0 starts."""

HALF = 0.5
"""Share of the budget from which a block is most of a strategy."""

FEW_ATTRIBUTES = 3
"""Most attributes of several products of which one block over all is searched for by itself."""

ROUNDS = 4
"""Most alternations of a weight search and a joint descent."""

AGAIN, SAME = 2, 1e-3
"""Joint descents that end at the best found once more, after which no more are started: worse ends
tell nothing of what others may find. ``SAME`` is how far apart errors of one optimum are."""

SECOND = 1.0
"""Planning time, in seconds on an ordinary core, that one search aims at for effort 1."""

SETTLED = 128
"""Cells of the largest factor from which one block is all that is searched for one product."""

SIMPLE, KRON, JOINT = 0.25, 0.5, 0.75
"""Parts of the work of a choice that families have: unions of given rows, one block, and both."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The limits of one search: candidate sets, which of them fit, and how much work to do."""

    problem: Problem
    family: Family
    allowed: Floats
    effort: float

    @property
    def open(self) -> bool:
        """Say whether the sets are few enough to descend over all of them at once."""
        return len(self.family.sets) <= OPEN_SETS

    @property
    def crowded(self) -> bool:
        """Say whether sets and components are too many to search over."""
        return is_crowded(self.family)

    def around_full(self) -> Floats:
        """Return weights on the full set, and small ones elsewhere."""
        # Seeded, as all draws of a search: the same request must give the same plan.
        rng = np.random.default_rng(2)
        # Small and unequal, so that every other set may enter.
        w = 0.01 * rng.random(len(self.family.sets)) * self.allowed
        w[self.family.sets.index(self.problem.full)] = 1.0
        return w

    def weight_seconds(self) -> float:
        """Return the nominal time of a search over weights alone."""
        return self.effort * WEIGHT_SECONDS

    def joint_starts(self, thetas: tuple[Floats | None, ...]) -> int:
        """Return how many joint descents to start: none at random where values are summed.

        Args:
            thetas: (p_i, n_i) per attribute, None for the identity.
        """
        asked = zip(thetas, self.problem.factors, strict=True)
        if any(theta is not None and factors.is_graded for theta, factors in asked):
            return 1
        count = len(self.family.sets) if self.open else 100
        cost = 3e-4 + count * len(self.family.components) * 2e-9
        for theta, factors in zip(thetas, self.problem.factors, strict=True):
            if theta is not None:
                cost += factors.n**2 * (len(theta) + 4 * factors.weight) * 1e-9
        cost += len(self.problem.components.weights2) * 1e-7 * self.problem.d
        # 300 is the most steps of one descent. Nominal costs, never a clock: plans can be made
        # again.
        return int(np.clip(self.effort * SECOND / (cost * 300), 1, 12 * self.effort + 1))


def is_crowded(family: Family) -> bool:
    """Say whether sets and components are too many to search over."""
    return len(family.sets) * len(family.components) > CROWD


def room(problem: Problem, limit: int, effort: float) -> SearchLimits:
    """Return the candidate sets: all subsets for few attributes, else those near the supports.

    Args:
        limit: most numbers of one block.
        effort: scales the work.
    """
    components = problem.components
    largest = max(problem.cells(M) for M in components.supports)
    bound = min(limit, max(BLOCK_LIMIT, largest))
    sets: list[int] | None = None
    if problem.d > DENSE_LIMIT and len(components.masks) ** 2 > CROWD:
        sets = list(components.masks)  # and more would be in vain
    elif problem.d > DENSE_LIMIT:
        known = dict.fromkeys(components.masks)
        supports = sorted(set(components.supports))
        for k, left in enumerate(supports):
            for right in supports[:k]:
                if len(known) - len(components.masks) < EXTRA_SETS:
                    known.setdefault(left | right)
        sets = sorted(M for M in known if problem.cells(M) <= bound)
    family = Family(problem.d, sets, components.masks)
    if sets is not None:
        return SearchLimits(problem, family, np.ones(len(sets)), effort)
    # A block is estimated on its cells, and beside others on those of each subset, one more a
    # factor: what a search adds is held to the second. Sizes beyond 2^53 are rounded, far above.
    cells = outer([(1, estimated([n])) for n in problem.sizes]).ravel()
    apart = outer([(1, n + 1) for n in problem.sizes]).ravel()
    most = max(BLOCK_LIMIT, apart[components.supports].max())
    fits = (cells <= limit) & (apart <= most)
    return SearchLimits(problem, family, fits.astype(np.float64), effort)


def laplace_candidates(
    problem: Problem, mechanism: str, limit: int, effort: float
) -> Iterator[ProductStrategy]:
    """Yield the strategies of a mechanism.

    Where both are too many to search over, one block per support replaces the search for weights.

    Args:
        mechanism: a family, or "auto" or "hdmm" for several.
        limit: most numbers of one block.
        effort: scales the work.
    """
    if problem.d == 1:
        yield from single_candidates(problem, effort)  # there is no other family
        return
    several = len(problem.components.weights2) > 1
    plain = all(factors.trivial for factors in problem.factors)
    auto = mechanism == "auto"
    crowded = auto and room(problem, limit, effort).crowded
    if several and (mechanism in ("hdmm", "union") or crowded):
        yield from within(SIMPLE, union_candidates(problem))
    if mechanism in ("hdmm", "marginals") or (auto and not crowded):
        less = effort / (4 if auto and not plain else 1)
        yield from within(SIMPLE, marginals_candidates(problem, limit, less))
    is_brief = effort <= BRIEF and not several
    has_joint = mechanism == "joint" or (
        auto and not plain and not crowded and not is_brief and not _is_settled(problem)
    )
    is_first = auto and several and has_joint
    if mechanism in ("hdmm", "kron") or (auto and not is_first and _is_small(problem)):
        yield from within(KRON, kron_candidates(problem, limit, effort))
    near = True
    if has_joint:
        for found in within(JOINT, joint_candidates(problem, limit, effort)):
            near = _is_one_block(found)
            yield found
    if is_first and near and _is_small(problem):
        yield from within(KRON, kron_candidates(problem, limit, effort))


def _is_small(problem: Problem) -> bool:
    """Say whether one block is searched for beside what several blocks are."""
    return len(problem.components.weights2) == 1 or problem.d <= FEW_ATTRIBUTES


def _is_one_block(found: ProductStrategy) -> bool:
    """Say whether most of the budget is for one block over all attributes of any.

    Joint descents begin at such a block too: where they leave it, the best of them is no rival.
    """
    largest = max(found.blocks, key=lambda block: block.share)
    names = {name for block in found.blocks for name in block.attributes}
    return largest.share > HALF and names <= set(largest.attributes)


def _is_settled(problem: Problem) -> bool:
    """Say whether a joint search gains nothing over one block, whose factors are separate.

    That is so for one product. Where its factors are small there may be a percent in more blocks.
    """
    longest = max(f.n for f in problem.factors if not f.trivial)
    return len(problem.components.weights2) == 1 and longest >= SETTLED


def identity_candidates(problem: Problem, limit: int) -> list[ProductStrategy]:
    """Return the best union of identities."""
    return [realise(problem, *best_identities(problem, limit), "identity")]


def kron_candidates(problem: Problem, limit: int, effort: float) -> Iterator[ProductStrategy]:
    """Yield the best Kronecker strategy, if the whole domain fits."""
    if problem.cells(problem.full) <= limit:
        cost = sum(f.n**2 * (f.n // 16 + 2 + 4 * f.weight) for f in problem.factors) * 1e-9
        # 300 steps of a descent; half a millisecond is what a step costs besides arithmetic.
        restarts = int(np.clip(effort * SECOND / (300 * (cost + 5e-4)), 1, 20 * effort))
        family, found = search_kron(problem, restarts=restarts, effort=effort)
        yield realise(problem, family, found.union, "kron")


def union_candidates(problem: Problem) -> Iterator[ProductStrategy]:
    """Yield the best union of one block per support."""
    family, found = search_union(problem)
    yield realise(problem, family, found.union, "union")


def marginals_candidates(problem: Problem, limit: int, effort: float) -> Iterator[ProductStrategy]:
    """Yield the best weighted union of identities.

    Args:
        limit: most numbers of one block.
        effort: scales the work.
    """
    space = room(problem, limit, effort)
    if space.crowded:
        return
    objective = Objective(problem, space.family)
    thetas: tuple[Floats | None, ...] = (None,) * problem.d
    found = search_weights(
        objective,
        thetas,
        seconds=space.weight_seconds(),
        effort=effort,
        starts=[split_weights(objective, thetas)],
        allowed=space.allowed,
    )
    yield realise(problem, space.family, found.union, "marginals")


def joint_candidates(problem: Problem, limit: int, effort: float) -> Iterator[ProductStrategy]:
    """Yield the best union with factors and weights optimised together.

    Starts: the best weights for OPT_0 of each attribute's own factors, the Kronecker optimum
    with all other sets nearly free to enter, and random ones where a descent is cheap.
    """
    space = room(problem, limit, effort)
    if space.crowded:
        yield from union_candidates(problem)
        return
    base = initial_thetas(problem, effort=effort)
    found = [_weights_then_joint(space, base, seed=0)]
    if effort <= BRIEF:
        yield realise(problem, space.family, found[0].union, "joint")
        return
    has_full = problem.cells(problem.full) <= limit and problem.full in space.family.sets
    if has_full and space.open:
        _, block = search_kron(problem, restarts=1 + int(2 * effort), rough=True)
        start = Union(block.union.thetas, space.around_full())
        found.append(_joint(space, start, 1e-6))
    rng = np.random.default_rng(1)
    best, again = min(found, key=lambda f: f.error), 0
    for seed in range(1, space.joint_starts(base)):
        thetas = random_thetas(base, rng)
        if space.open:
            # Squared, so that more of the weights are small, as they are where a search ends.
            w = rng.random(len(space.family.sets)) ** 2 * space.allowed
            other = _joint(space, Union(thetas, w), 1e-6)
        else:
            other = _weights_then_joint(space, thetas, seed)
        if abs(other.error / best.error - 1) <= SAME:
            again += 1
        elif other.error < best.error:
            again = 0
        best = min(best, other, key=lambda f: f.error)
        if again >= AGAIN * max(1.0, effort) or not may_go_on():
            break
    best = polish(space, best)
    yield realise(problem, space.family, best.union, "joint")


def _weights_then_joint(
    space: SearchLimits, thetas: tuple[Floats | None, ...], seed: int
) -> FoundUnion:
    objective = Objective(space.problem, space.family)
    weighted = search_weights(
        objective,
        thetas,
        seconds=space.weight_seconds() / 6,
        effort=space.effort / 4,
        seed=seed,
        starts=[split_weights(objective, thetas)],
        allowed=space.allowed,
    )
    return _joint(space, weighted.union, 1e-6)


def _joint(space: SearchLimits, start: Union, ftol: float, maxiter: int = 300) -> FoundUnion:
    """Descend over factors and weights: over all sets if few, else over those already in use."""
    chosen = np.flatnonzero(space.allowed > 0 if space.open else start.w > 0)
    sets = [space.family.sets[m] for m in chosen]
    family = Family(space.problem.d, sets, space.family.components)
    found = descend(
        Objective(space.problem, family),
        Union(start.thetas, start.w[chosen]),
        ftol=ftol,
        maxiter=maxiter,
    )
    w = np.zeros(len(space.family.sets))
    w[chosen] = found.union.w
    return FoundUnion(found.error, Union(found.union.thetas, w))


def polish(space: SearchLimits, best: FoundUnion) -> FoundUnion:
    """Alternate: search the weights with the factors frozen, then descend over both."""
    objective = Objective(space.problem, space.family)
    for seed in range(1, 1 + ROUNDS):
        share = 1 if seed == 1 else 3
        weighted = search_weights(
            objective,
            best.union.thetas,
            seconds=space.weight_seconds() / share,
            effort=space.effort / share,
            seed=seed,
            starts=[best.union.w],
            allowed=space.allowed,
        )
        start = weighted if weighted.error < best.error else best
        again = _joint(space, start.union, 1e-8, 500)
        gain = 1 - again.error / best.error
        best = min(best, weighted, again, key=lambda f: f.error)
        if gain < 1e-3 or not may_go_on():
            break
    return best


def single_candidates(problem: Problem, effort: float) -> Iterator[ProductStrategy]:
    """Yield combinations of few queries, or of many alike, then OPT_0: the identity, learned rows.

    Where queries are few, OPT_0 starts from them and from their combinations too; from these alone
    where values are summed: random rows are far from such as go with a value, and seldom better.
    """
    few = read_few(problem) or read_many(problem)
    starts: list[Floats] = []
    if few is not None and few.alike is None and not problem.factors[0].large:
        spans = len(few.basis) == problem.sizes[0] and np.isin(few.queries, (0, 1)).all()
        if spans or (few.is_full and effort <= BRIEF):
            few = None  # of counts that tell all cells apart, OPT_0 is no worse; else by a per cent
    if few is not None and few.alike is not None:
        yield from (found for found, _ in few_candidates(problem, few, effort))
    elif few is not None:
        if 2 * len(few.queries) <= problem.sizes[0]:
            starts += [scale * np.abs(few.queries) for scale in QUERY_SCALES]
        for found, _ in few_candidates(problem, few, effort):
            yield found
            rows = found.full[problem.names[0]]
            if isinstance(rows, np.ndarray):
                starts.append(COMBINED_SCALE * np.abs(rows / np.abs(rows).sum(axis=0).max()))
    if problem.factors[0].large or (few is not None and few.is_thin):
        return
    factors, components = problem.factors[0], problem.components
    gram: Floats | Operator
    if len(components.weights2) == 1:
        gram = factors.operators[0]
    else:
        which = components.index[:, 0]
        asked = which >= 0
        count = len(factors.operators)
        share = np.bincount(which[asked], components.weights2[asked], minlength=count)
        gram = factors.gram(share.astype(np.float64)) + components.weights2[~asked].sum()
    family = Family(1, [1], components.masks)
    learned = learn_parts(gram)
    if learned is not None:
        yield realise(problem, family, Union((learned,), np.ones(1)), "opt_0")
        return
    graded = few is not None and few.is_graded and starts
    for init in (starts,) if graded else (None, *starts):
        if init is not None and not may_go_on():
            break
        theta = opt0.optimise(gram, init=init, effort=effort)
        yield realise(problem, family, Union((theta,), np.ones(1)), "opt_0")
