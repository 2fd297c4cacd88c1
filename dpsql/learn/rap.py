"""RAP: relaxed one-hot rows, fitted to adaptively chosen queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import product as cells
from typing import Any

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.algebra.operator import Floats, Operator
from dpsql.errors import ProgrammingError
from dpsql.learn.candidates import attributes_of, norm
from dpsql.learn.candidates import rows as answers_of
from dpsql.learn.handle import Handle, Measured, Query
from dpsql.learn.predicates import CellClasses, layout
from dpsql.learn.relaxed import Adam, ProductMixture, project_blocks
from dpsql.learn.schedule import total_share
from dpsql.learn.targets import Targets
from dpsql.records import dataclass
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product

MOST_FITTED = 20_000
"""Answers that are measured and fitted all at once."""
ROWS = 1000
"""Relaxed rows of the model; the number that the paper uses (Aydore et al. 2021)."""
RATE = 5e-3
"""Step of Adam; a settled fit goes on with a smaller one, see DECAY."""
STEPS = 3000
"""Most steps of one fit; most fits settle long before."""
SHORT = 100
"""Steps of the one fit that is made after an interrupt, so that what was paid for is kept."""
TOLERANCE = 1e-7
"""A fit has settled when its loss has not fallen by this part ..."""
PATIENCE = 10
"""... in so many looks at it."""
DECAY, DECAYS = 0.25, 3
"""When a fit has settled it goes on from its best with this part of the rate, so many times."""

Gradient = Callable[[Targets, Floats], tuple[float, Floats]]
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


def fit_relaxed(
    domain: Mapping[str, int],
    queries: Sequence[Query],
    values: Sequence[Floats],
    stddevs: Sequence[float],
    total: float,
    *,
    warm: ProductMixture | None = None,
    rows: int = ROWS,
    rate: float = RATE,
    steps: int = STEPS,
    tolerance: float = TOLERANCE,
    patience: int = PATIENCE,
    rng: np.random.Generator,
    gradient: Gradient = Targets.value_and_gradient,
    progress: Callable[[int, float], None] | None = None,
) -> ProductMixture:
    """Return relaxed rows near noisy answers: the best iterate of projected Adam.

    The loss is the root of the weighted mean squared error, in shares of the total; the fit stops
    when it has not fallen by ``tolerance`` for ``patience`` steps. Cells that no query tells apart
    are fitted as one and keep the proportions that ``warm`` gives them. With the answers of a
    matrix strategy as targets this is the projection mode.
    Source: RAP (Aydore et al. 2021), section 4.
    """
    start = (warm or random_rows(domain, queries, total, rows, rng)).table
    classes = CellClasses.read(domain, queries)
    coarse = classes.domain
    targets = Targets.read(coarse, classes.merged(queries), values, stddevs, total, np.float32)
    names = {name for query in queries for name in attributes_of(query)}
    touched = [block for name, block in layout(coarse).items() if name in names]
    sizes: Any = classes.sizes.astype(np.float32)
    x: Any = classes.masses(start).astype(np.float32) / sizes
    best, least, waited = x.copy(), math.inf, 0
    adam = Adam(rate)
    for step in range(steps + 1):
        squares, slope = gradient(targets, x * sizes)
        loss = math.sqrt(squares + 1e-20)
        waited = 0 if loss < least - tolerance else waited + 1
        if loss < least:
            best, least = x.copy(), loss
        if progress is not None:
            progress(step, loss)
        if step == steps or (waited >= patience and adam.rate < DECAY**DECAYS * rate * 1.5):
            break
        if waited >= patience:
            x, adam, waited = best.copy(), Adam(DECAY * adam.rate), 0
            continue
        if targets.patterns:
            _level(slope, touched, sizes)
        slope /= np.float32(2 * loss)
        adam.step(x, slope)
        project_blocks(x, touched, sizes)
    table = classes.spread(best.astype(np.float64) * sizes, start)
    for block in layout(domain).values():
        table[:, block] /= table[:, block].sum(axis=1, keepdims=True)
    return ProductMixture(dict(domain), float(total), table, "rap", least)


def random_rows(
    domain: Mapping[str, int],
    queries: Sequence[Query],
    total: float,
    rows: int,
    rng: np.random.Generator,
) -> ProductMixture:
    """Return random relaxed rows, even over cells that no query tells apart."""
    x: Any = rng.uniform(-1, 1, (rows, sum(domain.values())))
    project_blocks(x, layout(domain).values())
    classes = CellClasses.read(domain, queries)
    table = classes.spread(classes.masses(x), np.ones_like(x))
    return ProductMixture(dict(domain), float(total), table, "rap")


def _level(slope: Floats, blocks: Sequence[slice], sizes: Floats) -> None:
    """Take out what moves all cells of a block alike, which stays on no simplex.

    A pattern pulls at all of its classes, and Adam would only see that.
    """
    for block in blocks:
        parts = sizes[block] / sizes[block].sum()
        slope[:, block] -= (slope[:, block] @ parts)[:, np.newaxis]


def run_rap(
    handle: Handle,
    queries: Sequence[Query],
    *,
    count: int | None = None,
    rounds: int | None = None,
    rows: int = ROWS,
    rate: float = RATE,
    steps: int = STEPS,
    tolerance: float = TOLERANCE,
    patience: int = PATIENCE,
    total: float | None = None,
    hint: float | None = None,
    rng: np.random.Generator,
    gradient: Gradient = Targets.value_and_gradient,
    report: Report | None = None,
) -> RelaxedRun:
    """Spend all that the handle holds: each round measures the ``count`` worst queries jointly.

    ``rounds`` = 1 measures every query at once and projects, as does a workload so small that
    choosing would add noise; otherwise the rows of every query are chosen one by one. ``total`` is
    a public row count; without it 5 % of the budget buys one, 10 % where ``hint``, a public guess
    at it, is small or missing. An interrupt after the first fit returns the last model, and
    ends the only fit early.

    Guarantee: the handle's; every look is charged there. Raises ProgrammingError E_WORKLOAD for
    an empty workload or settings below one. Source: RAP (Aydore et al. 2021), algorithm 2.
    """
    counts, turns = default_rounds(handle.remaining(), handle.noise)
    counts, turns = count if count is not None else counts, rounds if rounds is not None else turns
    if not queries or counts < 1 or turns < 1 or rows < 1:
        raise ProgrammingError(
            "E_WORKLOAD",
            "an adaptive run needs queries, one query per round, one round and one row",
            hint="leave the settings out to use the defaults",
        )
    domain, budget = handle.domain, handle.remaining()
    if count is None and rounds is None and _is_little(queries, handle.noise, counts * turns):
        turns = 1
    if total is None:
        noisy = handle.total(budget * total_share(handle.noise, budget, hint))
        total = max(1.0, float(noisy.values[0]))
    asked = queries if turns == 1 or len(queries) == 1 else single_rows(queries)
    fit = _Fit(domain, asked, total, rows, rate, steps, tolerance, patience, rng, gradient)
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
    model = random_rows(domain, queries, total, rows, rng)
    try:
        for turn in range(turns):
            amount = handle.remaining() / (turns - turn)
            left = np.setdiff1d(np.arange(len(asked)), fit.chosen)
            new = [int(i) for i in left]
            if len(left) > counts:
                answers = model.total * everything.shares(model.table.astype(np.float32))
                picked = handle.select(
                    [asked[i] for i in left],
                    list(answers[left, np.newaxis]),
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


def _is_little(queries: Sequence[Query], noise: Noise, choices: int) -> bool:
    """Say whether all answers together have no more noise than so many chosen one by one.

    They must also be few enough to be fitted all.
    """
    answers = sum(answers_of(query) for query in queries)
    return answers <= MOST_FITTED and sum(norm(query, noise) for query in queries) <= choices


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


class _Fit:
    """The settings of one run and everything measured so far."""

    def __init__(
        self,
        domain: Mapping[str, int],
        queries: Sequence[Query],
        total: float,
        rows: int,
        rate: float,
        steps: int,
        tolerance: float,
        patience: int,
        rng: np.random.Generator,
        gradient: Gradient,
    ) -> None:
        self.domain, self.queries, self.total = domain, queries, total
        self.rows, self.rate, self.steps = rows, rate, steps
        self.tolerance, self.patience, self.rng = tolerance, patience, rng
        self.gradient = gradient
        self.measured: list[Measured] = []
        self.chosen: list[int] = []

    def add(self, chosen: Sequence[int], measured: Sequence[Measured]) -> None:
        self.chosen += chosen
        self.measured += measured

    def refit(self, warm: ProductMixture | None) -> ProductMixture:
        return fit_relaxed(
            self.domain,
            [self.queries[i] for i in self.chosen],
            [m.values for m in self.measured],
            [m.stddev for m in self.measured],
            self.total,
            warm=warm,
            rows=self.rows,
            rate=self.rate,
            steps=self.steps,
            tolerance=self.tolerance,
            patience=self.patience,
            rng=self.rng,
            gradient=self.gradient,
        )


def _answers(domain: Mapping[str, int], queries: Sequence[Query]) -> Targets:
    """Compile the whole workload once; its values play no part."""
    zeros = [np.zeros(answers_of(query)) for query in queries]
    return Targets.read(domain, queries, zeros, [1.0] * len(queries), 1.0, np.float32)
