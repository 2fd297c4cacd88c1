"""One adaptive run from beginning to end: public facts in, a model out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpsql.errors import ProgrammingError
from dpsql.learn.antipodes import measure_together, together
from dpsql.learn.candidates import (
    attributes_of,
    check_counted,
    check_written,
    is_marginal,
    norm,
    rows,
)
from dpsql.learn.mechanism_choice import (
    COUNT_SHARE,
    THRESHOLDS,
    Facts,
    Fork,
    MechanismChoice,
    Metric,
    decide,
    fork_of_marginals,
    near_marginal,
    settled,
)
from dpsql.learn.mwem import Settings, check
from dpsql.learn.schedule import constants_of, total_share
from dpsql.learn.transcript import Learned, Recorder
from dpsql.pgm.linear import estimate_total, whole_marginal
from dpsql.pgm.measurements import Candidate, Handle, Measured, Model, Query
from dpsql.pgm.predict import best_power, marginal_errors
from dpsql.pgm.tree import DEFAULT_CAP, model_cells
from dpsql.records import dataclass, replace
from dpsql.settings.rounds import AUTO, Rounds
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.term import Pattern

if TYPE_CHECKING:
    from dpsql.learn.whole_marginals import Backend

Report = Callable[[str], None]

FIXED_COMPONENTS, FIXED_STEPS = 400, 300
"""The mixture that is fitted once to all answers of a fixed strategy."""

MOST_TOGETHER = 6
"""Attributes of a query up to which all their subsets are marginals to choose from."""

FEW_CELLS = 1000
"""Cells of tables together of which single ones are as good a choice as any."""

MOST_AT_ONCE = 64
"""Tables of a named model up to which measuring all of them at once is considered."""


@dataclass(frozen=True, slots=True)
class Task:
    """The public facts of one run: the queries, the cells they are about, and the mechanism.

    ``choice`` says which mechanism and by which rule, a fork where that waits for the number of
    rows, which the run measures then; ``hint`` is a public guess at it, ``rounds`` what was
    declared of them. The settings are part of what is paid for.
    """

    domain: Mapping[str, int]
    candidates: tuple[Query, ...]
    noise: Noise
    amount: Fraction
    choice: MechanismChoice | Fork
    hint: float | None = None
    rounds: Rounds = AUTO

    def settings(self) -> str:
        """The canonical text of every public setting."""
        digest = hashlib.sha256()
        for candidate in self.candidates:
            if isinstance(candidate, Pattern):
                digest.update(candidate.key.encode())
                continue
            for product in candidate:
                digest.update(repr([(n, f.key) for n, f in product.factors.items()]).encode())
                digest.update(repr(product.weight).encode())
            digest.update(b";")
        facts = sorted(self.choice.describe().items())
        constants = [constants_of(choice.mechanism) for choice in self.possible]
        run = (self.choice.power, self.hint, self.rounds.display(), constants)
        return repr((facts, *run, digest.hexdigest()))

    @property
    def possible(self) -> tuple[MechanismChoice, ...]:
        """Every choice that may be made."""
        choice = self.choice
        return (choice.few, choice.many) if isinstance(choice, Fork) else (choice,)

    @property
    def may_look_once(self) -> bool:
        """True if all that is asked is measured together, at least for many rows."""
        fixed = any(each.mechanism.startswith("matrix") for each in self.possible)
        return fixed or (self.choice.mechanism == "mwem" and len(self.candidates) == 1)

    @property
    def variance(self) -> float:
        """The expected squared error of an answer when all candidates are measured together."""
        norms = sum(norm(candidate, self.noise) for candidate in self.candidates)
        noise = law(self.noise)
        plain = noise.squared(norms) * noise.unit_variance(float(self.amount))
        if noise.is_pure:
            found = together(self.products, self.noise)
            if found is None or len(self.products) < len(self.candidates):
                return plain
            cells = sum(map(rows, self.products))
            return min(plain, found.error / cells * noise.unit_variance(float(self.amount)))
        if not all(map(is_marginal, self.candidates)):
            return plain
        cliques = tuple(map(attributes_of, self.candidates))
        return min(plain, marginal_errors(self.domain, cliques).rmse(float(self.amount)) ** 2)

    @property
    def products(self) -> tuple[Candidate, ...]:
        """The candidates of a mechanism that takes no patterns."""
        return tuple(c for c in self.candidates if not isinstance(c, Pattern))

    @property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        """The attribute sets of the candidates, each once, in domain order.

        One of many attributes, or of too many cells to be a marginal, stands for its pairs.
        """
        found: dict[tuple[str, ...], None] = {}
        for candidate in self.candidates:
            touched = attributes_of(candidate)
            clique = tuple(a for a in self.domain if a in touched)
            cells = math.prod(self.domain[a] for a in clique)
            if len(clique) <= MOST_TOGETHER and cells <= DEFAULT_CAP:
                found[clique] = None
            else:
                found |= dict.fromkeys(combinations(clique, min(2, len(clique))))
        return tuple(clique for clique in found if clique)

    @property
    def choices(self) -> int:
        """The number of candidates there are to choose from."""
        if self.choice.mechanism == "mwem":
            return len(self.candidates)
        if self.choice.mechanism == "rap":
            return sum(rows(c) for c in self.candidates)
        return len({r for c in self.cliques for k in range(len(c)) for r in combinations(c, k + 1)})

    @property
    def weights(self) -> dict[tuple[str, ...], Fraction]:
        """The cliques with what their errors count: smaller tables more where the largest does."""
        sizes = {c: math.prod(self.domain[a] for a in c) for c in self.cliques}
        return {c: Fraction(float(n) ** -self.choice.power) for c, n in sizes.items()}


def make_task(
    domain: Mapping[str, int],
    candidates: Sequence[Query],
    noise: Noise,
    amount: Fraction,
    *,
    model: str = "auto",
    metric: Metric = "mean",
    hint: float | None = None,
    matrix_rmse: float | None = None,
    rounds: Rounds = AUTO,
    option: str = "model",
) -> Task:
    """Choose the mechanism, by name or from public facts, and check that it can run.

    ``option`` is what the name was given by.

    Raises: ProgrammingError (E_WORKLOAD, E_TOO_LARGE, E_SETTING).
    """
    if not candidates:
        raise ProgrammingError("E_WORKLOAD", "the workload is empty", hint="ask for something")
    task = Task(
        dict(domain), tuple(candidates), noise, amount, MechanismChoice("matrix", "", {}), hint
    )
    products, refusal = _as_products(task.candidates)
    admitted = sum(_fits_tree(domain, [clique]) for clique in task.cliques)
    facts = Facts(
        domain, task.candidates, noise, amount, hint, metric, False, matrix_rmse, admitted
    )
    choice: MechanismChoice | Fork
    if model != "auto":
        choice = _named(task, facts, model, option, bool(rounds.declared))
    else:
        choice = decide(facts)
        if refusal is not None and choice.mechanism in ("mwem", "matrix", "mwem or matrix"):
            choice = MechanismChoice("rap", "a condition takes too many products", {}, "relaxed")
    if isinstance(choice, Fork) and rounds.declared:
        choice = replace(choice.few, rule=f"rounds are declared: {choice.few.rule}")
    task = replace(task, choice=choice)
    if not {each.mechanism for each in task.possible} & {"rap", "marginals"}:
        if refusal is not None:
            raise refusal
        task = replace(task, candidates=products)
    if any(each.mechanism == "mwem" for each in task.possible):
        check(domain, products, Settings(hint=hint))
    by_row = any(each.mechanism == "rap" for each in task.possible)
    check_written(task.candidates, one_by_one=by_row)
    check_counted(task.domain, task.candidates)
    if not isinstance(choice, Fork):
        rounds.check(choice.mechanism)
    return replace(task, rounds=rounds.within(task.choices) if rounds.declared else rounds)


def _as_products(
    queries: Sequence[Query],
) -> tuple[tuple[Candidate, ...], ProgrammingError | None]:
    """Return the queries as sums of disjoint products, or why that is refused."""
    from dpsql.learn.targets import products_of  # the mechanism that was chosen, no other

    try:
        found = [products_of(q) if isinstance(q, Pattern) else q for q in queries]
        return tuple(found), None
    except ProgrammingError as error:
        return (), error


def _named(
    task: Task, facts: Facts, model: str, option: str, in_rounds: bool
) -> MechanismChoice | Fork:
    rule, metric = f"{option} = '{model}'", facts.metric
    if metric == "max" and model in ("mwem", "rap"):
        raise ProgrammingError(
            "E_SETTING",
            f"metric = 'max' weights tables by their cells, and '{model}' has no weights",
            hint="leave metric out, or use 'marginals'",
        )
    if model == "mwem":
        return MechanismChoice("mwem", rule, {}, "factored")
    if model == "rap":
        if all(map(near_marginal, task.candidates)) and sum(map(rows, task.candidates)) > FEW_CELLS:
            rule += f"; whole tables are known better by {option} = 'auto'"
        return MechanismChoice("rap", rule, {}, "relaxed")
    if model == "pgm" and not _fits_tree(task.domain, task.cliques[:1]):
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"a graphical model of {', '.join(task.cliques[0])} is above {DEFAULT_CAP:,} cells",
            hint="model = 'mixture' has no such limit",
        )
    _, refusal = _as_products(task.candidates)
    if refusal is not None and model == "pgm":
        raise refusal
    mixed = model == "mixture" or refusal is not None
    found: Any = "mixture" if mixed else "graphical" if model == "pgm" else _tree_or_mixture(task)
    cliques = task.cliques
    if in_rounds or not cliques or not _measured_at_once(task, found):
        power = best_power(task.domain, cliques) if metric == "max" else 0.0
        return MechanismChoice("marginals", rule, {}, found, power)
    tables = [whole_marginal(task.domain, clique) for clique in cliques]
    fork = fork_of_marginals(replace(facts, candidates=tables, matrix_rmse=None), found)
    fork = replace(
        fork,
        few=replace(fork.few, rule=f"{rule}, {fork.few.rule}"),
        many=replace(fork.many, rule=f"{rule}, {fork.many.rule}"),
    )
    return settled(fork, facts.total)


def _measured_at_once(task: Task, model: str) -> bool:
    """True if all marginals may be measured together: few enough, and the model can hold them."""
    few = len(task.cliques) <= MOST_AT_ONCE
    return few and (model == "mixture" or _fits_tree(task.domain, task.cliques))


def _tree_or_mixture(task: Task) -> Any:
    fitting = sum(_fits_tree(task.domain, [clique]) for clique in task.cliques)
    few = len(task.cliques) <= THRESHOLDS["graphical_cliques"]
    return "graphical" if few and 2 * fitting >= len(task.cliques) else "mixture"


def _fits_tree(domain: Mapping[str, int], cliques: Sequence[tuple[str, ...]]) -> bool:
    try:
        return model_cells(domain, cliques) <= DEFAULT_CAP
    except ProgrammingError:
        return False


def run_task(task: Task, handle: Handle, report: Report | None = None) -> Learned:
    """Spend all that the handle holds and return the model.

    An interrupt after the first fit keeps what is known by then.
    Guarantee: the handle's; every look is charged there.
    """
    recorder = Recorder(handle)
    choice, counted = task.choice, None
    if isinstance(choice, Fork):
        counted = recorder.total(COUNT_SHARE * recorder.remaining())
        choice = choice.at(float(counted.values[0]), "by a noisy count")
    told = _harmless(report)
    model, interrupted = _run(replace(task, choice=choice), counted, recorder, told)
    return Learned(model, tuple(recorder.looks), choice, interrupted)


def _run(
    task: Task, counted: Measured | None, handle: Handle, report: Report | None
) -> tuple[Model, bool]:
    """The model of a run, and whether it was interrupted; rows ``counted`` are not paid again."""
    mechanism = task.choice.mechanism
    total = None if counted is None else float(counted.values[0])
    if mechanism == "mwem":
        from dpsql.learn.mwem import mwem  # the mechanism that was chosen, no other

        run = mwem(
            handle,
            task.products,
            Settings(cast("Any", task.rounds.count), total=total, hint=task.hint),
            progress=_told(report),
        )
        return run.model, run.interrupted
    if mechanism == "rap":
        from dpsql.learn.rap import run_rap  # the mechanism that was chosen, no other

        relaxed = run_rap(
            handle,
            task.candidates,
            count=_number(task.rounds.each),
            rounds=_number(task.rounds.count),
            hint=task.hint,
            rng=np.random.default_rng(),
            report=report,
        )
        return relaxed.model, relaxed.interrupted
    if mechanism == "marginals":
        # the mechanism that was chosen, no other
        from dpsql.learn.whole_marginals import run_marginals

        rounds = _number(task.rounds.count)
        found = run_marginals(
            handle,
            task.weights,
            _backend(task),
            rounds=rounds,
            counted=counted,
            report=report,
        )
        return found.model, found.interrupted
    # the mechanism that was chosen, no other
    from dpsql.learn.fixed import better_together, measure_strategy

    asked: Sequence[Candidate] = task.products
    if mechanism == "matrix+projection" and not all(map(near_marginal, task.candidates)):
        asked = [whole_marginal(task.domain, clique) for clique in task.cliques]
    better = better_together(handle, asked, task.choice.power)
    known = [] if counted is None else [counted]
    budget = handle.remaining()
    if better is not None:
        known.append(handle.total(budget * better.share))
        rest, total = handle.remaining(), estimate_total(known, task.domain)
        measured = measure_together(handle, asked, rest, total)
        # Tables that were read off differences repeat the number of rows.
        known += [each for each in measured if rows(each.candidate) != 2]
    else:
        if not known and not any(is_marginal(c) for c in asked):
            known.append(handle.total(budget * total_share(handle.noise, budget, task.hint)))
        measured = measure_strategy(handle, asked, task.choice.power)
        known += measured
    total = estimate_total(known, task.domain)
    return _backend(task).fit(measured, total, None, last=True), False


def _backend(task: Task) -> Backend:
    # the mechanism that was chosen, no other
    from dpsql.learn.whole_marginals import Graphical, Mixture

    graphical = task.choice.model == "graphical" or (
        not task.choice.model and _fits_tree(task.domain, task.cliques)
    )
    if graphical:
        return Graphical(task.domain)
    rng = np.random.default_rng()
    if task.choice.mechanism == "marginals":
        return Mixture(task.domain, rng)
    return Mixture(task.domain, rng, components=FIXED_COMPONENTS, steps=FIXED_STEPS)


def _number(declared: int | str) -> int | None:
    """A declared number; None where words leave it to the mechanism."""
    return declared if isinstance(declared, int) else None


def _harmless(report: Report | None) -> Report | None:
    """A report whose failures, such as a closed pipe, do not end a run that is paid for."""
    if report is None:
        return None

    def tell(line: str) -> None:
        with suppress(Exception):
            report(line)

    return tell


def _told(report: Report | None) -> Callable[[float, str], None] | None:
    if report is None:
        return None
    return lambda part, what: report(f"{part:.0%} of the budget: measured {what}")
