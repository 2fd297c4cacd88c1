"""Eight conjunctive counts over two or three columns: ``auto`` beside a long search of signed rows.

Strategies of 8 to 11 rows, of either sign, that combine the queries: scipy's L-BFGS-B on the log of
the expected error under Laplace noise, with a smooth maximum in place of the largest L1 norm of a
column, ever sharper. It starts from the queries, from these with small noise and more rows of it,
and from the optimum for the L2 norm with the same. Formulas are written out here, apart from those
that plan, and the search takes as long as it takes: it says what there is to gain.

Conditions are equalities, bands of whole numbers, or either. What ``auto`` has is the expected
error of its plan of the eight statements under ``metric = 'mean'``, which leaves none more than
``CAP`` times plain noise. Signed rows that leave one more than that are no plan, and do not count.

Run: ``python -m benchmarks.signed [how many of a kind [first seed]] [kind ...] [starts=N]``.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from scipy import optimize

import dpsql
from benchmarks.fair import compiled_of
from dpsql.plan.request import Request, expected_error, make_plan

Floats = NDArray[np.float64]
minimize: Any = optimize.minimize

COUNT, STARTS, QUERIES = 60, 12, 8
CAP = 1.1
EFFORT = Fraction(4)
"""Effort of ``auto``: eight starts."""
FINE = Fraction(1, 100)
"""Epsilon of plans: noise on whole numbers is as that on all."""
ROWS = (8, 9, 10, 11)
"""Rows of strategies that are searched for."""
NOISE = (0.02, 0.1, 0.3)
"""Sizes of what starts are changed by, in turns."""
STAGES = ((1e-2, 8), (1e-3, 32), (1e-4, 128), (1e-5, 512), (1e-6, 2048))
"""Rounding of the corners of |x|, and the power that stands for the maximum."""
STEPS = 300
GAINS = (0.01, 0.03, 0.05)
"""Gains of the standard error whose shares are printed."""
KINDS = ("equal", "bands", "either")
SIZES = {"equal": (2, 3, 4, 5), "bands": (2, 3, 5, 16, 74, 99), "either": (2, 3, 5, 16, 74)}
NAMES = "abc"


@dataclass(frozen=True, slots=True)
class Counts:
    """Conjunctive counts as SQL, and as queries (m, cells) of cells that are asked differently."""

    catalog: str
    statements: tuple[str, ...]
    queries: Floats


@dataclass(frozen=True, slots=True)
class Found:
    """Root mean squared errors at epsilon 1 of what is planned and of signed rows."""

    kind: str
    auto: float
    signed: float

    @property
    def ratio(self) -> float:
        """Signed rows over what is planned."""
        return self.signed / self.auto


def main(arguments: Sequence[str]) -> int:
    """Print a line for every workload, and the shares of those that signed rows are better for."""
    numbers = [int(each) for each in arguments if each.isdigit()]
    count, first = (*numbers, *(COUNT, 0)[len(numbers) :])
    named = [each.partition("=")[2] for each in arguments if each.startswith("starts=")]
    starts = int(named[0]) if named else STARTS
    kinds: Sequence[str] = [each for each in arguments if each in KINDS] or KINDS
    print(f"{'kind':7} {'seed':>5} {'rank':>4} {'cells':>5} {'auto':>8} {'signed':>8} {'ratio':>7}")
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"DPSQL_CACHE": "off", "XDG_STATE_HOME": name}
        for kind in kinds:
            for seed in range(first, first + count):
                found.append(measure(Path(name), kind, seed, starts))
    for kind in (*kinds, "all"):
        report(kind, [each for each in found if kind in (each.kind, "all")])
    return 0


def report(kind: str, found: Sequence[Found]) -> None:
    """Print how often signed rows gain how much."""
    gains = 1 - np.array([each.ratio for each in found])
    shares = ", ".join(f"{int((gains > least).sum())} by {least:.0%}" for least in GAINS)
    print(f"{kind}: of {len(found)}, better {shares}; from {gains.min():.2%} to {gains.max():.2%}")


def measure(folder: Path, kind: str, seed: int, starts: int = STARTS) -> Found:
    """Plan a workload, and search for signed rows."""
    counts = make_counts(kind, seed)
    auto, method, planning = planned(folder, counts)
    start = time.process_time()
    signed = min(search(counts.queries, np.random.default_rng(seed), starts), default=math.inf)
    spent = time.process_time() - start
    found = Found(kind, auto, signed)
    rank, cells = np.linalg.matrix_rank(counts.queries), counts.queries.shape[1]
    print(
        f"{kind:7} {seed:>5} {rank:>4} {cells:>5} {auto:>8.4f} {signed:>8.4f} {found.ratio:>7.4f}"
        f"  {planning:.2f} and {spent:.1f} s, {method}",
        flush=True,
    )
    return found


def planned(folder: Path, counts: Counts) -> tuple[float, str, float]:
    """The root mean squared error at epsilon 1, of fine noise, the method, and CPU seconds."""
    catalog = folder / "c.toml"
    catalog.write_text(counts.catalog)
    with duckdb.connect() as scribe:
        shown = ", ".join(f"0 AS {name}" for name in NAMES)
        scribe.execute(f"COPY (SELECT {shown} WHERE false) TO '{folder}/t.parquet'")
    with dpsql.connect(catalog, epsilon=1) as connection:
        compiled = compiled_of(connection, counts.statements)
    request = Request(compiled, FINE, Fraction(0), "laplace", effort=EFFORT, metric="mean")
    start = time.process_time()
    found = make_plan(request)
    spent = time.process_time() - start
    methods = " + ".join(part.strategy.method for part in found.plan.parts)
    return float(FINE) * math.sqrt(expected_error(request, found) / QUERIES), methods, spent


def make_counts(kind: str, seed: int) -> Counts:
    """Eight different conjunctions over two or three columns; the same for the same seed."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    sizes = [int(n) for n in rng.choice(SIZES[kind], int(rng.integers(2, 4)))]
    sizes[0] = max(sizes[0], 3)  # there are to be eight
    domain = dict(zip(NAMES, sizes, strict=False))
    rows: dict[str, Floats] = {}
    while len(rows) < QUERIES:
        names = rng.choice(list(domain), int(rng.integers(1, 1 + len(domain))), False).tolist()
        row: Floats = np.ones(1)
        tests: list[str] = []
        for name, n in domain.items():
            low, high = (0, n - 1) if name not in names else condition(rng, kind, n)
            kept = (np.arange(n) >= low) & (np.arange(n) <= high)
            row = np.asarray(np.kron(row, kept), dtype=np.float64)
            if name in names:
                tests.append(f"{name} BETWEEN {low} AND {high}")
        rows[f"SELECT COUNT(*) FROM t WHERE {' AND '.join(tests)}"] = row
    columns = [
        f'{name} = {{ type = "integer", domain = [0, {n - 1}] }}' for name, n in domain.items()
    ]
    lines = ["[budget]", "epsilon = 1000", "[table.t]", 'source = "t.parquet"']
    lines += ['privacy_unit = "row"', "[table.t.column]", *columns]
    queries = np.unique(np.array(list(rows.values())), axis=1)
    return Counts("\n".join(lines) + "\n", tuple(rows), queries)


def condition(rng: np.random.Generator, kind: str, n: int) -> tuple[int, int]:
    """The first and the last value that a condition admits, of a column of n values."""
    low, high = sorted(rng.integers(0, n, 2).tolist())
    is_equal = kind == "equal" or n == 2 or (kind == "either" and rng.random() < 0.5)
    return low, low if is_equal else high


def search(queries: Floats, rng: np.random.Generator, starts: int) -> Iterator[float]:
    """Yield root mean squared errors at epsilon 1 of strategies that keep to the cap."""
    basis = independent(queries)
    asked: Floats = np.linalg.lstsq(basis.T, queries.T, rcond=None)[0].T.astype(np.float64)
    firsts = (asked, least_squares(queries, basis))
    most = CAP**2 * float(queries.sum(axis=0).max()) ** 2
    for turn in range(starts):
        first = firsts[turn % 2]
        rows = max(len(first), ROWS[turn // 2 % len(ROWS)])
        matrix = np.zeros((rows, first.shape[1]))
        matrix[: len(first)] = first
        if turn > 1:
            size = NOISE[turn // 2 % len(NOISE)] * np.abs(first).max()
            matrix += size * rng.standard_normal(matrix.shape)
        variances = descend(matrix, basis, asked)
        if variances.max() <= most:
            yield math.sqrt(2 * float(variances.mean()))


def independent(queries: Floats) -> Floats:
    """Rows that span the queries."""
    kept: list[Floats] = []
    for row in queries:
        if np.linalg.matrix_rank(np.array([*kept, row])) > len(kept):
            kept.append(row)
    return np.array(kept)


def least_squares(queries: Floats, basis: Floats) -> Floats:
    """The optimum for the L2 norm, in combinations of the basis: weights are a fixed point."""
    gram, weights = queries.T @ queries, np.ones(queries.shape[1])
    for _ in range(300):
        root = np.sqrt(weights)
        values, vectors = np.linalg.eigh(root[:, np.newaxis] * gram * root)
        norms = vectors**2 @ np.sqrt(np.maximum(values, 0)) / weights
        weights = np.maximum(weights * norms, 1e-12)
        weights *= len(weights) / weights.sum()
    root = np.sqrt(weights)
    values, vectors = np.linalg.eigh(root[:, np.newaxis] * gram * root)
    kept = values > 1e-9 * values[-1]
    rows = (values[kept] ** 0.25)[:, np.newaxis] * vectors[:, kept].T / root
    return np.asarray(np.linalg.lstsq(basis.T, rows.T, rcond=None)[0].T)


def descend(matrix: Floats, basis: Floats, asked: Floats) -> Floats:
    """The variances of all queries, over that of unit noise, where descents in turn end."""
    for smooth, power in STAGES:
        matrix = matrix / np.abs(matrix @ basis).sum(axis=0).max()
        ended = minimize(
            smoothed,
            matrix.ravel(),
            (matrix.shape, basis, asked, smooth, power),
            method="L-BFGS-B",
            jac=True,
            options={"maxiter": STEPS, "maxcor": 20, "ftol": 1e-11, "gtol": 1e-9},
        )
        matrix = ended.x.reshape(matrix.shape)
    norm = float(np.abs(matrix @ basis).sum(axis=0).max())
    inverse = np.linalg.pinv(matrix.T @ matrix)
    return np.asarray(norm**2 * ((asked @ inverse) * asked).sum(axis=1))


def smoothed(
    flat: Floats, shape: tuple[int, int], basis: Floats, asked: Floats, smooth: float, power: int
) -> tuple[float, Floats]:
    """The log of the squared error with a smooth maximum, and its gradient."""
    matrix = flat.reshape(shape)
    try:
        inverse = np.linalg.inv(matrix.T @ matrix)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(flat)
    spread = asked @ inverse
    total = float((spread * asked).sum())
    if not total > 0:
        return 1e10, np.zeros_like(flat)
    rows = matrix @ basis
    sizes = np.sqrt(rows**2 + smooth**2)
    columns = sizes.sum(axis=0)
    largest = float(columns.max())
    parts = (columns / largest) ** power
    value = 2 * (math.log(largest) + math.log(float(parts.sum())) / power) + math.log(total)
    slope = 2 * (rows / sizes * (parts / columns / parts.sum())) @ basis.T
    return value, (slope - 2 * matrix @ spread.T @ spread / total).ravel()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
