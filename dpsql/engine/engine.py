"""The ten stages in order; no logic of its own.

SQL text -> Statement -> Query -> products -> Workload -> Strategy -> Forecast -> Receipt ->
Measurement -> Estimate -> Result. The first six see public facts only; there is one membrane.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpsql.answer.assemble import assemble_results, released
from dpsql.answer.codec import Release
from dpsql.answer.modelled import draw_rows
from dpsql.answer.reprocess import check_methods
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.answer.store import Store
from dpsql.answer.synthetics import Synthetic, check_name, find_synthetic
from dpsql.catalog import Catalog, Table
from dpsql.dbapi.script import OF_A_CREATION, unquoted, workload_of
from dpsql.engine.charges import Charges
from dpsql.engine.clip import find_clipped, plan_clipping
from dpsql.engine.cut import chooses, read_level
from dpsql.engine.explain import Explanation, explain
from dpsql.engine.faults import told
from dpsql.engine.granted import NOTHING, Granted
from dpsql.engine.learn import Synthesis, advise, foresee, plan_synthesis, plan_workload
from dpsql.engine.reuse import foresee_choice, settle
from dpsql.engine.terms import Terms, form_request
from dpsql.engine.threshold import answer_alone, answer_both, explain_alone, explain_both
from dpsql.engine.turns import once, turn
from dpsql.errors import DataUnavailable
from dpsql.interrupts import Allowed
from dpsql.learn.task import Report, run_task
from dpsql.plan.plan import Plan
from dpsql.plan.request import Planned, Request, make_plan
from dpsql.privacy.accounting import Cost, cost_of
from dpsql.privacy.claims import Sources
from dpsql.privacy.curator import Preset, ledger_file, nested_budgets, user_folder
from dpsql.privacy.filter import Run
from dpsql.privacy.ledger import Entry, Ledger, Receipt, Status
from dpsql.privacy.look import open_handle, open_sums
from dpsql.privacy.measure import Vaults, certify, check_noise, measure, read_public, stored_name
from dpsql.sql.clauses import Cut, read_own, read_truncation
from dpsql.sql.compiled import Compiled
from dpsql.sql.compose import compile_statement
from dpsql.sql.parse import Statement, parse_select, reparse, uncollected
from dpsql.sql.products import Compiler
from dpsql.sql.synthetic import Creation, Materialisation
from dpsql.workload.target import Readings

T = TypeVar("T")

REMEMBERED = 10_000
"""Statements whose compiled form is kept."""


class Engine:
    """Answers workloads over one catalog; owns the ledger, the vaults and the releases."""

    def __init__(
        self,
        catalog: Catalog,
        anchors: Path,
        analyst: str | None = None,
        granted: Granted = NOTHING,
    ) -> None:
        self.catalog = catalog
        self.granted = granted
        self.analyst = analyst
        preset = Preset.of(catalog)
        ledger = Path(os.path.realpath(ledger_file(catalog)))
        self.sources = Sources(catalog, (anchors, user_folder()), ledger, stored_name)
        self.ledger = Ledger.open_or_create(
            ledger_file(catalog), anchors, preset.policy, preset.policy_hash, preset.nested
        )
        self.store = Store(catalog.path)
        self.vaults = Vaults(catalog, self.ledger.salt)
        self.models = self.store.tables.all()
        self.compiler = Compiler(self._with_models())
        self.charges = Charges()
        self._compiled: dict[tuple[str, Cut | None], Compiled] = {}
        self._public: dict[str, dict[str, tuple[str, list[Any]]]] = {}

    def _with_models(self) -> Catalog:
        """The catalog with its synthetic tables."""
        tables = dict(self.catalog.tables)
        for key, synthetic in self.models.items():
            if synthetic.table in tables and key not in tables:
                tables[key] = synthetic.describe(tables[synthetic.table])
        return replace(self.catalog, tables=tables)

    @property
    def known(self) -> Catalog:
        """The catalog with the synthetic tables."""
        return self.compiler.catalog

    def compile(self, statements: Sequence[Statement]) -> tuple[Compiled, ...]:
        """Stages 2 and 3: bind every statement and form its products, each text once."""
        with uncollected():
            return tuple(
                told(partial(self._compile, item), self.charges, item.fragment.whole)
                for item in statements
            )

    def _compile(self, statement: Statement) -> Compiled:
        text, cut = statement.fragment.body, statement.cut
        if (text, cut) not in self._compiled:
            if len(self._compiled) >= REMEMBERED:
                self._compiled.clear()
                self.compiler.forget()
            compiled = compile_statement(statement, self.compiler, self._public_rows)
            self._compiled[text, cut] = replace(
                compiled,
                weight=read_own(statement.options, "weight"),
                max_stddev=read_own(statement.options, "max_stddev"),
                reconstruct=read_own(statement.options, "reconstruct"),
                truncation=read_truncation(statement.fragment, statement.options),
            )
        return self._compiled[text, cut]

    def _public_rows(self, table: Table) -> dict[str, tuple[str, list[Any]]]:
        """The rows of a public table, read once."""
        if table.name not in self._public:
            self.sources.check_public(table)
            self._public[table.name] = read_public(table)
        return self._public[table.name]

    def explain(self, workload: Sequence[Compiled], terms: Terms) -> Explanation:
        """The forecast of a workload: free, and a function of public facts only."""
        clipped = find_clipped(workload)
        if clipped is not None:
            return explain_alone(self, clipped, terms)
        workload = self.cut(workload, map(read_level, workload))
        request = form_request(workload, terms, Fraction(1))
        return explain_both(self, request, terms)

    def explain_request(self, request: Request, terms: Terms) -> Explanation:
        """The forecast of a request without a threshold to choose."""
        remaining = self.status().remaining_within(self.within(request.tables))
        if request.is_learned and request.tables:
            model = None if terms.fresh else self._foreseen(request, self.store.learned.find)
            entry = None if model is None else model.receipt[1]
            return foresee(request, remaining, terms.epsilon is None, entry)
        assumed = terms.epsilon is None
        if not request.tables:
            return explain(request, None, assumed, remaining)
        choice = foresee_choice(self, request, terms.reuse)
        if choice.known is not None:
            known = choice.known
            published = (known.release.seq, known.release.plan, known.readings)
            found = explain(request, None, assumed, remaining, published)
        else:
            assert choice.planned is not None
            check_methods(request, choice.planned.plan, choice.planned.readings)
            forecast = explain(request, choice.planned, assumed, remaining)
            found = advise(request, choice.planned, forecast)
        return replace(found, details=(*found.details, *choice.lines))

    def answer(
        self, workload: Sequence[Compiled], terms: Terms, report: Report | None = None
    ) -> tuple[Result, ...]:
        """Answer a workload jointly, charging at most once; ``report`` hears of a long run.

        Raises: BudgetExceeded, LedgerError, DataUnavailable; nothing is charged by a refusal.
        """
        self.charges.asked = tuple(item.text for item in workload)
        clipped = find_clipped(workload)
        if clipped is not None:
            sums = plan_clipping(clipped, terms)
            return (answer_alone(self, sums, terms.fresh),)
        workload = self.cut(workload, map(read_level, workload))
        static = all(item.is_static or item.is_modelled for item in workload)
        request = form_request(workload, terms, Fraction(1) if static else None)
        if static:
            sealed = self.compiler.evaluator.sealed
            return assemble_results(request, {}, {}, None, None, sealed, self.models)
        if any(map(chooses, workload)):
            return answer_both(self, request, terms.reuse)
        if request.is_learned:
            return self._answer_learned(request, terms.fresh, report)
        return self.answer_request(request, terms.reuse)

    def cut(self, workload: Sequence[Compiled], cuts: Iterable[Cut | None]) -> tuple[Compiled, ...]:
        """The statements with the values of a column clipped, where that is wanted of them."""
        pairs = zip(workload, cuts, strict=True)
        return tuple(
            item if cut is None else self._compile(replace(reparse(item.text), cut=cut))
            for item, cut in pairs
        )

    def answer_request(self, request: Request, reuse: str) -> tuple[Result, ...]:
        """Answer a request without a threshold to choose from a release, an earlier or a new one.

        Raises: BudgetExceeded, LedgerError, DataUnavailable; nothing is charged by a refusal.
        """
        choice, readings, release = settle(self, request, reuse)
        results = self._results(request, readings, release, choice.known is not None)
        return tuple(
            r if r.cost is None else replace(r, notes=(*r.notes, *choice.notes)) for r in results
        )

    def _answer_learned(
        self, request: Request, fresh: bool, report: Report | None
    ) -> tuple[Result, ...]:
        planned, name = plan_workload(request), self.request_name(request)
        self.status()

        def learn() -> Synthetic:
            return self._learn(planned, report, lambda new: self.store.learned.add(name, new))

        path, find = self.store.learned.file.path, partial(self.store.learned.find, name)
        found, free = (learn(), False) if fresh else once(path, name, find, learn)
        cost, receipt = released(found)
        cost = replace(cost, free=free)
        sealed = self.compiler.evaluator.sealed
        return assemble_results(request, {}, {}, cost, receipt, sealed, self.models, learned=found)

    def _foreseen(self, request: Request, find: Callable[[str], T | None]) -> T | None:
        """What will answer a request for free; nothing while the data cannot be opened."""
        try:
            return find(self.request_name(request))
        except DataUnavailable:
            return None

    def scopes(self, tables: Iterable[str]) -> tuple[str, ...]:
        """A name for each table as it is now: its catalog, its ledger and its data version."""
        always = (self.ledger.ledger_id, self.catalog.policy_hash())
        facts = [repr((*always, table, self.vaults.versions([table]))) for table in tables]
        return tuple(hashlib.sha256(fact.encode()).hexdigest() for fact in facts)

    def request_name(self, request: Request) -> str:
        """What identical requests on the same data have in common."""
        versions = self.vaults.versions(request.tables)
        facts = [self.ledger.ledger_id, request.fingerprint(), versions, self.catalog.policy_hash()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def release(self, plan: Plan, name: str) -> Release:
        """Pay for a plan, measure it, and store what comes of it under a name.

        Raises: BudgetExceeded, LedgerError, DataUnavailable; nothing is charged by a refusal.
        """
        tables = [part.table for part in plan.parts]
        self.check_plan(plan)
        cost = cost_of(self.ledger.policy, plan.noise, plan.epsilon, plan.rho)
        with self._paid(tables, cost, plan.fingerprint) as receipt:
            measured = measure(plan, receipt, self.vaults)
            values = tuple(item.values for item in measured)
            scopes = self.scopes(tables)
            release = Release(plan, values, receipt.ledger_id, receipt.seq, receipt.head, scopes)
            self.store.releases.add(name, release)
        return release

    def check_plan(self, plan: Plan) -> None:
        """Refuse early what the ledger would refuse, or noise that cannot be drawn."""
        self.check_budget([part.table for part in plan.parts], plan.epsilon, plan.rho)
        certify(plan, self.vaults)

    def check_budget(self, tables: Sequence[str], epsilon: Fraction, rho: Fraction | None) -> None:
        """Refuse early what the ledger would refuse, before a row is read."""
        refusal = self.status().refuse(self.within(tables), epsilon, rho)
        if refusal is not None:
            raise refusal

    def _paid(
        self, tables: Sequence[str], cost: Cost, fingerprint: str
    ) -> AbstractContextManager[Receipt]:
        """Open the data, then charge for what follows: a bad source fails before any charge."""
        opened = {table: self.vaults[table].sources for table in tables}
        self.sources.claim(opened, self.ledger.ledger_id)
        self.vaults.prepare(dict.fromkeys(tables))
        version = self.vaults.versions(tables)
        return self.charges.paid(self.ledger, cost, fingerprint, version, self.within(tables))

    def plan(self, request: Request) -> Planned:
        """The plan of a request, made anew: strategies are remembered, by what they depend on."""
        return make_plan(request)

    def within(self, tables: Iterable[str]) -> tuple[str, ...]:
        """The budgets that a request on tables is charged to, each in full, beside the whole."""
        return nested_budgets(self.catalog, tables, self.analyst)

    def _results(
        self, request: Request, readings: Readings, release: Release, free: bool
    ) -> tuple[Result, ...]:
        plan = release.plan
        needed = {index for index, _, _ in readings.values()}
        estimates = {
            index: part.estimate(values)
            for index, (part, values) in enumerate(zip(plan.parts, release.values, strict=True))
            if index in needed
        }
        cost = CostInfo(plan.epsilon, plan.delta, plan.noise, free)
        receipt = ReceiptInfo(release.ledger_id, release.seq, release.head)
        sealed = self.compiler.evaluator.sealed
        return assemble_results(
            request, readings, estimates, cost, receipt, sealed, self.models, release
        )

    def plan_synthesis(self, creation: Creation, terms: Terms) -> Synthesis:
        """Read CREATE SYNTHETIC TABLE: a function of public facts only.

        Raises: ProgrammingError, NotSupportedError, DataError.
        """
        fragments = workload_of(creation, self.granted)
        with unquoted(creation):
            workload = self.compile([parse_select(fragment) for fragment in fragments])
        with unquoted(creation, OF_A_CREATION):
            return plan_synthesis(creation, self.known.tables, workload, terms)

    def synthesise(self, creation: Creation, terms: Terms, report: Report | None) -> Synthetic:
        """Learn a synthetic table: the whole budget is charged before the first look.

        Raises: BudgetExceeded, LedgerError, DataUnavailable; nothing is charged by a refusal.
        """
        self.charges.asked = (creation.text,)
        planned = self.plan_synthesis(creation, terms)
        with turn(self.store.tables.file.path, planned.name.casefold()):
            self._know(self.store.tables.all())  # another process may have made one
            check_name(planned.name, self.models)
            return self._learn(planned, report, self._add)

    def _add(self, made: Synthetic) -> Synthetic:
        """Store a synthetic table, and know it from now on."""
        found = self.store.tables.add(made.name.casefold(), made)
        self._know({found.name.casefold(): found})
        return found

    def _know(self, made: Mapping[str, Synthetic]) -> None:
        """Know synthetic tables from now on."""
        self.models.update(made)
        self.compiler.catalog = self._with_models()
        self._compiled.clear()

    def _learn(
        self, planned: Synthesis, report: Report | None, keep: Callable[[Synthetic], Synthetic]
    ) -> Synthetic:
        """Pay for one adaptive run, let it look, and keep the model it ends with."""

        def learn(handle: Any, receipt: tuple[str, int, str]) -> Synthetic:
            with Allowed():  # a run may take minutes; it ends early with the model it has
                learned = run_task(planned.task, handle, report)
            return keep(planned.synthetic(learned, receipt))

        return self.look(planned.run, planned.epsilon, planned.rho, learn)

    def look(
        self,
        run: Run,
        epsilon: Fraction,
        rho: Fraction | None,
        learn: Callable[[Any, tuple[str, int, str]], T],
    ) -> T:
        """Pay for one adaptive run and let ``learn`` look; a failed run stays paid."""
        self.check_budget([run.table], epsilon, rho)
        check_noise(run.noise, self.vaults)
        cost = cost_of(self.ledger.policy, run.noise, epsilon, rho)
        with self._paid([run.table], cost, run.fingerprint) as receipt:
            door = (run, receipt, self.vaults)
            handle = open_handle(*door) if run.view is None else open_sums(*door)
            try:
                return learn(handle, (receipt.ledger_id, receipt.seq, receipt.head))
            finally:
                handle.close()

    def draw(self, wanted: Materialisation) -> dict[str, list[Any]]:
        """Draw rows of a synthetic table, with fresh randomness every time; free.

        Raises: ProgrammingError (E_UNKNOWN_TABLE).
        """
        synthetic = find_synthetic(self.models, wanted.name)
        table = self.known.tables[synthetic.name.casefold()]
        return draw_rows(synthetic.model, table, wanted.rows, np.random.default_rng())

    def status(self) -> Status:
        """What is left of the budget."""
        return self.ledger.status()

    def entries(self) -> tuple[Entry, ...]:
        """Every charge so far."""
        return self.ledger.entries()

    def close(self) -> None:
        """Release files and connections."""
        self.compiler.evaluator.close()
        self.vaults.close()
        self.ledger.close()
