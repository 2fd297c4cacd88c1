"""A workload whose measure is clipped: first a threshold, released on its own, then the plan.

The threshold costs a fixed part of the budget and is kept, so the same choice is free later. Where
a search has no hit, a second one follows for a part that was kept back; then the ordinary plan,
with values clipped there, for the rest of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, cast

import numpy as np

from dpsql.answer.clipped import ClippedSums, number_text
from dpsql.answer.codec import Release
from dpsql.answer.postprocess import check_methods
from dpsql.answer.result import CostInfo, Result
from dpsql.answer.store import StoreTable
from dpsql.catalog import Table
from dpsql.engine.clip import (
    AT_BOUND,
    BIAS,
    THE_ERROR,
    UNCLIPPED,
    WORST,
    describe_choice,
    make_rule,
    refuse_conflicts,
    rules_before,
)
from dpsql.engine.clip_column import groups_of, read_column, refuse, summing, worst_ratio
from dpsql.engine.explanation import ColumnForecast
from dpsql.engine.job import AdaptiveJob, Doors, Price, price_of_plan, price_of_run, without_cells
from dpsql.engine.matrix import WorkloadJob
from dpsql.engine.planner import Planner
from dpsql.errors import (
    DataError,
    ProgrammingError,
)
from dpsql.learn.summed import WORKS, measure_of
from dpsql.learn.thresholds import NOTHING, Method, Threshold, levels, rows_above, rows_lost, search
from dpsql.plan.request import Request
from dpsql.plan.target import hull_of
from dpsql.privacy.budget.accounting import UNITS, epsilon_for, units_down
from dpsql.privacy.doors.privacy_filter import Run, SumView
from dpsql.records import dataclass, replace
from dpsql.relation.row_view import RowView
from dpsql.sql.compiled import Answer, Compiled
from dpsql.sql.text.clauses import Cut
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import Cells, cells_of
from dpsql.workload.term import Term

if TYPE_CHECKING:
    from dpsql.engine.explanation import Explanation, Row
    from dpsql.learn.batches import Measure
    from dpsql.pgm.measurements import SumHandle

CHOSEN = ("svt", "svt-ratio", "recursive", "quantile", "approx-bounds")
"""Rules that choose a threshold before anything is measured."""


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdJob(AdaptiveJob[ClippedSums]):
    """One search for the threshold of a workload, and what it and the rest cost.

    Public facts only. ``amount`` is the epsilon (Laplace) or rho (Gaussian) of the search, ``rest``
    that of what follows; ``missed`` is what a first search without a hit had. Together they are the
    request's, exactly; ``paid`` is what of ``missed`` is charged now, not before.
    ``rows`` decide which rows count, here as in the answers.
    Guarantee: what a search ends with is stored before anything else is charged, so that a request
    which is cut off continues with what it has. Whether it hits is an output of it.
    """

    request: Request
    reuse: str
    table: Table
    measure: Measure
    within: tuple[Cells, ...]
    rule: Threshold
    noise: Noise
    amount: Fraction
    rest: Fraction
    delta: Fraction
    rows: RowView
    missed: Fraction = NOTHING
    paid: Fraction = NOTHING

    @property
    def column(self) -> str:
        """The name of the clipped column."""
        return self.table.columns[self.measure.column].name

    @property
    def values(self) -> tuple[int, ...]:
        """The public thresholds, in units of the measure."""
        return tuple(levels(self.rule, self.noise, self.amount, self.measure.upper))

    @property
    def run(self) -> Run:
        """The run that the membrane is paid for."""
        view = SumView(self.measure.steps(self.values), None, self.within)
        facts = ("threshold", repr(self.rule), repr(self.measure), str(self.rest))
        again = ("again",) if self.missed else ()
        settings = repr((*facts, *again, *self.request.released))
        key, unit = self.table.name.casefold(), self.table.unit.max_rows
        run = Run(key, {}, self.noise, self.amount, unit, settings, self.values, view)
        return replace(run, rows=self.rows)

    @property
    def earlier(self) -> tuple[Run, ...]:
        """The runs that earlier versions made of the same statements."""
        rules = () if self.missed else rules_before(self.rule, self.table)
        before = [replace(self, rule=each).run for each in rules]
        return (*before, *(each for run in (self.run, *before) for each in without_cells(run)))

    @property
    def rho(self) -> Fraction | None:
        """The zero-concentrated budget of the choice under Gaussian noise."""
        return None if law(self.noise).is_pure else self.amount

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of the search, at the request's delta."""
        return self.epsilon_of(self.amount)

    @property
    def fresh(self) -> bool:
        """True if another threshold is chosen, whatever was published."""
        return self.reuse == "never"

    @property
    def asked(self) -> tuple[str, ...]:
        """The statements, as the ledger notes them."""
        return tuple(item.text for item in self.request.statements)

    @property
    def price(self) -> Price:
        """The price of the threshold."""
        return price_of_run(self.run, self.epsilon)

    def shelf(self, planner: Planner) -> StoreTable[ClippedSums]:
        """Return the shelf of thresholds."""
        return planner.store.clipped

    def check(self, planner: Planner, doors: Doors) -> None:
        """Refuse what public facts or the budget refuse of all steps together."""
        whole = self.rest_of(self.request.statements)
        planned = planner.plan(whole)
        check_methods(whole, planned.plan, planned.readings)
        doors.afford(price_of_plan(planned.plan))
        doors.certify(planned.plan)
        planner.scopes(whole.tables)  # data that cannot be opened are refused here
        due = self.amount + self.rest
        doors.afford(
            replace(
                self.price,
                epsilon=self.epsilon_of(due),
                rho=None if self.rho is None else due,
            )
        )

    def learn(self, handle: SumHandle, receipt: tuple[str, int, str]) -> ClippedSums:
        """Search for the threshold, through the handle alone; no level is a first without a hit."""
        theta, upper = search(handle, self.rule, self.amount, self.rest), self.measure.upper
        if theta is None and (self.missed or not self.rule.again):
            theta = upper
        levels = () if theta is None else (self.measure.level(theta),)
        facts = (self.epsilon, self.delta, self.noise, receipt)
        cuts, released = theta is not None and theta < upper, self.request.released
        return ClippedSums((), (), levels, True, cuts, False, *facts, released=released)

    def epsilon_of(self, amount: Fraction) -> Fraction:
        """The epsilon of an amount, at the request's delta."""
        if amount == self._whole:
            return self.request.epsilon
        return amount if law(self.noise).is_pure else epsilon_for(amount, self.delta)

    def again(self, paid: Fraction) -> ThresholdJob:
        """The second search, for the part that was kept back; ``paid`` is charged now, not before.

        Raises: DataError (E_EPSILON).
        """
        whole, missed = self.amount + self.rest, self.amount
        amount = _part(self.rule.again, whole)
        return replace(self, amount=amount, rest=self.rest - amount, missed=missed, paid=paid)

    def cut(self, level: Fraction) -> Cut:
        """Return the cut with which statements are compiled for the second step."""
        return Cut(self.table.name.casefold(), self.measure.column, float(level))

    def rest_of(self, statements: Sequence[Compiled]) -> Request:
        """Return the request for the rest of the budget."""
        whole = replace(self.request, statements=tuple(statements), noise=self.noise)
        whole = replace(whole, epsilon=self.epsilon_of(self.rest))
        return whole if self.rho is None else replace(whole, part=self.rest)

    def following(
        self, planner: Planner, found: ClippedSums, free: bool
    ) -> ThresholdJob | ClippedWorkloadJob:
        """The answers, clipped at the threshold, for the rest of the budget; or a second search."""
        paid = self.paid + (NOTHING if free else self.amount)
        if not found.levels:
            return self.again(paid)
        cut = self.cut(found.levels[0])
        cuts = [cut if chooses(item) else None for item in self.request.statements]
        rest = self.rest_of(planner.cut(self.request.statements, cuts))
        return ClippedWorkloadJob(
            rest, self.reuse, cutting=self, threshold=found, was_known=free, paid=paid
        )

    def results(self, planner: Planner, found: ClippedSums, free: bool) -> tuple[Result, ...]:
        """No results yet: the workload that is clipped at the threshold has them."""
        return ()

    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast: at the declared bound until the threshold is known."""
        known = self.foreseen(planner)
        if known is not None and not known.levels:
            return self.again(NOTHING).explain(planner, assumed)
        if known is None:
            most = self.again(NOTHING) if self.rule.again and not self.missed else self
            rest = WorkloadJob(most.rest_of(self.request.statements), self.reuse)
            whole, times, told = self._with_rows_above(rest.forecast(planner, assumed), most.rest)
            details = (*self.details(times, told), *whole.details)
            epsilon = self.epsilon_of(self.amount + self.rest)
            return replace(whole, epsilon=epsilon, free=False, entry=None, details=details)
        found = self.following(planner, known, True)
        assert isinstance(found, ClippedWorkloadJob)
        forecast = found.forecast(planner, assumed)
        level = number_text(known.levels[0])
        line = ("threshold", f"{level}, from entry {known.receipt[1]} of the ledger, free")
        return replace(forecast, details=(line, BIAS, *forecast.details))

    @property
    def _whole(self) -> Fraction:
        """The budget of all steps."""
        return self.missed + self.amount + self.rest

    @property
    def _lost(self) -> float | None:
        """The rows that end above the threshold at its worst."""
        return rows_lost(self.rule, self.noise, self._whole, self.table.unit.max_rows)

    def _with_rows_above(
        self, noise: Explanation, rest: Fraction
    ) -> tuple[Explanation, float, str]:
        """A forecast of noise, and of all rows above the threshold, wherever they are.

        And the largest ratio of a column's error to that without a clip, for all of the budget, and
        whose error that is: that of a sum by itself where no column's is known.
        """
        lost, used = self._lost, law(self.noise)
        if lost is None:
            return replace(noise, case=AT_BOUND), 1.0, THE_ERROR
        less = math.sqrt(used.unit_variance(float(self._whole)) / used.unit_variance(float(rest)))
        total, rows, statements, times, told, words = 0.0, 0, [], 1.0, False, THE_ERROR
        for item, forecast in zip(self.request.statements, noise.statements, strict=True):
            answers = [answer for _, answer in item.answers() if answer.rank is None]
            moved = [self._moved(each, lost) if chooses(item) else (0.0, 0.0) for each in answers]
            total += sum(square for square, _ in moved)
            rows += sum(map(_rows, answers))
            columns = [o.aggregate for o in item.selects[0].query.shell.outputs]
            errors = iter(forecast.errors)
            found = []
            for own in ([i for i, a in enumerate(answers) if a.aggregate == c] for c in columns):
                column = next(errors, None) if own else None
                if column is not None and any(moved[i][1] for i in own):
                    told = True
                    square = sum(moved[i][0] for i in own) / sum(_rows(answers[i]) for i in own)
                    most = max(moved[i][1] for i in own)
                    with_rows = math.hypot(column.rmse, math.sqrt(square))
                    times = max(times, with_rows / (less * column.rmse))
                    column = ColumnForecast(
                        column.name, with_rows, math.hypot(column.largest, most)
                    )
                found += [] if column is None else [column]
            statements.append(replace(forecast, errors=tuple(found)))
        rmse = math.hypot(noise.rmse, math.sqrt(total / max(1, rows)))
        beside = ((UNCLIPPED, less * noise.rmse),) * (not noise.mixed)
        unit, key = self.table.unit.max_rows, self.measure.column
        if not told:  # means and the like: their sums have an error that is known
            sums = [a for item in self.request.statements for a in summing(item, key)]
            rule = self.rule
            times = worst_ratio(rule, self.noise, self._whole, unit, groups_of(sums))
            words = f"the error of a sum of {self.column} by itself"
        whole = replace(noise, statements=tuple(statements), rmse=rmse, comparisons=beside)
        return replace(whole, case=WORST), times, words

    def _moved(self, answer: Answer, lost: float) -> tuple[float, float]:
        """The sum of squares that rows above the threshold move an answer by, and the largest."""
        key, each, many = self.measure.column, 0.0, 1.0
        bounds = float(self.measure.low), float(self.measure.high)
        for term in answer.whole:
            if key in term.polynomials and answer.rank is None:
                polynomial = term.polynomials[key]
                ends = polynomial.extremes(*bounds)
                size = polynomial.largest(*bounds)
                each += term.largest * (max(ends) - min(ends)) / size if size else 0.0
                columns = [float(f.column_l1().max(initial=0)) for f in term.factors.values()]
                many = max(many, math.prod(columns))
        most = lost * each
        return most**2 * min(many, _rows(answer)), most

    def details(self, times: float, told: str) -> tuple[Row, ...]:
        """Return the lines of a forecast on the choice."""
        rows = rows_above(self.rule, self.noise, self.rest)
        rule = replace(self.rule, again=NOTHING) if self.missed else self.rule
        if self.missed:
            rule = replace(rule, share=self.rule.again)
        size, hint = len(self.values), self.table.row_count_hint
        return describe_choice(rule, size, self.measure.high, rows, hint, self._lost, times, told)


def _rows(answer: Answer) -> int:
    return math.prod(len(axis.groups) for axis in answer.axes)


def _part(share: Fraction, whole: Fraction) -> Fraction:
    """A part of a budget, in whole units. Raises: DataError (E_EPSILON)."""
    amount = Fraction(units_down(share * whole), UNITS)
    if not amount:
        raise DataError("E_EPSILON", "epsilon is too small to be split", hint="clip = a number")
    return amount


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClippedWorkloadJob(WorkloadJob):
    """The step after a threshold: the ordinary plan, with values clipped there.

    ``paid`` is what of the search, or both, is charged now, not before.
    """

    cutting: ThresholdJob
    threshold: ClippedSums
    was_known: bool
    paid: Fraction

    def results(self, planner: Planner, found: Release, free: bool) -> tuple[Result, ...]:
        """The answers, with what both steps cost, and what has to be said about the threshold."""
        # A class with slots is another one than its methods were written in.
        results = super(ClippedWorkloadJob, self).results(planner, found, free)  # noqa: UP008
        pairs = zip(self.cutting.request.statements, results, strict=True)
        return tuple(self._with_threshold(item, result) for item, result in pairs)

    def _with_threshold(self, item: Compiled, result: Result) -> Result:
        if result.cost is None:
            return result
        cost, delta = result.cost, self.cutting.request.delta
        paid = self.paid + (NOTHING if cost.free else self.cutting.rest)
        epsilon = self.cutting.epsilon_of(paid) if paid else self.cutting.request.epsilon
        cost = CostInfo(epsilon, delta, cost.noise, not paid)
        named = self.cutting.column
        notes = self.threshold.notes(named, self.was_known) if chooses(item) else ()
        return replace(result, cost=cost, notes=(*result.notes, *notes))


def chooses(item: Compiled) -> bool:
    """True if a statement has a clip that is chosen privately."""
    return item.truncation is not None and item.truncation.rule in CHOSEN and not item.is_static


def read_level(item: Compiled) -> Cut | None:
    """Return the cut of a statement that clips values at a number which it gives.

    Raises: NotSupportedError, ProgrammingError, with a hint.
    """
    clip = item.truncation
    if clip is None or item.is_static:
        return None
    if clip.rule in CHOSEN:
        refuse_conflicts(item)
    if clip.rule not in ("given", *CHOSEN) or clip.mechanism is not None:
        if clip.rule == "none" and clip.mechanism is None:
            return None
        what = f"clip = '{clip.rule}'" if clip.mechanism is None else "sum_mechanism"
        refuse(item, f"{what} is not supported here", f"it is for one statement: {WORKS}")
    if clip.level is None:
        return None
    table, column = read_column(item)
    bounds = column.number_bounds
    if bounds is None or float(clip.level) <= bounds[0]:
        hint = f"a number above the least value of {column.name}"
        what = "the clip leaves nothing to add up"
        raise ProgrammingError("E_DEGENERATE_BOUNDS", what, hint=hint, span=clip.span)
    return Cut(table.name.casefold(), column.name.casefold(), float(clip.level))


def plan_cutting(request: Request, noise: Noise, reuse: str = "auto") -> ThresholdJob:
    """Read the workload's measure and split its budget between the threshold and the answers.

    Raises: NotSupportedError, ProgrammingError, with a hint; DataError (E_EPSILON).
    """
    asked = [item for item in request.statements if chooses(item)]
    for item in asked:
        refuse_conflicts(item, request.mechanism)
    found = {(table.name, column.name) for table, column in map(read_column, asked)}
    rules = {item.truncation.rule for item in asked if item.truncation is not None}
    if len(found) > 1 or len(rules) > 1:
        what = "two columns" if len(found) > 1 else "two rules"
        refuse(asked[-1], f"clip of {what} is not supported", "ask in requests of their own")
    table, column = read_column(asked[0])
    if column.bounds is None:
        what = f"a threshold for {column.name}, which has a domain, is not supported here"
        refuse(asked[0], what, f"clip = a number, bounds in the catalog, or {WORKS}")
    low, high = column.bounds
    if low < 0:
        what = f"clip with values below 0, as {column.name} may have, is not supported"
        refuse(asked[0], what, "clip = a number works", "E_SETTING")
    key = column.name.casefold()
    measure = measure_of(key, column, high)
    sums = [answer for item in asked for answer in summing(item, key)]
    cells = sum(math.prod(len(axis.groups) for axis in answer.axes) for answer in sums)
    rule = make_rule(cast("Method", rules.pop()), measure.upper, cells, table.unit.max_rows, noise)
    within = _hull([t for answer in sums for t in answer.terms if key in t.polynomials])
    whole = request.budget(noise)
    amount = _part(rule.share, whole)
    if rule.again:
        _part(rule.again, whole)  # what could not be searched for again is refused here
    rows = request.views[table.name.casefold()]
    facts = (table, measure, within, rule, noise, amount, whole - amount, request.delta, rows)
    return ThresholdJob(request, reuse, *facts)


def _hull(terms: Sequence[Term]) -> tuple[Cells, ...]:
    """Conditions, column by column, that hold for every row that any of the terms counts."""
    pairs = hull_of(terms).items()
    return tuple(cells_of(name, np.where(mask, 0, -1).astype(np.int64)) for name, mask in pairs)
