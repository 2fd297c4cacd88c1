"""The ten stages in order; no logic of its own.

SQL text -> Statement -> Query -> products -> Workload -> Strategy -> Forecast -> Receipt ->
Measurement -> Estimate -> Result. The first six see public facts only; there is one membrane.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpsql.adaptive.task import Report, run_task
from dpsql.answer.assemble import assemble_results, released
from dpsql.answer.estimate import estimate
from dpsql.answer.implied import Implied, find_implied, imply
from dpsql.answer.modelled import draw_rows
from dpsql.answer.releases import Release, Releases
from dpsql.answer.reprocess import check_methods
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.answer.synthetics import Synthetic, Synthetics, check_name, find_synthetic
from dpsql.asking import form_request
from dpsql.catalog import Catalog, Table
from dpsql.charges import Charges
from dpsql.clipping import find_clipped, plan_clipping
from dpsql.curator import Preset, ledger_file, nested_budgets
from dpsql.cutting import chooses, read_level
from dpsql.errors import DataUnavailable, decimal_text
from dpsql.faults import told
from dpsql.granted import NOTHING, Granted
from dpsql.interrupts import Allowed
from dpsql.plan.explain import Explanation, explain
from dpsql.plan.plan import Plan
from dpsql.plan.request import RECONSTRUCTIONS, Planned, Request, make_plan
from dpsql.plan.target import Readings
from dpsql.privacy.accounting import gaussian_cost, laplace_cost
from dpsql.privacy.claims import claim_sources
from dpsql.privacy.ledger import Entry, Ledger, Receipt, Status
from dpsql.privacy.look import open_handle, open_sums
from dpsql.privacy.measure import Vaults, certify, measure, read_public
from dpsql.privacy.run import Run
from dpsql.scripts import OF_A_CREATION, unquoted, workload_of
from dpsql.sql.bulk import uncollected
from dpsql.sql.compiled import Compiled
from dpsql.sql.compose import compile_statement
from dpsql.sql.options import read_choice, read_positive
from dpsql.sql.parse import Statement, parse_select, reparse
from dpsql.sql.products import Compiler
from dpsql.sql.synthetic import Creation, Materialisation
from dpsql.sql.truncation import Cut, read_truncation
from dpsql.synthesis import Synthesis, advise, foresee, plan_synthesis, plan_workload
from dpsql.terms import Terms
from dpsql.thresholding import answer_alone, answer_both, explain_alone, explain_both

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
        self._anchors = anchors
        self.ledger = Ledger.open_or_create(
            ledger_file(catalog), anchors, preset.policy, preset.policy_hash, preset.nested
        )
        self.releases = Releases(catalog.path.with_suffix(".releases"))
        self.vaults = Vaults(catalog, self.ledger.salt)
        self.synthetics = Synthetics(catalog.path.with_suffix(".synthetic"))
        self.models = self.synthetics.load()
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
                weight=read_positive(statement.options, "weight") or 1.0,
                max_stddev=read_positive(statement.options, "max_stddev"),
                reconstruct=read_choice(statement.options, "reconstruct", RECONSTRUCTIONS),
                truncation=read_truncation(statement.fragment, statement.options),
            )
        return self._compiled[text, cut]

    def _public_rows(self, table: Table) -> dict[str, tuple[str, list[Any]]]:
        """The rows of a public table, read once."""
        if table.name not in self._public:
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
            found = None if terms.fresh else self._foreseen(request, self.synthetics.find)
            entry = None if found is None else found.receipt[1]
            return foresee(request, remaining, terms.epsilon is None, entry)
        known = None
        if request.tables and not terms.fresh and self.releases.path.exists():
            known = self._foreseen(request, lambda name: self._published(request, name))
        if known is not None:
            published = (known.release.seq, known.release.plan, known.readings)
            return explain(request, None, terms.epsilon is None, remaining, published)
        if not request.tables:
            return explain(request, None, terms.epsilon is None, remaining)
        planned = self.plan(request)
        check_methods(request, planned.plan, planned.readings)
        return advise(request, planned, explain(request, planned, terms.epsilon is None, remaining))

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
            return answer_both(self, request, terms.fresh)
        if request.is_learned:
            return self._answer_learned(request, terms.fresh, report)
        return self.answer_request(request, terms.fresh)

    def cut(self, workload: Sequence[Compiled], cuts: Iterable[Cut | None]) -> tuple[Compiled, ...]:
        """The statements with the values of a column clipped, where that is wanted of them."""
        pairs = zip(workload, cuts, strict=True)
        return tuple(
            item if cut is None else self._compile(replace(reparse(item.text), cut=cut))
            for item, cut in pairs
        )

    def answer_request(self, request: Request, fresh: bool) -> tuple[Result, ...]:
        name = self._request_name(request)
        known = None if fresh else self._published(request, name)
        if known is not None and known.name != name:
            self.releases.link(name, known.name)
        if known is None:
            planned = self.plan(request)
            check_methods(request, planned.plan, planned.readings)
            release = self._release(request, planned.plan, name)
            return self._results(request, planned.readings, release, free=False)
        check_methods(request, known.release.plan, known.readings)
        self.status()  # a ledger that is missing or damaged answers nothing, not even for free
        results = self._results(request, known.readings, known.release, free=True)
        paid, entry = decimal_text(known.release.plan.epsilon), known.release.seq
        note = (
            f"from entry {entry} of the ledger (epsilon {paid}); SET fresh = on pays for new noise"
        )
        return tuple(r if r.cost is None else replace(r, notes=(*r.notes, note)) for r in results)

    def _answer_learned(
        self, request: Request, fresh: bool, report: Report | None
    ) -> tuple[Result, ...]:
        planned, name = plan_workload(request), self._request_name(request)
        known = None if fresh else self.synthetics.find(name)
        self.status()
        found = known or self._learn(planned, report, lambda new: self.synthetics.keep(name, new))
        cost, receipt = released(found)
        cost = replace(cost, free=known is not None)
        sealed = self.compiler.evaluator.sealed
        return assemble_results(request, {}, {}, cost, receipt, sealed, self.models, learned=found)

    def _published(self, request: Request, name: str) -> Implied | None:
        """The release of an identical request, else the best one that determines this request.

        The choice is noted, so that a repetition has the same numbers whatever is released later.
        """
        release = self.releases.find(name)
        if release is not None:
            return imply(request, name, release)
        return find_implied(request, self.releases.latest(self.scopes(request.tables)))

    def _foreseen(self, request: Request, find: Callable[[str], T | None]) -> T | None:
        """What will answer a request for free; nothing while the data cannot be opened."""
        try:
            return find(self._request_name(request))
        except DataUnavailable:
            return None

    def scopes(self, tables: Iterable[str]) -> tuple[str, ...]:
        """A name for each table as it is now: its catalog, its ledger and its data version."""
        always = (self.ledger.ledger_id, self.catalog.policy_hash())
        facts = [repr((*always, table, self.vaults.versions([table]))) for table in tables]
        return tuple(hashlib.sha256(fact.encode()).hexdigest() for fact in facts)

    def _request_name(self, request: Request) -> str:
        versions = self.vaults.versions(request.tables)
        facts = [self.ledger.ledger_id, request.fingerprint(), versions, self.catalog.policy_hash()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def _release(self, request: Request, plan: Plan, name: str) -> Release:
        tables = [part.table for part in plan.parts]
        self.check_plan(plan)
        with self._paid(tables, plan.epsilon, plan.rho, plan.fingerprint) as receipt:
            measured = measure(plan, receipt, self.vaults)
            values = tuple(item.values for item in measured)
            scopes = self.scopes(tables)
            release = Release(plan, values, receipt.ledger_id, receipt.seq, receipt.head, scopes)
            self.releases.add(name, release)
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
        self, tables: Sequence[str], epsilon: Fraction, rho: Fraction | None, fingerprint: str
    ) -> AbstractContextManager[Receipt]:
        """Open the data, then charge for what follows: a bad source fails before any charge."""
        paths = [path for table in dict.fromkeys(tables) for path in self.vaults[table].sources]
        ledger = Path(os.path.realpath(ledger_file(self.catalog)))
        claim_sources(self._anchors, paths, ledger, self.ledger.ledger_id)
        self.vaults.prepare(dict.fromkeys(tables))
        policy, version = self.ledger.policy, self.vaults.versions(tables)
        cost = laplace_cost(policy, epsilon) if rho is None else gaussian_cost(policy, rho, epsilon)
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
            index: estimate(part, values)
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
        check_name(planned.name, self.synthetics.load())  # another process may have made one
        return self._learn(planned, report, self._add)

    def _add(self, made: Synthetic) -> Synthetic:
        """Store a synthetic table, and know it from now on."""
        found = self.synthetics.add(made)
        self.models[found.name.casefold()] = found
        self.compiler.catalog = self._with_models()
        self._compiled.clear()
        return found

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
        with self._paid([run.table], epsilon, rho, run.fingerprint) as receipt:
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
        self.vaults.close()
        self.ledger.close()
