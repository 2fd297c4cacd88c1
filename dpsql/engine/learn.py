"""From a workload and a budget to the task of one adaptive run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.answer.assemble import assemble_results, released
from dpsql.answer.model_answers import read_candidates
from dpsql.answer.result import Result, listing
from dpsql.answer.store import StoreTable
from dpsql.answer.synthetic_tables import Synthetic, check_name
from dpsql.catalog import Table
from dpsql.engine.adaptive import form_task, matrix_rmse, metric_of, quietest, read_workload
from dpsql.engine.clip import given_levels
from dpsql.engine.explain import explain_learned
from dpsql.engine.explanation import Explanation, Row
from dpsql.engine.granted_files import OF_A_CREATION, unquoted, workload_of
from dpsql.engine.job import AdaptiveJob, Price, price_of_run
from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms
from dpsql.errors import (
    DataError,
    ProgrammingError,
    decimal_text,
    printable,
)
from dpsql.interrupts import AllowInterrupts
from dpsql.learn.task import Report, Task, run_task
from dpsql.learn.transcript import Learned
from dpsql.plan.request import Request
from dpsql.plan.target import find_views
from dpsql.privacy.doors.privacy_filter import Run
from dpsql.records import dataclass, replace
from dpsql.relation.row_view import RowView, left_out
from dpsql.settings.rounds import AUTO
from dpsql.settings.table import SETTINGS
from dpsql.sql.compiled import Compiled
from dpsql.sql.text.parse import parse_select
from dpsql.sql.text.synthetic import Creation
from dpsql.strategy.noise_law import Noise, law

INTERRUPTED = (
    "interrupted: the table holds what was learned by then, and the whole budget stays charged"
)


@dataclass(frozen=True, slots=True, eq=False)
class LearningJob(AdaptiveJob[Synthetic]):
    """One run that ends with a model: the table, the task and its price.

    ``name`` is that of the synthetic table it makes, empty for the model of one workload.
    ``view`` are the rows that count; ``report`` hears of a long run.
    """

    name: str
    table: Table
    task: Task
    epsilon: Fraction
    delta: Fraction
    view: RowView
    report: Report | None

    @property
    def is_long(self) -> bool:
        """True: it may look for minutes."""
        return True

    @property
    def run(self) -> Run:
        """The run that the membrane is paid for."""
        classes = {name: np.arange(size) for name, size in self.task.domain.items()}
        unit = self.table.unit.max_rows
        task = self.task
        key = self.table.name.casefold()
        run = Run(key, classes, task.noise, task.amount, unit, task.settings())
        return replace(run, rows=self.view)

    @property
    def price(self) -> Price:
        """The price of the run: the whole budget, before the first look."""
        return price_of_run(self.run, self.epsilon)

    def learn(self, handle: Any, receipt: tuple[str, int, str]) -> Synthetic:
        """Learn the model; an interrupt ends the run early, with the model it has."""
        with AllowInterrupts():  # a run may take minutes
            learned = run_task(self.task, handle, self.report)
        return self.synthetic(learned, receipt)

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
            tuple(each.released for each in self.table.columns.values() if each.released),
        )

    @property
    def neighbours(self) -> str:
        """The neighbouring tables, which are not told apart."""
        unit = self.table.unit
        if unit.column is None:
            return "one row more or less"
        return f"the rows of one {unit.column} more or less, at most {unit.max_rows}"

    @property
    def forecast(self) -> tuple[tuple[str, str], ...]:
        """The public facts of the run, by name."""
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
        standing = left_out(self.table, self.view)
        found += [] if standing is None else [("left out", standing)]
        return tuple(found)

    def rows(self, remaining: Fraction, assumed: bool) -> tuple[Row, ...]:
        """The forecast, from public facts only."""
        cost = f"epsilon {decimal_text(self.epsilon)}" + (" (assumed)" if assumed else "")
        if not law(self.task.noise).is_pure:
            cost += f", delta {float(self.delta):g}"
        cost += f"; at most {decimal_text(remaining)} can still be asked for"
        return (*self.forecast, ("cost", cost))


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTableJob(LearningJob):
    """CREATE SYNTHETIC TABLE: a model with a name of its own."""

    text: str

    @property
    def asked(self) -> tuple[str, ...]:
        """The statement, as the ledger notes it."""
        return (self.text,)

    def shelf(self, planner: Planner) -> StoreTable[Synthetic]:
        """Return the shelf of synthetic tables."""
        return planner.store.tables

    def keys(self, planner: Planner) -> tuple[str, ...]:
        """The name of the table, among those that its maker sees."""
        return (planner.table_key(self.name),)

    def find(self, planner: Planner) -> None:
        """Find nothing: what has the name already is another table, perhaps of another process.

        Raises: ProgrammingError (E_STATEMENT).
        """
        planner.know()
        check_name(self.name, planner.models)
        if planner.known.tables[self.table.name.casefold()] != self.table:
            raise ProgrammingError(
                "E_STATEMENT",
                f"domains of {self.table.name} changed meanwhile; nothing was charged",
                hint="the same statement again",
            )

    def keep(self, planner: Planner, found: Synthetic) -> Synthetic:
        """Store the table, and know it from now on."""
        made = self.shelf(planner).add(self.key(planner), found)
        planner.know()
        return made

    def results(self, planner: Planner, found: Synthetic, free: bool) -> tuple[Result, ...]:
        """Return the facts of what was learned, and its cost."""
        cost, receipt = released(found)
        notes = (INTERRUPTED,) if found.interrupted else ()
        if found.name != self.name:
            notes = (*notes, f"another process made {self.name}: this one is {found.name}")
        result = listing(("synthetic", found.name), found.facts(), self.text)
        return (replace(result, cost=replace(cost, free=False), receipt=receipt, notes=notes),)

    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast: from public facts only."""
        remaining = planner.remaining([self.table.name.casefold()])
        task = self.task
        facts = (task.choice.mechanism, task.noise, self.epsilon, self.delta, math.nan, ())
        rows = self.rows(remaining, assumed)
        return Explanation((), *facts, False, assumed, remaining, whole=rows)


@dataclass(frozen=True, slots=True, eq=False)
class LearnedWorkloadJob(LearningJob):
    """SELECT with an adaptive mechanism: a model that answers one workload."""

    request: Request
    fresh: bool

    @property
    def asked(self) -> tuple[str, ...]:
        """The statements, as the ledger notes them."""
        return tuple(item.text for item in self.request.statements)

    def shelf(self, planner: Planner) -> StoreTable[Synthetic]:
        """Return the shelf of models without a name of their own."""
        return planner.store.learned

    def keys(self, planner: Planner) -> tuple[str, ...]:
        """Return the names that identical requests on the same data share."""
        return planner.request_names(self.request)

    def results(self, planner: Planner, found: Synthetic, free: bool) -> tuple[Result, ...]:
        """The answers of the model."""
        cost, receipt = released(found)
        cost, models = replace(cost, free=free), planner.models
        return assemble_results(
            self.request, {}, {}, cost, receipt, planner.sealed, models, learned=found
        )

    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast: what is known about the run, not its errors."""
        remaining = planner.remaining(self.request.tables)
        known = self.foreseen(planner)
        choice, task = self.task.choice, self.task
        facts = choice.describe()
        name = choice.mechanism + (f", {choice.model} model" if choice.model else "")
        details = [("rule", choice.rule), ("metric", metric_of(self.request.metric))]
        details += task.rounds.declared.items()
        details += [("warning", facts["warning"])] if "warning" in facts else []
        entry = None if known is None else known.receipt[1]
        forecast = explain_learned(
            self.request, name, task.noise, tuple(details), assumed, remaining, entry
        )
        return forecast.adding(given_levels(self.request.statements))


def _tables(count: int) -> str:
    return "1 table" if count == 1 else f"{count:,} tables"


def plan_table(
    planner: Planner, creation: Creation, terms: Terms, report: Report | None = None
) -> SyntheticTableJob:
    """Read CREATE SYNTHETIC TABLE: a function of public facts only.

    Raises: ProgrammingError, NotSupportedError, DataError.
    """
    fragments = workload_of(creation, planner.granted)
    with unquoted(creation):
        workload = planner.compile([parse_select(fragment) for fragment in fragments])
    with unquoted(creation, OF_A_CREATION):
        return _plan_table(creation, planner.known.tables, workload, terms, report)


def _plan_table(
    creation: Creation,
    tables: Mapping[str, Table],
    workload: Sequence[Compiled],
    terms: Terms,
    report: Report | None,
) -> SyntheticTableJob:
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
        metric = metric_of(terms.metric)
        return form_task(table, candidates, noise, amount, model, metric, terms.rounds)

    task = quietest(under, terms.noise, terms.epsilon, terms.delta, terms.rounds)
    # More is asked of a table that has a name than what it was learned for: no row is left out.
    rows = RowView(find_views(workload)[table.name.casefold()].columns)
    facts = (creation.name, table, task, terms.epsilon, terms.delta, rows, report)
    return SyntheticTableJob(*facts, creation.text)


def plan_workload(
    request: Request, fresh: bool = False, report: Report | None = None
) -> LearnedWorkloadJob:
    """Read a workload that an adaptive mechanism is to answer.

    Raises: ProgrammingError (E_WORKLOAD, E_TOO_LARGE); NotSupportedError; DataError (E_DELTA).
    """
    table, candidates = read_workload(request)
    is_open = request.mechanism == "adaptive"
    model = "auto" if is_open else request.mechanism
    plain = replace(request, mechanism="auto", metric="mean", rounds=AUTO) if is_open else None

    def under(noise: Noise, amount: Fraction) -> Task:
        error = None if plain is None else matrix_rmse(replace(plain, noise=noise))
        metric = metric_of(request.metric)
        facts = (table, candidates, noise, amount, model, metric, request.rounds, error)
        return form_task(*facts, option="mechanism")

    task = quietest(under, request.noise, request.epsilon, request.delta, request.rounds)
    rows = request.views[table.name.casefold()]
    facts = ("", table, task, request.epsilon, request.delta, rows, report)
    return LearnedWorkloadJob(*facts, request, fresh)
