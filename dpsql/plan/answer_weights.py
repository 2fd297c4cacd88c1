"""Weights of answers: grown by quick plans, until no answer is worse than it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dpsql.algebra.blocks import Total
from dpsql.errors import ProgrammingError
from dpsql.plan.candidate_plan import (
    CandidatePlan,
    emphasised,
    least_error,
    total_error,
    where_it_fits,
    worst_of,
)
from dpsql.plan.target import Target, mean_variances
from dpsql.records import dataclass, replace
from dpsql.search.select import CELL_LIMIT
from dpsql.search.strategy_cache import cached_choice
from dpsql.search.work_limit import may_go_on
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.layout import Layout, Place
from dpsql.workload.repeated_blocks import resolved
from dpsql.workload.workload import Workload

if TYPE_CHECKING:
    from dpsql.search.shares import Reach

ROUNDS = 12
"""Most rounds of weighing answers anew."""

LESS = 0.25
"""Effort of a round, of that for the whole."""

HALVINGS = 9
"""Steps of a search for the least part of plain noise that keeps answers within the cap."""

NEAR = 0.95
"""Part of the cap that weights aim at."""

JOINING = ("auto", "workload", "opt_0", "coa")
"""Families that are searched for on one attribute of all columns as well."""

FEW = ("few queries", "workload")
"""Methods of which other weights are planned as quickly: no other family comes near them."""

STILL = 2e-4
"""Relative change of an error below which weights have settled."""

SETTLING = 4
"""Rounds that look for the least weights where a round is a plan of its own."""

PRESSES, ALMOST = 16, 1.05
"""Most times that weights grow for the blocks of one search, and the ratio of variances below which
small steps towards the limits are no reason to end."""

HOPELESS = 10.0
"""Ratio of variances at the start from which no search goes back and forth before it ends, and at
which shares alone do not help."""

HEAVIEST = 1e5
"""Most that a weight grows: its square is compared with those of others, which are lost below
1e-13 of it."""

STUCK = 0.97
"""Part of a ratio of variances that two rounds must undercut for there to be more."""

CLOSE = 0.998
"""Part of the cap that the last rounds aim at."""

DEAR = 1.05
"""Largest error, relative to that without the cap, before there is another search."""

STEP = 2.4
"""Power of a ratio of variances by which squared weights grow at first."""

CALM = 4
"""Rounds after which weights only grow, ever more slowly."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The outcome of weighing: strategies ``within`` the limits, and the least ``worst_of`` any."""

    within: list[CandidatePlan]
    worst: float


@dataclass(frozen=True, slots=True)
class AnswerWeights:
    """The facts of a choice; ``apart`` keeps to marginals, for a model to be fitted to.

    A layout with a larger error ``than`` this is not kept within the limits: there is a better one.
    ``own`` is the budget for one row, where limits are to be those of plain noise as it is drawn.
    """

    target: Target
    noise: Noise
    mechanism: str
    effort: float
    apart: bool = False
    than: float = math.inf
    own: float | None = None

    def select(
        self,
        layout: Layout,
        emphasis: Mapping[Place, float] | None = None,
        family: str | None = None,
    ) -> CandidatePlan:
        """Return the strategy of least error; ``emphasis`` multiplies the weights of answers."""
        workload = self.weighted(layout, emphasis)
        effort = self.effort if emphasis is None else self.effort * LESS
        chosen = cached_choice(workload, self.noise, family or self.mechanism, effort)
        rated = self.rated(layout, chosen.strategy, chosen.lower if emphasis is None else 0.0)
        return replace(rated, coarse=chosen.coarse) if emphasis is None else rated

    def weighted(self, layout: Layout, emphasis: Mapping[Place, float] | None) -> Workload:
        """Return what is planned for: each cell of columns that all answers have is planned once.

        Families with a name of their own are as they are published, but for nodes.
        """
        workload = layout.workload if emphasis is None else emphasised(layout, emphasis)
        is_once = self.mechanism in JOINING or self.target.has_nodes
        return resolved(workload) if is_once else workload

    def rated(self, layout: Layout, strategy: Strategy, lower: float) -> CandidatePlan:
        """Return a strategy with its errors."""
        forecast = strategy.forecast(strategy.unit_variances())
        means = mean_variances(forecast, layout.products)
        error = total_error(self.target, layout, means)
        return CandidatePlan(layout, strategy, 0.0 if layout.padded else lower, means, error)

    def nearest(self, start: CandidatePlan, limits: Mapping[Place, float]) -> Reached:
        """Return strategies within the limits, from afar too where those near by cost much."""
        near = self.weighed(start, limits)
        settled = start.strategy.kind == "separate"  # shares are all that was searched for
        settled |= bool(near.within) and start.strategy.method == FEW[0]
        if settled or least_error(near.within) <= DEAR * start.error:
            return near
        far = self.weighed(start, limits, "far")
        return Reached([*near.within, *far.within], min(near.worst, far.worst))

    def weighed(
        self, start: CandidatePlan, limits: Mapping[Place, float], reach: Reach = "near"
    ) -> Reached:
        """Return strategies within the limits, for weights that grow where answers are not.

        The weights are found by quick plans, the first of which that is within the limits is
        mixed with the start; where that costs much, there is a search in earnest with them.
        """
        foreseen = self.foreseen(start, limits)
        if foreseen is None or worst_of(foreseen, limits) > 1:
            return self.grown(start, limits, reach)
        known = Reached([foreseen], worst_of(foreseen, limits))
        if start.strategy.method == FEW[0] or foreseen.error <= DEAR * start.error:
            return known
        grown = self.grown(start, limits, reach)
        return Reached([*known.within, *grown.within], min(known.worst, grown.worst))

    def grown(
        self, start: CandidatePlan, limits: Mapping[Place, float], reach: Reach = "near"
    ) -> Reached:
        """Return strategies within the limits by quick plans alone, where nothing is foreseen."""
        chosen, emphasis, within = start, dict.fromkeys(limits, 1.0), []
        worst = [worst_of(start, limits)]
        patience = CALM if reach == "near" or worst[0] > HOPELESS else 2 * CALM
        for number in range(ROUNDS):
            power = STEP / 2 / (1 + number // CALM)
            for place, mean in chosen.means.items():
                grown = emphasis[place] * (mean / (limits[place] * NEAR)) ** power
                least = 1.0 if number < CALM else emphasis[place]
                emphasis[place] = min(HEAVIEST, max(least, grown))
            known = chosen if chosen.strategy.method == FEW[0] else start
            chosen = self.quick(known, emphasis, reach)
            if reach == "far":
                chosen = self.pressed(chosen, emphasis, limits, NEAR)
            worst.append(worst_of(chosen, limits))
            if worst[-1] <= 1:
                within = [chosen]
            is_stuck = number > patience and min(worst[-2:]) > STUCK * min(worst[:-2])
            if within or is_stuck or not may_go_on():
                break
        within += self.mixed(start, within, limits)
        if within:
            within += self.settled(within[-1], emphasis, limits)
        is_dear = bool(within) and least_error(within) > DEAR * start.error
        # families that are weighed by themselves are near; statements by themselves are within
        is_first = math.isinf(self.than) and self.target.limits is None
        if is_dear and is_first and reach == "far" and len(start.layout.workload.domain) > 1:
            within.append(self.select(start.layout, emphasis))
        return Reached([each for each in within if worst_of(each, limits) <= 1], min(worst))

    def pressed(
        self,
        chosen: CandidatePlan,
        emphasis: dict[Place, float],
        limits: Mapping[Place, float],
        aim: float,
    ) -> CandidatePlan:
        """Return the same blocks with shares that bring answers within the limits, or nearer.

        Weights of answers beyond their limits grow while that helps, aiming at a part of these:
        ``emphasis`` is changed.
        """
        worst = [worst_of(chosen, limits)]
        if worst[0] > HOPELESS:
            return chosen
        while worst[-1] > 1 and len(worst) <= PRESSES:
            for place, mean in chosen.means.items():
                if mean > limits[place]:
                    grown = emphasis[place] * (mean / (limits[place] * aim)) ** (STEP / 2)
                    emphasis[place] = min(HEAVIEST, grown)
            anew = self.shared(chosen, emphasis, "own")
            if anew is None:
                break
            chosen = anew
            worst.append(worst_of(chosen, limits))
            if len(worst) > 3 and worst[-1] > ALMOST and min(worst[-3:]) > STUCK * min(worst[:-3]):
                break
        return chosen

    def foreseen(self, start: CandidatePlan, limits: Mapping[Place, float]) -> CandidatePlan | None:
        """Return what a descent within the limits comes to, for few queries under Laplace noise."""
        return self.near(start, limits=limits) if law(self.noise).norm == 1 else None

    def settled(
        self, chosen: CandidatePlan, emphasis: Mapping[Place, float], limits: Mapping[Place, float]
    ) -> list[CandidatePlan]:
        """Return strategies of the same blocks with the least weights that keep the limits."""
        weights = dict(emphasis)
        out: list[CandidatePlan] = []
        for _ in range(ROUNDS):
            settled = self.shared(chosen, weights, "own")
            if settled is None and len(out) < SETTLING and may_go_on():
                settled = self.quick(chosen, weights)
            if settled is None:
                break
            is_still = bool(out) and abs(settled.error - chosen.error) < STILL * chosen.error
            chosen = settled
            out.append(chosen)
            if is_still:
                break
            for place, mean in chosen.means.items():
                grown = weights[place] * (mean / (limits[place] * CLOSE)) ** (STEP / 4)
                weights[place] = max(1.0, grown)
        if out and worst_of(chosen, limits) > 1:
            out.append(self.pressed(chosen, weights, limits, CLOSE))
        return out

    def shared(
        self, start: CandidatePlan, emphasis: Mapping[Place, float], reach: Reach
    ) -> CandidatePlan | None:
        """Return the strategy with other shares, where those can be found by themselves."""
        from dpsql.search.shares import reweight  # searches that most requests do without

        if law(self.noise).norm == 2 or len(start.layout.workload.domain) == 1:
            return None
        layout = start.layout
        found = reweight(start.strategy, emphasised(layout, emphasis), CELL_LIMIT, reach)
        try:
            return None if found is None else self.rated(layout, found, 0.0)
        except ProgrammingError:  # what something needs came to weigh nothing beside the rest
            return None

    def mixed(
        self, start: CandidatePlan, within: Sequence[CandidatePlan], limits: Mapping[Place, float]
    ) -> list[CandidatePlan]:
        """Return as little as will do of a strategy within the limits, mixed into the start.

        Without one, a block for every product that is asked stands for it.
        """
        from dpsql.search.shares import mix  # searches that most requests do without

        layout = start.layout
        other = within[0].strategy if within else None
        low, high = 0.0, 1.0
        out: list[CandidatePlan] = []
        for _ in range(HALVINGS):
            part = 1.0 if not within and not out else (low + high) / 2
            mixture = mix(start.strategy, other, layout.workload, part)
            if mixture is None:
                break
            rated = self.rated(layout, mixture, 0.0)
            if worst_of(rated, limits) <= 1:
                out, high = [rated], part
            elif part == 1.0:
                break
            else:
                low = part
        return out

    def near(
        self,
        start: CandidatePlan,
        emphasis: Mapping[Place, float] | None = None,
        limits: Mapping[Place, float] | None = None,
    ) -> CandidatePlan | None:
        """Return a strategy of the same few queries for other weights, or within limits.

        Within limits, of the queries of one attribute, whatever the strategy. None where queries
        are too many.
        """
        layout, strategy = start.layout, start.strategy
        names = {name for product in layout.workload.products for name in product.factors}
        if len(names) != 1 or (limits is None and strategy.method != FEW[0]):
            return None
        from dpsql.search.neighbourhood import (
            Neighbourhood,  # searches that most requests do without
        )

        known = Neighbourhood(strategy)
        if limits is not None:
            (name,) = names
            total = Total(layout.workload.domain[name])
            read = [layout.products[place] for place in limits]
            if not all(len(each) == 1 for each in read):
                return None
            answers = ((scale, each.factors.get(name, total)) for ((scale, each),) in read)
            known = Neighbourhood(strategy, tuple(answers), tuple(limits.values()))
        workload = self.weighted(layout, emphasis)
        with where_it_fits():
            found = cached_choice(workload, self.noise, self.mechanism, self.effort * LESS, known)
            return self.rated(layout, found.strategy, 0.0)
        return None

    def quick(
        self, start: CandidatePlan, emphasis: Mapping[Place, float], reach: Reach = "near"
    ) -> CandidatePlan:
        """Return a strategy for other weights without a long search."""
        if start.strategy.kind == "separate":
            from dpsql.search.unions.opt_plus import (
                share_blocks,  # searches that most requests do without
            )

            found = share_blocks(start.strategy, emphasised(start.layout, emphasis))
            return self.rated(start.layout, found, 0.0)
        if law(self.noise).norm == 1:
            near = self.near(start, emphasis)
            if near is not None:
                return near
            family = "kron" if start.strategy.method == "kron" else None
            anew = self.shared(start, emphasis, reach)
            return anew or self.select(start.layout, emphasis, family)
        is_joint = start.strategy.method not in FEW
        if self.mechanism == "auto" and is_joint and len(start.layout.workload.domain) > 1:
            workload = emphasised(start.layout, emphasis)
            family = "symmetric" if start.strategy.kind == "symmetric" else "residual"
            closed = cached_choice(workload, self.noise, family, self.effort)
            return self.rated(start.layout, closed.strategy, 0.0)
        return self.select(start.layout, emphasis)
