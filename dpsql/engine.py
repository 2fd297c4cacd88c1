"""The ten stages in order; no logic of its own.

SQL text -> Statement -> Query -> products -> Workload -> Strategy -> Forecast -> Receipt ->
Measurement -> Estimate -> Result. The first six see public facts only; there is one membrane.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from dpsql.answer.assemble import assemble_results
from dpsql.answer.reconstruct import reconstruct
from dpsql.answer.releases import Release, Releases
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.catalog import Catalog
from dpsql.curator import Preset, ledger_file, nested_name
from dpsql.errors import DataError, Error, InternalError
from dpsql.plan.explain import Explanation, explain
from dpsql.plan.plan import Plan
from dpsql.plan.request import Request, make_plan
from dpsql.privacy.accounting import Cost, gaussian_cost, laplace_cost
from dpsql.privacy.ledger import Entry, Ledger, Status
from dpsql.privacy.measure import Vaults, measure
from dpsql.sql.bind import bind
from dpsql.sql.parse import Statement
from dpsql.sql.products import Compiled, Compiler
from dpsql.terms import Terms

T = TypeVar("T")


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

    def __init__(self, catalog: Catalog, anchors: Path) -> None:
        self.catalog = catalog
        preset = Preset.of(catalog)
        self.ledger = Ledger.open_or_create(
            ledger_file(catalog), anchors, preset.policy, preset.policy_hash, preset.nested
        )
        self.releases = Releases(catalog.path.with_suffix(".releases"))
        self.vaults = Vaults(catalog, self.ledger.salt)
        self.compiler = Compiler(catalog)
        self._planned: tuple[str, Plan] | None = None

    def compile(self, statements: Sequence[Statement]) -> tuple[Compiled, ...]:
        """Stages 2 and 3: bind every statement and form its products."""
        return tuple(self.compiler.compile(bind(item, self.catalog)) for item in statements)

    def explain(self, workload: Sequence[Compiled], terms: Terms) -> Explanation:
        """The forecast of a workload: free, and a function of public facts only."""
        request = self._request(workload, terms, Fraction(1))
        plan = self._plan(request) if request.tables else None
        remaining = self.status().remaining_within(map(nested_name, request.tables))
        return explain(request, plan, terms.epsilon is None, remaining)

    def answer(self, workload: Sequence[Compiled], terms: Terms) -> tuple[Result, ...]:
        """Answer a workload jointly, charging at most once.

        Raises: BudgetExceeded, LedgerError, DataUnavailable; nothing is charged by a refusal.
        """
        static = all(item.is_static for item in workload)
        request = self._request(workload, terms, Fraction(1) if static else None)
        if static:
            sealed = self.compiler.evaluator.sealed
            return guarded(lambda: assemble_results(request, {}, None, None, sealed))
        name = self._request_name(request)
        release = None if terms.fresh else self.releases.find(name)
        if release is not None:
            return guarded(lambda: self._results(request, release, free=True))
        return guarded(lambda: self._results(request, self._release(request, name), free=False))

    def _request(
        self, workload: Sequence[Compiled], terms: Terms, default: Fraction | None
    ) -> Request:
        epsilon = default if terms.epsilon is None else terms.epsilon
        if epsilon is None:
            raise DataError(
                "E_EPSILON", "no epsilon is set", hint="SET epsilon = 0.5, or --epsilon 0.5"
            )
        return Request(tuple(workload), epsilon, terms.delta, terms.noise)

    def _request_name(self, request: Request) -> str:
        versions = self.vaults.versions(request.tables)
        facts = [self.ledger.ledger_id, request.fingerprint(), versions, self.catalog.policy_hash()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def _release(self, request: Request, name: str) -> Release:
        plan = self._plan(request)
        self.vaults.prepare(request.tables)
        version = self.vaults.versions(part.table for part in plan.parts)
        within = self._within(plan)
        receipt = self.ledger.debit(self._cost(plan), plan.fingerprint, version, within)
        try:
            measured = measure(plan, receipt, self.vaults)
            values = tuple(item.values for item in measured)
            release = Release(plan, values, receipt.ledger_id, receipt.seq, receipt.head)
            self.releases.add(name, release)
        except Exception:
            self.ledger.settle(receipt, "failed")
            raise
        self.ledger.settle(receipt, "released")
        return release

    def _plan(self, request: Request) -> Plan:
        """The plan of a request; the last one is kept, since a forecast precedes many a run."""
        name = request.fingerprint()
        if self._planned is None or self._planned[0] != name:
            self._planned = (name, make_plan(request))
        return self._planned[1]

    def _cost(self, plan: Plan) -> Cost:
        if plan.rho is None:
            return laplace_cost(self.ledger.policy, plan.epsilon)
        return gaussian_cost(self.ledger.policy, plan.rho, plan.epsilon)

    def _within(self, plan: Plan) -> tuple[str, ...]:
        """The budgets of tables that a plan is charged to, each in full, beside the whole."""
        names = [nested_name(part.table) for part in plan.parts]
        return tuple(name for name in names if name in self.ledger.nested)

    def _results(self, request: Request, release: Release, free: bool) -> tuple[Result, ...]:
        plan = release.plan
        estimates = {
            part.table: reconstruct(part.strategy, values, part.forecast.noise)
            for part, values in zip(plan.parts, release.values, strict=True)
        }
        cost = CostInfo(plan.epsilon, plan.delta, plan.noise, free)
        receipt = ReceiptInfo(release.ledger_id, release.seq, release.head)
        return assemble_results(request, estimates, cost, receipt, self.compiler.evaluator.sealed)

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
