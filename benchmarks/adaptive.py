"""Data-dependent mechanisms against published and measured values.

Prints Markdown and writes JSON; noise is drawn by a fake handle with ordinary floating point, for
research only, but for sums-sql, where dpsql draws it.
Run: ``python -m benchmarks.adaptive [SECTION ...] [--data FOLDER] [--json FILE]``;
sections are those of SECTIONS, all by default. Data sets that are not there are skipped.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

import dpsql
from dpsql.adaptive.design import Algorithm, Batch, prefixes
from dpsql.adaptive.handle import Candidate, Noise
from dpsql.adaptive.mwem import Settings, mwem
from dpsql.adaptive.query import marginal
from dpsql.adaptive.sheet import Sheet
from dpsql.adaptive.sums import answer_sums
from dpsql.adaptive.thresholds import METHODS, Threshold
from dpsql.algebra.blocks import Dense
from dpsql.answer.predict import marginal_errors, subsets
from dpsql.answer.project import project_simplex
from dpsql.dbapi import Connection
from dpsql.plan.workload import Product
from tests.adaptive.fake import FakeHandle, FakeSums

ROOT = Path(__file__).parent.parent
EPSILONS = ("0.01", "0.1", "1")
SEED = 100
"""First seed of every series of runs."""

Row = dict[str, Any]


def simple_rho(epsilon: float, delta: float) -> Fraction:
    """Return the rho of the simple conversion, which published tables use."""
    root = math.sqrt(math.log(1 / delta))
    return Fraction((math.sqrt(math.log(1 / delta) + epsilon) - root) ** 2)


def records(folder: Path) -> list[list[str]]:
    """Return the Adult training split as published."""
    text = (folder / "adult" / "adult.data.raw").read_text()
    return [line.strip().split(", ") for line in text.splitlines() if line.strip()]


def range_sets(folder: Path) -> dict[str, tuple[dict[str, int], dict[str, Any], list[Candidate]]]:
    """Return three tables with 2,000 random ranges each, drawn in a fixed order."""
    adult = np.array([[int(r[11]), int(r[0]), int(r[12])] for r in records(folder)])
    lines = (folder / "transfusion" / "transfusion.csv").read_text("utf-8-sig").splitlines()[1:]
    blood = np.array([[int(v) for v in line.split(",")[:2]] for line in lines])
    rng = np.random.default_rng(1)
    sets = {
        "capital-loss": ({"loss": 4357}, adult[:, :1]),
        "age x hours": ({"age": 100, "hours": 100}, adult[:, 1:]),
        "recency x frequency": ({"recency": 75, "frequency": 51}, blood),
    }
    out = {}
    for name, (domain, data) in sets.items():
        ends = {a: np.sort(rng.integers(0, n, (2000, 2)), axis=1) for a, n in domain.items()}
        candidates: list[Candidate] = [
            (
                Product(
                    {
                        a: interval(int(ends[a][i, 0]), int(ends[a][i, 1]), n)
                        for a, n in domain.items()
                    }
                ),
            )
            for i in range(2000)
        ]
        out[name] = domain, dict(zip(domain, data.T, strict=True)), candidates
    return out


def interval(low: int, high: int, size: int) -> Dense:
    """Return the row that counts cells low..high."""
    row = np.zeros((1, size), dtype=np.int64)
    row[0, low : high + 1] = 1
    return Dense(row)


def range_errors(
    table: tuple[dict[str, int], dict[str, Any], list[Candidate]],
    budget: Fraction,
    runs: int,
    noise: Noise = "laplace",
    **settings: Any,
) -> Row:
    """Return the mean over runs of the mean squared error per query."""
    domain, columns, candidates = table
    sheet, errors, rounds, start = Sheet(candidates), [], [], time.perf_counter()
    true = FakeHandle(domain, columns, 1)
    truth = np.array([float(true.true(c)[0]) for c in candidates])
    for run in range(runs):
        rng = np.random.default_rng(SEED + run)
        handle = FakeHandle(domain, columns, budget, noise=noise, rng=rng)
        done = mwem(handle, candidates, Settings(**settings))
        answers = np.concatenate(sheet.answers(done.model))
        errors.append(float(np.square(answers - truth).mean()))
        rounds.append(len(done.rounds))
    return {
        "error": float(np.mean(errors)),
        "spread": float(np.std(errors) / math.sqrt(runs)),
        "rounds": [min(rounds), max(rounds)],
        "zero": float(np.square(truth).mean()),
        "seconds": (time.perf_counter() - start) / runs,
    }


def mwem_ranges(folder: Path, runs: int) -> list[Row]:
    """Pure MWEM on ranges; the matrix mechanism's bound at delta = 1/n beside it."""
    expected = {
        "capital-loss": (8.0e5, 5.4e5, 1.6e5, 6.6e4),
        "age x hours": (2.7e6, 1.4e6, 5.4e5, 3.1e5),
        "recency x frequency": (2.3e5, 7.6e4, 2.2e4, 8.2e3),
    }
    out = []
    for name, table in range_sets(folder).items():
        rows = len(next(iter(table[1].values())))
        bound = bound_of(table[0], table[2], 1 / rows)
        for epsilon, value in zip(("0.0125", "0.025", "0.05", "0.1"), expected[name], strict=True):
            found = range_errors(table, Fraction(epsilon), runs or 10, share=Fraction(1, 50))
            row = {"data": name, "epsilon": epsilon, "runs": runs or 10, "expected": value}
            out.append({**row, **found, "svd bound": bound / float(epsilon) ** 2})
    return out


def bound_of(domain: dict[str, int], candidates: Sequence[Candidate], delta: float) -> float:
    """Return the singular value bound on the mean squared error at epsilon one."""
    tables = [
        np.vstack([c[0].factors[a].dense() for c in candidates]).astype(np.float64) for a in domain
    ]
    left = tables[0]
    gram = left @ left.T
    for table in tables[1:]:
        gram = gram * (table @ table.T)
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0))
    cells = math.prod(domain.values())
    return float(2 * math.log(2 / delta) * roots.sum() ** 2 / (cells * len(candidates)))


def mwem_gaussian(folder: Path, runs: int) -> list[Row]:
    """MWEM on ranges under zCDP, rows public, delta 1e-6."""
    sets = range_sets(folder)
    expected = {
        ("capital-loss", 0.1): {33: 2.3e4},
        ("capital-loss", 1.0): {32: 1.1e3, 128: 7.3e2},
        ("age x hours", 0.1): {34: 1.2e5},
        ("age x hours", 0.5): {32: 3.1e4, 128: 1.4e4},
        ("age x hours", 1.0): {128: 6.4e3},
    }
    out = []
    for (name, epsilon), cases in expected.items():
        table = sets[name]
        total = float(len(next(iter(table[1].values()))))
        for count, value in cases.items():
            rounds = "auto" if count in (33, 34, 128) else count
            budget = simple_rho(epsilon, 1e-6)
            found = range_errors(
                table, budget, runs or 3, "gaussian", total=total, rounds=rounds, slack=1.0
            )
            row = {"data": name, "epsilon": epsilon, "T": rounds, "runs": runs or 3}
            out.append({**row, "expected": value, **found})
    return out


def mwem_parities(folder: Path, runs: int) -> list[Row]:
    """Pure MWEM on all parities of order up to three of small tables: KL in nats."""
    expected = {
        "mildew": (1.50, 1.23, 0.90, 0.45),
        "czech": (0.115, 0.054, 0.038, 0.024),
        "rochdale": (1.38, 0.65, 0.44, 0.305),
    }
    parity = Dense(np.array([[1, -1]]))
    out = []
    for name, values in expected.items():
        text = (folder / "contingency" / f"{name}.txt").read_text()
        counts = np.array(text.split(), dtype=np.float64)
        names = [f"b{i}" for i in range(round(math.log2(counts.size)))]
        domain = dict.fromkeys(names, 2)
        candidates: list[Candidate] = [
            (Product(dict.fromkeys(c, parity)),) for k in (1, 2, 3) for c in combinations(names, k)
        ]
        for epsilon, value in zip(("0.1", "0.5", "1", "2"), values, strict=True):
            found = []
            for run in range(runs or 20):
                rng = np.random.default_rng(SEED + run)
                handle = FakeHandle.of_histogram(domain, counts, epsilon, rng=rng)
                model = mwem(handle, candidates, Settings(share=Fraction(1, 20))).model
                found.append(divergence(counts, model.marginal(tuple(names)).ravel()))
            uniform = divergence(counts, np.ones(counts.size))
            row = {"data": name, "epsilon": epsilon, "runs": runs or 20, "expected": value}
            out.append({**row, "KL": np.mean(found), "max": max(found), "uniform": uniform})
    return out


def divergence(counts: NDArray[Any], model: NDArray[Any]) -> float:
    """Return KL(counts || model) of the normalised tables, in nats."""
    p, q = counts / counts.sum(), model / model.sum()
    used = p > 0
    return float((p[used] * np.log(p[used] / q[used])).sum())


CUBOIDS = {
    "workclass": 1,
    "education": 3,
    "marital": 5,
    "occupation": 6,
    "relationship": 7,
    "race": 8,
    "sex": 9,
    "country": 13,
}


def mwem_cuboids(folder: Path, runs: int) -> list[Row]:
    """Pure MWEM on 92 whole marginals of complete Adult rows: mean cell error, rows private."""
    rows = [r for r in records(folder) if all(r[i] != "?" for i in CUBOIDS.values())]
    domain, columns = {}, {}
    for name, place in CUBOIDS.items():
        found, codes = np.unique([r[place] for r in rows], return_inverse=True)
        domain[name], columns[name] = len(found), codes
    candidates = [marginal(domain, c) for k in (1, 2, 3) for c in combinations(domain, k)]
    expected = {"0.1": 58.8, "0.5": 58.0, "1": 62.8}
    out = []
    for epsilon, value in expected.items():
        errors, start = [], time.perf_counter()
        for run in range(runs or 3):
            handle = FakeHandle(domain, columns, epsilon, rng=np.random.default_rng(SEED + run))
            model = mwem(handle, candidates, Settings(hint=float(len(rows)))).model
            gaps = [np.abs(handle.true(c) - model.answer(c)).mean() for c in candidates]
            errors.append(float(np.mean(gaps)))
        seconds = (time.perf_counter() - start) / (runs or 3)
        row = {"epsilon": epsilon, "runs": runs or 3, "expected": value, "error": np.mean(errors)}
        out.append({**row, "max": max(errors), "seconds": seconds})
    return out


def projection(folder: Path, runs: int) -> list[Row]:
    """Optimal Gaussian marginals of Adult, raw and projected, with the predicted max error."""
    domain = json.loads((folder / "adult" / "adult-domain.json").read_text())
    data = np.loadtxt(folder / "adult" / "adult.csv", delimiter=",", skiprows=1, dtype=np.int64)
    columns = dict(zip(domain, data.T, strict=True))
    triples = [c for c in combinations(domain, 3) if math.prod(domain[a] for a in c) <= len(data)]
    drawn = np.random.RandomState(0).choice(len(triples), 64, replace=False)
    cliques = [triples[i] for i in drawn]
    true = FakeHandle(domain, columns, 1)
    tables = [true.marginal(c) / len(data) for c in cliques]
    expected = {
        0.0: (0.0729, 0.0154, 0.0079),
        0.25: (0.0499, 0.0100, 0.0049),
        0.375: (0.0451, 0.0090, 0.0045),
        0.5: (0.0445, 0.0093, 0.0048),
    }
    out = []
    for power, values in expected.items():
        errors = marginal_errors(domain, cliques, power)
        for epsilon, value in zip((0.1, 0.5, 1.0), values, strict=True):
            rho = float(simple_rho(epsilon, 4.192e-10))
            raw, fitted, means = [], [], []
            for run in range(runs or 5):
                rng = np.random.default_rng(SEED + run)
                noise = marginal_noise(domain, cliques, power, rho, rng)
                gaps = [z / len(data) for z in noise]
                shift = float(np.mean([g.sum() for g in gaps]))
                sides = [
                    project_simplex((t + g).ravel(), 1 + shift).reshape(t.shape) - t
                    for t, g in zip(tables, gaps, strict=True)
                ]
                raw.append(max(float(np.abs(g).max()) for g in gaps))
                fitted.append(max(float(np.abs(g).max()) for g in sides))
                total = sum(float(np.abs(g).sum()) for g in sides)
                means.append(total / sum(g.size for g in sides))
            row: Row = {"g": power, "epsilon": epsilon, "runs": runs or 5, "expected": value}
            predicted = errors.largest(rho) / len(data)
            row["predicted"] = predicted
            row |= {"raw": float(np.mean(raw)), "projected": float(np.mean(fitted))}
            out.append({**row, "mean": np.mean(means)})
    return out


def marginal_noise(
    domain: dict[str, int],
    cliques: Sequence[tuple[str, ...]],
    power: float,
    rho: float,
    rng: np.random.Generator,
) -> list[NDArray[np.float64]]:
    """Return one draw of the noise of optimal Gaussian marginals, in counts."""
    spectrum: dict[tuple[str, ...], float] = {}
    for clique in cliques:
        size = float(math.prod(domain[a] for a in clique))
        for subset in subsets(clique):
            spectrum[subset] = spectrum.get(subset, 0.0) + size ** (-2 * power) / size
    root = marginal_errors(domain, cliques, power).root
    draws = {}
    for subset, value in spectrum.items():
        stddev = math.sqrt(root / math.sqrt(value) / (2 * rho))
        z = rng.normal(0, stddev, [domain[a] for a in subset])
        for axis in range(z.ndim):
            z = z - z.mean(axis=axis, keepdims=True)
        draws[subset] = z
    out = []
    for clique in cliques:
        size = math.prod(domain[a] for a in clique)
        noise = np.zeros([domain[a] for a in clique])
        for subset in subsets(clique):
            scale = math.sqrt(size * math.prod(domain[a] for a in clique if a not in subset))
            shape = [domain[a] if a in subset else 1 for a in clique]
            noise += np.reshape(draws[subset], shape) / scale
        out.append(noise)
    return out


def amounts(folder: Path) -> dict[str, tuple[NDArray[np.int64], int, Row]]:
    """Return per data set its values, the upper bound of a batch, and expected errors."""
    gain = np.array([int(r[10]) for r in records(folder)], dtype=np.int64)
    sets: dict[str, tuple[NDArray[np.int64], int, Row]] = {
        "ADULT": (
            gain,
            100_000,
            {
                "identity none": (0.42, 0.046, 0.0047),
                "workload none": (0.84, 0.11, 0.017),
                "timm none": (0.59, 0.071, 0.0079),
                "tamm none": (0.26, 0.022, 0.0024),
                "identity svt": (0.32, 0.064, 0.0074),
                "workload svt": (0.56, 0.13, 0.021),
                "timm svt": (0.25, 0.067, 0.011),
                "tamm svt": (0.19, 0.025, 0.0033),
                "sqm none": (1.7, 0.25, 0.027),
                "sqm svt": (0.52, 0.29, 0.14),
            },
        )
    }
    source = str(ROOT / "demo_data" / "rand_hie.parquet")
    with duckdb.connect() as db:
        found = db.execute("SELECT round(family_income) FROM read_parquet(?)", [source]).fetchall()
    income = np.array(found, dtype=np.float64)[:, 0].astype(np.int64)
    return {**sets, "RAND HIE income": (np.maximum(income, 0), 40_000, {})}


def sums_batch(folder: Path, runs: int) -> list[Row]:
    """One hundred prefix sums by five algorithms: mean relative error, ordered, pure epsilon."""
    out = []
    for name, (raw, upper, expected) in amounts(folder).items():
        values = np.arange(1, 101, dtype=np.int64) * upper // 100
        bins = np.clip(-(-np.minimum(raw, upper) * 100 // upper), 1, 100) - 1  # zeros in the first
        counts = np.bincount(bins, minlength=100)
        queries = prefixes(100)
        truth = queries @ (values * counts)
        batch = Batch(values, queries, "laplace")
        names: tuple[Algorithm, ...] = ("sqm", "identity", "workload", "timm", "tamm")
        for algorithm in names:
            for method in METHODS:
                if method == "sure" and algorithm not in ("identity", "tamm"):
                    continue
                rule = Threshold(method)
                row: Row = {"data": name, "algorithm": algorithm, "theta": method}
                row["runs"] = many = runs or (100 if algorithm != "sqm" else 10)
                row["expected"] = expected.get(f"{algorithm} {method}")
                for epsilon in EPSILONS:
                    errors = []
                    for run in range(many):
                        rng = np.random.default_rng(SEED + run)
                        handle = FakeSums(values, counts, epsilon, rng=rng)
                        found = answer_sums(handle, batch, algorithm, rule, ordered=True)
                        errors.append(np.abs(found.values - truth) / np.maximum(truth, 1))
                    row[epsilon] = float(np.mean(errors))
                out.append(row)
    return out


def sums_single(folder: Path, runs: int) -> list[Row]:
    """One SUM: mean relative error with the threshold chosen by each method."""
    out = []
    single = {
        "none": Threshold("none"),
        "svt k=1": Threshold("svt", Fraction(1, 2), Fraction(1)),
        "svt k=4": Threshold("svt", Fraction(1, 2), Fraction(4)),
        "svt k=2 r=.25": Threshold("svt", Fraction(1, 4), Fraction(2)),
        "ratio .999": Threshold("svt-ratio", Fraction(1, 4), ratio=Fraction(999, 1000)),
        "ratio .95": Threshold("svt-ratio", Fraction(1, 4)),
        "quantile": Threshold("quantile", Fraction(1, 2), Fraction(5, 2), growth=0.05),
        "recursive": Threshold("recursive", Fraction(1, 2)),
    }
    expected = {
        "none": (2.7, 0.27, 0.027),
        "svt k=1": (0.49, 0.12, 0.0082),
        "svt k=4": (0.60, 0.15, 0.0062),
        "svt k=2 r=.25": (0.76, 0.19, 0.0077),
        "ratio .999": (0.67, 0.20, 0.0040),
        "ratio .95": (0.78, 0.65, 0.67),
        "quantile": (0.80, 0.21, 0.023),
        "recursive": (0.57, 0.23, 0.064),
    }
    for name, (raw, _, _) in amounts(folder).items():
        is_adult = name.startswith("ADULT")
        upper = 1_000_000
        present, counts = np.unique(raw, return_counts=True)
        values = np.append(present, upper).astype(np.int64)
        counts = np.append(counts, 0)
        batch = Batch(values, np.ones((1, len(values)), dtype=np.int64), "laplace")
        truth = float(values @ counts)
        for label, rule in single.items():
            row: Row = {"data": name, "theta": label, "runs": runs or 100}
            row["expected"] = expected[label] if is_adult else None
            for epsilon in EPSILONS:
                errors = []
                for run in range(runs or 100):
                    rng = np.random.default_rng(SEED + run)
                    handle = FakeSums(values, counts, epsilon, rng=rng)
                    found = answer_sums(handle, batch, "workload", rule)
                    errors.append(abs(float(found.values[0]) - truth) / truth)
                row[epsilon] = float(np.mean(errors))
            row["geomean"] = math.exp(sum(math.log(row[e]) for e in EPSILONS) / len(EPSILONS))
            out.append(row)
    return out


GAINS = """
[budget]
epsilon = 1000000

[ledger]
anchor = "anchors"

[table.adult]
source = "adult.parquet"
privacy_unit = "row"

[table.adult.column]
gain = { type = "integer", bounds = [0, 1000000], bounds_are = "loose" }
level = { type = "number", domain = [0, 100000], bins = 100 }
"""


def sums_sql(folder: Path, runs: int) -> list[Row]:
    """Capital gain of Adult from SQL to rows, with the noise of dpsql: mean relative errors."""
    gain = np.array([int(r[10]) for r in records(folder)], dtype=np.int64)
    single = {"none": (2.7, 0.27, 0.027), "svt": (0.49, 0.12, 0.0082)}
    single |= {"recursive": (0.57, 0.23, 0.064), "quantile": (0.80, 0.21, 0.023)}
    batch = [("tamm", "none"), ("tamm", "svt"), ("tamm", "sure"), ("identity", "none")]
    batch += [("timm", "none"), ("workload", "none")]
    edges = np.arange(1, 101) * 1000
    sorted_gain = np.sort(gain)
    sides = np.append(np.searchsorted(sorted_gain, edges[:-1], side="left"), len(gain))
    prefix = np.append(0, np.cumsum(sorted_gain))[sides].astype(np.float64)
    query = "level, SUM(SUM(level)) OVER (ORDER BY level) AS s FROM adult GROUP BY level"
    out: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with duckdb.connect() as db:
            db.execute("CREATE TABLE a AS SELECT unnest(?) AS gain", [gain.tolist()])
            target = place / "adult.parquet"
            db.execute(f"COPY (SELECT gain, gain::DOUBLE AS level FROM a) TO '{target}'")
        (place / "adult.toml").write_text(GAINS)
        with dpsql.connect(place / "adult.toml") as connection:
            connection.execute("SET fresh = on")
            for clip, expected in single.items():
                many, total = runs or 100, np.array([float(gain.sum())])
                row: Row = {"query": "one sum", "clip": clip, "runs": many, "expected": expected}
                row |= sql_errors(
                    connection, "SUM(gain) FROM adult", f"clip = '{clip}'", total, many
                )
                out.append(row)
            for mechanism, clip in batch:  # values keep their place in a bin: zeros add nothing
                given = f"clip = '{clip}', sum_mechanism = '{mechanism}'"
                row = {"query": f"100 prefixes, {mechanism}", "clip": clip, "runs": runs or 5}
                out.append(row | sql_errors(connection, query, given, prefix, runs or 5))
    return out


def sql_errors(
    connection: Connection, query: str, options: str, truth: NDArray[np.float64], runs: int
) -> Row:
    """Return the mean relative error of the last column for every epsilon."""
    row: Row = {}
    for epsilon in EPSILONS:
        text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = {epsilon}, {options}) {query}"
        errors = []
        for _ in range(runs):
            found = np.array([r[-1] for r in connection.execute(text).fetchall()], dtype=float)
            errors.append(np.abs(found - truth) / np.maximum(truth, 1))
        row[epsilon] = float(np.mean(errors))
    return row


SECTIONS: dict[str, Callable[[Path, int], list[Row]]] = {
    "mwem-ranges": mwem_ranges,
    "mwem-gaussian": mwem_gaussian,
    "mwem-parities": mwem_parities,
    "mwem-cuboids": mwem_cuboids,
    "projection": projection,
    "sums-batch": sums_batch,
    "sums-single": sums_single,
    "sums-sql": sums_sql,
}


def shown(value: Any) -> str:
    """Return a value for a table cell."""
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}"
    if isinstance(value, (tuple, list)):
        return "/".join(shown(v) for v in value)
    return "" if value is None else str(value)


def main() -> None:
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION")
    parser.add_argument("--data", type=Path, default=ROOT / "shared" / "data")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--runs", type=int, default=0, help="runs per cell, 0 for each default")
    given = parser.parse_args()
    results: dict[str, list[Row]] = {}
    for name in given.sections or SECTIONS:
        section = SECTIONS[name]
        print(f"\n### {name}\n\n{section.__doc__} Seeds from {SEED}.\n", flush=True)
        start = time.perf_counter()
        try:
            rows = results[name] = section(given.data, given.runs)
        except FileNotFoundError as missing:
            print(f"Skipped: {missing.filename} is not there.")
            continue
        heads = list(rows[0])
        print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
        for row in rows:
            print("| " + " | ".join(shown(row.get(head)) for head in heads) + " |")
        print(f"\n{time.perf_counter() - start:.0f} s", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1, default=float))


if __name__ == "__main__":
    main()
