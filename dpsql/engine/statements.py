"""The job that answers some statements by one compiled request for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.answer.assemble import assemble_results
from dpsql.answer.result import Result
from dpsql.answer.store import StoreTable
from dpsql.engine.job import Doors, Job, Price
from dpsql.engine.matrix import WorkloadJob
from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms
from dpsql.errors import InternalError
from dpsql.plan.request import Request
from dpsql.privacy.budget.receipt import Receipt
from dpsql.records import dataclass
from dpsql.sql.compiled import Compiled

if TYPE_CHECKING:
    from dpsql.engine.explanation import Explanation
    from dpsql.learn.task import Report


def read_job(
    planner: Planner, workload: Sequence[Compiled], terms: Terms, report: Report | None = None
) -> Job[Any]:
    """The job that answers a workload; ``report`` hears of a long run.

    Raises: ProgrammingError, NotSupportedError, DataError.
    """
    if any(item.truncation is not None for item in workload):
        return _read_clipped(planner, workload, terms, report)
    return _read_uncut(planner, workload, terms, report)


def _read_clipped(
    planner: Planner, workload: Sequence[Compiled], terms: Terms, report: Report | None
) -> Job[Any]:
    from dpsql.engine.clip import find_clipped, plan_clipping  # few workloads are clipped
    from dpsql.engine.clipped_workload import chooses, plan_cutting, read_level

    clipped = find_clipped(workload)
    if clipped is not None:
        return plan_clipping(clipped, terms)
    workload = planner.cut(workload, map(read_level, workload))
    if _is_public(workload) or not any(map(chooses, workload)):
        return _read_uncut(planner, workload, terms, report)
    request = planner.ask(workload, terms, None)
    single = len(request.noises) == 1
    noise = request.noises[0] if single else planner.plan(request).plan.noise
    return plan_cutting(request, noise, terms.reuse)


def _read_uncut(
    planner: Planner, workload: Sequence[Compiled], terms: Terms, report: Report | None
) -> Job[Any]:
    public = _is_public(workload)
    request = planner.ask(workload, terms, Fraction(1) if public else None)
    if public:
        return PublicJob(request)
    if request.is_learned:
        from dpsql.engine.learn import plan_workload  # few workloads are learned

        return plan_workload(request, terms.fresh, report)
    return WorkloadJob(request, terms.reuse)


def _is_public(workload: Sequence[Compiled]) -> bool:
    return all(item.is_static or item.is_modelled for item in workload)


def explain_workload(planner: Planner, workload: Sequence[Compiled], terms: Terms) -> Explanation:
    """The forecast of a workload: free, and a function of public facts only."""
    assumed = terms.epsilon is None
    offered = terms.having(epsilon=Fraction(1)) if assumed else terms
    return read_job(planner, workload, offered).explain(planner, assumed)


@dataclass(frozen=True, slots=True, eq=False)
class PublicJob(Job[Request]):
    """A workload that public facts and synthetic tables answer: nothing is charged or stored."""

    request: Request

    @property
    def asked(self) -> tuple[str, ...]:
        """The empty tuple: the ledger notes nothing."""
        return ()

    @property
    def price(self) -> Price:
        """The price: none."""
        return Price((), self.request.noise, Fraction(0), None, "")

    def shelf(self, planner: Planner) -> StoreTable[Request]:
        """Raise InternalError: no public answer is stored."""
        raise InternalError("E_INTERNAL", "a public answer is neither measured nor stored")

    def keys(self, planner: Planner) -> tuple[str, ...]:
        """Raise InternalError: no public answer is stored."""
        raise InternalError("E_INTERNAL", "a public answer is neither measured nor stored")

    def perform(self, planner: Planner, doors: Doors, receipt: Receipt) -> Request:
        """Raise InternalError: no public answer is measured."""
        raise InternalError("E_INTERNAL", "a public answer is neither measured nor stored")

    def find(self, planner: Planner) -> Request:
        """The request itself says all there is to know."""
        return self.request

    def results(self, planner: Planner, found: Request, free: bool) -> tuple[Result, ...]:
        """The answers, without noise or of a model."""
        return assemble_results(found, {}, {}, None, None, planner.sealed, planner.models)

    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast: free."""
        from dpsql.engine.clip import given_levels  # most are asked for answers
        from dpsql.engine.explain import explain

        forecast = explain(self.request, None, assumed, planner.remaining(()))
        return forecast.adding(given_levels(self.request.statements))
