"""COUNT, SUM, AVG and VAR of groups against a split budget, as Markdown and JSON.

    python -m benchmarks.sums [--runs N] [--json FILE]

The table is synthetic: 29,501 incomes, log-normal (median 29,700), clipped to [0, 150000], in 100
random groups, drawn from a fixed public seed; a second column is uniform on the same interval. The
figures of dpsql come from its own releases with real noise, from SQL to rows; those of the split
budgets are simulated: one request per sum, each with an equal part of the budget and Laplace noise
at its own sensitivity, and the arithmetic of AVG and VAR on the noisy sums.

    raw split       COUNT, SUM(v), SUM(v * v)
    centred split   COUNT, SUM(v - c), SUM((v - c) * (v - c)), c the middle of the bounds
    centred squares as before, the squares less half their largest value

Errors are relative to the true value of each group; root mean square over groups and runs. Gaussian
noise is at rho = epsilon^2 / 2, which is not the same guarantee. RAND HIE is protected by person.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

import dpsql
from dpsql.algebra.operator import Floats
from dpsql.dbapi.connection import Connection
from dpsql.privacy.budget.accounting import epsilon_for

DEMO = Path(__file__).parent.parent / "demo_data"
ROWS, GROUPS, TOP, SEED = 29_501, 100, 150_000.0, 20_190
DELTA = "0.000001"
CATALOG = f"""
[budget]
epsilon = 100000.0
delta = 1e-6

[ledger]
anchor = "anchors"

[table.people]
source = "people.parquet"
privacy_unit = "row"

[table.people.column]
grp = {{ type = "integer", domain = [0, {GROUPS - 1}] }}
income = {{ type = "number", bounds = [0, {TOP:.0f}] }}
uniform = {{ type = "number", bounds = [0, {TOP:.0f}] }}
"""
AGGREGATES = {"COUNT": "COUNT({})", "SUM": "SUM({})", "AVG": "AVG({})", "VAR": "VAR_POP({})"}
TARGETS = (("income", "AVG", "raw split", 2.5), ("income", "VAR", "raw split", 5.0))
AT_ZERO = ("uniform", "AVG", "raw split", 3.16)


@dataclass(frozen=True)
class Figure:
    """The relative error of one aggregate by one method."""

    column: str
    aggregate: str
    method: str
    error: float
    forecast: float | None = None


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=100, help="fresh releases per figure")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("STATE", "CACHE", "DATA"):
            os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
        columns = draw(folder)
        figures = [
            figure
            for column, aggregates in (("income", tuple(AGGREGATES)), ("uniform", ("AVG",)))
            for figure in compare(folder, column, aggregates, columns, options.runs)
        ]
        print_table(figures)
        print_targets(figures)
        persons = hie(folder, options.runs)
    print_persons(persons)
    if options.json:
        found = {"people": [asdict(f) for f in figures], "rand_hie": [asdict(f) for f in persons]}
        options.json.write_text(json.dumps(found, indent=1))


def draw(folder: Path) -> dict[str, Floats]:
    """Write the table and its catalog; return its columns."""
    rng = np.random.default_rng(SEED)
    columns: dict[str, Floats] = {
        "income": np.clip(rng.lognormal(10.3, 1.0, ROWS), 0, TOP).round(2),
        "uniform": rng.uniform(0, TOP, ROWS).round(2),
        "grp": rng.integers(0, GROUPS, ROWS).astype(np.float64),
    }
    lines = [f"{int(g)},{i},{u}\n" for i, u, g in zip(*columns.values(), strict=True)]
    (folder / "people.csv").write_text("grp,income,uniform\n" + "".join(lines))
    duckdb.execute(
        f"COPY (FROM '{folder / 'people.csv'}') TO '{folder / 'people.parquet'}' (FORMAT parquet)"
    )
    (folder / "people.toml").write_text(CATALOG)
    return columns


def compare(
    folder: Path,
    column: str,
    aggregates: Sequence[str],
    columns: Mapping[str, Floats],
    runs: int,
) -> list[Figure]:
    """The errors of all methods for the groups of one column."""
    groups = columns["grp"].astype(np.int64)
    truth = exact(columns[column], groups)
    figures = split_figures(column, aggregates, columns[column], groups, truth, runs * 4)
    with dpsql.connect(folder / "people.toml", epsilon=1) as connection:
        connection.execute("SET fresh = on")
        for noise in ("laplace", "gaussian"):
            if noise == "gaussian":
                connection.set("delta", DELTA)
                connection.set("noise", noise)
                connection.set(
                    "epsilon", f"{float(epsilon_for(Fraction(1, 2), Fraction(DELTA))):.6f}"
                )
            for aggregate in aggregates:
                asked = AGGREGATES[aggregate].format(column)
                # One measurement serves COUNT and SUM, which are asked together.
                both = f", COUNT(*), SUM({column})" if aggregate in ("COUNT", "SUM") else ""
                sql = f"SELECT {asked} AS x{both} FROM people GROUP BY grp"
                error, forecast = measure(connection, sql, truth[aggregate], runs)
                figures.append(Figure(column, aggregate, f"dpsql, {noise}", error, forecast))
    return figures


def measure(connection: Connection, sql: str, truth: Floats, runs: int) -> tuple[float, float]:
    """The measured and the forecast relative error of the first column, over fresh releases."""
    squares, forecasts = [], []
    for _ in range(runs):
        result = connection.execute(sql).result
        found = np.array([np.nan if row[0] is None else row[0] for row in result.rows], float)
        errors = np.array(result.stddev[0], dtype=float)
        squares.append(np.nanmean(np.square((found - truth) / truth)))
        forecasts.append(np.nanmean(np.square(errors / truth)))
    return float(np.sqrt(np.mean(squares))), float(np.sqrt(np.mean(forecasts)))


def exact(values: Floats, groups: NDArray[np.int64]) -> dict[str, Floats]:
    """The true aggregates of every group."""
    count = np.bincount(groups, minlength=GROUPS).astype(float)
    total = np.bincount(groups, values, GROUPS)
    squares = np.bincount(groups, values * values, GROUPS)
    mean = total / count
    return {"COUNT": count, "SUM": total, "AVG": mean, "VAR": squares / count - mean * mean}


def split_figures(
    column: str,
    aggregates: Sequence[str],
    values: Floats,
    groups: NDArray[np.int64],
    truth: Mapping[str, Floats],
    runs: int,
) -> list[Figure]:
    """The errors of requests that share the budget evenly, simulated."""
    rng = np.random.default_rng(SEED + 1)
    half = TOP / 2

    def noisy(power: int, centre: float, shift: float, widest: float, parts: int) -> Floats:
        sums = np.bincount(groups, (values - centre) ** power - shift, GROUPS)
        return sums + rng.laplace(0, widest * parts, (runs, GROUPS))

    def variance(centre: float, shift: float, first: float, second: float) -> Floats:
        n = np.maximum(noisy(0, 0, 0, 1, 3), 1)
        mean = noisy(1, centre, 0, first, 3) / n
        square = noisy(2, centre, shift, second, 3) / n + shift
        return np.asarray(np.clip(square - mean * mean, 0, half * half))

    def average(centre: float, widest: float) -> Floats:
        ratio = noisy(1, centre, 0, widest, 2) / np.maximum(noisy(0, 0, 0, 1, 2), 1)
        return np.asarray(np.clip(centre + ratio, 0, TOP))

    methods: dict[str, list[tuple[str, Callable[[], Floats]]]] = {
        "COUNT": [("raw split", lambda: noisy(0, 0, 0, 1, 2))],
        "SUM": [("raw split", lambda: noisy(1, 0, 0, TOP, 2))],
        "AVG": [
            ("raw split", lambda: average(0, TOP)),
            ("centred split", lambda: average(half, half)),
        ],
        "VAR": [
            ("raw split", lambda: variance(0, 0, TOP, TOP**2)),
            ("centred split", lambda: variance(half, 0, half, half**2)),
            ("centred squares", lambda: variance(half, half**2 / 2, half, half**2 / 2)),
        ],
    }
    return [
        Figure(column, aggregate, method, relative(draw_them(), truth[aggregate]))
        for aggregate in aggregates
        for method, draw_them in methods[aggregate]
    ]


def relative(found: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.mean(np.square((found - truth) / truth))))


def hie(folder: Path, runs: int) -> list[Figure]:
    """Rows, sums and means of RAND HIE where a person, of at most five rows, is protected."""
    for suffix in ("toml", "parquet"):
        shutil.copy(DEMO / f"rand_hie.{suffix}", folder)
    path = folder / "rand_hie.toml"
    path.write_text(path.read_text().replace("epsilon = 100.0", "epsilon = 100000.0"))
    figures = []
    with dpsql.connect(path, epsilon=1) as connection:
        connection.execute("SET fresh = on")
        for aggregate, shown in {
            "persons": "COUNT(DISTINCT person_id)",
            "COUNT": "COUNT(*)",
            "SUM": "SUM(md_visits)",
            "AVG": "AVG(md_visits)",
            "SUM of spending": "SUM(drug_spending)",
            "AVG of spending": "AVG(drug_spending)",
        }.items():
            sql = f"SELECT {shown} AS x FROM rand_hie GROUP BY site ORDER BY site"
            rows = duckdb.execute(sql.replace("rand_hie", f"'{DEMO / 'rand_hie.parquet'}'"))
            truth = np.array([row[0] for row in rows.fetchall()], float)
            error, forecast = measure(connection, sql, truth, runs)
            figures.append(Figure("by site", aggregate, "dpsql, laplace", error, forecast))
    return figures


def print_table(figures: Sequence[Figure]) -> None:
    """Print relative errors: a line per column and aggregate."""
    methods = list(dict.fromkeys(figure.method for figure in figures))
    print(f"Relative RMSE by {GROUPS} groups, {ROWS} rows, epsilon 1 (forecast in brackets)\n")
    print(f"| column | aggregate | {' | '.join(methods)} |")
    print(f"|---|---|{'---|' * len(methods)}")
    for column, aggregate in dict.fromkeys((f.column, f.aggregate) for f in figures):
        cells = []
        for method in methods:
            found = [
                f
                for f in figures
                if (f.column, f.aggregate, f.method) == (column, aggregate, method)
            ]
            cells.append(shown(found[0]) if found else "")
        print(f"| {column} | {aggregate} | {' | '.join(cells)} |")


def shown(figure: Figure) -> str:
    forecast = "" if figure.forecast is None else f" ({figure.forecast:.4f})"
    return f"{figure.error:.4f}{forecast}"


def print_targets(figures: Sequence[Figure]) -> None:
    """Print by how much the split budgets err more."""
    known = {(f.column, f.aggregate, f.method): f.error for f in figures}
    print("\n| error of | against | times | to reach |\n|---|---|---|---|")
    for column, aggregate, method, target in (*TARGETS, AT_ZERO):
        times = known[column, aggregate, method] / known[column, aggregate, "dpsql, laplace"]
        print(f"| {aggregate}({column}) | {method} | {times:.2f} | {target} |")


def print_persons(figures: Sequence[Figure]) -> None:
    """Print the errors at person level."""
    print("\nRAND HIE by site, at most five rows of a person, epsilon 1, relative RMSE\n")
    print("| aggregate | measured | forecast |\n|---|---|---|")
    for figure in figures:
        print(f"| {figure.aggregate} | {figure.error:.4f} | {figure.forecast:.4f} |")


if __name__ == "__main__":
    main()
