"""Rare failures of learned mechanisms: percentiles of their errors, which a mean hides.

``python -m benchmarks.tails [--runs N] [NAME ...]`` prints a line for each mechanism: the 50th,
90th and 99th percentile of its error and the root mean square, over runs with seeds of their own.
Noise is drawn by a test double with ordinary floating point. All data are made up:

- one sum of 4,000 lognormal amounts with bounds [0, 10000], at epsilon .25, by each rule;
- ``batch NAME``: running totals of these amounts over 24 bins, whose error is the mean of all;
- ``several NAME``: sums of these amounts by eight groups, with one threshold for all, likewise;
- models of three tables of two columns of 4,000 rows at epsilon 1, whose error is the mean total
  variation of the tables. ``one-way`` is ``auto`` on tables of yes and no of twelve columns.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import cast
from zlib import crc32

import numpy as np

from dpsql.engine.clip import make_rule, rule_of_batch, rule_of_one
from dpsql.engine.clipped_workload import CHOSEN
from dpsql.learn.batches import answer_sums
from dpsql.learn.design import SumBatch
from dpsql.learn.mwem import mwem
from dpsql.learn.rap import run_rap
from dpsql.learn.task import make_task, run_task
from dpsql.learn.thresholds import METHODS, Method, choose
from dpsql.learn.whole_marginals import Graphical, Mixture, run_marginals
from dpsql.pgm.linear import whole_marginal
from dpsql.pgm.measurements import Candidate, Model
from tests.learn.fake import FakeHandle, FakeSums

TOP, ROWS = 10_000, 4_000
AMOUNTS = np.minimum(np.random.default_rng(7).lognormal(4, 1, ROWS).round(), TOP).astype(np.int64)
ENDS = np.unique(np.geomspace(10, TOP, 24).round()).astype(np.int64)
DOMAIN = {"a": 5, "b": 4, "c": 3}
TABLES = [whole_marginal(DOMAIN, pair) for pair in itertools.combinations(DOMAIN, 2)]
COUNTS = np.random.default_rng(8).multinomial(
    ROWS, np.random.default_rng(9).dirichlet(np.full(60, 0.4))
)
BINARY = {f"q{i}": 2 for i in range(12)}
ANSWERS = np.random.default_rng(10).random((ROWS, 12)) < np.linspace(0.1, 0.9, 12)


def sum_error(method: Method, rng: np.random.Generator) -> float:
    """Return how far one clipped sum is off in one run."""
    values = np.arange(1, TOP + 1)
    counts = np.bincount(AMOUNTS, minlength=TOP + 1)[1:]
    batch = SumBatch(values, np.ones((1, TOP), dtype=np.int64), "laplace")
    rule = rule_of_one(method, TOP, 1, "laplace")
    handle = FakeSums(values, counts, Fraction(1, 4), rng=rng)
    found = answer_sums(handle, batch, "workload", rule, ordered=False)
    return abs(float(found.values[0]) - float(AMOUNTS.sum()))


BATCH = SumBatch(ENDS, np.tril(np.ones((len(ENDS), len(ENDS)), dtype=np.int64)), "laplace")
BINS = np.bincount(np.searchsorted(ENDS, AMOUNTS), minlength=len(ENDS))


def batch_error(method: Method, rng: np.random.Generator) -> float:
    """Return how far the totals of one batch are off on average in one run."""
    rule = rule_of_batch(method, TOP, 1, "laplace")
    handle = FakeSums(ENDS, BINS, Fraction(1, 4), rng=rng)
    found = answer_sums(handle, BATCH, "workload" if method == "r2t" else "tamm", rule)
    return float(np.abs(found.values - BATCH.queries @ (ENDS * BINS)).mean())


GROUPS = np.random.default_rng(11).integers(0, 8, ROWS)


def several_error(method: Method, rng: np.random.Generator) -> float:
    """Return how far the sums by group are off on average in one run."""
    values, budget = np.arange(1, TOP + 1), Fraction(1, 4)
    handle = FakeSums(
        values, np.bincount(AMOUNTS, minlength=TOP + 1)[1:], budget, noise="laplace", rng=rng
    )
    rule = make_rule(method, TOP, 8, 1, "laplace")
    part = rule.share * budget
    theta = choose(handle, rule, part, budget - part, again=rule.again * budget)
    cut = np.minimum(AMOUNTS, theta) - AMOUNTS
    noise = rng.laplace(0, theta / float(handle.remaining()), 8)
    return float(np.abs(np.bincount(GROUPS, weights=cut) + noise).mean())


def model_error(name: str, rng: np.random.Generator) -> float:
    """Return the mean total variation of the tables of one model."""
    if name == "one-way":
        columns = {key: ANSWERS[:, i].astype(np.int64) for i, key in enumerate(BINARY)}
        asked = FakeHandle(BINARY, columns, Fraction(1), rng=rng)
        return _varied(asked, *_auto(asked, [whole_marginal(BINARY, (key,)) for key in BINARY]))
    handle = FakeHandle.of_histogram(DOMAIN, COUNTS, Fraction(1), rng=rng)
    pairs = list(itertools.combinations(DOMAIN, 2))
    model: Model
    if name == "auto":
        return _varied(handle, *_auto(handle, TABLES))
    if name == "mwem":
        model = mwem(handle, TABLES).model
    elif name == "rap":
        model = run_rap(handle, TABLES, rng=rng, steps=RAP_STEPS).model
    else:
        few = Mixture(DOMAIN, rng, components=30, steps=MIXTURE_STEPS)
        model = run_marginals(handle, pairs, Graphical(DOMAIN) if name == "pgm" else few).model
    return _varied(handle, model, TABLES)


def _auto(handle: FakeHandle, tables: Sequence[Candidate]) -> tuple[Model, Sequence[Candidate]]:
    """The model that public facts choose, for a stated number of rows."""
    task = make_task(handle.domain, tables, "laplace", Fraction(1), hint=float(ROWS), model="auto")
    return run_task(task, handle).model, tables


def _varied(handle: FakeHandle, model: Model, tables: Sequence[Candidate]) -> float:
    gaps = [np.abs(model.answer(table) - handle.true(table)).sum() for table in tables]
    return float(np.mean(gaps)) / (2 * ROWS)


RAP_STEPS, MIXTURE_STEPS = 200, 30
"""Steps of each fit: fewer than by default, so that 400 runs end in minutes."""

SEVERAL = tuple(m for m in METHODS if m == "none" or m in CHOSEN)
Run = Callable[[np.random.Generator], float]
MECHANISMS: Mapping[str, Run] = {
    **{m: partial(sum_error, m) for m in METHODS if m not in ("sure", "eb")},
    **{f"batch {m}": partial(batch_error, m) for m in METHODS},
    **{f"several {m}": partial(several_error, m) for m in SEVERAL},
    **{m: partial(model_error, m) for m in ("auto", "one-way", "mwem", "pgm", "mixture", "rap")},
}
"""Every learned mechanism; ``sure`` and ``eb`` need the bins of a batch."""


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MECHANISMS))
    parser.add_argument("--runs", type=int, default=400)
    chosen = parser.parse_args()
    print("| mechanism | 50 % | 90 % | 99 % | root mean square |\n|---|---|---|---|---|")
    for name in cast("list[str]", chosen.names):
        seeds = ((100, crc32(name.encode()), i) for i in range(chosen.runs))
        errors = np.array([MECHANISMS[name](np.random.default_rng(seed)) for seed in seeds])
        tails = [f"{float(x):.3g}" for x in np.quantile(errors, (0.5, 0.9, 0.99))]
        rms = float(np.sqrt(np.mean(errors**2)))
        print(f"| {name} | {' | '.join(tails)} | {rms:.3g} |", flush=True)


if __name__ == "__main__":
    main()
