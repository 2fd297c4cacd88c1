"""Which published release answers a request, if one does: none less accurate than a new one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.answer.accuracy import Compared, compare, shown_ratio
from dpsql.answer.codec import Release
from dpsql.answer.implied import Implied, find_implied, imply
from dpsql.answer.reprocess import check_methods
from dpsql.engine.turns import turn
from dpsql.errors import DataUnavailable, NotSupportedError, ProgrammingError, decimal_text
from dpsql.plan.goal import worst_ratio
from dpsql.plan.request import Planned, Request
from dpsql.workload.target import Readings

if TYPE_CHECKING:
    from dpsql.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Choice:
    """What answers a request: a ``known`` release for free, or else what is ``planned``.

    ``other`` is a release that would answer, with larger errors; ``compared`` are the errors of
    the one or the other beside those of a new measurement, where that was planned.
    """

    name: str
    known: Implied | None = None
    planned: Planned | None = None
    other: Implied | None = None
    compared: Compared | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What results say of earlier releases."""
        if self.known is not None:
            release, beside = (
                self.known.release,
                "" if self.compared is None else f", {self.compared}",
            )
            paid = decimal_text(release.plan.epsilon)
            entry = f"from entry {release.seq} of the ledger (epsilon {paid}){beside}"
            return (f"{entry}; SET fresh = on pays for new noise",)
        if self.other is not None:
            return (f"{self._offer}; SET reuse = always takes it, free",)
        return ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What a forecast says of earlier releases."""
        if self.known is not None and self.compared is not None:
            return (f"reuse       {self.compared}; SET fresh = on pays for new noise",)
        if self.other is not None:
            return (f"reuse       {self._offer}; SET reuse = always takes it, free",)
        return ()

    @property
    def _offer(self) -> str:
        assert self.other is not None
        return f"entry {self.other.release.seq} of the ledger answers this {self.compared}"


def choose(engine: Engine, request: Request, reuse: str) -> Choice:
    """Choose the release that answers a request again, or plan a new measurement.

    The release of an identical request answers at once. Any other that determines the request
    does where no number has a larger error than a new measurement would have, the one that did
    before first, so that repetitions agree; with ``reuse = always`` in any case.
    Public facts and published numbers alone decide. Raises: as planning; DataUnavailable.
    """
    name = engine.request_name(request)
    if reuse == "never":
        return Choice(name, planned=engine.plan(request))
    own = engine.store.releases.find(name)
    found = None if own is None else imply(request, name, own)
    if found is not None and _keeps(request, found):
        return Choice(name, found)
    implied = tuple(_determining(engine, request, name))
    planned = _plan(engine, request, bool(implied))
    if planned is None:
        return Choice(name, implied[0])
    if reuse == "always" and implied:
        return Choice(name, implied[0], planned, None, compare(request, implied[0], planned))
    beside = [(known, compare(request, known, planned)) for known in implied]
    sealed = engine.compiler.evaluator.sealed
    for at, (known, compared) in enumerate(beside):
        if compared.is_no_worse:
            shown = shown_ratio(request, known, planned, sealed, engine.models)
            compared = replace(compared, most=max(compared.most, shown))
            beside[at] = known, compared
        if compared.is_no_worse:
            return Choice(name, known, planned, None, compared)
    return Choice(name, None, planned, *(beside[0] if beside else ()))


def settle(engine: Engine, request: Request, reuse: str) -> tuple[Choice, Readings, Release]:
    """Choose, and measure where no release answers; whoever measures the same is waited for.

    Raises: as ``choose``; BudgetExceeded, LedgerError.
    """
    choice = choose(engine, request, reuse)
    if choice.known is None and reuse == "never":
        return _measure(engine, request, choice)
    if choice.known is None:
        with turn(engine.store.releases.file.path, choice.name):
            if engine.store.releases.find(choice.name) is not None:  # another process was first
                choice = choose(engine, request, reuse)
            if choice.known is None:
                return _measure(engine, request, choice)
    known = choice.known
    engine.status()  # a ledger that is missing or damaged answers nothing, not even for free
    if known.name != choice.name:
        engine.store.releases.link(choice.name, known.name)
    return choice, known.readings, known.release


def _measure(engine: Engine, request: Request, choice: Choice) -> tuple[Choice, Readings, Release]:
    assert choice.planned is not None
    plan, readings = choice.planned.plan, choice.planned.readings
    check_methods(request, plan, readings)
    return choice, readings, engine.release(plan, choice.name)


def foresee_choice(engine: Engine, request: Request, reuse: str) -> Choice:
    """What will answer a request; a new measurement while the data cannot be opened."""
    if reuse != "never" and engine.store.releases.file.path.exists():
        try:
            return choose(engine, request, reuse)
        except DataUnavailable:
            pass
    return Choice("", planned=engine.plan(request))


def _determining(engine: Engine, request: Request, name: str) -> Iterator[Implied]:
    """The releases that determine a request: the one it was answered from, then the best."""
    linked = engine.store.releases.linked(name)
    first = () if linked is None else find_implied(request, [linked])
    latest = engine.store.releases.latest(engine.scopes(request.tables))
    rest = find_implied(request, latest)
    yield from (known for known in first if _keeps(request, known))
    yield from (
        known
        for known in rest
        if (linked is None or known.name != linked[0]) and _keeps(request, known)
    )


def _keeps(request: Request, known: Implied) -> bool:
    """Whether a release keeps to what a request demands of any: max_stddev, and how it is read."""
    plan, readings = known.release.plan, known.readings
    try:
        check_methods(request, plan, readings)
    except (NotSupportedError, ProgrammingError):
        return False
    return worst_ratio(request, plan, readings) <= 1


def _plan(engine: Engine, request: Request, is_determined: bool) -> Planned | None:
    """Plan a new measurement; None where there can be none, if a release answers as well."""
    try:
        return engine.plan(request)
    except (NotSupportedError, ProgrammingError):
        if is_determined:
            return None
        raise
