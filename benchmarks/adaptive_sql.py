"""Adaptive mechanisms from SQL to rows, with the noise of dpsql, for ``benchmarks.adaptive``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

import dpsql
from benchmarks.adaptive_data import (
    DEMO,
    EPSILONS,
    SEED,
    Estimate,
    Row,
    adult_gains,
    boxes,
    draw_triples,
)
from dpsql.catalog import Table
from dpsql.catalog.domain import Bins
from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
from dpsql.learn.batches import check
from dpsql.learn.thresholds import METHODS, Threshold

CATALOG = """
[budget]
epsilon = 1000000
delta = 1e-6

[ledger]
anchor = "anchors"

[table.adult]
source = "adult.parquet"
privacy_unit = "row"
row_count_hint = 50000

[table.adult.column]
"""
GAINS = """
gain = { type = "integer", bounds = [0, 1000000], bounds_are = "loose" }
level = { type = "number", domain = [0, 100000], bins = 100 }
"""
SINGLE = {
    "none": (2.7, 0.27, 0.027),
    "svt": (0.49, 0.12, 0.0082),
    "recursive": (0.57, 0.23, 0.064),
    "quantile": (0.80, 0.21, 0.023),
}
SIZES = {"age": 100, "hours": 100, "loss": 100}
"""A million cells."""
MILLION = """
age = { type = "integer", domain = [0, 99] }
hours = { type = "integer", domain = [0, 99] }
loss = { type = "integer", domain = [0, 99] }
"""
WORKLOADS = "workloads"
"""The folder whose files SQL may name."""
QUERIES = 2000
SLOWEST = {"rap": 120.0, "marginals": 120.0, "mixture": 120.0, "mwem": 60.0}
"""Seconds that a run may take."""


@contextmanager
def world(columns: str, select: str) -> Iterator[Connection]:
    """A new catalog over a table made by a query; ? is the Parquet file of all of Adult."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with duckdb.connect() as db:
            target = place / "adult.parquet"
            db.execute(f"COPY ({select}) TO '{target}'", [str(DEMO / "adult.parquet")])
        (place / "adult.toml").write_text(CATALOG + columns)
        (place / WORKLOADS).mkdir()
        with dpsql.connect(place / "adult.toml", files=place / WORKLOADS) as connection:
            yield connection


def sums_sql(folder: Path, runs: int) -> list[Row]:
    """Capital gain of Adult from SQL to rows, with the noise of dpsql: mean relative error.

    The noise has no seed.
    """
    gain = adult_gains()
    edges = np.arange(1, 101) * 1000
    ordered = np.sort(gain)
    sides = np.append(np.searchsorted(ordered, edges[:-1], side="left"), len(gain))
    prefix = np.append(0, np.cumsum(ordered))[sides].astype(np.float64)
    query = "level, SUM(SUM(level)) OVER (ORDER BY level) AS s FROM adult GROUP BY level"
    batch = [("tamm", "none"), ("tamm", "svt"), ("tamm", "sure"), ("identity", "none")]
    batch += [("timm", "none"), ("workload", "none")]
    columns = "capital_gain AS gain, capital_gain::DOUBLE AS level"
    select = f"SELECT {columns} FROM read_parquet(?) LIMIT 32561"
    out: list[Row] = []
    with world(GAINS, select) as connection:
        connection.execute("SET fresh = on")
        total = np.array([float(gain.sum())])
        for method in METHODS:
            try:
                check("workload", Threshold(method))
                found = sql_errors(
                    connection, "SUM(gain) FROM adult", f"clip = '{method}'", total, runs or 100
                )
            except Error:
                continue
            row: Row = {"query": "one sum", "clip": method, "runs": runs or 100}
            limits = SINGLE.get(method, ())
            reached = [f.near(limit) for f, limit in zip(found, limits, strict=False)]
            row |= dict(zip(EPSILONS, found, strict=True))
            out.append({**row, "expected": limits, "reached": reached})
        for mechanism, clip in batch:  # values keep their place in a bin: zeros add nothing
            given = f"clip = '{clip}', sum_mechanism = '{mechanism}'"
            found = sql_errors(connection, query, given, prefix, runs or 20)
            row = {"query": f"100 prefixes, {mechanism}", "clip": clip, "runs": runs or 20}
            out.append({**row, **dict(zip(EPSILONS, found, strict=True))})
    return out


def sql_errors(
    connection: Connection, query: str, options: str, truth: NDArray[np.float64], runs: int
) -> list[Estimate]:
    """Return the mean relative error of the last column for every epsilon."""
    estimates = []
    for epsilon in EPSILONS:
        text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = {epsilon}, {options}) {query}"
        errors = []
        for _ in range(runs):
            found = np.array([r[-1] for r in connection.execute(text).fetchall()], dtype=float)
            errors.append(float((np.abs(found - truth) / np.maximum(truth, 1)).mean()))
        estimates.append(Estimate.of(errors))
    return estimates


def through_sql(folder: Path, runs: int) -> list[Row]:
    """Wall time of CREATE SYNTHETIC TABLE on Adult: read SQL, learn with dpsql's noise, store.

    MWEM on 2,000 boxes of a million cells; RAP on 2,000 conjunctions of lists of values of three
    columns; RAP and whole marginals on 64 groupings by three columns. All settings are defaults.
    The noise has no seed.
    """
    columns = "age, hours_per_week AS hours, least(capital_loss // 50, 99)::INTEGER AS loss"
    out: list[Row] = []
    with world(MILLION, f"SELECT {columns} FROM read_parquet(?)") as connection:
        workload = counts(million_boxes())
        out += [timed(connection, "mwem", workload, f"epsilon = {e}") for e in ("0.1", "1")]
    columns = (DEMO / "adult.toml").read_text().split("[table.adult.column]")[1]
    with world(columns, "SELECT * FROM read_parquet(?)") as connection:
        table = connection.catalog.tables["adult"]
        sizes = {name: column.size for name, column in table.columns.items() if column.size}
        triples = draw_triples(sizes, 48_842)
        names = [", ".join(triple) for triple in triples]
        groupings = [f"SELECT {t}, COUNT(*) FROM adult GROUP BY {t}" for t in names]
        for epsilon in ("0.1", "1"):
            terms = f"epsilon = {epsilon}, delta = 1e-9"
            out.append(timed(connection, "rap", counts(conjunctions(table, triples)), terms))
            for model in ("rap", "marginals", "mixture"):
                out.append(timed(connection, model, groupings, terms))
    return out


def million_boxes() -> list[str]:
    """Return random boxes of a million cells as conditions."""
    return [
        " AND ".join(f"{name} BETWEEN {low} AND {high}" for name, (low, high) in box.items())
        for box in boxes(SIZES, QUERIES, np.random.default_rng(SEED))
    ]


def conjunctions(table: Table, triples: Sequence[tuple[str, ...]]) -> list[str]:
    """Return random conditions on the columns of a triple, each a list of up to eight values."""
    rng = np.random.default_rng(SEED)
    plain = [t for t in triples if not any(isinstance(table.columns[a].domain, Bins) for a in t)]
    found = []
    for _ in range(QUERIES):
        parts = []
        for name in plain[rng.integers(len(plain))]:
            column = table.columns[name]
            cells = [column.cells[i] for i in rng.permutation(column.size)[:8]]
            used = cells[: rng.integers(1, len(cells) + 1)]
            parts.append(f"{name} IN ({', '.join(map(repr, used))})")
        found.append(" AND ".join(parts))
    return found


def counts(conditions: Sequence[str]) -> list[str]:
    """Return statements that count the rows of every condition, a hundred at a time."""
    tests = [f"COUNT(*) FILTER (WHERE {c}) AS n{i}" for i, c in enumerate(conditions)]
    groups = [", ".join(tests[i : i + 100]) for i in range(0, len(tests), 100)]
    return [f"SELECT {group} FROM adult" for group in groups]


def timed(connection: Connection, model: str, workload: Sequence[str], terms: str) -> Row:
    """Return the seconds that one synthetic table takes."""
    path = connection.catalog.path.with_name(WORKLOADS) / "workload.sql"
    path.write_text(";\n".join(workload))
    start, used = time.perf_counter(), time.process_time()
    connection.execute(
        f"CREATE SYNTHETIC TABLE s{time.monotonic_ns()} FROM adult"
        f" OPTIONS ({terms}, model = '{model}') FOR WORKLOAD 'workload.sql'"
    )
    seconds, most = time.perf_counter() - start, SLOWEST[model]
    row: Row = {"model": model, "statements": len(workload), "terms": terms, "wall s": seconds}
    row |= {"at most": most, "reached": "yes" if seconds <= most else "no"}
    return {**row, "CPU s": time.process_time() - used}
