"""Never worse than the obvious: automatic plans of random SQL against every simpler alternative.

A workload is a list of statements about the demonstration table: conjunctive counts, dashboards,
ranges, prefixes, marginals, disjunctions, sums, weights, over one to eight columns. Its automatic
plan is compared, in expected error, with noise on each query, noise on each cell and every family
of strategies by name; and statement by statement with noise on each query.

``whole`` is the root of the error of the automatic plan over that of the best alternative which
keeps every statement within ``CAP`` of plain noise; ``statement`` the worst such ratio of the
automatic plan itself. With ``fair``, the default metric, errors are beside those that each
statement has alone with its share, and alternatives keep every column within ``FAIR`` of these.

Run: ``python -m benchmarks.floor [how many] [first seed]``, ``python -m benchmarks.floor fair [how
many] [first seed]``, or, for named workloads and their figures, ``python -m benchmarks.floor
figures [part ...]``.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.errors import Error
from dpsql.plan.baselines import plain_sensitivity, plain_variance
from dpsql.plan.limits import FAIR
from dpsql.plan.request import PlannedRequest, Request, expected_error, make_plan
from dpsql.plan.shown_columns import shown_columns
from dpsql.plan.target import mean_variances, reading_variances
from dpsql.settings.table import FAMILIES
from dpsql.strategy.noise_law import Noise
from dpsql.workload.layout import Place

DEMO = Path(__file__).parent.parent / "demo_data"
COUNT = 200
WORST = 10
CAP = 1.1
"""How much larger than that of plain noise the error of a statement may be."""
EQUAL = 1.005
"""How much larger than the best alternative's the error of all may be."""

DOMAINS: dict[str, list[str]] = {
    "sex": ["'Female'", "'Male'"],
    "income": ["'<=50K'", "'>50K'"],
    "race": [f"'{v}'" for v in ("White", "Asian-Pac-Islander", "Other", "Black")],
    "relationship": [f"'{v}'" for v in ("Wife", "Own-child", "Husband", "Unmarried")],
    "workclass": [f"'{v}'" for v in ("Private", "Self-emp-inc", "Local-gov", "State-gov", "?")],
    "education": [f"'{v}'" for v in ("HS-grad", "Bachelors", "Masters", "Doctorate", "11th")],
    "age": [str(v) for v in range(17, 91)],
    "hours_per_week": [str(v) for v in range(1, 100)],
}
"""Columns with values that conditions mention."""

NUMBERS = ("age", "hours_per_week")


@dataclass(frozen=True, slots=True)
class Case:
    """A workload as SQL."""

    kind: str
    seed: int
    script: str
    noise: Noise


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome: ratios of standard errors, and by which alternative the first is worst.

    ``most`` is what a statement may have.
    """

    case: Case
    whole: float
    statement: float
    best: str
    method: str
    seconds: float
    most: float = CAP

    @property
    def holds(self) -> bool:
        """Whether the automatic plan is as good as it must be."""
        return self.whole <= EQUAL and self.statement <= self.most * (1 + 1e-6)


def main() -> int:
    """Print the worst ratios; return 1 if a plan is worse than it may be."""
    if sys.argv[1:2] == ["figures"]:
        from benchmarks.floor_figures import figures  # it imports this module

        with tempfile.TemporaryDirectory() as name, connected(Path(name)) as connection:
            return int(not figures(connection, sys.argv[2:]))
    is_fair = sys.argv[1:2] == ["fair"]
    numbers = [int(each) for each in sys.argv[1 + is_fair :]]
    count, first = (*numbers, *(COUNT, 0)[len(numbers) :])
    found = []
    with tempfile.TemporaryDirectory() as name, connected(Path(name)) as connection:
        for seed in range(first, first + count):
            found.append(measure(connection, make_case(seed), "fair" if is_fair else "mean"))
            if os.environ.get("FLOOR_VERBOSE"):
                print(line(found[-1]), flush=True)
    report(found)
    return int(not all(outcome.holds for outcome in found))


def connected(folder: Path) -> Connection:
    """A connection to a copy of the demonstration table."""
    for source in ("adult.toml", "adult.parquet"):
        shutil.copy(DEMO / source, folder)
    for kind in ("STATE", "CACHE", "DATA"):
        os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
    os.environ["DPSQL_CACHE"] = "off"
    return dpsql.connect(folder / "adult.toml", epsilon=1)


def report(found: Sequence[Outcome]) -> None:
    """Print how many hold, and the ten worst ratios of either kind."""
    held = sum(outcome.holds for outcome in found)
    most = " or ".join(f"{each}" for each in sorted({outcome.most for outcome in found}))
    print(f"{held} of {len(found)} workloads within {EQUAL} of the best, statements within {most}")
    orders: list[tuple[str, Callable[[Outcome], float]]] = [
        ("all queries together, against the best alternative", lambda o: -o.whole),
        ("the worst statement, against plain noise or alone", lambda o: -o.statement),
    ]
    for title, key in orders:
        print(f"\n{title}")
        for outcome in sorted(found, key=key)[:WORST]:
            print(line(outcome))
    print(f"\nplanning: {sum(o.seconds for o in found):.1f} s for all automatic plans")


def line(outcome: Outcome) -> str:
    """One outcome as text."""
    case = outcome.case
    return (
        f"{case.kind:<12} seed {case.seed:<5} {case.noise:<9} whole {outcome.whole:7.4f}"
        f" (best: {outcome.best:<9}) statement {outcome.statement:7.4f}"
        f"  {outcome.seconds:6.2f} s  {outcome.method}"
    )


def measure(connection: Connection, case: Case, metric: str = "mean") -> Outcome:
    """Plan a workload automatically and by every alternative."""
    start = time.perf_counter()
    request, planned = plan(connection, case, "auto", metric)
    seconds = time.perf_counter() - start
    alone, most = planned.alone, FAIR if planned.alone else CAP
    total, worst = errors(request, planned, alone)
    others = {} if alone else {"plain": 1.0}
    for mechanism in FAMILIES:
        if mechanism != "auto":
            try:
                other_total, other_worst = errors(*plan(connection, case, mechanism), alone)
            except Error:
                continue
            if other_worst <= most * (1 + 1e-6):
                others[mechanism] = other_total
    best = min(others, key=others.__getitem__, default="auto")
    method = " + ".join(dict.fromkeys(part.strategy.method for part in planned.plan.parts))
    ratio = total / others.get(best, total)
    return Outcome(case, ratio, worst, best, method, seconds, most)


def plan(
    connection: Connection, case: Case, mechanism: str, metric: str = "mean"
) -> tuple[Request, PlannedRequest]:
    """The plan of a workload by one mechanism, with plain noise as what no answer is far above."""
    compiled = connection.engine.compile(parse_script(case.script))
    delta = Fraction(1, 10**9) if case.noise == "gaussian" else Fraction(0)
    request = Request(compiled, Fraction(1), delta, case.noise, mechanism, metric=metric)
    return request, make_plan(request)


def beside(
    request: Request, planned: PlannedRequest, alone: Mapping[Place, float]
) -> tuple[float, float]:
    """Root mean squared errors of shown columns over those that they have alone, and the worst."""
    means: dict[Place, float] = {}
    rows: dict[Place, int] = {}
    for forecast, layout in zip(planned.plan.forecasts, planned.layouts, strict=True):
        means |= mean_variances(forecast, layout.products)
        rows |= layout.rows
    columns = shown_columns(dict(enumerate(request.statements)), request.targets)
    pairs = [(each.variance(means, rows), each.variance(alone, rows)) for each in columns]
    worst = max(together / apart for together, apart in pairs if apart > 0)
    count = sum(column.rows for column in columns)
    return math.sqrt(expected_error(request, planned, alone) / count), math.sqrt(worst)


def errors(
    request: Request, planned: PlannedRequest, alone: Mapping[Place, float] | None = None
) -> tuple[float, float]:
    """Root mean squared errors, weighted, over those of plain noise: of all, and at worst of one.

    One is an aggregate of a statement, over all of its rows. Over those ``alone`` where there are.
    """
    if alone:
        return beside(request, planned, alone)
    (target,) = request.targets
    together = [] if target.together is None else [target.together]
    sensitivity, _ = plain_sensitivity([*target.layouts, *together], request.noises[0])
    unit = plain_unit(request)
    squares, plain, worst = 0.0, 0.0, 0.0
    for index, part in enumerate(planned.plan.parts):
        here = {p: r for p, (at, r, _) in planned.readings.items() if at == index}
        found = reading_variances(part.forecast, list(here.values()))
        for place, variance in zip(here, found, strict=True):
            weight = target.asked[place].weight
            noisy = unit * plain_variance(sensitivity, weight, request.noises[0])
            squares += weight**2 * float(variance.sum())
            plain += weight**2 * noisy * len(variance)
            worst = max(worst, math.sqrt(float(variance.mean()) / noisy))
    return math.sqrt(squares / plain), worst


def plain_unit(request: Request) -> float:
    """The variance of noise on a number of unit sensitivity for the whole budget."""
    if request.noises[0] == "laplace":
        return 2 / float(request.epsilon) ** 2
    return 1 / (2 * float(request.rho))


def make_case(seed: int) -> Case:
    """A random workload; the same for the same seed."""
    rng = np.random.default_rng(seed)
    kinds: tuple[tuple[str, Callable[[np.random.Generator], list[str]]], ...] = (
        ("conjunctive", conjunctive),
        ("dashboard", dashboard),
        ("ranges", ranges),
        ("marginals", marginals),
        ("disjunctive", disjunctive),
        ("sums", sums),
        ("mixed", mixed),
    )
    kind, generate = kinds[seed % len(kinds)]
    statements = generate(rng)
    if rng.random() < 0.25:
        statements = [weighted(text, rng) for text in statements]
    noise: Noise = "laplace" if seed // len(kinds) % 2 == 0 else "gaussian"
    return Case(kind, seed, ";\n".join(statements), noise)


def weighted(text: str, rng: np.random.Generator) -> str:
    """A statement with a weight of its own."""
    options = f"OPTIONS(weight = {rng.choice([0.5, 1, 2, 5])})"
    return text.replace("SELECT ", f"SELECT WITH DIFFERENTIAL_PRIVACY {options} ", 1)


def columns_of(rng: np.random.Generator, most: int, pool: Sequence[str] = ()) -> list[str]:
    """Some columns."""
    names = list(pool or DOMAINS)
    count = int(rng.integers(1, min(most, len(names)) + 1))
    return [str(name) for name in rng.choice(names, size=count, replace=False)]


def pool_of(rng: np.random.Generator) -> list[str]:
    """The columns that a workload is about: one to eight."""
    return columns_of(rng, len(DOMAINS))


def condition(rng: np.random.Generator, name: str) -> str:
    """A random condition on a column."""
    values = DOMAINS[name]
    if name in NUMBERS:
        low, high = sorted(rng.integers(0, len(values), size=2).tolist())
        shape = rng.random()
        if shape < 0.5:
            return f"{name} BETWEEN {values[low]} AND {values[high]}"
        return f"{name} <= {values[high]}" if shape < 0.8 else f"{name} = {values[low]}"
    if rng.random() < 0.25 and len(values) > 2:
        chosen = rng.choice(values, size=2, replace=False)
        return f"{name} IN ({', '.join(chosen)})"
    return f"{name} = {rng.choice(values)}"


def conjunctive(rng: np.random.Generator) -> list[str]:
    """Counts under conditions on a few columns each."""
    count, each = int(rng.choice([3, 5, 8, 12, 20, 40])), int(rng.integers(2, 5))
    pool = pool_of(rng) if rng.random() < 0.5 else list(DOMAINS)
    out = []
    for _ in range(count):
        names = rng.choice(pool, size=min(each, len(pool)), replace=False)
        where = " AND ".join(condition(rng, str(name)) for name in names)
        out.append(f"SELECT COUNT(*) FROM adult WHERE {where}")
    return out


def dashboard(rng: np.random.Generator) -> list[str]:
    """Groupings with conditions and filtered columns."""
    pool = pool_of(rng)
    small = [name for name in pool if name not in NUMBERS] or ["sex"]
    out = []
    for _ in range(int(rng.integers(2, 8))):
        keys = columns_of(rng, 2, small if rng.random() < 0.8 else pool)
        shown = ["COUNT(*)"]
        for _ in range(int(rng.integers(0, 3))):
            name = str(rng.choice(pool))
            shown.append(f"COUNT(*) FILTER (WHERE {condition(rng, name)})")
        where = ""
        if rng.random() < 0.6:
            chosen = columns_of(rng, 2, pool)
            where = " WHERE " + " AND ".join(condition(rng, name) for name in chosen)
        by = ", ".join(keys)
        out.append(f"SELECT {by}, {', '.join(shown)} FROM adult{where} GROUP BY {by}")
    return out


def ranges(rng: np.random.Generator) -> list[str]:
    """Ranges and prefixes of number columns, some within groups."""
    out = []
    for _ in range(int(rng.integers(3, 30))):
        name = str(rng.choice(NUMBERS))
        where = condition(rng, name)
        if rng.random() < 0.4:
            where += f" AND {condition(rng, str(rng.choice(list(DOMAINS)[:4])))}"
        out.append(f"SELECT COUNT(*) FROM adult WHERE {where}")
    if rng.random() < 0.3:
        out.append("SELECT age, COUNT(*) FROM adult GROUP BY age")
    return out


def marginals(rng: np.random.Generator) -> list[str]:
    """Groupings alone, the total among them at times."""
    pool = pool_of(rng)
    out = []
    for _ in range(int(rng.integers(2, 9))):
        keys = ", ".join(columns_of(rng, 3, pool))
        out.append(f"SELECT {keys}, COUNT(*) FROM adult GROUP BY {keys}")
    if rng.random() < 0.5:
        out.append("SELECT COUNT(*) FROM adult")
    return out


def disjunctive(rng: np.random.Generator) -> list[str]:
    """Counts under one condition or another."""
    pool = pool_of(rng) if rng.random() < 0.5 else list(DOMAINS)
    out = []
    for _ in range(int(rng.integers(2, 13))):
        names = columns_of(rng, 3, pool)
        out.append(
            "SELECT COUNT(*) FROM adult WHERE "
            + " OR ".join(condition(rng, name) for name in names)
        )
    return out


def sums(rng: np.random.Generator) -> list[str]:
    """Sums of number columns and of expressions, beside counts."""
    shown = ("age", "hours_per_week", "age + hours_per_week", "sqrt(age)", "age * 1.1")
    out = []
    for _ in range(int(rng.integers(1, 5))):
        picked = rng.choice(shown, size=int(rng.integers(1, 3)), replace=False)
        values = ", ".join(f"SUM({each})" for each in picked)
        if rng.random() < 0.5:
            values += ", COUNT(*)"
        where = f" WHERE {condition(rng, 'sex')}" if rng.random() < 0.4 else ""
        out.append(f"SELECT {values} FROM adult{where}")
    return out


def mixed(rng: np.random.Generator) -> list[str]:
    """Some of everything."""
    out: list[str] = []
    for generate in (conjunctive, dashboard, ranges, marginals, disjunctive):
        if rng.random() < 0.5:
            out += generate(rng)[: int(rng.integers(1, 6))]
    return out or ["SELECT COUNT(*) FROM adult"]


def cases(count: int) -> Iterator[Case]:
    """The first random workloads."""
    return map(make_case, range(count))


if __name__ == "__main__":
    sys.exit(main())
