"""The main job end to end on the demonstration data: accuracy, start-up, batch size, calibration.

Every figure is printed next to the value it has to reach.
Run: ``python -m benchmarks.first_light``.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dpsql
from dpsql.dbapi.connection import Connection

DEMO = Path(__file__).parent.parent / "demo_data"
RUNS = 200


def main() -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source in DEMO.iterdir():
            if source.suffix in (".toml", ".parquet", ".sql"):
                shutil.copy(source, folder)
        for kind in ("STATE", "CACHE", "DATA"):
            os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
        for path in folder.glob("*.toml"):
            path.write_text(path.read_text().replace("epsilon = 100.0", "epsilon = 100000.0"))
        print(f"{'figure':<58} {'value':>12}   to reach")
        start_up(folder)
        accuracy(folder)
        calibration(folder)
        census(folder)


def report(figure: str, value: str, target: str) -> None:
    """Print one line."""
    print(f"{figure:<58} {value:>12}   {target}", flush=True)


def seconds(work: Callable[[], object], repeat: int = 5) -> float:
    """The median wall time of some calls."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def processor_seconds(work: Callable[[], object], repeat: int) -> float:
    """The median processor time of some calls, of this process and of those that it waited for."""

    def spent() -> float:
        both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in both)

    times = []
    for _ in range(repeat):
        start = spent()
        work()
        times.append(spent() - start)
    return float(np.median(times))


def start_up(folder: Path) -> None:
    """Cold start, help, and warm queries, with byte code as an installed program has it."""
    typed = Path(sys.executable).parent / "dpsql"
    command = [str(typed)] if typed.exists() else [sys.executable, "-m", "dpsql"]
    catalog = str(folder / "adult.toml")
    sql = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(*arguments: str) -> None:
        subprocess.run([*command, *arguments], check=True, capture_output=True, env=environment)

    def first() -> None:
        run(catalog, "--epsilon", "1", "-c", "SET fresh = on", "-c", sql)

    first()
    report("dpsql --help, cold process (s)", f"{seconds(lambda: run('--help')):.3f}", "< 0.15")
    report("cold process to first answer, Adult (s)", f"{seconds(first, 15):.3f}", "< 0.4")
    report("    processor seconds of it", f"{processor_seconds(first, 5):.3f}", "")
    with dpsql.connect(catalog, epsilon=1) as connection:
        for fresh, what in (("on", "paid, with its files on disk"), ("off", "free")):
            connection.execute(f"SET fresh = {fresh}")
            connection.execute(sql)
            warm = seconds(lambda: connection.execute(sql), 20)
            report(f"warm query, Adult, {what} (s)", f"{warm:.4f}", "< 0.006")
            spent = processor_seconds(lambda: connection.execute(sql), 20)
            report("    processor seconds of it", f"{spent:.4f}", "")


def accuracy(folder: Path) -> None:
    """Expected errors of the published workloads, and one GROUP BY."""
    with dpsql.connect(folder / "adult.toml", epsilon=1) as connection:
        for name, target in (("adult_cdf", "<= 5.3"), ("adult_marginals", "<= 15.5")):
            text = (folder / f"{name}.sql").read_text()
            start = time.perf_counter()
            explanation = connection.explain(text)
            spent = time.perf_counter() - start
            report(f"{name}: expected RMSE, pure epsilon 1", f"{explanation.rmse:.3f}", target)
            report(f"{name}: planning (s)", f"{spent:.2f}", "")
            for comparison, rmse in explanation.comparisons:
                report(f"    {comparison}", f"{rmse:.3f}", "")
        two = connection.explain("SELECT race, sex, COUNT(*) FROM adult GROUP BY race, sex")
        report("GROUP BY race, sex: expected stddev, epsilon 1", f"{two.rmse:.3f}", "1.36 - 1.42")


def calibration(folder: Path) -> None:
    """Measured against forecast error, over many fresh releases."""
    import duckdb

    database = duckdb.connect()
    database.execute(f"CREATE VIEW adult AS FROM '{DEMO / 'adult.parquet'}'")
    with dpsql.connect(folder / "adult.toml", epsilon=1) as connection:
        connection.execute("SET fresh = on")
        for name in ("adult_cdf", "adult_marginals"):
            text = (folder / f"{name}.sql").read_text()
            ratio = measured_ratio(connection, text, database.execute)
            report(f"{name}: measured / forecast MSE, {RUNS} runs", f"{ratio:.3f}", "0.9 - 1.1")


def measured_ratio(connection: Connection, text: str, execute: Callable[[str], object]) -> float:
    """The mean squared error of fresh releases over the forecast one."""
    forecast = connection.explain(text).rmse ** 2
    truths: list[dict[tuple[object, ...], float]] = []
    squares = []
    for _ in range(RUNS):
        cursor = connection.executescript(text)
        found: list[float] = []
        position = 0
        while True:
            result = cursor.result
            if position == len(truths):
                rows = execute(result.sql).fetchall()  # type: ignore[attr-defined]
                truths.append({tuple(row[:-1]): float(row[-1]) for row in rows})
            exact = truths[position]
            found += [row[-1] - exact.get(tuple(row[:-1]), 0.0) for row in result.rows]
            position += 1
            if not cursor.nextset():
                break
        squares.append(float(np.mean(np.square(found))))
    return float(np.mean(squares)) / forecast


def census(folder: Path) -> None:
    """The 4151 statements of Census SF1 on a million synthetic rows, in a process of its own."""
    script = (
        "import sys, time, resource, dpsql\n"
        "start = time.perf_counter()\n"
        "connection = dpsql.connect(sys.argv[1], epsilon=1)\n"
        "cursor = connection.executescript(open(sys.argv[2]).read())\n"
        "count = 1\n"
        "while cursor.nextset(): count += 1\n"
        "wall = time.perf_counter() - start\n"
        "memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20\n"
        "print(count, wall, memory)\n"
    )
    arguments = [str(folder / "census.toml"), str(folder / "census_sf1.sql")]
    found = subprocess.run(
        [sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True
    ).stdout.split()
    report("census_sf1: statements answered", found[0], "4151")
    report("census_sf1: whole batch, one process (s)", f"{float(found[1]):.1f}", "< 60")
    report("census_sf1: peak memory (GiB)", f"{float(found[2]):.2f}", "< 2")


if __name__ == "__main__":
    main()
