"""The forecast a user sees: expected errors, comparisons and cost, from public facts only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.answer.assemble import fractions_of, whole_places
from dpsql.answer.sql_types import ROUNDING
from dpsql.engine.explanation import (
    ALL,
    BOUND,
    CATALOG,
    MODEL,
    SHOWN,
    ColumnForecast,
    Explanation,
    Row,
    StatementForecast,
)
from dpsql.plan.baselines import plain_variance
from dpsql.plan.limits import plain_cost
from dpsql.plan.plan import Plan
from dpsql.plan.request import PlannedRequest, Request
from dpsql.plan.shown_columns import shown_columns
from dpsql.plan.target import Readings, reading_variances, view_rows
from dpsql.records import replace
from dpsql.search.work_limit import ROOM
from dpsql.settings.machine import show_bytes
from dpsql.sql.compiled import Compiled
from dpsql.strategy.noise_law import LAPLACE, law
from dpsql.workload.layout import Place
from dpsql.workload.workload import Workload

MORE = 4
"""Times as much effort that a search which was cut short is said to go further with."""

SAME = 1e-6
"""Relative difference below which two total errors are the same."""


def explain(
    request: Request,
    planned: PlannedRequest | None,
    assumed: bool,
    remaining: Fraction,
    published: tuple[int, Plan, Readings] | None = None,
) -> Explanation:
    """Forecast a request; without a plan the catalog alone determines every answer.

    ``published`` says that a plan was carried out already that answers the request: by which
    entry of the ledger, and how every answer is read off it.
    """
    entry: int | None = None
    if published is not None:
        entry, plan, readings = published
    elif planned is not None:
        plan, readings = planned.plan, planned.readings
    else:
        statements = tuple(_forecast(request, i, {}) for i in range(len(request.statements)))
        nothing = Fraction(0)
        method = MODEL if any(item.is_modelled for item in request.statements) else CATALOG
        details = view_rows(request.statements)
        facts = (method, "none", nothing, nothing, 0.0, (), True, assumed, remaining)
        return Explanation(statements, *facts, details=details)
    variances: dict[Place, NDArray[np.float64]] = {}
    for index, forecast in enumerate(plan.forecasts):
        here = {place: reading for place, (at, reading, _) in readings.items() if at == index}
        found = reading_variances(forecast, list(here.values()))
        variances.update(zip(here, found, strict=True))
    whole = whole_places(readings, dict(enumerate(plan.forecasts)))
    alone = {} if planned is None else planned.alone
    plain = {} if planned is None or alone else _plain_errors(request, planned)
    lower = {} if planned is None else _lower_errors(request, planned)
    ratios = _ratios(request, variances, alone) if alone else {}
    rows = sum(len(v) for v in variances.values())
    total = sum(float(v.sum()) for v in variances.values())
    return Explanation(
        tuple(
            replace(
                _forecast(request, i, variances, plain, lower, alone, whole),
                ratios=tuple(ratios.get(i, {}).items()),
            )
            for i in range(len(request.statements))
        ),
        " + ".join(dict.fromkeys(part.strategy.method for part in plan.parts)),
        plan.noise,
        plan.epsilon,
        plan.delta,
        math.sqrt(total / rows),
        _comparisons(request, planned, total, rows, lower) if planned is not None else (),
        entry is not None,
        assumed and not any(_is_demanded(item) for item in request.statements),
        remaining,
        entry,
        request.is_mixed,
        (
            *_cut_short(request, planned),
            *_reconstruction(request),
            *_unagreed(plan, readings),
            *view_rows(request.statements, plan.views),
        ),
        bounded=request.adds_measures,
    )


def explain_learned(
    request: Request,
    mechanism: str,
    noise: str,
    details: tuple[Row, ...],
    assumed: bool,
    remaining: Fraction,
    entry: int | None,
) -> Explanation:
    """Forecast a request that a model answers, by what is known about the run: not its errors."""
    return Explanation(
        tuple(_forecast(request, i, None) for i in range(len(request.statements))),
        mechanism,
        noise,
        request.epsilon,
        request.delta,
        math.nan,
        (),
        entry is not None,
        assumed,
        remaining,
        entry,
        details=(*details, *view_rows(request.statements)),
    )


def _is_demanded(item: Compiled) -> bool:
    """Say whether a statement has the epsilon that its error takes, whatever is set."""
    return item.demands and not (item.is_static or item.is_modelled)


def _cut_short(request: Request, planned: PlannedRequest | None) -> tuple[Row, ...]:
    """One line where more strategies would have been tried."""
    if planned is None:
        return ()
    found: list[Row] = []
    if planned.is_cut:
        more = math.ceil(MORE * request.effort)
        found.append(("search", f"was cut short; SET effort = {more} searches further"))
    if planned.is_tight:
        limit = show_bytes(min(request.memory_limit, ROOM))
        more_memory = "a larger memory_limit" if request.memory_limit < ROOM else "fewer cells"
        said = f"went without what needs over {limit} of memory; {more_memory} allows for more"
        found.append(("search", said))
    return tuple(found)


def _reconstruction(request: Request) -> tuple[Row, ...]:
    """One line where answers are not the least-squares estimates."""
    methods = dict.fromkeys(map(request.method_of, request.statements))
    others = [method for method in methods if method != "gls"]
    if not others:
        return ()
    said = "biased; errors are those of the unprocessed estimate"
    return (("answers", f"reconstruct = '{', '.join(others)}': {said}"),)


def _unagreed(plan: Plan, readings: Readings) -> tuple[Row, ...]:
    """One line where answers of some statements may disagree with those of others."""
    if not plan.unagreed:
        return ()
    from dpsql.plan.shared_rows import DISAGREE  # most plans measure a table once

    found = sorted({place[0] + 1 for place, (at, _, _) in readings.items() if at in plan.unagreed})
    which = ", ".join(map(str, found[:SHOWN])) + (", ..." if len(found) > SHOWN else "")
    return (("agreement", f"statements {which}: {DISAGREE}"),)


def _forecast(
    request: Request,
    index: int,
    variances: Mapping[Place, NDArray[np.float64]] | None,
    plain: Mapping[Place, float] | None = None,
    lower: Mapping[Place, float] | None = None,
    alone: Mapping[Place, float] | None = None,
    whole: frozenset[Place] = frozenset(),
) -> StatementForecast:
    """The errors of columns as they will be told, with what rounding integers adds.

    Those of plain noise and alone are rounded alike; a lower bound is of estimates.
    """
    item = request.statements[index]
    if item.outer is not None or variances is None:
        return StatementForecast(item.text, item.rows, item.columns, ())
    outputs = item.selects[0].query.shell.outputs
    errors = []
    (broken, *_) = fractions_of(index, item, variances, whole)
    for output in outputs:
        places = [
            (index, j)
            for j, (_, answer) in enumerate(item.answers())
            if answer.aggregate == output.aggregate and answer.rank is None
        ]
        if places:
            found = np.concatenate([variances.get(place, np.zeros(1)) for place in places])
            added = ROUNDING if output.whole and output.aggregate in broken else 0.0
            found = found + added * (found > 0)
            noise = (plain or {}).get(places[0])
            least = [(lower or {}).get(place) for place in places]
            known = [each for each in least if each is not None]
            sizes = {place: len(variances[place]) for place in places if place in variances}
            apart = [(alone or {}).get(place, 0.0) * size for place, size in sizes.items()]
            errors.append(
                ColumnForecast(
                    output.name,
                    math.sqrt(float(found.mean())) if found.size else 0.0,
                    math.sqrt(float(found.max(initial=0))),
                    None if noise is None else math.hypot(noise, math.sqrt(added)),
                    math.sqrt(sum(known) / found.size) if len(known) == len(places) else None,
                    math.sqrt(sum(apart) / found.size + added) if alone and found.size else None,
                )
            )
    derived = tuple(o.name for o in outputs if o.stddev is not None and o.aggregate is None)
    return StatementForecast(item.text, item.rows, item.columns, tuple(errors), derived)


def _ratios(
    request: Request,
    variances: Mapping[Place, NDArray[np.float64]],
    alone: Mapping[Place, float],
) -> dict[int, dict[str, float]]:
    """By statement and column, errors that have no unit before the answer beside those alone.

    Of a statement that is computed from others it is the largest of these, for all columns.
    """
    means = {place: float(each.mean()) for place, each in variances.items()}
    rows = {place: len(each) for place, each in variances.items()}
    found: dict[int, dict[str, float]] = {}
    for column in shown_columns(dict(enumerate(request.statements)), request.targets):
        item, places = request.statements[column.statement], column.parts
        if not places.keys() <= means.keys() & alone.keys():
            continue
        has_unit = column.is_own and all(request.answers[place].rank is None for place in places)
        if item.outer is None and has_unit:
            continue
        before = column.variance(alone, rows)
        if before > 0:
            name = ALL if item.outer is not None else column.name
            known = found.setdefault(column.statement, {})
            ratio = math.sqrt(column.variance(means, rows) / before)
            known[name] = max(ratio, known.get(name, 0.0))
    return found


def _plain_errors(request: Request, planned: PlannedRequest) -> dict[Place, float]:
    """The standard errors of plain noise on each number, of all together."""
    noise = planned.plan.noise
    asked = [(place, t) for t in request.targets for place in t.asked]
    if len(asked) < 2:
        return {}
    whole = sum(plain_cost(target, noise) for target in request.targets)
    unit = law(noise).unit_variance(float(request.budget(noise)))
    return {
        place: math.sqrt(unit * plain_variance(whole, target.asked[place].weight, noise))
        for place, target in asked
    }


def _lower_errors(request: Request, planned: PlannedRequest) -> dict[Place, float]:
    """The least total squared error of every answer asked alone with all of the budget, if known.

    Noise is integer, and at a given cost smallest beside the integers that it is added to where
    their sensitivity is one. Numbers of privacy units are not linear in the cells.
    """
    from dpsql.search.bounds.single_answers import bound_alone  # a forecast alone

    used = law(planned.plan.noise)
    found: dict[Place, float] = {}
    for target, layout in zip(planned.targets, planned.layouts, strict=True):
        if target.units:
            continue
        scale = used.scale(target.rows_per_unit**used.norm, request.budget(used.name))
        unit = used.variance(float(scale))
        bounds = {place: bound_alone(layout, place) for place in target.asked}
        found.update({place: unit * each for place, each in bounds.items() if each is not None})
    return found


def cheap_bound(workload: Workload) -> float:
    """The best lower bound on the unit error of any strategy that takes little time, else 0."""
    from dpsql.search.bounds.isometries import is_quick, paired_bound
    from dpsql.search.bounds.singular_values import is_cheap, svd_bound  # a forecast alone
    from dpsql.search.problem import Problem

    by_values = svd_bound(workload) if is_cheap(workload) else 0.0
    paired = is_quick(workload) and len(workload.index) > 1
    return max(by_values, paired_bound(Problem(workload, LAPLACE.name)) if paired else 0.0)


def _comparisons(
    request: Request, planned: PlannedRequest, total: float, rows: int, alone: Mapping[Place, float]
) -> tuple[tuple[str, float], ...]:
    """The same error for simpler mechanisms, when all of the workload is about rows of one table.

    One with less in all is no alternative: some statement would be worse than it may be.
    Nothing is known of others that count privacy units: their numbers are not linear in the cells.
    Answers cannot have less error together than each by itself: those bounds add up to another.
    """
    (part, *others), (layout, *_) = planned.plan.parts, planned.layouts
    single = all(reading[0][0] == 1 and len(reading) == 1 for reading in layout.products.values())
    weights = {product.weight for product in layout.workload.products}
    asked = sum(len(target.asked) for target in request.targets)
    known = len(alone) == asked and not request.is_mixed
    summed = sum(alone.values()) if known else 0.0
    if others or part.units or not single or len(weights) > 1:
        return ((BOUND, math.sqrt(summed / rows)),) if summed else ()
    from dpsql.plan.baselines import identity_error, workload_error  # a forecast alone

    workload = layout.workload
    unit = total / part.strategy.unit_error(workload)
    noise = planned.plan.noise.capitalize()
    found = [
        (name, math.sqrt(unit * error / rows))
        for name, error in (
            (f"with {noise} noise on each query", workload_error(workload, part.strategy.noise)),
            ("with noise on each cell (Identity)", identity_error(workload, part.strategy.noise)),
        )
        if total <= unit * error * (1 + SAME)
    ]
    lower = 0.0 if layout.padded else part.lower or cheap_bound(workload)
    lower = max(unit * lower, summed)
    return (*found, (BOUND, math.sqrt(lower / rows))) if lower else tuple(found)
