"""RAP: a mixture of products fitted to queries, all of them or the worst of each round.

The rows of RAP's paper are products, fitted by projected descent. Logits of products are fitted
instead: of 300 conditions on Adult that descent missed 1,290 rows each, and this 67, where the
noise was 114.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import product as cells

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.algebra.operator import Operator
from dpsql.errors import ProgrammingError
from dpsql.learn.candidates import rows as answers_of
from dpsql.learn.predicates import CellClasses
from dpsql.learn.relaxed import (
    COMPONENTS,
    SPREAD,
    Gradient,
    ProductMixture,
    fit_mixture,
    softmax_blocks,
)
from dpsql.learn.schedule import total_share
from dpsql.learn.targets import Targets
from dpsql.pgm.measurements import Handle, Measured, Query
from dpsql.records import dataclass, field, replace
from dpsql.strategy.noise_law import law
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product

MOST_FITTED = 20_000
"""Answers that are measured and fitted all at once; of more the worst are chosen in rounds."""
STEPS, RATE = 600, 0.2
"""Steps of one fit, and the first of Adam's on logits."""
SHORT = 100
"""Steps of the one fit that is made after an interrupt, so that what was paid for is kept."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedRun:
    """The model a run ended with, what it asked (positions in the workload) and was told."""

    model: ProductMixture
    measurements: tuple[Measured, ...]
    chosen: tuple[int, ...]
    interrupted: bool = False


def default_rounds(budget: Fraction, noise: str) -> tuple[int, int]:
    """Return (queries per round, rounds) for a budget in epsilon or rho: declared constants.

    >>> default_rounds(Fraction(1, 10), "laplace"), default_rounds(Fraction(1, 100), "gaussian")
    ((5, 5), (25, 5))
    """
    small = budget <= (Fraction(1, 5) if law(noise).is_pure else Fraction(1, 2000))
    return (5, 5) if small else (25, 5)


def fit_queries(
    domain: Mapping[str, int],
    measurements: Sequence[Measured],
    total: float,
    *,
    warm: ProductMixture | None = None,
    components: int = COMPONENTS,
    rate: float = RATE,
    steps: int = STEPS,
    rng: np.random.Generator,
    gradient: Gradient = Targets.value_and_gradient,
    progress: Callable[[int, float], None] | None = None,
) -> ProductMixture:
    """Return a mixture of products near noisy answers.

    Cells that no query tells apart are fitted as one, and keep the proportions that ``warm`` gives
    them; without it they are even.
    """
    queries = [each.query for each in measurements]
    start = warm or random_mixture(domain, queries, total, components, rng)
    classes = CellClasses.read(domain, queries)
    merged = [
        Measured.of(query, each.values, each.stddev, each.noise)
        for query, each in zip(classes.merged(queries), measurements, strict=True)
    ]
    fitted = fit_mixture(
        classes.domain,
        merged,
        total,
        warm=replace(start, table=classes.masses(start.table)),
        steps=steps,
        rate=rate,
        rng=rng,
        gradient=gradient,
        progress=progress,
    )
    table = classes.spread(fitted.table, start.table)
    return ProductMixture(dict(domain), float(total), table, "rap", fitted.loss)


def random_mixture(
    domain: Mapping[str, int],
    queries: Sequence[Query],
    total: float,
    components: int,
    rng: np.random.Generator,
) -> ProductMixture:
    """Return random products near the even one, even over cells that no query tells apart."""
    classes = CellClasses.read(domain, queries)
    sizes = classes.sizes
    logits = np.log(sizes) + SPREAD * rng.standard_normal((components, len(sizes)))
    masses = softmax_blocks(logits, classes.domain)
    even = np.ones((components, sum(domain.values())))
    return ProductMixture(dict(domain), float(total), classes.spread(masses, even), "rap")


def run_rap(
    handle: Handle,
    queries: Sequence[Query],
    *,
    count: int | None = None,
    rounds: int | None = None,
    components: int = COMPONENTS,
    rate: float = RATE,
    steps: int = STEPS,
    total: float | None = None,
    hint: float | None = None,
    rng: np.random.Generator,
    gradient: Gradient = Targets.value_and_gradient,
    report: Report | None = None,
) -> RelaxedRun:
    """Spend all that the handle holds: each round measures the ``count`` worst queries jointly.

    ``rounds`` = 1 measures every query at once, as does a workload of at most ``MOST_FITTED``
    answers: what many noisy answers have in common is fitted well even where each is drowned.
    Otherwise the rows of every query are chosen one by one. ``total`` is a public row count;
    without it 5 % of the budget buys one, 10 % where ``hint``, a public guess at it, is small or
    missing. An interrupt after the first fit returns the last model, and ends the only fit early.

    Guarantee: the handle's; every look is charged there. Raises ProgrammingError E_WORKLOAD for
    an empty workload or settings below one. Source: RAP (Aydore et al. 2021), algorithm 2.
    """
    counts, turns = default_rounds(handle.remaining(), handle.noise)
    counts, turns = count if count is not None else counts, rounds if rounds is not None else turns
    if not queries or counts < 1 or turns < 1 or components < 1:
        raise ProgrammingError(
            "E_WORKLOAD",
            "an adaptive run needs queries, one query per round, one round and one product",
            hint="leave the settings out to use the defaults",
        )
    domain, budget = handle.domain, handle.remaining()
    answers = sum(answers_of(query) for query in queries)
    if count is None and rounds is None and answers <= MOST_FITTED:
        turns = 1
    if total is None:
        noisy = handle.total(budget * total_share(handle.noise, budget, hint))
        total = max(1.0, float(noisy.values[0]))
    asked = queries if turns == 1 or len(queries) == 1 else single_rows(queries)
    fit = _Fit(domain, total, components, rate, steps, rng, gradient)
    if asked is queries and (turns == 1 or len(queries) == 1):
        fit.add(range(len(asked)), handle.measure(asked, handle.remaining()))
        try:
            if report is not None:
                report(f"all {len(asked)} queries measured")
            return RelaxedRun(fit.refit(None), tuple(fit.measured), tuple(fit.chosen))
        except KeyboardInterrupt:
            fit.steps = min(steps, SHORT)
            return RelaxedRun(fit.refit(None), tuple(fit.measured), tuple(fit.chosen), True)
    turns = min(turns, math.ceil(len(asked) / counts))
    everything = _answers(domain, queries)
    model = random_mixture(domain, queries, total, components, rng)
    try:
        for turn in range(turns):
            amount = handle.remaining() / (turns - turn)
            left = np.setdiff1d(np.arange(len(asked)), fit.chosen)
            new = [int(i) for i in left]
            if len(left) > counts:
                told = model.total * everything.shares(model.table.astype(np.float32))
                picked = handle.select(
                    [asked[i] for i in left],
                    list(told[left, np.newaxis]),
                    count=counts,
                    amount=amount / 2,
                )
                new, amount = [int(left[i]) for i in picked], amount / 2
            fit.add(new, handle.measure([asked[i] for i in new], amount))
            model = fit.refit(model)
            if report is not None:
                report(f"round {turn + 1} of {turns}: {len(fit.chosen)} queries measured")
    except KeyboardInterrupt:
        return RelaxedRun(model, tuple(fit.measured), tuple(fit.chosen), interrupted=True)
    return RelaxedRun(model, tuple(fit.measured), tuple(fit.chosen))


def single_rows(queries: Sequence[Query]) -> list[Query]:
    """Return every row of every query as a query of its own, in the order of the answers.

    >>> len(single_rows([(Product({"a": Dense(np.eye(2)), "b": Dense(np.eye(3))}),)]))
    6
    """
    known: dict[Hashable, list[Operator]] = {}
    found: list[Query] = []
    for query in queries:
        if isinstance(query, Pattern) or query[0].rows == 1:
            found.append(query)
            continue
        parts = []
        for product in query:
            for factor in product.factors.values():
                if factor.key not in known:
                    known[factor.key] = [Dense(row[np.newaxis]) for row in factor.dense()]
            rows = (known[factor.key] for factor in product.factors.values())
            parts.append(
                [Product(dict(zip(product.factors, r, strict=True))) for r in cells(*rows)]
            )
        found += zip(*parts, strict=True)
    return found


@dataclass(slots=True)
class _Fit:
    """The settings of one run and everything measured so far."""

    domain: Mapping[str, int]
    total: float
    components: int
    rate: float
    steps: int
    rng: np.random.Generator
    gradient: Gradient
    measured: list[Measured] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)

    def add(self, chosen: Sequence[int], measured: Sequence[Measured]) -> None:
        self.chosen += chosen
        self.measured += measured

    def refit(self, warm: ProductMixture | None) -> ProductMixture:
        return fit_queries(
            self.domain,
            self.measured,
            self.total,
            warm=warm,
            components=self.components,
            rate=self.rate,
            steps=self.steps,
            rng=self.rng,
            gradient=self.gradient,
        )


def _answers(domain: Mapping[str, int], queries: Sequence[Query]) -> Targets:
    """Compile the whole workload once; its values play no part."""
    zeros = [np.zeros(answers_of(query)) for query in queries]
    return Targets.read(domain, queries, zeros, [1.0] * len(queries), 1.0, np.float32)
