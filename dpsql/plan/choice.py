"""Choice of the layout and the strategy of least expected error for one table.

No answer may be much worse than under plain noise on every number that is asked for. Where the
least total error would have it so, such answers count for more until it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from dpsql.errors import ProgrammingError
from dpsql.plan.answer_weights import DEAR, JOINING, AnswerWeights
from dpsql.plan.candidate_plan import (
    WORTHWHILE,
    CandidatePlan,
    by_error,
    least_error,
    where_it_fits,
    worst_of,
)
from dpsql.plan.limits import find_limits, plain_error
from dpsql.plan.memory import NUMBER
from dpsql.records import dataclass, replace
from dpsql.search.select import ALIKE
from dpsql.search.work_limit import BRIEF, has_room, may_go_on, portion
from dpsql.search.workload_rows import measure_queries
from dpsql.strategy.noise_law import law
from dpsql.strategy.query_block import MOST_ROWS
from dpsql.workload.cells import Nodes
from dpsql.workload.layout import TOGETHER_NUMBERS, Layout, Place
from dpsql.workload.repeated_blocks import resolved
from dpsql.workload.workload import Workload

FEW_ROWS, FEW_CELLS = 256, 256
"""Most rows, or cells, of a workload on one attribute of all columns that is searched over."""

FAR = 1.5
"""Largest error, relative to the best layout's, of one that is weighed rather than the best."""

DOUBTFUL, MANY_DOUBTFUL = 3.0, 1.5
"""Gain over plain noise from which queries measured themselves are not tried, and where they are
so many that it takes a second, under Laplace noise; under Gaussian noise they must gain at all."""

FEW_QUERIES = 512
"""Rows of one answer up to which its queries are always tried: their inverse takes .1 s. For 2,000
it takes 10, where running totals and quantiles gain a hundredfold otherwise.
"""

SIMPLER = {1: ("identity", "union"), 2: ("identity", "union", "marginals", "symmetric")}
"""Families that are weighed anew by themselves where another one has not come near."""

FREE = "identity"
"""A family that takes no search: it is tried however little may be done."""

SUMMED = ("identity", "kron", "marginals")
"""Families that are compared where answers are sums of products, whose errors do not add up."""

SLACK = 2e-3
"""Relative loss of error by limits up to which no other family is tried."""

COMPARING, WEIGHING = 0.25, 0.25
"""Parts of the work for a table after which no other family by name begins, and that weights for
each of two strategies have. Neither goes without for what the other took, or the choice before.
"""

COPIES = 6
"""Arrays of queries that are written out which are alive at once."""

TRIED = 2
"""Layouts of which strategies are weighed anew."""

FARTHEST = 50.0
"""The same ratio of cells with the best weights above which nothing is searched for under Laplace
noise: of 14 tables where these stayed above 20, at 42 what a search had found came to 1.1, at 53
to 7. None that was looked at is known to have come within."""

WIDE, CONDENSED = 8, 64
"""Attributes of a product from which on layouts are left out where there is one on few cells, and
most cells of that: searches over sets of attributes take seconds from nine on."""

BEYOND = 1.5
"""Ratio of a variance to its limit that weights must come to for others to be weighed, where none
come within: of 63 tables in random requests where the first came no nearer, none had another layout
or family that did."""


@dataclass(frozen=True, slots=True)
class Chooser(AnswerWeights):
    """Layouts, strategies and families, of which the least error is chosen."""

    def best(self) -> CandidatePlan:
        """Return the least total error that keeps every answer within the cap."""
        return min(self.within(self.selected()), key=by_error)

    def hopeless(self) -> CandidatePlan | None:
        """Return cells with weights if these stay so far from the limits that nothing comes within.

        Seen in a small part of the time that a search takes. None where there is hope, or where
        it is not known: under Gaussian noise cells tell little of other families.
        """
        is_searched = self.mechanism == "auto" and len(self.target.asked) > 1
        if not is_searched or law(self.noise).norm == 2 or len(self.layouts()) > 1:
            return None
        cells = replace(self, mechanism=FREE)
        (layout,) = self.layouts()
        start = cells.select(layout)
        limits = find_limits(self.target, self.noise, self.own)
        if worst_of(start, limits) <= FARTHEST:
            return None
        with portion(WEIGHING):
            return start if cells.weighed(start, limits).worst > FARTHEST else None

    def unweighed(self, cells: CandidatePlan) -> list[CandidatePlan]:
        """Return ``within`` where there is no hope but for queries measured themselves."""
        limits = find_limits(self.target, self.noise, self.own)
        found = [*self.queries(), *self.in_threes()]
        return [each for each in found if worst_of(each, limits) <= 1] or [cells]

    def within(self, selected: Sequence[CandidatePlan]) -> list[CandidatePlan]:
        """Return what keeps every answer within the cap, or the least error where nothing does.

        ``selected`` are the best strategies of every layout.
        """
        found = [*selected, *self.others(selected)]
        if len(self.target.asked) == 1:
            return [*found, *self.queries(found, alone=True)]
        best = min(found, key=by_error)
        limits = find_limits(self.target, self.noise, self.own)
        within = [chosen for chosen in found if worst_of(chosen, limits) <= 1]
        if self.effort <= BRIEF and best not in within:
            cells = replace(self, mechanism=FREE)
            starts = [best, *(cells.select(each) for each in self.layouts())]
            within += [each for start in starts for each in self.grown(start, limits).within]
            if within:
                return within
        if best not in within:
            beyond = 1.0
            for start in sorted(found, key=self._ease(best))[:TRIED]:
                enough = min(self.than, least_error(within)) / (1 + WORTHWHILE)
                if start.error >= enough or beyond > BEYOND:
                    continue
                with portion(WEIGHING):
                    weighed = self.nearest(start, limits)
                within += weighed.within
                beyond = 1.0 if within else max(beyond, weighed.worst)
            if any(each.strategy.method == "residual" for each in within):
                return within
            is_enough = bool(within) and self.target.limits is not None
            if beyond <= BEYOND and not is_enough:
                within += self.simpler(limits, within, best)
        if self._is_near_plain(within):
            within += [each for each in self.queries(within) if worst_of(each, limits) <= 1]
        within += [each for each in self.in_threes() if worst_of(each, limits) <= 1]
        return within or [best]

    def as_published(self) -> CandidatePlan:
        """Return the least total error of one algorithm on any layout, without limits.

        Raises: ProgrammingError (E_SETTING, E_TOO_LARGE) where it fits none.
        """
        found: list[CandidatePlan] = []
        failures: list[ProgrammingError] = []
        for layout in reversed(self.layouts()):  # that on fewest attributes comes last
            try:
                found.append(self.select(layout))
            except ProgrammingError as failure:
                failures.append(failure)
        if not found:
            raise failures[-1]
        return min(found, key=by_error)

    def selected(self) -> list[CandidatePlan]:
        """Return the best strategy of every layout."""
        found: list[CandidatePlan] = []
        for layout in self.layouts():
            if any(self.is_least(each) for each in found):
                break
            found.append(self.select(layout))
        return [*found, *self.many(found)] if len(self.target.asked) > 1 else found

    def many(self, known: Sequence[CandidatePlan]) -> list[CandidatePlan]:
        """Return combinations of all queries over one attribute, where most of many are alike."""
        is_searched = self.mechanism == "auto" and law(self.noise).norm == 1
        together = self._together if is_searched and not any(map(self.is_least, known)) else None
        if together is None or self._is_small(together):
            return []
        with where_it_fits():
            return [self.select(together, family=ALIKE)]
        return []

    def is_least(self, chosen: CandidatePlan) -> bool:
        """True if no layout can have noticeably less error: nodes of squares are more than cells.

        Those of the first degree are cells, of which all others are mixtures.
        """
        return (chosen.is_optimal and chosen.layout.is_single) and not any(
            isinstance(each, Nodes) and each.degree > 1
            for each in chosen.layout.resolutions.values()
        )

    @property
    def doubtful(self) -> float:
        """The gain over plain noise from which queries measured themselves are not tried."""
        many = 1.0 if law(self.noise).norm == 2 else MANY_DOUBTFUL
        return DOUBTFUL if self.target.layouts[0].workload.rows <= MOST_ROWS else many

    def _is_near_plain(self, known: Sequence[CandidatePlan]) -> bool:
        return least_error(known) > plain_error(self.target, self.noise) / self.doubtful

    def others(self, known: Sequence[CandidatePlan]) -> list[CandidatePlan]:
        """Return what families come to where answers are sums of products.

        The search adds up the errors of products, and what they share may make another one better.
        Of statements that have limits of their own, it is not by those that are far above what is
        known.
        """
        layouts = self.target.layouts
        are_sums = any(len(r) > 1 for layout in layouts for r in layout.products.values())
        if self.mechanism != "auto" or not are_sums or layouts[0].workload.rows > FEW_ROWS:
            return []
        than = plain_error(self.target, self.noise) if self.is_plain else math.inf
        if self.target.limits is not None:
            than = min(than, DEAR * least_error(known))
        return self.by_name(SUMMED, than=than)

    def by_name(
        self, names: Iterable[str], enough: float = 0.0, than: float = math.inf
    ) -> list[CandidatePlan]:
        """Return the plans of families that fit, until one has an error that is small enough.

        Those with a larger error ``than`` this before any limits are not kept within them.
        """
        found: list[CandidatePlan] = []
        with portion(1.0):  # each of them has all parts of its own, as it has by name
            for name in names:
                if least_error(found) <= enough or (name != FREE and not may_go_on(COMPARING)):
                    break
                with where_it_fits():
                    found.append(replace(self, mechanism=name, than=than).best())
        return found

    def simpler(
        self, limits: Mapping[Place, float], known: Sequence[CandidatePlan], best: CandidatePlan
    ) -> list[CandidatePlan]:
        """Return what families come to by themselves within the limits, until one is near enough.

        Nothing is better than the best without limits, so that what is near it ends the search.
        """
        if self.mechanism != "auto":
            return []
        norm = law(self.noise).norm
        enough = best.error * (1 + SLACK)
        if least_error(known) <= enough:
            return []
        than = min(
            least_error(known), plain_error(self.target, self.noise) if self.is_plain else math.inf
        )
        names = [each for each in SIMPLER[norm] if each != best.strategy.method]
        found = self.by_name(names, enough, than)
        return [each for each in found if worst_of(each, limits) <= 1]

    @property
    def is_plain(self) -> bool:
        """True if every number that is asked can be measured itself: no plan need be worse."""
        layout = next((each for each in self.target.layouts if each.is_single), None)
        return layout is not None and not self.apart and layout.workload.rows <= MOST_ROWS

    def queries(
        self, known: Sequence[CandidatePlan] = (), alone: bool = False
    ) -> list[CandidatePlan]:
        """Return the queries themselves as a strategy, where they are few, and may be better.

        Those of one answer ``alone`` are not where they are many and the gain is large already.
        """
        layout = next((each for each in self.target.layouts if each.is_single), None)
        if layout is None or self.apart or self.mechanism not in ("auto", "workload"):
            return []
        if any(each.layout is layout and each.is_optimal for each in known):
            return []
        many = alone and layout.workload.rows > FEW_QUERIES
        if many and not self._is_near_plain(known):
            return []
        strategy = measure_queries(layout.workload, self.noise)
        return [] if strategy is None else [self.rated(layout, strategy, 0.0)]

    def in_threes(self) -> list[CandidatePlan]:
        """Return conditions on columns of their own, measured in threes, where they are many."""
        if self.apart or self.target.units or self.mechanism != "auto":
            return []
        from dpsql.search.symmetry.opposite_cells import in_threes  # most requests do without

        found = in_threes(self.target.apart, self.noise, self.effort)
        return [] if found is None else [self.rated(*found, 0.0)]

    def _ease(self, best: CandidatePlan) -> Callable[[CandidatePlan], tuple[bool, float]]:
        """Return the order to weigh anew in: first one attribute, quick to plan, if not far off."""

        def key(chosen: CandidatePlan) -> tuple[bool, float]:
            slow = len(chosen.layout.workload.domain) > 1 or chosen.error > FAR * best.error
            return slow, chosen.error

        return key

    @property
    def _joined(self) -> int:
        """The bytes that it takes to write out all queries over one attribute of all columns."""
        workload = self.target.layouts[0].workload
        numbers = workload.rows * math.prod(workload.domain.values())
        return NUMBER * COPIES * min(numbers, TOGETHER_NUMBERS)

    def layouts(self) -> tuple[Layout, ...]:
        """The layouts to choose from: one attribute of all columns too, where a search pays.

        Those on many single columns are left out where there is one on few cells: of any strategy
        the numbers of one cell of each kind are a strategy for these, and its error is no larger.
        """
        found = self._searchable
        few = [each for each in found if math.prod(each.workload.domain.values()) <= CONDENSED]
        if self.apart or not few or not any(_is_wide(each.workload) for each in found):
            return found
        return tuple(few)

    @property
    def _searchable(self) -> tuple[Layout, ...]:
        together = self._together
        is_small = together is not None and self._is_small(together)
        return (*self.target.layouts, together) if together and is_small else self.target.layouts

    @property
    def _together(self) -> Layout | None:
        """The layout on one attribute of all columns, where there may be one."""
        joins = self.mechanism in JOINING and not self.apart
        joins = joins and self.target.is_joinable and has_room(self._joined)
        return self.target.together if joins else None

    def _is_small(self, together: Layout) -> bool:
        """Say whether any search pays over one attribute of all columns."""
        workload = together.workload
        apart = resolved(workload).pinned
        size = math.prod(workload.domain[name] for name in apart)
        cells = math.prod(workload.domain.values()) // size
        return cells <= FEW_CELLS or workload.rows // size <= FEW_ROWS


def _is_wide(workload: Workload) -> bool:
    """Say whether some product is over so many attributes that a search over their sets is long."""
    several = {name for name, size in workload.domain.items() if size > 1}
    return any(len(several & product.factors.keys()) > WIDE for product in workload.products)
