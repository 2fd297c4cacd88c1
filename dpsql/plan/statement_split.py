"""The split by statement: what each statement has by itself, with its share of the budget.

That is the baseline of a request, whose shown columns are at most ``FAIR`` times as far off. Where
nothing that is planned for all together keeps to it, the split is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.plan.candidate_plan import TOLD, CandidatePlan, total_error
from dpsql.plan.division import ROUNDING, BudgetDivision, Choose, SeparatePlan, divided, part_of
from dpsql.plan.drawn_variance import counted_of, is_coarse
from dpsql.plan.limits import AIM, EXACTLY, FAIR, NEAR_ALONE
from dpsql.plan.plan import SHARE_GRID, shared_error, split_amount
from dpsql.plan.shown_columns import ResultColumn, emphasis_of, shown_columns
from dpsql.plan.target import Target
from dpsql.records import cached_property, dataclass, field, replace
from dpsql.search.work_limit import share
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import Nodes
from dpsql.workload.layout import Place, WeightedAnswer

if TYPE_CHECKING:
    from dpsql.sql.compiled import Compiled

FAR_BELOW = 0.75
"""Part of its limit below which the variance of noise is far: for an epsilon of two."""

Plan = Callable[[Sequence[Target], Fraction], BudgetDivision]
"""Plans targets together with an amount of a budget."""


@dataclass(frozen=True)
class StatementSplit:
    """Statements that share a budget, each planned by itself when that is asked for.

    ``targets`` are those of all statements, ``shares`` what each statement has of ``amount``.
    ``brief`` plans to know what statements have, ``plan`` those that are to be measured so.
    """

    statements: Sequence[Compiled]
    targets: tuple[Target, ...]
    noise: Noise
    amount: Fraction
    plan: Plan
    brief: Plan
    shares: Mapping[int, Fraction]
    _planned: dict[int, BudgetDivision] = field(default_factory=dict)
    _brief: dict[int, BudgetDivision] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        statements: Sequence[Compiled],
        targets: tuple[Target, ...],
        noise: Noise,
        amount: Fraction,
        plan: Plan,
        brief: Plan,
    ) -> StatementSplit | None:
        """Return them where there are several that are measured."""
        numbers = sorted({place[0] for target in targets for place in target.asked})
        if len(numbers) < 2:
            return None
        power = law(noise).norm
        wanted = {number: Fraction(statements[number].weight) ** power for number in numbers}
        whole = sum(wanted.values())
        shares = {
            number: Fraction(max(1, int(SHARE_GRID * each / whole)), SHARE_GRID)
            for number, each in wanted.items()
        }
        if sum(shares.values()) > 1:  # more statements than the grid has units for
            return None
        return cls(statements, targets, noise, amount, plan, brief, shares)

    @cached_property
    def places(self) -> Mapping[int, list[tuple[Target, list[Place]]]]:
        """The answers of every statement, by the target that has them."""
        found: dict[int, list[tuple[Target, list[Place]]]] = {each: [] for each in self.shares}
        for target in self.targets:
            by_number: dict[int, list[Place]] = {}
            for place in target.asked:
                by_number.setdefault(place[0], []).append(place)
            for number, places in by_number.items():
                found[number].append((target, places))
        return found

    def targets_of(self, number: int) -> tuple[Target, ...]:
        """The targets of a statement, of the rows that all statements see."""
        parts = [part_of(target, places) for target, places in self.places[number]]
        return tuple(each for part in parts for each in divided(part))

    def alone(self, number: int) -> BudgetDivision:
        """Return a statement planned by itself, with its share, to be measured so."""
        if number not in self._planned:
            found = self.plan(self.targets_of(number), self.amount * self.shares[number])
            known = self.foreseen(number)
            is_less = self._errors_of(number, known) < self._errors_of(number, found)
            self._planned[number] = known if is_less else found
        return self._planned[number]

    def foreseen(self, number: int) -> BudgetDivision:
        """Return a statement planned by itself, with its share, by a brief search."""
        if number not in self._brief:
            amount = self.amount * self.shares[number]
            self._brief[number] = self.brief(self.targets_of(number), amount)
        return self._brief[number]

    def _errors_of(self, number: int, planned: BudgetDivision) -> float:
        """The squared errors of a statement's columns, each as a part of what it has briefly."""
        means, known = planned.means, self.foreseen(number).means
        own = (column for column in self.columns if column.statement == number)
        pairs = ((c.variance(means, self.rows), c.variance(known, self.rows)) for c in own)
        return sum(error / least for error, least in pairs if least > 0)

    @cached_property
    def baseline(self) -> Mapping[Place, float]:
        """The mean variances of answers, each statement by itself."""
        return self._known_alone[0]

    @cached_property
    def _known_alone(self) -> tuple[Mapping[Place, float], frozenset[int]]:
        """The same, and the statements of which nothing else has less: no search is near them."""
        found: dict[Place, float] = {}
        exact: set[int] = set()
        known: dict[Hashable, list[float]] = {}
        count = len(self.shares)
        for done, number in enumerate(self.shares):
            (target, places), *others = self.places[number]
            if not others and len(places) == 1 and _is_disjoint(target, target.asked[places[0]]):
                found[places[0]] = self._least(number, target)
                exact.add(number)
                continue
            form = None if others else self._form(number, target, places)
            if form is None or form not in known:
                with share(0.5 if done + 1 == count else 1 / (count - done)):
                    means = self.foreseen(number).means
                found |= means
                if form is not None:
                    known[form] = [means[place] for place in places]
            else:
                found |= dict(zip(places, known[form], strict=True))
        return found, frozenset(exact)

    def _most(self, number: int) -> float:
        """The largest standard error of a statement's columns, as a multiple of its baseline."""
        return EXACTLY if number in self._known_alone[1] else AIM

    def _form(self, number: int, target: Target, places: Sequence[Place]) -> Hashable:
        """A key of statements that are the same but for the names of columns."""
        if target.units:
            return None
        layouts = []
        for layout in part_of(target, places).layouts:
            at = {name: i for i, name in enumerate(layout.workload.domain)}
            kinds = tuple(
                (each.size, each.degree) if isinstance(each, Nodes) else each.leaves_out
                for each in map(layout.resolutions.__getitem__, at)
            )
            answers = tuple(
                tuple(
                    (scale, p.weight, tuple((at[n], f.key) for n, f in p.factors.items()))
                    for scale, p in layout.products[place]
                )
                for place in places
            )
            layouts.append((tuple(layout.workload.domain.values()), kinds, answers))
        return (self.shares[number], target.rows_per_unit, tuple(layouts))

    def _least(self, number: int, target: Target) -> float:
        """The variance of a number that changes by one with a row: no noise has less."""
        used = law(self.noise)
        amount = self.amount * self.shares[number]
        return used.variance(float(used.scale(target.rows_per_unit**used.norm, amount)))

    @cached_property
    def rows(self) -> Mapping[Place, int]:
        """The number of rows of every answer."""
        return {p: n for target in self.targets for p, n in target.layouts[0].rows.items()}

    @cached_property
    def columns(self) -> tuple[ResultColumn, ...]:
        """The columns that are shown."""
        return shown_columns(dict(enumerate(self.statements)), self.targets)

    @cached_property
    def emphasis(self) -> Mapping[Place, float]:
        """The weights with which squared errors count by those of the baseline, one at most.

        Those that are equal but for rounding are equal: searches look for answers that are alike.
        """
        weights = emphasis_of(self.columns, self.baseline, self.rows)
        least, most = min(weights.values(), default=1.0), max(weights.values(), default=1.0)
        return {
            place: float(f"{weights.get(place, least) / most:.{TOLD}e}") for place in self.baseline
        }

    def weighed(self, target: Target) -> Target:
        """Return a target whose answers count by their baseline, and are limited by it."""
        unit = law(self.noise).unit_variance(float(self.amount))
        per_row = 1.0 if target.units else float(target.rows_per_unit**2)
        limits = {
            p: self._most(p[0]) ** 2 * self.baseline[p] / unit / per_row for p in target.asked
        }
        asked = {p: replace(w, weight=self.emphasis[p]) for p, w in target.asked.items()}
        own: dict[int, list[Place]] = {}
        for place in target.asked:
            own.setdefault(place[0], []).append(place)
        alone = {frozenset(places): self._alone_in(target, places) for places in own.values()}
        return replace(target, asked=asked, limits=limits, alone=alone)

    def share_of(self, target: Target) -> float:
        """Return which part of the budget the statements of a target have."""
        numbers = {place[0] for place in target.asked}
        return sum(self._part_in(target, number) for number in numbers)

    def limited(self, target: Target, part: float) -> Target:
        """Return a target that is weighed with its limits for a part of the budget as a unit."""
        scale = part ** (1 / law(self.noise).share_power - 1)
        return replace(target, limits={p: x * scale for p, x in (target.limits or {}).items()})

    def _alone_in(self, target: Target, places: Sequence[Place]) -> tuple[float, float]:
        """The error of a statement's answers with a unit budget, and what keeps their limits."""
        number, used = places[0][0], law(self.noise)
        part = self._part_in(target, number)
        per_row = 1.0 if target.units else float(target.rows_per_unit**2)
        unit = used.unit_variance(float(self.amount)) * per_row
        squares = (self.emphasis[p] ** 2 * self.rows[p] * self.baseline[p] for p in places)
        error = sum(squares) / unit * part ** (1 / used.share_power - 1)
        return error, part * self._most(number) ** -used.norm

    def _part_in(self, target: Target, number: int) -> float:
        """The part of the budget that a statement has for what it asks of a target."""
        part = float(self.shares[number])
        if len(self.places[number]) > 1:
            planned = self.foreseen(number)
            here = [piece.target.asked.keys() <= target.asked.keys() for piece in planned.pieces]
            inside = sum(a for a, is_here in zip(planned.amounts, here, strict=True) if is_here)
            part *= float(inside / sum(planned.amounts))
        return part

    def split(self, target: Target, choose: Choose) -> list[SeparatePlan]:
        """Return the statements of a target that is weighed as pieces, each planned by itself."""
        found = []
        for places in target.alone or {}:
            part = part_of(target, places)
            found.append(SeparatePlan(target, part, choose(part), self.amount))
        return found

    def known(self, target: Target) -> CandidatePlan | None:
        """Return the plan of a target that has the answers of one statement, if it is by itself."""
        numbers = {place[0] for place in target.asked}
        if len(numbers) > 1 or target.units:
            return None
        for piece in self.alone(*numbers).pieces:
            if piece.target.asked.keys() == target.asked.keys():
                chosen = piece.chosen
                error = total_error(target, chosen.layout, chosen.means)
                return replace(chosen, error=error * target.rows_per_unit**2, free=0.0, easier=())
        return None

    @cached_property
    def errors(self) -> Mapping[int, float]:
        """The error of statements with all of the budget each, weighed by the baseline."""
        unit = law(self.noise).unit_variance(float(self.amount))
        power = 1 / law(self.noise).share_power - 1
        found = dict.fromkeys(self.shares, 0.0)
        for place, variance in self.baseline.items():
            number = place[0]
            part = float(self.shares[number]) ** power / unit
            found[number] += self.emphasis[place] ** 2 * self.rows[place] * variance * part
        return found

    def is_fine(self, pieces: Sequence[SeparatePlan]) -> bool:
        """Say whether noise is so fine that its variance goes as its budget says."""
        return not any(
            is_coarse(each.chosen, counted_of(each.target, self.noise, self.amount)[1])
            for each in pieces
            if not each.target.units
        )

    @property
    def is_coarse(self) -> bool:
        """True if noise with a statement's share is far below its limit: with all, farther."""
        used, most = law(self.noise), self.amount * max(self.shares.values())
        variance = used.variance(float(used.scale(1, most)))
        return variance < FAR_BELOW * used.unit_variance(float(most))

    @property
    def least(self) -> list[float]:
        """The parts of the budget that keep statements within their limits."""
        norm = law(self.noise).norm
        return [float(each) * self._most(n) ** -norm for n, each in self.shares.items()]

    @property
    def error(self) -> float:
        """The total error of the split with the best shares, for a budget of one."""
        return shared_error(list(self.errors.values()), self.least, self.noise)

    def shared(self, *, exactly: bool = False) -> BudgetDivision:
        """Return all statements by themselves with the best shares, or ``exactly`` their own."""
        planned = [self.alone(number) for number in self.shares]
        pieces = [piece for each in planned for piece in each.pieces]
        if exactly or not self.is_fine(pieces):
            amounts = [self.amount * each for each in self.shares.values()]
            rest = self.amount - sum(amounts)
            amounts[-1] += rest
        else:
            fitted = [each * (1 - ROUNDING) for each in self.least]
            errors = list(self.errors.values())
            amounts = split_amount(self.amount, errors, self.noise, fitted)
        inside = []
        for each, amount in zip(planned, amounts, strict=True):
            before = sum(each.amounts)
            inside += [amount * part / before for part in each.amounts]
        return BudgetDivision(tuple(pieces), tuple(inside))

    def is_fair(self, found: BudgetDivision) -> bool:
        """Say whether no shown column has a larger error than it may, beside its baseline."""
        # What parts of the same rows tell each other is worked out where that decides.
        return self._keep(found.means_apart) or self._keep(found.means)

    def _keep(self, means: Mapping[Place, float]) -> bool:
        """Say whether mean variances of answers keep to what columns have alone."""
        exact = self._known_alone[1]
        for column in self.columns:
            most = FAIR if column.statement in exact else FAIR / NEAR_ALONE
            alone = column.variance(self.baseline, self.rows)
            if column.variance(means, self.rows) > most**2 * alone > 0:
                return False
        return True


def _is_disjoint(target: Target, asked: WeightedAnswer) -> bool:
    """Say whether each row changes one number of an answer at most, by one."""
    if target.units or len(asked.terms) != 1 or asked.distinct is not None:
        return False
    (term,) = asked.terms
    if term.polynomials or abs(term.scale) != 1:
        return False
    factors = term.factors.values()
    return all(
        f.integer and f.column_l1().max(initial=0) == 1 and f.row_sums().min(initial=1) > 0
        for f in factors
    )
