"""Rare failures of learned mechanisms: percentiles of their errors, which a mean hides.

``python -m benchmarks.tails [--runs N] [NAME ...]`` prints a line for each mechanism: the 50th,
90th and 99th percentile of its error and the root mean square, over runs with seeds of their own.
Noise is drawn by a test double with ordinary floating point. Sums are of 4,000 made-up amounts,
lognormal with bounds [0, 10000], at epsilon .25, each clipped by a rule of its own; models are of
three tables of two columns of 4,000 made-up rows at epsilon 1, their error the mean total
variation of the tables.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import cast
from zlib import crc32

import numpy as np

from dpsql.engine.clip import rule_of_one
from dpsql.learn.batches import answer_sums
from dpsql.learn.design import SumBatch
from dpsql.learn.handle import Model
from dpsql.learn.mwem import mwem
from dpsql.learn.rap import run_rap
from dpsql.learn.thresholds import METHODS, Method
from dpsql.learn.whole_marginals import Graphical, Mixture, run_marginals
from dpsql.pgm.linear import whole_marginal
from tests.learn.fake import FakeHandle, FakeSums

TOP, ROWS = 10_000, 4_000
AMOUNTS = np.minimum(np.random.default_rng(7).lognormal(4, 1, ROWS).round(), TOP).astype(np.int64)
DOMAIN = {"a": 5, "b": 4, "c": 3}
TABLES = [whole_marginal(DOMAIN, pair) for pair in itertools.combinations(DOMAIN, 2)]
COUNTS = np.random.default_rng(8).multinomial(
    ROWS, np.random.default_rng(9).dirichlet(np.full(60, 0.4))
)


def sum_error(method: Method, rng: np.random.Generator) -> float:
    """Return how far one clipped sum is off in one run."""
    values = np.arange(1, TOP + 1)
    counts = np.bincount(AMOUNTS, minlength=TOP + 1)[1:]
    batch = SumBatch(values, np.ones((1, TOP), dtype=np.int64), "laplace")
    rule = rule_of_one(method, TOP, 1, "laplace")
    handle = FakeSums(values, counts, Fraction(1, 4), rng=rng)
    found = answer_sums(handle, batch, "workload", rule, ordered=False)
    return abs(float(found.values[0]) - float(AMOUNTS.sum()))


def model_error(name: str, rng: np.random.Generator) -> float:
    """Return the mean total variation of the tables of one model."""
    handle = FakeHandle.of_histogram(DOMAIN, COUNTS, Fraction(1), rng=rng)
    pairs = list(itertools.combinations(DOMAIN, 2))
    model: Model
    if name == "mwem":
        model = mwem(handle, TABLES).model
    elif name == "rap":
        model = run_rap(handle, TABLES, rng=rng, steps=300).model
    else:
        few = Mixture(DOMAIN, rng, components=50)
        model = run_marginals(handle, pairs, Graphical(DOMAIN) if name == "pgm" else few).model
    gaps = [np.abs(model.answer(table) - handle.true(table)).sum() for table in TABLES]
    return float(np.mean(gaps)) / (2 * ROWS)


MODELS = ("mwem", "pgm", "mixture", "rap")
SUMS = tuple(method for method in METHODS if method not in ("sure", "eb"))
"""Rules for one sum; the others are for batches, whose bins they need."""


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*SUMS, *MODELS])
    parser.add_argument("--runs", type=int, default=400)
    chosen = parser.parse_args()
    print("| mechanism | 50 % | 90 % | 99 % | root mean square |\n|---|---|---|---|---|")
    for name in chosen.names:
        run: Callable[[np.random.Generator], float]
        if name in MODELS:
            run = partial(model_error, name)
        else:
            run = partial(sum_error, cast("Method", name))
        seeds = ((100, crc32(name.encode()), i) for i in range(chosen.runs))
        errors = np.array([run(np.random.default_rng(seed)) for seed in seeds])
        tails = [f"{float(x):.3g}" for x in np.quantile(errors, (0.5, 0.9, 0.99))]
        rms = float(np.sqrt(np.mean(errors**2)))
        print(f"| {name} | {' | '.join(tails)} | {rms:.3g} |", flush=True)


if __name__ == "__main__":
    main()
