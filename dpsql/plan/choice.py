"""How one table is measured: the layout and the strategy of least expected error.

No answer may be much worse than under plain noise on every number that is asked for. Where the
least total error would have it so, such answers count for more until it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpsql.errors import ProgrammingError
from dpsql.plan.chosen import (
    WORTHWHILE,
    Chosen,
    by_error,
    emphasised,
    least_error,
    total_error,
    worst_of,
)
from dpsql.plan.limits import find_limits, plain_error
from dpsql.search.cache import cached_choice
from dpsql.search.itself import measure_queries
from dpsql.search.meter import may_go_on
from dpsql.search.select import CELL_LIMIT
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.queries import MOST_ROWS
from dpsql.workload.layout import Layout, Place
from dpsql.workload.target import Target, mean_variances

if TYPE_CHECKING:
    from dpsql.search.shares import Reach

FEW_ROWS, FEW_CELLS = 256, 256
"""Most rows, or cells, of a workload on one attribute of all columns that is searched over."""

ROUNDS = 12
"""Most rounds of weighing answers anew."""

LESS = 0.25
"""Effort of a round, of that for the whole."""

FAR = 1.5
"""How much larger an error may be for its layout to be weighed rather than the best one's."""

HALVINGS = 9
"""Steps of a search for the least part of plain noise that keeps answers within the cap."""

NEAR = 0.95
"""Part of the cap that weights aim at."""

DOUBTFUL = 3.0
"""Gain over plain noise from which queries measured themselves are not tried."""

SIMPLER = {1: ("identity", "union"), 2: ("union", "marginals", "symmetric")}
"""Families that are weighed anew by themselves where another one has not come near."""

FEW = ("few queries", "workload")
"""Methods of which other weights are planned as quickly: no other family comes near them."""

SUMMED = ("identity", "kron", "marginals")
"""Families that are compared where answers are sums of products, whose errors do not add up."""

SLACK = 5e-3
"""How much larger than without limits an error may be for no other family to be tried."""

TRIED = 2
"""Layouts of which strategies are weighed anew."""

SETTLING = 4
"""Rounds that look for the least weights where a round is a plan of its own."""

STUCK = 0.97
"""Part of a ratio of variances that two rounds must undercut for there to be more."""

CLOSE = 0.998
"""Part of the cap that the last rounds aim at."""

DEAR = 1.05
"""How much larger than without the cap an error may be before there is another search."""

STEP = 2.4
"""Power of a ratio of variances by which squared weights grow at first."""

CALM = 4
"""Rounds after which weights only grow, ever more slowly."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """What choosing depends on; ``apart`` keeps to marginals, for a model to be fitted to.

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

    def best(self) -> Chosen:
        """Return the least total error that keeps every answer within the cap."""
        return min(self.within(self.selected()), key=by_error)

    def within(self, selected: Sequence[Chosen]) -> list[Chosen]:
        """Return what keeps every answer within the cap, or the least error where nothing does.

        ``selected`` are the best strategies of every layout.
        """
        found = [*selected, *self.others()]
        if len(self.target.asked) == 1:
            return [*found, *self.queries(found)]
        best = min(found, key=by_error)
        limits = find_limits(self.target, self.noise, self.own)
        within = [chosen for chosen in found if worst_of(chosen, limits) <= 1]
        if best not in within:
            for start in sorted(found, key=self._ease(best))[:TRIED]:
                enough = min(self.than, least_error(within)) / (1 + WORTHWHILE)
                if start.error >= enough or not may_go_on():
                    continue
                near = self.weighed(start, limits)
                settled = start.strategy.kind == "separate"  # shares are all that was searched for
                if not settled and least_error(near) > DEAR * start.error:
                    near += self.weighed(start, limits, "far")
                within += near
            if any(each.strategy.method == "residual" for each in within):
                return within
            within += self.simpler(limits, within, best)
        if least_error(within) > plain_error(self.target, self.noise) / self.doubtful:
            within += [each for each in self.queries(within) if worst_of(each, limits) <= 1]
        within += [each for each in self.in_threes() if worst_of(each, limits) <= 1]
        return within or [best]

    def selected(self) -> list[Chosen]:
        """Return the best strategy of every layout, of the first at least."""
        found: list[Chosen] = []
        for layout in self.layouts():
            if not found or may_go_on():
                found.append(self.select(layout))
        return found

    @property
    def doubtful(self) -> float:
        """The gain over plain noise from which queries measured themselves are not tried."""
        return DOUBTFUL if self.target.layouts[0].workload.rows <= MOST_ROWS else 1.0

    def others(self) -> list[Chosen]:
        """Return what families come to where answers are sums of products.

        The search adds up the errors of products, and what they share may make another one better.
        """
        layouts = self.target.layouts
        are_sums = any(len(r) > 1 for layout in layouts for r in layout.products.values())
        if self.mechanism != "auto" or not are_sums or layouts[0].workload.rows > FEW_ROWS:
            return []
        return self.by_name(
            SUMMED, than=plain_error(self.target, self.noise) if self.is_plain else math.inf
        )

    def by_name(
        self, names: Iterable[str], enough: float = 0.0, than: float = math.inf
    ) -> list[Chosen]:
        """Return the plans of families that fit, until one has an error that is small enough.

        Those with a larger error ``than`` this before any limits are not kept within them.
        """
        found: list[Chosen] = []
        for name in names:
            if least_error(found) <= enough or not may_go_on():
                break
            try:
                found.append(replace(self, mechanism=name, than=than).best())
            except ProgrammingError as error:
                if error.code != "E_TOO_LARGE":
                    raise
        return found

    def simpler(
        self, limits: Mapping[Place, float], known: Sequence[Chosen], best: Chosen
    ) -> list[Chosen]:
        """Return what families come to by themselves within the limits, until one is near enough.

        Nothing is better than the best without limits, so that what is near it ends the search.
        """
        if self.mechanism != "auto":
            return []
        norm = law(self.noise).norm
        enough = best.error * (DEAR if norm == 1 else 1 + SLACK)
        if least_error(known) <= enough:
            return []
        than = min(
            least_error(known), plain_error(self.target, self.noise) if self.is_plain else math.inf
        )
        found = self.by_name(SIMPLER[norm], enough, than)
        return [each for each in found if worst_of(each, limits) <= 1]

    @property
    def is_plain(self) -> bool:
        """Whether every number that is asked can be measured itself: no plan need be worse."""
        layout = next((each for each in self.target.layouts if each.is_single), None)
        return layout is not None and not self.apart and layout.workload.rows <= MOST_ROWS

    def queries(self, known: Iterable[Chosen] = ()) -> list[Chosen]:
        """Return the queries themselves as a strategy, where they are few, and may be better."""
        layout = next((each for each in self.target.layouts if each.is_single), None)
        if layout is None or self.apart or self.mechanism not in ("auto", "workload"):
            return []
        if any(each.layout is layout and each.is_optimal for each in known):
            return []
        strategy = measure_queries(layout.workload, self.noise)
        return [] if strategy is None else [self.rated(layout, strategy, 0.0)]

    def in_threes(self) -> list[Chosen]:
        """Return conditions on columns of their own, measured in threes, where they are many."""
        if self.apart or self.target.units or self.mechanism != "auto":
            return []
        from dpsql.search.opposites import in_threes  # most requests do without

        found = in_threes(self.target.apart, self.noise, self.effort)
        return [] if found is None else [self.rated(*found, 0.0)]

    def _ease(self, best: Chosen) -> Callable[[Chosen], tuple[bool, float]]:
        """What to weigh anew: a strategy on one attribute, quick to plan, if it is not far off."""

        def key(chosen: Chosen) -> tuple[bool, float]:
            slow = len(chosen.layout.workload.domain) > 1 or chosen.error > FAR * best.error
            return slow, chosen.error

        return key

    def layouts(self) -> tuple[Layout, ...]:
        """The layouts to choose from: one attribute of all columns too, where a search pays."""
        joins = self.mechanism in ("auto", "workload") and not self.apart
        together = self.target.together if joins else None
        if together is None:
            return self.target.layouts
        cells = math.prod(together.workload.domain.values())
        is_small = cells <= FEW_CELLS or together.workload.rows <= FEW_ROWS
        return (*self.target.layouts, together) if is_small else self.target.layouts

    def select(
        self,
        layout: Layout,
        emphasis: Mapping[Place, float] | None = None,
        family: str | None = None,
    ) -> Chosen:
        """Return the strategy of least error; ``emphasis`` multiplies the weights of answers."""
        workload = layout.workload if emphasis is None else emphasised(layout, emphasis)
        effort = self.effort if emphasis is None else self.effort * LESS
        chosen = cached_choice(workload, self.noise, family or self.mechanism, effort)
        rated = self.rated(layout, chosen.strategy, chosen.lower if emphasis is None else 0.0)
        return replace(rated, coarse=chosen.coarse) if emphasis is None else rated

    def rated(self, layout: Layout, strategy: Strategy, lower: float) -> Chosen:
        """Return a strategy with its errors."""
        forecast = strategy.forecast(strategy.unit_variances())
        means = mean_variances(forecast, layout.products)
        error = total_error(self.target, layout, means)
        return Chosen(layout, strategy, 0.0 if layout.padded else lower, means, error)

    def weighed(
        self, start: Chosen, limits: Mapping[Place, float], reach: Reach = "near"
    ) -> list[Chosen]:
        """Return strategies within the limits, for weights that grow where answers are not.

        The weights are found by quick plans, the first of which that is within the limits is
        mixed with the start; where that costs much, there is a search in earnest with them.
        """
        foreseen = self.foreseen(start, limits)
        if foreseen is not None and worst_of(foreseen, limits) <= 1:
            return [foreseen]
        chosen, emphasis, within = start, dict.fromkeys(limits, 1.0), []
        worst = [worst_of(start, limits)]
        for number in range(ROUNDS):
            power = STEP / 2 / (1 + number // CALM)
            for place, mean in chosen.means.items():
                grown = emphasis[place] * (mean / (limits[place] * NEAR)) ** power
                emphasis[place] = max(1.0 if number < CALM else emphasis[place], grown)
            chosen = self.quick(start, emphasis, reach)
            worst.append(worst_of(chosen, limits))
            if worst[-1] <= 1:
                within = [chosen]
            if within or (number > CALM and worst[-1] > STUCK * worst[-3]) or not may_go_on():
                break
        within += self.mixed(start, within, limits)
        if within:
            within += self.settled(within[-1], emphasis, limits)
        is_dear = bool(within) and least_error(within) > DEAR * start.error
        if is_dear and reach == "far" and len(start.layout.workload.domain) > 1:
            within.append(self.select(start.layout, emphasis))
        return [each for each in within if worst_of(each, limits) <= 1]

    def foreseen(self, start: Chosen, limits: Mapping[Place, float]) -> Chosen | None:
        """Return the optimum within the limits, where that is known for unions of marginals."""
        if start.strategy.method != "residual":
            return None
        from dpsql.search.emphasis import residual_emphasis  # most requests do without

        layout, asked = start.layout, self.target.asked
        found = residual_emphasis(
            layout.workload,
            list(layout.products.values()),
            np.array([asked[p].weight ** 2 * layout.rows[p] for p in layout.products]),
            np.array([limits[p] * CLOSE for p in layout.products]),
        )
        if found is None:
            return None
        return self.quick(start, dict(zip(layout.products, found.tolist(), strict=True)))

    def settled(
        self, chosen: Chosen, emphasis: Mapping[Place, float], limits: Mapping[Place, float]
    ) -> list[Chosen]:
        """Return strategies of the same blocks with the least weights that keep the limits."""
        weights = dict(emphasis)
        out: list[Chosen] = []
        for _ in range(ROUNDS):
            settled = self.shared(chosen, weights, "own")
            if settled is None and len(out) < SETTLING and may_go_on():
                settled = self.quick(chosen, weights)
            if settled is None:
                break
            chosen = settled
            out.append(chosen)
            for place, mean in chosen.means.items():
                grown = weights[place] * (mean / (limits[place] * CLOSE)) ** (STEP / 4)
                weights[place] = max(1.0, grown)
        return out

    def shared(self, start: Chosen, emphasis: Mapping[Place, float], reach: Reach) -> Chosen | None:
        """Return the strategy with other shares, where those can be found by themselves."""
        from dpsql.search.shares import share_anew  # searches that most requests do without

        if law(self.noise).norm == 2 or len(start.layout.workload.domain) == 1:
            return None
        workload = emphasised(start.layout, emphasis)
        found = share_anew(start.strategy, workload, CELL_LIMIT, reach)
        return None if found is None else self.rated(start.layout, found, 0.0)

    def mixed(
        self, start: Chosen, within: Sequence[Chosen], limits: Mapping[Place, float]
    ) -> list[Chosen]:
        """Return as little as will do of a strategy within the limits, mixed into the start.

        Without one, a block for every product that is asked stands for it.
        """
        from dpsql.search.shares import mix  # searches that most requests do without

        layout = start.layout
        other = within[0].strategy if within else None
        low, high = 0.0, 1.0
        out: list[Chosen] = []
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

    def quick(
        self, start: Chosen, emphasis: Mapping[Place, float], reach: Reach = "near"
    ) -> Chosen:
        """Return a strategy for other weights without a long search."""
        if start.strategy.kind == "separate":
            from dpsql.search.opt_plus import share_blocks  # searches that most requests do without

            found = share_blocks(start.strategy, emphasised(start.layout, emphasis))
            return self.rated(start.layout, found, 0.0)
        if law(self.noise).norm == 1:
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
