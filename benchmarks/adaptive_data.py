"""Data sets, seeds and estimates that the sections of ``benchmarks.adaptive`` share."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.algebra.blocks import Dense
from dpsql.algebra.operator import Integers
from dpsql.pgm.measurements import Candidate
from dpsql.workload.workload import Product

DEMO = Path(__file__).parent.parent / "demo_data"
EPSILONS = ("0.01", "0.1", "1")
SEED = 100
TOLERANCE = 1.25
"""Largest ratio to an expected value that counts as reached."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over runs and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, samples: ArrayLike) -> Estimate:
        """Return the mean of independent runs; its error is unknown for a single one."""
        found = np.asarray(samples, dtype=np.float64)
        error = found.std(ddof=1) / math.sqrt(found.size) if found.size > 1 else math.nan
        return cls(float(found.mean()), float(error))

    def over(self, other: Estimate) -> Estimate:
        """Return the ratio to an independent estimate, its error to first order."""
        ratio = self.mean / other.mean
        spread = math.hypot(self.error / self.mean, other.error / other.mean)
        return Estimate(ratio, abs(ratio) * spread)

    def near(self, expected: float) -> str:
        """Say whether the mean is at most an expected value, itself a mean, and its tolerance."""
        return self.at_most(TOLERANCE * expected)

    def at_most(self, limit: float) -> str:
        """Say whether the mean is at most a limit; "no" is by more than two standard errors."""
        return _verdict(limit - self.mean, self.error)

    def at_least(self, limit: float) -> str:
        """Say whether the mean is at least a limit; "no" is by more than two standard errors."""
        return _verdict(self.mean - limit, self.error)

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.error:.1g}"


def _verdict(margin: float, error: float) -> str:
    if margin >= 0:
        return "yes"
    return "no" if margin < -2 * error else "unsure"


def generator(cell: str, run: int) -> np.random.Generator:
    """Return the generator of one run; every cell of every table has seeds of its own."""
    return np.random.default_rng((SEED, zlib.crc32(cell.encode()), run))


def repeat(cell: str, runs: int, one: Callable[[np.random.Generator], float]) -> list[float]:
    """Return what ``one`` finds in every run of a cell."""
    return [one(generator(cell, run)) for run in range(runs)]


def simple_rho(epsilon: float, delta: float) -> Fraction:
    """Return the rho of the simple conversion, which published tables use."""
    root = math.sqrt(math.log(1 / delta))
    return Fraction((math.sqrt(math.log(1 / delta) + epsilon) - root) ** 2)


def records(folder: Path) -> list[list[str]]:
    """Return the Adult training split as published."""
    text = (folder / "adult" / "adult.data.raw").read_text()
    return [line.strip().split(", ") for line in text.splitlines() if line.strip()]


def coded_adult(folder: Path) -> tuple[dict[str, int], dict[str, Integers]]:
    """Return the domain of all 48,842 rows in column order, and the codes per attribute."""
    source = folder / "adult" / "adult.csv"
    sizes = json.loads((folder / "adult" / "adult-domain.json").read_text())
    names = source.read_text().split("\n", 1)[0].strip().split(",")
    table = np.loadtxt(source, delimiter=",", skiprows=1, dtype=np.int64)
    return {a: int(sizes[a]) for a in names}, dict(zip(names, table.T, strict=True))


def draw_triples(domain: Mapping[str, int], rows: int) -> list[tuple[str, ...]]:
    """Return 64 of the triples with no more cells than rows, drawn as in the literature."""
    triples = [t for t in combinations(domain, 3) if math.prod(domain[a] for a in t) <= rows]
    return [triples[i] for i in np.random.RandomState(0).choice(len(triples), 64, replace=False)]


def boxes(
    domain: Mapping[str, int], count: int, rng: np.random.Generator
) -> list[dict[str, tuple[int, int]]]:
    """Return random ranges of cells on every attribute, both ends included."""
    ends = {a: np.sort(rng.integers(0, n, (count, 2)), axis=1) for a, n in domain.items()}
    return [{a: (int(e[i, 0]), int(e[i, 1])) for a, e in ends.items()} for i in range(count)]


def interval(low: int, high: int, size: int) -> Dense:
    """Return the row that counts cells low..high."""
    row = np.zeros((1, size), dtype=np.int64)
    row[0, low : high + 1] = 1
    return Dense(row)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table as cell numbers per attribute, and the queries asked of it."""

    domain: dict[str, int]
    columns: dict[str, Integers]
    candidates: Sequence[Candidate]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))


def range_tables(folder: Path) -> dict[str, Table]:
    """Return three tables with 2,000 random ranges each, drawn in a fixed order."""
    adult = np.array([[int(r[11]), int(r[0]), int(r[12])] for r in records(folder)])
    lines = (folder / "transfusion" / "transfusion.csv").read_text("utf-8-sig").splitlines()[1:]
    blood = np.array([[int(v) for v in line.split(",")[:2]] for line in lines])
    rng = np.random.default_rng(1)
    out = {}
    for domain, data in (
        ({"capital-loss": 4357}, adult[:, :1]),
        ({"age": 100, "hours": 100}, adult[:, 1:]),
        ({"recency": 75, "frequency": 51}, blood),
    ):
        queries: list[Candidate] = [
            (Product({a: interval(*ends, domain[a]) for a, ends in box.items()}),)
            for box in boxes(domain, 2000, rng)
        ]
        columns = dict(zip(domain, data.T, strict=True))
        out[" x ".join(domain)] = Table(domain, columns, queries)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Amounts:
    """Non-negative whole amounts, and the largest that is declared."""

    name: str
    values: NDArray[np.int64]
    upper: int

    def __str__(self) -> str:
        return f"{self.name}, U = {self.upper:,}"


def adult_gains() -> NDArray[np.int64]:
    """Return the capital gains of the Adult training split: 32,561 rows, 8 % not zero."""
    return _numbers("SELECT capital_gain FROM read_parquet(?) LIMIT 32561", "adult.parquet")


def rand_incomes() -> NDArray[np.int64]:
    """Return the family incomes of the RAND experiment: 20,190 rows, the largest 29,238."""
    query = "SELECT round(family_income) FROM read_parquet(?)"
    return np.maximum(_numbers(query, "rand_hie.parquet"), 0)


def census_incomes(folder: Path) -> NDArray[np.int64]:
    """Return yearly incomes of Wooldridge's census2000: 29,501 rows, the largest 6.01 million."""
    import pandas as pd

    source = folder / "census2000" / "census2000.csv.bz2"
    weekly = np.exp(pd.read_csv(source)["lweekinc"].to_numpy(dtype=np.float64))
    return np.asarray(np.rint(52 * weekly), dtype=np.int64)


def _numbers(query: str, file: str) -> NDArray[np.int64]:
    with duckdb.connect() as db:
        found = db.execute(query, [str(DEMO / file)]).fetchall()
    return np.array(found, dtype=np.float64)[:, 0].astype(np.int64)
