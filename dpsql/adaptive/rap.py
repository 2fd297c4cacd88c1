"""RAP: relaxed one-hot rows, fitted to adaptively chosen queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.adaptive.adam import Adam
from dpsql.adaptive.handle import Floats, Handle, Measured, Query
from dpsql.adaptive.query import attributes_of
from dpsql.adaptive.query import rows as answers_of
from dpsql.adaptive.relaxed import ProductMixture, layout
from dpsql.adaptive.sparsemax import project_blocks
from dpsql.adaptive.targets import Targets
from dpsql.errors import ProgrammingError

TOTAL_SHARE = Fraction(1, 20)
ROWS = 1000
RATE = 5e-3
STEPS = 3000
TOLERANCE = 1e-7
PATIENCE = 10
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
    small = budget <= (Fraction(1, 5) if noise == "laplace" else Fraction(1, 2000))
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
    when it has not fallen by ``tolerance`` for ``patience`` steps. With the answers of a matrix
    strategy as targets this is the projection mode. Source: RAP (Aydore et al. 2021), section 4.
    """
    targets = Targets.read(domain, queries, values, stddevs, total, np.float32)
    blocks = list(layout(domain).values())
    if warm is None:
        x: Any = rng.uniform(-1, 1, (rows, sum(domain.values()))).astype(np.float32)
        project_blocks(x, blocks)
    else:
        x = warm.table.astype(np.float32)
    names = {name for query in queries for name in attributes_of(query)}
    touched = [block for name, block in layout(domain).items() if name in names]
    moving = targets.columns()
    best, least, waited = x.copy(), math.inf, 0
    adam = Adam(rate)
    for step in range(steps + 1):
        squares, slope = gradient(targets, x)
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
            _level(slope, touched)
        moved = x[:, moving]
        adam.step(moved, slope[:, moving] / np.float32(2 * loss))
        x[:, moving] = moved
        project_blocks(x, touched)
    table = best.astype(np.float64)
    for block in blocks:
        table[:, block] /= table[:, block].sum(axis=1, keepdims=True)
    return ProductMixture(dict(domain), float(total), table, "rap", least)


def _level(slope: Floats, blocks: Sequence[slice]) -> None:
    """Take out what moves all cells of a block alike, which stays on no simplex.

    A pattern pulls at all of its classes, and Adam would only see that.
    """
    for block in blocks:
        slope[:, block] -= slope[:, block].mean(axis=1, keepdims=True)


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
    rng: np.random.Generator,
    gradient: Gradient = Targets.value_and_gradient,
    report: Report | None = None,
) -> RelaxedRun:
    """Spend all that the handle holds: each round measures the ``count`` worst queries jointly.

    ``rounds`` = 1 measures every query at once and projects. ``total`` is a public row count;
    without it 5 % of the budget buys one. An interrupt after the first fit returns the last model.

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
    domain = handle.domain
    if total is None:
        noisy = handle.total(handle.remaining() * TOTAL_SHARE)
        total = max(1.0, float(noisy.values[0]))
    fit = _Fit(domain, queries, total, rows, rate, steps, tolerance, patience, rng, gradient)
    turns = min(turns, math.ceil(len(queries) / counts))
    if turns == 1:
        fit.add(range(len(queries)), handle.measure(queries, handle.remaining()))
        return RelaxedRun(fit.refit(None), tuple(fit.measured), tuple(fit.chosen))
    everything = _answers(domain, queries)
    model = fit.refit(None)
    try:
        for turn in range(turns):
            amount = handle.remaining() / (turns - turn)
            taken = set(fit.chosen)
            left = [i for i in range(len(queries)) if i not in taken]
            new = left
            if len(left) > counts:  # those that are left at last need no choice
                flat = model.total * everything.shares(model.table.astype(np.float32))
                answers = _split(flat, queries)
                picked = handle.select(
                    [queries[i] for i in left],
                    [answers[i] for i in left],
                    count=counts,
                    amount=amount / 2,
                )
                new, amount = [left[i] for i in picked], amount / 2
            fit.add(new, handle.measure([queries[i] for i in new], amount))
            model = fit.refit(model)
            if report is not None:
                report(f"round {turn + 1} of {turns}: {len(fit.chosen)} queries measured")
    except KeyboardInterrupt:
        return RelaxedRun(model, tuple(fit.measured), tuple(fit.chosen), interrupted=True)
    return RelaxedRun(model, tuple(fit.measured), tuple(fit.chosen))


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


def _split(flat: Floats, queries: Sequence[Query]) -> list[Floats]:
    sizes = [answers_of(query) for query in queries]
    if all(size == 1 for size in sizes):
        return list(flat[:, np.newaxis])
    return np.split(flat, np.cumsum(sizes)[:-1])
