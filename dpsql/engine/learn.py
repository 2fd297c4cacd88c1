"""From a workload and a budget to the task of one adaptive run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

import numpy as np

from dpsql.answer.modelled import MOST_GROUPS, candidate_of, check_groups
from dpsql.answer.synthetics import Synthetic, check_name
from dpsql.catalog import Table
from dpsql.catalog.view import left_out
from dpsql.engine.explain import Explanation, explain_learned
from dpsql.engine.terms import Terms
from dpsql.errors import (
    DataError,
    Error,
    NotSupportedError,
    ProgrammingError,
    decimal_text,
    printable,
)
from dpsql.learn.candidates import attributes_of
from dpsql.learn.choose import Metric
from dpsql.learn.handle import Query
from dpsql.learn.task import Task, make_task
from dpsql.learn.transcript import Learned
from dpsql.pgm.linear import whole_marginal
from dpsql.pgm.tree import DEFAULT_CAP
from dpsql.plan.request import Planned, Request, expected_error, make_plan
from dpsql.plan.rounds import AUTO, Rounds
from dpsql.privacy.accounting import budget_for
from dpsql.privacy.filter import Run
from dpsql.settings import SETTINGS
from dpsql.sql.compiled import Answer, Compiled, Select
from dpsql.sql.synthetic import Creation
from dpsql.strategy.noise_law import Noise, admitted, law
from dpsql.workload.target import find_views
from dpsql.workload.term import Term

RUNS = ("mwem", "marginals", "rap")
"""Mechanisms that look several times."""

MOST_ADVISED = 2_000
"""Most queries for which a forecast looks at the alternatives."""


@dataclass(frozen=True, slots=True)
class Synthesis:
    """One run: the table, the task and its price.

    ``name`` is that of the synthetic table it makes, empty for the model of one workload.
    ``columns`` are those whose values decide which rows count.
    """

    name: str
    table: Table
    task: Task
    epsilon: Fraction
    delta: Fraction
    columns: tuple[str, ...]

    @property
    def run(self) -> Run:
        """What the membrane is paid for."""
        classes = {name: np.arange(size) for name, size in self.task.domain.items()}
        unit = self.table.unit.max_rows
        task = self.task
        key = self.table.name.casefold()
        run = Run(key, classes, task.noise, task.amount, unit, task.settings())
        return replace(run, columns=self.columns)

    def synthetic(self, learned: Learned, receipt: tuple[str, int, str]) -> Synthetic:
        """The release that the run ended with."""
        return Synthetic(
            self.name,
            self.table.name.casefold(),
            learned.model,
            self.epsilon,
            self.delta,
            self.task.noise,
            learned.choice.rule,
            learned.transcript(self.task.noise),
            receipt,
            learned.interrupted,
            learned.looks,
            self.neighbours,
            self.forecast,
        )

    @property
    def neighbours(self) -> str:
        """Which tables are not told apart."""
        unit = self.table.unit
        if unit.column is None:
            return "one row more or less"
        return f"the rows of one {unit.column} more or less, at most {unit.max_rows}"

    @property
    def rho(self) -> Fraction | None:
        """The zero-concentrated budget of a run with Gaussian noise."""
        return None if law(self.task.noise).is_pure else self.task.amount

    @property
    def forecast(self) -> tuple[tuple[str, str], ...]:
        """What public facts say about the run, by name."""
        cells = " x ".join(f"{name} {size}" for name, size in self.task.domain.items())
        choice = self.task.choice
        facts = choice.describe()
        found = [
            ("workload", f"{_tables(len(self.task.candidates))} of {self.table.name}"),
            ("columns", cells),
            ("mechanism", choice.mechanism + (f", {choice.model}" if choice.model else "")),
            ("rule", choice.rule),
        ]
        found += [("", f"{n.replace('_', ' ')} {v:.4g}") for n, v in choice.inputs.items()]
        found += [("noise", self.task.noise), *self.task.rounds.declared.items()]
        found += [("warning", facts["warning"])] if "warning" in facts else []
        standing = left_out(self.table, self.columns)
        found += [] if standing is None else [("left out", standing)]
        return tuple(found)

    def lines(self, remaining: Fraction, assumed: bool) -> tuple[str, ...]:
        """The forecast as text: from public facts only."""
        cost = f"epsilon {decimal_text(self.epsilon)}" + (" (assumed)" if assumed else "")
        if not law(self.task.noise).is_pure:
            cost += f", delta {float(self.delta):g}"
        cost += f"; at most {decimal_text(remaining)} can still be asked for"
        return tuple(f"{name:<12}{text}" for name, text in (*self.forecast, ("cost", cost)))


def _tables(count: int) -> str:
    return "1 table" if count == 1 else f"{count:,} tables"


def plan_synthesis(
    creation: Creation, tables: Mapping[str, Table], workload: Sequence[Compiled], terms: Terms
) -> Synthesis:
    """Read the workload of a synthetic table and choose how to learn it.

    Raises: ProgrammingError (E_WORKLOAD, E_TOO_LARGE); NotSupportedError; DataError (E_EPSILON).
    """
    check_name(creation.name, tables)
    table = tables.get(creation.table.casefold())
    if table is None or table.public or table.synthetic:
        private = [t.name for t in tables.values() if not t.public and not t.synthetic]
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no private table {printable(creation.table)!r} in the catalog",
            hint=f"tables: {', '.join(private)}",
        )
    options = dict(creation.options)
    model = options.pop("model", SETTINGS["model"].default).lower()
    for name, text in options.items():
        terms = terms.with_text(name, text)
    if terms.epsilon is None:
        raise DataError("E_EPSILON", "no epsilon is set", hint="OPTIONS (epsilon = 0.5)")
    candidates = [c for item in workload for c in read_candidates(table, item.answers())]

    def under(noise: Noise, amount: Fraction) -> Task:
        return _task(
            table, candidates, noise, amount, model, cast("Metric", terms.metric), terms.rounds
        )

    task = _quietest(under, terms.noise, terms.epsilon, terms.delta, terms.rounds)
    columns = find_views(workload)[table.name.casefold()]
    return Synthesis(creation.name, table, task, terms.epsilon, terms.delta, columns)


def plan_workload(request: Request) -> Synthesis:
    """Read a workload that an adaptive mechanism is to answer.

    Raises: ProgrammingError (E_WORKLOAD, E_TOO_LARGE); NotSupportedError; DataError (E_DELTA).
    """
    table, candidates = _read_workload(request)
    is_open = request.mechanism == "adaptive"
    model = "auto" if is_open else request.mechanism
    plain = replace(request, mechanism="auto", metric="mean", rounds=AUTO) if is_open else None

    def under(noise: Noise, amount: Fraction) -> Task:
        error = None if plain is None else _matrix_rmse(replace(plain, noise=noise))
        metric = cast("Metric", request.metric)
        facts = (table, candidates, noise, amount, model, metric, request.rounds, error)
        return _task(*facts, option="mechanism")

    task = _quietest(under, request.noise, request.epsilon, request.delta, request.rounds)
    columns = request.views[table.name.casefold()]
    return Synthesis("", table, task, request.epsilon, request.delta, columns)


def foresee(request: Request, remaining: Fraction, assumed: bool, entry: int | None) -> Explanation:
    """The forecast of a workload that an adaptive mechanism is to answer.

    Raises: as ``plan_workload``.
    """
    planned = plan_workload(request)
    choice = planned.task.choice
    facts = choice.describe()
    name = choice.mechanism + (f", {choice.model} model" if choice.model else "")
    details = [f"rule        {choice.rule}", f"metric      {request.metric}"]
    details += [f"{name:<12}{text}" for name, text in planned.task.rounds.declared.items()]
    details += [f"warning     {facts['warning']}"] if "warning" in facts else []
    return explain_learned(
        request, name, planned.task.noise, tuple(details), assumed, remaining, entry
    )


def advise(request: Request, planned: Planned, forecast: Explanation) -> Explanation:
    """Add one line when public facts favour an adaptive mechanism over the plan that was made."""
    plan = planned.plan
    if request.mechanism != "auto":
        return forecast
    try:
        table, candidates = _read_workload(request)
        if table.row_count_hint is None or len(candidates) > MOST_ADVISED:
            return forecast
        rmse = None if forecast.mixed else forecast.rmse
        amount = plan.epsilon if plan.rho is None else plan.rho
        choice = _task(table, candidates, plan.noise, amount, "auto", "mean", AUTO, rmse).choice
    except Error:
        return forecast
    said = [f"mechanism = 'adaptive': {choice.rule}"] if choice.mechanism in RUNS else []
    said += ["budget too small to be useful"] if choice.useless else []
    line = (f"advice      {'; '.join(said)}",) if said else ()
    return replace(forecast, details=(*forecast.details, *line))


def _read_workload(request: Request) -> tuple[Table, list[Query]]:
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


def _matrix_rmse(request: Request) -> float | None:
    """The error that the matrix mechanism expects, in counts; None where it cannot be told."""
    answers = (answer for item in request.statements for _, answer in item.answers())
    if any(answer.apart is None for answer in answers):
        return None
    if any(a.weight != 1 for target in request.targets for a in target.asked.values()):
        return None
    planned = make_plan(request)
    sizes = [p.rows for layout in planned.layouts for (_, p), *_ in layout.products.values()]
    return math.sqrt(expected_error(request, planned) / sum(sizes))


def _quietest(
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


def _task(
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


def read_candidates(table: Table, asked: Iterable[tuple[Select, Answer]]) -> list[Query]:
    """The queries of a workload as candidates over the declared cells of a table.

    Sums of values become the counts of the cells they are sums over, where those are few.
    Raises: ProgrammingError (E_WORKLOAD); NotSupportedError (E_AGGREGATE, E_EXPR_IN_AGG).
    """
    found: list[Query] = []
    for select, answer in asked:
        if select.query.table != table.name.casefold():
            raise ProgrammingError(
                "E_WORKLOAD",
                f"the workload asks about {select.table.name}, the table is {table.name}",
                hint=f"SELECT ... FROM {table.name}",
            )
        if answer.units:
            raise NotSupportedError(
                "E_AGGREGATE", "COUNT(DISTINCT ...) cannot be learned", hint="COUNT(*) can"
            )
        if answer.whole:
            found += _candidates_of(table, answer)
    return found


def _candidates_of(table: Table, answer: Answer) -> list[Query]:
    products = [candidate_of(table, term)[0] for term in answer.whole]
    patterns = [term.pattern for term in answer.whole if term.pattern is not None]
    names = {n for p in products for n in p.factors} | {n for p in patterns for n in p.labels}
    are_sums = any(t.polynomials or t.largest > 1 for t in answer.whole)
    if are_sums and math.prod(table.columns[name].size for name in names) <= DEFAULT_CAP:
        # counts are learned with less noise than sums, and determine them
        sizes = {name: each.size for name, each in table.columns.items() if each.size}
        return [whole_marginal(sizes, tuple(names))]
    if patterns and not are_sums:
        return [query for term in answer.whole for query in _patterns_of(table, term)]
    if patterns:
        products = [candidate_of(table, term)[0] for term in answer.terms]
    if len({product.rows for product in products}) == 1:
        return [tuple(products)]
    return [(product,) for product in products]


def _patterns_of(table: Table, term: Term) -> list[Query]:
    """A count under conditions that couple columns, group by group."""
    candidate = candidate_of(table, term)
    if term.pattern is None:
        return [candidate]
    (product,) = candidate
    check_groups(product, term.pattern)
    rows = [np.asarray(factor.dense(), dtype=np.bool_) for factor in product.factors.values()]
    if math.prod(map(len, rows)) > MOST_GROUPS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"{math.prod(map(len, rows)):,} groups under a condition that couples columns",
            hint=f"at most {MOST_GROUPS:,} can be learned: group by fewer columns",
            span=term.pattern.span,
        )
    groups = itertools.product(*rows)
    return [term.pattern.within(dict(zip(product.factors, g, strict=True))) for g in groups]
