"""Stages 4 to 6: compiled statements and a budget -> a plan over all tables they mention."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.errors import DataError, NotSupportedError, ProgrammingError
from dpsql.plan.candidate_plan import CandidatePlan, count_units
from dpsql.plan.choice import Chooser
from dpsql.plan.division import (
    GAIN,
    ONE,
    BudgetDivision,
    SeparatePlan,
    divided,
    eased,
    in_groups,
    in_pieces,
    least_parts,
    split_error,
)
from dpsql.plan.drawn_variance import best_drawn
from dpsql.plan.error_aims import aimed
from dpsql.plan.memory import ResultSize, check_request, limit_of, result_size
from dpsql.plan.plan import SHARE_GRID, Plan, shared_error, split_amount
from dpsql.plan.shown_columns import emphasis_of, shown_columns
from dpsql.plan.statement_split import StatementSplit
from dpsql.plan.target import (
    Readings,
    Target,
    Views,
    find_released,
    find_targets,
    find_views,
    fingerprint_learned,
    reading_variances,
)
from dpsql.privacy.budget.accounting import rho_for
from dpsql.records import cached_property, dataclass, field, replace
from dpsql.search.work_limit import (
    BRIEF,
    IN_ALL,
    PLANNING,
    limited,
    metered,
    one_thread,
    portion,
    share,
    work_of,
)
from dpsql.settings.rounds import AUTO, Rounds
from dpsql.settings.table import FIXED, LEARNED, PUBLISHED
from dpsql.strategy.noise_law import Noise, admitted, law, needs_delta
from dpsql.workload.layout import Layout, Place

if TYPE_CHECKING:
    from dpsql.sql.compiled import Answer, Compiled


METRIC = "fair"
"""The metric that is least by default; it is no part of what is asked, as ``mean`` was not before:
what was released then answers now.
"""
HALVINGS = 3
"""Most searches with half the room of the last, where the best plan is refused for its memory."""
LEAN = ("identity", "union")
"""Families that are planned there too: their rows are not written out."""


@dataclass(frozen=True)
class Request:
    """Statements to answer together, with one (epsilon, delta).

    ``noise`` is laplace, gaussian, or auto: the least expected error, Laplace when delta is 0.
    ``mechanism`` names the family of strategies to choose from, or one of ``LEARNED``;
    ``effort`` scales the search. ``reconstruct`` says how answers follow from the release, where
    a statement does not say so itself; it is no part of what is asked. ``part`` is the
    zero-concentrated budget where that is a part of what (epsilon, delta) admits; ``metric`` is
    the error to keep small, ``rounds`` how often a learned model may look; ``memory`` the bytes
    that it may need, where that is set. That is no part of what is asked either.
    A place is a pair (statement, answer).
    Raises: DataError (E_DELTA) for Gaussian noise without a delta; ProgrammingError
    (E_TOO_LARGE) when the results alone would not fit into memory, (E_SETTING) for options that
    contradict the mechanism.
    """

    statements: tuple[Compiled, ...]
    epsilon: Fraction
    delta: Fraction
    noise: str
    mechanism: str = "auto"
    effort: Fraction = Fraction(1)
    reconstruct: str = "gls"
    part: Fraction | None = None
    metric: str = METRIC
    rounds: Rounds = AUTO
    memory: int | None = None

    def __post_init__(self) -> None:
        if needs_delta(self.noise) and self.delta == 0:
            raise DataError(
                "E_DELTA", "Gaussian noise needs a delta above 0", hint="SET delta = 1e-9"
            )
        if self.is_learned:
            self._check_learned()
        elif self.tables and self.rounds.declared:
            self.rounds.check(self.mechanism)
        check_request(self.size, self.memory_limit)

    @cached_property
    def memory_limit(self) -> int:
        """The bytes that it may need."""
        return limit_of(self.memory)

    @property
    def rho(self) -> Fraction:
        """The zero-concentrated budget of Gaussian noise."""
        return rho_for(self.epsilon, self.delta) if self.part is None else self.part

    @property
    def is_learned(self) -> bool:
        """True if answers come from a model that an adaptive mechanism learns."""
        return self.mechanism in LEARNED

    @cached_property
    def aims(self) -> dict[Place, float]:
        """The largest variances that are wanted, up to a common factor; none where means count.

        Those of ``max_stddev`` and ``within`` where a statement has one, else equal ones, weighted,
        where ``metric`` is max.
        """
        if self.is_learned:
            return {}
        wanted = {
            (i, j): wanted**2
            for i, item in enumerate(self.statements)
            if item.demands
            for j in item.shown()
            if (wanted := _demanded(item, j)) is not None
        }
        if wanted or self.metric != "max":
            return wanted
        asked = [pair for target in self.targets for pair in target.asked.items()]
        return {place: each.weight**-2 for place, each in asked}

    @property
    def is_aimed(self) -> bool:
        """True if errors are aimed at: the budget is looked for, and plans do not depend on it."""
        return bool(self.aims) or any(item.demands for item in self.statements)

    def method_of(self, statement: Compiled) -> str:
        """Return the method by which the answers of a statement follow from the release."""
        return statement.reconstruct or self.reconstruct

    def reads_model(self, statement: Compiled) -> bool:
        """True if the answers of a statement are those of a graphical model of the release."""
        return self.method_of(statement) in ("pgm", "mbi")

    @property
    def is_modelled(self) -> bool:
        """True if some answers are those of a graphical model of the release."""
        return any(self.reads_model(item) for item in self.statements)

    def _check_learned(self) -> None:
        for item in self.statements:
            given = {
                "reconstruct": item.reconstruct is not None,
                "max_stddev": item.max_stddev is not None,
                "within": item.within is not None,
                "weight": item.weight != 1,
            }
            for name in [name for name, is_given in given.items() if is_given]:
                raise ProgrammingError(
                    "E_SETTING",
                    f"{name} contradicts mechanism = '{self.mechanism}', which learns a model",
                    hint=f"leave {name} out, or use mechanism = 'auto'",
                )

    @cached_property
    def size(self) -> ResultSize:
        """The sizes of the results."""
        return result_size(self.statements, self.views)

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """The targets to measure, in the order they are mentioned."""
        found = find_targets(self.statements, self.views)
        if all(len(target.asked) == 1 for target in found):
            return found
        return tuple(part for target in found for part in divided(target))

    @cached_property
    def released(self) -> tuple[str, ...]:
        """The domains that had to be found, each with its release: another is another request."""
        return find_released(self.statements)

    @cached_property
    def views(self) -> Views:
        """The columns that decide which rows count, by table."""
        return find_views(self.statements)

    @property
    def is_mixed(self) -> bool:
        """True if answers differ in unit, so that one figure for all means little."""
        return len({a.weight for target in self.targets for a in target.asked.values()}) > 1

    @property
    def adds_measures(self) -> bool:
        """True if bounded values are added up: a clip may have less error than their bounds."""
        terms = (term for answer in self.answers.values() for term in answer.terms)
        return any(any(p.coefficients[1:]) for t in terms for p in t.polynomials.values())

    @cached_property
    def answers(self) -> Mapping[Place, Answer]:
        """Every answer by its place."""
        return {
            (i, j): answer
            for i, item in enumerate(self.statements)
            for j, (_, answer) in enumerate(item.answers())
        }

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The case-folded names of the tables that have to be measured."""
        asked = (pair for item in self.statements for pair in item.answers())
        return tuple(
            dict.fromkeys(s.query.table for s, a in asked if a.whole and not s.table.synthetic)
        )

    @cached_property
    def noises(self) -> tuple[Noise, ...]:
        """The noise laws to choose from."""
        return admitted(self.noise, self.delta)

    def budget(self, noise: Noise) -> Fraction:
        """The epsilon or rho that a noise law spends."""
        return self.epsilon if law(noise).is_pure else self.rho

    def fingerprint(self) -> str:
        """A digest of what is asked and on what terms, whatever the strategy will be."""
        terms = [str(self.epsilon), str(self.delta), self.noise, self.mechanism]
        terms += [] if self.part is None else [str(self.part)]
        terms += [] if self.metric == METRIC else [self.metric]
        terms += [f"{place} within {aim}" for place, aim in sorted(self.aims.items())]
        terms += [f"{name} = {text}" for name, text in self.rounds.declared.items()]
        if self.is_learned:
            asked = [fingerprint_learned(self.statements)]
        else:
            asked = [target.fingerprint() for target in self.targets]
        facts = (terms, asked, self.released) if self.released else (terms, asked)
        return hashlib.sha256(repr(facts).encode()).hexdigest()


@dataclass(frozen=True)
class PlannedRequest:
    """A plan and, part by part, the target that it measures with its layout.

    ``is_cut`` says that more would have been tried, had more effort been allowed, ``is_tight``
    had there been more memory. ``alone`` are the mean variances that answers would have, each
    statement by itself with its share of the budget, where there are several.
    """

    plan: Plan
    targets: tuple[Target, ...]
    layouts: tuple[Layout, ...]
    is_cut: bool = False
    is_tight: bool = False
    alone: Mapping[Place, float] = field(default_factory=dict)

    @cached_property
    def readings(self) -> Readings:
        """The reading of every answer off the parts."""
        return {
            place: (index, reading, layout.order)
            for index, layout in enumerate(self.layouts)
            for place, reading in layout.products.items()
        }


def make_plan(request: Request) -> PlannedRequest:
    """Select the strategies with the least expected error for the whole request.

    A noise law for which there is no plan leaves the choice to the others.
    Raises: ProgrammingError (E_TOO_LARGE).
    """
    domains = [each.workload.domain for target in request.targets for each in target.layouts]
    with limited(work_of(IN_ALL, request.effort)), one_thread(domains):
        if len(request.noises) == 1:
            return _checked_plan(request, request.noises[0])
        return _best_noise(request)


def _demanded(item: Compiled, place: int) -> float | None:
    """The standard error that an answer may have; a part of a count is of an equal group's rows."""
    select, answer = item.answers()[place]
    counts = not answer.units and answer.distinct is None
    counts &= all(not term.polynomials and term.largest == 1 for term in answer.whole)
    found = [] if item.max_stddev is None else [item.max_stddev]
    if item.within is not None and counts and select.table.row_count_hint is not None:
        rows = select.branches[answer.branch].rows
        found.append(item.within * select.table.row_count_hint / rows)
    return min(found, default=None)


def _best_noise(request: Request) -> PlannedRequest:
    """Return the plan of the noise law with the least expected error."""
    found: list[PlannedRequest] = []
    failures: list[Exception] = []
    for number, noise in enumerate(request.noises):
        try:
            with share(1 / (len(request.noises) - number)):
                found.append(_checked_plan(request, noise))
        except (ProgrammingError, NotSupportedError, ValueError, ArithmeticError) as failure:
            failures.append(failure)
    if not found:
        raise failures[0]
    return min(found, key=lambda each: expected_error(request, each, found[0].alone))


def _checked_plan(request: Request, noise: Noise) -> PlannedRequest:
    """Plan for one noise law: the best plan, or the best of leaner ones where that does not fit.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    planned = _plan_with(request, noise)
    try:
        return _fitting(request, planned)
    except ProgrammingError:
        found = list(_leaner(request, noise)) if request.mechanism == "auto" else []
        if not found:
            raise
    return replace(min(found, key=partial(expected_error, request)), is_tight=True)


def _leaner(request: Request, noise: Noise) -> Iterator[PlannedRequest]:
    """Yield plans that fit into memory: of cells alone, and of searches that have less room.

    These hold cells at least: where cells do not fit, which are planned at once, none is begun.
    """
    found = False
    for family in LEAN:
        with suppress(ProgrammingError, NotSupportedError):
            yield _fitting(request, _plan_with(replace(request, mechanism=family), noise))
            found = True
    for halvings in range(1, 1 + HALVINGS if found else 1):
        with suppress(ProgrammingError, NotSupportedError):
            yield _fitting(request, _plan_with(request, noise, request.memory_limit >> halvings))
            break


def _fitting(request: Request, planned: PlannedRequest) -> PlannedRequest:
    """Return a plan that fits into memory. Raises: ProgrammingError (E_TOO_LARGE)."""
    parts = planned.plan.parts
    wide = any(part.is_wide for part in parts)
    check_request(request.size, request.memory_limit, [part.strategy for part in parts], wide)
    return planned


def _plan_with(request: Request, noise: Noise, room: int | None = None) -> PlannedRequest:
    rho = None if law(noise).is_pure else request.rho
    amount = request.epsilon if rho is None else rho
    with metered(work_of(PLANNING, request.effort), room or request.memory_limit) as meter:
        found, alone = _together(request, noise, amount)
    plan = Plan(found.parts, noise, request.epsilon, request.delta, rho)
    targets = tuple(piece.target for piece in found.pieces)
    layouts = tuple(piece.chosen.layout for piece in found.pieces)
    return PlannedRequest(plan, targets, layouts, meter.is_cut, meter.is_tight, alone)


def _together(
    request: Request, noise: Noise, amount: Fraction
) -> tuple[BudgetDivision, Mapping[Place, float]]:
    """Plan all targets, so that no shown column loses where statements share a budget.

    With the mean variances that answers have with each statement by itself.
    """
    plan = partial(_shared, request, noise)
    is_fair = request.metric == "fair" and len(request.statements) > 1 and not request.is_aimed
    if not is_fair or request.mechanism != "auto" or request.is_modelled:
        return plan(request.targets, amount), {}
    whole = find_targets(request.statements, request.views)
    brief = partial(_shared, replace(request, effort=min(request.effort, Fraction(BRIEF))), noise)
    apart = StatementSplit.of(request.statements, whole, noise, amount, plan, brief)
    if apart is None:
        return plan(request.targets, amount), {}
    if apart.is_coarse:  # all of the budget has far less noise than shares: one plan may be enough
        one = plan(request.targets, amount)
        if apart.is_fair(one):
            return one, apart.baseline
    found = _in_company(request, noise, amount, apart)
    if found is None or not apart.is_fair(found):
        found = apart.shared()
    if not apart.is_fair(found):
        found = apart.shared(exactly=True)
    return found, apart.baseline


def _in_company(
    request: Request, noise: Noise, amount: Fraction, apart: StatementSplit
) -> BudgetDivision | None:
    """Return what is planned for all statements together; None where it gains nothing."""
    targets = [apart.weighed(target) for target in request.targets]
    choose = partial(_known_or_chosen, request, noise, amount, apart)

    def planned(target: Target) -> list[SeparatePlan]:
        one = SeparatePlan(target, target, choose(target), amount)
        if len(target.asked) == 1:
            return [one]
        alone = (target.alone or {}).values()
        return in_groups(one, choose, alone, apart.share_of(target)) or apart.split(target, choose)

    groups = eased(_in_turns(targets, planned))
    pieces = [piece for group in groups for piece in group]
    least = least_parts(groups, noise)
    errors = [piece.chosen.error for piece in pieces]
    if shared_error(errors, least, noise) > GAIN * apart.error:
        return None
    return BudgetDivision(tuple(pieces), tuple(split_amount(amount, errors, noise, least)))


def _known_or_chosen(
    request: Request,
    noise: Noise,
    amount: Fraction,
    apart: StatementSplit,
    target: Target,
    earnest: bool = False,
) -> CandidatePlan:
    """Plan answers by themselves, if that was not done already."""
    known = apart.known(target)
    if known is not None:
        return known
    alone = target.alone or {}
    split = [each for places, each in alone.items() if places <= target.asked.keys()]
    part = apart.share_of(target)
    most = GAIN * split_error(split, part, noise) if len(split) > 1 else math.inf
    own = Fraction(part).limit_denominator(SHARE_GRID)
    return choose_one(request, apart.limited(target, part), noise, amount * own, earnest, most)


def _shared(
    request: Request, noise: Noise, targets: Sequence[Target], total: Fraction
) -> BudgetDivision:
    """Plan targets that share an amount."""
    count = len(targets)
    amount = total / max(1, count)
    groups = _in_turns(targets, lambda target: _pieces(request, target, noise, amount))
    if len(groups) > 1 and not request.is_aimed:
        groups = eased(groups)
    pieces = [piece for group in groups for piece in group]
    errors = [piece.chosen.error for piece in pieces]
    least = () if len(pieces) == 1 or request.is_aimed else least_parts(groups, noise)
    return BudgetDivision(tuple(pieces), tuple(split_amount(total, errors, noise, least)))


def _in_turns(
    targets: Sequence[Target], planned: Callable[[Target], list[SeparatePlan]]
) -> list[list[SeparatePlan]]:
    """Plan every target in a share of the work: those of few answers leave others what is left."""
    found: dict[int, list[SeparatePlan]] = {}
    order = sorted(range(len(targets)), key=lambda place: len(targets[place].asked))
    for left, place in zip(reversed(range(len(order))), order, strict=True):
        with share(1 / (1 + left)) if left else nullcontext(), portion(1.0):
            found[place] = planned(targets[place])
    return [found[place] for place in range(len(targets))]


def _pieces(request: Request, target: Target, noise: Noise, amount: Fraction) -> list[SeparatePlan]:
    """Return a target as one piece, or as pieces where these gain or keep answers within limits."""
    is_one = (
        request.mechanism != "auto" or request.is_aimed or target.units or len(target.asked) == 1
    )

    def choose(part: Target, earnest: bool = False) -> CandidatePlan:
        return choose_one(request, part, noise, amount, earnest)

    with nullcontext() if is_one else share(ONE):
        one = SeparatePlan(target, target, choose(target, bool(is_one)), amount)
    if is_one:
        return [one]
    agree = request.is_modelled  # a model is fitted to all that is measured
    return in_pieces(one, choose, agree)


def choose_one(
    request: Request,
    target: Target,
    noise: Noise,
    amount: Fraction,
    earnest: bool = True,
    most: float = math.inf,
) -> CandidatePlan:
    """The layout and the strategy with the least expected error, at about this budget.

    Where errors are aimed at, the budget is still looked for, and plans do not depend on it. Unless
    in ``earnest``, there is no search where it seems hopeless. With a larger error than the
    ``most`` it is not to be taken, and limits are not looked at.
    """
    if target.units:
        return count_units(target, noise)
    mechanism = FIXED.get(request.mechanism, request.mechanism)
    chooser = Chooser(target, noise, mechanism, float(request.effort), request.is_modelled)
    aims = {place: aim for place, aim in request.aims.items() if place in target.asked}
    if mechanism in PUBLISHED:
        best = chooser.as_published()
    elif aims:
        best = aimed(chooser, aims)
    else:
        best = chooser.best() if request.is_aimed else best_drawn(chooser, amount, earnest, most)
    return replace(best, error=best.error * target.rows_per_unit**2)


def expected_error(
    request: Request, planned: PlannedRequest, alone: Mapping[Place, float] | None = None
) -> float:
    """The total expected squared error of all answers of a request, weighted.

    Where errors ``alone`` are given, each column counts by them.
    """
    targets: Sequence[Target] = planned.targets
    rows = {place: n for each in planned.layouts for place, n in each.rows.items()}
    weights = {place: w.weight for target in targets for place, w in target.asked.items()}
    if alone:
        columns = shown_columns(dict(enumerate(request.statements)), request.targets)
        weights = emphasis_of(columns, alone, rows)
    total = 0.0
    for forecast, layout in zip(planned.plan.forecasts, planned.layouts, strict=True):
        found = reading_variances(forecast, list(layout.products.values()))
        for place, variance in zip(layout.products, found, strict=True):
            total += weights.get(place, 0.0) ** 2 * float(variance.sum())
    return total
