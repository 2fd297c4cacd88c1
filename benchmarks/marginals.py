"""All low-order marginals of the Adult catalog as one workload through the whole engine.

Prints the seconds of every stage and the peak memory, for Laplace and Gaussian noise.
Run: ``python -m benchmarks.marginals [ORDER] [--exact]``; ``python -m benchmarks.marginals --sql``
writes the workload itself.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import dpsql
from dpsql.catalog import Catalog
from dpsql.catalog.read import read_catalog

DEMO = Path(__file__).parent.parent / "demo_data"
FREE = 10_000
"""Budget of the copied catalog: trying things out costs nothing here."""


def workload(catalog: Catalog, order: int, exact: bool) -> str:
    """Return the SQL of all marginals of a catalog's only table, of up to ``order`` columns."""
    ((name, table),) = catalog.tables.items()
    columns = [column.name for column in table.columns.values() if column.domain is not None]
    lines = []
    for size in range(order if exact else 0, order + 1):
        for chosen in combinations(columns, size):
            keys = ", ".join(chosen)
            start = f"SELECT {keys}, COUNT(*) AS n FROM {name}" if keys else "SELECT COUNT(*) AS n"
            end = f" GROUP BY {keys};" if keys else f" FROM {name};"
            lines.append(start + end)
    return "\n".join(lines) + "\n"


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the wall and CPU seconds of a stage, and the peak memory so far."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"  {what:<34} {wall:8.2f} s wall {cpu:8.2f} s CPU {peak:7.2f} GiB peak", flush=True)


def run(folder: Path, order: int, exact: bool, noise: str) -> None:
    """Explain, answer and repeat the workload under one noise law."""
    with dpsql.connect(folder / "adult.toml", epsilon=1) as connection:
        script = workload(connection.catalog, order, exact)
        connection.set("noise", noise)
        if noise == "gaussian":
            connection.set("delta", "1e-9")
        connection.set("fresh", "on")
        print(f"{noise}: {script.count(';')} marginals of {'exactly ' * exact}{order} columns")
        with timed("explain (parse, bind, plan, forecast)"):
            forecast = connection.explain(script)
        rows = sum(statement.rows for statement in forecast.statements)
        bound = "none" if forecast.bound is None else f"{forecast.bound:.4g}"
        print(f"  {rows} cells, expected RMSE {forecast.rmse:.4g}, lower bound {bound}")
        with timed("first run (also reads the data)"):
            connection.executescript(script)
        with timed("second run (compiled and planned)"):
            connection.executescript(script)
        connection.set("fresh", "off")
        with timed("repeated from the release"):
            connection.executescript(script)


def main() -> None:
    """Run both noise laws on a copy of the demonstration catalog."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("order", nargs="?", type=int, default=3)
    parser.add_argument("--exact", action="store_true", help="only marginals of this order")
    parser.add_argument("--sql", action="store_true", help="print the workload and stop")
    options = parser.parse_args()
    if options.sql:
        catalog = read_catalog(DEMO / "adult.toml")
        print(workload(catalog, options.order, options.exact), end="")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(DEMO / "adult.parquet", folder)
        text = (DEMO / "adult.toml").read_text(encoding="utf-8")
        budget = f"epsilon = {Fraction(FREE)}"
        (folder / "adult.toml").write_text(text.replace("epsilon = 100.0", budget), "utf-8")
        for kind in ("STATE", "CACHE", "DATA"):
            os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
        for noise in ("laplace", "gaussian"):
            run(folder, options.order, options.exact, noise)


if __name__ == "__main__":
    main()
