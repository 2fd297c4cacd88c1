"""RAP: relaxed one-hot rows, fitted to adaptively chosen queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.adaptive.adam import Adam
from dpsql.adaptive.at_least import AtLeast
from dpsql.adaptive.handle import Candidate, Floats, Handle, Measured
from dpsql.adaptive.relaxed import ProductMixture, layout
from dpsql.adaptive.sparsemax import project_blocks
from dpsql.adaptive.targets import Query, Targets
from dpsql.errors import ProgrammingError

TOTAL_SHARE = Fraction(1, 20)
ROWS = 1000
RATE = 5e-3
STEPS = 3000
TOLERANCE = 1e-7
PATIENCE = 10

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
    touched = [block for name, block in layout(domain).items() if name in _touched(queries)]
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
        if waited >= patience or step == steps:
            break
        moved = x[:, moving]
        adam.step(moved, slope[:, moving] / np.float32(2 * loss))
        x[:, moving] = moved
        project_blocks(x, touched)
    table = best.astype(np.float64)
    for block in blocks:
        table[:, block] /= table[:, block].sum(axis=1, keepdims=True)
    return ProductMixture(dict(domain), float(total), table, "rap", least)


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
    candidates = [_candidate(query, domain) for query in queries]
    if total is None:
        noisy = handle.total(handle.remaining() * TOTAL_SHARE)
        total = max(1.0, float(noisy.values[0]))
    fit = _Fit(domain, queries, total, rows, rate, steps, tolerance, patience, rng, gradient)
    if turns == 1 or len(queries) == 1:
        fit.add(range(len(queries)), handle.measure(candidates, handle.remaining()))
        return RelaxedRun(fit.refit(None), tuple(fit.measured), tuple(fit.chosen))
    turns = min(turns, math.ceil(len(queries) / counts))
    everything = _answers(domain, candidates)
    model = fit.refit(None)
    try:
        for turn in range(turns):
            amount = handle.remaining() / (turns - turn)
            taken = set(fit.chosen)
            left = [i for i in range(len(queries)) if i not in taken]
            flat = model.total * everything.shares(model.table.astype(np.float32))
            answers = _split(flat, candidates)
            picked = handle.select(
                [candidates[i] for i in left],
                [answers[i] for i in left],
                count=min(counts, len(left)),
                amount=amount / 2,
            )
            new = [left[i] for i in picked]
            fit.add(new, handle.measure([candidates[i] for i in new], amount / 2))
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


def _candidate(query: Query, domain: Mapping[str, int]) -> Candidate:
    return query.candidate(domain) if isinstance(query, AtLeast) else query


def _touched(queries: Sequence[Query]) -> set[str]:
    names: set[str] = set()
    for query in queries:
        if isinstance(query, AtLeast):
            names |= set(query.predicates)
        else:
            names |= {a for product in query for a in product.factors}
    return names


def _answers(domain: Mapping[str, int], candidates: Sequence[Candidate]) -> Targets:
    """Compile the whole workload once; its values play no part."""
    zeros = [np.zeros(c[0].rows) for c in candidates]
    return Targets.read(domain, candidates, zeros, [1.0] * len(candidates), 1.0, np.float32)


def _split(flat: Floats, candidates: Sequence[Candidate]) -> list[Floats]:
    sizes = [c[0].rows for c in candidates]
    if all(size == 1 for size in sizes):
        return list(flat[:, np.newaxis])
    return np.split(flat, np.cumsum(sizes)[:-1])
