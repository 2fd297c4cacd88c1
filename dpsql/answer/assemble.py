"""Estimates of all parts -> one result per statement, each number with its standard error."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.answer.codec import Release
from dpsql.answer.postprocess import reprocess
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.answer.shell import NoisySelect, build_result, integer_columns
from dpsql.answer.sql_types import told
from dpsql.plan.request import Request
from dpsql.plan.target import (
    Reading,
    Readings,
    notes_of,
    reading_beside,
    reading_covariance,
    reading_variances,
)
from dpsql.records import replace
from dpsql.sealed import SealedConnection
from dpsql.sql.compiled import Answer, Compiled, Select
from dpsql.strategy.base import Estimate, Forecast
from dpsql.strategy.noise_law import law
from dpsql.vectors import Vector
from dpsql.workload.layout import Place

if TYPE_CHECKING:
    from dpsql.answer.covariance import StatementNumbers
    from dpsql.answer.graphical import Models
    from dpsql.answer.synthetic_tables import Synthetic

ROUNDED = 1e-9
"""Part of a standard error that is no longer told of an answer."""

MOST_DIGITS = 22
"""Decimals up to which powers of ten are exact as doubles."""

WHOLE = 2.0**53
"""Size from which doubles are whole numbers."""


def assemble_results(
    request: Request,
    readings: Readings,
    estimates: Mapping[int, Estimate],
    cost: CostInfo | None,
    receipt: ReceiptInfo | None,
    sealed: SealedConnection,
    synthetics: Mapping[str, Synthetic] | None = None,
    release: Release | None = None,
    learned: Synthetic | None = None,
) -> tuple[Result, ...]:
    """Answer every aggregate from the estimate of its part, then run the outer shells.

    Statements that the catalog alone determines need no estimate, cost nothing and carry no noise.

    Args:
        readings: of every answer off the parts.
        estimates: by the number of the part.
        cost, receipt: of the release; None where nothing was measured.
        synthetics: the models that statements are about, by table: they carry no standard errors.
        release: the one that the estimates are of.
        learned: the model from which private tables are answered, likewise without errors.
    """
    forecasts = {at: each.forecast for at, each in estimates.items()}
    whole = whole_places(readings, forecasts)
    answers = read_answers(request, readings, estimates, whole)
    variances = read_variances(request, readings, forecasts)
    round_residue(answers, variances, whole)
    known = synthetics or {}
    models = _models_of(request, release, estimates)
    own = by_statement(readings)
    results = []
    for index, item in enumerate(request.statements):
        asked = _ask_models(index, item, known, learned, answers, variances)
        read = own.get(index, {})
        changed, notes = reprocess(request, index, read, answers, variances, models)
        apart = {place: r for place, r in read.items() if place not in changed}
        filled = _fill(index, item, answers, variances, apart, forecasts, cost)
        known_whole = frozenset() if asked else whole.intersection(apart)
        exact = integer_columns(item, fractions_of(index, item, answers, known_whole))
        paid, proof = (None, None) if item.is_static else (cost, receipt)
        if asked and item.is_modelled:
            paid, proof = released(asked[0])
        joint = _joint_of(index, item, variances, apart, forecasts)
        result = build_result(item, filled, paid, proof, sealed, joint)
        result = told(result, item.integers, exact, item.typed)
        standing = notes_of(item, request.views, None if release is None else release.plan.views)
        learned_from = [model.left_out for model in asked if model.name]
        standing = tuple(dict.fromkeys(itertools.chain(standing, *learned_from)))
        notes = (*result.notes, *notes, *(model.note for model in asked), *standing)
        notes += _unagreed(release, read)
        biased = bool(changed or asked)
        results.append(replace(result, notes=notes, biased=biased, standing=standing))
    return tuple(results)


def _joint_of(
    index: int,
    item: Compiled,
    variances: Mapping[Place, Floats],
    readings: Readings,
    forecasts: Mapping[int, Forecast],
) -> StatementNumbers | None:
    """The noisy numbers of a statement that an outer query puts together."""
    if item.outer is None:
        return None
    from dpsql.answer.covariance import StatementNumbers  # most statements have one SELECT

    return StatementNumbers(index, item, variances, readings, forecasts)


def _models_of(
    request: Request, release: Release | None, estimates: Mapping[int, Estimate]
) -> Models | None:
    """The graphical models of a release, where a statement is read off one."""
    if release is None or not any(map(request.reads_model, request.statements)):
        return None
    from dpsql.answer.graphical import Models  # few statements are read so

    return Models(release.plan, release.values, estimates)


def _unagreed(release: Release | None, readings: Readings) -> tuple[str, ...]:
    """A note where these answers may disagree with those of other statements."""
    apart: AbstractSet[int] = frozenset() if release is None else release.plan.unagreed
    if apart.isdisjoint(at for at, _, _ in readings.values()):
        return ()
    from dpsql.plan.shared_rows import DISAGREE  # most plans measure a table once

    return (DISAGREE,)


def by_statement(readings: Readings) -> dict[int, Readings]:
    """Return the readings of the answers off a release, by statement."""
    found: dict[int, dict[Place, tuple[int, Reading, tuple[str, ...]]]] = {}
    for place, reading in readings.items():
        found.setdefault(place[0], {})[place] = reading
    return dict(found)


def released(synthetic: Synthetic) -> tuple[CostInfo, ReceiptInfo]:
    """Return the cost of a model, and its entry in the ledger."""
    cost = CostInfo(synthetic.epsilon, synthetic.delta, synthetic.noise, True)
    return cost, ReceiptInfo(*synthetic.receipt)


def _ask_models(
    index: int,
    item: Compiled,
    synthetics: Mapping[str, Synthetic],
    learned: Synthetic | None,
    answers: dict[Place, Floats],
    variances: dict[Place, Floats],
) -> list[Synthetic]:
    """Answer what models are about and return those; nothing is known about the errors."""
    asked = []
    for j, (select, answer) in enumerate(item.answers()):
        synthetic = synthetics[select.query.table] if select.table.synthetic else learned
        if synthetic is None or not answer.whole:
            continue
        if synthetic not in asked:
            asked.append(synthetic)
        from dpsql.answer.model_answers import answer_from  # few statements ask a model

        flat = answer_from(synthetic.model, select.table, answer)
        columns = [name for name in select.table.columns if select.table.columns[name].size]
        answers[index, j] = answer.arrange(flat, columns)
        variances[index, j] = np.full(flat.shape, np.nan)
    return asked


def find_errors(
    request: Request,
    readings: Readings,
    estimates: Mapping[int, Estimate],
    other: tuple[Readings, Mapping[int, Forecast]],
    noise: str,
    sealed: SealedConnection,
    synthetics: Mapping[str, Synthetic],
) -> tuple[tuple[Vector | None, ...], ...]:
    """Return the standard errors that the same estimates would have off other forecasts.

    One entry per statement, as ``Result.stddev``.

    Args:
        readings: of every answer off the parts.
        estimates: by the number of the part.
        other: the other readings, and forecasts by the number of the part.
        synthetics: the models that statements are about, by table.
    """
    places, forecasts = other
    whole = whole_places(readings, {at: each.forecast for at, each in estimates.items()})
    answers = read_answers(request, readings, estimates, whole)
    variances = read_variances(request, places, forecasts)
    round_residue(answers, variances, whole)
    for index, item in enumerate(request.statements):
        _ask_models(index, item, synthetics, None, answers, variances)
    every = range(len(request.statements))
    found = results_at(request, every, answers, variances, other, noise, sealed)
    return tuple(result.stddev for result in found)


def results_at(
    request: Request,
    statements: Iterable[int],
    answers: Mapping[Place, Floats],
    variances: Mapping[Place, Floats],
    forecast: tuple[Readings, Mapping[int, Forecast]],
    noise: str,
    sealed: SealedConnection,
) -> tuple[Result, ...]:
    """Return estimates of statements for some answers, with the standard errors of a forecast.

    Args:
        statements: the numbers of those that are wanted.
        answers, variances: (rows,) of each place, in result order.
        forecast: how answers are read off the parts, and the forecasts by the number of the part.
    """
    readings, forecasts = forecast
    cost = CostInfo(request.epsilon, request.delta, noise, True)
    found = []
    for index in statements:
        item = request.statements[index]
        filled = _fill(index, item, answers, variances, readings, forecasts, cost)
        joint = _joint_of(index, item, variances, readings, forecasts)
        found.append(build_result(item, filled, cost, None, sealed, joint))
    return tuple(found)


def read_variances(
    request: Request, readings: Readings, forecasts: Mapping[int, Forecast]
) -> dict[Place, Floats]:
    """Return the variance (rows,) of every number read off a release, in result order.

    Args:
        readings: of every answer off the parts.
        forecasts: by the number of the part.
    """
    variances: dict[Place, Floats] = {}
    for index, forecast in forecasts.items():
        here = {place: r for place, (at, r, _) in readings.items() if at == index}
        found = reading_variances(forecast, list(here.values()))
        for place, variance in zip(here, found, strict=True):
            variances[place] = request.answers[place].arrange(variance, readings[place][2])
    return variances


def whole_places(readings: Readings, forecasts: Mapping[int, Forecast]) -> frozenset[Place]:
    """The answers that are whole numbers: whole sums of measured integers, by the plan alone."""
    return frozenset(
        place
        for place, (at, reading, _) in readings.items()
        if at in forecasts
        and all(s.is_integer() and forecasts[at].is_whole(product) for s, product in reading)
    )


def read_answers(
    request: Request,
    readings: Readings,
    estimates: Mapping[int, Estimate],
    whole: frozenset[Place],
) -> dict[Place, Floats]:
    """Return the answers (rows,), in result order.

    Args:
        readings: of every answer off the parts.
        estimates: by the number of the part.
        whole: places whose answers are whole: what rounding left is taken off.
    """
    answers: dict[Place, Floats] = {}
    for index, estimate in estimates.items():
        here = {place: r for place, (at, r, _) in readings.items() if at == index}
        values = iter(estimate.answers([p for reading in here.values() for _, p in reading]))
        for place, reading in here.items():
            total = _sum(reading, [next(values) for _ in reading])
            if place in whole:
                total = np.rint(total) + 0.0
            answers[place] = request.answers[place].arrange(total, readings[place][2])
    return answers


def round_residue(
    answers: dict[Place, Floats],
    variances: Mapping[Place, Floats],
    whole: AbstractSet[Place] = frozenset(),
) -> None:
    """Round answers to a billionth of their standard errors: what is beyond is float residue.

    Least squares gives a count of nothing as 0 or as 1e-16, and 4 as 3.9999999999999996, by the
    order of its sums. A mean of no rows is NULL so, and not noise.

    Args:
        answers, variances: (rows,) of each place; the first are changed.
        whole: places whose answers are whole, which decimals change nothing of.
    """
    for place, values in answers.items():
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            known = variances[place]
            alike = known[:1] if len(known) and (known == known[0]).all() else known
            digits = np.floor(-np.log10(ROUNDED * np.sqrt(alike)))
            if place in whole and (digits >= 0).all():
                continue
            up, down = (10.0 ** np.clip(d, 0, MOST_DIGITS) for d in (digits, -digits))
            scaled = values * up / down
            kept = np.isfinite(digits) & (np.abs(scaled) < WHOLE)
            answers[place] = np.where(kept, np.rint(scaled) * down / up + 0.0, values)


def _sum(reading: Reading, values: Sequence[Floats]) -> Floats:
    if len(reading) == 1 and reading[0][0] == 1:
        return values[0]
    return np.asarray(sum(s * v for (s, _), v in zip(reading, values, strict=True)))


def _fill(
    index: int,
    item: Compiled,
    answers: Mapping[Place, Floats],
    variances: Mapping[Place, Floats],
    readings: Readings,
    forecasts: Mapping[int, Forecast],
    cost: CostInfo | None,
) -> tuple[NoisySelect, ...]:
    """The noisy numbers of every select of a statement, in result order."""
    filled = []
    width = 0.0 if cost is None else law(cost.noise).interval
    start = 0
    for select in item.selects:
        places = [(index, start + k) for k in range(len(select.answers))]
        start += len(places)
        found = [
            _or_zero(select, answer, answers.get(place))
            for place, answer in zip(places, select.answers, strict=True)
        ]
        ends = [
            width * np.sqrt(_or_zero(select, answer, variances.get(place)))
            for place, answer in zip(places, select.answers, strict=True)
        ]
        numbers = range(len(select.query.aggregates))
        columns = tuple(_stacked(select, found, ends, j) for j in numbers)
        spreads: dict[tuple[int, int], Floats] = {}
        for i, j in _pairs(select):
            pairs = []
            for k, other in _matching(select, i, j):
                known = _covariance(
                    select.answers[k], places[k], places[other], variances, readings, forecasts
                )
                pairs.append(_or_zero(select, select.answers[k], known))
            spreads[i, j] = np.concatenate(pairs) if pairs else np.zeros(0)
        filled.append(NoisySelect(columns, spreads))
    return tuple(filled)


def fractions_of(
    index: int, item: Compiled, measured: Container[Place], whole: Container[Place]
) -> list[set[int]]:
    """By select, the aggregates whose numbers may have fractions.

    Ranks are declared values, and what is not measured is zero.
    """
    found, start = [], 0
    for select in item.selects:
        found.append(
            {
                answer.aggregate
                for k, answer in enumerate(select.answers, start)
                if (index, k) in measured and (index, k) not in whole and answer.rank is None
            }
        )
        start += len(select.answers)
    return found


def _stacked(
    select: Select, found: Sequence[Floats], ends: Sequence[Floats], aggregate: int
) -> Vector:
    """One aggregate over all grouping sets; ``ends`` are halves of the widths of intervals."""
    out: list[Vector] = []
    for answer, values, spreads in zip(select.answers, found, ends, strict=True):
        if answer.aggregate == aggregate:
            groups = select.branches[answer.branch].rows
            if answer.rank is None:
                out.append(Vector(values))
                continue
            from dpsql.answer.rank_values import read_rank  # few answers are quantiles

            out.append(Vector.of(read_rank(answer, values, spreads, groups)))
    return out[0] if len(out) == 1 else Vector.joined(out)


def _or_zero(select: Select, answer: Answer, known: Floats | None) -> Floats:
    """Return the values known of an answer, or zeros: nothing was measured where no row can be."""
    if known is not None:
        return known
    return np.zeros(
        select.branches[answer.branch].rows * (len(answer.values) if answer.rank else 1)
    )


def _pairs(select: Select) -> list[tuple[int, int]]:
    """The pairs of aggregates whose covariance the shell needs."""
    if select.query.shell.plain:
        ranked = {a.aggregate for a in select.answers if a.rank is not None}
        return [(j, j) for j in range(len(select.query.aggregates)) if j not in ranked]
    return sorted(select.query.shell.pairs)


def _matching(select: Select, i: int, j: int) -> list[tuple[int, int]]:
    """The positions of two aggregates over every grouping set."""
    count = len(select.query.aggregates)
    return [(b * count + i, b * count + j) for b in range(len(select.branches))]


def _across(
    answer: Answer,
    one: Place,
    two: Place,
    readings: Readings,
    forecasts: Mapping[int, Forecast],
) -> Floats | None:
    """The covariance of answers that two parts give, in result order; None where there is none."""
    sides = []
    for part, reading, order in (readings[one], readings[two]):
        found = reading_beside(forecasts[part], reading)
        rows = answer.arrange(np.arange(len(found), dtype=np.float64), order).astype(np.int64)
        sides.append(found[rows])
    if not all(side.shape[1] for side in sides):
        return None
    return -np.asarray((sides[0] * sides[1]).sum(axis=1))


def _covariance(
    answer: Answer,
    one: Place,
    two: Place,
    variances: Mapping[Place, Floats],
    readings: Readings,
    forecasts: Mapping[int, Forecast],
) -> Floats | None:
    """The covariance of two answers in result order; NaN where a model or projection answered."""
    if one == two:
        return variances.get(one)
    if one not in variances or two not in variances:
        return None
    for place in (one, two):
        if place not in readings:
            return variances[place]
    if readings[one][0] != readings[two][0]:
        return _across(answer, one, two, readings, forecasts)
    part, reading, order = readings[one]
    return answer.arrange(reading_covariance(forecasts[part], reading, readings[two][1]), order)
