"""Statements with a clip: one run that answers, or a threshold and then the ordinary plan."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dpsql.answer.clipped import ClippedSums, number_text
from dpsql.answer.reprocess import check_methods
from dpsql.answer.result import CostInfo, Result
from dpsql.engine.clip import BIAS, Clipping, plan_clipping
from dpsql.engine.cut import Cutting, chooses, plan_cutting
from dpsql.engine.explain import Explanation
from dpsql.engine.terms import Terms
from dpsql.engine.turns import once
from dpsql.errors import DataUnavailable
from dpsql.learn.handle import MeasureHandle
from dpsql.plan.request import Request
from dpsql.sql.compiled import Compiled

if TYPE_CHECKING:
    from dpsql.engine.engine import Engine


Priced: TypeAlias = "Clipping | Cutting"
"""One run that ends in clipped sums, or in a threshold."""


def explain_alone(engine: Engine, item: Compiled, terms: Terms) -> Explanation:
    """The forecast of a statement that one run answers."""
    assumed = terms.epsilon is None
    planned = plan_clipping(item, terms.having(epsilon=Fraction(1)) if assumed else terms)
    remaining = engine.status().remaining_within(engine.within([planned.run.table]))
    known = None if terms.fresh else _foreseen(engine, planned)
    return planned.explain(assumed, remaining, None if known is None else known.receipt[1])


def answer_alone(engine: Engine, planned: Clipping, fresh: bool) -> Result:
    """The answer to a statement that one run answers; an identical one is free."""
    engine.status()
    found, free = _once(engine, planned, fresh)
    return planned.result(found, free, engine.compiler.evaluator.sealed)


def explain_both(engine: Engine, request: Request, terms: Terms) -> Explanation:
    """The forecast of a workload; with a threshold: at the declared bound until that is known."""
    if not any(map(chooses, request.statements)):
        plain = engine.explain_request(request, terms)
        return replace(plain, details=(*plain.details, *_given(request)))
    cutting = _plan(engine, request)
    known = None if terms.fresh else _foreseen(engine, cutting)
    if known is None:
        whole = engine.explain_request(cutting.following(request, request.statements), terms)
        details = (*cutting.details(), *whole.details)
        return replace(whole, epsilon=request.epsilon, free=False, entry=None, details=details)
    found = engine.explain_request(_second(engine, cutting, request, known), terms)
    level = number_text(known.levels[0])
    line = f"threshold   {level}, from entry {known.receipt[1]} of the ledger, free"
    return replace(found, details=(line, BIAS, *found.details))


def answer_both(engine: Engine, request: Request, reuse: str) -> tuple[Result, ...]:
    """Choose a threshold, unless that was done, and answer the workload with values clipped there.

    Whatever public facts or the budget refuse is refused before the threshold is charged.
    Guarantee: both charges together are the request's, exactly; the threshold is stored before
    the second, so that a request which is cut off between them continues with what it has.
    """
    cutting = _plan(engine, request)
    fresh = reuse == "never"
    if fresh or _find(engine, cutting) is None:
        whole = cutting.following(request, request.statements)
        planned = engine.plan(whole)
        check_methods(whole, planned.plan, planned.readings)
        engine.check_plan(planned.plan)
        engine.scopes(whole.tables)  # data that cannot be opened are refused here
        both = None if cutting.rho is None else request.rho
        engine.check_budget([cutting.run.table], request.epsilon, both)
    found, free = _once(engine, cutting, fresh)
    second = _second(engine, cutting, request, found)
    results = engine.answer_request(second, reuse)
    return tuple(
        _with_threshold(cutting, request, found, free, item, result)
        for item, result in zip(request.statements, results, strict=True)
    )


def _given(request: Request) -> tuple[str, ...]:
    """What a forecast says of thresholds that statements give as numbers."""
    clips = [item.truncation for item in request.statements if item.truncation is not None]
    found = dict.fromkeys(clip.level for clip in clips if clip.level is not None)
    lines = tuple(f"threshold   {number_text(level)}, as given, free" for level in found)
    return (*lines, BIAS) if lines else ()


def _plan(engine: Engine, request: Request) -> Cutting:
    single = len(request.noises) == 1
    return plan_cutting(request, request.noises[0] if single else engine.plan(request).plan.noise)


def _second(engine: Engine, cutting: Cutting, request: Request, found: ClippedSums) -> Request:
    cut = cutting.cut(found.levels[0])
    cuts = [cut if chooses(item) else None for item in request.statements]
    return cutting.following(request, engine.cut(request.statements, cuts))


def _with_threshold(
    cutting: Cutting, request: Request, found: ClippedSums, free: bool, item: Compiled, r: Result
) -> Result:
    """A result with what it cost in all, and what has to be said about its threshold."""
    if r.cost is None:
        return r
    cost = r.cost
    if not free and cost.free:
        cost = found.cost(False)
    elif not free or cost.free:
        cost = CostInfo(request.epsilon, request.delta, cost.noise, cost.free)
    notes = found.notes(cutting.column, free) if chooses(item) else ()
    return replace(r, cost=cost, notes=(*r.notes, *notes))


def _release(engine: Engine, planned: Priced) -> ClippedSums:
    """Pay for a run, let it look, and store what it ends with before that is settled."""

    def learn(handle: MeasureHandle, receipt: tuple[str, int, str]) -> ClippedSums:
        found = planned.learn(handle, receipt)
        engine.store.clipped.add(planned.name(engine.scopes([planned.run.table])), found)
        return found

    return engine.look(planned.run, planned.epsilon, planned.rho, learn)


def _once(engine: Engine, planned: Priced, fresh: bool) -> tuple[ClippedSums, bool]:
    """What a run ends with, or an identical one has ended with, and whether that was so."""
    if fresh:
        return _release(engine, planned), False
    name = planned.name(engine.scopes([planned.run.table]))
    find, make = partial(_find, engine, planned), partial(_release, engine, planned)
    return once(engine.store.clipped.file.path, name, find, make)


def _find(engine: Engine, planned: Priced) -> ClippedSums | None:
    """What an identical run ended with."""
    return engine.store.clipped.find(planned.name(engine.scopes([planned.run.table])))


def _foreseen(engine: Engine, planned: Priced) -> ClippedSums | None:
    """What an identical run ended with; nothing while the data cannot be opened."""
    try:
        return _find(engine, planned)
    except DataUnavailable:
        return None
