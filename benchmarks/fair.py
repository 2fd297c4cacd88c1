"""Together against apart: what every shown column of a mixed script has, over what it has alone.

A script is 2 to 8 ordinary statements over one catalog, of the demonstration data or a random one:
counts, bands, sums, means, spreads, medians, quantiles, running totals, cubes, correlations,
distinct persons and tables per person. Alone is what a statement has by itself with its share of
the budget: an equal one, or as its weight says. Errors are forecasts; those of medians and
quantiles are errors in the rank, and those of what is computed from several numbers leave the
correlation of these out. Nothing is opened and nothing is kept.

Run: ``python -m benchmarks.fair [how many [first seed]] [quiet] [mean] [measured]``, of
``metric = 'fair'`` or ``'mean'``; or ``measured``: each script is answered ``RELEASES`` times, and
the spread of every count and sum is compared with its forecast.
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

import duckdb
import numpy as np
from numpy.typing import NDArray

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.plan.request import Request, make_plan
from dpsql.plan.shown_columns import shown_columns
from dpsql.plan.target import mean_variances
from dpsql.sql.compiled import Compiled
from dpsql.strategy.noise_law import law

DEMO = Path(__file__).parent.parent / "demo_data"
COUNT = 20
MOST = 1.05
"""Largest error of a column together, over that alone."""
RELEASES = 60
"""Times that a script is answered to measure errors."""
RARE = 0.3
"""Standard error below which noise is mostly zero: so few releases tell nothing of its spread."""
BELOW = 1e-4
"""Part by which a ratio may be above that for rounding of integers."""


@dataclass(frozen=True, slots=True)
class Script:
    """Statements over a catalog that is a file, with what they are asked for."""

    seed: int
    catalog: Path
    statements: tuple[str, ...]
    noise: str
    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class Compared:
    """The error of a shown column together, and alone with its share."""

    statement: int
    name: str
    together: float
    alone: float

    @property
    def ratio(self) -> float:
        """The one over the other."""
        return self.together / self.alone


@dataclass(frozen=True, slots=True)
class Data:
    """A table that statements may be about, and which of its columns are of which kind."""

    catalog: Path
    table: str
    keys: tuple[str, ...]
    numbers: tuple[str, ...]
    measures: tuple[str, ...]
    person: str | None


_ANY = (Fraction(1), Fraction(0), "laplace")

DEMONSTRATION = (
    ("adult", "adult", "sex race income workclass education", "age hours_per_week education_num"),
    ("rand_hie", "rand_hie", "site health sex year coinsurance", "age family_size education_years"),
    ("hospital", "visits", "ward", "days"),
    ("hospital", "patients", "sex region", "age"),
    ("census", "person", "sex hispanic race", "age"),
)
"""Catalogs, tables, columns to group by, and whole numbers."""

MEASURES = {
    "adult": "capital_gain",
    "rand_hie": "medical_spending drug_spending outpatient_spending",
    "visits": "cost",
}
PERSONS = {"rand_hie": "person_id", "visits": "patient_id"}


def main(arguments: Sequence[str]) -> int:
    """Print a line for every column, then what they come to; 1 where one is above the goal."""
    numbers = [int(each) for each in arguments if each.isdigit()]
    count, first = (*numbers, *(COUNT, 0)[len(numbers) :])
    if "measured" in arguments:
        return measure_all(range(first, first + count))
    found: list[Compared] = []
    spent = 0.0
    with tempfile.TemporaryDirectory() as name:
        for script in scripts(Path(name), range(first, first + count)):
            start = time.process_time()
            compared = compare(script, "mean" if "mean" in arguments else "fair")
            spent += time.process_time() - start
            found += compared
            if "quiet" in arguments:
                continue
            for each in compared:
                text = " ".join(script.statements[each.statement].split())[:90]
                print(f"{script.seed:>5} {each.ratio:>8.4f}  {each.name:10} {text}", flush=True)
            print(f"{script.seed:>5} {script.noise}, {time.process_time() - start:.1f} s")
    return summarise(found, spent)


def summarise(found: Sequence[Compared], spent: float) -> int:
    """Print the worst, the median and the share above the goal, and the means of the ratios."""
    ratios = np.array([each.ratio for each in found])
    above = float((ratios > MOST + BELOW).mean())
    print(f"{len(ratios)} columns, {spent:.0f} s of CPU")
    print(f"worst {ratios.max():.3f}, median {np.median(ratios):.3f}, above {MOST}: {above:.4f}")
    root = math.sqrt(float((ratios**2).mean()))
    print(
        f"geometric mean {math.exp(float(np.log(ratios).mean())):.4f}, root mean square {root:.4f}"
    )
    return int(above > 0)


def measure_all(seeds: range) -> int:
    """Print measured over forecast mean squares, column by column, and of all; 1 where far off."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        for script in scripts(Path(name), seeds):
            for number, column, ratio in measured(script, RELEASES):
                print(f"{script.seed:>5} {number:>2} {ratio:>8.3f}  {column}", flush=True)
                found.append(ratio)
    mean = float(np.mean(found))
    print(f"{len(found)} columns: measured / forecast mean square {mean:.3f}")
    return int(abs(mean - 1) > 0.05)


def measured(script: Script, releases: int) -> list[tuple[int, str, float]]:
    """The statement, the name and the mean square measured over that forecast of every column.

    Of counts and sums, whose errors have a unit before the answer. The spread of answers about
    their own mean is compared: nobody has to know the truth.
    """
    delta = 0 if script.noise == "laplace" else 1e-9
    text = ";\n".join(script.statements)
    epsilon = float(script.epsilon)
    with dpsql.connect(
        script.catalog, epsilon=epsilon, delta=delta, noise=script.noise
    ) as connection:
        connection.execute("SET fresh = on")  # else it may be told what an earlier script has
        told = connection.explain(text)
        answers: dict[tuple[int, str], list[NDArray[np.float64]]] = {}
        for _ in range(releases):
            cursor = connection.executescript(text)
            for number, statement in enumerate(told.statements):
                rows = cursor.fetchall()
                names = [each[0] for each in cursor.description or ()]
                for column in statement.errors:
                    place = names.index(column.name)
                    answers.setdefault((number, column.name), []).append(
                        np.array([row[place] for row in rows], dtype=np.float64)
                    )
                cursor.nextset()
    out = []
    for number, statement in enumerate(told.statements):
        for column in statement.errors:
            drawn = np.array(answers[number, column.name])
            if column.rmse > RARE and drawn.size and not np.isnan(drawn).any():
                spread = float(drawn.var(axis=0, ddof=1).mean())
                out.append((number, column.name, spread / column.rmse**2))
    return out


def scripts(folder: Path, seeds: Sequence[int] | range) -> Iterator[Script]:
    """Yield a script for each seed; the same for the same seed."""
    os.environ["DPSQL_CACHE"] = "off"
    for kind in ("STATE", "CACHE", "DATA"):
        os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
    for source in DEMO.iterdir():
        if source.suffix == ".toml":
            text = source.read_text().replace("epsilon = 100.0", "epsilon = 100000.0")
            (folder / source.name).write_text(text)
            for rows in DEMO.glob(f"{source.stem}*.parquet"):
                if not (folder / rows.name).exists():
                    (folder / rows.name).symlink_to(rows)
    for seed in seeds:
        rng = np.random.default_rng([seed, 44])
        data = demonstration(rng, folder) if rng.random() < 0.5 else random_data(rng, folder, seed)
        noise = ("laplace", "gaussian")[int(rng.random() < 0.4)]
        epsilon = Fraction(str(rng.choice(["0.1", "0.5", "1", "2", "10"])))
        wanted = int(rng.integers(2, 9))
        statements = answerable(rng, data, wanted)
        yield Script(seed, data.catalog, statements, noise, epsilon)


def answerable(rng: np.random.Generator, data: Data, wanted: int) -> tuple[str, ...]:
    """Random statements of which each is answered by itself."""
    found: list[str] = []
    with dpsql.connect(data.catalog, epsilon=1) as connection:
        for _ in range(20 * wanted):
            text = statement(rng, data)
            try:
                for target in Request(compiled_of(connection, [text]), *_ANY).targets:
                    _ = target.layouts
            except dpsql.Error:
                continue
            found.append(text)
            if len(found) == wanted:
                break
    return tuple(found)


def demonstration(rng: np.random.Generator, folder: Path) -> Data:
    """One of the tables of the demonstration data."""
    name, table, keys, numbers = DEMONSTRATION[int(rng.integers(len(DEMONSTRATION)))]
    measures = tuple(MEASURES.get(table, "").split())
    catalog = folder / f"{name}.toml"
    return Data(
        catalog, table, tuple(keys.split()), tuple(numbers.split()), measures, PERSONS.get(table)
    )


def random_data(rng: np.random.Generator, folder: Path, seed: int) -> Data:
    """A catalog of 3 to 12 columns, and a file of no rows."""
    count = int(rng.integers(3, 13))
    by_person = rng.random() < 0.4
    unit = '{ column = "person", max_rows = 3 }' if by_person else '"row"'
    lines = ["[budget]", "epsilon = 1000000", "delta = 1e-4", "max_epsilon_per_request = 1000"]
    lines += ["[table.t]", f'source = "t{seed}.parquet"', f"privacy_unit = {unit}"]
    lines += ["[table.t.column]"]
    kinds: dict[str, list[str]] = {"key": [], "number": [], "measure": []}
    for i in range(count):
        kind = ("key", "number", "measure")[i if i < 3 else int(rng.choice([0, 0, 1, 2]))]
        name = f"c{i}"
        kinds[kind].append(name)
        if kind == "key":
            size = int(rng.choice([2, 3, 5, 8, 12]))
            lines.append(f'{name} = {{ type = "integer", domain = [0, {size - 1}] }}')
        elif kind == "number":
            size = int(rng.choice([10, 24, 60, 100, 200]))
            lines.append(f'{name} = {{ type = "integer", domain = [0, {size - 1}] }}')
        else:
            low = int(rng.choice([0, 0, -100, 20]))
            high = low + int(rng.choice([10, 1000, 50000]))
            lines.append(f'{name} = {{ type = "number", bounds = [{low}, {high}] }}')
    catalog = folder / f"c{seed}.toml"
    catalog.write_text("\n".join(lines) + "\n")
    shown = ", ".join(f"0 AS c{i}" for i in range(count))
    with duckdb.connect() as scribe:
        text = f"SELECT {shown}, 0 AS person WHERE false"
        scribe.execute(f"COPY ({text}) TO '{folder}/t{seed}.parquet'")
    person = "person" if by_person else None
    keys, numbers, measures = (tuple(names) for names in kinds.values())
    return Data(catalog, "t", keys, numbers, measures, person)


def statement(rng: np.random.Generator, data: Data) -> str:
    """One ordinary statement."""

    def one(names: Sequence[str]) -> str:
        return str(names[int(rng.integers(len(names)))]) if names else "nothing"

    key, number, measure = one(data.keys), one(data.numbers), one(data.measures)
    other = one([each for each in data.keys if each != key])
    where = ""
    if rng.random() < 0.3:
        low = int(rng.integers(1, 40))
        where = f" WHERE {one(data.numbers)} >= {low}"
    rest = f"FROM {data.table}{where}"
    band = f"{number} // 10 * 10"
    forms = [
        f"SELECT {key}, COUNT(*) AS n {rest} GROUP BY {key}",
        f"SELECT {key}, {other}, COUNT(*) AS n {rest} GROUP BY {key}, {other}",
        f"SELECT {band} AS band, COUNT(*) AS n {rest} GROUP BY band",
        f"SELECT COUNT(*) AS n {rest}",
        f"SELECT {key}, SUM({measure}) AS s {rest} GROUP BY {key}",
        f"SELECT {key}, COUNT(*) AS n, AVG({measure}) AS m {rest} GROUP BY {key}",
        f"SELECT {key}, AVG({number}) AS m {rest} GROUP BY {key}",
        f"SELECT {key}, STDDEV({measure}) AS d {rest} GROUP BY {key}",
        f"SELECT STDDEV({number}) AS d {rest}",
        f"SELECT {key}, MEDIAN({number}) AS q {rest} GROUP BY {key}",
        f"SELECT MEDIAN({number}) AS q {rest}",
        f"SELECT QUANTILE_CONT({number}, 0.9) AS q {rest}",
        f"SELECT {key}, QUANTILE_DISC({number}, 0.25) AS q {rest} GROUP BY {key}",
        f"SELECT {number}, SUM(COUNT(*)) OVER (ORDER BY {number}) AS t {rest} GROUP BY {number}",
        f"SELECT {key}, {other}, COUNT(*) AS n {rest} GROUP BY CUBE ({key}, {other})",
        f"SELECT CORR({measure}, {number}) AS c {rest}",
        f"SELECT {key}, COUNT(*) AS n, COUNT(*) FILTER (WHERE {number} < 20) AS few {rest}"
        f" GROUP BY {key}",
    ]
    if data.person is not None:
        inner = f"SELECT {data.person}, COUNT(*) AS n FROM {data.table} GROUP BY {data.person}"
        forms += [
            f"SELECT {key}, COUNT(DISTINCT {data.person}) AS p {rest} GROUP BY {key}",
            f"SELECT n, COUNT(*) AS persons FROM ({inner}) AS x GROUP BY n",
        ]
    return one(forms)


def compare(script: Script, metric: str = "fair") -> list[Compared]:
    """Return the errors of every shown column, together and alone."""
    with dpsql.connect(script.catalog, epsilon=1) as connection:
        compiled = compiled_of(connection, script.statements)
        delta = Fraction(0) if script.noise == "laplace" else Fraction(1, 10**9)
        whole = Request(compiled, script.epsilon, delta, script.noise, metric=metric)
        together = errors_of(whole)
        alone: dict[tuple[int, str], float] = {}
        measured = [item for item in compiled if not item.is_static]
        power = law(whole.noises[0]).norm
        budget = whole.budget(whole.noises[0])
        for number, item in enumerate(compiled):
            if item.is_static:
                continue
            part = Fraction(item.weight) ** power / sum(
                Fraction(each.weight) ** power for each in measured
            )
            if power == 1:
                own = Request((item,), script.epsilon * part, delta, script.noise)
            else:
                own = Request((item,), script.epsilon, delta, script.noise, part=budget * part)
            alone |= {(number, name): error for (_, name), error in errors_of(own).items()}
    return [
        Compared(number, name, error, alone[number, name])
        for (number, name), error in together.items()
        if alone.get((number, name), 0.0) > 0
    ]


def compiled_of(connection: Connection, statements: Sequence[str]) -> tuple[Compiled, ...]:
    """Compile statements without asking for anything."""
    return connection.engine.compile(parse_script(";\n".join(statements)))


def errors_of(request: Request) -> dict[tuple[int, str], float]:
    """Return the expected error of every shown column, by statement and name."""
    planned = make_plan(request)
    means: dict[tuple[int, int], float] = {}
    rows: dict[tuple[int, int], int] = {}
    for forecast, layout in zip(planned.plan.forecasts, planned.layouts, strict=True):
        means |= mean_variances(forecast, layout.products)
        rows |= layout.rows
    return {
        (column.statement, column.name): math.sqrt(column.variance(means, rows))
        for column in shown_columns(dict(enumerate(request.statements)), request.targets)
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
