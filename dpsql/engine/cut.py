"""A workload whose measure is clipped: first a threshold, released on its own, then the plan.

The threshold costs a fixed part of the budget and is kept, so the same choice is free later; what
follows is the ordinary plan with values clipped there, for the rest of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, cast

import numpy as np

from dpsql.answer.clipped import ClippedSums, number_text
from dpsql.answer.codec import Release
from dpsql.answer.reprocess import check_methods
from dpsql.answer.result import CostInfo, Result
from dpsql.answer.store import Shelf
from dpsql.catalog import Table
from dpsql.catalog.view import RowView
from dpsql.engine.clip import (
    BIAS,
    contradict,
    describe_choice,
    make_rule,
    rules_before,
)
from dpsql.engine.clip_column import read_column, refuse, summing
from dpsql.engine.desk import Desk
from dpsql.engine.job import Doors, Looking, Price, price_of_plan, price_of_run, without_cells
from dpsql.engine.matrix import Asking
from dpsql.errors import (
    DataError,
    ProgrammingError,
)
from dpsql.learn.summed import WORKS, measure_of
from dpsql.learn.thresholds import Method, Threshold, choose, levels, rows_above, rows_lost
from dpsql.plan.request import Request
from dpsql.privacy.accounting import UNITS, epsilon_for, units_down
from dpsql.privacy.filter import Run, SumView
from dpsql.records import dataclass, replace
from dpsql.sql.clauses import Cut
from dpsql.sql.compiled import Compiled
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import Cells, cells_of
from dpsql.workload.target import hull_of
from dpsql.workload.term import Term

if TYPE_CHECKING:
    from dpsql.engine.explanation import Explanation, Row
    from dpsql.learn.batches import Measure
    from dpsql.learn.handle import SumHandle

CHOSEN = ("svt", "svt-ratio", "recursive", "quantile", "approx-bounds")
"""Rules that choose a threshold before anything is measured."""


@dataclass(frozen=True, slots=True, eq=False)
class Cutting(Looking[ClippedSums]):
    """The private choice of one threshold for a workload, and what either step costs.

    Public facts only. ``amount`` is the epsilon (Laplace) or rho (Gaussian) of the choice, ``rest``
    that of the answers; together they are the request's, exactly. ``columns`` decide which rows
    count, here as in the answers.
    Guarantee: the threshold is stored before the answers are charged, so that a request which is
    cut off between them continues with what it has.
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
        """What the membrane is paid for."""
        view = SumView(self.measure.steps(self.values), None, self.within)
        facts = ("threshold", repr(self.rule), repr(self.measure), str(self.rest))
        settings = repr((*facts, *self.request.released))
        key, unit = self.table.name.casefold(), self.table.unit.max_rows
        run = Run(key, {}, self.noise, self.amount, unit, settings, self.values, view)
        return replace(run, rows=self.rows)

    @property
    def earlier(self) -> tuple[Run, ...]:
        """The runs that earlier versions made of the same statements."""
        before = [replace(self, rule=each).run for each in rules_before(self.rule, self.table)]
        return (*before, *(each for run in (self.run, *before) for each in without_cells(run)))

    @property
    def rho(self) -> Fraction | None:
        """The zero-concentrated budget of the choice under Gaussian noise."""
        return None if law(self.noise).is_pure else self.amount

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of the choice, at the request's delta."""
        return self.amount if self.rho is None else epsilon_for(self.amount, self.delta)

    @property
    def fresh(self) -> bool:
        """Whether another threshold is chosen, whatever was published."""
        return self.reuse == "never"

    @property
    def asked(self) -> tuple[str, ...]:
        """The statements, as the ledger notes them."""
        return tuple(item.text for item in self.request.statements)

    @property
    def price(self) -> Price:
        """What is charged for the threshold."""
        return price_of_run(self.run, self.epsilon)

    def shelf(self, desk: Desk) -> Shelf[ClippedSums]:
        """Where thresholds are stored."""
        return desk.store.clipped

    def check(self, desk: Desk, doors: Doors) -> None:
        """Refuse what public facts or the budget refuse of both steps together."""
        whole = self.rest_of(self.request.statements)
        planned = desk.plan(whole)
        check_methods(whole, planned.plan, planned.readings)
        doors.afford(price_of_plan(planned.plan))
        doors.certify(planned.plan)
        desk.scopes(whole.tables)  # data that cannot be opened are refused here
        both = None if self.rho is None else self.request.rho
        doors.afford(replace(self.price, epsilon=self.request.epsilon, rho=both))

    def learn(self, handle: SumHandle, receipt: tuple[str, int, str]) -> ClippedSums:
        """Choose the threshold, through the handle alone."""
        theta = choose(handle, self.rule, self.amount, self.rest)
        level, cuts = self.measure.level(theta), theta < self.measure.upper
        facts = (self.epsilon, self.delta, self.noise, receipt)
        released = self.request.released
        return ClippedSums((), (), (level,), True, cuts, False, *facts, released=released)

    def cut(self, level: Fraction) -> Cut:
        """How the statements are compiled for the second step."""
        return Cut(self.table.name.casefold(), self.measure.column, float(level))

    def rest_of(self, statements: Sequence[Compiled]) -> Request:
        """What is asked for the rest of the budget."""
        whole = replace(self.request, statements=tuple(statements), noise=self.noise)
        if self.rho is None:
            return replace(whole, epsilon=self.rest)
        return replace(whole, epsilon=epsilon_for(self.rest, self.delta), part=self.rest)

    def following(self, desk: Desk, found: ClippedSums, free: bool) -> AskingCut:
        """The answers, with values clipped at the threshold, for the rest of the budget."""
        cut = self.cut(found.levels[0])
        cuts = [cut if chooses(item) else None for item in self.request.statements]
        rest = self.rest_of(desk.cut(self.request.statements, cuts))
        return AskingCut(rest, self.reuse, cutting=self, threshold=found, was_known=free)

    def results(self, desk: Desk, found: ClippedSums, free: bool) -> tuple[Result, ...]:
        """None: what follows answers."""
        return ()

    def explain(self, desk: Desk, assumed: bool) -> Explanation:
        """The forecast: at the declared bound until the threshold is known."""
        known = self.foreseen(desk)
        if known is None:
            rest = Asking(self.rest_of(self.request.statements), self.reuse)
            whole = rest.forecast(desk, assumed)
            details = (*self.details(), *whole.details)
            epsilon = self.request.epsilon
            return replace(whole, epsilon=epsilon, free=False, entry=None, details=details)
        found = self.following(desk, known, True).forecast(desk, assumed)
        level = number_text(known.levels[0])
        line = ("threshold", f"{level}, from entry {known.receipt[1]} of the ledger, free")
        return replace(found, details=(line, BIAS, *found.details))

    def details(self) -> tuple[Row, ...]:
        """What a forecast says about the choice."""
        rows = rows_above(self.rule, self.noise, self.rest)
        whole, unit = self.amount + self.rest, self.table.unit.max_rows
        lost, hint = rows_lost(self.rule, self.noise, whole, unit), self.table.row_count_hint
        return describe_choice(self.rule, len(self.values), self.measure.high, rows, hint, lost)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AskingCut(Asking):
    """The step after a threshold: the ordinary plan, with values clipped there."""

    cutting: Cutting
    threshold: ClippedSums
    was_known: bool

    def results(self, desk: Desk, found: Release, free: bool) -> tuple[Result, ...]:
        """The answers, with what both steps cost, and what has to be said about the threshold."""
        # A class with slots is another one than its methods were written in.
        results = super(AskingCut, self).results(desk, found, free)  # noqa: UP008
        pairs = zip(self.cutting.request.statements, results, strict=True)
        return tuple(self._with_threshold(item, result) for item, result in pairs)

    def _with_threshold(self, item: Compiled, result: Result) -> Result:
        if result.cost is None:
            return result
        cost, request, free = result.cost, self.cutting.request, self.was_known
        if not free and cost.free:
            cost = self.threshold.cost(False)
        elif not free or cost.free:
            cost = CostInfo(request.epsilon, request.delta, cost.noise, cost.free)
        notes = self.threshold.notes(self.cutting.column, free) if chooses(item) else ()
        return replace(result, cost=cost, notes=(*result.notes, *notes))


def chooses(item: Compiled) -> bool:
    """Whether a statement has a clip that is chosen privately."""
    return item.truncation is not None and item.truncation.rule in CHOSEN and not item.is_static


def read_level(item: Compiled) -> Cut | None:
    """Where the values of a statement are clipped by a number that it gives.

    Raises: NotSupportedError, ProgrammingError, with a hint.
    """
    clip = item.truncation
    if clip is None or item.is_static:
        return None
    if clip.rule in CHOSEN:
        contradict(item)
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


def plan_cutting(request: Request, noise: Noise, reuse: str = "auto") -> Cutting:
    """Read the workload's measure and split its budget between the threshold and the answers.

    Raises: NotSupportedError, ProgrammingError, with a hint; DataError (E_EPSILON).
    """
    asked = [item for item in request.statements if chooses(item)]
    for item in asked:
        contradict(item, request.mechanism)
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
    amount = Fraction(units_down(rule.share * whole), UNITS)
    if not amount:
        raise DataError("E_EPSILON", "epsilon is too small to be split", hint="clip = a number")
    rows = request.views[table.name.casefold()]
    facts = (table, measure, within, rule, noise, amount, whole - amount, request.delta, rows)
    return Cutting(request, reuse, *facts)


def _hull(terms: Sequence[Term]) -> tuple[Cells, ...]:
    """Conditions, column by column, that hold for every row that any of the terms counts."""
    pairs = hull_of(terms).items()
    return tuple(cells_of(name, np.where(mask, 0, -1).astype(np.int64)) for name, mask in pairs)
