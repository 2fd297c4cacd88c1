"""The ten stages in order; no logic of its own.

SQL text -> Statement -> Query -> products -> Workload -> Strategy -> Forecast -> Receipt ->
Measurement -> Estimate -> Result. The first six see public facts only; there is one membrane.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from dpsql.answer.assemble import assemble_results
from dpsql.answer.estimate import estimate
from dpsql.answer.implied import Implied, find_implied, imply
from dpsql.answer.releases import Release, Releases
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.catalog import Catalog, Table
from dpsql.curator import Preset, ledger_file, nested_budgets
from dpsql.errors import (
    BudgetExceeded,
    DataError,
    DataUnavailable,
    Error,
    InternalError,
    decimal_text,
)
from dpsql.plan.explain import Explanation, explain
from dpsql.plan.goal import least_epsilon
from dpsql.plan.plan import Plan
from dpsql.plan.request import Planned, Request, make_plan
from dpsql.plan.target import Readings
from dpsql.privacy.accounting import Cost, gaussian_cost, laplace_cost
from dpsql.privacy.claims import claim_sources
from dpsql.privacy.ledger import Entry, Ledger, Status
from dpsql.privacy.measure import Vaults, certify, measure, read_public
from dpsql.sql.compiled import Compiled
from dpsql.sql.compose import compile_statement
from dpsql.sql.options import read_positive
from dpsql.sql.parse import Statement
from dpsql.sql.products import Compiler
from dpsql.terms import Terms

T = TypeVar("T")

REMEMBERED = 10_000
"""Statements whose compiled form is kept."""


def guarded(work: Callable[[], T]) -> T:
    """Run ``work``; an unforeseen failure gets one constant text, no cause and no context.

    Raises: InternalError (E_INTERNAL). A charge already made stays: refunds would depend on data.
    """
    try:
        return work()
    except Error:
        raise
    except Exception:
        pass
    raise InternalError("E_INTERNAL", "the request failed; a charge already made stays")


class Engine:
    """Answers workloads over one catalog; owns the ledger, the vaults and the releases."""

    def __init__(self, catalog: Catalog, anchors: Path, analyst: str | None = None) -> None:
        self.catalog = catalog
        self.analyst = analyst
        preset = Preset.of(catalog)
        self._anchors = anchors
        self.ledger = Ledger.open_or_create(
            ledger_file(catalog), anchors, preset.policy, preset.policy_hash, preset.nested
        )
        self.releases = Releases(catalog.path.with_suffix(".releases"))
        self.vaults = Vaults(catalog, self.ledger.salt)
        self.compiler = Compiler(catalog)
        self._planned: tuple[str, Planned] | None = None
        self._compiled: dict[str, Compiled] = {}
        self._public: dict[str, dict[str, tuple[str, list[Any]]]] = {}

    def compile(self, statements: Sequence[Statement]) -> tuple[Compiled, ...]:
        """Stages 2 and 3: bind every statement and form its products, each text once."""
        return tuple(self._compile(item) for item in statements)

    def _compile(self, statement: Statement) -> Compiled:
        text = statement.fragment.body
        if text not in self._compiled:
            if len(self._compiled) >= REMEMBERED:
                self._compiled.clear()
            compiled = compile_statement(statement, self.compiler, self._public_rows)
            self._compiled[text] = replace(
                compiled,
                weight=read_positive(statement.options, "weight") or 1.0,
                max_stddev=read_positive(statement.options, "max_stddev"),
            )
        return self._compiled[text]

    def _public_rows(self, table: Table) -> dict[str, tuple[str, list[Any]]]:
        """The rows of a public table, read once."""
        if table.name not in self._public:
            self._public[table.name] = read_public(table)
        return self._public[table.name]

    def explain(self, workload: Sequence[Compiled], terms: Terms) -> Explanation:
        """The forecast of a workload: free, and a function of public facts only."""
        request = self._request(workload, terms, Fraction(1))
        remaining = self.status().remaining_within(self._within(request.tables))
        known = None if terms.fresh or not request.tables else self._foreseen(request)
        if known is not None:
            published = (known.release.seq, known.release.plan, known.readings)
            return explain(request, None, terms.epsilon is None, remaining, published)
        planned = self._plan(request) if request.tables else None
        return explain(request, planned, terms.epsilon is None, remaining)

    def answer(self, workload: Sequence[Compiled], terms: Terms) -> tuple[Result, ...]:
        """Answer a workload jointly, charging at most once.

        Raises: BudgetExceeded, LedgerError, DataUnavailable; nothing is charged by a refusal.
        """
        static = all(item.is_static for item in workload)
        request = self._request(workload, terms, Fraction(1) if static else None)
        if static:
            sealed = self.compiler.evaluator.sealed
            return guarded(lambda: assemble_results(request, {}, {}, None, None, sealed))
        return guarded(lambda: self._answer(request, terms.fresh))

    def _answer(self, request: Request, fresh: bool) -> tuple[Result, ...]:
        name = self._request_name(request)
        known = None if fresh else self._published(request, name)
        if known is not None and known.name != name:
            self.releases.link(name, known.name)
        if known is None:
            planned = self._plan(request)
            release = self._release(request, planned.plan, name)
            return self._results(request, planned.readings, release, free=False)
        self.status()  # a ledger that is missing or damaged answers nothing, not even for free
        results = self._results(request, known.readings, known.release, free=True)
        paid, entry = decimal_text(known.release.plan.epsilon), known.release.seq
        note = (
            f"from entry {entry} of the ledger (epsilon {paid}); SET fresh = on pays for new noise"
        )
        return tuple(r if r.cost is None else replace(r, notes=(*r.notes, note)) for r in results)

    def _published(self, request: Request, name: str) -> Implied | None:
        """The release of an identical request, else the best one that determines this request.

        The choice is noted, so that a repetition has the same numbers whatever is released later.
        """
        release = self.releases.find(name)
        if release is not None:
            return imply(request, name, release)
        return find_implied(request, self.releases.latest(self._scopes(request.tables)))

    def _foreseen(self, request: Request) -> Implied | None:
        """What will answer a request for free; nothing while the data cannot be opened."""
        if not self.releases.path.exists():
            return None
        try:
            return self._published(request, self._request_name(request))
        except DataUnavailable:
            return None

    def _scopes(self, tables: Iterable[str]) -> tuple[str, ...]:
        """A name for each table as it is now: its catalog, its ledger and its data version."""
        always = (self.ledger.ledger_id, self.catalog.policy_hash())
        facts = [repr((*always, table, self.vaults.versions([table]))) for table in tables]
        return tuple(hashlib.sha256(fact.encode()).hexdigest() for fact in facts)

    def _request(
        self, workload: Sequence[Compiled], terms: Terms, default: Fraction | None
    ) -> Request:
        def request_at(epsilon: Fraction) -> Request:
            return Request(
                tuple(workload), epsilon, terms.delta, terms.noise, terms.mechanism, terms.effort
            )

        if any(item.max_stddev is not None for item in workload):
            return request_at(least_epsilon(request_at, terms.limit))
        epsilon = default if terms.epsilon is None else terms.epsilon
        if epsilon is None:
            raise DataError(
                "E_EPSILON", "no epsilon is set", hint="SET epsilon = 0.5, or --epsilon 0.5"
            )
        return request_at(epsilon)

    def _request_name(self, request: Request) -> str:
        versions = self.vaults.versions(request.tables)
        facts = [self.ledger.ledger_id, request.fingerprint(), versions, self.catalog.policy_hash()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def _release(self, request: Request, plan: Plan, name: str) -> Release:
        within = self._within(part.table for part in plan.parts)
        self._check_budget(plan, within)
        certify(plan, self.vaults)
        self._claim(request)
        self.vaults.prepare(request.tables)
        version = self.vaults.versions(part.table for part in plan.parts)
        receipt = self.ledger.debit(self._cost(plan), plan.fingerprint, version, within)
        try:
            measured = measure(plan, receipt, self.vaults)
            values = tuple(item.values for item in measured)
            scopes = self._scopes(part.table for part in plan.parts)
            release = Release(plan, values, receipt.ledger_id, receipt.seq, receipt.head, scopes)
            self.releases.add(name, release)
        except Exception:
            self.ledger.settle(receipt, "failed")
            raise
        self.ledger.settle(receipt, "released")
        return release

    def _check_budget(self, plan: Plan, within: Iterable[str]) -> None:
        """Refuse early what the ledger would refuse, before a row is read."""
        status = self.status()
        if plan.rho is None:
            left = status.remaining_within(within)
            if plan.epsilon > left:
                raise BudgetExceeded(plan.epsilon, left)
        elif plan.rho > status.rho_within(within):
            left = status.gaussian_within(within)
            raise BudgetExceeded(plan.epsilon, left, "epsilon, Gaussian noise")

    def _claim(self, request: Request) -> None:
        """Note that the sources of the tables are charged to this ledger and no other."""
        sources = [path for table in request.tables for path in self.vaults[table].sources]
        ledger = Path(os.path.realpath(ledger_file(self.catalog)))
        claim_sources(self._anchors, sources, ledger, self.ledger.ledger_id)

    def _plan(self, request: Request) -> Planned:
        """The plan of a request; the last one is kept, since a forecast precedes many a run."""
        name = f"{request.fingerprint()} {request.effort}"
        if self._planned is None or self._planned[0] != name:
            self._planned = (name, make_plan(request))
        return self._planned[1]

    def _cost(self, plan: Plan) -> Cost:
        if plan.rho is None:
            return laplace_cost(self.ledger.policy, plan.epsilon)
        return gaussian_cost(self.ledger.policy, plan.rho, plan.epsilon)

    def _within(self, tables: Iterable[str]) -> tuple[str, ...]:
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
        return assemble_results(request, readings, estimates, cost, receipt, sealed)

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
