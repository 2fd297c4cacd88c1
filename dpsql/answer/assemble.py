"""Estimates of all parts -> one result per statement, each number with its standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpsql.answer.estimate import AnyEstimate
from dpsql.answer.modelled import answer_terms
from dpsql.answer.ranks import read_rank
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.answer.shell import Filled, build_result
from dpsql.answer.synthetics import Synthetic
from dpsql.plan.layout import Place
from dpsql.plan.request import Request
from dpsql.plan.target import Reading, Readings, reading_covariance, reading_variances
from dpsql.sealed import Sealed
from dpsql.sql.compiled import Answer, Compiled, Select

Column = NDArray[np.float64]


def assemble_results(
    request: Request,
    readings: Readings,
    estimates: Mapping[int, AnyEstimate],
    cost: CostInfo | None,
    receipt: ReceiptInfo | None,
    sealed: Sealed,
    synthetics: Mapping[str, Synthetic] | None = None,
) -> tuple[Result, ...]:
    """Answer every aggregate from the estimate of its part, then run the outer shells.

    ``estimates`` are by the number of the part. Statements that the catalog alone determines need
    no estimate, cost nothing and carry no noise. Those about ``synthetics`` are answered from
    their models and carry no standard errors.
    """
    answers, variances = _read(readings, estimates)
    known = synthetics or {}
    results = []
    for index, item in enumerate(request.statements):
        models = list(dict.fromkeys(s.query.table for s in item.selects if s.table.synthetic))
        _ask_models(index, item, known, answers, variances)
        filled = _fill(index, item, answers, variances, readings, estimates)
        paid, proof = (None, None) if item.is_static else (cost, receipt)
        if models and item.is_modelled:
            paid, proof = released(known[models[0]])
        result = build_result(item, filled, paid, proof, sealed)
        notes = tuple(known[name].note for name in models)
        results.append(replace(result, notes=(*result.notes, *notes)) if notes else result)
    return tuple(results)


def released(synthetic: Synthetic) -> tuple[CostInfo, ReceiptInfo]:
    """What was paid for a synthetic table, and the entry in the ledger."""
    cost = CostInfo(synthetic.epsilon, synthetic.delta, synthetic.noise, True)
    return cost, ReceiptInfo(*synthetic.receipt)


def _ask_models(
    index: int,
    item: Compiled,
    synthetics: Mapping[str, Synthetic],
    answers: dict[Place, Column],
    variances: dict[Place, Column],
) -> None:
    """Answer what is about synthetic tables; nothing is known about the errors."""
    for j, (select, answer) in enumerate(item.answers()):
        if select.table.synthetic and answer.terms:
            model = synthetics[select.query.table].model
            flat = answer_terms(model, select.table, answer.terms)
            columns = [name for name in select.table.columns if select.table.columns[name].size]
            answers[index, j] = answer.arrange(flat, columns)
            variances[index, j] = np.full(flat.shape, np.nan)


def _read(
    readings: Readings, estimates: Mapping[int, AnyEstimate]
) -> tuple[dict[Place, Column], dict[Place, Column]]:
    """The answers and their variances, in the order of the products' rows."""
    answers: dict[Place, Column] = {}
    variances: dict[Place, Column] = {}
    for index, estimate in estimates.items():
        here = {place: r for place, (at, r, _) in readings.items() if at == index}
        found = reading_variances(estimate.forecast, list(here.values()))
        variances.update(zip(here, found, strict=True))
        values = iter(estimate.answers([p for reading in here.values() for _, p in reading]))
        for place, reading in here.items():
            answers[place] = _sum(reading, [next(values) for _ in reading])
    return answers, variances


def _sum(reading: Reading, values: Sequence[Column]) -> Column:
    if len(reading) == 1 and reading[0][0] == 1:
        return values[0]
    return np.asarray(sum(s * v for (s, _), v in zip(reading, values, strict=True)))


def _fill(
    index: int,
    item: Compiled,
    answers: Mapping[Place, Column],
    variances: Mapping[Place, Column],
    readings: Readings,
    estimates: Mapping[int, AnyEstimate],
) -> tuple[Filled, ...]:
    """The noisy numbers of every select of a statement, in result order."""
    filled = []
    start = 0
    for select in item.selects:
        places = [(index, start + k) for k in range(len(select.answers))]
        start += len(places)
        found = [
            _arranged(select, answer, answers.get(place), readings.get(place))
            for place, answer in zip(places, select.answers, strict=True)
        ]
        columns = tuple(_stacked(select, found, j) for j in range(len(select.query.aggregates)))
        spreads: dict[tuple[int, int], Column] = {}
        for i, j in _pairs(select):
            pairs = [
                _arranged(
                    select,
                    select.answers[k],
                    _covariance(places, k, other, variances, readings, estimates),
                    readings.get(places[k]),
                )
                for k, other in _matching(select, i, j)
            ]
            spreads[i, j] = np.concatenate(pairs) if pairs else np.zeros(0)
        filled.append(Filled(columns, spreads))
    return tuple(filled)


def _stacked(select: Select, found: Sequence[Column], aggregate: int) -> list[object]:
    """One aggregate over all grouping sets."""
    out: list[object] = []
    for answer, values in zip(select.answers, found, strict=True):
        if answer.aggregate == aggregate:
            out += values.tolist() if answer.rank is None else read_rank(answer, values)
    return out


def _arranged(
    select: Select,
    answer: Answer,
    flat: Column | None,
    reading: tuple[int, Reading, tuple[str, ...]] | None,
) -> Column:
    if flat is not None and select.table.synthetic:
        return flat
    if flat is None or reading is None:
        cells = select.branches[answer.branch].rows * (len(answer.values) if answer.rank else 1)
        return np.zeros(cells)
    return answer.arrange(flat, reading[2])


def _pairs(select: Select) -> list[tuple[int, int]]:
    """The pairs of aggregates whose covariance the shell needs."""
    if select.query.shell.plain:
        ranked = {a.aggregate for a in select.answers if a.rank is not None}
        return [(j, j) for j in range(len(select.query.aggregates)) if j not in ranked]
    return sorted(select.query.shell.covariances)


def _matching(select: Select, i: int, j: int) -> list[tuple[int, int]]:
    """The positions of two aggregates over every grouping set."""
    count = len(select.query.aggregates)
    return [(b * count + i, b * count + j) for b in range(len(select.branches))]


def _covariance(
    places: Sequence[Place],
    left: int,
    right: int,
    variances: Mapping[Place, Column],
    readings: Readings,
    estimates: Mapping[int, AnyEstimate],
) -> Column | None:
    one, two = places[left], places[right]
    if one == two or one not in readings:
        return variances.get(one)
    if one not in readings or two not in readings or readings[one][0] != readings[two][0]:
        return None
    part, reading, _ = readings[one]
    return reading_covariance(estimates[part].forecast, reading, readings[two][1])
