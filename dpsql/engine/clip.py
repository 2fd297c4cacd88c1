"""SELECT ... OPTIONS(clip = ...): from a sum, or a batch of sums, to one run that clips values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NoReturn, cast

import numpy as np

from dpsql.answer.clipped import ClippedSums, number_text, rounded_text
from dpsql.answer.result import Result
from dpsql.answer.shell import NoisySelect, build_result
from dpsql.answer.store import StoreTable
from dpsql.catalog import Table
from dpsql.engine.explanation import ColumnForecast, Explanation, Row, StatementForecast
from dpsql.engine.job import AdaptiveJob, Price, price_of_run, without_cells
from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms, require_epsilon
from dpsql.errors import DataError, NotSupportedError, ProgrammingError, decimal_text
from dpsql.learn.batches import SumAnswers, answer_sum, answer_sums
from dpsql.learn.design import Algorithm, SumBatch
from dpsql.learn.summed import SummedMeasure, read_summed
from dpsql.learn.thresholds import (
    AGAIN,
    BATCH_ROWS,
    BATCH_SHARE,
    FREE,
    GAUSSIAN_SHARE,
    NOTHING,
    PACE,
    REACH,
    SEARCH,
    SEVERAL_AGAIN,
    SINGLE_SHARE,
    STEADY,
    UNKNOWN,
    Method,
    Threshold,
    levels,
    rows_above,
    rows_lost,
)
from dpsql.pgm.measurements import MeasureHandle
from dpsql.plan.target import find_released, find_views, notes_of, view_rows
from dpsql.privacy.budget.accounting import budget_for
from dpsql.privacy.doors.privacy_filter import Run, SumView
from dpsql.records import dataclass, replace
from dpsql.settings.table import DEMANDS, LEARNED
from dpsql.sql.compiled import Compiled
from dpsql.strategy.noise_law import Noise, admitted, law, needs_delta
from dpsql.vectors import Vector

MANY_ROWS = 100
"""Rows above a threshold from which a budget is small, where nothing is known of the table."""
REMEMBERED = 8
"""Batches whose strategies are kept: functions of public facts only."""
SINGLE_ROWS: Mapping[Method, Fraction] = {"svt": Fraction(5), "quantile": Fraction(3)}
"""Rows that rules leave above one sum, in units of 1 / epsilon.

Fewer have a smaller median error, and now and then a threshold far above every value: of 400 runs
one in a hundred decides the root mean square (``benchmarks.tails``).
"""
QUANTILE_BEFORE = (5, 10)
"""Rows that earlier versions left above one sum by ``quantile``; by ``svt`` it was one."""
WORST, AT_BOUND, UNCLIPPED = "at its worst", "at the largest threshold", "without a clip"
"""Errors that are told before a threshold is chosen: what it will be is decided by the data."""
THE_ERROR = "the error above"
BIAS = ("bias", "values above the threshold are clipped: sums are biased downwards")
MARGIN = 10
"""A table is large enough when it has this many times the rows above its threshold."""

_batches: dict[bytes, SumBatch] = {}


@dataclass(frozen=True, slots=True, eq=False)
class ClippingJob(AdaptiveJob[ClippedSums]):
    """One run that clips and sums, and its price: public facts only."""

    item: Compiled
    table: Table
    summed: SummedMeasure
    algorithm: Algorithm
    rule: Threshold
    noise: Noise
    amount: Fraction
    epsilon: Fraction
    delta: Fraction
    fresh: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        """The statement, as the ledger notes it."""
        return (self.item.text,)

    @property
    def price(self) -> Price:
        """The price of the run."""
        return price_of_run(self.run, self.epsilon)

    def shelf(self, planner: Planner) -> StoreTable[ClippedSums]:
        """Return the shelf of clipped sums."""
        return planner.store.clipped

    @property
    def run(self) -> Run:
        """The run that the membrane is paid for."""
        summed = self.summed
        if summed.measure is not None:
            values = tuple(summed.measure.thresholds(self.rule, self.noise, self.amount))
            view = SumView(summed.measure.steps(values), None, summed.within)
        else:
            assert summed.levels is not None
            values = tuple(map(int, summed.values))
            view = SumView(summed.levels, summed.spread, summed.within)
        key = self.table.name.casefold()
        unit = self.table.unit.max_rows
        rows = find_views([self.item])[key]
        return Run(key, {}, self.noise, self.amount, unit, self._settings(), values, view, rows)

    @property
    def earlier(self) -> tuple[Run, ...]:
        """The runs that earlier versions made of the same statement."""
        before = [replace(self, rule=each).run for each in rules_before(self.rule, self.table)]
        return (*before, *(each for run in (self.run, *before) for each in without_cells(run)))

    @property
    def rho(self) -> Fraction | None:
        """The zero-concentrated budget of a run with Gaussian noise."""
        return None if law(self.noise).is_pure else self.amount

    def _settings(self) -> str:
        """Everything that decides what is looked at and how answers follow."""
        queries = hashlib.sha256(np.ascontiguousarray(self.summed.queries).tobytes()).hexdigest()
        facts = (repr(self.rule), self.algorithm, repr(self.summed.measure), queries)
        again = ("again", str(self.rule.again)) if self.rule.again else ()
        return repr(("sums", *facts, *again, *find_released([self.item])))

    def learn(self, handle: MeasureHandle, receipt: tuple[str, int, str]) -> ClippedSums:
        """Choose, measure and answer, through the handle alone."""
        return self._released(self._sums(handle), receipt)

    def _sums(self, handle: MeasureHandle) -> SumAnswers:
        if self.summed.measure is not None:
            return answer_sum(handle, self.summed.measure, self.rule)
        edges, unit = self.summed.spread is not None, float(self.summed.unit)
        batch = _batch(self.summed, self.noise)
        ordered = None if self.summed.is_batch else False
        found = answer_sums(
            handle, batch, self.algorithm, self.rule, ordered=ordered, on_values=edges
        )
        return replace(found, values=found.values * unit, stddev=found.stddev * unit)

    def _released(self, found: SumAnswers, receipt: tuple[str, int, str]) -> ClippedSums:
        """The release that the run ended with, answers in result order."""
        back = np.argsort(self.summed.order)
        cut_at = tuple(self.summed.level(theta) for theta in found.thetas)
        summed = self.summed
        top = (summed.top,)
        if len(cut_at) > 1:
            cut_at = tuple(cut_at[i] for i in back)
            top = tuple((summed.queries * summed.values).max(axis=1).tolist())
        cuts = any(theta < most for theta, most in zip(found.thetas, top, strict=True))
        return ClippedSums(
            tuple(found.values[back].tolist()),
            tuple(found.stddev[back].tolist()),
            cut_at,
            self.rule.method not in ("none", *UNKNOWN),
            cuts or summed.upper < summed.largest,
            found.ordered,
            self.epsilon,
            self.delta,
            self.noise,
            receipt,
            self.rule.method,
            find_released([self.item]),
        )

    def results(self, planner: Planner, found: ClippedSums, free: bool) -> tuple[Result, ...]:
        """The answer to the statement, with what has to be said about it."""
        variance = np.square(found.stddev)
        filled = NoisySelect((Vector.of(found.values),), {(0, 0): variance})
        plain = build_result(self.item, [filled], found.cost(free), found.proof, planner.sealed)
        standing = notes_of(self.item, find_views([self.item]))
        notes = (*found.notes(self.summed.column, free), *self.item.decided, *standing)
        return (replace(plain, notes=notes, biased=found.is_unknown, standing=standing),)

    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast: from public facts only."""
        remaining, known = planner.remaining([self.run.table]), self.foreseen(planner)
        entry = None if known is None else known.receipt[1]
        rmse = math.sqrt(self._error() / len(self.summed.queries))
        name = self.item.columns[-1]
        single = not self.summed.is_batch
        shown = single and self.rule.method not in UNKNOWN
        errors = (ColumnForecast(name, rmse, rmse),) * shown
        worst, is_set = self._lost is not None, self.rule.free and self.rule.method != "sure"
        statement = StatementForecast(self.item.text, self.item.rows, self.item.columns, errors)
        method = "one clipped sum" if single else f"{self.algorithm} on {self._bins()}"
        return Explanation(
            (statement,),
            method,
            self.noise,
            self.epsilon,
            self.delta,
            rmse,
            ((UNCLIPPED, self._unclipped),) * worst,
            entry is not None,
            assumed,
            remaining,
            entry,
            case=WORST if worst else "expected" if is_set else AT_BOUND,
            details=(*self._details(), *view_rows([self.item])),
        )

    def _bins(self) -> str:
        bins = len(self.summed.values)
        return f"{bins:,} nodes of bins" if self.summed.spread is not None else f"{bins:,} values"

    @property
    def _lost(self) -> float | None:
        """The rows that end above the threshold at its worst, where that is known."""
        return rows_lost(self.rule, self.noise, self.amount, self.table.unit.max_rows)

    @property
    def _unclipped(self) -> float:
        """The root mean squared error of the same with all of the budget, at the bound."""
        noise = _variance(self.noise, self.amount, self.table.unit.max_rows)
        error = _unit_error(self.summed, self.algorithm, self.noise) * noise
        return math.sqrt(error / len(self.summed.queries))

    def _error(self) -> float:
        """The total squared error of the answers for values up to what clips them for certain.

        That is noise at the largest threshold, where a second search may be made what is left
        after that, and the rows that a choice leaves above, each of the largest value, in every
        query that has it.
        """
        unit, amount = self.table.unit.max_rows, self.amount
        answering = self.amount - _choosing(self.rule) * self.amount
        if self.rule.method == "r2t":
            answering /= len(levels(self.rule, self.noise, self.amount, self.summed.top))
        if self.algorithm == "sqm":
            amount /= len(self.summed.queries)
        lost = rows_lost(self.rule, self.noise, amount, unit) or 0.0
        noise = _variance(self.noise, answering, unit)
        rows = float(np.square(lost * self.summed.largest_of_each).sum())
        return _unit_error(self.summed, self.algorithm, self.noise) * noise + rows

    def _details(self) -> tuple[Row, ...]:
        rule, top = self.rule, number_text(self.summed.largest)
        column = self.summed.column
        if self.summed.given:
            return (("threshold", f"{number_text(self.summed.upper)}, as given, free"), BIAS)
        if rule.method == "none":
            return (("threshold", f"none: {column} is clipped to the declared {top}"),)
        if rule.method == "eb":
            drawn = ("threshold", "eb: none; counts are drawn towards a smooth tail, free")
            without = ("", "the error above is without that; answers have no standard errors")
            return (drawn, without, ("bias", "of either sign"))
        if rule.method == "r2t":
            count = len(levels(rule, self.noise, self.amount, self.summed.top))
            among = (
                "threshold",
                f"r2t: {count} levels up to {top}, 1/{count} of the budget for each",
            )
            largest = ("", "the largest answer, less a margin; it has no standard error")
            return (among, largest, BIAS)
        if rule.method == "sure":
            error = ("", f"the error above is at a threshold of {top}; noise shrinks with it")
            free = ("threshold", "sure: of least estimated risk, after measuring, free")
            return (free, error, BIAS)
        rows = rows_above(rule, self.noise, (1 - rule.share) * self.amount)
        size = None if self.summed.is_batch else len(self.run.values)
        most, times = self.summed.largest, math.sqrt(self._error() / len(self.summed.queries))
        hint, times = self.table.row_count_hint, times / self._unclipped
        return describe_choice(rule, size, most, rows, hint, self._lost, times)


def describe_choice(
    rule: Threshold,
    size: int | None,
    largest: Fraction,
    rows: int,
    hint: int | None,
    lost: float | None,
    times: float,
    told: str = THE_ERROR,
) -> tuple[Row, ...]:
    """The lines of a forecast about a threshold that is chosen privately, before measuring.

    ``lost`` are the rows above it at its worst, where that is known: the errors have them in them,
    and are then ``times`` those without a clip. ``told`` are the words for these errors.
    """
    top = number_text(largest)
    among = f"up to {top}" if size is None else f"{size} public levels up to {top}"
    above = f"about {rows:,} rows stay above it"
    if rule.method == "svt-ratio":
        above = f"about {decimal_text((1 - rule.ratio) * 100)} % of the rows stay above it"
    if rule.method == "recursive":
        above = "about as many rows stay above it as levels lie below it"
    if rule.method == "approx-bounds":
        above = "the highest level with rows that stand out from the noise"
    lines: tuple[Row, ...] = (
        ("threshold", f"{rule.method}, {among}; {decimal_text(rule.share * 100)} % of the budget"),
        ("", above),
    )
    if rule.again:
        share = decimal_text(rule.again * 100)
        lines += (("", f"without a hit {share} % more for a second search, else for the answer"),)
    if lost is None:
        lines += (
            ("", f"{told} is at a threshold of {top}; noise shrinks with it"),
            ("", "what rows above it have above it comes to that"),
        )
    else:
        of = f"{told} is at most that of noise at {top} and rows above it of {top} each"
        tenth = f"a tenth of it where that is {number_text(largest / 10)}"
        lines += (("", of), ("", f"in proportion to the largest value that there is: {tenth}"))
        if times > 1:
            least = rounded_text(float(largest) / times)
            lines += (("", f"less than {UNCLIPPED} where that is below {least}"),)
    lines += (BIAS,)
    counts = rule.method in ("svt", "quantile")
    return (*lines, *(_usefulness(rows, hint) if counts else ()))


def _usefulness(rows: int, hint: int | None) -> tuple[Row, ...]:
    """Return the facts that follow from the number of rows above a threshold alone."""
    needed = MARGIN * rows
    row = ("needs", f"a table of many more than {needed:,} rows")
    if (rows >= MANY_ROWS) if hint is None else (hint < needed):
        known = "" if hint is None else f"; it has about {hint:,}"
        fewer = f"fewer than {needed:,} rows{known}"
        row = ("warning", f"budget too small to be useful for a table of {fewer}")
    return (row,)


def given_levels(statements: Sequence[Compiled]) -> tuple[Row, ...]:
    """Return the lines of a forecast on thresholds that statements give as numbers."""
    clips = [item.truncation for item in statements if item.truncation is not None]
    found = dict.fromkeys(clip.level for clip in clips if clip.level is not None)
    lines = tuple(("threshold", f"{number_text(level)}, as given, free") for level in found)
    return (*lines, BIAS) if lines else ()


def find_clipped(workload: Sequence[Compiled]) -> Compiled | None:
    """The statement with a clip that one run of its own answers; None where there is none.

    That is one sum of a column, or sums over groups of the column itself, and nothing beside.
    Raises: NotSupportedError, ProgrammingError for one that nothing could answer.
    """
    if len(workload) != 1 or workload[0].truncation is None or workload[0].is_static:
        return None
    item, clip = workload[0], workload[0].truncation
    needs_batch = clip.mechanism is not None or clip.rule in FREE - {"none"}
    try:
        read_summed(item, clip)
    except NotSupportedError as error:
        if error.code != "E_AGGREGATE" or needs_batch:
            raise
        return None
    return item


def plan_clipping(item: Compiled, terms: Terms) -> ClippingJob:
    """Read a statement with a clip and choose noise, rule and shares of the budget.

    Raises: NotSupportedError, ProgrammingError; DataError (E_EPSILON, E_DELTA).
    """
    assert item.truncation is not None
    refuse_conflicts(item, terms.mechanism)
    if item.reconstruct is not None:
        _refuse_beside(item, "reconstruct")
    table, summed = read_summed(item, item.truncation)
    epsilon = require_epsilon(terms)
    if needs_delta(terms.noise) and terms.delta == 0:
        raise DataError("E_DELTA", "Gaussian noise needs a delta above 0", hint="SET delta = 1e-9")
    algorithm = cast("Algorithm", item.truncation.mechanism or "tamm")
    if not summed.is_batch:
        algorithm = "workload"
    noise = _noise(summed, algorithm, terms, epsilon)
    amount = budget_for(noise, epsilon, terms.delta)
    method = "none" if summed.given else item.truncation.rule
    rule = _rule(cast("Method", method), summed, table, noise)
    facts = (noise, amount, epsilon, terms.delta, terms.fresh)
    return ClippingJob(item, table, summed, algorithm, rule, *facts)


def refuse_conflicts(item: Compiled, mechanism: str = "auto") -> None:
    """Refuse what a threshold that is chosen privately leaves no meaning for.

    Raises: ProgrammingError (E_SETTING).
    """
    for name in DEMANDS:
        if getattr(item, name) is not None:
            _refuse_beside(item, name)
    if mechanism in LEARNED:
        _refuse_beside(item, f"mechanism = '{mechanism}'")


def _refuse_beside(item: Compiled, name: str) -> NoReturn:
    assert item.truncation is not None
    raise ProgrammingError(
        "E_SETTING",
        f"{name} contradicts a clip, which has a mechanism of its own",
        hint=f"leave {name} out, or bound values in the statement",
        span=item.truncation.span,
    )


def _choosing(rule: Threshold) -> Fraction:
    """The part of the budget that may go to the choice of a threshold."""
    return NOTHING if rule.free else rule.share + rule.again


def make_rule(method: Method, top: int, cells: int, unit: int, noise: Noise) -> Threshold:
    """A rule for a number of released sums of values up to ``top``, and so many rows of a unit."""
    start = max(1, math.ceil(top / REACH))
    rows = Fraction(max(cells, SINGLE_ROWS.get(method, 1)) * unit)
    if cells == 1:
        share, again = SINGLE_SHARE, AGAIN
    else:
        share = BATCH_SHARE if law(noise).is_pure else GAUSSIAN_SHARE
        again = SEVERAL_AGAIN * share
    found = Threshold(method, share, rows, start=start)
    if method == "recursive":
        return replace(found, pace=1 / (STEADY * unit))
    return replace(found, again=again) if method == "svt" else found


def rules_before(rule: Threshold, table: Table) -> Iterator[Threshold]:
    """The rules of earlier versions for the same sum, or the same few."""
    if rule.method == "recursive":
        yield replace(rule, pace=PACE)
        return
    unit = table.unit.max_rows
    rows, now = rule.rows / unit, SINGLE_ROWS.get(rule.method)
    share = SINGLE_SHARE if rule.share == SEARCH else rule.share
    if now is None or rows < now:
        before: Iterable[Fraction | int] = (rows,)
    elif rule.method == "quantile":
        before = dict.fromkeys(max(rows, Fraction(least)) for least in QUANTILE_BEFORE)
    else:
        before = range(1, int(now) + 1) if rows == now else ()
    for each in before:
        earlier = replace(rule, rows=Fraction(each * unit), share=share, again=NOTHING)
        if earlier != rule:
            yield earlier


def rule_of_one(method: Method, top: int, unit: int, noise: Noise) -> Threshold:
    """A rule for a sum that is measured through the handle which chose its threshold."""
    found = make_rule(method, top, 1, unit, noise)
    return replace(found, share=SEARCH) if method == "svt" else found


def rule_of_batch(method: Method, top: int, unit: int, noise: Noise) -> Threshold:
    """A rule for nested sums, of which few have the largest values."""
    return replace(make_rule(method, top, 2, unit, noise), rows=BATCH_ROWS * unit)


def _rule(method: Method, summed: SummedMeasure, table: Table, noise: Noise) -> Threshold:
    rule_of = rule_of_batch if summed.is_batch else rule_of_one
    return rule_of(method, summed.top, table.unit.max_rows, noise)


def _noise(summed: SummedMeasure, algorithm: Algorithm, terms: Terms, epsilon: Fraction) -> Noise:
    """The noise law that is asked for, or the one of the smaller expected error."""
    noises = admitted(terms.noise, terms.delta)
    if len(noises) == 1:
        return noises[0]
    errors = {
        noise: _unit_error(summed, algorithm, noise)
        * _variance(noise, budget_for(noise, epsilon, terms.delta), 1)
        for noise in noises
    }
    return min(noises, key=lambda noise: errors[noise])


def _batch(summed: SummedMeasure, noise: Noise) -> SumBatch:
    """The batch of queries, with the strategies that were found for it before."""
    shape = str((noise, summed.queries.shape)).encode()
    arrays = (np.ascontiguousarray(summed.values), np.ascontiguousarray(summed.queries))
    key = hashlib.sha256(b"".join([shape, *(each.tobytes() for each in arrays)])).digest()
    batch = _batches.get(key)
    if batch is None:
        if len(_batches) >= REMEMBERED:
            _batches.clear()
        batch = _batches[key] = SumBatch(summed.values, summed.queries, noise)
    return batch


def _variance(noise: Noise, amount: Fraction, rows_per_unit: int) -> float:
    """The variance of noise for a sensitivity of one per row."""
    return rows_per_unit**2 * law(noise).unit_variance(float(amount))


def _unit_error(summed: SummedMeasure, algorithm: Algorithm, noise: Noise) -> float:
    """The total squared error at a noise of variance one, nothing clipped."""
    unit = float(summed.unit) ** 2
    if summed.measure is not None:
        reach = max(abs(summed.measure.low), abs(summed.measure.high))
        return float(reach) ** 2
    batch = _batch(summed, noise)
    if algorithm != "sqm":
        return unit * batch.design(algorithm, int(summed.values[-1])).error
    count = len(summed.queries)
    each = (summed.queries * summed.values).max(axis=1).astype(float) ** 2
    return unit * float(each.sum()) * (law(noise).squared(count))
