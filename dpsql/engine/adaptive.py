"""From a workload and a budget to the task of one adaptive run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from dpsql.answer.model_answers import read_candidates
from dpsql.catalog import Table
from dpsql.engine.explanation import Explanation
from dpsql.errors import DataError, Error, NotSupportedError, ProgrammingError
from dpsql.learn.candidates import attributes_of
from dpsql.learn.mechanism_choice import Metric
from dpsql.learn.task import Task, make_task
from dpsql.pgm.measurements import Query
from dpsql.plan.request import PlannedRequest, Request, expected_error, make_plan
from dpsql.privacy.budget.accounting import budget_for
from dpsql.settings.rounds import AUTO, Rounds
from dpsql.strategy.noise_law import Noise, admitted, law

RUNS = ("mwem", "marginals", "rap")
"""Mechanisms that look several times."""

MOST_ADVISED = 2_000
"""Most queries for which a forecast looks at the alternatives."""


def advise(request: Request, planned: PlannedRequest, forecast: Explanation) -> Explanation:
    """Add one line when public facts favour an adaptive mechanism over the plan that was made."""
    plan = planned.plan
    if request.mechanism != "auto":
        return forecast
    try:
        table, candidates = read_workload(request)
        if table.row_count_hint is None or len(candidates) > MOST_ADVISED:
            return forecast
        rmse = None if forecast.mixed else forecast.rmse
        amount = plan.epsilon if plan.rho is None else plan.rho
        choice = form_task(table, candidates, plan.noise, amount, "auto", "mean", AUTO, rmse).choice
    except Error:
        return forecast
    said = [f"mechanism = 'adaptive': {choice.rule}"] if choice.mechanism in RUNS else []
    said += ["budget too small to be useful"] if choice.useless else []
    line = (("advice", f"{'; '.join(said)}"),) if said else ()
    return forecast.adding(line)


def read_workload(request: Request) -> tuple[Table, list[Query]]:
    """The one private table of a request, and its queries as candidates."""
    asked = [
        (select, answer)
        for item in request.statements
        for select, answer in item.answers()
        if not select.table.synthetic and answer.whole
    ]
    tables = {select.query.table: select.table for select, _ in asked}
    if len(tables) > 1:
        raise NotSupportedError(
            "E_WORKLOAD",
            f"a model is of one table, the workload is about {', '.join(sorted(tables))}",
            hint="one workload for each table, or mechanism = 'auto'",
        )
    (table,) = tables.values()
    return table, read_candidates(table, asked)


def matrix_rmse(request: Request) -> float | None:
    """The error that the matrix mechanism expects, in counts; None where it cannot be told."""
    answers = (answer for item in request.statements for _, answer in item.answers())
    if any(answer.apart is None for answer in answers):
        return None
    if any(a.weight != 1 for target in request.targets for a in target.asked.values()):
        return None
    planned = make_plan(request)
    sizes = [p.rows for layout in planned.layouts for (_, p), *_ in layout.products.values()]
    return math.sqrt(expected_error(request, planned) / sum(sizes))


def quietest(
    under: Callable[[Noise, Fraction], Task],
    noise: str,
    epsilon: Fraction,
    delta: Fraction,
    rounds: Rounds,
) -> Task:
    """The task under the noise of a request.

    Left to us, that is Gaussian for looks in many rounds, whose costs add up slower then; where
    all may be measured together it is that of the least expected error when it is.
    """
    *others, last = admitted(noise, delta)
    if not law(last).is_pure and delta == 0:
        raise DataError("E_DELTA", "Gaussian noise needs a delta above 0", hint="delta = 1e-9")
    many = under(last, budget_for(last, epsilon, delta))
    if not others or rounds.declared:
        return many
    once = under(others[0], budget_for(others[0], epsilon, delta))
    return once if once.may_look_once and once.variance < many.variance else many


def metric_of(metric: str) -> Metric:
    """Return the error that a model is to keep small: it is one of all, so fair is the mean."""
    return "max" if metric == "max" else "mean"


def form_task(
    table: Table,
    candidates: Sequence[Query],
    noise: Noise,
    amount: Fraction,
    model: str,
    metric: Metric,
    rounds: Rounds,
    matrix_rmse: float | None = None,
    option: str = "model",
) -> Task:
    """Return what a mechanism is to learn: the queries over the columns that they mention.

    Raises: ProgrammingError (E_WORKLOAD) if they mention none.
    """
    used = {a for c in candidates for a in attributes_of(c)}
    domain = {key: table.columns[key].size for key in table.columns if key in used}
    if not domain:
        raise ProgrammingError(
            "E_WORKLOAD",
            "the workload mentions no column",
            hint=f"SELECT a, b, COUNT(*) FROM {table.name} GROUP BY CUBE (a, b)",
        )
    hint = None if table.row_count_hint is None else float(table.row_count_hint)
    return make_task(
        domain,
        candidates,
        noise,
        amount,
        model=model,
        metric=metric,
        hint=hint,
        matrix_rmse=matrix_rmse,
        rounds=rounds,
        option=option,
    )
