"""Targets in parts: where answers that each are small would have too many cells on all the others'.

Which parts there are depends on what is asked alone, so that a repeat is found again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

from dpsql.plan.candidate_plan import CandidatePlan
from dpsql.plan.drawn_variance import counted_of, error_at, least_part, used
from dpsql.plan.limits import plain_cost
from dpsql.plan.plan import NO_ERROR, Part, joined_of, shared_error, split_amount
from dpsql.plan.target import Target, mean_variances
from dpsql.records import cached_property, dataclass, replace
from dpsql.search.select import CELL_LIMIT
from dpsql.search.work_limit import share
from dpsql.strategy.base import Forecast
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product_block import estimated
from dpsql.workload.layout import Layout, Place
from dpsql.workload.workload import Product

HALVINGS = 3
"""Most halvings of a target for its answers to be within their limits."""

DEEPEST = HALVINGS + 1
"""Most halvings in the end: the dearest piece may be parted once more."""

ONE = 0.75
"""Part of what may be done for a target that it has as one; the rest is for its halves."""


ROUNDING = 1e-9
"""Part by which shares of a budget that are scaled to fit stay below it, for sums of them."""

MOST_CONDITIONS = 12
"""Most columns of several cells that a number has conditions on, for it to be planned with those of
other statements: a forecast is over all sets of these. 12 take 6 s, 14 did not end in a minute."""

ROOM = 1.5
"""Ratio of variances that pieces must lose by the limits of one of them for it to be parted."""

GAIN = 1.1
"""Ratio of variances that pieces have to gain, five per cent of the standard error: their answers
are estimated together after that (``plan/shared_rows.py``), but not planned so."""


@dataclass(frozen=True)
class SeparatePlan:
    """Answers that are planned by themselves at about a budget, of a ``whole`` target, and how."""

    whole: Target
    target: Target
    chosen: CandidatePlan
    amount: Fraction

    @cached_property
    def least(self) -> float:
        """The part of the budget that keeps its answers within the limits of the whole."""
        return least_part(self.chosen, self.target, self.whole, self.amount)

    @property
    def noise(self) -> Noise:
        """The noise law that it was planned for."""
        return self.chosen.strategy.noise

    @property
    def is_good(self) -> bool:
        """True if pieces can hardly gain: limits take little of what is best without them.

        Nodes of sums depend on what else is asked, so that pieces with sums may gain still.
        """
        error = self.chosen.error / self.target.rows_per_unit**2
        return self.least <= 1 and error <= GAIN * self.chosen.free and not self.target.has_sums


@dataclass(frozen=True)
class BudgetDivision:
    """Pieces that share a budget, and the amount of each."""

    pieces: tuple[SeparatePlan, ...]
    amounts: tuple[Fraction, ...]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts of a plan."""
        return tuple(
            Part(
                piece.target.table.name.casefold(),
                piece.chosen.strategy,
                used(piece.chosen.layout, piece.chosen.strategy),
                amount,
                piece.target.rows_per_unit,
                piece.chosen.lower,
                piece.target.units,
                piece.target.view,
                piece.target.occupied,
            )
            for piece, amount in zip(self.pieces, self.amounts, strict=True)
        )

    @cached_property
    def means(self) -> Mapping[Place, float]:
        """The mean variances of all answers, of the noise that is drawn."""
        whole = joined_of(self.parts)
        return self.means_apart if whole is None else self._means_of(whole.forecasts)

    @cached_property
    def means_apart(self) -> Mapping[Place, float]:
        """Mean variances of each part by itself: none is smaller, and they take far less work."""
        return self._means_of([part.forecast for part in self.parts])

    def _means_of(self, forecasts: Sequence[Forecast]) -> dict[Place, float]:
        found: dict[Place, float] = {}
        for piece, forecast in zip(self.pieces, forecasts, strict=True):
            found |= mean_variances(forecast, piece.chosen.layout.products)
        return found


class Choose(Protocol):
    """Plans answers by themselves: without a search where that seems hopeless, or in earnest."""

    def __call__(self, part: Target, earnest: bool = False) -> CandidatePlan:
        """Return the layout and the strategy with the least expected error."""


def in_pieces(one: SeparatePlan, choose: Choose, agree: bool = False) -> list[SeparatePlan]:
    """Return answers as one piece, or as pieces where these gain much or alone keep the limits.

    Where they are to ``agree``, as a model fitted to one of them needs, none is for gain alone.
    """
    if one.is_good or (agree and one.least <= 1):
        return [one]
    return [
        each if each.least <= 1 or each.chosen.free else _in_earnest(each, choose)
        for each in _best_pieces(one, choose)
    ]


def in_groups(
    one: SeparatePlan, choose: Choose, split: Collection[tuple[float, float]], whole: float
) -> list[SeparatePlan] | None:
    """Return answers as one piece within its limits, or as groups where these gain much.

    None where neither is known to keep them, or both have more error than the ``split``: statements
    with their errors for a unit budget, and the parts of one that keep their limits, of the
    ``whole`` that they have. Limits leave to other targets what the split leaves to them.
    """
    apart = split_error(split, whole, one.noise) * one.target.rows_per_unit**2

    def rated(pieces: list[SeparatePlan] | None) -> float:
        """The error with the best shares of what the split has."""
        if pieces is None:
            return math.inf
        least = [each.least / whole * (1 - ROUNDING) for each in pieces]
        return shared_error([each.chosen.error for each in pieces], least, one.noise)

    best: list[SeparatePlan] | None = [one]
    if rated(best) > GAIN * apart:
        best = None
    elif one.is_good:
        return best
    from dpsql.plan.partition import best_partition, keeps_limits  # one statement does without

    noise, known = one.noise, min(apart, rated(best))
    partition = best_partition(one.target, noise)
    if len(partition.groups) == 1 or partition.error * one.target.rows_per_unit**2 * GAIN >= known:
        return best
    if law(noise).norm == 1 and not keeps_limits(partition, one.target, noise):
        return best
    found = _grouped(one, partition.groups, choose)
    return found if rated(found) * GAIN < min(rated(best), apart) else best


def split_error(split: Collection[tuple[float, float]], whole: float, noise: Noise) -> float:
    """Return the error of statements by themselves, with the best shares of what they have."""
    fitted = [least / whole * (1 - ROUNDING) for _, least in split]
    return shared_error([error for error, _ in split], fitted, noise)


def _in_earnest(piece: SeparatePlan, choose: Choose) -> SeparatePlan:
    """Return a piece that is to be taken though it was not searched for, as a search has it."""
    return replace(piece, chosen=choose(piece.target, True))


def _best_pieces(one: SeparatePlan, choose: Choose) -> list[SeparatePlan]:
    from dpsql.plan.partition import best_partition, keeps_limits  # one statement does without

    is_within, noise = one.least <= 1, one.noise
    best = [one] if is_within else eased([_halved(one, choose, HALVINGS)])[0]
    partition = best_partition(one.target, noise)
    is_sure = is_within or keeps_limits(partition, one.target, noise)
    foreseen = partition.error * one.target.rows_per_unit**2
    if not is_within:
        best = _leaner(best, choose, foreseen)
    # under Gaussian noise groups that are not sure may be within the limits, as planned
    if len(partition.groups) > 1 and (is_sure or law(noise).norm == 2):
        found = (
            _grouped(one, partition.groups, choose) if foreseen * GAIN < total_of(best) else best
        )
        best = found if total_of(found) * GAIN < total_of(best) else best
    if total_of(best) < math.inf:
        return best
    groups = best_partition(one.target, noise, measurable=True).groups
    return best if len(groups) == 1 else min(best, _grouped(one, groups, choose), key=_rank)


def _rank(pieces: Sequence[SeparatePlan]) -> tuple[float, float]:
    """Return the rank of pieces: how far they are beyond the limits, then their error."""
    return max(1.0, sum(each.least for each in pieces)), total_of(pieces)


def _grouped(
    one: SeparatePlan, groups: Sequence[Collection[Place]], choose: Choose
) -> list[SeparatePlan]:
    """Return groups of the answers, each planned by itself."""
    parts = [part_of(one.target, places) for places in groups]
    found: list[SeparatePlan] = []
    for others, part in zip(reversed(range(len(parts))), parts, strict=True):
        with share(1 / (1 + others)):
            found.append(replace(one, target=part, chosen=choose(part)))
    return eased([found])[0]


def eased(groups: Sequence[Sequence[SeparatePlan]]) -> list[list[SeparatePlan]]:
    """Return the pieces of targets with those of their plans whose error is least together.

    One that barely keeps within the limits leaves others no more than what keeps them within
    theirs, where a plan of a little more error might leave them much.
    """
    plans = [[_planned_otherwise(piece) for piece in pieces] for pieces in groups]
    best, is_better = [list(pieces) for pieces in groups], True
    error = _shared(best)
    while is_better:
        is_better = False
        for pieces, others in zip(best, plans, strict=True):
            for place, found in enumerate(others):
                for other in found:
                    before, pieces[place] = pieces[place], other
                    if (tried := _shared(best)) < error:
                        error, is_better = tried, True
                    else:
                        pieces[place] = before
    return best


def _planned_otherwise(piece: SeparatePlan) -> list[SeparatePlan]:
    """The same piece with each of the plans that were found for it."""
    best = piece.chosen
    easier = [replace(piece, chosen=replace(each, free=best.free)) for each in best.easier]
    return [piece, *easier]


def _shared(groups: Sequence[Sequence[SeparatePlan]]) -> tuple[float, float]:
    """Return the part of a budget that limits take, at least one, and the error of best shares."""
    pieces = [piece for group in groups for piece in group]
    noise = pieces[0].noise
    least = least_parts(groups, noise)
    whole = max(1.0, sum(least))
    fitted = [part / whole * (1 - ROUNDING) for part in least]
    return whole, shared_error([each.chosen.error for each in pieces], fitted, noise)


def total_of(pieces: Sequence[SeparatePlan]) -> float:
    """Return the error of pieces of one target with the best shares, for its budget as a unit.

    It is infinite where they are beyond their limits.
    """
    (first, *_), noise = pieces, law(pieces[0].chosen.strategy.noise)
    errors, least = [each.chosen.error for each in pieces], [each.least for each in pieces]
    if sum(least) > 1:
        return math.inf
    counted, _ = counted_of(first.target, noise.name, first.amount)
    amounts = split_amount(counted, errors, noise.name, least)
    pairs = zip(pieces, amounts, strict=True)
    total = sum(error_at(each.chosen, each.target, amount) for each, amount in pairs)
    return total / noise.unit_variance(float(counted))


def _halved(piece: SeparatePlan, choose: Choose, depth: int) -> list[SeparatePlan]:
    """Return a piece in halves, and these again, where its answers are beyond their limits.

    One matrix for each column may be too little for answers of few rows beside those of many.
    What takes the least of the budget to be within the limits is taken.
    """
    if piece.least <= 1 or not depth or len(piece.target.asked) == 1:
        return [piece]
    return _parted(piece, choose, depth)


def _parted(piece: SeparatePlan, choose: Choose, depth: int) -> list[SeparatePlan]:
    """Return the halves of a piece where they take less of the budget to be within the limits."""
    found: list[SeparatePlan] = []
    for others, part in zip((1, 0), halves(piece.target), strict=True):
        with share(1 / (1 + others)):
            with share(ONE):
                half = replace(piece, target=part, chosen=choose(part))
            found += _halved(half, choose, depth - 1)
    return found if sum(each.least for each in found) < piece.least else [piece]


def _leaner(
    pieces: list[SeparatePlan], choose: Choose, foreseen: float = math.inf
) -> list[SeparatePlan]:
    """Return pieces of which each is within the limits alone, one of them parted where that pays.

    It is the dearest if all are not within the limits, else the one that takes the most beside
    what it would have without any, and where others gain. Only where their error would be less
    than what is ``foreseen`` of groups.
    """
    least, errors = [p.least for p in pieces], [p.chosen.error for p in pieces]
    noise = pieces[0].noise
    if sum(least) > 1:
        above = least
        fitted = [part / sum(least) * (1 - ROUNDING) for part in least]
    else:
        wanted = [max(error, NO_ERROR) ** law(noise).share_power for error in errors]
        above = [part / root for part, root in zip(least, wanted, strict=True)]
        fitted = [0.0] * len(pieces)
    dearest = pieces[above.index(max(above))]
    if dearest.least > 1 or len(dearest.target.asked) == 1:
        return pieces
    hoped = shared_error(errors, fitted, noise)
    if hoped >= foreseen or hoped * ROOM >= shared_error(errors, least, noise):
        return pieces
    place = pieces.index(dearest)
    found = [*pieces[:place], *_parted(dearest, choose, 1), *pieces[place + 1 :]]
    return min(pieces, eased([found])[0], key=lambda each: _shared([each]))


def least_parts(groups: Sequence[Sequence[SeparatePlan]], noise: Noise) -> tuple[float, ...]:
    """Return the parts of a budget that keep answers within the limits of all that is asked.

    ``groups`` are the pieces of every target.
    """
    if all(group[0].whole.limits is not None for group in groups):
        return tuple(piece.least for group in groups for piece in group)
    costs = [plain_cost(group[0].whole, noise) for group in groups]
    return tuple(
        piece.least * cost / sum(costs)
        for group, cost in zip(groups, costs, strict=True)
        for piece in group
    )


def divided(target: Target) -> tuple[Target, ...]:
    """Return a target in as many parts as it takes for no answer to have too many cells.

    So are statements with more conditions than ``MOST_CONDITIONS`` that others do not have.

    Each part has cells of its own, on which columns are as coarse as its own answers allow. An
    answer that has too many by itself stays alone.
    """
    if target.units or len(target.asked) == 1:
        return (target,)
    crowded = {place[0] for layout in target.layouts for place in _crowded(layout)}
    if crowded and len({number for number, _ in target.asked}) > 1:
        others = [place for place in target.asked if place[0] not in crowded]
        apart = [part for part in statements(target) if crowded & {n for n, _ in part.asked}]
        found = ([part_of(target, others)] if others else []) + apart
        return tuple(each for part in found for each in divided(part))
    large = {place for layout in target.layouts for place in _large(layout)}
    if not large:
        return (target,)
    rest = target.asked.keys() - large
    parts = (part_of(target, rest), part_of(target, large)) if rest else halves(target)
    return tuple(each for part in parts for each in divided(part))


def halves(target: Target) -> tuple[Target, ...]:
    """Return the answers of few rows and those of many, parted where rows grow most.

    Answers of equally many rows are parted in the order in which they are asked.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    if target.units or len(target.asked) == 1:
        return (target,)
    rows = target.layouts[0].rows
    places = sorted(target.asked, key=lambda place: (rows[place], place))
    cut = _widest([rows[place] for place in places])
    return part_of(target, places[:cut]), part_of(target, places[cut:])


def _widest(rows: Sequence[int]) -> int:
    """Return where sorted numbers grow by the largest factor, the middle where none does.

    >>> _widest([1, 1, 2, 500, 700]), _widest([1, 1, 1, 1])
    (3, 2)
    """
    steps = [after / before for before, after in pairwise(rows)]
    largest = max(steps)
    return len(rows) // 2 if largest == 1 else 1 + steps.index(largest)


def _large(layout: Layout) -> list[Place]:
    """Return the answers with a product over more cells, and sums over them, than one may have."""
    sizes = layout.workload.domain
    return [
        place
        for place, reading in layout.products.items()
        if any(_extended(sizes, p) > CELL_LIMIT for _, p in reading)
    ]


def _crowded(layout: Layout) -> list[Place]:
    """Return the answers with a product of one row over many columns that have several cells."""
    sizes = layout.workload.domain
    return [
        place
        for place, reading in layout.products.items()
        if any(
            sum(sizes[n] > 1 and f.rows == 1 for n, f in p.factors.items()) > MOST_CONDITIONS
            for _, p in reading
        )
    ]


def _extended(sizes: Mapping[str, int], product: Product) -> int:
    """Return how many numbers are estimated for a product."""
    return estimated([sizes[name] for name in product.factors])


def statements(target: Target) -> list[Target]:
    """Return the answers of every statement by themselves."""
    numbers = dict.fromkeys(place[0] for place in target.asked)
    return [part_of(target, [p for p in target.asked if p[0] == number]) for number in numbers]


def part_of(target: Target, places: Collection[Place]) -> Target:
    """Return some of the answers of a target."""
    return replace(target, asked={p: each for p, each in target.asked.items() if p in places})
