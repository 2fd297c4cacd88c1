"""Sums with clipping and batches of prefix sums, for ``benchmarks.adaptive``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.adaptive_data import (
    EPSILONS,
    TOLERANCE,
    Amounts,
    Estimate,
    Row,
    adult_gains,
    census_incomes,
    rand_incomes,
    repeat,
)
from dpsql.errors import ProgrammingError
from dpsql.learn.batches import answer_sums, check
from dpsql.learn.design import Algorithm, SumBatch
from dpsql.learn.thresholds import GAUSSIAN_SHARE, METHODS, SINGLE_SHARE, Threshold
from dpsql.strategy.noise_law import Noise
from tests.learn.fake import FakeSums

BINS = 100
ALGORITHMS: tuple[Algorithm, ...] = ("tamm", "timm", "identity", "workload", "sqm")
SLOW: Algorithm = "sqm"
LESS = {"identity": 1.5, "workload": 5.0}
"""How many times the error of TaMM these have, at least."""

BATCHES = """
ADULT 1e5 | none      | .26/.022/.0024   | .59/.071/.0079 | .42/.046/.0047 | .84/.11/.017  | 1.7/.25/.027
ADULT 1e5 | svt       | .19/.025/.0033   | .25/.067/.011  | .32/.064/.0074 | .56/.13/.021  | .52/.29/.14
C2K 1e6   | none      | .069/.0082/.0011 | .40/.052/.0067 | .15/.016/.0016 | .51/.14/.029  | .78/.095/.012
C2K 1e6   | svt-ratio | .071/.056/.056   | .13/.064/.057  | .10/.057/.056  | .42/.13/.071  | .71/.27/.065
C2K 1e6   | svt       | .075/.010/.0014  | .19/.045/.0090 | .12/.019/.0022 | .43/.15/.035  | .74/.29/.041
C2K 1e6   | recursive | .11/.026/.0038   | .17/.046/.0094 | .14/.031/.0043 | .41/.15/.034  | .72/.30/.13
"""  # noqa: E501
"""Expected mean relative errors at EPSILONS: data set, threshold, then one column an algorithm."""
GAUSSIAN = """
ADULT 1e5 | none | .086/.0091/.0010
C2K 1e6   | none | .031/.0036/.0004
C2K 1e7   | svt  | .039/.0076/.0022
"""
"""The same for TaMM under zCDP, rho = epsilon^2 / 2."""
SINGLES = """
none              | .063/.0063/.00063 | .62/.062/.0062   | 2.7/.27/.027
svt k=1           | .075/.013/.0012   | .13/.034/.0090   | .49/.12/.0082
svt k=4           | .092/.015/.0011   | .099/.028/.0096  | .60/.15/.0062
svt k=2 share=1/4 | .084/.011/.0010   | .11/.027/.0093   | .76/.19/.0077
svt-ratio .999    | .079/.012/.0030   | .12/.028/.018    | .67/.20/.0040
svt-ratio .95     | .10/.11/.11       | .14/.12/.13      | .78/.65/.67
quantile          | .083/.015/.0017   | .22/.039/.010    | .80/.21/.023
recursive         | .16/.041/.0071    | .19/.057/.022    | .57/.23/.064
approx-bounds     | .20/.015/.0013    | .22/.030/.026    | 1.0/.40/.0074
r2t               | .48/.12/.021      | .57/.15/.042     | 1.6/.68/.18
"""
"""The same for one sum: rule, then C2K 1e6, C2K 1e7 and ADULT 1e6."""
RULES = {
    "svt k=1": Threshold("svt", SINGLE_SHARE, Fraction(1)),
    "svt k=4": Threshold("svt", SINGLE_SHARE, Fraction(4)),
    "svt k=2 share=1/4": Threshold("svt", Fraction(1, 4), Fraction(2)),
    "svt-ratio .999": Threshold("svt-ratio", Fraction(1, 4), ratio=Fraction(999, 1000)),
    "svt-ratio .95": Threshold("svt-ratio", Fraction(1, 4)),
    "quantile": Threshold("quantile", SINGLE_SHARE, Fraction(5, 2), growth=0.05),
}
"""Constants of rules for one sum; other methods have their defaults and half of the budget."""


def read_expected(text: str) -> dict[tuple[str, ...], list[tuple[float, ...]]]:
    """Return the numbers of every line by the names before them."""
    found = {}
    for line in text.strip().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        names = tuple(cell for cell in cells if "/" not in cell or "=" in cell)
        numbers = [tuple(float(v) for v in cell.split("/")) for cell in cells[len(names) :]]
        found[names] = numbers
    return found


def data_sets(folder: Path) -> Iterator[Amounts]:
    """Yield amounts with the upper bounds of batches; C2K only where the folder has it."""
    gains, incomes = adult_gains(), rand_incomes()
    yield Amounts("ADULT 1e5", gains, 100_000)
    yield Amounts("ADULT 1e6", gains, 1_000_000)
    yield Amounts("RAND HIE 4e4", incomes, 40_000)
    yield Amounts("RAND HIE 1e6", incomes, 1_000_000)
    if (folder / "census2000").exists():
        census = census_incomes(folder)
        yield Amounts("C2K 1e6", census, 1_000_000)
        yield Amounts("C2K 1e7", census, 10_000_000)


class Prefixes:
    """Runs of one batch, one hundred prefix sums: mean relative errors, made monotone."""

    def __init__(self, data: Amounts, noise: Noise) -> None:
        self.name, self.noise = data.name, noise
        values = np.arange(1, BINS + 1, dtype=np.int64) * data.upper // BINS
        clipped = np.minimum(data.values, data.upper)
        bins = np.clip(-(-clipped * BINS // data.upper), 1, BINS) - 1  # zeros are in the first
        self.counts = np.bincount(bins, minlength=BINS)
        self.batch = SumBatch(values, np.tril(np.ones((BINS, BINS), dtype=np.int64)), noise)
        self.truth = self.batch.queries @ (values * self.counts)

    def errors(self, algorithm: Algorithm, rule: Threshold, runs: int) -> list[Estimate]:
        """Return one estimate for every epsilon; under zCDP rho is epsilon^2 / 2."""
        found = []
        for epsilon in EPSILONS:
            amount = Fraction(epsilon)
            budget = amount if self.noise == "laplace" else amount**2 / 2

            def one(rng: np.random.Generator, budget: Fraction = budget) -> float:
                handle = FakeSums(self.batch.values, self.counts, budget, noise=self.noise, rng=rng)
                answers = answer_sums(handle, self.batch, algorithm, rule, ordered=True).values
                return float((np.abs(answers - self.truth) / np.maximum(self.truth, 1)).mean())

            cell = f"{self.name} {self.noise} {algorithm} {rule.method} {epsilon}"
            found.append(Estimate.of(repeat(cell, runs, one)))
        return found


def sums_batch(folder: Path, runs: int) -> list[Row]:
    """One hundred prefix sums by five algorithms, pure epsilon: mean relative error, monotone."""
    expected = read_expected(BATCHES)
    out: list[Row] = []
    for data in data_sets(folder):
        if data.name == "C2K 1e7":
            continue
        batch = Prefixes(data, "laplace")
        for method in METHODS:
            known = dict(zip(ALGORITHMS, expected.get((data.name, method), []), strict=False))
            out += batch_rows(batch, ALGORITHMS, Threshold(method), runs or 500, known)
    return out


def sums_gaussian(folder: Path, runs: int) -> list[Row]:
    """The same under zCDP, rho = epsilon^2 / 2: not the guarantee of the pure epsilon."""
    expected = read_expected(GAUSSIAN)
    out: list[Row] = []
    for data in data_sets(folder):
        batch = Prefixes(data, "gaussian")
        for method in ("none", "svt") if data.name == "C2K 1e7" else ("none",):
            rule = Threshold(method, GAUSSIAN_SHARE)
            known = dict(zip(ALGORITHMS, expected.get((data.name, method), []), strict=False))
            out += batch_rows(batch, ("tamm", "identity", "workload"), rule, runs or 500, known)
    return out


def batch_rows(
    batch: Prefixes,
    algorithms: tuple[Algorithm, ...],
    rule: Threshold,
    runs: int,
    expected: Mapping[Algorithm, tuple[float, ...]],
) -> Iterator[Row]:
    """Yield a row for every algorithm that takes the rule, with the ratio of its error to TaMM's.

    TaMM comes first.
    """
    best: list[Estimate] = []
    for algorithm in algorithms:
        try:
            check(algorithm, rule)
        except ProgrammingError:
            continue
        many = max(2, runs // 25) if algorithm == SLOW else runs
        found = batch.errors(algorithm, rule, many)
        best = best or found
        row: Row = {"data": batch.name, "threshold": rule.method, "algorithm": algorithm}
        row |= {"runs": many, **dict(zip(EPSILONS, found, strict=True))}
        limits = expected.get(algorithm, ())
        row["expected"] = limits
        row["reached"] = [f.near(limit) for f, limit in zip(found, limits, strict=False)]
        ratios = (
            [] if algorithm == "tamm" else [f.over(b) for f, b in zip(found, best, strict=True)]
        )
        row |= {f"over tamm, {e}": r for e, r in zip(EPSILONS, ratios, strict=False)}
        if batch.noise == "laplace" and algorithm in LESS:
            row["at least"] = LESS[algorithm]
            row["beaten"] = [ratio.at_least(LESS[algorithm]) for ratio in ratios]
        yield row


def sums_single(folder: Path, runs: int) -> list[Row]:
    """One SUM clipped at a chosen threshold, pure epsilon: mean relative error.

    The geometric mean is over the epsilons; the last rows are over the data sets with expected
    values, three of the four cases of the table it is compared with.
    """
    names = ("C2K 1e6", "C2K 1e7", "ADULT 1e6")
    expected = read_expected(SINGLES)
    rules = {**RULES}
    for method in METHODS:
        if not any(rule.method == method for rule in RULES.values()):
            rules[method] = Threshold(method, SINGLE_SHARE)
    kept = [data for data in data_sets(folder) if data.upper >= 1_000_000]
    out: list[Row] = []
    overall: list[Row] = []
    for label, rule in rules.items():
        try:
            check("workload", rule)
        except ProgrammingError:
            continue
        known = dict(zip(names, expected.get((label,), []), strict=False))
        compared: list[tuple[Estimate, float]] = []
        for data in kept:
            found = single_errors(data, label, rule, runs or 500)
            limits = known.get(data.name, ())
            row: Row = {"data": data.name, "threshold": label, "runs": runs or 500}
            row |= dict(zip(EPSILONS, found, strict=True))
            row |= {"geomean": geometric_mean([f.mean for f in found]), "expected": limits}
            row["reached"] = [f.near(limit) for f, limit in zip(found, limits, strict=False)]
            out.append(row)
            compared += zip(found, limits, strict=False)
        if compared:
            row = {"data": f"{len(compared)} cells", "threshold": label, "runs": runs or 500}
            row["geomean"] = geometric_mean([f.mean for f, _ in compared])
            row["expected"] = geometric_mean([limit for _, limit in compared])
            row["at most"] = TOLERANCE * row["expected"]
            row["reached"] = "yes" if row["geomean"] <= row["at most"] else "no"
            overall.append(row)
    return out + overall


def single_errors(data: Amounts, label: str, rule: Threshold, runs: int) -> list[Estimate]:
    """Return the relative error of one sum for every epsilon."""
    present, counts = np.unique(np.minimum(data.values, data.upper), return_counts=True)
    values = np.append(present, data.upper)
    counts = np.append(counts, 0)
    batch = SumBatch(values, np.ones((1, len(values)), dtype=np.int64), "laplace")
    truth = float(values @ counts)
    found = []
    for epsilon in EPSILONS:

        def one(rng: np.random.Generator, epsilon: str = epsilon) -> float:
            handle = FakeSums(values, counts, epsilon, rng=rng)
            answer = answer_sums(handle, batch, "workload", rule).values[0]
            return abs(float(answer) - truth) / truth

        found.append(Estimate.of(repeat(f"{data.name} {label} {epsilon}", runs, one)))
    return found


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean of positive values."""
    return float(np.exp(np.mean(np.log(values))))
