"""A workload for the matrix mechanism: a published release answers it, or a new one that is paid.

None answers that is less accurate than a new one would be.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.answer.assemble import assemble_results
from dpsql.answer.codec import Release, most_bytes
from dpsql.answer.postprocess import check_methods
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.answer.store import StoredReleases, StoreTable
from dpsql.engine.job import Doors, Job, Price, Step, price_of_plan
from dpsql.engine.planner import Planner
from dpsql.errors import DataUnavailable, NotSupportedError, ProgrammingError, decimal_text
from dpsql.plan.plan import PartFacts, Plan
from dpsql.plan.request import PlannedRequest, Request
from dpsql.plan.target import Readings
from dpsql.privacy.budget.receipt import Receipt
from dpsql.records import dataclass, replace
from dpsql.settings.table import PUBLISHED

if TYPE_CHECKING:
    from dpsql.answer.accuracy import ComparedErrors
    from dpsql.answer.implied import ImpliedRelease
    from dpsql.engine.explanation import Explanation, Row


ON_GRID = (
    "an earlier version rounded values to a part of their bounds before they were added up: "
    "standard errors do not tell by how much"
)

SAME = 5e-4
"""Relative difference below which errors are the same to four digits."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of an answer: a ``known`` release for free, or else what is ``planned``.

    ``other`` is a release that would answer, with larger errors; ``compared`` are the errors of
    the one or the other beside those of a new measurement, where that was planned. ``changes`` is
    the count of changes of the store when it had no release of the same request.
    """

    name: str
    known: ImpliedRelease | None = None
    planned: PlannedRequest | None = None
    other: ImpliedRelease | None = None
    compared: ComparedErrors | None = None
    changes: bytes | None = None

    @property
    def plan(self) -> Plan:
        """The plan that is measured, or was."""
        if self.known is not None:
            return self.known.release.plan
        assert self.planned is not None
        return self.planned.plan

    @property
    def readings(self) -> Readings:
        """The reading of every answer off it."""
        if self.known is not None:
            return self.known.readings
        assert self.planned is not None
        return self.planned.readings

    @property
    def link(self) -> str | None:
        """The release of another request that answers, and is to be the first the next time.

        Those on a grid are linked by earlier versions alone.
        """
        known = self.known
        is_own = known is None or known.name == self.name or known.is_on_grid
        return None if known is None or is_own else known.name

    def check(self, request: Request) -> None:
        """Refuse what cannot be read off a new plan. Raises: as ``check_methods``."""
        if self.known is None:
            check_methods(request, self.plan, self.readings)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of results on earlier releases."""
        if self.known is not None:
            release, beside = (
                self.known.release,
                "" if self.compared is None else f", {self.compared}",
            )
            paid = decimal_text(release.plan.epsilon)
            entry = f"from entry {release.seq} of the ledger (epsilon {paid}){beside}"
            rounded = (ON_GRID,) if self.known.is_on_grid else ()
            return (f"{entry}; SET fresh = on pays for new noise", *rounded)
        if self.other is not None:
            return (f"{self._offer}; SET reuse = always takes it, free",)
        return ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """The lines of a forecast on earlier releases."""
        if self.known is not None and self.compared is not None:
            return (("reuse", f"{self.compared}; SET fresh = on pays for new noise"),)
        if self.other is not None:
            return (("reuse", f"{self._offer}; SET reuse = always takes it, free"),)
        return ()

    @property
    def _offer(self) -> str:
        assert self.other is not None
        return f"entry {self.other.release.seq} of the ledger answers this {self.compared}"


class MeasuringStep(Step[Release]):
    """A step that measures one plan."""

    __slots__ = ()

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """The plan that is measured."""

    @property
    def released(self) -> tuple[str, ...]:
        """The domains that had to be found, of columns that it is about."""
        return ()

    @property
    def price(self) -> Price:
        """The price of the plan."""
        return price_of_plan(self.plan)

    @property
    def room(self) -> int:
        """The bytes that its release may take, from public sizes."""
        return most_bytes(self.plan)

    def shelf(self, planner: Planner) -> StoreTable[Release]:
        """Return the shelf of releases."""
        return planner.store.releases

    def check(self, planner: Planner, doors: Doors) -> None:
        """Refuse a plan that does not fit the tables."""
        doors.certify(self.plan)

    def perform(self, planner: Planner, doors: Doors, receipt: Receipt) -> Release:
        """Measure the plan."""
        values = doors.measure(self.plan, receipt)
        scopes = planner.scopes([part.table for part in self.plan.parts], self.released)
        return Release(self.plan, values, receipt.ledger_id, receipt.seq, receipt.head, scopes)


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadJob(MeasuringStep, Job[Release]):
    """A workload, and what was decided to answer it: a published release, or a new plan."""

    request: Request
    reuse: str
    choice: Choice | None = None

    @property
    def fresh(self) -> bool:
        """True if it is measured anew, whatever was published."""
        return self.reuse == "never"

    @property
    def asked(self) -> tuple[str, ...]:
        """The statements, as the ledger notes them."""
        return tuple(item.text for item in self.request.statements)

    @property
    def plan(self) -> Plan:
        """The plan that is measured, or was."""
        return self._chosen.plan

    @property
    def _chosen(self) -> Choice:
        assert self.choice is not None
        return self.choice

    @property
    def released(self) -> tuple[str, ...]:
        """The domains that had to be found, of columns that the request mentions."""
        return self.request.released

    def decided(self, planner: Planner) -> WorkloadJob:
        """The job with its choice; what cannot be read off a new plan is refused."""
        choice = choose(planner, self.request, self.reuse)
        choice.check(self.request)
        return replace(self, choice=choice)

    def keys(self, planner: Planner) -> tuple[str, ...]:
        """Return the names that identical requests on the same data share."""
        return (self._chosen.name,)

    def known(self, planner: Planner) -> Release | None:
        """The release that was chosen."""
        known = self._chosen.known
        return None if known is None else known.release

    def find(self, planner: Planner) -> Release | None:
        """The release that was chosen, else what another process has measured since."""
        choice, store = self._chosen, planner.store.releases
        if choice.known is None and choice.changes == store.file.counter.read():
            return None  # nothing was stored since
        known = choice.known or find_own(planner, self.request, choice.name)
        return None if known is None else known.release

    def results(self, planner: Planner, found: Release, free: bool) -> tuple[Result, ...]:
        """The answers, and what has to be said of earlier releases."""
        choice = self._chosen
        if free and choice.known is None:
            from dpsql.answer.implied import imply  # nothing is known to a new catalog

            choice = Choice(choice.name, imply(self.request, choice.name, found))
        if choice.link is not None:
            planner.store.releases.link(choice.name, choice.link)
        results = self._read(planner, choice, found, free)
        heads = [each.rpartition("@")[2] for each in self.released]
        aged = planner.aged([planner.found[head] for head in heads if head in planner.found])
        notes = (*choice.notes, *aged, *planner.unread_notes(self.request.tables))
        pairs = zip(results, self._advice(found.plan), strict=True)
        return tuple(
            r if r.cost is None else replace(r, notes=(*r.notes, *notes, *advice))
            for r, advice in pairs
        )

    def _advice(self, plan: Plan) -> list[tuple[str, ...]]:
        """For every statement what to type where its bounds are wide."""
        statements = self.request.statements
        answers = [answer for item in statements for _, answer in item.answers()]
        if not any(term.polynomials for answer in answers for term in answer.terms):
            return [()] * len(statements)
        from dpsql.engine.clip_column import advise_clip  # few statements add up measures

        found = [advise_clip(item, plan) for item in statements]
        return [() if each is None else (each,) for each in found]

    def _read(
        self, planner: Planner, choice: Choice, release: Release, free: bool
    ) -> tuple[Result, ...]:
        plan, readings = release.plan, choice.readings
        needed = {index for index, _, _ in readings.values()}
        estimates = {
            index: each
            for index, each in enumerate(plan.estimates(release.values))
            if index in needed
        }
        cost = CostInfo(plan.epsilon, plan.delta, plan.noise, free)
        receipt = ReceiptInfo(release.ledger_id, release.seq, release.head)
        return assemble_results(
            self.request,
            readings,
            estimates,
            cost,
            receipt,
            planner.sealed,
            planner.models,
            release,
        )

    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast, with thresholds that statements give."""
        from dpsql.engine.clip import given_levels  # most are asked for answers

        return self.forecast(planner, assumed).adding(given_levels(self.request.statements))

    def forecast(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast: of a new measurement, or of the release that answers."""
        from dpsql.engine.explain import explain  # most are asked for answers

        remaining = planner.remaining(self.request.tables)
        choice = foresee(planner, self.request, self.reuse)
        known, planned = choice.known, choice.planned
        if known is not None:
            plan = known.release.plan
            published = (known.release.seq, plan, known.readings)
            found = planner.apart(explain, self.request, None, assumed, remaining, published)
        else:
            assert planned is not None
            choice.check(self.request)
            plan = planned.plan
            found = planner.apart(forecast, self.request, planned, assumed, remaining)
            found = found.adding(planner.said_of(planned.plan))
            if self.request.mechanism in PUBLISHED:
                found = found.adding(self._beside_auto(planner, assumed, found))
        advice = dict.fromkeys(each for some in self._advice(plan) for each in some)
        if any(item.demands for item in self.request.statements):
            from dpsql.engine.error_targets import told  # few statements demand an error
            from dpsql.engine.explanation import SHOWN

            readings = choice.readings
            found = found.adding(told(self.request, plan, readings, planner.sealed, SHOWN))
        return found.adding(choice.rows).adding(("hint", each) for each in advice)

    def _beside_auto(self, planner: Planner, assumed: bool, own: Explanation) -> tuple[Row, ...]:
        """Forecast the same under ``mechanism = 'auto'``, in place of the algorithm named."""
        from dpsql.engine.explain import explain
        from dpsql.engine.explanation import SHOWN

        request = replace(self.request, mechanism="auto")
        auto = planner.apart(explain, request, planner.plan(request), assumed, own.remaining)
        strategy = f"mechanism = 'auto' has {auto.method}, {auto.noise} noise"
        if not own.mixed:
            ratio = own.rmse / auto.rmse
            times = "as here" if abs(ratio - 1) < SAME else f"{ratio:.3g} times as much here"
            return (("auto", strategy), ("", f"{auto.rmse:.4g} expected, {times}"))
        mine, its = ([e for s in each.statements for e in s.errors] for each in (own, auto))
        columns = [
            f"{b.name} \u00b1 {b.rmse:.4g}, here {a.rmse:.4g}"
            for a, b in zip(mine, its, strict=True)
        ]
        return (("auto", strategy), *(("", each) for each in columns[:SHOWN]))


def forecast(
    request: Request, planned: PlannedRequest, assumed: bool, remaining: Fraction
) -> Explanation:
    """The forecast of a new measurement, with advice where a model would do better."""
    from dpsql.engine.adaptive import advise  # forecasts alone look at what would be learned
    from dpsql.engine.explain import explain

    return advise(request, planned, explain(request, planned, assumed, remaining))


def choose(planner: Planner, request: Request, reuse: str) -> Choice:
    """Choose the release that answers a request again, or plan a new measurement.

    The release of an identical request answers at once. Any other that determines the request
    does where no number has a larger error than a new measurement would have, the one that did
    before first, so that repetitions agree; with ``reuse = always`` in any case. So does one that
    was paid for by the same statements on the same terms, however they are planned by now.
    Public facts and published numbers alone decide. Raises: as planning; DataUnavailable.
    """
    names, scopes = planner.known_by(request)
    name = names[0]
    if reuse == "never":
        return Choice(name, planned=planner.plan(request))
    releases, may = planner.store.releases, partial(may_determine, request)
    stored = releases.candidates(names, scopes, may)
    changes = stored.changes
    if stored.own is not None:
        found = _own(planner, request, name, stored.own)
        if found is not None:
            return Choice(name, found)
        stored = releases.candidates(names, scopes, may, own=False)
    implied = tuple(
        each
        for each in _determining(planner, request, stored)
        if not each.is_on_grid
        or each.name in stored.answered
        or _is_owned(planner, request, each.release)
    )
    planned = _plan(planner, request, bool(implied))
    if planned is None:
        return Choice(name, implied[0])
    if not implied:
        return Choice(name, None, planned, changes=changes)
    from dpsql.answer.accuracy import compare, shown_ratio  # nothing is known to a new catalog

    if reuse == "always":
        return Choice(name, implied[0], planned, None, compare(request, implied[0], planned))
    beside = [(known, compare(request, known, planned)) for known in implied]
    for at, (known, compared) in enumerate(beside):
        if compared.is_no_worse:
            shown = shown_ratio(request, known, planned, planner.sealed, planner.models)
            compared = replace(compared, most=max(compared.most, shown))
            beside[at] = known, compared
        if compared.is_no_worse:
            return Choice(name, known, planned, None, compared)
    for known, compared in beside:
        if _is_owned(planner, request, known.release):
            return Choice(name, known, planned, None, compared)
    return replace(Choice(name, None, planned, *beside[0]), changes=changes)


def may_determine(request: Request, kinds: Sequence[PartFacts]) -> bool:
    """True unless parts of these kinds cannot determine a request, whatever was measured in them.

    Several together may have what one lacks.
    """
    if not all(kind.noise in request.noises for kind in kinds):
        return False
    return all(
        any(kind.admits(target) for kind in kinds)
        or sum(kind.is_about(target) for kind in kinds) > 1
        for target in request.targets
    )


def _is_owned(planner: Planner, request: Request, release: Release) -> bool:
    """True if a release was paid for by the statements of a request, on the usual terms.

    A version that plans better would give smaller errors for more budget: nobody has to buy again
    what is theirs.
    """
    plan = release.plan
    if plan.epsilon < request.epsilon or plan.delta != request.delta:
        return False
    usual = request.metric in ("fair", "mean")  # each was the default of some version
    if not usual or (request.mechanism, request.aims) != ("auto", {}):
        return False
    return planner.was_paid(release.seq, [item.text for item in request.statements])


def find_own(planner: Planner, request: Request, name: str) -> ImpliedRelease | None:
    """The release that was made for an identical request."""
    own = planner.store.releases.find(name)
    return None if own is None else _own(planner, request, name, own)


def _own(planner: Planner, request: Request, name: str, release: Release) -> ImpliedRelease | None:
    from dpsql.answer.implied import imply  # nothing is known to a new catalog

    found = imply(request, name, release)
    return found if found is not None and _keeps(planner, request, found) else None


def foresee(planner: Planner, request: Request, reuse: str) -> Choice:
    """Choose what will answer a request; a new measurement while the data cannot be opened."""
    if reuse != "never" and planner.store.releases.file.path.exists():
        try:
            return choose(planner, request, reuse)
        except DataUnavailable:
            pass
    return Choice("", planned=planner.plan(request))


def _determining(
    planner: Planner, request: Request, stored: StoredReleases
) -> Iterator[ImpliedRelease]:
    """The releases that determine a request: the one it was answered from, then the best.

    Those that were measured with a domain that was dropped since are of other rows.
    """
    others = {name: each for name, each in stored.latest.items() if name not in stored.linked}
    groups = [each for each in (stored.linked, others) if each]
    if not groups:
        return
    from dpsql.answer.implied import find_implied  # nothing is known to a new catalog

    declared = set(planner.scopes((), planner.released))
    for group in groups:
        found = {n: e for n, e in group.items() if declared >= {*e.scopes[len(e.plan.parts) :]}}
        yield from (each for each in find_implied(request, found) if _keeps(planner, request, each))


def _keeps(planner: Planner, request: Request, known: ImpliedRelease) -> bool:
    """True if a release keeps to what a request demands of any: errors, and how it is read."""
    plan, readings = known.release.plan, known.readings
    try:
        check_methods(request, plan, readings)
    except (NotSupportedError, ProgrammingError):
        return False
    from dpsql.engine.error_targets import worst_ratio  # nothing is known to a new catalog

    return worst_ratio(request, plan, readings, planner.sealed) <= 1


def _plan(planner: Planner, request: Request, is_determined: bool) -> PlannedRequest | None:
    """Plan a new measurement; None where there can be none, if a release answers as well."""
    try:
        return planner.plan(request)
    except (NotSupportedError, ProgrammingError):
        if is_determined:
            return None
        raise
