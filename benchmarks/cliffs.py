"""How long planning takes where nobody chose the request: random statements over random catalogs.

A catalog has 1 to 60 columns of 2 to 100,000 values, some of them numbers, dates or sums; a request
5 to 60 ordinary statements over them: groupings, conditions, ranges, distinct counts, sums, means.
``hospital`` is thirty statements of a hospital's reports over departments, diagnoses and days.
Every request is explained in a process of its own, with nothing planned before; CPU seconds of that
alone. One that takes longer than ``GOAL`` for effort 1 is a cliff.

Run: ``python -m benchmarks.cliffs [how many [first seed]] [hospital]``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

import dpsql
from benchmarks.growth import cpu, peak

COUNT = 20
GOAL = 20.0
"""CPU seconds that planning may take."""
LIMIT = 900
"""Seconds after which a request is given up."""

HEAD = """[budget]
epsilon = 1000000
delta = 1e-4
max_epsilon_per_request = 1000

[table.t]
source = "t.parquet"
privacy_unit = {unit}

[table.t.column]
"""
UNITS = ('"row"', '{ column = "person", max_rows = 3 }')
SIZES = (2, 3, 5, 8, 12, 24, 52, 100, 366, 1000, 3600, 10_000, 100_000)
"""Values that a column may have."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a random catalog: its values are 0, 1 and so on below ``size``."""

    name: str
    size: int
    is_sum: bool

    @property
    def declared(self) -> str:
        """Its line of the catalog."""
        if self.is_sum:
            return f'{self.name} = {{ type = "number", bounds = [0, {self.size}] }}'
        return f'{self.name} = {{ type = "integer", domain = [0, {self.size - 1}] }}'


@dataclass(frozen=True, slots=True)
class Case:
    """A catalog and a request as SQL."""

    name: str
    catalog: str
    columns: tuple[str, ...]
    script: str


def main(arguments: list[str]) -> int:
    """Print what planning takes; return 1 where a request takes longer than it may."""
    if arguments[:1] == ["--one"]:
        print(json.dumps(explained(Path(arguments[1]))))
        return 0
    numbers = [int(each) for each in arguments if each.isdigit()]
    count, first = (*numbers, *(COUNT, 0)[len(numbers) :])
    names = [each for each in arguments if not each.isdigit()]
    cases = [random_case(seed) for seed in range(first, first + count)] if not names else []
    cases += [hospital() for name in names if name == "hospital"]
    print(f"{'':10} {'columns':>8} {'asked':>6} {'CPU s':>7} {'MiB':>6}")
    slow = 0
    for case in cases:
        seconds, mebibytes, told = alone(case)
        slow += seconds > GOAL
        print(
            f"{case.name:10} {len(case.columns):>8} {case.script.count(';') + 1:>6}"
            f" {seconds:>7.1f} {mebibytes:>6.0f}  {told}",
            flush=True,
        )
    print(f"{slow} of {len(cases)} take longer than {GOAL:.0f} s")
    return int(slow > 0)


def alone(case: Case) -> tuple[float, float, str]:
    """CPU seconds and MiB of planning a request in a process of its own, and what is said of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "c.toml").write_text(case.catalog)
        (folder / "script.sql").write_text(case.script)
        shown = ", ".join(f"0 AS {column}" for column in case.columns)
        with duckdb.connect() as scribe:
            scribe.execute(f"COPY (SELECT {shown}) TO '{folder}/t.parquet'")
        command = [sys.executable, "-m", "benchmarks.cliffs", "--one", name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT, check=True
            )
        except subprocess.TimeoutExpired:
            return float(LIMIT), 0.0, "given up"
        except subprocess.CalledProcessError as error:
            return float(LIMIT), 0.0, error.stderr[-300:]
    seconds, mebibytes, told = json.loads(done.stdout)
    return seconds, mebibytes, told


def explained(folder: Path) -> tuple[float, float, str]:
    """CPU seconds and MiB that EXPLAIN of all statements takes, and whether it was cut short."""
    for kind in ("STATE", "CACHE", "DATA"):
        os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
    os.environ["DPSQL_CACHE"] = "off"
    script = (folder / "script.sql").read_text()
    noise, delta = ("gaussian", 1e-9) if script.startswith("-- gaussian") else ("laplace", 0)
    with dpsql.connect(folder / "c.toml", epsilon=1, noise=noise, delta=delta) as connection:
        start = cpu()
        try:
            text = str(connection.explain(script))
        except dpsql.Error as error:
            return cpu() - start, peak(), str(error).splitlines()[0][:120]
        return cpu() - start, peak(), "cut short" if "cut short" in text else ""


def random_case(seed: int) -> Case:
    """A random catalog and request; the same for the same seed."""
    rng = np.random.default_rng([seed, 18])
    count = int(rng.choice([1, 3, 4, 8, 12, 40, 60]))
    columns = [
        Column(f"c{i}", int(rng.choice(SIZES)), i > 0 and rng.random() < 0.15) for i in range(count)
    ]
    asked = int(rng.choice([5, 8, 12, 30, 60]))
    unit = UNITS[int(rng.random() < 0.3)]
    catalog = HEAD.format(unit=unit) + "\n".join(each.declared for each in columns) + "\n"
    noise = ("laplace", "gaussian")[int(rng.random() < 0.5)]
    script = ";\n".join(statement(rng, columns) for _ in range(asked))
    names = (*(each.name for each in columns), "person")
    return Case(f"seed {seed}", catalog, names, f"-- {noise}\n{script}")


def statement(rng: np.random.Generator, columns: list[Column]) -> str:
    """An ordinary statement over a few columns."""
    keys = [each for each in columns if not each.is_sum]
    sums = [each for each in columns if each.is_sum]
    small = [each for each in keys if each.size <= 400]
    shown = "COUNT(*)"
    if sums and rng.random() < 0.3:
        shown = f"{rng.choice(['SUM', 'AVG'])}({rng.choice([each.name for each in sums])})"
    where = ""
    if rng.random() < 0.7:
        chosen = [keys[i] for i in rng.permutation(len(keys))[: int(rng.integers(1, 4))]]
        where = " WHERE " + " AND ".join(condition(rng, each) for each in chosen)
    grouping: list[Column] = []
    room = 50_000
    for i in rng.permutation(len(small))[: int(rng.choice([0, 1, 1, 2, 2, 3]))]:
        if small[i].size <= room:
            grouping.append(small[i])
            room //= small[i].size
    if keys and not grouping and rng.random() < 0.15:
        grouping = [keys[int(rng.integers(len(keys)))]]
    by = ", ".join(each.name for each in grouping)
    keyed = f" GROUP BY {by}" if by else ""
    return f"SELECT {by + ', ' if by else ''}{shown} FROM t{where}{keyed}"


def condition(rng: np.random.Generator, column: Column) -> str:
    """A random condition on a column."""
    low, high = sorted(rng.integers(0, column.size, size=2).tolist())
    return str(
        rng.choice(
            [
                f"{column.name} = {low}",
                f"{column.name} <= {high}",
                f"{column.name} BETWEEN {low} AND {high}",
                f"{column.name} IN ({low}, {high})",
            ]
        )
    )


def hospital() -> Case:
    """Thirty statements of reports: 12 departments, 500 diagnoses, the days of two years."""
    columns = {
        "department": '{ type = "integer", domain = [0, 11] }',
        "diagnosis": '{ type = "integer", domain = [0, 499] }',
        "sex": '{ type = "integer", domain = [0, 1] }',
        "age": '{ type = "integer", domain = [0, 99] }',
        "seen": '{ type = "date", domain = ["2024-01-01", "2025-12-31"] }',
        "cost": '{ type = "number", bounds = [0, 5000] }',
    }
    keys = ["department", "sex", "diagnosis", "month(seen)", "year(seen)"]
    statements = ["SELECT COUNT(*) FROM t", "SELECT seen, COUNT(*) FROM t GROUP BY seen"]
    statements += [f"SELECT {key}, COUNT(*) FROM t GROUP BY {key}" for key in keys]
    statements += [
        f"SELECT department, {key}, COUNT(*) FROM t GROUP BY department, {key}" for key in keys[1:]
    ]
    statements += [f"SELECT {key}, SUM(cost), AVG(cost) FROM t GROUP BY {key}" for key in keys]
    statements += [
        f"SELECT sex, COUNT(*) FROM t WHERE age BETWEEN {low} AND {low + 19} GROUP BY sex"
        for low in range(0, 100, 20)
    ]
    statements += [
        f"SELECT department, COUNT(*) FROM t WHERE diagnosis BETWEEN {low} AND {low + 49} "
        "GROUP BY department"
        for low in range(0, 250, 50)
    ]
    statements += [
        f"SELECT COUNT(*) FROM t WHERE seen >= DATE '2025-0{month}-01' AND age > 64"
        for month in range(1, 5)
    ]
    catalog = HEAD.format(unit=UNITS[0])
    catalog += "\n".join(f"{name} = {told}" for name, told in columns.items()) + "\n"
    return Case("hospital", catalog, tuple(columns), ";\n".join(statements))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
