"""One adaptive run from beginning to end: public facts in, a model out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpsql.adaptive.auto import THRESHOLDS, Choice, Facts, Metric, decide
from dpsql.adaptive.constants import constants_of
from dpsql.adaptive.handle import Candidate, Handle, Measured, Model, Noise, Query
from dpsql.adaptive.query import attributes_of, check_counted, is_marginal, rows
from dpsql.adaptive.schedule import total_share
from dpsql.adaptive.settings import Settings, check
from dpsql.adaptive.transcript import Look, Recorder
from dpsql.answer.junction import DEFAULT_CAP, model_cells
from dpsql.answer.linear import estimate_total
from dpsql.answer.predict import best_power
from dpsql.errors import ProgrammingError
from dpsql.plan.pattern import Pattern
from dpsql.plan.rounds import AUTO, Rounds

if TYPE_CHECKING:
    from dpsql.adaptive.backends import Backend

Report = Callable[[str], None]

FIXED_COMPONENTS, FIXED_STEPS = 400, 300
"""The mixture that is fitted once to all answers of a fixed strategy."""

MOST_TOGETHER = 6
"""Attributes of a query up to which all their subsets are marginals to choose from."""

MODELS = ("auto", "mwem", "marginals", "mixture", "pgm", "rap")


@dataclass(frozen=True, slots=True)
class Task:
    """The public facts of one run: the queries, the cells they are about, and the mechanism.

    ``choice`` says which mechanism and by which rule; ``hint`` is a public guess at the number of
    rows, ``rounds`` what was declared of them. The settings are part of what is paid for.
    """

    domain: Mapping[str, int]
    candidates: tuple[Query, ...]
    noise: Noise
    amount: Fraction
    choice: Choice
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
        constants = constants_of(self.choice.mechanism)
        run = (self.choice.power, self.hint, self.rounds.display(), constants)
        return repr((facts, *run, digest.hexdigest()))

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
        """How many candidates there are to choose from."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The model a run ended with, and every look that led to it."""

    model: Model
    looks: tuple[Look, ...]
    interrupted: bool = False

    @property
    def measurements(self) -> tuple[Measured, ...]:
        """Every noisy answer that was released."""
        return tuple(m for look in self.looks for m in look.measured)

    def transcript(self, noise: Noise) -> tuple[str, ...]:
        """What was measured, how precisely and at what cost, and what follows for the errors."""
        from dpsql.adaptive.statement import error_statements

        lines = [look.told(noise) for look in self.looks]
        for s in error_statements(self.model, self.measurements):
            names = ", ".join(s.attributes)
            lines.append(
                f"with 95 % confidence the counts of {names} are within {s.bound:.4g} in sum"
            )
        return tuple(lines)


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
) -> Task:
    """Choose the mechanism, by name or from public facts, and check that it can run.

    Raises: ProgrammingError (E_WORKLOAD, E_TOO_LARGE, E_SETTING).
    """
    if not candidates:
        raise ProgrammingError("E_WORKLOAD", "the workload is empty", hint="ask for something")
    task = Task(dict(domain), tuple(candidates), noise, amount, Choice("matrix", "", {}), hint)
    products, refusal = _as_products(task.candidates)
    if model != "auto":
        choice = _named(task, model, metric)
    elif hint is None:
        choice = _without_rows(task, refusal is None, metric)
    else:
        admitted = sum(_fits_tree(domain, [clique]) for clique in task.cliques)
        facts = Facts(
            domain, task.candidates, noise, amount, hint, metric, False, matrix_rmse, admitted
        )
        choice = decide(facts)
        if refusal is not None and choice.mechanism not in ("rap", "marginals"):
            choice = Choice("rap", "a condition takes too many products", {}, "relaxed")
    if choice.mechanism == "marginals":
        if refusal is not None and model == "pgm":
            raise refusal
        if refusal is not None:
            choice = replace(choice, model="mixture")
    elif choice.mechanism != "rap":
        if refusal is not None:
            raise refusal
        task = replace(task, candidates=products)
    if choice.mechanism == "mwem":
        check(domain, products, Settings(hint=hint))
    check_counted(task.domain, task.candidates)
    rounds.check(choice.mechanism)
    task = replace(task, choice=choice)
    return replace(task, rounds=rounds.within(task.choices) if rounds.declared else rounds)


def _as_products(
    queries: Sequence[Query],
) -> tuple[tuple[Candidate, ...], ProgrammingError | None]:
    """All queries as sums of disjoint products, or why that is refused."""
    from dpsql.adaptive.diagrams import products_of

    try:
        found = [products_of(q) if isinstance(q, Pattern) else q for q in queries]
        return tuple(found), None
    except ProgrammingError as error:
        return (), error


def _without_rows(task: Task, are_products: bool, metric: Metric) -> Choice:
    """The mechanism by the shape of the workload alone."""
    note = "no number of rows is declared"
    if all(is_marginal(c) for c in task.candidates):
        return replace(_named(task, "marginals", metric), rule=f"{note}; all queries are marginals")
    cells = math.prod(task.domain.values())
    if cells <= DEFAULT_CAP and are_products:
        return Choice("mwem", f"{note}; {cells} cells fit an explicit table", {}, "factored")
    what = f"{cells} cells are too many for a table"
    what = what if cells > DEFAULT_CAP else "a condition takes too many products"
    return Choice("rap", f"{note}; {what}", {}, "relaxed")


def _named(task: Task, model: str, metric: Metric) -> Choice:
    rule = f"model = '{model}'"
    if metric == "max" and model in ("mwem", "rap"):
        raise ProgrammingError(
            "E_SETTING",
            f"metric = 'max' weights tables by their cells, and '{model}' has no weights",
            hint="leave metric out, or use 'marginals'",
        )
    if model == "mwem":
        return Choice("mwem", rule, {}, "factored")
    if model == "rap":
        return Choice("rap", rule, {}, "relaxed")
    power = best_power(task.domain, task.cliques) if metric == "max" else 0.0
    if model == "pgm":
        if not _fits_tree(task.domain, task.cliques[:1]):
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"a graphical model of {', '.join(task.cliques[0])} is above {DEFAULT_CAP:,} cells",
                hint="model = 'mixture' has no such limit",
            )
        return Choice("marginals", rule, {}, "graphical", power)
    found: Any = "mixture" if model == "mixture" else _tree_or_mixture(task)
    return Choice("marginals", rule, {}, found, power)


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
    model, interrupted = _run(task, recorder, _harmless(report))
    return Learned(model, tuple(recorder.looks), interrupted)


def _run(task: Task, handle: Handle, report: Report | None) -> tuple[Model, bool]:
    """The model of a run, and whether it was interrupted."""
    mechanism = task.choice.mechanism
    if mechanism == "mwem":
        from dpsql.adaptive.mwem import mwem

        run = mwem(
            handle,
            task.products,
            Settings(cast("Any", task.rounds.count), hint=task.hint),
            progress=_told(report),
        )
        return run.model, run.interrupted
    if mechanism == "rap":
        from dpsql.adaptive.rap import run_rap

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
        from dpsql.adaptive.marginals import run_marginals

        rounds = _number(task.rounds.count)
        found = run_marginals(handle, task.weights, _backend(task), rounds=rounds, report=report)
        return found.model, found.interrupted
    from dpsql.adaptive.fixed import measure_strategy

    first = []
    if not any(is_marginal(c) for c in task.candidates):
        budget = handle.remaining()
        first = [handle.total(budget * total_share(handle.noise, budget, task.hint))]
    measured = measure_strategy(handle, task.products, task.choice.power)
    total = float(first[0].values[0]) if first else estimate_total(measured, task.domain)
    model = _backend(task).fit(measured, max(1.0, total), None, last=True)
    return model, False


def _backend(task: Task) -> Backend:
    from dpsql.adaptive.backends import Graphical, Mixture

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
